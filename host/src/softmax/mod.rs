//! Softmax over the rows of a sparse result.

mod gpu;
mod host;
mod received;

use std::fmt;

use crate::csr::{DeviceCsr, Wanted};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::PlanError;
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{On, Scale, check_count, check_device};
use crate::view::{DeviceSlice, DeviceSliceMut};
use gpu::GpuRows;
use host::HostRows;
use windrow_formats::{Csr, Value};
use windrow_kernels::row_softmax::MOST_POSITIONS;
use windrow_simt::GlobalPtr;

/// Softmax over the rows of a sparse result, `p[e] = exp(t[e] − max t) / Σ exp(t − max t)` with `t = scale·s`, and its
/// gradient: for one pattern on one device, ready to run any number of times.
///
/// What makes the scores of attention over a graph, as [`Sddmm`](crate::Sddmm) computes them, the weights of a sum of
/// neighbours, which [`Spmm`](crate::Spmm) computes; these reach its plan by
/// [`replace_values_from`](crate::SpmmPlan::replace_values_from). Entries are in CSR order; maximum and sums are
/// taken over the entries of each row, and a row without entries has nothing to write.
///
/// On a GPU the methods queue the kernels and return, and allocate nothing. Reading the result waits for it, and so
/// does [`Device::synchronize`], which also reports errors of the kernels.
///
/// # Precision
/// `t` is the product rounded to f32. With `u = 2⁻²⁴`, `d = max t − t[e]` and `D` the mean of the row's `d`, weighted
/// by the probabilities, a probability is off by at most `(2.25·(d + D) + a + 10)·u` of itself, and `2⁻¹²⁶`: it may
/// be zero instead of subnormal. Here `a` is the number of additions on an entry's way into the sum: at most `⌈n/8⌉ +
/// 3` for a row of `n ≤ 512` entries and `⌈n/256⌉ + 13` for a longer one, none on the CPU, which sums in f64. A
/// gradient is off by at most `((a + 1)·Σ|p·g| + 3·|g − Σ p·g|)·|scale·p|·1.01·u`, unless it or `scale·p` is
/// subnormal. Every sum is taken in one order: two runs on a device give the same bits.
///
/// # Not-a-number
/// As IEEE arithmetic has it, and PyTorch: a NaN or `t = +∞` anywhere in a row makes the whole row NaN; `t = −∞` has
/// probability 0, unless all entries of the row are so: then they are NaN. Other rows are not affected. `scale = 0`
/// times an infinite score is NaN. Gradients follow their formula: one that is not finite reaches only its own row.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, DeviceBuffer, RowSoftmax};
///
/// // 3 × 3, row 1 without entries.
/// let pattern = Csr::try_from_parts(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1], vec![1.0f32; 3])?;
/// let device = Device::best()?;
/// let softmax = RowSoftmax::new(&pattern, &device)?;
/// let scores = DeviceBuffer::from_slice(&device, &[7.0f32, 7.0, -100.0])?;
/// let mut p = DeviceBuffer::alloc_zeroed(&device, 3)?;
/// softmax.forward(0.5, &scores, &mut p)?;
/// assert_eq!(p.to_vec()?, [0.5, 0.5, 1.0]);
///
/// let gradient = DeviceBuffer::from_slice(&device, &[1.0f32, 3.0, 9.0])?;
/// let mut of_scores = DeviceBuffer::alloc_zeroed(&device, 3)?;
/// softmax.backward(0.5, &p, &gradient, &mut of_scores)?;
/// assert_eq!(of_scores.to_vec()?, [-0.25, 0.25, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowSoftmax {
    rows: usize,
    nnz: usize,
    device: Device,
    body: Body,
}

/// Where the rows are.
enum Body {
    Cpu(HostRows),
    Gpu(GpuRows),
}

impl RowSoftmax {
    /// For results with the pattern of `pattern`, whose values do not matter. Keeps what it needs: the extents of the
    /// rows.
    ///
    /// # Cost
    /// Linear in rows; 8 bytes of device memory for each row with entries.
    ///
    /// # Errors
    /// - [`PlanError::TooLarge`] for about 2³² entries on a GPU;
    /// - [`PlanError::Device`] if the device refuses.
    pub fn new<V: Value>(pattern: &Csr<V>, device: &Device) -> Result<Self, PlanError> {
        let body = match device.machine() {
            None => Body::Cpu(HostRows::new(pattern.row_offsets())?),
            Some(_) => {
                let (found, limit) = (wide(pattern.nnz()), u64::from(MOST_POSITIONS));
                if found > limit {
                    let remedy = "split the pattern by rows, or use the CPU";
                    return Err(PlanError::TooLarge { what: "entries", found, limit, remedy });
                }
                Body::Gpu(GpuRows::new(pattern.row_offsets(), device)?)
            }
        };
        Ok(Self { rows: pattern.rows(), nnz: pattern.nnz(), device: device.clone(), body })
    }

    /// For results with the pattern of a matrix that is on a device, made in the order of a stream: after what that was
    /// asked for so far. What that is asked for later comes after all reading of the matrix's arrays, which may then be
    /// written or freed.
    ///
    /// Kernels check the matrix and divide its rows; rows of more than 512 entries, which are few, the host sorts by
    /// their length. Of matrices without entries, or with 2³¹ rows or entries, and on the CPU, a copy is made on the
    /// host.
    ///
    /// # Cost
    /// On a GPU kernels that are linear in rows and entries, and one wait for a few numbers; none for a matrix that was
    /// [checked](DeviceCsr::checked), and one or two more where a row has more than 512 entries. 8 bytes of device
    /// memory for each row with entries; for the time of the making 6 for each entry, too.
    ///
    /// # Errors
    /// - those of [`DeviceCsr::checked`] for a matrix that is not in canonical form, those of [`new`](Self::new);
    /// - [`PlanError::WrongDevice`] for a stream of another device,
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for one that is captured into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, DeviceCsr, RowSoftmax};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0])?);
    /// let on_device = DeviceCsr::from_host(&device, &a)?;
    /// let softmax = RowSoftmax::new_on(&on_device, &device.stream())?;
    /// let mut scores = DeviceBuffer::from_slice(&device, &[3.0f32, 3.0, -7.0])?;
    /// softmax.forward_in_place(1.0, &mut scores)?;
    /// assert_eq!(scores.to_vec()?, [0.5, 0.5, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_on<V: Value>(pattern: &DeviceCsr<'_, V>, on: &Stream) -> Result<Self, PlanError> {
        let device = pattern.device();
        check_device("the stream", on.device(), device)?;
        if device.machine().is_none() || pattern.nnz() == 0 || pattern.pattern_cannot_be_received().is_some()
        {
            return Self::new(&pattern.to_host(on)?, device);
        }
        let wanted = Wanted {
            precision: Precision::F16, // of values that nobody reads, the shortest
            pattern: true,
            unpadded: true,
            columns: false,
            exceptions: false,
            known: None,
        };
        let received = pattern.receive(&On::of(on, device, false)?, wanted)?;
        let body = Body::Gpu(GpuRows::of_received(device, &received)?);
        Ok(Self { rows: pattern.rows(), nnz: pattern.nnz(), device: device.clone(), body })
    }

    /// The arrays that [`internal::softmax_arrays`](crate::internal::softmax_arrays) returns.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, PlanError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(rows) => Ok(rows.read_arrays()?),
        }
    }

    /// `out ← softmax(scale·scores)` over rows; `scale` is `1/√d` for the usual attention over `d` features.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`] unless `scores` and `out` have one f32 for each entry;
    /// - [`PlanError::WrongDevice`] if one is elsewhere;
    /// - [`PlanError::Device`].
    pub fn forward(
        &self,
        scale: f32,
        scores: &DeviceBuffer<f32>,
        out: &mut DeviceBuffer<f32>,
    ) -> Result<(), PlanError> {
        self.forward_on(&self.device.stream(), scale, scores, out)
    }

    /// [`forward`](Self::forward) on a [`Stream`], for arrays in memory of any origin. The [`Scale`] is a number, or
    /// where one is on the device.
    ///
    /// # Errors
    /// - those of [`forward`](Self::forward); [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Overlap`] if `out` has bytes in common with `scores` or the factor, [`PlanError::ValueCount`]
    ///   unless that is one element;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    pub fn forward_on<'a>(
        &self,
        on: &Stream,
        scale: impl Into<Scale<'a>>,
        scores: impl Into<DeviceSlice<'a, f32>>,
        out: impl Into<DeviceSliceMut<'a, f32>>,
    ) -> Result<(), PlanError> {
        let (scale, scores, out) = (scale.into(), scores.into(), out.into());
        check_device("the stream", on.device(), &self.device)?;
        scale.check(&self.device)?;
        scale.check_apart("the result", out.as_slice().bytes())?;
        self.check("the array of scores", scores)?;
        self.check("the result", out.as_slice())?;
        out.as_slice().bytes().check_apart("the result", "the array of scores", scores.bytes())?;
        match &self.body {
            Body::Cpu(rows) => {
                // Both are in host memory: they are on the CPU, as was just checked.
                if let (Some(scores), Some(out)) = (scores.host(), out.into_host()) {
                    rows.forward(scale.on_host(), scores, out);
                }
                Ok(())
            }
            Body::Gpu(rows) => {
                let shares = scale.is_owned() || scores.is_owned() || out.as_slice().is_owned();
                let on = On::of(on, &self.device, shares)?;
                let scale = scale.on_device();
                let [scores, to] = [scores.address(), out.address()].map(GlobalPtr::from_address);
                // SAFETY: lengths and device were checked; buffers free their memory after the work that was queued
                // before, and of other memory the slices were promised that it lives; `out` is borrowed for itself.
                Ok(on.run(rows.entries(), |queue| unsafe { rows.forward(queue, scale, scores, to) })?)
            }
        }
    }

    /// [`forward`](Self::forward) with the probabilities in the place of the scores: the same bits.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, DeviceMatrix, DenseRef, RowSoftmax, Sddmm};
    ///
    /// let device = Device::best()?;
    /// let graph = Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0])?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[2.0f32, 0.0, 0.0, 2.0], 2, 2)?)?;
    /// let mut attention = DeviceBuffer::alloc_zeroed(&device, graph.nnz())?;
    /// Sddmm::builder(&graph).inner(2).build(&device)?.run_into(1.0, &x, &x, &mut attention)?;
    /// assert_eq!(attention.to_vec()?, [4.0, 0.0, 4.0]); // scores
    /// RowSoftmax::new(&graph, &device)?.forward_in_place(0.25, &mut attention)?;
    /// let e = 1.0f32.exp();
    /// let want = [e / (e + 1.0), 1.0 / (e + 1.0), 1.0];
    /// approx::assert_relative_eq!(attention.to_vec()?[..], want[..], max_relative = 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward_in_place(&self, scale: f32, values: &mut DeviceBuffer<f32>) -> Result<(), PlanError> {
        self.forward_in_place_on(&self.device.stream(), scale, values)
    }

    /// [`forward_in_place`](Self::forward_in_place) on a [`Stream`], for an array in memory of any origin.
    ///
    /// # Errors
    /// As for [`forward_on`](Self::forward_on).
    pub fn forward_in_place_on<'a>(
        &self,
        on: &Stream,
        scale: impl Into<Scale<'a>>,
        values: impl Into<DeviceSliceMut<'a, f32>>,
    ) -> Result<(), PlanError> {
        let (scale, values) = (scale.into(), values.into());
        check_device("the stream", on.device(), &self.device)?;
        scale.check(&self.device)?;
        scale.check_apart("the array of scores", values.as_slice().bytes())?;
        self.check("the array of scores", values.as_slice())?;
        match &self.body {
            Body::Cpu(rows) => {
                if let Some(values) = values.into_host() {
                    rows.forward_in_place(scale.on_host(), values);
                }
                Ok(())
            }
            Body::Gpu(rows) => {
                let on = On::of(on, &self.device, scale.is_owned() || values.as_slice().is_owned())?;
                let scale = scale.on_device();
                let at = GlobalPtr::from_address(values.address());
                // SAFETY: as in `forward_on`; scores and result may be one array.
                Ok(on.run(rows.entries(), |queue| unsafe { rows.forward(queue, scale, at, at) })?)
            }
        }
    }

    /// `out ← scale · p · (g − Σ p·g)`, the sum over the row: the gradient with respect to the scores, from the
    /// probabilities `p` that [`forward`](Self::forward) gave with the same `scale`, and the gradient `g` with respect
    /// to them.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward), of all three.
    pub fn backward(
        &self,
        scale: f32,
        probabilities: &DeviceBuffer<f32>,
        gradient: &DeviceBuffer<f32>,
        out: &mut DeviceBuffer<f32>,
    ) -> Result<(), PlanError> {
        let inputs = [probabilities.view(), gradient.view()];
        self.backward_on(&self.device.stream(), scale, inputs, out)
    }

    /// [`backward`](Self::backward) on a [`Stream`], for arrays in memory of any origin: `[p, g]` and the result.
    ///
    /// # Errors
    /// As for [`forward_on`](Self::forward_on), of all three.
    pub fn backward_on<'a>(
        &self,
        on: &Stream,
        scale: impl Into<Scale<'a>>,
        [probabilities, gradient]: [DeviceSlice<'_, f32>; 2],
        out: impl Into<DeviceSliceMut<'a, f32>>,
    ) -> Result<(), PlanError> {
        let (scale, out) = (scale.into(), out.into());
        check_device("the stream", on.device(), &self.device)?;
        self.check("the result", out.as_slice())?;
        scale.check(&self.device)?;
        scale.check_apart("the result", out.as_slice().bytes())?;
        for (name, input) in [("the array of probabilities", probabilities), ("the gradient", gradient)] {
            self.check(name, input)?;
            out.as_slice().bytes().check_apart("the result", name, input.bytes())?;
        }
        match &self.body {
            Body::Cpu(rows) => {
                if let (Some(p), Some(g), Some(out)) =
                    (probabilities.host(), gradient.host(), out.into_host())
                {
                    rows.backward(scale.on_host(), p, g, out);
                }
                Ok(())
            }
            Body::Gpu(rows) => {
                let shares = [probabilities, gradient, out.as_slice()].iter().any(DeviceSlice::is_owned);
                let on = On::of(on, &self.device, shares || scale.is_owned())?;
                let scale = scale.on_device();
                let inputs = [probabilities.address(), gradient.address()].map(GlobalPtr::from_address);
                let to = GlobalPtr::from_address(out.address());
                // SAFETY: as in `forward_on`.
                Ok(on.run(rows.entries(), |queue| unsafe { rows.backward(queue, scale, inputs, to) })?)
            }
        }
    }

    /// The device that it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Rows of the pattern.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Entries of the pattern, and of every array.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    fn check(&self, operand: &'static str, array: DeviceSlice<'_, f32>) -> Result<(), PlanError> {
        check_device(operand, array.device(), &self.device)?;
        check_count(operand, array.len(), self.nnz)
    }
}

impl fmt::Debug for RowSoftmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, nnz, device, .. } = self;
        write!(f, "RowSoftmax({rows} rows, {nnz} entries, on {device})")
    }
}

//! A sampled product that is ready to run.

use std::fmt;

use windrow_formats::Value;
use windrow_formats::memory::{try_collect, try_copy, try_zeroed};
use windrow_simt::GlobalPtr;

use super::gpu::{GpuSddmm, Operands};
use super::host::{HostSddmm, scale_of};
use super::options::SddmmForm;
use super::report::SddmmReport;
use crate::dense::{DenseRef, MatRef};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::element::{BySum, Element, Real, is_narrow, kernel_factor};
use crate::error::SddmmError;
use crate::matrix::DeviceMatrix;
use crate::options::Precision;
use crate::plan::{
    MAX_INDEX, On, Rounded, check_count, check_device, check_element, check_index, check_ld,
    check_new_values, check_packed, check_shape, factor, operand,
};
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView};
use crate::with_element;

/// A sparse pattern laid out for products `out ← α·(X[m×d]·Y[n×d]ᵀ) ⊙ A[m×n]` on one device.
///
/// Made by [`Sddmm::builder`](super::Sddmm::builder); runs any number of times, with any inner dimension `d`.
///
/// # Precision
/// `X` and `Y` are rounded to the plan's [`Precision`], products are summed in f32, or in f64 for that. With `u = 2⁻²⁴`
/// (`2⁻²³` where tiles take part, `2⁻⁵³` in f64) and `γ(t) = t·u / (1 − t·u)`, an element is off by at most
/// `γ(d + 4)·|α·a|·Σ|x·y|`. Every element is summed in one order: running a plan twice, on operands of the same
/// alignment, gives the same bits.
///
/// # Not-a-number
/// Elements of `X` and `Y` that are not finite reach only the entries of their row or column. What the result held
/// before does not matter.
pub struct SddmmPlan {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) nnz: usize,
    pub(super) precision: Precision,
    pub(super) form: SddmmForm,
    pub(super) device: Device,
    pub(super) body: Body,
    pub(super) report: SddmmReport,
}

/// Where the pattern is.
pub(super) enum Body {
    /// A [`HostSddmm`] of the type that products are summed in.
    Cpu(BySum),
    Gpu(Box<GpuSddmm>),
}

impl SddmmPlan {
    /// `(X·Yᵀ) ⊙ A` for `X` of m × d and `Y` of n × d in host memory, row after row without padding; `d` follows from
    /// their lengths. One number for each entry of `A`, in CSR order.
    ///
    /// Copies operands and result; see [`run_into`](Self::run_into) for matrices that stay on the device.
    ///
    /// # Errors
    /// - [`PlanError::PackedCount`](crate::PlanError::PackedCount) if the lengths are no m × d and n × d;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Sddmm, SddmmForm};
    ///
    /// let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 3.0, 0.0])?;
    /// let plan = Sddmm::builder(&a).form(SddmmForm::Scale).build(&Device::cpu())?;
    /// assert_eq!(plan.run(&[1.0, 10.0], &[5.0, 7.0])?, [14.0, 150.0]); // 2·(1·7), 3·(10·5)
    /// assert!(plan.run(&[1.0, 10.0], &[5.0]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T: Element>(&self, x: &[T], y: &[T]) -> Result<Vec<T>, SddmmError> {
        let inner = match (self.rows, self.cols) {
            (0, 0) => 0,
            (0, n) => y.len() / n,
            (m, _) => x.len() / m,
        };
        let (x, y) = (check_packed("X", x, (self.rows, inner))?, check_packed("Y", y, (self.cols, inner))?);
        self.run_host(<T::Sum as Value>::ONE, x, y)
    }

    /// `α·(X·Yᵀ) ⊙ A` for matrices in host memory, row-major or column-major: each a [`MatRef`], a [`DenseRef`], a
    /// [`Dense`](crate::Dense), or with the feature `ndarray` an array of two dimensions. Sums are rounded once, to
    /// `T`.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit,
    ///   [`PlanError::Strides`](crate::PlanError::Strides) if a matrix cannot be read;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, MatRef, Sddmm};
    ///
    /// let plan = Sddmm::builder(&Csr::<f32>::identity(2)?).build(&Device::cpu())?;
    /// let x = MatRef::row_major(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?;
    /// let y_transposed = MatRef::row_major(&[1.0f32, 10.0, 0.0, 1.0], 2, 2)?; // Yᵀ is d × n
    /// assert_eq!(plan.run_host(1.0, x, y_transposed.transposed())?, [1.0, 34.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_host<'d, T: Element>(
        &self,
        alpha: T::Sum,
        x: impl TryInto<MatRef<'d, T>, Error: Into<crate::PlanError>>,
        y: impl TryInto<MatRef<'d, T>, Error: Into<crate::PlanError>>,
    ) -> Result<Vec<T>, SddmmError> {
        let (x, y) = (operand(x)?, operand(y)?);
        self.check_shapes((x.rows(), x.cols()), (y.rows(), y.cols()))?;
        with_element!(self.precision, E => {
            let (x, y) = (Rounded::<E>::new(x)?, Rounded::<E>::new(y)?);
            let out = self.run_as(factor(alpha), x.view()?, y.view()?)?;
            Ok(match bytemuck::allocation::try_cast_vec(out) {
                Ok(same) => same,
                Err((_, out)) => {
                    try_collect(out.into_iter().map(|sum| T::from_f64(sum.to_f64())), "the result")?
                }
            })
        })
    }

    /// Runs with operands of the plan's element type; on a GPU by way of copies.
    fn run_as<T: Element>(
        &self,
        alpha: T::Sum,
        x: DenseRef<'_, T>,
        y: DenseRef<'_, T>,
    ) -> Result<Vec<T::Sum>, SddmmError> {
        if let Body::Cpu(pattern) = &self.body {
            let mut out = try_zeroed::<T::Sum>(self.nnz, "the result")?;
            if let Some(pattern) = pattern.get::<HostSddmm<T::Sum>>() {
                pattern.run(alpha, x, y, &mut out)?;
            }
            return Ok(out);
        }
        let x = DeviceMatrix::upload(&self.device, x)?;
        let y = DeviceMatrix::upload(&self.device, y)?;
        let mut out = DeviceBuffer::<T::Sum>::alloc_zeroed(&self.device, self.nnz)?;
        self.run_into(alpha, &x, &y, &mut out)?;
        Ok(out.to_vec()?)
    }

    /// `out ← α·(X·Yᵀ) ⊙ A` for operands on the plan's device.
    ///
    /// On a GPU this queues the kernels and returns. It allocates nothing, but for the first result of 16 bits: an f32
    /// for each entry, from which sums are rounded in a launch of their own. Reading `out` waits for the result, and so
    /// does [`Device::synchronize`], which also reports errors of the kernels.
    ///
    /// # Shapes
    /// - `x`: m × d, `y`: n × d, of the plan's precision (for tf32: f32). Kernels read them fastest if `ld` elements
    ///   are a multiple of 16 bytes, as [`DeviceMatrix::zeros`] and [`DeviceMatrix::upload`] make it;
    /// - `out`: one number for each entry, in CSR order: f32, f16 or bf16; f64 for a plan of that precision.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape),
    ///   [`PlanError::ValueCount`](crate::PlanError::ValueCount) if the sizes do not fit;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if an operand is elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) if one is of another type;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge) for an inner or leading dimension of about 2³² or more;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) for a result of 16 bits on a GPU, if the plan's
    ///   limit leaves no room for its sums;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Sddmm};
    ///
    /// let device = Device::best()?;
    /// let plan = Sddmm::builder(&Csr::<f32>::identity(2)?).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
    /// let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, 2)?;
    /// plan.run_into(2.0, &x, &x, &mut out)?; // twice the squared lengths of the rows
    /// assert_eq!(out.to_vec()?, [10.0, 50.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T>,
        out: &mut DeviceBuffer<O>,
    ) -> Result<(), SddmmError> {
        self.run_views(&self.device.stream(), alpha, [x.view(), y.view()], out.view_mut())
    }

    /// [`run_into`](Self::run_into) on a [`Stream`], for operands in memory of any origin: a [`DeviceMatrix`] and a
    /// [`DeviceBuffer`], or [what another library has allocated](DeviceView::from_raw). What is said of streams says
    /// how it is [ordered](Stream#order-between-streams) with other work.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into);
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device;
    /// - [`PlanError::Overlap`](crate::PlanError::Overlap) if `out` has bytes in common with `x` or `y`;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Sddmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = Sddmm::builder(&Csr::<f32>::identity(2)?).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
    /// let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, 2)?;
    /// plan.run_into_on(&Stream::new(&device)?, 1.0, [x.view(), x.view()], &mut out)?;
    /// assert_eq!(out.to_vec()?, [5.0, 25.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into_on<'a, T: Element, O: Element<Sum = T::Sum>>(
        &self,
        on: &Stream,
        alpha: T::Sum,
        [x, y]: [DeviceView<'_, T>; 2],
        out: impl Into<DeviceSliceMut<'a, O>>,
    ) -> Result<(), SddmmError> {
        self.run_views(on, alpha, [x, y], out.into())
    }

    fn run_views<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        on: &Stream,
        alpha: T::Sum,
        [x, y]: [DeviceView<'_, T>; 2],
        out: DeviceSliceMut<'_, O>,
    ) -> Result<(), SddmmError> {
        check_device("the stream", on.device(), &self.device)?;
        self.check_operands(x, y, out.as_slice())?;
        let to = out.as_slice().bytes();
        to.check_apart("the result", "X", x.bytes())?;
        to.check_apart("the result", "Y", y.bytes())?;
        match &self.body {
            Body::Cpu(pattern) => {
                // All are in host memory: they are on the CPU, as was just checked.
                let pattern = pattern.get::<HostSddmm<T::Sum>>();
                if let (Some(pattern), Some(x), Some(y), Some(out)) =
                    (pattern, x.host(), y.host(), out.into_host())
                {
                    pattern.run(alpha, x, y, out)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, x.is_owned() || y.is_owned() || out.as_slice().is_owned())?;
                let remedy = "add up products of parts of the columns";
                let inner = check_index("columns of X and Y", x.cols(), MAX_INDEX, remedy)?;
                let operands = Operands {
                    x: x.address(),
                    ldx: check_ld(x.ld())?,
                    y: y.address(),
                    ldy: check_ld(y.ld())?,
                    reads_vectors: x.reads_vectors(to) && y.reads_vectors(to),
                    out: out.address(),
                    inner,
                    narrow: is_narrow::<O>().then_some(O::PRECISION),
                    alpha: kernel_factor(alpha),
                };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` holds all rows up to its leading
                // dimension, and frees them after the work that was queued before; of other memory the views were
                // promised that it lives. `out` has nothing in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, operands, &self.report.arrays)? };
                Ok(())
            }
        }
    }

    /// Puts new values in the places of the old, one for each entry in CSR order, for [`SddmmForm::Scale`]; a plan of
    /// the other form has none and stays as it is.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    pub fn replace_values<V: Value>(&mut self, values: &[V]) -> Result<(), SddmmError> {
        check_count("the new values", values.len(), self.nnz)?;
        with_element!(self.precision, E => self.scale_by(scale_of::<V, <E as Element>::Sum>(values)?))
    }

    /// Puts new values in the places of the old, in the type of the sums.
    fn scale_by<S: Real>(&mut self, scale: Vec<S>) -> Result<(), SddmmError> {
        match &mut self.body {
            Body::Cpu(pattern) => {
                if let Some(pattern) = pattern.get_mut::<HostSddmm<S>>() {
                    pattern.replace_values(scale);
                }
            }
            Body::Gpu(plan) => plan.replace_values(bytemuck::cast_slice(&scale))?,
        }
        Ok(())
    }

    /// [`replace_values`](Self::replace_values) with values that are on the plan's device, without a way through the
    /// host. On a GPU this queues a kernel and returns.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry,
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if they are elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) unless they are f32, for a plan of that precision
    ///   f64;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, Sddmm, SddmmForm};
    ///
    /// let device = Device::best()?;
    /// let mut plan = Sddmm::builder(&Csr::<f32>::identity(2)?).form(SddmmForm::Scale).build(&device)?;
    /// plan.replace_values_from(&DeviceBuffer::from_slice(&device, &[3.0f32, 4.0])?)?;
    /// assert_eq!(plan.run(&[1.0, 1.0], &[5.0, 7.0])?, [15.0, 28.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values_from<S: Real>(&mut self, values: &DeviceBuffer<S>) -> Result<(), SddmmError> {
        self.replace_values_on(&self.device.stream(), values)
    }

    /// [`replace_values_from`](Self::replace_values_from) on a [`Stream`], with values in memory of any origin. Runs
    /// that were asked for before, on whatever stream, still use the old values, later ones the new.
    ///
    /// # Errors
    /// Those of [`replace_values_from`](Self::replace_values_from);
    /// [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    /// [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a [graph](Stream#graphs): the
    /// values are lent, and the stream has had a run or was [prepared](Self::prepare_on).
    pub fn replace_values_on<'a, S: Real>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceSlice<'a, S>>,
    ) -> Result<(), SddmmError> {
        let values = values.into();
        check_new_values(on, &values, &self.device, (self.precision, self.nnz))?;
        match &mut self.body {
            // They are in host memory: they are on the CPU, as was just checked.
            Body::Cpu(_) => self.scale_by(try_copy(values.host().unwrap_or_default(), "values")?)?,
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, values.is_owned())?;
                // SAFETY: length, type and device were checked; a buffer frees its memory after the work that was
                // queued before, and of other memory the slice was promised that it lives.
                unsafe { plan.replace_by::<S>(&on, GlobalPtr::from_address(values.address()))? };
            }
        }
        Ok(())
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &SddmmReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of `X` and `Y`.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// `(m, n)`: rows and columns of the pattern.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Number of entries of the pattern, and of the result.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The arrays that [`internal::sampled_arrays`](crate::internal::sampled_arrays) returns.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SddmmError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(plan) => Ok(plan.read_arrays()?),
        }
    }

    fn check_shapes(&self, x: (usize, usize), y: (usize, usize)) -> Result<(), SddmmError> {
        check_shape("X", x, (self.rows, x.1))?;
        Ok(check_shape("Y", y, (self.cols, x.1))?)
    }

    /// Devices, types and shapes.
    pub(super) fn check_operands<T: Element, O: Element>(
        &self,
        x: DeviceView<'_, T>,
        y: DeviceView<'_, T>,
        out: DeviceSlice<'_, O>,
    ) -> Result<(), SddmmError> {
        for (operand, device) in [("X", x.device()), ("Y", y.device()), ("the result", out.device())] {
            check_device(operand, device, &self.device)?;
        }
        check_element::<T>("X", self.precision)?;
        self.check_shapes((x.rows(), x.cols()), (y.rows(), y.cols()))?;
        Ok(check_count("the result", out.len(), self.nnz)?)
    }
}

impl fmt::Debug for SddmmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, precision, form, .. } = self;
        let algorithm = self.report.algorithm;
        write!(
            f,
            "SddmmPlan({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, {form}, on {})",
            self.device
        )
    }
}

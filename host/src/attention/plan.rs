//! A plan of attention that is ready to run.

use std::fmt;

use windrow_formats::Pattern;
use windrow_kernels::attention::EntryBias;

use super::gpu::{GpuAttention, KernelOperands};
use super::host::{HostAttention, HostOperands};
use super::operands::{AttentionOperands, Extent};
use super::options::{AttentionOptions, Dropout};
use super::report::AttentionReport;
use crate::device::{Device, Stream};
use crate::element::{Element, output_type};
use crate::error::AttentionError;
#[cfg(doc)]
use crate::error::PlanError;
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::plan::{On, check_count, check_device, check_element, check_packed, pointer_or_null};
use crate::row_lists::Transposed;
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};

/// A matrix laid out for attention over its entries, with heads of a number of columns, on one device.
///
/// Made by [`GraphAttention::builder`](super::GraphAttention::builder); runs any number of times.
///
/// # Precision
/// Products and sums are taken in f32, in f64 on the CPU, and a result is rounded once. On Tensor Cores a weight is the
/// sum of two numbers of the operands' type, 22 bits of f16 or 16 of bf16. Every sum is taken in one order: two runs on
/// a device, with operands of the same alignment, give the same bits.
///
/// # Not-a-number
/// As IEEE arithmetic has it, and PyTorch: a score that is a NaN or `+∞` makes its whole row NaN, elements of `V` that
/// are not finite reach the rows that have an entry in their column, in their own column of the result, and no other
/// row. Scores of `−∞` have weight 0. A row without entries gives zeros; so does one all of whose scores are `−∞`.
pub struct AttentionPlan {
    pub(super) device: Device,
    pub(super) body: Body,
    pub(super) report: AttentionReport,
}

/// Where the matrix is.
pub(super) enum Body {
    Cpu {
        pattern: Pattern,
        /// What gradients of `K` and `V` need.
        transposed: Option<Transposed>,
    },
    Gpu(Box<GpuAttention>),
}

impl AttentionPlan {
    /// `softmax(scale · Q·Kᵀ ⊙ A) · V` for operands in host memory, row after row without padding.
    ///
    /// Copies operands and result; see [`forward`](Self::forward) for matrices that stay on the device.
    ///
    /// # Errors
    /// - [`PlanError::PackedCount`] if an operand has another number of elements;
    /// - those of [`forward`](Self::forward).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, GraphAttention};
    ///
    /// // Row 0 attends to columns 0 and 1, whose scores are equal; row 1 to nothing.
    /// let a = Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 0.0])?;
    /// let plan = GraphAttention::builder(&a).columns(1).build(&Device::best()?)?;
    /// let out = plan.run(1.0, &[0.5f32, 9.0], &[7.0, 7.0], &[1.0, 3.0])?;
    /// assert_eq!(out, [2.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T: Element<Sum = f32>>(
        &self,
        scale: f32,
        q: &[T],
        k: &[T],
        v: &[T],
    ) -> Result<Vec<f32>, AttentionError> {
        let [of_q, of_k, of_v, of_out] = self.extents();
        let upload = |extent: Extent, data| {
            let matrix = check_packed(extent.name, data, extent.shape(self.options()))?;
            DeviceMatrix::upload(&self.device, matrix)
        };
        let (q, k, v) = (upload(of_q, q)?, upload(of_k, k)?, upload(of_v, v)?);
        let (rows, cols) = of_out.shape(self.options());
        let mut out = DeviceMatrix::<f32>::zeros(&self.device, rows, cols)?;
        self.forward(scale, [&q, &k, &v], &mut out)?;
        Ok(out.download()?)
    }

    /// `O ← softmax(scale · Q·Kᵀ ⊙ A) · V`, the softmax over the entries of each row, for each head, with operands on
    /// the plan's device.
    ///
    /// On a GPU this queues the kernels and returns. It allocates nothing. Reading `out` waits for the result, and so
    /// does [`Device::synchronize`], which also reports errors of the kernels.
    ///
    /// # Shapes
    /// Those of [`AttentionOperands`]; `out` is m × (h·e) or (h·m) × e, of f32, f16 or bf16. Kernels read operands
    /// fastest if rows of all heads begin at multiples of 16 bytes.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`] if the sizes do not fit;
    /// - [`PlanError::WrongDevice`] if an operand is elsewhere, [`PlanError::ElementType`] if `Q`, `K` and `V` are not
    ///   of the plan's precision;
    /// - [`PlanError::Device`], with [`DeviceError::MissingEntry`](crate::DeviceError::MissingEntry) for operands that
    ///   are not aligned, if an algorithm on Tensor Cores was asked for.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, GraphAttention};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = GraphAttention::builder(&a).columns(2).build(&device)?;
    /// let on_device = |data: &[f32], rows| DeviceMatrix::upload(&device, DenseRef::packed(data, rows, 2)?);
    /// let q = on_device(&[1.0, 0.0], 1)?;
    /// let k = on_device(&[3.0, 5.0, 3.0, -5.0], 2)?; // products with q: 3 and 3
    /// let v = on_device(&[2.0, 0.0, 0.0, 4.0], 2)?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// plan.forward(0.5, [&q, &k, &v], &mut out)?;
    /// assert_eq!(out.download()?, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward<T: Element<Sum = f32>, O: Element<Sum = f32>>(
        &self,
        scale: f32,
        [q, k, v]: [&DeviceMatrix<T>; 3],
        out: &mut DeviceMatrix<O>,
    ) -> Result<(), AttentionError> {
        self.forward_on(&self.device.stream(), scale, AttentionOperands::new(q, k, v), out)
    }

    /// [`forward`](Self::forward) on a [`Stream`], for operands in memory of any origin, with a bias, dropout, and
    /// states for the gradient. What is said of streams says how it is [ordered](Stream#order-between-streams) with
    /// other work.
    ///
    /// # Errors
    /// - those of [`forward`](Self::forward); [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::ValueCount`] for a vector, a bias or states of another length, [`AttentionError::NoVector`] and
    ///   [`AttentionError::NeedlessVector`] if there is none though scores need it, or the other way round,
    ///   [`AttentionError::NotBiased`] for a bias of a plan that was not made for one, [`AttentionError::DropoutRate`]
    ///   for a rate that is no share;
    /// - [`PlanError::Overlap`] if `out` has bytes in common with an operand;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    ///
    /// # Examples
    /// ```
    /// use windrow::{AttentionOperands, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, GraphAttention};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = GraphAttention::builder(&a).columns(1).biased(true).build(&device)?;
    /// let on_device = |data: &[f32], rows| DeviceMatrix::upload(&device, DenseRef::packed(data, rows, 1)?);
    /// let (q, k, v) = (on_device(&[0.0], 1)?, on_device(&[1.0, 1.0], 2)?, on_device(&[5.0, 7.0], 2)?);
    /// let bias = DeviceBuffer::from_slice(&device, &[0.0, f32::NEG_INFINITY])?; // leaves the second entry out
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 1, 1)?;
    /// let operands = AttentionOperands::new(&q, &k, &v).bias(&bias);
    /// plan.forward_on(&device.stream(), 1.0, operands, &mut out)?;
    /// assert_eq!(out.download()?, [5.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward_on<'a, T: Element<Sum = f32>, S: Element<Sum = f32>, O: Element<Sum = f32>>(
        &self,
        on: &Stream,
        scale: f32,
        operands: AttentionOperands<'a, T, S>,
        out: impl Into<DeviceViewMut<'a, O>>,
    ) -> Result<(), AttentionError> {
        let out = out.into();
        check_device("the stream", on.device(), &self.device)?;
        self.check_operands(&operands, &out)?;
        let AttentionOperands { q, k, v, vector, bias, dropout, states } = operands;
        let extents @ [of_q, of_k, of_v, of_out] = self.extents();
        let options = self.options();
        match &self.body {
            Body::Cpu { pattern, .. } => {
                // All are in host memory: they are on the CPU, as was just checked.
                if let (Some(q), Some(k), Some(v), Some(mut out)) =
                    (q.host(), k.host(), v.host(), out.into_host())
                {
                    let [vector, bias] =
                        [vector, bias].map(|numbers| numbers.and_then(|numbers| numbers.host()));
                    let operands = HostOperands { q, k, v, vector, bias, dropout };
                    let states = states.and_then(|states| states.into_host());
                    let attention = HostAttention { pattern, options, extents };
                    attention.run(scale, &operands, &mut out, states)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let shares = q.is_owned() || k.is_owned() || v.is_owned() || out.is_owned();
                let slices = bias.iter().chain(&vector).any(DeviceSlice::is_owned)
                    || states.as_ref().is_some_and(|states| states.as_slice().is_owned());
                let on = On::of(on, &self.device, shares || slices)?;
                let aligned = self.is_aligned([&q, &k], &v);
                let operands = KernelOperands {
                    q: of_q.of_kernel(options, q.address(), q.ld())?,
                    k: of_k.of_kernel(options, k.address(), k.ld())?,
                    v: of_v.of_kernel(options, v.address(), v.ld())?,
                    out: of_out.of_kernel(options, out.address(), out.ld())?,
                    out_type: output_type::<O>(),
                    out_vectors: of_out.is_aligned::<O>(options, out.address(), out.ld(), 4 * size_of::<O>()),
                    vector: pointer_or_null(vector.map(|vector| vector.address())),
                    bias: self.bias_of_kernel(bias.as_ref()),
                    states: pointer_or_null(states.map(|states| states.address())),
                    scale,
                    dropout,
                };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` frees its memory after the work that
                // was queued before; of other memory the views were promised that it lives. What is written has nothing
                // in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, &operands, aligned)? };
                Ok(())
            }
        }
    }

    /// Makes all that runs on a stream need beside operands, and gradients if the plan has them, so that they can be
    /// captured into a [graph](Stream#graphs), or timed. Waits until it is there. Nothing is left to do on the CPU.
    ///
    /// # Errors
    /// [`PlanError::WrongDevice`] for a stream of another device; [`PlanError::Device`] if the device refuses, with
    /// [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured already.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, GraphAttention, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = GraphAttention::builder(&Csr::<f32>::identity(2)?).columns(8).build(&device)?;
    /// plan.prepare_on(&Stream::new(&device)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_on(&self, on: &Stream) -> Result<(), AttentionError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu { .. } => Ok(()),
            Body::Gpu(plan) => Ok(plan.prepare(&On::of(on, &self.device, false)?)?),
        }
    }

    /// Whether every row that kernels read in vectors begins at a multiple of 16 bytes and has a multiple of that.
    pub(super) fn is_aligned<T: Element, S: Element>(
        &self,
        [q, k]: [&DeviceView<'_, S>; 2],
        v: &DeviceView<'_, T>,
    ) -> bool {
        let options = self.options();
        let [of_q, of_k, of_v, _] = self.extents();
        let of_scores = |extent: Extent, view: &DeviceView<'_, S>| {
            // Additive scores are read number by number.
            options.scores.are_additive() || extent.is_aligned::<S>(options, view.address(), view.ld(), 16)
        };
        of_scores(of_q, q) && of_scores(of_k, k) && of_v.is_aligned::<T>(options, v.address(), v.ld(), 16)
    }

    /// A bias as kernels take it.
    pub(super) fn bias_of_kernel(&self, bias: Option<&DeviceSlice<'_, f32>>) -> EntryBias {
        let of_each = bias.is_some_and(|bias| bias.len() > self.report.nnz);
        let values = pointer_or_null(bias.map(|bias| bias.address()));
        EntryBias { values, head: if of_each { wide(self.report.nnz) } else { 0 } }
    }

    /// Checks that operands are where they must be, of the sizes and the type that they must have, and apart.
    fn check_operands<T: Element, S: Element, O: Element>(
        &self,
        operands: &AttentionOperands<'_, T, S>,
        out: &DeviceViewMut<'_, O>,
    ) -> Result<(), AttentionError> {
        self.check_read(operands)?;
        let [of_q, of_k, of_v, of_out] = self.extents();
        let AttentionOperands { q, k, v, vector, bias, states, .. } = operands;
        check_device(of_out.name, out.device(), &self.device)?;
        of_out.check(self.options(), (out.rows(), out.cols()))?;
        for (extent, bytes) in [(of_q, q.bytes()), (of_k, k.bytes()), (of_v, v.bytes())] {
            out.bytes().check_apart("the result", extent.name, bytes)?;
        }
        for (name, numbers) in [("the vector", vector), ("the bias", bias)] {
            if let Some(numbers) = numbers {
                out.bytes().check_apart("the result", name, numbers.bytes())?;
            }
        }
        if let Some(states) = states {
            check_device("the states", states.as_slice().device(), &self.device)?;
            check_count("the states", states.as_slice().len(), 2 * self.options().heads * self.report.rows)?;
            states.as_slice().bytes().check_apart("the states", "the result", out.bytes())?;
        }
        Ok(())
    }

    /// Checks what forward and backward passes read alike.
    pub(super) fn check_read<T: Element, S: Element>(
        &self,
        operands: &AttentionOperands<'_, T, S>,
    ) -> Result<(), AttentionError> {
        let AttentionOperands { q, k, v, vector, bias, dropout, .. } = operands;
        let [of_q, of_k, of_v, _] = self.extents();
        let options = self.options();
        for (extent, view) in [(of_q, q), (of_k, k)] {
            check_device(extent.name, view.device(), &self.device)?;
            check_element::<S>(extent.name, options.score_precision())?;
            extent.check(options, (view.rows(), view.cols()))?;
        }
        check_device(of_v.name, v.device(), &self.device)?;
        check_element::<T>(of_v.name, options.precision)?;
        of_v.check(options, (v.rows(), v.cols()))?;
        match (vector, options.scores.have_vector()) {
            (Some(vector), true) => {
                check_device("the vector", vector.device(), &self.device)?;
                check_count("the vector", vector.len(), options.heads * options.score_columns())?;
            }
            (None, false) => {}
            (None, true) => return Err(AttentionError::NoVector),
            (Some(_), false) => return Err(AttentionError::NeedlessVector),
        }
        if let Some(bias) = bias {
            check_device("the bias", bias.device(), &self.device)?;
            if !options.biased {
                return Err(AttentionError::NotBiased);
            }
            if bias.len() != self.report.nnz {
                check_count("the bias of all heads", bias.len(), self.report.nnz * options.heads)?;
            }
        }
        match dropout {
            Some(Dropout { rate, .. }) if !(0.0..1.0).contains(rate) => {
                Err(AttentionError::DropoutRate { found: *rate })
            }
            _ => Ok(()),
        }
    }

    /// Rows and columns of a head of `Q`, `K`, `V` and the result.
    pub(super) fn extents(&self) -> [Extent; 4] {
        let AttentionReport { rows, cols, .. } = self.report;
        let (columns, value_columns) = (self.options().score_columns(), self.options().value_columns());
        [
            Extent { name: "Q", rows, columns },
            Extent { name: "K", rows: cols, columns },
            Extent { name: "V", rows: cols, columns: value_columns },
            Extent { name: "the result", rows, columns: value_columns },
        ]
    }

    pub(super) fn options(&self) -> &AttentionOptions {
        &self.report.options
    }

    /// The device that it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &AttentionReport {
        &self.report
    }
}

impl fmt::Debug for AttentionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionReport { rows, cols, nnz, algorithm, .. } = self.report;
        let AttentionOptions { heads, precision, .. } = self.options();
        write!(
            f,
            "AttentionPlan({rows} × {cols}, {nnz} entries, {heads} heads, {algorithm}, {precision}, on {})",
            self.device
        )
    }
}

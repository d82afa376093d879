//! A product with N:M weights that is ready to run.

use std::fmt;

use half::{bf16, f16};
use windrow_formats::memory::try_zeroed;
use windrow_formats::{NmPattern, VectorNm};

use super::gpu::{GpuNm, MAX_ROWS};
use super::host::{Finish, HostNm};
use super::operands::Operands;
use super::options::ActivationLayout;
use super::report::NmReport;
use crate::activation::Epilogue;
use crate::dense::{DenseMut, DenseRef, MatRef};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::element::{Element, output_type};
use crate::error::NmError;
use crate::matrix::{DeviceMatrix, elements};
use crate::options::Precision;
use crate::plan::{
    Budget, On, Rounded, check_device, check_element, check_index, check_ld, check_shape, operand, output_on,
};
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};

/// Weights laid out for products `C[m×n] ← act(α·scale·A[m×k]·W[k×n] + β·C + bias) [⊙ C]` on one device, as the
/// [`Epilogue`] of a run says.
///
/// Made by [`NmSpmm::builder`](super::NmSpmm::builder); runs any number of times, with any number of rows
/// `m`.
///
/// # Precision
/// `A` and `W` are rounded to the plan's [`Precision`], products are summed in f32, and all that follows is
/// f32 until the result is rounded to the type of `C`. With `w` kept rows, `u = 2⁻²⁴` (`2⁻²³` on Tensor
/// Cores) and `γ(t) = t·u / (1 − t·u)`, an element is off by at most
/// `γ(w + 5)·(|α·scale|·Σ|a·w| + |β·c| + |bias|)` before the activation; [`verify`](Self::verify) has the
/// whole bound. Every element is summed in one order: running a plan twice, on operands of the same
/// alignment, gives the same bits.
///
/// # Not-a-number
/// An element of `A` that is not finite reaches only its row of `C`, and there only the columns whose vectors
/// keep its row of `W`; on sparse Tensor Cores that were asked for, where a pattern keeps fewer than two of four
/// rows, also others ([`NmAlgorithm::SparseTensorCores`](super::NmAlgorithm::SparseTensorCores)), and in a dense
/// product that was asked for or allowed all ([`NmAlgorithm::Dense`](super::NmAlgorithm::Dense)). What `C` held before
/// does not matter if β = 0.
pub struct NmSpmmPlan {
    pub(super) inner: usize,
    pub(super) cols: usize,
    pub(super) pattern: NmPattern,
    pub(super) precision: Precision,
    pub(super) layout: ActivationLayout,
    pub(super) scale: f32,
    pub(super) device: Device,
    pub(super) body: Body,
    /// Where the kept values belong, of weights that were on the device.
    pub(super) places: Option<VectorNm<()>>,
    pub(super) memory_limit: Option<u64>,
    pub(super) report: NmReport,
}

/// What to do about more rows than can be counted.
const ROWS_REMEDY: &str = "multiply fewer rows at a time";

/// Where the weights are.
pub(super) enum Body {
    Cpu(HostNm),
    Gpu(Box<GpuNm>),
}

impl NmSpmmPlan {
    /// `scale·A·W` for an `A` in host memory, in the plan's layout without padding; `m` follows from its
    /// length (for k = 0 it is the number of [rows](super::NmSpmmBuilder::rows) that the plan was made for).
    /// `C` is row-major.
    ///
    /// Copies operand and result; see [`run_into`](Self::run_into) for matrices that stay on the device.
    ///
    /// # Errors
    /// - [`NmError::PackedLength`] if the length is no whole number of rows;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{ActivationLayout, Device, NmPattern, NmSpmm, VectorNm};
    ///
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 4, 1, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).layout(ActivationLayout::KMajor).build(&Device::cpu())?;
    /// let a = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]; // 4 × 2: columns of 1 2 3 4, 10 20 30 40
    /// assert_eq!(plan.run(&a)?, [14.0, 140.0]);
    /// assert!(plan.run(&a[..7]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, a: &[f32]) -> Result<Vec<f32>, NmError> {
        let m = a.len().checked_div(self.inner).unwrap_or(self.report.rows);
        let (rows, cols) = self.layout.stored(m, self.inner);
        if a.len() != m * self.inner {
            return Err(NmError::PackedLength { len: a.len(), weight_rows: self.inner });
        }
        let mut c = try_zeroed(elements(m, self.cols, self.cols)?, "C")?;
        self.run_host(
            &Epilogue::default(),
            DenseRef::packed(a, rows, cols)?,
            DenseMut::packed(&mut c, m, self.cols)?,
        )?;
        Ok(c)
    }

    /// `C ← act(α·scale·A·W + β·C + bias)` for matrices in host memory, of any element types but f64. `A` is m × k, or
    /// k × m as the plan's [layout](ActivationLayout) says: a [`MatRef`], or what becomes one.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit,
    ///   [`PlanError::Strides`](crate::PlanError::Strides) if `A` cannot be read;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Activation, DenseMut, DenseRef, Device, NmPattern, Epilogue, NmSpmm, VectorNm};
    ///
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).build(&Device::cpu())?;
    /// let (a, mut c) = ([1.0f32, 1.0, 4.0, 5.0], [f32::NAN; 4]);
    /// let run = Epilogue { bias: Some(&[-5.0, 1.0][..]), activation: Activation::Relu, ..Epilogue::default() };
    /// plan.run_host(&run, DenseRef::packed(&a, 2, 2)?, DenseMut::packed(&mut c, 2, 2)?)?;
    /// assert_eq!(c, [0.0, 4.0, 3.0, 16.0]); // max(2 − 5, 0), 3 + 1, 8 − 5, 15 + 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_host<'a, A: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        run: &Epilogue<'_, f32, [f32]>,
        a: impl TryInto<MatRef<'a, A>, Error: Into<crate::PlanError>>,
        c: DenseMut<'_, C>,
    ) -> Result<(), NmError> {
        let a = operand(a)?;
        self.check_shapes((a.rows(), a.cols()), (c.rows(), c.cols()), run.bias.map(<[f32]>::len))?;
        match self.precision {
            Precision::F32 | Precision::Tf32 => self.run_as::<f32, _, _>(run, a, c),
            Precision::F16 => self.run_as::<f16, _, _>(run, a, c),
            Precision::Bf16 => self.run_as::<bf16, _, _>(run, a, c),
            Precision::F64 => Err(self.unsupported()),
        }
    }

    /// Runs with an `A` of the plan's element type; on a GPU by way of copies.
    fn run_as<E: Element<Sum = f32>, A: Element, C: Element<Sum = f32>>(
        &self,
        run: &Epilogue<'_, f32, [f32]>,
        a: MatRef<'_, A>,
        mut c: DenseMut<'_, C>,
    ) -> Result<(), NmError> {
        let rounded = Rounded::<E>::new(a)?;
        let a = rounded.view()?;
        if let Body::Cpu(weights) = &self.body {
            return Ok(weights.run(self.epilogue(run, run.bias), a, c)?);
        }
        let a = DeviceMatrix::upload(&self.device, a)?;
        let mut on_device = output_on(&self.device, c.as_ref(), run.reads_output())?;
        let bias = run.bias.map(|bias| DeviceBuffer::from_slice(&self.device, bias)).transpose()?;
        self.run_into(&run.with_bias(bias.as_ref()), &a, &mut on_device)?;
        Ok(on_device.download_into(c.reborrow())?)
    }

    /// `C ← act(α·scale·A·W + β·C + bias)` for operands on the plan's device.
    ///
    /// On a GPU this queues the kernels and returns. Reading `C` waits for the result, and so does
    /// [`Device::synchronize`], which also reports errors of the kernels.
    ///
    /// # Memory
    /// A run may allocate: on a GPU if it needs more for activations that are transposed, widened or rounded,
    /// and for partial sums, than the plan has for its [rows](super::NmSpmmBuilder::rows) and any run before
    /// took, which stays with the plan; on the CPU a copy of `A` in f32, each time.
    ///
    /// # Shapes
    /// - `a`: m × k, or k × m as the plan's [layout](ActivationLayout) says, of the plan's precision (for
    ///   tf32: f32). Kernels read it fastest if it is k-major and `ld` elements are a multiple of 16 bytes;
    /// - `c`: m × n, row-major, f32, f16 or bf16; what lies behind a row is left alone;
    /// - `run.bias`: n numbers.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if an operand is elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) if `a` is of another type;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge) on a GPU: for more than 2³¹ rows; for 2³² elements from
    ///   row to row; and for an `A` of 64 GiB, or of 4 GiB from one of its k rows to the next, k-major and in the
    ///   type that kernels read it as;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Activation, DenseRef, Device, DeviceBuffer, DeviceMatrix};
    /// use windrow::{NmPattern, Epilogue, NmSpmm, VectorNm};
    ///
    /// let device = Device::cpu();
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).rows(1).build(&device)?;
    /// let a = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, -1.0], 1, 2)?)?;
    /// let bias = DeviceBuffer::from_slice(&device, &[0.5f32, 0.5])?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
    /// plan.run_into(&run, &a, &mut c)?;
    /// assert_eq!(c.download()?, [2.5, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into<E: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        run: &Epilogue<'_>,
        a: &DeviceMatrix<E>,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), NmError> {
        let bias = run.bias.map(DeviceBuffer::view);
        self.run_into_on(&self.device.stream(), &run.with_bias(bias.as_ref()), a, c)
    }

    /// [`run_into`](Self::run_into) on a [`Stream`], for operands in memory of any origin: a [`DeviceMatrix`] and a
    /// [`DeviceBuffer`], or [what another library has allocated](DeviceView::from_raw). What is said of streams says
    /// how it is [ordered](Stream#order-between-streams) with other work.
    ///
    /// # Memory
    /// The first run on a stream makes a workspace for it, as large as the one that is made with the plan; it grows as
    /// that one does. In a [graph](Stream#graphs) nothing is made: run once before the capture with as many rows, or
    /// [prepare](Self::prepare_on) the plan.
    ///
    /// # Shapes
    /// As for [`run_into`](Self::run_into). Where the memory of a lent `A` ends with its last element, and that with no
    /// multiple of 16 bytes, it is brought element by element, which is slower.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into);
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device;
    /// - [`PlanError::Overlap`](crate::PlanError::Overlap) if `c` has bytes in common with `a` or the bias;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if there is no room for the stream's workspace;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{DenseRef, Device, DeviceMatrix, Epilogue, NmPattern, NmSpmm, Stream, VectorNm};
    ///
    /// let device = Device::best()?;
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).rows(1).build(&device)?;
    /// let a = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 5.0], 1, 2)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// plan.run_into_on(&Stream::new(&device)?, &Epilogue::default(), &a, &mut c)?;
    /// assert_eq!(c.download()?, [2.0, 15.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into_on<'a, E: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        on: &Stream,
        run: &Epilogue<'_, f32, DeviceSlice<'_, f32>>,
        a: impl Into<DeviceView<'a, E>>,
        c: impl Into<DeviceViewMut<'a, C>>,
    ) -> Result<(), NmError> {
        let (a, c) = (a.into(), c.into());
        check_device("the stream", on.device(), &self.device)?;
        self.check_operands(run, a, c.as_view())?;
        c.bytes().check_apart("C", "A", a.bytes())?;
        if let Some(bias) = run.bias {
            c.bytes().check_apart("C", "the bias", bias.bytes())?;
        }
        match &self.body {
            Body::Cpu(weights) => {
                // All are in host memory: they are on the CPU, as was just checked.
                if let (Some(a), Some(c)) = (a.host(), c.into_host()) {
                    weights.run(self.epilogue(run, run.bias.and_then(DeviceSlice::host)), a, c)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let shares = a.is_owned() || c.is_owned() || run.bias.is_some_and(DeviceSlice::is_owned);
                let on = On::of(on, &self.device, shares)?;
                let operands = Operands {
                    m: check_index("rows of A", c.rows(), MAX_ROWS, ROWS_REMEDY)?,
                    a: a.address(),
                    lda: check_ld(a.ld())?,
                    layout: self.layout,
                    reads_vectors: a.reads_vectors(c.bytes()),
                    c: c.address(),
                    ldc: check_ld(c.ld())?,
                    output: output_type::<C>(),
                    alpha: run.alpha * self.scale,
                    beta: run.beta,
                    bias: run.bias.map_or(0, DeviceSlice::address),
                    activation: run.activation,
                    gated: run.gated,
                };
                let budget = Budget { arrays: &self.report.arrays, limit: self.memory_limit };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` holds all rows up to its leading
                // dimension, and frees them after the work that was queued before; of other memory the views were
                // promised that it lives. `c` has nothing in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, operands, budget)? };
                Ok(())
            }
        }
    }

    /// Makes and compiles what runs of so many rows on a stream would else make when they first come: for runs that are
    /// to be captured into a graph, or timed. Waits until what was made is there. Nothing is left to do on the CPU.
    ///
    /// Rows of a k-major `A` are expected to begin at multiples of 16 bytes; where they do not, the first run makes
    /// memory for an `A` that is brought, unless the precision is one in which it always is. A plan that runs cuBLAS
    /// multiplies zeros, if there is memory for them, so that the library has its kernels loaded.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`PlanError::TooLarge`](crate::PlanError::TooLarge) for more than 2³¹ rows, or too large an `A`;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if there is no room;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured already.
    pub fn prepare_on(&self, on: &Stream, rows: usize) -> Result<(), NmError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu(_) => Ok(()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, false)?;
                let m = check_index("rows of A", rows, MAX_ROWS, ROWS_REMEDY)?;
                let budget = Budget { arrays: &self.report.arrays, limit: self.memory_limit };
                Ok(plan.prepare(&on, (m, self.layout), budget)?)
            }
        }
    }

    /// Name and content of each array of weights in device memory; none on the CPU.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, NmError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(plan) => Ok(plan.read_arrays()?),
        }
    }

    /// For operands of a precision that no plan is made for.
    fn unsupported(&self) -> NmError {
        NmError::Unsupported { algorithm: self.report.algorithm, precision: self.precision }
    }

    fn epilogue<'a, B: ?Sized>(&self, run: &Epilogue<'_, f32, B>, bias: Option<&'a [f32]>) -> Finish<'a> {
        let Epilogue { alpha, beta, activation, gated, .. } = *run;
        Finish { alpha: alpha * self.scale, beta, bias, activation, gated }
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &NmReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of `A` and of the weights.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// How `A` is stored.
    #[must_use]
    pub fn layout(&self) -> ActivationLayout {
        self.layout
    }

    /// `(k, n)`: rows and columns of the weights.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.inner, self.cols)
    }

    /// `N`, `M` and `L` of the weights.
    #[must_use]
    pub fn pattern(&self) -> NmPattern {
        self.pattern
    }

    /// Shapes of `A` as it is stored, of `C`, and of the bias.
    fn check_shapes(&self, a: (usize, usize), c: (usize, usize), bias: Option<usize>) -> Result<(), NmError> {
        let m = match self.layout {
            ActivationLayout::RowMajor => a.0,
            ActivationLayout::KMajor => a.1,
        };
        check_shape("A", a, self.layout.stored(m, self.inner))?;
        check_shape("C", c, (m, self.cols))?;
        Ok(check_shape("the bias", (1, bias.unwrap_or(self.cols)), (1, self.cols))?)
    }

    /// Devices, types and shapes.
    pub(super) fn check_operands<E: Element, C: Element>(
        &self,
        run: &Epilogue<'_, f32, DeviceSlice<'_, f32>>,
        a: DeviceView<'_, E>,
        c: DeviceView<'_, C>,
    ) -> Result<(), NmError> {
        check_device("A", a.device(), &self.device)?;
        check_device("C", c.device(), &self.device)?;
        if let Some(bias) = run.bias {
            check_device("the bias", bias.device(), &self.device)?;
        }
        check_element::<E>("A", self.precision)?;
        self.check_shapes((a.rows(), a.cols()), (c.rows(), c.cols()), run.bias.map(DeviceSlice::len))
    }
}

impl fmt::Debug for NmSpmmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, cols, pattern, precision, .. } = self;
        let algorithm = self.report.algorithm;
        write!(f, "NmSpmmPlan({inner} × {cols}, {pattern}, {algorithm}, {precision}, on {})", self.device)
    }
}

//! A product that is ready to run.

use std::fmt;

use windrow_formats::Value;
use windrow_formats::memory::try_zeroed;

use super::launch::{Finish, GpuPlan, Operands};
use super::places::Places;
use super::report::SpmmReport;
use crate::activation::{Activation, Epilogue};
use crate::cpu::{self, CpuCsr};
use crate::dense::{DenseMut, DenseRef};
use crate::device::{Device, DeviceBuffer};
use crate::element::{BySum, Element, Real};
use crate::error::{PlanError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::options::Precision;
use crate::parallelism::GroupLaunch;
use crate::plan::{
    Bits, Exceptions, Rounded, check_count, check_device, check_element, check_index, check_memory,
    check_shape, check_sums, factor, machine_of, output_on, with_sums,
};
use crate::with_element;

/// What to do about a plan that needs more memory than it may take.
pub(crate) const MEMORY_REMEDY: &str = "raise the limit, lower the width, or choose algorithm row-split";

/// A sparse matrix laid out for products `C[m×n] ← α·A[m×k]·B[k×n] + β·C` on one device.
///
/// Made by [`Spmm::builder`](super::Spmm::builder); runs any number of times, with any width.
///
/// # Precision
/// Values and `B` are rounded to the plan's [`Precision`]; products are summed in f32 and rounded once if `C` is
/// f16 or bf16; a plan of precision f64 sums in f64, and has `u = 2⁻⁵³`. With `u = 2⁻²⁴` (`2⁻²³` where tiles take part), `len` the entries of a row and `γ(t) = t·u / (1 − t·u)`,
/// an element is off by at most `γ(len + 2)·(|α|·Σ|a·b| + |β·c|)`. The order of summation is fixed: running a plan
/// twice, on operands of the same width and alignment, gives the same bits, unless the plan is
/// [`Determinism::Fast`](crate::Determinism::Fast).
///
/// # Not-a-number
/// With β = 0, `C` is not read: what it held does not matter. Rows of `B` that a row of `A` has no entry for do not
/// reach it, whatever they hold.
///
/// # Threads
/// A plan may be run from several threads; the products are done one after the other.
pub struct SpmmPlan {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) nnz: usize,
    pub(super) width: usize,
    pub(super) precision: Precision,
    pub(super) device: Device,
    pub(super) body: Body,
    /// Which of the new values each entry takes, if they come in another order.
    pub(super) value_order: Option<Vec<u32>>,
    pub(super) memory_limit: Option<u64>,
    /// Whether the values were given last by the device, which has counted those that overflowed.
    pub(super) overflow_on_device: bool,
    pub(super) report: SpmmReport,
}

/// Where the matrix is.
pub(super) enum Body {
    /// A [`CpuCsr`].
    Cpu(BySum),
    Gpu(Box<GpuPlan>),
}

impl SpmmPlan {
    /// `A·B` for a `B` of k × n in host memory, row after row without padding; `n` follows from its length (for
    /// k = 0 it is the plan's width). The result is m × n, likewise. `T` is f32 or f64, whatever the plan's precision:
    /// `B` is rounded to that, and sums to `T`.
    ///
    /// Copies `B` to the device and the result back; see [`run_into`](Self::run_into) for matrices that stay there.
    ///
    /// # Errors
    /// - [`SpmmError::PackedLength`] if `b` is not a whole number of columns;
    /// - [`PlanError::TooLarge`], [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm};
    ///
    /// let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 1.0, 0.0])?;
    /// let plan = Spmm::builder(&a).build(&Device::cpu())?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?, [8.0, 10.0, 12.0, 1.0, 2.0, 3.0]);
    /// assert!(plan.run(&[1.0, 2.0, 3.0]).is_err()); // 3 elements are no 2 × n
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T: Real>(&self, b: &[T]) -> Result<Vec<T>, SpmmError> {
        let n = match self.cols {
            0 if b.is_empty() => self.width,
            0 => return Err(SpmmError::PackedLength { len: b.len(), a_cols: 0 }),
            k if b.len().is_multiple_of(k) => b.len() / k,
            k => return Err(SpmmError::PackedLength { len: b.len(), a_cols: k }),
        };
        let len = self.rows.checked_mul(n).ok_or_else(|| too_wide(n))?;
        let mut c = try_zeroed::<T>(len, "C")?;
        let (b, c_view) = (DenseRef::packed(b, self.cols, n)?, DenseMut::packed(&mut c, self.rows, n)?);
        self.run_host(T::ONE, b, T::ZERO, c_view)?;
        Ok(c)
    }

    /// `C ← α·A·B + β·C` for matrices in host memory. Elements of `C` between its columns and its leading
    /// dimension are not touched.
    ///
    /// # Errors
    /// - [`SpmmError::InnerDim`], [`PlanError::OutputShape`] if the sizes do not fit;
    /// - [`PlanError::TooLarge`], [`PlanError::Device`].
    pub fn run_host<T: Real>(
        &self,
        alpha: T,
        b: DenseRef<'_, T>,
        beta: T,
        c: DenseMut<'_, T>,
    ) -> Result<(), SpmmError> {
        self.check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))?;
        with_element!(self.precision, B => with_sums(c, beta, |c| {
            self.run_as(factor(alpha), Rounded::<B>::new(b)?.view()?, factor(beta), c)
        }))
    }

    /// Runs with a `B` of the plan's element type; on a GPU by way of copies of the operands.
    fn run_as<B: Element>(
        &self,
        alpha: B::Sum,
        b: DenseRef<'_, B>,
        beta: B::Sum,
        c: DenseMut<'_, B::Sum>,
    ) -> Result<(), SpmmError> {
        if let Body::Cpu(a) = &self.body {
            if let Some(a) = a.get() {
                cpu::spmm(a, alpha, b, beta, c);
            }
            return Ok(());
        }
        let b = DeviceMatrix::upload(&self.device, b)?;
        let mut on_device = output_on(&self.device, c.as_ref(), beta)?;
        self.run_into(alpha, &b, beta, &mut on_device)?;
        Ok(on_device.download_into(c)?)
    }

    /// `C ← α·A·B + β·C` for matrices on the plan's device.
    ///
    /// On a GPU this queues the kernels and returns; it allocates nothing, but for a `C` of bf16 the first time. Reading `C` waits for the result, and so
    /// does [`Device::synchronize`], which also reports errors of the kernels.
    ///
    /// # Shapes
    /// - `b`: k × n, of the plan's precision (for tf32: f32). Kernels read it fastest if `ld` elements are a multiple
    ///   of 16 bytes, as [`DeviceMatrix::zeros`] and [`DeviceMatrix::upload`] make it;
    /// - `c`: m × n, f32, f16 or bf16; f64 for a plan of that precision; not read if β = 0.
    ///
    /// # Errors
    /// - [`SpmmError::InnerDim`], [`PlanError::OutputShape`] if the sizes do not fit;
    /// - [`PlanError::WrongDevice`] if an operand is elsewhere, [`PlanError::ElementType`] if `b` is of another type;
    /// - [`PlanError::TooLarge`] for a width or leading dimension of 2³² or more;
    /// - [`PlanError::MemoryLimit`] if a `C` of bf16 needs a stage that there is no room for: see
    ///   [`run_fused_into`](Self::run_fused_into);
    /// - [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(3)?).width(2).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 3, 2)?;
    /// plan.run_into(1.0, &b, 0.0, &mut c)?; // C = B
    /// plan.run_into(2.0, &b, 1.0, &mut c)?; // C = 2·B + C
    /// assert_eq!(c.download()?, [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: &DeviceMatrix<B>,
        beta: B::Sum,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), SpmmError> {
        self.run_fused_into(&Epilogue::linear(alpha, beta), b, c)
    }

    /// `C ← act(α·A·B + β·C + bias)` for operands on the plan's device: [`run_into`](Self::run_into) and what a layer of a
    /// network does with its result. Sums are rounded once, in the end.
    ///
    /// On a GPU the sums of 64 columns at a time go to a stage, from which a second launch brings them to `C`: the kernels
    /// that multiply have no registers left for more. The first such run makes the stage, 64 sums and 16 bytes for each
    /// row of `C`; later ones allocate nothing. A `C` of bf16 goes the same way; with neither bias nor activation, f32,
    /// f64 and f16 do not.
    ///
    /// # Shapes
    /// As for [`run_into`](Self::run_into); the bias has n numbers of the sums' type.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into); [`PlanError::OperandShape`] for a bias of another length,
    ///   [`PlanError::MemoryLimit`] if there is no room for the stage;
    /// - [`SpmmError::NoActivation`] for GELU in f64.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Activation, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Epilogue, Spmm};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(2).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
    /// let bias = DeviceBuffer::from_slice(&device, &[-2.0f32, 0.5])?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 2)?;
    /// let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
    /// plan.run_fused_into(&run, &b, &mut c)?;
    /// assert_eq!(c.download()?, [0.0, 2.5, 1.0, 4.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_fused_into<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        run: &Epilogue<'_, B::Sum>,
        b: &DeviceMatrix<B>,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), SpmmError> {
        self.check_operand("B", b)?;
        check_device("C", c.device(), &self.device)?;
        self.check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))?;
        if let Some(bias) = run.bias {
            check_device("the bias", bias.device(), &self.device)?;
            check_shape("the bias", (1, bias.len()), (1, c.cols()))?;
        }
        if run.activation == Activation::Gelu && self.precision == Precision::F64 {
            return Err(SpmmError::NoActivation { activation: run.activation, precision: self.precision });
        }
        match &self.body {
            Body::Cpu(a) => {
                // Both are in host memory: they are on the CPU, as was just checked.
                if let (Some(a), Some(b), Some(c)) = (a.get(), b.host(), c.host_mut()) {
                    cpu::spmm_fused(a, run, b, c)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let finish = Finish::of::<C>(run);
                let stage = plan.stage_sizes(&finish);
                if !stage.is_empty() {
                    let arrays = [&self.report.arrays[..], &stage].concat();
                    check_memory(
                        &arrays,
                        self.memory_limit,
                        "raise the limit, or have C in f32 and apply bias, activation and bf16 to that",
                    )?;
                }
                let operands = Operands {
                    b: b.buffer().address(),
                    ldb: narrow_width(b.ld())?,
                    column_major: false,
                    second: None,
                    c: c.buffer().address(),
                    ldc: narrow_width(c.ld())?,
                    n: narrow_width(b.cols())?,
                    finish,
                };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` holds all rows up to its leading
                // dimension, and frees them after the work that was queued before; `c` is borrowed for itself.
                unsafe { plan.run(machine_of(&self.device)?, operands)? };
                Ok(())
            }
        }
    }

    /// Puts new values in the places of the old, one for each entry in CSR order, or in the order that the plan was
    /// [made for](super::SpmmBuilder::value_order); the pattern stays. Costs a fraction of a new plan.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`] unless there is one value for each entry;
    /// - [`PlanError::Device`]; the plan's values are then undefined until a replacement succeeds.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm};
    ///
    /// let mut plan = Spmm::builder(&Csr::<f32>::identity(2)?).build(&Device::cpu())?;
    /// plan.replace_values(&[2.0f32, 3.0])?;
    /// assert_eq!(plan.run(&[1.0, 1.0])?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values<V: Value>(&mut self, values: &[V]) -> Result<(), SpmmError> {
        check_count("the new values", values.len(), self.nnz)?;
        let mut bits = Bits::of(self.precision, values)?;
        self.report.overflowed_values = Exceptions::of(self.precision, values).overflowed;
        self.overflow_on_device = false;
        if let Some(order) = &self.value_order {
            bits = bits.gather(order)?;
        }
        match &mut self.body {
            Body::Cpu(a) => {
                with_element!(self.precision, B => replace_on_cpu::<<B as Element>::Sum>(a, &bits))
            }
            Body::Gpu(plan) => Ok(plan.replace_values(&bits)?),
        }
    }

    /// [`replace_values`](Self::replace_values) with values that are on the plan's device, without a way through the
    /// host: the same values in the same places, bit for bit.
    ///
    /// On a GPU this queues kernels and returns. The first call makes an array that says where each value belongs, up
    /// to 4 bytes of device memory for each entry, or 8 where there are tiles and other entries, or where a plan that
    /// was laid out on the GPU takes values in another order, unless the plan was made
    /// [with it](super::SpmmBuilder::values_from_device); later calls allocate nothing.
    /// [`SpmmReport::overflowed_values`] stays that of the last values from the host; see
    /// [`overflowed_values`](Self::overflowed_values).
    ///
    /// # Cost
    /// Reads 8 bytes for each entry, and writes the value.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`] unless there is one value for each entry, [`PlanError::WrongDevice`] if they are
    ///   elsewhere, [`PlanError::ElementType`] unless they are f32, for a plan of that precision f64;
    /// - on the first call [`PlanError::MemoryLimit`], and [`PlanError::TooLarge`] for tiles that would hold 2³²
    ///   values, zeros counted;
    /// - [`PlanError::Device`]; the plan's values are then undefined until a replacement succeeds.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, Spmm};
    ///
    /// let device = Device::best()?;
    /// let mut plan = Spmm::builder(&Csr::<f32>::identity(2)?).values_from_device().build(&device)?;
    /// let values = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0])?;
    /// plan.replace_values_from(&values)?;
    /// assert_eq!(plan.run(&[1.0, 1.0])?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values_from<S: Real>(&mut self, values: &DeviceBuffer<S>) -> Result<(), SpmmError> {
        check_device("the array of new values", values.device(), &self.device)?;
        check_sums::<S>("the array of new values", self.precision)?;
        check_count("the new values", values.len(), self.nnz)?;
        let order = self.value_order.as_deref();
        match &mut self.body {
            // They are in host memory: they are on the CPU, as was just checked.
            Body::Cpu(_) => self.replace_values(values.host().unwrap_or_default()),
            Body::Gpu(plan) => {
                let machine = machine_of(&self.device)?;
                if plan.places.is_none() {
                    let mut arrays = self.report.arrays.clone();
                    arrays.push(plan.places_size(self.nnz, order.is_some()));
                    self.report.device_bytes = check_memory(&arrays, self.memory_limit, MEMORY_REMEDY)?;
                    plan.make_places(&self.device, self.nnz, order)?;
                    self.report.arrays = arrays;
                }
                self.overflow_on_device = true;
                // SAFETY: length and device were checked; the buffer frees its memory after the work that was queued
                // before.
                unsafe { Ok(plan.place_values(machine, (values.pointer().cast(), self.nnz))?) }
            }
        }
    }

    /// How many of the values given last were finite and are infinite in the plan's precision. Waits for their
    /// replacement, if they came from the device.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    pub fn overflowed_values(&self) -> Result<u64, SpmmError> {
        match &self.body {
            Body::Gpu(plan) if self.overflow_on_device => {
                Ok(plan.places.as_ref().map_or(Ok(0), Places::overflowed)?)
            }
            _ => Ok(self.report.overflowed_values),
        }
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &SpmmReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of the values and of `B`.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// `(m, k)`: rows and columns of `A`.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Number of entries of `A`.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Name and content of each array in device memory that products read, the workspace excepted; none on the CPU. For
    /// comparing plans that were made in different ways.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    #[doc(hidden)]
    pub fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(plan) => Ok(plan.read_arrays()?),
        }
    }

    /// Another launch of the same segment groups; whether the plan has any.
    ///
    /// # Errors
    /// [`SpmmError::IllegalPoint`] for a launch that is none of the plan's point.
    #[doc(hidden)]
    pub fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<bool, SpmmError> {
        let Body::Gpu(plan) = &mut self.body else { return Ok(false) };
        let Some(described) = plan.set_group_launch(launch)? else { return Ok(false) };
        self.report.parallelism = Some(described);
        Ok(true)
    }

    pub(super) fn check_shapes(&self, b: (usize, usize), c: (usize, usize)) -> Result<(), SpmmError> {
        if b.0 != self.cols {
            return Err(SpmmError::InnerDim { a_cols: self.cols, b_rows: b.0 });
        }
        if c != (self.rows, b.1) {
            let (expected_rows, expected_cols) = (self.rows, b.1);
            return Err(PlanError::OutputShape { rows: c.0, cols: c.1, expected_rows, expected_cols }.into());
        }
        Ok(())
    }

    /// Device and type of `B`.
    pub(super) fn check_operand<B: Element>(
        &self,
        operand: &'static str,
        b: &DeviceMatrix<B>,
    ) -> Result<(), SpmmError> {
        check_device(operand, b.device(), &self.device)?;
        Ok(check_element::<B>(operand, self.precision)?)
    }

    /// Shapes of `B` and `C`.
    pub(super) fn check_product<B: Value, C: Value>(
        &self,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
    ) -> Result<(), SpmmError> {
        self.check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))
    }
}

/// Puts new values into a matrix on the CPU.
fn replace_on_cpu<S: Real>(a: &mut BySum, bits: &Bits) -> Result<(), SpmmError> {
    match a.get_mut::<CpuCsr<S>>() {
        Some(a) => Ok(a.replace_values(bits.numbers()?)?),
        None => Ok(()), // not reached: the matrix is of the precision's sums
    }
}

impl fmt::Debug for SpmmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, precision, .. } = self;
        let algorithm = self.report.algorithm;
        write!(f, "SpmmPlan({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, on {})", self.device)
    }
}

/// What there may be too much of in a `B` or `C`, and what to do about it.
const WIDTH: (&str, &str) = ("columns or elements from row to row", "run the product in blocks of columns");

fn too_wide(n: usize) -> PlanError {
    let (what, remedy) = WIDTH;
    PlanError::TooLarge { what, found: wide(n), limit: u64::from(u32::MAX), remedy }
}

/// A width or leading dimension as kernels take it.
pub(super) fn narrow_width(n: usize) -> Result<u32, PlanError> {
    let (what, remedy) = WIDTH;
    check_index(what, n, u64::from(u32::MAX), remedy)
}

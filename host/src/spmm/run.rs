//! Runs of a plan: operands in host memory, on the device, and what is done with the sums.

use windrow_formats::memory::try_zeroed;

use super::operands::{Finish, Operands};
use super::plan::{Body, SpmmPlan};
use crate::activation::{Activation, Epilogue};
use crate::cpu;
use crate::dense::{DenseMut, DenseRef};
use crate::element::{Element, Real};
use crate::error::{PlanError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{
    Rounded, check_device, check_index, check_memory, check_shape, factor, output_on, queue_of, with_sums,
};
use crate::with_element;

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
    /// On a GPU this queues the kernels and returns; it allocates nothing, but for a `C` of bf16 the first time.
    /// Reading `C` waits for the result, and so does [`Device::synchronize`](crate::Device::synchronize), which also
    /// reports errors of the kernels.
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

    /// `C ← act(α·A·B + β·C + bias)` for operands on the plan's device: [`run_into`](Self::run_into) and what a layer
    /// of a network does with its result. Sums are rounded once, in the end.
    ///
    /// On a GPU the sums of 64 columns at a time go to a stage, from which a second launch brings them to `C`: the
    /// kernels that multiply have no registers left for more. The first such run makes the stage, 64 sums and 16 bytes
    /// for each row of `C`; later ones allocate nothing. A `C` of bf16 goes the same way; with neither bias nor
    /// activation, f32, f64 and f16 do not.
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
                unsafe { plan.run(queue_of(&self.device)?, operands)? };
                Ok(())
            }
        }
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

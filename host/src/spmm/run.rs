//! Runs of a plan: operands in host memory, on the device, and what is done with the sums.

use windrow_formats::Value;

use super::fit::{narrow_width, too_wide};
use super::operands::Operands;
use super::plan::{Body, SpmmPlan};
use crate::activation::Epilogue;
use crate::cpu;
use crate::dense::{Dense, DenseMut, DenseRef, MatRef};
use crate::device::{DeviceBuffer, Stream};
use crate::element::Element;
use crate::error::{PlanError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::plan::{Budget, On, Rounded, check_device, factor, operand, output_on, with_sums};
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};
use crate::with_element;

impl SpmmPlan {
    /// `A·B` for a `B` of k × n in host memory, row after row without padding; `n` follows from its length (for
    /// k = 0 it is the plan's width). The result is m × n, likewise. `T` is any element type, whatever the plan's
    /// precision: `B` is rounded to that, and sums to `T`.
    ///
    /// Copies `B` to the device and the result back; see [`run_into`](Self::run_into) for matrices that stay there, and
    /// [`run_dense`](Self::run_dense) for column-major ones and those of other crates.
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
    pub fn run<T: Element>(&self, b: &[T]) -> Result<Vec<T>, SpmmError> {
        let n = match self.cols {
            0 if b.is_empty() => self.width,
            0 => return Err(SpmmError::PackedLength { len: b.len(), a_cols: 0 }),
            k if b.len().is_multiple_of(k) => b.len() / k,
            k => return Err(SpmmError::PackedLength { len: b.len(), a_cols: k }),
        };
        Ok(self.run_dense(DenseRef::packed(b, self.cols, n)?)?.into_data())
    }

    /// `A·B` for a `B` in host memory, row-major or column-major: a [`MatRef`], a [`DenseRef`], a [`Dense`], or with
    /// the feature `ndarray` an array of two dimensions.
    ///
    /// # Errors
    /// - [`SpmmError::InnerDim`] unless `B` has k rows; [`PlanError::Strides`] if it cannot be read;
    /// - [`PlanError::TooLarge`], [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, MatRef, Spmm, f16};
    ///
    /// let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 1.0, 0.0])?;
    /// let plan = Spmm::builder(&a).build(&Device::cpu())?;
    /// let columns = [1.0, 2.0, 3.0, 4.0].map(f16::from_f32);
    /// let c = plan.run_dense(MatRef::col_major(&columns, 2, 2)?)?;
    /// assert_eq!((c.row(0), c.row(1)), (&[4.0, 8.0].map(f16::from_f32)[..], &[1.0, 3.0].map(f16::from_f32)[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_dense<'b, T: Element>(
        &self,
        b: impl TryInto<MatRef<'b, T>, Error: Into<PlanError>>,
    ) -> Result<Dense<T>, SpmmError> {
        let b = operand(b)?;
        self.fit().check_shapes((b.rows(), b.cols()), (self.rows, b.cols()))?;
        self.rows.checked_mul(b.cols()).ok_or_else(|| too_wide(b.cols()))?;
        let mut c = Dense::zeros(self.rows, b.cols())?;
        self.run_host(<T::Sum as Value>::ONE, b, <T::Sum as Value>::ZERO, c.view_mut())?;
        Ok(c)
    }

    /// `C ← α·A·B + β·C` for matrices in host memory, of any element types; `B` as for
    /// [`run_dense`](Self::run_dense). Elements of `C` between its columns and its leading dimension are not touched.
    ///
    /// # Errors
    /// - [`SpmmError::InnerDim`], [`PlanError::OutputShape`] if the sizes do not fit; [`PlanError::Strides`] if `B`
    ///   cannot be read;
    /// - [`PlanError::TooLarge`], [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Dense, DenseRef, Device, Spmm, bf16};
    ///
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).build(&Device::cpu())?;
    /// let (b, mut c) = ([bf16::ONE; 4], Dense::try_new(vec![10.0f32; 4], 2, 2)?);
    /// plan.run_host(0.5, DenseRef::packed(&b, 2, 2)?, 1.0, c.view_mut())?; // bf16 in, f32 out
    /// assert_eq!(c.data(), [10.5; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_host<'b, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: impl TryInto<MatRef<'b, B>, Error: Into<PlanError>>,
        beta: B::Sum,
        c: DenseMut<'_, C>,
    ) -> Result<(), SpmmError> {
        let b = operand(b)?;
        self.fit().check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))?;
        with_element!(self.precision, E => with_sums(c, beta, |c| {
            self.run_as(factor(alpha), Rounded::<E>::new(b)?.view()?, factor(beta), c)
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
        let mut on_device = output_on(&self.device, c.as_ref(), beta != Value::ZERO)?;
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
        self.run_views(&self.device.stream(), &Epilogue::linear(alpha, beta), b.view(), c.view_mut())
    }

    /// [`run_into`](Self::run_into) on a [`Stream`], for matrices in memory of any origin: a [`DeviceMatrix`], or
    /// [what another library has allocated](DeviceView::from_raw). What is said of streams says how it is
    /// [ordered](Stream#order-between-streams) with other work.
    ///
    /// The first run on a stream makes a workspace for it, if the plan has one, as large as the report says; later ones
    /// allocate as little as [`run_into`](Self::run_into).
    ///
    /// # Shapes
    /// As for [`run_into`](Self::run_into). Where the memory of a lent `B` ends with its last column, and that with no
    /// multiple of 16 bytes, kernels read it element by element, which is slower.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into); [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Overlap`] if `c` has bytes in common with `b`;
    /// - [`PlanError::MemoryLimit`] if there is no room for the stream's workspace;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// let stream = Stream::new(&device)?;
    /// plan.run_into_on(&stream, 3.0, &b, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [3.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::too_many_arguments, reason = "those of `run_into`, and where")]
    pub fn run_into_on<'a, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        alpha: B::Sum,
        b: impl Into<DeviceView<'a, B>>,
        beta: B::Sum,
        c: impl Into<DeviceViewMut<'a, C>>,
    ) -> Result<(), SpmmError> {
        self.run_views(on, &Epilogue::linear(alpha, beta), b.into(), c.into())
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
    /// - [`SpmmError::NoActivation`] for GELU or SiLU in f64.
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
        let bias = run.bias.map(DeviceBuffer::view);
        self.run_views(&self.device.stream(), &run.with_bias(bias.as_ref()), b.view(), c.view_mut())
    }

    /// [`run_fused_into`](Self::run_fused_into) on a [`Stream`], for operands in memory of any origin, as
    /// [`run_into_on`](Self::run_into_on).
    ///
    /// # Errors
    /// Those of [`run_fused_into`](Self::run_fused_into) and [`run_into_on`](Self::run_into_on);
    /// [`PlanError::Overlap`] if `c` has bytes in common with the bias.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Activation, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Epilogue, Spmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let bias = DeviceBuffer::from_slice(&device, &[-1.5f32])?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// let bias = bias.view();
    /// let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
    /// plan.run_fused_into_on(&Stream::new(&device)?, &run, &b, &mut c)?;
    /// assert_eq!(c.download()?, [0.0, 0.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_fused_into_on<'a, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        run: &Epilogue<'_, B::Sum, DeviceSlice<'_, B::Sum>>,
        b: impl Into<DeviceView<'a, B>>,
        c: impl Into<DeviceViewMut<'a, C>>,
    ) -> Result<(), SpmmError> {
        self.run_views(on, run, b.into(), c.into())
    }

    /// Makes and compiles what runs of this width on a stream would else make when they first come: for runs that are
    /// to be captured into a graph, or timed. `staged` says whether they have a bias, an activation or a `C` of bf16.
    /// So does it for new values of a plan that was [made for them](super::SpmmBuilder::values_from_device).
    /// Waits until the plan's values and what was made are there. Nothing is left to do on the CPU.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`] for a stream of another device, [`PlanError::TooLarge`] for 2³² columns or more;
    /// - [`PlanError::MemoryLimit`] if there is no room;
    /// - [`PlanError::Device`], with [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured
    ///   already.
    pub fn prepare_on(&self, on: &Stream, width: usize, staged: bool) -> Result<(), SpmmError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu(_) => Ok(()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, false)?;
                Ok(plan.prepare(&on, narrow_width(width)?, staged, self.budget())?)
            }
        }
    }

    fn run_views<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        run: &Epilogue<'_, B::Sum, DeviceSlice<'_, B::Sum>>,
        b: DeviceView<'_, B>,
        c: DeviceViewMut<'_, C>,
    ) -> Result<(), SpmmError> {
        self.fit().check_views(on, run, (b, (b.rows(), b.cols())), &c)?;
        match &self.body {
            Body::Cpu(a) => {
                let run = run.with_bias(run.bias.and_then(DeviceSlice::host));
                // Both are in host memory: they are on the CPU, as was just checked.
                if let (Some(a), Some(b), Some(c)) = (a.get(), b.host(), c.into_host()) {
                    cpu::spmm_fused(a, &run, b, c)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let shares = b.is_owned() || c.is_owned() || run.bias.is_some_and(DeviceSlice::is_owned);
                let on = On::of(on, &self.device, shares)?;
                let operands = Operands::of(run, b, b.cols(), &c)?;
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` holds all rows up to its leading
                // dimension, and frees them after the work that was queued before; of other memory the views were
                // promised that it lives. `c` has nothing in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, operands, self.budget())? };
                Ok(())
            }
        }
    }

    /// What the plan may make for its runs.
    pub(super) fn budget(&self) -> Budget<'_> {
        Budget { arrays: &self.report.arrays, limit: self.memory_limit }
    }
}

//! An MTTKRP that is ready to run.

use std::fmt;

use windrow_formats::Value;
use windrow_formats::memory::try_zeroed;
use windrow_simt::GlobalPtr;

use super::build::MEMORY_REMEDY;
use super::host::HostMttkrp;
use super::report::MttkrpReport;
use crate::activation::Epilogue;
use crate::dense::{DenseMut, DenseRef, MatRef};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::element::{BySum, Element, Real};
use crate::error::TensorError;
use crate::matrix::{DeviceMatrix, elements};
use crate::options::Precision;
use crate::plan::{
    Account, Bits, Budget, NewValues, On, Rounded, check_count, check_device, check_element, check_index,
    check_ld, check_new_values, check_packed, check_shape, factor, operand, output_on, with_sums,
};
use crate::spmm::{Finish, GpuPlan, Operands, SecondFactor};
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};
use crate::with_element;

/// A sparse tensor laid out for products `Y[i,:] ← α·Σ A[i,k,l]·(B[k,:] ⊙ C[l,:]) + β·Y[i,:]` on one device.
///
/// Made by [`Mttkrp::builder`](super::Mttkrp::builder); runs any number of times, with any width.
///
/// # Precision
/// Values and factors are rounded to the plan's [`Precision`]; products are taken and summed in f32 and rounded once
/// if `Y` is f16 or bf16, or taken and summed in f64 for that precision. With `u = 2⁻²⁴` (f64: `2⁻⁵³`), `len` the
/// entries of a slice and `γ(t) = t·u / (1 − t·u)`, an element is off by at most `γ(len + 3)·(|α|·Σ|a·b·c| + |β·y|)`,
/// where no `b·c` is beyond f32. The order of summation is fixed: running a plan twice, on operands of the same width
/// and alignment, gives the same bits, unless the plan is [`Determinism::Fast`](crate::Determinism::Fast).
///
/// # Not-a-number
/// With β = 0, `Y` is not read: what it held does not matter. Rows of factors that a slice has no entry for do not
/// reach it, whatever they hold.
///
/// # Threads
/// A plan may be run from several threads; the products are done one after the other.
pub struct MttkrpPlan {
    /// Of `Y`, `B` and `C`: rows.
    pub(super) dims: [usize; 3],
    pub(super) nnz: usize,
    pub(super) width: usize,
    pub(super) precision: Precision,
    pub(super) device: Device,
    pub(super) body: Body,
    pub(super) memory_limit: Option<u64>,
    pub(super) report: MttkrpReport,
}

/// What to do about more columns than can be counted.
const COLUMN_REMEDY: &str = "run the product in blocks of columns";

/// Where the tensor is.
pub(super) enum Body {
    /// A [`HostMttkrp`] of the type that products are summed in.
    Cpu(BySum),
    Gpu(Box<GpuPlan>),
}

impl MttkrpPlan {
    /// `A·(B ⊙ C)` for factors in host memory, row after row without padding; `n` follows from their lengths (for
    /// factors without rows it is the plan's width). The result is I × n, likewise.
    ///
    /// Copies factors and result; see [`run_into`](Self::run_into) for matrices that stay on the device.
    ///
    /// # Errors
    /// - [`PlanError::PackedCount`](crate::PlanError::PackedCount) if the lengths are no K × n and L × n;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    pub fn run<T: Element>(&self, b: &[T], c: &[T]) -> Result<Vec<T>, TensorError> {
        let [rows, b_rows, c_rows] = self.dims;
        let n = match (b_rows, c_rows) {
            (0, 0) => self.width,
            (0, of_c) => c.len() / of_c,
            (of_b, _) => b.len() / of_b,
        };
        let factors = [check_packed("B", b, (b_rows, n))?, check_packed("C", c, (c_rows, n))?];
        let mut y = try_zeroed::<T>(elements(rows, n, n)?, "Y")?;
        let (one, zero) = (<T::Sum as Value>::ONE, <T::Sum as Value>::ZERO);
        self.run_host(one, factors, zero, DenseMut::packed(&mut y, rows, n)?)?;
        Ok(y)
    }

    /// `Y ← α·A·(B ⊙ C) + β·Y` for matrices in host memory, the factors `B` and `C` in this order, row-major or
    /// column-major: [`MatRef`]s, or what becomes one. Elements of `Y` between its columns and its leading dimension
    /// are not touched.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit,
    ///   [`PlanError::Strides`](crate::PlanError::Strides) if a factor cannot be read;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    pub fn run_host<'f, T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        [b, c]: [impl TryInto<MatRef<'f, T>, Error: Into<crate::PlanError>>; 2],
        beta: T::Sum,
        y: DenseMut<'_, O>,
    ) -> Result<(), TensorError> {
        let (b, c) = (operand(b)?, operand(c)?);
        self.check_shapes([(b.rows(), b.cols()), (c.rows(), c.cols())], (y.rows(), y.cols()))?;
        with_element!(self.precision, E => {
            let (b, c) = (Rounded::<E>::new(b)?, Rounded::<E>::new(c)?);
            with_sums(y, beta, |y| self.run_as(factor(alpha), [b.view()?, c.view()?], factor(beta), y))
        })
    }

    /// Runs with factors of the plan's element type; on a GPU by way of copies.
    fn run_as<T: Element>(
        &self,
        alpha: T::Sum,
        [b, c]: [DenseRef<'_, T>; 2],
        beta: T::Sum,
        y: DenseMut<'_, T::Sum>,
    ) -> Result<(), TensorError> {
        if let Body::Cpu(tensor) = &self.body {
            if let Some(tensor) = tensor.get::<HostMttkrp<T::Sum>>() {
                tensor.run(alpha, [b, c], beta, y);
            }
            return Ok(());
        }
        let b = DeviceMatrix::upload(&self.device, b)?;
        let c = DeviceMatrix::upload(&self.device, c)?;
        let mut on_device = output_on(&self.device, y.as_ref(), beta != Value::ZERO)?;
        self.run_into(alpha, [&b, &c], beta, &mut on_device)?;
        Ok(on_device.download_into(y)?)
    }

    /// `Y ← α·A·(B ⊙ C) + β·Y` for matrices on the plan's device, the factors `B` and `C` in this order.
    ///
    /// On a GPU this queues the kernels and returns; it allocates nothing. Reading `Y` waits for the result, and so
    /// does [`Device::synchronize`], which also reports errors of the kernels.
    ///
    /// # Shapes
    /// - `B`: K × n, `C`: L × n, of the plan's precision. Kernels read them fastest if `ld` elements are a multiple
    ///   of 16 bytes, as [`DeviceMatrix::zeros`] and [`DeviceMatrix::upload`] make it;
    /// - `y`: I × n, f32, f16 or bf16; f64 for a plan of that precision; not read if β = 0.
    ///
    /// # Cost
    /// 3·nnz·n operations; reads a row of `B` and a row of `C` for each entry.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if an operand is elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) if a factor is of another type;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge) for a width or leading dimension of 2³² or more;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, DenseRef, Device, DeviceMatrix, Mttkrp};
    ///
    /// let device = Device::best()?;
    /// let tensor = Coo3::from_entries([2, 2, 1], [([0, 1, 0], 3.0f32)])?.to_csf([0, 1, 2])?;
    /// let plan = Mttkrp::builder(&tensor).width(2).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
    /// let c = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 10.0], 1, 2)?)?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, 2, 2)?;
    /// plan.run_into(1.0, [&b, &c], 0.0, &mut y)?;
    /// plan.run_into(1.0, [&b, &c], 2.0, &mut y)?; // three times the product
    /// assert_eq!(y.download()?, [27.0, 360.0, 0.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        [b, c]: [&DeviceMatrix<T>; 2],
        beta: T::Sum,
        y: &mut DeviceMatrix<O>,
    ) -> Result<(), TensorError> {
        self.run_into_on(&self.device.stream(), alpha, [b.view(), c.view()], beta, y)
    }

    /// [`run_into`](Self::run_into) on a [`Stream`], for matrices in memory of any origin: a [`DeviceMatrix`], or
    /// [what another library has allocated](DeviceView::from_raw). What is said of streams says how it is
    /// [ordered](Stream#order-between-streams) with other work. The first run on a stream makes a workspace for it, if
    /// slices are cut.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into);
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device;
    /// - [`PlanError::Overlap`](crate::PlanError::Overlap) if `y` has bytes in common with a factor;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if there is no room for the stream's workspace;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, DenseRef, Device, DeviceMatrix, Mttkrp, Stream};
    ///
    /// let device = Device::best()?;
    /// let tensor = Coo3::from_entries([2, 2, 1], [([0, 1, 0], 3.0f32)])?.to_csf([0, 1, 2])?;
    /// let plan = Mttkrp::builder(&tensor).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let c = DeviceMatrix::upload(&device, DenseRef::packed(&[10.0f32], 1, 1)?)?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// plan.run_into_on(&Stream::new(&device)?, 1.0, [b.view(), c.view()], 0.0, &mut y)?;
    /// assert_eq!(y.download()?, [60.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::too_many_arguments, reason = "those of `run_into`, and where")]
    pub fn run_into_on<'a, T: Element, O: Element<Sum = T::Sum>>(
        &self,
        on: &Stream,
        alpha: T::Sum,
        [b, c]: [DeviceView<'_, T>; 2],
        beta: T::Sum,
        y: impl Into<DeviceViewMut<'a, O>>,
    ) -> Result<(), TensorError> {
        let y = y.into();
        check_device("the stream", on.device(), &self.device)?;
        self.check_operands([b, c], y.as_view())?;
        let to = y.bytes();
        to.check_apart("Y", "B", b.bytes())?;
        to.check_apart("Y", "C", c.bytes())?;
        match &self.body {
            Body::Cpu(tensor) => {
                // All are in host memory: they are on the CPU, as was just checked.
                let tensor = tensor.get::<HostMttkrp<T::Sum>>();
                if let (Some(tensor), Some(b), Some(c), Some(y)) = (tensor, b.host(), c.host(), y.into_host())
                {
                    tensor.run(alpha, [b, c], beta, y);
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, b.is_owned() || c.is_owned() || y.is_owned())?;
                let operands = Operands {
                    b: b.address(),
                    ldb: check_ld(b.ld())?,
                    column_major: false,
                    second: Some(SecondFactor { address: c.address(), ld: check_ld(c.ld())? }),
                    reads_vectors: b.reads_vectors(to) && c.reads_vectors(to),
                    c: y.address(),
                    ldc: check_ld(y.ld())?,
                    n: check_index("columns", y.cols(), u64::from(u32::MAX), COLUMN_REMEDY)?,
                    finish: Finish::of::<O>(&Epilogue::linear(alpha, beta)),
                };
                let budget = Budget { arrays: &self.report.arrays, limit: self.memory_limit };
                // SAFETY: shapes, types and devices were checked; a `DeviceMatrix` holds all rows up to its leading
                // dimension, and frees them after the work that was queued before; of other memory the views were
                // promised that it lives. `y` has nothing in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, operands, budget)? };
                Ok(())
            }
        }
    }

    /// Makes and compiles what runs of this width on a stream would else make when they first come: for runs that are
    /// to be captured into a graph, or timed; `staged` for a `Y` of bf16. Waits until the plan's values and what was
    /// made are there. Nothing is left to do on the CPU.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`PlanError::TooLarge`](crate::PlanError::TooLarge) for 2³² columns or more;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if there is no room;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured already.
    pub fn prepare_on(&self, on: &Stream, width: usize, staged: bool) -> Result<(), TensorError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu(_) => Ok(()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, false)?;
                let n = check_index("columns", width, u64::from(u32::MAX), COLUMN_REMEDY)?;
                let budget = Budget { arrays: &self.report.arrays, limit: self.memory_limit };
                Ok(plan.prepare(&on, n, staged, budget)?)
            }
        }
    }

    /// Puts new values in the places of the old, one for each entry in the order of the tensor's fibers; the pattern
    /// stays.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry;
    /// - [`PlanError::Device`](crate::PlanError::Device); the plan's values are then undefined until a replacement
    ///   succeeds.
    pub fn replace_values<V: Value>(&mut self, values: &[V]) -> Result<(), TensorError> {
        check_count("the new values", values.len(), self.nnz)?;
        let bits = Bits::of(self.precision, values)?;
        match &mut self.body {
            Body::Cpu(tensor) => with_element!(self.precision, E => {
                if let Some(tensor) = tensor.get_mut::<HostMttkrp<<E as Element>::Sum>>() {
                    tensor.replace_values(bits.numbers()?);
                }
            }),
            Body::Gpu(plan) => plan.replace_values(&bits)?,
        }
        Ok(())
    }

    /// [`replace_values`](Self::replace_values) with values that are on the plan's device, without a way through the
    /// host: the same values in the same places, bit for bit. On a GPU this queues a kernel and returns.
    ///
    /// # Errors
    /// Those of [`replace_values_on`](Self::replace_values_on).
    pub fn replace_values_from<S: Real>(&mut self, values: &DeviceBuffer<S>) -> Result<(), TensorError> {
        self.replace_values_on(&self.device.stream(), values)
    }

    /// [`replace_values_from`](Self::replace_values_from) on a [`Stream`], with values in memory of any origin. Runs
    /// that were asked for before, on whatever stream, still use the old values, later ones the new.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry,
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if they or the stream are elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) unless they are f32, for a plan of that precision
    ///   f64;
    /// - on the first call [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if there is no room for an array
    ///   that says where values belong;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs): see [`SpmmPlan::replace_values_on`](crate::SpmmPlan::replace_values_on);
    /// - [`PlanError::Device`](crate::PlanError::Device); the plan's values are then undefined until a replacement
    ///   succeeds.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceBuffer, Mttkrp, Stream};
    ///
    /// let device = Device::best()?;
    /// let tensor = Coo3::from_entries([1, 2, 1], [([0, 1, 0], 3.0f32)])?.to_csf([0, 1, 2])?;
    /// let mut plan = Mttkrp::builder(&tensor).width(1).build(&device)?;
    /// plan.replace_values_on(&Stream::new(&device)?, &DeviceBuffer::from_slice(&device, &[5.0f32])?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0], &[10.0])?, [100.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values_on<'a, S: Real>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceSlice<'a, S>>,
    ) -> Result<(), TensorError> {
        let values = values.into();
        check_new_values(on, &values, &self.device, (self.precision, self.nnz))?;
        match &mut self.body {
            // They are in host memory: they are on the CPU, as was just checked.
            Body::Cpu(_) => self.replace_values(values.host().unwrap_or_default()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, values.is_owned())?;
                let new = NewValues { first: GlobalPtr::from_address(values.address()), count: self.nnz };
                let MttkrpReport { arrays, device_bytes, .. } = &mut self.report;
                let account =
                    Account { arrays, device_bytes, limit: self.memory_limit, remedy: MEMORY_REMEDY };
                // SAFETY: length and device were checked; a buffer frees its memory after the work that was queued
                // before, and of other memory the slice was promised that it lives.
                unsafe { Ok(plan.replace_by(&on, new, None, account)?) }
            }
        }
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &MttkrpReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of the values and the factors.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// `[I, K, L]`: rows of `Y`, `B` and `C`, the tensor's dimensions in the order of its levels.
    #[must_use]
    pub fn dims(&self) -> [usize; 3] {
        self.dims
    }

    /// Number of entries of the tensor.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The arrays that [`internal::mttkrp_arrays`](crate::internal::mttkrp_arrays) returns.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, TensorError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(plan) => Ok(plan.read_arrays()?),
        }
    }

    fn check_shapes(&self, [b, c]: [(usize, usize); 2], y: (usize, usize)) -> Result<(), TensorError> {
        let ([rows, b_rows, c_rows], n) = (self.dims, b.1);
        check_shape("B", b, (b_rows, n))?;
        check_shape("C", c, (c_rows, n))?;
        Ok(check_shape("Y", y, (rows, n))?)
    }

    /// Devices, types and shapes.
    pub(super) fn check_operands<T: Element, O: Element>(
        &self,
        [b, c]: [DeviceView<'_, T>; 2],
        y: DeviceView<'_, O>,
    ) -> Result<(), TensorError> {
        for (operand, device) in [("B", b.device()), ("C", c.device()), ("Y", y.device())] {
            check_device(operand, device, &self.device)?;
        }
        check_element::<T>("B", self.precision)?;
        self.check_shapes([(b.rows(), b.cols()), (c.rows(), c.cols())], (y.rows(), y.cols()))
    }
}

impl fmt::Debug for MttkrpPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([i, k, l], nnz, precision) = (self.dims, self.nnz, self.precision);
        write!(f, "MttkrpPlan({i} × {k} × {l}, {nnz} entries, {precision}, on {})", self.device)
    }
}

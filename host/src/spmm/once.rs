//! A product of a matrix on the device without a plan.

use super::builder::SpmmBuilder;
use super::fit::Fit;
use super::operands::Operands;
use super::parts::merge_based::Once;
use crate::activation::Epilogue;
use crate::csr::DeviceCsr;
use crate::device::Stream;
use crate::element::Element;
use crate::error::{DeviceError, SpmmError};
use crate::num::wide;
use crate::options::Algorithm;
use crate::plan::{MAX_INDEX, On};
use crate::view::{DeviceView, DeviceViewMut};
use windrow_formats::Value;

impl<V: Value> SpmmBuilder<'_, DeviceCsr<'_, V>> {
    /// `C ← α·A·B + β·C` once, without a plan: for a matrix that is new with every product.
    ///
    /// On a GPU two kernels are queued, which read the matrix as it is, 32 or 64 bits, whatever the type of its values;
    /// nothing is copied, nobody waits, and of memory there is a workspace: two rows of sums, each as wide as `C`, for
    /// each block of 128 to 1024 entries and rows. The result is the same in every run. Values are not rounded to the
    /// precision: they are multiplied as they are given, in the type of the sums, f64 ones rounded to that.
    ///
    /// Columns need neither ascend nor be distinct. A matrix that is wrong otherwise, whose offsets decrease or end
    /// elsewhere than at the last entry, or a column of which is beyond the matrix, **makes all of `C` NaN**; nothing
    /// else is read or written, and nobody is told, because nobody waits. [`DeviceCsr::checked`] tells what is wrong.
    ///
    /// With an algorithm, an order or a memory limit among the options, of a matrix with 2³² − 1024 rows and entries or
    /// more, on the CPU, and for values that kernels do not read, this is [`build_on`](Self::build_on) for one run, and
    /// [`run_into_on`](super::SpmmPlan::run_into_on), with their demands, their rounding of values and their errors.
    ///
    /// After *Design Principles for Sparse Matrix Multiplication on the GPU* (Yang, Buluç and Owens, Euro-Par 2018).
    ///
    /// # Shapes
    /// - `b`: k × n, of the precision of the options (for tf32: f32);
    /// - `c`: m × n, f32, f16 or bf16; f64 in that precision; not read if β = 0.
    ///
    /// # Errors
    /// - those of [`run_into_on`](super::SpmmPlan::run_into_on) for operands that do not fit;
    /// - [`DeviceError::Captured`] on a stream that is captured: make a plan before the capture;
    /// - [`PlanError::Device`](crate::PlanError::Device), [`DeviceError::OutOfMemory`] for the workspace.
    ///
    /// # Examples
    /// ```
    /// use windrow::{DenseRef, Device, DeviceBuffer, DeviceCsr, DeviceMatrix, Spmm};
    ///
    /// let device = Device::best()?;
    /// let offsets = DeviceBuffer::from_slice(&device, &[0i64, 2, 3])?;
    /// let columns = DeviceBuffer::from_slice(&device, &[0i64, 2, 1])?;
    /// let values = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
    /// let a = DeviceCsr::new(2, 3, &offsets, &columns, &values)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 10.0, 100.0], 3, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// Spmm::builder(&a).run_once_on(&device.stream(), 1.0, &b, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [201.0, 30.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::too_many_arguments, reason = "those of `SpmmPlan::run_into_on`")]
    pub fn run_once_on<'b, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        alpha: B::Sum,
        b: impl Into<DeviceView<'b, B>>,
        beta: B::Sum,
        c: impl Into<DeviceViewMut<'b, C>>,
    ) -> Result<(), SpmmError> {
        let (a, b, c) = (self.a, b.into(), c.into());
        let run = Epilogue::linear(alpha, beta);
        let (device, precision) = (a.device(), self.options.precision);
        let fit = Fit { device, precision, rows: a.rows(), cols: a.cols() };
        fit.check_views(on, &run, (b, (b.rows(), b.cols())), &c)?;
        if !self.needs_no_plan() {
            let plan = self.clone().width(b.cols()).expected_runs(1).build_on(on)?;
            return plan.run_into_on(on, alpha, b, beta, c);
        }
        let on = On::of(on, device, true)?;
        if on.is_captured()? {
            let (what, remedy) =
                ("the workspace of a product without a plan", "make a plan before the capture");
            return Err(DeviceError::Captured { what, remedy }.into());
        }
        let operands = Operands::of(&run, b, b.cols(), &c)?;
        let once = Once::of(a, operands, precision)?;
        // SAFETY: devices, types, shapes and overlap were checked; the views and the matrix live as long as this call,
        // and what is queued ends before their memory is freed, as those promised who made them.
        on.run([], |queue| unsafe { once.queue(queue, operands) })?;
        Ok(())
    }

    /// Whether the kernels that make nothing beforehand do what the options ask for.
    fn needs_no_plan(&self) -> bool {
        let options = &self.options;
        let a = self.a;
        let is_asked = options.algorithm != Algorithm::Auto
            || self.order.is_some()
            || options.reorder.is_some()
            || options.memory_limit.is_some();
        let fits = wide(a.rows()).saturating_add(wide(a.nnz())) <= MAX_INDEX;
        a.device().machine().is_some() && !is_asked && fits && a.is_read_by_kernels()
    }
}

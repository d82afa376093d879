//! A plan of reductions that is ready to run.

use std::fmt;

use windrow_formats::Pattern;
use windrow_simt::GlobalPtr;

use super::gpu::{GpuAggregate, KernelOperands, Pass, Rows};
use super::host::HostAggregate;
use super::operands::{AggregateBackward, AggregateGradients, AggregateOperands};
use super::options::AggregateOptions;
use super::report::AggregateReport;
use crate::device::{Device, Stream};
use crate::element::{Element, output_type};
use crate::error::AggregateError;
#[cfg(doc)]
use crate::error::PlanError;
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::plan::{
    On, check_count, check_device, check_element, check_ld, check_packed, check_shape, pointer_or_null,
};
use crate::row_lists::Transposed;
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};

/// A matrix laid out for reductions over its rows, for a number of columns, on one device.
///
/// Made by [`Aggregate::builder`](super::Aggregate::builder); runs any number of times.
///
/// # Precision
/// Messages, sums and means are f32, on the CPU f64; values of the matrix are rounded to f32. A result is rounded once.
/// Every sum is taken in one order: two runs on a device, with operands of the same alignment, give the same bits.
///
/// # Not-a-number
/// As IEEE arithmetic has it, and PyTorch: a message that is a NaN makes its element of the result NaN, of a maximum
/// and a minimum, too.
pub struct AggregatePlan {
    pub(super) device: Device,
    pub(super) body: Body,
    pub(super) report: AggregateReport,
}

/// Where the matrix is.
pub(super) enum Body {
    Cpu {
        pattern: Pattern,
        values: Vec<f32>,
        /// What the gradient of `X` needs.
        transposed: Option<Transposed>,
    },
    Gpu(Box<GpuAggregate>),
}

impl AggregatePlan {
    /// The reduction for an `X` in host memory, row after row without padding.
    ///
    /// Copies operand and result; see [`forward_on`](Self::forward_on) for matrices that stay on the device.
    ///
    /// # Errors
    /// - [`PlanError::PackedCount`] if `X` has another number of elements;
    /// - those of [`forward_on`](Self::forward_on).
    pub fn run<T: Element<Sum = f32>>(&self, x: &[T]) -> Result<Vec<f32>, AggregateError> {
        let AggregateReport { rows, cols, .. } = self.report;
        let columns = self.options().columns;
        let x = DeviceMatrix::upload(&self.device, check_packed("X", x, (cols, columns))?)?;
        let mut out = DeviceMatrix::<f32>::zeros(&self.device, rows, columns)?;
        self.forward_on(&self.device.stream(), AggregateOperands::new(&x), &mut out)?;
        Ok(out.download()?)
    }

    /// `out ←` the reduction, on a [`Stream`], for operands in memory of any origin. `out` is m × d, of f32, f16 or
    /// bf16.
    ///
    /// On a GPU this queues the kernels and returns. What is said of streams says how it is
    /// [ordered](Stream#order-between-streams) with other work. Kernels read an `X` fastest whose rows begin at
    /// multiples of 16 bytes.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`] if the sizes do not fit, [`PlanError::ValueCount`] for values or winners of
    ///   another length;
    /// - [`PlanError::WrongDevice`] if an operand is elsewhere, [`PlanError::ElementType`] if `X` is not of the plan's
    ///   precision; [`PlanError::Overlap`] if what is written has bytes in common with anything else;
    /// - [`AggregateError::NoWinners`] for the winners of a sum or a mean, [`AggregateError::NoValues`] for values of a
    ///   plan that copies;
    /// - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a
    ///   [graph](Stream#graphs).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Aggregate, AggregateOperands, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Message, Reduce};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = Aggregate::builder(&a).reduce(Reduce::Min).message(Message::Add).columns(2).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 5.0, 3.0, 2.0], 2, 2)?)?;
    /// let values = DeviceBuffer::from_slice(&device, &[0.5f32, 2.5])?;
    /// let mut winners = DeviceBuffer::<u32>::alloc_zeroed(&device, 2)?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// let operands = AggregateOperands::new(&x).values(&values).winners(&mut winners);
    /// plan.forward_on(&device.stream(), operands, &mut out)?;
    /// assert_eq!((out.download()?, winners.to_vec()?), (vec![1.5, 4.5], vec![0, 1]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward_on<'a, T: Element<Sum = f32>, O: Element<Sum = f32>>(
        &self,
        on: &Stream,
        operands: AggregateOperands<'a, T>,
        out: impl Into<DeviceViewMut<'a, O>>,
    ) -> Result<(), AggregateError> {
        let out = out.into();
        check_device("the stream", on.device(), &self.device)?;
        self.check_read(&operands)?;
        let AggregateReport { rows, .. } = self.report;
        let columns = self.options().columns;
        check_device("the result", out.device(), &self.device)?;
        check_shape("the result", (out.rows(), out.cols()), (rows, columns))?;
        out.bytes().check_apart("the result", "X", operands.x.bytes())?;
        if let Some(values) = &operands.values {
            out.bytes().check_apart("the result", "the values", values.bytes())?;
        }
        if let Some(winners) = &operands.winners {
            let winners = winners.as_slice();
            if !self.options().reduce.picks() {
                return Err(AggregateError::NoWinners { reduce: self.options().reduce });
            }
            check_device("the winners", winners.device(), &self.device)?;
            check_count("the winners", winners.len(), rows * columns)?;
            winners.bytes().check_apart("the winners", "the result", out.bytes())?;
            winners.bytes().check_apart("the winners", "X", operands.x.bytes())?;
            if let Some(values) = &operands.values {
                winners.bytes().check_apart("the winners", "the values", values.bytes())?;
            }
        }
        let AggregateOperands { x, values, winners } = operands;
        match &self.body {
            Body::Cpu { pattern, values: own, .. } => {
                // All are in host memory: they are on the CPU, as was just checked.
                if let (Some(x), Some(mut out)) = (x.host(), out.into_host()) {
                    let values = values.and_then(|values| values.host());
                    let winners = winners.and_then(|winners| winners.into_host());
                    self.on_host(pattern, own, values).run(x, &mut out, winners)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let slices = values.iter().any(DeviceSlice::is_owned)
                    || winners.as_ref().is_some_and(|winners| winners.as_slice().is_owned());
                let on = On::of(on, &self.device, x.is_owned() || out.is_owned() || slices)?;
                let operands = KernelOperands {
                    x: Rows { address: GlobalPtr::from_address(x.address()), ld: check_ld(x.ld())? },
                    gradient: Rows::NONE,
                    out: Rows { address: GlobalPtr::from_address(out.address()), ld: check_ld(out.ld())? },
                    out_type: output_type::<O>(),
                    values: pointer_or_null(values.map(|values| values.address())),
                    winners: pointer_or_null(winners.map(|winners| winners.address())),
                    aligned: is_aligned(&x),
                };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` frees its memory after the work that
                // was queued before; of other memory the views were promised that it lives. What is written has nothing
                // in common with the others, and is borrowed for itself.
                unsafe { plan.run(&on, &[(Pass::Forward, operands)])? };
                Ok(())
            }
        }
    }

    /// The gradients of a loss with respect to `X` and the values, on a [`Stream`], given that with respect to the
    /// result, for a plan that was built with [`gradients`](super::AggregateBuilder::gradients).
    ///
    /// ```text
    /// dX[j, c] = Σ_i f · dout[i, c]          f: A[i, j] of a product, else 1; of a mean divided by the row's entries
    /// dA[i, j] = Σ_c dout[i, c] · X[j, c]    of a product; of a sum without the last factor
    /// ```
    ///
    /// Of a maximum or a minimum the sums are over the elements whose winner the entry is. They are taken over the rows
    /// of the transpose, so that no element is added to by several; nothing is stored for each entry and column.
    ///
    /// # Errors
    /// - [`AggregateError::NoGradients`] of a plan that was built without, [`AggregateError::Unkept`] for a maximum or
    ///   a minimum without winners;
    /// - those of [`forward_on`](Self::forward_on), for the gradients, too.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Aggregate, AggregateBackward, AggregateGradients, AggregateOperands, Csr, DenseRef, Device};
    /// use windrow::{DeviceBuffer, DeviceMatrix, Reduce};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = Aggregate::builder(&a).reduce(Reduce::Max).columns(2).gradients(true).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 5.0, 3.0, 2.0], 2, 2)?)?;
    /// let mut winners = DeviceBuffer::<u32>::alloc_zeroed(&device, 2)?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// let stream = device.stream();
    /// plan.forward_on(&stream, AggregateOperands::new(&x).winners(&mut winners), &mut out)?;
    /// let gradient = DeviceMatrix::upload(&device, DenseRef::packed(&[10.0f32, 20.0], 1, 2)?)?;
    /// let mut of_x = DeviceMatrix::<f32>::zeros(&device, 2, 2)?;
    /// let given = AggregateBackward::new(AggregateOperands::new(&x), &gradient).winners(&winners);
    /// plan.backward_on(&stream, given, AggregateGradients::new(&mut of_x))?;
    /// assert_eq!(of_x.download()?, [0.0, 20.0, 10.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backward_on<'a, T: Element<Sum = f32>, R: Element<Sum = f32>>(
        &self,
        on: &Stream,
        given: AggregateBackward<'a, T>,
        found: AggregateGradients<'a, R>,
    ) -> Result<(), AggregateError> {
        check_device("the stream", on.device(), &self.device)?;
        self.check_backward(&given, &found)?;
        let AggregateBackward { operands: AggregateOperands { x, values, .. }, gradient, winners } = given;
        let winners = winners.filter(|_| self.options().reduce.picks());
        match &self.body {
            Body::Cpu { pattern, values: own, transposed } => {
                // All are in host memory: they are on the CPU, as was just checked.
                if let (Some(transposed), Some(x), Some(gradient)) = (transposed, x.host(), gradient.host())
                    && let Some(mut of_x) = found.x.into_host()
                {
                    let values = values.and_then(|values| values.host());
                    let winners = winners.and_then(|winners| winners.host());
                    let host = self.on_host(pattern, own, values);
                    host.gradient_of_x(transposed, (gradient, winners), &mut of_x)?;
                    if let Some(of_values) = found.values.and_then(|values| values.into_host()) {
                        host.gradient_of_values(x, (gradient, winners), of_values);
                    }
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let slices = values.iter().any(DeviceSlice::is_owned)
                    || winners.iter().any(DeviceSlice::is_owned)
                    || found.values.as_ref().is_some_and(|values| values.as_slice().is_owned());
                let views = x.is_owned() || gradient.is_owned() || found.x.is_owned();
                let on = On::of(on, &self.device, views || slices)?;
                let of = |view: &DeviceView<'_, T>| -> Result<Rows, AggregateError> {
                    Ok(Rows { address: GlobalPtr::from_address(view.address()), ld: check_ld(view.ld())? })
                };
                let to = GlobalPtr::from_address(found.x.address());
                let of_x = KernelOperands {
                    x: of(&gradient)?,
                    gradient: Rows::NONE,
                    out: Rows { address: to, ld: check_ld(found.x.ld())? },
                    out_type: output_type::<R>(),
                    values: pointer_or_null(values.map(|values| values.address())),
                    winners: pointer_or_null(winners.map(|winners| winners.address())),
                    // Winners are read as many at once as elements.
                    aligned: is_aligned(&gradient)
                        && winners.is_none_or(|winners| winners.address().is_multiple_of(16)),
                };
                let mut passes = vec![(Pass::Backward, of_x)];
                if let Some(of_values) = &found.values {
                    let to = GlobalPtr::from_address(of_values.as_slice().address());
                    let operands = KernelOperands {
                        x: of(&x)?,
                        gradient: of_x.x,
                        out: Rows { address: to, ld: 0 },
                        aligned: of_x.aligned && is_aligned(&x),
                        ..of_x
                    };
                    passes.push((Pass::Slopes, operands));
                }
                // SAFETY: as in `forward_on`.
                unsafe { plan.run(&on, &passes)? };
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
    pub fn prepare_on(&self, on: &Stream) -> Result<(), AggregateError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu { .. } => Ok(()),
            Body::Gpu(plan) => Ok(plan.prepare(&On::of(on, &self.device, false)?)?),
        }
    }

    fn on_host<'b>(
        &'b self,
        pattern: &'b Pattern,
        own: &'b [f32],
        values: Option<&'b [f32]>,
    ) -> HostAggregate<'b> {
        let has_values = self.options().message.has_values();
        HostAggregate { pattern, options: self.options(), values: has_values.then(|| values.unwrap_or(own)) }
    }

    /// Checks what forward and backward passes read alike.
    fn check_read<T: Element>(&self, operands: &AggregateOperands<'_, T>) -> Result<(), AggregateError> {
        let AggregateOptions { columns, precision, message, .. } = *self.options();
        check_device("X", operands.x.device(), &self.device)?;
        check_element::<T>("X", precision)?;
        check_shape("X", (operands.x.rows(), operands.x.cols()), (self.report.cols, columns))?;
        if let Some(values) = &operands.values {
            if !message.has_values() {
                return Err(AggregateError::NoValues);
            }
            check_device("the values", values.device(), &self.device)?;
            check_count("the values", values.len(), self.report.nnz)?;
        }
        Ok(())
    }

    /// Checks that all is where it must be, of the sizes and the types that it must have, and apart.
    fn check_backward<T: Element, R: Element>(
        &self,
        given: &AggregateBackward<'_, T>,
        found: &AggregateGradients<'_, R>,
    ) -> Result<(), AggregateError> {
        let AggregateOptions { columns, precision, message, gradients, reduce, .. } = *self.options();
        let AggregateReport { rows, cols, nnz, .. } = self.report;
        if !gradients {
            return Err(AggregateError::NoGradients);
        }
        self.check_read(&given.operands)?;
        let gradient = &given.gradient;
        check_device("the gradient of the result", gradient.device(), &self.device)?;
        check_element::<T>("the gradient of the result", precision)?;
        check_shape("the gradient of the result", (gradient.rows(), gradient.cols()), (rows, columns))?;
        check_device("the gradient of X", found.x.device(), &self.device)?;
        check_shape("the gradient of X", (found.x.rows(), found.x.cols()), (cols, columns))?;
        let mut read =
            vec![("X", given.operands.x.bytes()), ("the gradient of the result", gradient.bytes())];
        read.extend(given.operands.values.as_ref().map(|values| ("the values", values.bytes())));
        match &given.winners {
            Some(winners) => {
                check_device("the winners", winners.device(), &self.device)?;
                check_count("the winners", winners.len(), rows * columns)?;
                read.push(("the winners", winners.bytes()));
            }
            None if reduce.picks() => return Err(AggregateError::Unkept { reduce }),
            None => {}
        }
        for (name, bytes) in &read {
            found.x.bytes().check_apart("the gradient of X", name, *bytes)?;
        }
        if let Some(of_values) = &found.values {
            if !message.has_values() {
                return Err(AggregateError::NoValues);
            }
            let of_values = of_values.as_slice();
            check_device("the gradient of the values", of_values.device(), &self.device)?;
            check_count("the gradient of the values", of_values.len(), nnz)?;
            read.push(("the gradient of X", found.x.bytes()));
            for (name, bytes) in &read {
                of_values.bytes().check_apart("the gradient of the values", name, *bytes)?;
            }
        }
        Ok(())
    }

    fn options(&self) -> &AggregateOptions {
        &self.report.options
    }

    /// The device that it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &AggregateReport {
        &self.report
    }
}

/// Whether every row begins at a multiple of 16 bytes and has a multiple of that.
fn is_aligned<T: Element>(view: &DeviceView<'_, T>) -> bool {
    let lengths = [view.ld(), view.cols()];
    view.address().is_multiple_of(16)
        && lengths.iter().all(|len| wide(len * size_of::<T>()).is_multiple_of(16))
}

impl fmt::Debug for AggregatePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AggregateReport { rows, cols, nnz, .. } = self.report;
        let AggregateOptions { reduce, message, columns, .. } = self.options();
        write!(
            f,
            "AggregatePlan({reduce} of {message}, {rows} × {cols}, {nnz} entries, {columns} columns, on {})",
            self.device
        )
    }
}

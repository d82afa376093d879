//! The operands of an operation: how they are checked, and how kernels take them.

use bytemuck::Pod;
use windrow_formats::Value;
use windrow_kernels::training::{Extent, Matrix};
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::{Device, Queue, Stream};
use crate::error::{DeviceError, PlanError, TrainingError};
use crate::num::wide;
use crate::plan::{MAX_INDEX, On, check_count, check_device, check_index, check_ld, check_shape, start};
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, Pitched};

/// Operands of an operation, at most: two matrices, inverse norms, a factor and the result of a gradient.
const MOST: usize = 5;

/// What an operation reads and writes, checked one by one before anything is queued: all of it is on the device of its
/// stream, has the shape that it must have, and nothing that is written has a byte in common with another operand.
pub(super) struct Operands<'a> {
    stream: &'a Stream,
    /// Names and bytes of those so far.
    seen: [Option<Seen>; MOST],
    /// Whether some are windrow's memory.
    shares: bool,
}

#[derive(Clone, Copy)]
struct Seen {
    name: &'static str,
    bytes: Pitched,
    is_written: bool,
}

impl<'a> Operands<'a> {
    /// Of an operation on this stream, for a value on `device` or with its main operand there.
    ///
    /// # Errors
    /// [`PlanError::WrongDevice`] for a stream of another device.
    pub(super) fn on(stream: &'a Stream, device: &Device) -> Result<Self, PlanError> {
        check_device("the stream", stream.device(), device)?;
        Ok(Self { stream, seen: [None; MOST], shares: false })
    }

    /// One that is read.
    ///
    /// # Errors
    /// [`PlanError::WrongDevice`], [`PlanError::OperandShape`], [`PlanError::Overlap`].
    pub(super) fn reads<T: Value>(
        &mut self,
        name: &'static str,
        matrix: DeviceView<'_, T>,
        shape: (usize, usize),
    ) -> Result<(), PlanError> {
        check_device(name, matrix.device(), self.stream.device())?;
        check_shape(name, (matrix.rows(), matrix.cols()), shape)?;
        self.note(Seen { name, bytes: matrix.bytes(), is_written: false }, matrix.is_owned())
    }

    /// One that is written.
    ///
    /// # Errors
    /// Those of [`reads`](Self::reads).
    pub(super) fn writes<T: Value>(
        &mut self,
        name: &'static str,
        matrix: &DeviceViewMut<'_, T>,
        shape: (usize, usize),
    ) -> Result<(), PlanError> {
        check_device(name, matrix.device(), self.stream.device())?;
        check_shape(name, (matrix.rows(), matrix.cols()), shape)?;
        self.note(Seen { name, bytes: matrix.bytes(), is_written: true }, matrix.is_owned())
    }

    /// An array that is read, with one element for each of `count`.
    ///
    /// # Errors
    /// [`PlanError::WrongDevice`], [`PlanError::ValueCount`], [`PlanError::Overlap`].
    pub(super) fn reads_array<T: Pod>(
        &mut self,
        name: &'static str,
        array: DeviceSlice<'_, T>,
        count: usize,
    ) -> Result<(), PlanError> {
        check_device(name, array.device(), self.stream.device())?;
        check_count(name, array.len(), count)?;
        self.note(Seen { name, bytes: array.bytes(), is_written: false }, array.is_owned())
    }

    /// An array that is written.
    ///
    /// # Errors
    /// Those of [`reads_array`](Self::reads_array).
    pub(super) fn writes_array<T: Pod>(
        &mut self,
        name: &'static str,
        array: &DeviceSliceMut<'_, T>,
        count: usize,
    ) -> Result<(), PlanError> {
        let array = array.as_slice();
        check_device(name, array.device(), self.stream.device())?;
        check_count(name, array.len(), count)?;
        self.note(Seen { name, bytes: array.bytes(), is_written: true }, array.is_owned())
    }

    fn note(&mut self, new: Seen, is_owned: bool) -> Result<(), PlanError> {
        self.shares |= is_owned;
        for other in self.seen.iter().flatten().filter(|other| new.is_written || other.is_written) {
            let (output, operand) = if new.is_written { (&new, other) } else { (other, &new) };
            output.bytes.check_apart(output.name, operand.name, operand.bytes)?;
        }
        let place = self.seen.iter_mut().find(|place| place.is_none());
        debug_assert!(place.is_some(), "there are no more than {} operands", MOST);
        if let Some(place) = place {
            *place = Some(new);
        }
        Ok(())
    }

    /// Where kernels are queued; none on the CPU.
    ///
    /// # Errors
    /// Those of [`On::of`].
    pub(super) fn queued(&self) -> Result<Option<On<'a>>, PlanError> {
        let device = self.stream.device();
        match device.machine() {
            Some(_) => On::of(self.stream, device, self.shares).map(Some),
            None => Ok(None),
        }
    }
}

/// A matrix with elements as kernels take it.
pub(super) fn matrix<T: Value>(view: DeviceView<'_, T>) -> Result<Matrix, PlanError> {
    let (address, ld) = (view.address(), check_ld(view.ld())?);
    let vectors = address.is_multiple_of(4 * wide(size_of::<T>())) && ld.is_multiple_of(4);
    Ok(Matrix { data: GlobalPtr::from_address(address), ld, vectors: u32::from(vectors) })
}

/// Rows and columns as kernels take them.
pub(super) fn counts<T: Value>(view: DeviceView<'_, T>) -> Result<(u32, u32), PlanError> {
    let count = |what, found| check_index(what, found, MAX_INDEX, "divide the matrix");
    Ok((count("rows", view.rows())?, count("columns", view.cols())?))
}

/// How the elements are dealt out to threads.
pub(super) fn extent<T: Value>(view: DeviceView<'_, T>) -> Result<Extent, PlanError> {
    let (rows, cols) = counts(view)?;
    Ok(Extent::of(rows, cols))
}

pub(super) fn is_empty<T: Value>(view: DeviceView<'_, T>) -> bool {
    view.rows() == 0 || view.cols() == 0
}

/// The kernel of an operation.
pub(super) fn entry(variant: Variant) -> Result<&'static Entry, DeviceError> {
    windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "training" })
}

/// Queues the one kernel of an operation that has no memory of its own, over `units` units of work.
///
/// # Errors
/// [`DeviceError::Captured`] for what a graph cannot hold; those of the device.
///
/// # Safety
/// `params` are the entry's and keep its obligations, and what they point to is live memory of the machine until the
/// work is done.
pub(super) unsafe fn launch<P: Pod>(
    on: &On<'_>,
    variant: Variant,
    units: u64,
    params: &P,
) -> Result<(), TrainingError> {
    let entry = entry(variant)?;
    // SAFETY: the caller's promise.
    let queue = |queue: &dyn Queue| unsafe { start(queue, entry, units, 1, params) };
    Ok(on.run([entry], queue)?)
}

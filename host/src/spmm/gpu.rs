//! A plan on a machine that runs kernels, a GPU or the emulator through the same code: its parts in device memory.

use std::sync::atomic::AtomicU64;

use windrow_kernels::{Entry, Variant};

use super::part::{LaidOut, Layout, LayoutFacts, Operation, Part, Turn, places_size};
use super::parts::read_array;
use super::places::Places;
use super::state::RunState;
use super::sums::{SplitPart, WideC};
use crate::device::{ArrayMemory, Device, Machine};
use crate::error::{DeviceError, PlanError};
use crate::options::{Determinism, Precision};
use crate::parallelism::{GroupLaunch, IllegalPoint};
use crate::plan::{
    Account, ArraySize, Bits, GivenValues, MAX_BLOCK_COLUMNS, NewValues, On, PerStream, placing_entry, push,
};

/// What a plan is, beside its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanShape {
    pub(crate) precision: Precision,
    pub(crate) determinism: Determinism,
    /// Rows of `A` and `C`.
    pub(crate) rows: usize,
    /// Columns of the workspace, a multiple of 8.
    pub(crate) capacity: u32,
}

/// The parts of a plan in device memory. Every row of `C` is written by exactly one part; one may add to rows that
/// another has written.
pub(crate) struct GpuPlan {
    pub(super) shape: PlanShape,
    pub(super) parts: Vec<(Turn, Box<dyn Part>)>,
    pub(super) split: Option<SplitPart>,
    pub(super) device: Device,
    /// Whether there are rows to which a part adds.
    pub(super) adds: bool,
    /// Where new values from the device go; made when they first come, unless asked for before.
    pub(super) places: Option<Places>,
    pub(super) states: PerStream<RunState>,
    /// Bytes of what was made for runs, beside what was made with the plan.
    pub(super) extra: AtomicU64,
}

/// The entries of one launch sequence.
pub(super) struct Chosen {
    /// What they are for.
    pub(super) operation: Operation,
    /// One for each part.
    pub(super) parts: Vec<&'static Entry>,
    /// For sums of what was cut, and for what is done once to sums that several launches have added to.
    pub(super) combine: &'static Entry,
}

impl GpuPlan {
    /// The arrays that [`upload`](Self::upload) makes, and the bytes of those that are workspace.
    pub(crate) fn sizes(laid: &LaidOut<'_>, shape: PlanShape) -> (Vec<ArraySize>, u64) {
        let PlanShape { precision, rows, capacity, .. } = shape;
        let mut sizes = laid.arrays();
        let before = sizes.len();
        let sum_bytes = u64::from(precision.dtype().sum_bytes());
        push(&mut sizes, "workspace", sum_bytes * laid.cut.slot_rows * u64::from(capacity));
        if laid.facts.rows_in_both > 0 {
            sizes.extend(WideC::sizes(rows, precision));
        }
        let workspace = sizes[before..].iter().map(|array| array.bytes).sum();
        (sizes, workspace)
    }

    /// Brings what was laid out to memory of a device, with these values in CSR order, and says what it was. A plan in
    /// a [block](ArrayMemory::Block) has no workspace of its own: it is given one for each stream that it runs on.
    pub(crate) fn upload(
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
        LaidOut { parts, cut, facts }: LaidOut<'_>,
        shape: PlanShape,
    ) -> Result<(Self, LayoutFacts), DeviceError> {
        let split = match cut.is_empty() {
            true => None,
            false => Some(SplitPart::upload(memory, cut, shape.capacity, shape.precision)?),
        };
        let upload =
            |(turn, layout): (Turn, Box<dyn Layout + '_>)| Ok((turn, layout.upload(memory, values)?));
        let parts = parts.into_iter().map(upload).collect::<Result<_, DeviceError>>()?;
        let adds = facts.rows_in_both > 0;
        let own = match memory {
            ArrayMemory::Own(device) => RunState::new(device, split.as_ref(), adds, shape)?,
            ArrayMemory::Block(_) => RunState::default(),
        };
        let plan = Self {
            shape,
            parts,
            split,
            device: memory.device().clone(),
            adds,
            places: None,
            states: PerStream::new(own),
            extra: AtomicU64::new(0),
        };
        Ok((plan, facts))
    }

    /// Columns of one launch, at most, if sums do not wait for anything.
    pub(super) fn most_columns(&self) -> u32 {
        match &self.split {
            Some(_) => self.shape.capacity,
            None => self.parts.iter().map(|(_, part)| part.most_columns()).min().unwrap_or(MAX_BLOCK_COLUMNS),
        }
    }

    /// The entries for an operation, one for every part: a part without one would leave its rows of `C` as they are.
    ///
    /// # Errors
    /// [`DeviceError::NoKernel`].
    pub(super) fn choose(&self, operation: Operation) -> Result<Chosen, DeviceError> {
        let precision = self.shape.precision;
        let none = |part: &'static str| {
            let Operation { n, vectors, column_major } = operation;
            DeviceError::NoKernel {
                part,
                precision: precision.to_string(),
                columns: n,
                vectors,
                column_major,
            }
        };
        let entry =
            |(_, part): &(Turn, Box<dyn Part>)| part.entry(operation).ok_or_else(|| none(part.name()));
        let combine = Variant::Combine { sum_bytes: precision.dtype().sum_bytes() };
        Ok(Chosen {
            operation,
            parts: self.parts.iter().map(entry).collect::<Result<_, _>>()?,
            combine: windrow_kernels::entry(combine).ok_or_else(|| none("sums of cut rows"))?,
        })
    }

    /// The names of the entries for an operation, which the driver compiles now unless it has, so that no run waits for
    /// that.
    ///
    /// # Errors
    /// [`DeviceError::NoKernel`] for a part without one.
    pub(crate) fn load(
        &self,
        machine: &dyn Machine,
        operation: Operation,
    ) -> Result<Vec<&'static str>, DeviceError> {
        let Chosen { parts, combine, .. } = self.choose(operation)?;
        let combine = self.split.is_some().then_some(combine);
        let entries = parts.into_iter().chain(combine);
        entries.map(|entry| machine.load(entry).map(|()| entry.name)).collect()
    }

    /// Whether Tensor Cores take part, whose rounding is not that of a fused multiply-add.
    pub(super) fn uses_tensor_cores(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.on_tensor_cores())
    }

    /// Whether there are kernels for a column-major `B`.
    pub(super) fn takes_column_major(&self) -> bool {
        self.parts.iter().all(|(_, part)| part.takes_column_major())
    }

    /// New values in CSR order, for the same pattern. Work queued before still uses the old ones.
    pub(crate) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        let device = self.device.clone();
        if let Some(machine) = device.machine() {
            self.states.before_writing(&**machine.own())?;
        }
        self.parts.iter_mut().try_for_each(|(_, part)| part.replace_values(values))
    }

    /// Another launch of the same division of work, and how it is described; none if no part has such.
    pub(super) fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<Option<String>, IllegalPoint> {
        for (_, part) in &mut self.parts {
            if let Some(described) = part.set_group_launch(launch)? {
                return Ok(Some(described));
            }
        }
        Ok(None)
    }

    /// The array that [`Places::new`] will make, for values that come in another order than that of the entries, or
    /// not; none if it is made.
    pub(super) fn missing_places(&self, nnz: usize, reordered: bool) -> Option<ArraySize> {
        let placements = self.parts.iter().map(|(_, part)| part.value_slots().placement());
        let size = || places_size(placements, nnz, self.shape.precision.bytes(), reordered);
        self.places.is_none().then(size)
    }

    /// Makes what values from the device need, in the order of the entries or where entry `e` takes value `order[e]`.
    pub(super) fn make_places(&mut self, nnz: usize, order: Option<&[u32]>) -> Result<(), PlanError> {
        self.places = Some(self.places_for(nnz, order)?);
        Ok(())
    }

    fn places_for(&self, nnz: usize, order: Option<&[u32]>) -> Result<Places, PlanError> {
        let slots: Vec<_> = self.parts.iter().map(|(_, part)| part.value_slots()).collect();
        Places::new(&self.device, self.shape.precision, &slots, nnz, order)
    }

    /// The kernels that put new values in their places.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`].
    pub(super) fn placing_entries(&self) -> Result<Vec<&'static Entry>, DeviceError> {
        let precision = self.shape.precision;
        let own = self.parts.iter().filter_map(|(_, part)| part.replacing(precision.dtype()));
        Ok(own.chain([placing_entry(precision)?]).collect())
    }

    /// Queues the replacement of all values by `values`, one for each entry, in the order of the entries or where entry
    /// `e` takes value `order[e]`; on other streams, runs come after it. The first time makes what that needs, which is
    /// noted in the account; a graph has it made before.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`]; [`DeviceError::Captured`] for what a graph cannot hold; those of
    /// [`make_places`](Self::make_places), and of the device.
    ///
    /// # Safety
    /// `values` are live memory of the plan's device until the work is done, one of the sums' type for each entry,
    /// which nothing writes meanwhile.
    pub(crate) unsafe fn replace_by(
        &mut self,
        on: &On<'_>,
        values: NewValues,
        order: Option<&[u32]>,
        account: Account<'_>,
    ) -> Result<(), PlanError> {
        if let Some(array) = self.missing_places(values.count, order.is_some()) {
            if on.is_captured()? {
                let what = "the making of an array that says where new values belong";
                let remedy =
                    "build the plan with `values_from_device`, or replace its values once before the capture";
                return Err(DeviceError::Captured { what, remedy }.into());
            }
            account.add(array, || self.make_places(values.count, order))?;
        }
        let entries = self.placing_entries()?;
        let Self { states, places: Some(places), parts, shape, .. } = self else { return Ok(()) };
        let queue = on.stream.shared_queue().unwrap_or_else(|| on.machine.own());
        let parts = parts.iter().map(|(_, part)| &**part);
        // SAFETY: the caller's promise about the values; the places were made for these parts.
        Ok(states.write(on, entries, || unsafe { places.place(queue, shape.precision, parts, values) })?)
    }

    /// How many of the values that came from the device last overflowed; none if none came.
    pub(super) fn overflowed(&self) -> Result<u64, DeviceError> {
        self.places.as_ref().map_or(Ok(0), Places::overflowed)
    }

    /// Name and content of each array that products read, the workspace excepted.
    pub(crate) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = Vec::new();
        for (_, part) in &self.parts {
            arrays.extend(part.read_arrays()?);
        }
        if let Some(split) = &self.split {
            arrays.push(read_array("split_rows", split.rows())?);
        }
        Ok(arrays)
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

//! A plan on a machine that runs kernels, a GPU or the emulator through the same code: its parts in device memory.

use std::sync::{Mutex, OnceLock};

use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::operands::{Finish, Workspace};
use super::part::{LaidOut, Layout, LayoutFacts, Operation, Part, Turn, places_size};
use super::places::Places;
use super::sums::{SplitPart, WideC};
use crate::device::{self, Device, Machine};
use crate::error::{DeviceError, PlanError};
use crate::options::{Determinism, Precision};
use crate::parallelism::{GroupLaunch, IllegalPoint};
use crate::plan::{ArraySize, Bits, GivenValues, MAX_BLOCK_COLUMNS, NewValues, push};

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
    device: Device,
    /// Whether there are rows to which a part adds.
    pub(super) adds: bool,
    /// Where sums wait for what may be done to them once only: made with a plan whose parts add to each other's rows,
    /// else by the first run that needs it.
    stage: OnceLock<WideC>,
    /// Where new values from the device go; made when they first come, unless asked for before.
    pub(super) places: Option<Places>,
    /// Held while the launches of a run are queued: they share the workspace.
    pub(super) queue: Mutex<Queue>,
}

/// What a run leaves to the next.
#[derive(Default)]
pub(super) struct Queue {
    /// Whether sums of a run may be left in the workspace: one that failed half-way leaves it so.
    pub(super) unfinished: bool,
    /// The entries of the last launches: finding them among all entries takes the CPU longer than preparing the
    /// launches.
    last: Option<Chosen>,
}

impl Queue {
    /// The entries of `plan` for an operation.
    ///
    /// # Errors
    /// As for [`GpuPlan::choose`].
    pub(super) fn entries(&mut self, plan: &GpuPlan, operation: Operation) -> Result<&Chosen, DeviceError> {
        let chosen = match self.last.take().filter(|last| last.operation == operation) {
            Some(last) => last,
            None => plan.choose(operation)?,
        };
        Ok(self.last.insert(chosen))
    }
}

/// The entries of one launch sequence.
pub(super) struct Chosen {
    /// What they are for.
    operation: Operation,
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

    /// Uploads what was laid out, with these values in CSR order, and says what it was.
    pub(crate) fn upload(
        device: &Device,
        values: &dyn GivenValues,
        LaidOut { parts, cut, facts }: LaidOut<'_>,
        shape: PlanShape,
    ) -> Result<(Self, LayoutFacts), DeviceError> {
        let split = match cut.windows.is_empty() && cut.rows.is_empty() {
            true => None,
            false => Some(SplitPart::upload(device, &cut, shape.capacity, shape.precision)?),
        };
        let upload =
            |(turn, layout): (Turn, Box<dyn Layout + '_>)| Ok((turn, layout.upload(device, values)?));
        let parts = parts.into_iter().map(upload).collect::<Result<_, DeviceError>>()?;
        let plan = Self {
            shape,
            parts,
            split,
            device: device.clone(),
            adds: facts.rows_in_both > 0,
            stage: OnceLock::new(),
            places: None,
            queue: Mutex::default(),
        };
        if plan.adds {
            plan.stage()?;
        }
        Ok((plan, facts))
    }

    /// Where sums wait for what may be done to them once only.
    pub(super) fn stage(&self) -> Result<&WideC, DeviceError> {
        if let Some(stage) = self.stage.get() {
            return Ok(stage);
        }
        let made = WideC::alloc(&self.device, self.shape.rows, self.shape.precision)?;
        Ok(self.stage.get_or_init(|| made))
    }

    /// What the first run with such an epilogue would allocate.
    pub(super) fn stage_sizes(&self, finish: &Finish) -> Vec<ArraySize> {
        match finish.needs_stage() && self.stage.get().is_none() {
            true => WideC::sizes(self.shape.rows, self.shape.precision),
            false => Vec::new(),
        }
    }

    /// The workspace, as kernels see it.
    pub(super) fn workspace(&self) -> Workspace {
        Workspace {
            partial: self.split.as_ref().map_or(GlobalPtr::NULL, |split| split.partial.pointer().cast()),
            columns: self.shape.capacity,
            accumulate: self.shape.determinism == Determinism::Fast,
        }
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
    fn choose(&self, operation: Operation) -> Result<Chosen, DeviceError> {
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
        entries.map(|entry| machine.resident_blocks(entry).map(|_| entry.name)).collect()
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

    /// Queues the replacement of all values by `values`, one for each entry, in the order of the entries or where entry
    /// `e` takes value `order[e]`.
    ///
    /// # Safety
    /// `values` are live memory of the plan's device until the work is done, one of the sums' type for each entry,
    /// which nothing writes meanwhile.
    pub(super) unsafe fn place_values(
        &mut self,
        queue: &dyn device::Queue,
        values: NewValues,
        order: Option<&[u32]>,
    ) -> Result<(), PlanError> {
        let places = match self.places.take() {
            Some(made) => made,
            None => self.places_for(values.count, order)?,
        };
        let places = self.places.insert(places);
        let parts = self.parts.iter().map(|(_, part)| &**part);
        // SAFETY: the caller's promise about the values; the places were made for these parts.
        unsafe { Ok(places.place(queue, self.shape.precision, parts, values)?) }
    }

    /// How many of the values that came from the device last overflowed; none if none came.
    pub(super) fn overflowed(&self) -> Result<u64, DeviceError> {
        self.places.as_ref().map_or(Ok(0), Places::overflowed)
    }

    /// Name and content of each array that products read, the workspace excepted.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = Vec::new();
        for (_, part) in &self.parts {
            arrays.extend(part.read_arrays()?);
        }
        if let Some(split) = &self.split {
            arrays.push(("split_rows", bytemuck::cast_slice(&split.rows().to_vec()?).to_vec()));
        }
        Ok(arrays)
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

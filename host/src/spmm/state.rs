//! What the runs of a plan on one stream leave to the next there: its workspace, and what was found out.
//!
//! That of the device's own stream is made with the plan; others by the first run on their stream.

use std::sync::atomic::Ordering;

use windrow_simt::GlobalPtr;

use super::gpu::{Chosen, GpuPlan, PlanShape};
use super::operands::Workspace;
use super::part::Operation;
use super::sums::{SplitPart, WideC};
use crate::device::{Device, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::options::Determinism;
use crate::plan::{
    ArraySize, Budget, LentMemory, OfStream, On, WORKSPACE_REMEDY, WorkspaceMemory, push, workspace_bytes,
};
use crate::view::DeviceSliceMut;

/// Memory of one stream's runs, which share it.
#[derive(Default)]
pub(super) struct RunState {
    /// Rows of sums of what was cut.
    pub(super) partial: Option<WorkspaceMemory>,
    /// Where sums wait for what may be done to them once only: made at once for a plan whose parts add to each other's
    /// rows, else by the first run that needs it.
    pub(super) stage: Option<WideC>,
    /// Bytes of it that [`GpuPlan::extra`] counts.
    counted: u64,
    /// Whether all of the workspace was zero or written once. Sums are read four columns at a time: where that is more
    /// than the columns of a run, what is beyond them must have some value.
    pub(super) is_filled: bool,
    /// Whether sums of a run may be left in the workspace: one that failed half-way leaves it so.
    pub(super) unfinished: bool,
    /// The entries of the last launches: finding them among all entries takes the CPU longer than preparing the
    /// launches.
    last: Option<Chosen>,
}

impl RunState {
    /// A workspace for what was cut, and a stage if parts add to each other's rows.
    pub(super) fn new(
        device: &Device,
        split: Option<&SplitPart>,
        adds: bool,
        shape: PlanShape,
    ) -> Result<Self, DeviceError> {
        // What is accumulated must begin at zero.
        let is_filled = shape.determinism == Determinism::Fast;
        let partial = |split: &SplitPart| match is_filled {
            true => WorkspaceMemory::zeroed(device, split.workspace_bytes, "workspace"),
            false => WorkspaceMemory::alloc(device, split.workspace_bytes, "workspace"),
        };
        let stage = match adds {
            true => Some(WideC::alloc(device, shape.rows, shape.precision)?),
            false => None,
        };
        Ok(Self { partial: split.map(partial).transpose()?, stage, is_filled, ..Self::default() })
    }

    /// The arrays that [`new`](Self::new) allocates.
    pub(super) fn sizes(split: Option<&SplitPart>, adds: bool, shape: PlanShape) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "workspace", split.map_or(0, |split| wide(split.workspace_bytes)));
        if adds {
            sizes.extend(WideC::sizes(shape.rows, shape.precision));
        }
        sizes
    }

    /// Bytes that windrow allocated.
    fn bytes(&self) -> u64 {
        let partial = self.partial.as_ref().map_or(0, WorkspaceMemory::owned_bytes);
        partial + self.stage.as_ref().map_or(0, WideC::bytes)
    }

    /// The workspace, as kernels see it.
    pub(super) fn workspace(&self, shape: PlanShape) -> Workspace {
        Workspace {
            partial: self.partial.as_ref().map_or(GlobalPtr::NULL, WorkspaceMemory::pointer),
            columns: shape.capacity,
            accumulate: shape.determinism == Determinism::Fast,
        }
    }

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

/// What to do about a stage that there is no room for.
const STAGE_REMEDY: &str = "raise the limit, or have C in f32 and apply bias, activation and bf16 to that";
impl GpuPlan {
    /// A state, after those of streams that are gone.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for it.
    pub(super) fn make_state(
        &self,
        left: &mut dyn Iterator<Item = RunState>,
        budget: Budget<'_>,
    ) -> Result<RunState, PlanError> {
        for over in left {
            self.extra.fetch_sub(over.counted, Ordering::Relaxed);
        }
        let (split, adds, shape) = (self.split.as_ref(), self.adds, self.shape);
        budget.check(&self.extra, &RunState::sizes(split, adds, shape), WORKSPACE_REMEDY)?;
        Ok(self.counted(RunState::new(&self.device, split, adds, shape)?))
    }

    /// Makes the stage, unless it is made.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for it.
    pub(super) fn make_stage(
        &self,
        state: &mut OfStream<RunState>,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        if state.held.stage.is_none() {
            let PlanShape { rows, precision, .. } = self.shape;
            budget.check(&self.extra, &WideC::sizes(rows, precision), STAGE_REMEDY)?;
            let stage = WideC::alloc(&self.device, rows, precision)?;
            state.held.counted += stage.bytes();
            self.extra.fetch_add(stage.bytes(), Ordering::Relaxed);
            state.held.stage = Some(stage);
            state.was_written();
        }
        Ok(())
    }

    /// Bytes of a caller's memory that the runs on one stream use, those with a stage or those without one.
    pub(super) fn workspace_bytes(&self, staged: bool) -> u64 {
        let partial = self.split.as_ref().map_or(0, |split| wide(split.workspace_bytes));
        let staged = staged || self.adds;
        workspace_bytes([partial, if staged { WideC::sum_bytes(self.shape) } else { 0 }])
    }

    /// Has the runs on a stream use a caller's memory, and a stage in it if there is room.
    ///
    /// # Errors
    /// [`PlanError::Workspace`], [`DeviceError::Captured`]; those of the device.
    ///
    /// # Safety
    /// The memory lives, and nothing else uses it, until the plan is dropped or has another workspace for the stream,
    /// and the work with it is done.
    pub(super) unsafe fn set_workspace(
        &self,
        on: &On<'_>,
        memory: &DeviceSliceMut<'_, u8>,
    ) -> Result<(), PlanError> {
        // SAFETY: the caller's promise.
        let mut parts = unsafe { LentMemory::new(memory, self.workspace_bytes(false))? };
        let make = |queue: &dyn Queue| {
            let partial = self.split.as_ref().and_then(|split| parts.take(wide(split.workspace_bytes)));
            let stage = match parts.take(WideC::sum_bytes(self.shape)) {
                Some(c) => Some(WideC { c, rows: WideC::rows(&self.device, self.shape.rows)? }),
                None => None,
            };
            let state = RunState { partial, stage, is_filled: true, ..RunState::default() };
            for part in state.partial.iter().chain(state.stage.iter().map(|stage| &stage.c)) {
                part.clear_in(queue)?;
            }
            Ok(self.counted(state))
        };
        let old = self.states.set(on, make)?;
        self.extra.fetch_sub(old.map_or(0, |old| old.counted), Ordering::Relaxed);
        Ok(())
    }

    /// A state whose memory is counted.
    fn counted(&self, state: RunState) -> RunState {
        let counted = state.bytes();
        self.extra.fetch_add(counted, Ordering::Relaxed);
        RunState { counted, ..state }
    }

    /// Whether the kernels of these operations need no compiling, with the one that adds up sums or without.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] if they do; [`DeviceError::NoKernel`].
    pub(super) fn check_loaded(
        &self,
        on: &On<'_>,
        operations: impl IntoIterator<Item = Operation>,
        combines: bool,
    ) -> Result<(), DeviceError> {
        operations.into_iter().try_for_each(|operation| {
            let Chosen { parts, combine, .. } = self.choose(operation)?;
            on.check_loaded(parts.into_iter().chain(combines.then_some(combine)))
        })
    }
}

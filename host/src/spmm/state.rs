//! What the runs of a plan on one stream leave to the next there: its workspace, and what was found out.
//!
//! That of the device's own stream is made with the plan; others by the first run on their stream.

use std::sync::atomic::Ordering;

use windrow_simt::GlobalPtr;

use super::gpu::{Chosen, GpuPlan, PlanShape};
use super::operands::Workspace;
use super::part::Operation;
use super::sums::{SplitPart, WideC};
use crate::device::{Device, DeviceBuffer};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::options::Determinism;
use crate::plan::{ArraySize, OfStream, On, check_memory, push};

/// What a plan may make for its runs.
#[derive(Clone, Copy)]
pub(crate) struct Budget<'a> {
    /// What was made with it.
    pub(crate) arrays: &'a [ArraySize],
    /// Bytes of all together.
    pub(crate) limit: Option<u64>,
}

impl Budget<'_> {
    pub(crate) const UNLIMITED: Self = Self { arrays: &[], limit: None };
}

/// Memory of one stream's runs, which share it.
#[derive(Default)]
pub(super) struct RunState {
    /// Rows of sums of what was cut.
    pub(super) partial: Option<DeviceBuffer<u8>>,
    /// Where sums wait for what may be done to them once only: made at once for a plan whose parts add to each other's
    /// rows, else by the first run that needs it.
    pub(super) stage: Option<WideC>,
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
        // Zeroed once: sums are read four columns at a time, beyond the last that kernels may have written.
        let partial = |split: &SplitPart| DeviceBuffer::zeroed(device, split.workspace_bytes, "workspace");
        let stage = match adds {
            true => Some(WideC::alloc(device, shape.rows, shape.precision)?),
            false => None,
        };
        Ok(Self { partial: split.map(partial).transpose()?, stage, ..Self::default() })
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

    fn bytes(&self) -> u64 {
        let partial = self.partial.as_ref().map_or(0, DeviceBuffer::bytes);
        partial + self.stage.as_ref().map_or(0, |stage| stage.c.bytes() + stage.rows.bytes())
    }

    /// The workspace, as kernels see it.
    pub(super) fn workspace(&self, shape: PlanShape) -> Workspace {
        Workspace {
            partial: self.partial.as_ref().map_or(GlobalPtr::NULL, |sums| sums.pointer().cast()),
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

/// What to do about a workspace that there is no room for.
const WORKSPACE_REMEDY: &str = "raise the limit, or run the plan on fewer streams";
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
            self.extra.fetch_sub(over.bytes(), Ordering::Relaxed);
        }
        let (split, adds, shape) = (self.split.as_ref(), self.adds, self.shape);
        self.check_extra(RunState::sizes(split, adds, shape), budget, WORKSPACE_REMEDY)?;
        let state = RunState::new(&self.device, split, adds, shape)?;
        self.extra.fetch_add(state.bytes(), Ordering::Relaxed);
        Ok(state)
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
            self.check_extra(WideC::sizes(rows, precision), budget, STAGE_REMEDY)?;
            let before = state.held.bytes();
            state.held.stage = Some(WideC::alloc(&self.device, rows, precision)?);
            state.was_written();
            self.extra.fetch_add(state.held.bytes() - before, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether there is room for more.
    fn check_extra(
        &self,
        more: Vec<ArraySize>,
        Budget { arrays, limit }: Budget<'_>,
        remedy: &'static str,
    ) -> Result<(), PlanError> {
        let extra = ArraySize { name: "workspaces", bytes: self.extra.load(Ordering::Relaxed) };
        check_memory(&[arrays, &[extra], &more].concat(), limit, remedy).map(|_| ())
    }

    /// Whether the kernels of these operations need no compiling.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] if they do; [`DeviceError::NoKernel`].
    pub(super) fn check_loaded(
        &self,
        on: &On<'_>,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<(), DeviceError> {
        operations.into_iter().try_for_each(|operation| {
            let Chosen { parts, combine, .. } = self.choose(operation)?;
            on.check_loaded(parts.into_iter().chain([combine]))
        })
    }
}

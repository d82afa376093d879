//! What the runs of a plan on one stream leave to the next there: its workspace, and what was found out.
//!
//! That of the device's own stream is made with the plan; others by the first run on their stream.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::gpu::{Chosen, GpuPlan, PlanShape};
use super::operands::Workspace;
use super::part::Operation;
use super::sums::{SplitPart, WideC};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::options::Determinism;
use crate::plan::{ArraySize, On, check_memory, push};

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

/// Held while the launches of a run are queued: they share the workspace.
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
    /// Which of the plan's [writings](GpuPlan::written) the stream comes after; its memory here is written no later.
    seen: u64,
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
            partial: self
                .partial
                .as_ref()
                .map_or(windrow_simt::GlobalPtr::NULL, |sums| sums.pointer().cast()),
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

    /// Has the stream go on after all that was written for it, and what else the own stream was asked for if they share
    /// memory.
    pub(super) fn catch_up(&mut self, plan: &GpuPlan, on: &On<'_>) -> Result<(), DeviceError> {
        if on.shares || self.seen != plan.written {
            on.after_own()?;
            self.seen = plan.written;
        }
        Ok(())
    }
}

/// The state of another stream than the device's own.
pub(super) struct Elsewhere {
    queue: Arc<dyn Queue>,
    /// Gone when nobody can run anything there any more; none if that is never known.
    handles: Option<Weak<()>>,
    state: Arc<Mutex<RunState>>,
}

impl Elsewhere {
    fn is_over(&self) -> bool {
        self.handles.as_ref().is_some_and(|handles| handles.strong_count() == 0)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do about a workspace that there is no room for.
const WORKSPACE_REMEDY: &str = "raise the limit, or run the plan on fewer streams";
/// What to do about a stage that there is no room for.
const STAGE_REMEDY: &str = "raise the limit, or have C in f32 and apply bias, activation and bf16 to that";
/// What to do about what cannot be captured.
pub(super) const PREPARE: &str = "prepare the plan for the stream, or run it there once, before the capture";

impl GpuPlan {
    /// The state of a stream, made unless there is one.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for it, [`DeviceError::Captured`] while nothing can be made.
    pub(super) fn state_on(
        &self,
        on: &On<'_>,
        captured: bool,
        budget: Budget<'_>,
    ) -> Result<Arc<Mutex<RunState>>, PlanError> {
        let key = on.queue.key();
        let mut elsewhere = locked(&self.elsewhere);
        if let Some(found) = elsewhere.iter().find(|other| other.queue.key() == key) {
            return Ok(Arc::clone(&found.state));
        }
        let what = "the making of a workspace";
        let queue = match on.stream.shared_queue() {
            Some(queue) if !captured => Arc::clone(queue),
            _ => return Err(DeviceError::Captured { what, remedy: PREPARE }.into()),
        };
        for over in elsewhere.extract_if(.., |other| other.is_over()) {
            self.extra.fetch_sub(locked(&over.state).bytes(), Ordering::Relaxed);
        }
        let (split, adds, shape) = (self.split.as_ref(), self.adds, self.shape);
        self.check_extra(RunState::sizes(split, adds, shape), budget, WORKSPACE_REMEDY)?;
        let state = RunState::new(&self.device, split, adds, shape)?;
        self.extra.fetch_add(state.bytes(), Ordering::Relaxed);
        let state = Arc::new(Mutex::new(state));
        let handles = on.stream.handles();
        elsewhere.push(Elsewhere { queue, handles, state: Arc::clone(&state) });
        Ok(state)
    }

    /// Makes the stage, unless it is made.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for it.
    pub(super) fn make_stage(&self, state: &mut RunState, budget: Budget<'_>) -> Result<(), PlanError> {
        if state.stage.is_none() {
            let PlanShape { rows, precision, .. } = self.shape;
            self.check_extra(WideC::sizes(rows, precision), budget, STAGE_REMEDY)?;
            let before = state.bytes();
            state.stage = Some(WideC::alloc(&self.device, rows, precision)?);
            state.seen = 0; // the own stream has written to it
            self.extra.fetch_add(state.bytes() - before, Ordering::Relaxed);
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

    /// Whether a run could be captured: nothing to be made, nothing to be waited for.
    ///
    /// # Errors
    /// [`DeviceError::Captured`]; [`DeviceError::NoKernel`].
    pub(super) fn check_prepared(
        &self,
        on: &On<'_>,
        state: &RunState,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<(), DeviceError> {
        let captured = |what| DeviceError::Captured { what, remedy: PREPARE };
        if on.shares {
            let (what, remedy) = (
                "the order with the device's own stream that operands in windrow's memory need",
                "give views made by `from_raw`, and order the graph's launches yourself",
            );
            return Err(DeviceError::Captured { what, remedy });
        }
        if state.seen != self.written {
            return Err(captured("a wait for values that were written outside of it"));
        }
        for operation in operations {
            let Chosen { parts, combine, .. } = self.choose(operation)?;
            if !parts.into_iter().chain([combine]).all(|entry| on.machine.is_loaded(entry)) {
                return Err(captured("the compiling of a kernel"));
            }
        }
        Ok(())
    }

    /// Has a queue go on after all runs on other streams, which may read what comes now to be written; `written` says
    /// so to those that follow.
    pub(super) fn before_writing(&mut self, queue: &dyn Queue) -> Result<(), DeviceError> {
        self.written += 1;
        let elsewhere = self.elsewhere.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut others = elsewhere.iter().filter(|other| other.queue.key() != queue.key());
        others.try_for_each(|other| queue.wait_for(other.queue.fence()))
    }
}

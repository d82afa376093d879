//! Where sums of sampled products wait to be rounded to 16 bits: windrow's memory, or a caller's.

use std::sync::atomic::Ordering;

use windrow_kernels::Factor;

use super::gpu::{GpuSddmm, Operands};
use crate::error::PlanError;
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{
    ArraySize, Budget, LentMemory, OfStream, On, WorkspaceMemory, placing_entry, workspace_bytes,
};
use crate::view::DeviceSliceMut;

/// What to do about a stage that there is no room for.
const STAGE_REMEDY: &str = "raise the limit, have the result in f32, or run the plan on fewer streams";

impl GpuSddmm {
    /// The state of a stream without a stage, after those of streams that are gone.
    pub(super) fn no_stage(
        &self,
        left: &mut dyn Iterator<Item = Option<WorkspaceMemory>>,
    ) -> Option<WorkspaceMemory> {
        for over in left.flatten() {
            self.staged.fetch_sub(over.owned_bytes(), Ordering::Relaxed);
        }
        None
    }

    /// Makes where sums of a stream's runs wait.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for it.
    pub(super) fn make_stage(
        &self,
        state: &mut OfStream<Option<WorkspaceMemory>>,
        arrays: &[ArraySize],
    ) -> Result<(), PlanError> {
        let budget = Budget { arrays, limit: self.memory_limit };
        let more = ArraySize { name: "sampled_sums", bytes: 4 * wide(self.nnz) };
        budget.check(&self.staged, &[more], STAGE_REMEDY)?;
        let stage = WorkspaceMemory::alloc(&self.device, 4 * self.nnz, "sampled sums")?;
        self.staged.fetch_add(stage.owned_bytes(), Ordering::Relaxed);
        state.held = Some(stage);
        state.was_written(); // memory comes in the order of the own stream
        Ok(())
    }

    /// Makes and compiles what runs of this inner dimension need on a stream, with results of 16 bits or without, and
    /// waits until it is there.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(super) fn prepare(
        &self,
        on: &On<'_>,
        inner: u32,
        narrow: Option<Precision>,
        arrays: &[ArraySize],
    ) -> Result<(), PlanError> {
        let complete = |state: &mut OfStream<Option<WorkspaceMemory>>| {
            if narrow.is_some() && state.held.is_none() {
                self.make_stage(state, arrays)?;
            }
            if self.scale.is_some() {
                on.machine.load(placing_entry(self.precision)?)?;
            }
            for reads_vectors in [false, true] {
                let alpha = Factor::new(1.0);
                let nowhere =
                    Operands { x: 0, ldx: 0, y: 0, ldy: 0, reads_vectors, out: 0, inner, narrow, alpha };
                for entry in self.entries(&nowhere) {
                    on.machine.load(entry)?;
                }
            }
            Ok(())
        };
        self.stages.prepare(on, |left| Ok(self.no_stage(left)), complete)
    }

    /// Bytes of a caller's memory that the runs on one stream use whose results are of 16 bits.
    pub(super) fn workspace_bytes(&self) -> u64 {
        workspace_bytes([4 * wide(self.nnz)])
    }

    /// Has the runs on a stream use a caller's memory.
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
        let mut parts = unsafe { LentMemory::new(memory, self.workspace_bytes())? };
        let old = self.stages.set(on, |_| Ok(parts.take(4 * wide(self.nnz))))?.flatten();
        self.staged.fetch_sub(old.map_or(0, |old| old.owned_bytes()), Ordering::Relaxed);
        Ok(())
    }
}

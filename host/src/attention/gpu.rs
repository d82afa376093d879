//! A plan of attention on a machine that runs kernels.

pub(super) mod gradient;

use windrow_kernels::attention::{
    AttentionJoinParams, AttentionParams, EntryBias, HeadMatrix, partial_floats,
};
use windrow_kernels::output::OutputType;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use self::gradient::GpuGradient;
use super::operands::dropped_weights;
use super::options::{AttentionAlgorithm, AttentionOptions, AttentionScores, Dropout};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::warp_rows_log2;

/// Widths that kernels have room for.
const WIDTHS: [u32; 4] = [32, 64, 128, 256];
/// Widths of those of additive scores that read vectors.
const ADDITIVE_WIDTHS: [u32; 3] = [32, 64, 256];
/// Widths of the kernels that read element by element.
const ELEMENT_WIDTHS: [u32; 2] = [32, 256];

/// The least of `widths` with room for so many columns.
fn width_for(widths: &[u32], columns: u32) -> u32 {
    widths.iter().copied().find(|&width| columns <= width).unwrap_or(256)
}

/// The width of a kernel on CUDA cores for so many columns.
fn width_by_rows(additive: bool, vectors: bool, columns: u32) -> u32 {
    match (vectors, additive) {
        (false, _) => width_for(&ELEMENT_WIDTHS, columns),
        (true, false) => width_for(&WIDTHS, columns),
        (true, true) => width_for(&ADDITIVE_WIDTHS, columns),
    }
}

/// Windows and their entries, on the device.
pub(super) struct GpuWindows {
    /// Rows of a window.
    pub(super) rows: u32,
    /// [`AttentionAlgorithm::Rows`], `Entries` or `Columns`.
    pub(super) algorithm: AttentionAlgorithm,
    pub(super) window_count: u32,
    pub(super) offsets: DeviceBuffer<u32>,
    pub(super) entries: DeviceBuffer<u32>,
    pub(super) longest: u32,
    pub(super) pieces: DeviceBuffer<[u32; 4]>,
    pub(super) cut: DeviceBuffer<[u32; 4]>,
    pub(super) slots: u32,
}

/// The operands of a run as kernels take them.
pub(super) struct KernelOperands {
    pub(super) q: HeadMatrix,
    pub(super) k: HeadMatrix,
    pub(super) v: HeadMatrix,
    pub(super) out: HeadMatrix,
    pub(super) out_type: OutputType,
    pub(super) out_vectors: bool,
    pub(super) bias: EntryBias,
    pub(super) states: GlobalPtr<[f32; 2]>,
    pub(super) scale: f32,
    pub(super) dropout: Option<Dropout>,
}

pub(super) struct GpuAttention {
    pub(super) device: Device,
    pub(super) dtype: Dtype,
    pub(super) scores: AttentionScores,
    pub(super) heads: u32,
    pub(super) rows: u32,
    /// Most columns of an operand.
    pub(super) columns: u32,
    /// For operands whose rows begin at multiples of 16 bytes.
    pub(super) windows: GpuWindows,
    /// Single rows beside those, for operands of any alignment and for the gradient.
    pub(super) rows_too: Option<GpuWindows>,
    /// Whether operands of any alignment are served.
    pub(super) takes_any_alignment: bool,
    pub(super) gradient: Option<GpuGradient>,
    pub(super) partial: PerStream<Option<WorkspaceMemory>>,
}

impl GpuWindows {
    /// The kernel for operands of so many columns, aligned to vectors or not; none if there is none.
    fn entry(
        &self,
        dtype: Dtype,
        additive: bool,
        (columns, aligned): (u32, bool),
    ) -> Option<(&'static Entry, u32)> {
        let (rows, shared) = (self.rows, self.algorithm == AttentionAlgorithm::Columns);
        let (variant, width) = match self.algorithm {
            AttentionAlgorithm::Rows => {
                // Products of 16 bits are on Tensor Cores, if operands are aligned.
                let vectors = aligned && (additive || dtype == Dtype::F32);
                let width = width_by_rows(additive, vectors, columns);
                (Variant::AttentionRows { additive, dtype, vectors, width }, width)
            }
            _ if aligned => {
                let width = width_for(&WIDTHS, columns);
                (Variant::AttentionWindows { dtype, rows, shared, width }, width)
            }
            _ => return None,
        };
        Some((windrow_kernels::entry(variant)?, width))
    }
}

impl GpuAttention {
    /// Windows, kernel and its width for a run.
    fn chosen(&self, aligned: bool) -> Result<(&GpuWindows, &'static Entry, u32), DeviceError> {
        let additive = self.scores.are_additive();
        let of = |windows: &'_ GpuWindows| windows.entry(self.dtype, additive, (self.columns, aligned));
        if let Some((entry, width)) = of(&self.windows) {
            return Ok((&self.windows, entry, width));
        }
        let other = self.rows_too.as_ref().filter(|_| self.takes_any_alignment);
        let found = other.and_then(|windows| of(windows).map(|(entry, width)| (windows, entry, width)));
        found.ok_or(DeviceError::MissingEntry { name: "attention" })
    }

    /// Name of the kernel for aligned operands.
    pub(super) fn name(&self) -> Result<&'static str, DeviceError> {
        Ok(self.chosen(true)?.1.name)
    }

    /// Bytes of what pieces leave, on each stream.
    pub(super) fn partial_bytes(&self) -> u64 {
        let of = |windows: &GpuWindows| {
            let floats = partial_floats(windows.rows, 256.min(self.columns.next_power_of_two().max(32)));
            let unaligned = partial_floats(windows.rows, if self.columns <= 32 { 32 } else { 256 });
            let floats = if windows.algorithm == AttentionAlgorithm::Rows { unaligned } else { floats };
            4 * u64::from(floats) * u64::from(windows.slots) * u64::from(self.heads)
        };
        of(&self.windows).max(self.rows_too.as_ref().map_or(0, of))
    }

    /// Memory for what pieces leave, unless no window is cut.
    pub(super) fn make_partial(&self) -> Result<Option<WorkspaceMemory>, DeviceError> {
        match self.partial_bytes() {
            0 => Ok(None),
            bytes => WorkspaceMemory::alloc(&self.device, index(bytes), "partial sums").map(Some),
        }
    }

    /// Queues a run.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what cannot be part of a graph; those of the device.
    ///
    /// # Safety
    /// The operands are live memory of the plan's device until the work is done, of the shapes that the plan was made
    /// for; nothing else touches the result and the states meanwhile, nothing writes the others. `aligned` says that
    /// rows of all heads begin at multiples of 16 bytes and have a multiple of that.
    pub(super) unsafe fn run(
        &self,
        on: &On<'_>,
        operands: &KernelOperands,
        aligned: bool,
    ) -> Result<(), PlanError> {
        let (windows, entry, width) = self.chosen(aligned)?;
        let join = windrow_kernels::entry(Variant::AttentionJoin).filter(|_| !windows.cut.is_empty());
        let make = |left: &mut dyn Iterator<Item = Option<WorkspaceMemory>>| {
            taken_over(left, || self.make_partial())
        };
        let complete = |state: &mut OfStream<Option<WorkspaceMemory>>, captured: bool| {
            if captured {
                on.check_loaded([Some(entry), join].into_iter().flatten())?;
            }
            if state.held.is_none() && windows.slots > 0 {
                if captured {
                    let what = "the making of a workspace";
                    return Err(DeviceError::Captured { what, remedy: PREPARE }.into());
                }
                state.held = self.make_partial()?;
            }
            Ok(())
        };
        // SAFETY: the caller's promise; the workspace is lent for this run, and has room for all slots.
        let queue = |queue: &dyn Queue, partial: &mut Option<WorkspaceMemory>| unsafe {
            self.queue_run(queue, (windows, entry, width), operands, partial.as_ref())
        };
        self.partial.run(on, make, complete, queue)
    }

    /// Makes and compiles what runs and gradients need on a stream, and waits until it is there.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured; those of the device.
    pub(super) fn prepare(&self, on: &On<'_>) -> Result<(), PlanError> {
        for aligned in [true, false] {
            // An algorithm on Tensor Cores has no kernel for operands of any alignment.
            if let Ok((_, entry, _)) = self.chosen(aligned) {
                on.machine.load(entry)?;
            }
        }
        if let Some(join) = windrow_kernels::entry(Variant::AttentionJoin) {
            on.machine.load(join)?;
        }
        self.partial.prepare(on, |left| taken_over(left, || self.make_partial()), |_| Ok(()))?;
        self.prepare_gradient(on)
    }

    /// Queues the launches of a run.
    ///
    /// # Safety
    /// As for [`run`](Self::run); no other run uses the workspace until all of this one is queued.
    unsafe fn queue_run(
        &self,
        queue: &dyn Queue,
        (windows, entry, width): (&GpuWindows, &'static Entry, u32),
        operands: &KernelOperands,
        partial: Option<&WorkspaceMemory>,
    ) -> Result<(), DeviceError> {
        let params = AttentionParams {
            q: operands.q,
            k: operands.k,
            v: operands.v,
            out: operands.out,
            bias: operands.bias,
            states: operands.states,
            partial: partial.map_or(GlobalPtr::NULL, |partial| partial.pointer().cast()),
            offsets: windows.offsets.pointer(),
            entries: windows.entries.pointer(),
            pieces: windows.pieces.pointer(),
            piece_count: narrow(windows.pieces.len()),
            rows: self.rows,
            window_count: windows.window_count,
            longest: windows.longest,
            slot_count: windows.slots,
            scale: operands.scale,
            out_type: operands.out_type.code(),
            out_vectors: u32::from(operands.out_vectors),
            dropped: dropped_weights(operands.dropout),
            negative_slope: self.scores.negative_slope(),
            warp_rows_log2: match windows.algorithm {
                AttentionAlgorithm::Rows => {
                    warp_rows_log2(entry, windows.entries.len(), windows.window_count)
                }
                _ => 0,
            },
            reserved: 0,
        };
        let launcher = Launcher::main(queue);
        let heads = u64::from(self.heads);
        let grid = [u64::from(params.blocks()), heads];
        // SAFETY: windows and pieces were made of a valid CSR by `Division` and `WindowLists`, which keep the
        // obligations, and belong to the plan, which frees them after the machine's work; the operands are the caller's
        // promise, and the entry is the one for their width and alignment.
        unsafe { launcher.start_grid(entry, Blocks { grid, threads: entry.block_threads }, &params)? };
        if windows.cut.is_empty() {
            return Ok(());
        }
        let join = windrow_kernels::entry(Variant::AttentionJoin)
            .ok_or(DeviceError::MissingEntry { name: "attention_join" })?;
        let params = AttentionJoinParams {
            attention: params,
            windows: windows.cut.pointer(),
            window_rows_log2: windows.rows.ilog2(),
            width_log2: width.ilog2(),
        };
        let grid = [wide(windows.cut.len()), heads];
        // SAFETY: as above; every slot was written by the launch before.
        unsafe { launcher.start_grid(join, Blocks { grid, threads: join.block_threads }, &params) }
    }

    /// Whether operands of any alignment are served.
    pub(super) fn takes_any_alignment(options: &AttentionOptions) -> bool {
        matches!(options.algorithm, AttentionAlgorithm::Auto | AttentionAlgorithm::Rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_width_with_room_is_taken() {
        for (columns, width) in [(1, 32), (32, 32), (33, 64), (128, 128), (129, 256), (256, 256)] {
            assert_eq!(width_for(&WIDTHS, columns), width, "{columns} columns");
        }
        assert_eq!([1, 33].map(|columns| width_by_rows(true, false, columns)), [32, 256]);
        assert_eq!([64, 65].map(|columns| width_by_rows(true, true, columns)), [64, 256]);
        assert_eq!([64, 65].map(|columns| width_by_rows(false, true, columns)), [64, 128]);
    }
}

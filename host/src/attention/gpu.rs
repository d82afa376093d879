//! A plan of attention on a machine that runs kernels.

pub(super) mod gradient;

use windrow_kernels::attention::{
    AttentionJoinParams, AttentionParams, EntryBias, HeadMatrix, ScoreKind, WalkHeads,
    attention_join_parts_log2, partial_floats,
};
use windrow_kernels::output::OutputType;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use self::gradient::GpuGradient;
use super::operands::dropped_weights;
use super::options::{AttentionAlgorithm, AttentionOptions, AttentionScores, Dropout, HeadLayout};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::warp_rows_log2;

/// Widths that kernels have room for.
const WIDTHS: [u32; 4] = [32, 64, 128, 256];
/// Widths of those of other scores than products that read vectors.
const RECTIFIED_WIDTHS: [u32; 3] = [32, 64, 256];
/// Columns up to which heads are walked together however few rows there are: lanes would have nothing to do without.
const IDLE_COLUMNS: u32 = 64;
/// Warps that a multiprocessor has at work, about.
pub(super) const WARPS_AT_WORK: u32 = 16;
/// Widths of the kernels that read element by element.
const ELEMENT_WIDTHS: [u32; 2] = [32, 256];

/// The least of `widths` with room for so many columns.
fn width_for(widths: &[u32], columns: u32) -> u32 {
    widths.iter().copied().find(|&width| columns <= width).unwrap_or(256)
}

/// The width of a kernel on CUDA cores for so many columns.
fn width_by_rows(scores: ScoreKind, vectors: bool, columns: u32) -> u32 {
    match (vectors, scores) {
        (true, ScoreKind::DotProduct) => width_for(&WIDTHS, columns),
        (true, _) => width_for(&RECTIFIED_WIDTHS, columns),
        (false, ScoreKind::Gatv2) => 256,
        (false, _) => width_for(&ELEMENT_WIDTHS, columns),
    }
}

/// A kernel that walks rows, and what it does of the heads.
#[derive(Clone, Copy)]
struct RowKernel {
    width: u32,
    heads: WalkHeads,
}

/// The kernel of a run.
struct Chosen<'a> {
    windows: &'a GpuWindows,
    entry: &'static Entry,
    width: u32,
    heads: WalkHeads,
}

/// An operand with the columns of all heads of a walk.
fn of_walk(operand: HeadMatrix, heads: WalkHeads) -> HeadMatrix {
    HeadMatrix { columns: operand.columns << heads.count_log2, ..operand }
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
    pub(super) vector: GlobalPtr<f32>,
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
    pub(super) layout: HeadLayout,
    pub(super) rows: u32,
    pub(super) columns_of_matrix: u32,
    /// Warps that the device has at work, about.
    pub(super) warps_at_work: u32,
    /// Columns of each head of `Q` and `K`.
    pub(super) score_columns: u32,
    /// Columns of each head of `V`.
    pub(super) value_columns: u32,
    /// For operands whose rows begin at multiples of 16 bytes.
    pub(super) windows: GpuWindows,
    /// Single rows beside those, for operands of any alignment and for the gradient.
    pub(super) rows_too: Option<GpuWindows>,
    /// Whether operands of any alignment are served.
    pub(super) takes_any_alignment: bool,
    pub(super) gradient: Option<GpuGradient>,
    pub(super) partial: PerStream<Option<WorkspaceMemory>>,
}

impl GpuAttention {
    /// Most columns of an operand.
    fn columns(&self) -> u32 {
        self.score_columns.max(self.value_columns)
    }

    /// The kernel on CUDA cores that reads vectors or elements. Heads beside each other are walked together, as many as
    /// there are lanes for, where each has a power of two of these; with `apart` each by itself. Few rows do not: their
    /// walks would not be enough for all multiprocessors, unless lanes of the narrowest kernels are idle without.
    fn row_kernel(&self, vectors: bool, apart: bool) -> RowKernel {
        let scores = self.scores.kind();
        let width = width_by_rows(scores, vectors, self.columns());
        let single = RowKernel { width, heads: WalkHeads::ONE };
        let (columns, vector) = (self.value_columns, 16 / self.dtype.bytes());
        let is_alike = scores == ScoreKind::Additive || self.score_columns == columns;
        let has_lanes = columns.is_multiple_of(vector) && (columns / vector).is_power_of_two();
        if apart || !vectors || self.layout != HeadLayout::Columns || !is_alike || !has_lanes {
            return single;
        }
        // Of lanes with a vector each. Two heads of 64 columns in f32 would be quicker forward where rows are short, by
        // up to 16 % (cage11), and slower where they are long, by 7 to 9 % (ogbl-ddi, bundle1): so it was when a branch
        // was in each product.
        let most = if vector == 4 { 64 } else { 256 };
        let fills = |count: u32| {
            count * columns <= IDLE_COLUMNS
                || u64::from(self.rows) * u64::from(self.heads / count) >= u64::from(self.warps_at_work)
        };
        let mut count = 1;
        while self.heads.is_multiple_of(2 * count) && 2 * count * columns <= most && fills(2 * count) {
            count *= 2;
        }
        if count == 1 {
            return single;
        }
        RowKernel {
            width: width_by_rows(scores, vectors, count * columns),
            heads: WalkHeads { count_log2: count.ilog2(), columns_log2: columns.ilog2() },
        }
    }

    /// The kernel of windows for operands that are aligned to vectors or not; none if there is none.
    fn of_windows<'a>(&self, windows: &'a GpuWindows, aligned: bool) -> Option<Chosen<'a>> {
        let (dtype, scores) = (self.dtype, self.scores.kind());
        let (rows, shared) = (windows.rows, windows.algorithm == AttentionAlgorithm::Columns);
        let (variant, width, heads) = match windows.algorithm {
            AttentionAlgorithm::Rows => {
                // Products of 16 bits are on Tensor Cores, if operands are aligned.
                let vectors = aligned && (scores != ScoreKind::DotProduct || dtype == Dtype::F32);
                let RowKernel { width, heads } = self.row_kernel(vectors, false);
                (Variant::AttentionRows { scores, dtype, vectors, width }, width, heads)
            }
            _ if aligned => {
                let width = width_for(&WIDTHS, self.columns());
                (Variant::AttentionWindows { dtype, rows, shared, width }, width, WalkHeads::ONE)
            }
            _ => return None,
        };
        Some(Chosen { windows, entry: windrow_kernels::entry(variant)?, width, heads })
    }

    /// Windows and kernel for a run.
    fn chosen(&self, aligned: bool) -> Result<Chosen<'_>, DeviceError> {
        if let Some(chosen) = self.of_windows(&self.windows, aligned) {
            return Ok(chosen);
        }
        let other = self.rows_too.as_ref().filter(|_| self.takes_any_alignment);
        let found = other.and_then(|windows| self.of_windows(windows, aligned));
        found.ok_or(DeviceError::MissingEntry { name: "attention" })
    }

    /// Name of the kernel for aligned operands.
    pub(super) fn name(&self) -> Result<&'static str, DeviceError> {
        Ok(self.chosen(true)?.entry.name)
    }

    /// Bytes of what pieces leave, on each stream.
    pub(super) fn partial_bytes(&self) -> u64 {
        let bytes = |windows: &GpuWindows, width: u32, heads: WalkHeads| {
            let walks = u64::from(self.heads >> heads.count_log2);
            4 * walks * u64::from(windows.slots) * u64::from(partial_floats(windows.rows, width, heads))
        };
        let of = |windows: &GpuWindows| match windows.algorithm {
            AttentionAlgorithm::Rows => {
                let of_kernel = |vectors| {
                    let RowKernel { width, heads } = self.row_kernel(vectors, false);
                    bytes(windows, width, heads)
                };
                of_kernel(false).max(of_kernel(true))
            }
            _ => bytes(windows, width_for(&WIDTHS, self.columns()), WalkHeads::ONE),
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
        let chosen = self.chosen(aligned)?;
        let (windows, entry) = (chosen.windows, chosen.entry);
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
            self.queue_run(queue, &chosen, operands, partial.as_ref())
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
            if let Ok(Chosen { entry, .. }) = self.chosen(aligned) {
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
        &Chosen { windows, entry, width, heads }: &Chosen<'_>,
        operands: &KernelOperands,
        partial: Option<&WorkspaceMemory>,
    ) -> Result<(), DeviceError> {
        let additive = self.scores.are_additive();
        let [q, k] = [operands.q, operands.k].map(|of| if additive { of } else { of_walk(of, heads) });
        let params = AttentionParams {
            q,
            k,
            v: of_walk(operands.v, heads),
            out: of_walk(operands.out, heads),
            vector: operands.vector,
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
            heads,
            reserved: 0,
        };
        let launcher = Launcher::main(queue);
        let walks = u64::from(self.heads >> heads.count_log2);
        let grid = [u64::from(params.blocks()), walks];
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
            parts_log2: attention_join_parts_log2(windows.rows * width),
            reserved: 0,
        };
        let grid = [wide(windows.cut.len()) << params.parts_log2, walks];
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
        let widths = |scores, vectors, columns: [u32; 2]| {
            columns.map(|columns| width_by_rows(scores, vectors, columns))
        };
        assert_eq!(widths(ScoreKind::Additive, false, [1, 33]), [32, 256]);
        assert_eq!(widths(ScoreKind::Gatv2, false, [1, 33]), [256, 256]);
        assert_eq!(widths(ScoreKind::Additive, true, [64, 65]), [64, 256]);
        assert_eq!(widths(ScoreKind::DotProduct, true, [64, 65]), [64, 128]);
    }
}

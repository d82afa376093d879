//! The gradient of attention on a machine that runs kernels.

use std::ops::RangeInclusive;

use windrow_kernels::attention::{
    AttentionGradientJoinParams, AttentionGradientParams, EntryBias, HeadMatrix, RowTerms, ScoreKind, SumsTo,
    WalkHeads, attention_join_parts_log2, gradient_partial_floats, gradient_results,
};
use windrow_kernels::output::OutputType;
use windrow_kernels::training::Matrix;
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::{GpuAttention, GpuWindows, RowKernel, of_walk, width_for};
use crate::attention::operands::dropped_weights;
use crate::attention::options::Dropout;
use crate::device::{DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::warp_rows_log2;
use crate::training::{ColumnTerms, column_sums_bytes};

/// Rows of a window of gradients on Tensor Cores.
pub(in crate::attention) const GRADIENT_ROWS: u32 = 8;
/// Widths that their kernels have room for.
const GRADIENT_WIDTHS: [u32; 3] = [32, 64, 128];
/// Columns of a head for which they serve. Several heads of fewer are as quick on CUDA cores, which walk them together,
/// or quicker.
pub(in crate::attention) const GRADIENT_COLUMNS: RangeInclusive<usize> = 17..=128;

/// What the gradient needs beside the rows of the matrix.
pub(in crate::attention) struct GpuGradient {
    /// The columns, as rows of the transpose.
    pub(in crate::attention) columns: GpuWindows,
    /// What Tensor Cores walk instead, if they serve.
    pub(in crate::attention) windows: Option<GradientWindows>,
    /// Where its entries are in the matrix; empty without a bias.
    pub(in crate::attention) positions: DeviceBuffer<u32>,
    pub(in crate::attention) workspace: PerStream<Option<GradientWorkspace>>,
}

/// Rows and columns in windows of [`GRADIENT_ROWS`], for gradients on Tensor Cores.
pub(in crate::attention) struct GradientWindows {
    /// Those of rows, unless they are the forward pass's.
    pub(in crate::attention) rows: Option<GpuWindows>,
    pub(in crate::attention) columns: GpuWindows,
}

/// What a pass leaves for the next launch, on one stream.
pub(in crate::attention) struct GradientWorkspace {
    terms: WorkspaceMemory,
    partial: Option<WorkspaceMemory>,
    of_vector: Option<VectorWorkspace>,
}

/// What rows add to the gradient of the vector, a row for each with all heads, and room for sums of chunks of them.
struct VectorWorkspace {
    of_rows: WorkspaceMemory,
    of_chunks: WorkspaceMemory,
}

/// The operands of a gradient as kernels take them.
pub(in crate::attention) struct GradientOperands {
    pub(in crate::attention) q: HeadMatrix,
    pub(in crate::attention) k: HeadMatrix,
    pub(in crate::attention) v: HeadMatrix,
    pub(in crate::attention) out: HeadMatrix,
    pub(in crate::attention) out_type: OutputType,
    /// The gradient of the result.
    pub(in crate::attention) gradient: HeadMatrix,
    pub(in crate::attention) vector: GlobalPtr<f32>,
    pub(in crate::attention) bias: EntryBias,
    pub(in crate::attention) states: GlobalPtr<[f32; 2]>,
    pub(in crate::attention) scale: f32,
    pub(in crate::attention) dropout: Option<Dropout>,
    /// Those of `Q`, `K` and `V`.
    pub(in crate::attention) found: [HeadMatrix; 3],
    pub(in crate::attention) found_type: OutputType,
    pub(in crate::attention) of_vector: GlobalPtr<f32>,
    pub(in crate::attention) of_bias: GlobalPtr<f32>,
    /// Whether rows of `Q`, `K`, `V` and the gradient of the result begin at multiples of 16 bytes and have a multiple
    /// of that.
    pub(in crate::attention) aligned: bool,
}

fn join_entry() -> Result<&'static Entry, DeviceError> {
    let name = "attention_gradient_join";
    windrow_kernels::entry(Variant::AttentionGradientJoin).ok_or(DeviceError::MissingEntry { name })
}

fn sums_entry() -> Result<&'static Entry, DeviceError> {
    windrow_kernels::entry(Variant::ColumnSums).ok_or(DeviceError::MissingEntry { name: "column_sums" })
}

impl GradientOperands {
    /// Whether there is a gradient of a bias that all heads have, which is added to by one head after the other.
    fn shares_bias_gradient(&self) -> bool {
        self.of_bias != GlobalPtr::NULL && self.bias.head == 0
    }
}

/// Whether operands are aligned to vectors, and whether heads are walked apart, as they are without vectors: all that
/// passes may be for.
const KINDS: [[bool; 2]; 3] = [[false, true], [true, false], [true, true]];

/// One pass, over rows or over columns.
struct Pass<'a> {
    windows: &'a GpuWindows,
    entry: &'static Entry,
    width: u32,
    heads: WalkHeads,
    over_columns: bool,
    /// Gradients that it adds up.
    results: u32,
}

impl Pass<'_> {
    /// Numbers that a piece leaves.
    const fn partial_floats(&self) -> u32 {
        self.windows.rows * gradient_partial_floats(self.results, self.width)
    }
}

impl GpuAttention {
    /// The passes of a gradient, in their order; with `apart` each head has walks of its own.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`] of a plan that was made without.
    fn passes(&self, aligned: bool, apart: bool) -> Result<[Pass<'_>; 2], DeviceError> {
        if let Some(passes) = self.passes_of_windows().filter(|_| aligned && !apart) {
            return Ok(passes);
        }
        let pass = |windows, over_columns| -> Result<_, DeviceError> {
            let (scores, dtype) = (self.scores.kind(), self.dtype);
            let RowKernel { width, heads } = self.row_kernel(aligned, apart);
            let variant = Variant::AttentionGradient { over_columns, scores, dtype, vectors: aligned, width };
            let missing = DeviceError::MissingEntry { name: "attention_gradient" };
            let entry = windrow_kernels::entry(variant).ok_or(missing)?;
            let results = gradient_results(over_columns, scores);
            Ok(Pass { windows, entry, width, heads, over_columns, results })
        };
        let missing = || DeviceError::MissingEntry { name: "attention_gradient" };
        let columns = &self.gradient.as_ref().ok_or_else(missing)?.columns;
        Ok([pass(self.by_rows().ok_or_else(missing)?, false)?, pass(columns, true)?])
    }

    /// Names of the kernels for aligned operands.
    pub(in crate::attention) fn gradient_names(&self) -> Result<[&'static str; 2], DeviceError> {
        Ok(self.passes(true, false)?.map(|pass| pass.entry.name))
    }

    /// The passes on Tensor Cores, for aligned operands, if the plan has them.
    fn passes_of_windows(&self) -> Option<[Pass<'_>; 2]> {
        let windows = self.gradient.as_ref()?.windows.as_ref()?;
        let width = width_for(&GRADIENT_WIDTHS, self.columns());
        let pass = |windows, over_columns| {
            let variant = Variant::AttentionGradientWindows { over_columns, dtype: self.dtype, width };
            let entry = windrow_kernels::entry(variant)?;
            let results = gradient_results(over_columns, ScoreKind::DotProduct);
            Some(Pass { windows, entry, width, heads: WalkHeads::ONE, over_columns, results })
        };
        let rows = windows.rows.as_ref().unwrap_or(&self.windows);
        Some([pass(rows, false)?, pass(&windows.columns, true)?])
    }

    fn terms_bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.heads) * wide(size_of::<RowTerms>())
    }

    /// Bytes of what pieces leave, whatever the alignment of a run.
    fn gradient_partial_bytes(&self) -> Result<u64, DeviceError> {
        let mut most = 0;
        for [aligned, apart] in KINDS {
            for pass in self.passes(aligned, apart)? {
                let slots = u64::from(pass.windows.slots) * u64::from(self.heads >> pass.heads.count_log2);
                most = most.max(4 * slots * u64::from(pass.partial_floats()));
            }
        }
        Ok(most)
    }

    /// Numbers of the vector of all heads; 0 where scores have none.
    fn vector_columns(&self) -> u32 {
        if self.scores.have_vector() { self.heads * self.score_columns } else { 0 }
    }

    /// Bytes of what rows add to the gradient of the vector, and of the sums of chunks of them.
    fn vector_bytes(&self) -> [u64; 2] {
        let columns = self.vector_columns();
        [4 * u64::from(self.rows) * u64::from(columns), column_sums_bytes(columns)]
    }

    /// Bytes of a stream's workspace, by array.
    pub(in crate::attention) fn gradient_workspace_bytes(
        &self,
    ) -> Result<[(&'static str, u64); 3], DeviceError> {
        Ok([
            ("terms", self.terms_bytes()),
            ("partial_gradients", self.gradient_partial_bytes()?),
            ("vector_gradients", self.vector_bytes().iter().sum()),
        ])
    }

    pub(in crate::attention) fn make_gradient_workspace(&self) -> Result<GradientWorkspace, DeviceError> {
        let alloc = |bytes, what| WorkspaceMemory::alloc(&self.device, index(bytes), what);
        let partial = self.gradient_partial_bytes()?;
        let [of_rows, of_chunks] = self.vector_bytes();
        Ok(GradientWorkspace {
            terms: alloc(self.terms_bytes(), "terms of rows")?,
            partial: if partial == 0 { None } else { Some(alloc(partial, "partial sums of gradients")?) },
            of_vector: match of_rows {
                0 => None,
                _ => Some(VectorWorkspace {
                    of_rows: alloc(of_rows, "the gradient of a vector by rows")?,
                    of_chunks: alloc(of_chunks, "sums of chunks of rows")?,
                }),
            },
        })
    }

    /// Queues a gradient.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what cannot be part of a graph; those of the device.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of these operands.
    pub(in crate::attention) unsafe fn run_gradient(
        &self,
        on: &On<'_>,
        operands: &GradientOperands,
    ) -> Result<(), PlanError> {
        let passes = self.passes(operands.aligned, operands.shares_bias_gradient())?;
        let cut = passes.iter().any(|pass| !pass.windows.cut.is_empty());
        let join = if cut { Some(join_entry()?) } else { None };
        let sums = if self.scores.have_vector() { Some(sums_entry()?) } else { None };
        let Some(gradient) = &self.gradient else { return Ok(()) };
        let make = |left: &mut dyn Iterator<Item = Option<GradientWorkspace>>| {
            taken_over(left, || self.make_gradient_workspace().map(Some))
        };
        let complete = |state: &mut OfStream<Option<GradientWorkspace>>, captured: bool| {
            if captured {
                on.check_loaded(passes.iter().map(|pass| pass.entry).chain(join).chain(sums))?;
            }
            if state.held.is_none() {
                if captured {
                    let what = "the making of a workspace";
                    return Err(DeviceError::Captured { what, remedy: PREPARE }.into());
                }
                state.held = Some(self.make_gradient_workspace()?);
            }
            Ok(())
        };
        let queue = |queue: &dyn Queue, workspace: &mut Option<GradientWorkspace>| {
            let Some(workspace) = workspace else { return Ok(()) };
            for pass in &passes {
                // SAFETY: the caller's promise; the workspace is lent for this run, and has room for all terms and
                // slots.
                unsafe { self.queue_pass(queue, pass, (gradient, workspace), operands)? };
            }
            if let Some(sums) = sums.filter(|_| operands.of_vector != GlobalPtr::NULL) {
                // SAFETY: as above, and the pass over rows has been queued.
                unsafe { self.queue_vector(queue, sums, workspace.of_vector.as_ref(), operands.of_vector)? };
            }
            Ok(())
        };
        gradient.workspace.run(on, make, complete, queue)
    }

    /// Makes and compiles what gradients need on a stream, if the plan has them, and waits until it is there.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured; those of the device.
    pub(in crate::attention) fn prepare_gradient(&self, on: &On<'_>) -> Result<(), PlanError> {
        let Some(gradient) = &self.gradient else { return Ok(()) };
        for [aligned, apart] in KINDS {
            for pass in self.passes(aligned, apart)? {
                on.machine.load(pass.entry)?;
            }
        }
        on.machine.load(join_entry()?)?;
        if self.scores.have_vector() {
            on.machine.load(sums_entry()?)?;
        }
        gradient.workspace.prepare(
            on,
            |left| taken_over(left, || self.make_gradient_workspace().map(Some)),
            |_| Ok(()),
        )
    }

    /// Queues the launches of a pass.
    ///
    /// # Safety
    /// As for [`run_gradient`](Self::run_gradient); no other run uses the workspace until all of this one is queued,
    /// and the pass over rows has been queued before that over columns.
    unsafe fn queue_pass(
        &self,
        queue: &dyn Queue,
        pass: &Pass<'_>,
        (gradient, workspace): (&GpuGradient, &GradientWorkspace),
        operands: &GradientOperands,
    ) -> Result<(), DeviceError> {
        let GradientOperands { q, k, v, gradient: of_result, out, found: [of_q, of_k, of_v], .. } = *operands;
        let additive = self.scores.are_additive();
        let of_scores = |of| if additive { of } else { of_walk(of, pass.heads) };
        let [q, k, of_q, of_k] = [q, k, of_q, of_k].map(of_scores);
        let [v, of_out, out, of_v] = [v, of_result, out, of_v].map(|of| of_walk(of, pass.heads));
        let windows = pass.windows;
        let over_columns = pass.over_columns;
        let of_rows = HeadMatrix {
            first: workspace
                .of_vector
                .as_ref()
                .map_or(GlobalPtr::NULL, |memory| memory.of_rows.pointer().cast()),
            head: u64::from(self.score_columns),
            ld: self.vector_columns(),
            columns: q.columns,
        };
        let (scale, found) = (operands.scale, operands.found_type);
        let to = |matrix, scale, of: OutputType| SumsTo { matrix, scale, code: of.code() };
        let (own, gathered, sums) = match over_columns {
            false => ([q, of_out], [k, v], [to(of_q, scale, found), to(of_rows, scale, OutputType::Sums)]),
            true => ([k, v], [q, of_out], [to(of_k, scale, found), to(of_v, 1.0, found)]),
        };
        let rows = if over_columns { self.columns_of_matrix } else { self.rows };
        let positions = over_columns && operands.bias.values != GlobalPtr::NULL;
        let mut params = AttentionGradientParams {
            own,
            gathered,
            sums,
            out,
            vector: operands.vector,
            bias: operands.bias,
            bias_gradient: if over_columns { GlobalPtr::NULL } else { operands.of_bias },
            states: operands.states,
            terms: workspace.terms.pointer().cast(),
            partial: workspace.partial.as_ref().map_or(GlobalPtr::NULL, |partial| partial.pointer().cast()),
            offsets: windows.offsets.pointer(),
            entries: windows.entries.pointer(),
            positions: if positions { gradient.positions.pointer() } else { GlobalPtr::NULL },
            pieces: windows.pieces.pointer(),
            piece_count: narrow(windows.pieces.len()),
            rows,
            matrix_rows: self.rows,
            longest: windows.longest,
            slot_count: windows.slots,
            scale,
            out_type: operands.out_type.code(),
            dropped: dropped_weights(operands.dropout),
            heads: pass.heads,
            first_walk: 0,
            adds_bias_gradient: 0,
            warp_rows_log2: match windows.rows {
                1 => warp_rows_log2(pass.entry, windows.entries.len(), rows),
                several => several.ilog2(),
            },
            negative_slope: self.scores.negative_slope(),
        };
        // One number for all heads is added to by one head after the other.
        let is_shared = !over_columns && operands.shares_bias_gradient();
        let walks = self.heads >> pass.heads.count_log2;
        let (launches, walks) = if is_shared { (walks, 1) } else { (1, walks) };
        let launcher = Launcher::main(queue);
        for first in 0..launches {
            params.first_walk = first;
            params.adds_bias_gradient = u32::from(first > 0);
            let grid = [u64::from(params.blocks()), u64::from(walks)];
            let blocks = Blocks { grid, threads: pass.entry.block_threads };
            // SAFETY: rows and pieces were made of a valid CSR and its transpose by `Division` and `Transposed`, which
            // keep the obligations, and belong to the plan, which frees them after the machine's work; the operands are
            // the caller's promise, and the entry is the one for their width and alignment.
            unsafe { launcher.start_grid(pass.entry, blocks, &params)? };
        }
        if windows.cut.is_empty() {
            return Ok(());
        }
        let join = join_entry()?;
        params.first_walk = 0;
        let elements = windows.rows * gradient_partial_floats(pass.results, pass.width);
        let params = AttentionGradientJoinParams {
            gradient: params,
            cut: windows.cut.pointer(),
            results: pass.results,
            width_log2: pass.width.ilog2(),
            window_rows_log2: windows.rows.ilog2(),
            parts_log2: attention_join_parts_log2(elements),
        };
        let grid =
            [wide(windows.cut.len()) << params.parts_log2, u64::from(self.heads >> pass.heads.count_log2)];
        // SAFETY: as above; every slot was written by the launches before.
        unsafe { launcher.start_grid(join, Blocks { grid, threads: join.block_threads }, &params) }
    }

    /// Queues the sums of what rows add to the gradient of the vector.
    ///
    /// # Safety
    /// As for [`run_gradient`](Self::run_gradient), of a workspace in which the pass over rows leaves its part.
    unsafe fn queue_vector(
        &self,
        queue: &dyn Queue,
        sums: &'static Entry,
        workspace: Option<&VectorWorkspace>,
        out: GlobalPtr<f32>,
    ) -> Result<(), DeviceError> {
        let cols = self.vector_columns();
        let Some(VectorWorkspace { of_rows, of_chunks }) = workspace else {
            // SAFETY: the caller's promise; of a matrix without rows nothing is added up.
            return unsafe { queue.zero(out.address(), 4 * u64::from(cols)) };
        };
        let matrix = |data| Matrix { data, ld: cols, vectors: 0 };
        let terms =
            ColumnTerms { x: matrix(of_rows.pointer().cast()), y: Matrix::NONE, rows: self.rows, cols };
        // SAFETY: the caller's promise; there is room for the sums of all chunks.
        unsafe { terms.queue_all(queue, sums, matrix(of_chunks.pointer().cast()), matrix(out)) }
    }

    /// The rows of the matrix, one a window, where the plan has them.
    fn by_rows(&self) -> Option<&GpuWindows> {
        let is_by_rows = |windows: &&GpuWindows| windows.rows == 1;
        [Some(&self.windows), self.rows_too.as_ref()].into_iter().flatten().find(is_by_rows)
    }
}

//! The gradient of attention on a machine that runs kernels.

use windrow_kernels::attention::{
    AttentionGradientJoinParams, AttentionGradientParams, EntryBias, HeadMatrix, RowTerms,
    gradient_partial_floats,
};
use windrow_kernels::output::OutputType;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use super::{GpuAttention, GpuWindows, width_by_rows};
use crate::attention::operands::dropped_weights;
use crate::attention::options::Dropout;
use crate::device::{DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::warp_rows_log2;

/// What the gradient needs beside the rows of the matrix.
pub(in crate::attention) struct GpuGradient {
    /// The columns, as rows of the transpose.
    pub(in crate::attention) columns: GpuWindows,
    /// Where its entries are in the matrix; empty without a bias.
    pub(in crate::attention) positions: DeviceBuffer<u32>,
    pub(in crate::attention) workspace: PerStream<Option<GradientWorkspace>>,
}

/// What a pass leaves for the next launch, on one stream.
pub(in crate::attention) struct GradientWorkspace {
    terms: WorkspaceMemory,
    partial: Option<WorkspaceMemory>,
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
    pub(in crate::attention) bias: EntryBias,
    pub(in crate::attention) states: GlobalPtr<[f32; 2]>,
    pub(in crate::attention) scale: f32,
    pub(in crate::attention) dropout: Option<Dropout>,
    /// Those of `Q`, `K` and `V`.
    pub(in crate::attention) found: [HeadMatrix; 3],
    pub(in crate::attention) found_type: OutputType,
    pub(in crate::attention) of_bias: GlobalPtr<f32>,
    /// Whether rows of `Q`, `K`, `V` and the gradient of the result begin at multiples of 16 bytes and have a multiple
    /// of that.
    pub(in crate::attention) aligned: bool,
}

/// The kernel of a pass, and the columns that it has room for.
fn entry_of(
    [over_columns, additive, vectors]: [bool; 3],
    dtype: Dtype,
    columns: u32,
) -> Result<(&'static Entry, u32), DeviceError> {
    let width = width_by_rows(additive, vectors, columns);
    let variant = Variant::AttentionGradient { over_columns, additive, dtype, vectors, width };
    let entry =
        windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "attention_gradient" })?;
    Ok((entry, width))
}

fn join_entry() -> Result<&'static Entry, DeviceError> {
    let name = "attention_gradient_join";
    windrow_kernels::entry(Variant::AttentionGradientJoin).ok_or(DeviceError::MissingEntry { name })
}

/// One pass, over rows or over columns.
struct Pass<'a> {
    windows: &'a GpuWindows,
    entry: &'static Entry,
    width: u32,
    results: u32,
}

impl GpuAttention {
    /// The passes of a gradient, in their order.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`] of a plan that was made without.
    fn passes(&self, aligned: bool) -> Result<[Pass<'_>; 2], DeviceError> {
        let pass = |windows, over_columns| -> Result<_, DeviceError> {
            let of = [over_columns, self.scores.are_additive(), aligned];
            let (entry, width) = entry_of(of, self.dtype, self.columns)?;
            Ok(Pass { windows, entry, width, results: if over_columns { 2 } else { 1 } })
        };
        let missing = || DeviceError::MissingEntry { name: "attention_gradient" };
        let columns = &self.gradient.as_ref().ok_or_else(missing)?.columns;
        Ok([pass(self.by_rows().ok_or_else(missing)?, false)?, pass(columns, true)?])
    }

    fn terms_bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.heads) * wide(size_of::<RowTerms>())
    }

    /// Bytes of what pieces leave, whatever the alignment of a run.
    fn gradient_partial_bytes(&self) -> Result<u64, DeviceError> {
        let mut most = 0;
        for aligned in [false, true] {
            for Pass { windows, width, results, .. } in self.passes(aligned)? {
                let slots = u64::from(windows.slots) * u64::from(self.heads);
                most = most.max(4 * slots * u64::from(gradient_partial_floats(results, width)));
            }
        }
        Ok(most)
    }

    /// Bytes of a stream's workspace, of its two arrays.
    pub(in crate::attention) fn gradient_workspace_bytes(&self) -> Result<[u64; 2], DeviceError> {
        Ok([self.terms_bytes(), self.gradient_partial_bytes()?])
    }

    pub(in crate::attention) fn make_gradient_workspace(&self) -> Result<GradientWorkspace, DeviceError> {
        let alloc = |bytes, what| WorkspaceMemory::alloc(&self.device, index(bytes), what);
        let [terms, partial] = self.gradient_workspace_bytes()?;
        Ok(GradientWorkspace {
            terms: alloc(terms, "terms of rows")?,
            partial: if partial == 0 { None } else { Some(alloc(partial, "partial sums of gradients")?) },
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
        let passes = self.passes(operands.aligned)?;
        let cut = passes.iter().any(|pass| !pass.windows.cut.is_empty());
        let join = if cut { Some(join_entry()?) } else { None };
        let Some(gradient) = &self.gradient else { return Ok(()) };
        let make = |left: &mut dyn Iterator<Item = Option<GradientWorkspace>>| {
            taken_over(left, || self.make_gradient_workspace().map(Some))
        };
        let complete = |state: &mut OfStream<Option<GradientWorkspace>>, captured: bool| {
            if captured {
                on.check_loaded(passes.iter().map(|pass| pass.entry).chain(join))?;
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
        for aligned in [true, false] {
            for pass in self.passes(aligned)? {
                on.machine.load(pass.entry)?;
            }
        }
        on.machine.load(join_entry()?)?;
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
        let GradientOperands { q, k, v, gradient: of_out, found: [of_q, of_k, of_v], .. } = *operands;
        let windows = pass.windows;
        let over_columns = pass.results == 2;
        let (own, gathered, sums) = match over_columns {
            false => ([q, of_out], [k, v], [of_q; 2]),
            true => ([k, v], [q, of_out], [of_k, of_v]),
        };
        let positions = over_columns && operands.bias.values != GlobalPtr::NULL;
        let mut params = AttentionGradientParams {
            own,
            gathered,
            sums,
            out: operands.out,
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
            rows: windows.window_count,
            matrix_rows: self.rows,
            longest: windows.longest,
            slot_count: windows.slots,
            scale: operands.scale,
            out_type: operands.out_type.code(),
            sums_type: operands.found_type.code(),
            dropped: dropped_weights(operands.dropout),
            first_head: 0,
            adds_bias_gradient: 0,
            warp_rows_log2: warp_rows_log2(pass.entry, windows.entries.len(), windows.window_count),
            negative_slope: self.scores.negative_slope(),
            reserved: 0,
        };
        // One number for all heads is added to by one head after the other.
        let is_shared = params.bias_gradient != GlobalPtr::NULL && operands.bias.head == 0;
        let (launches, heads) = if is_shared { (self.heads, 1) } else { (1, self.heads) };
        let launcher = Launcher::main(queue);
        for head in 0..launches {
            params.first_head = head;
            params.adds_bias_gradient = u32::from(head > 0);
            let grid = [u64::from(params.blocks()), u64::from(heads)];
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
        params.first_head = 0;
        let params = AttentionGradientJoinParams {
            gradient: params,
            cut: windows.cut.pointer(),
            results: pass.results,
            width_log2: pass.width.ilog2(),
        };
        let grid = [wide(windows.cut.len()), u64::from(self.heads)];
        // SAFETY: as above; every slot was written by the launches before.
        unsafe { launcher.start_grid(join, Blocks { grid, threads: join.block_threads }, &params) }
    }

    /// The rows of the matrix, one a window, where the plan has them.
    fn by_rows(&self) -> Option<&GpuWindows> {
        let is_by_rows = |windows: &&GpuWindows| windows.rows == 1;
        [Some(&self.windows), self.rows_too.as_ref()].into_iter().flatten().find(is_by_rows)
    }
}

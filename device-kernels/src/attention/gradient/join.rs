//! Adds up the pieces of rows that were cut, in their order.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{AttentionGradientParams, gradient_partial_floats};
use crate::attention::join::THREADS;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`AttentionGradientJoin`].
///
/// # Obligations
/// Those of [`AttentionGradientParams`], whose launch comes before this one; `cut[i] = [row, first slot, slots, _]`,
/// each row or window once; `results` and `width` are those of the launch before, the second `1 << width_log2`. The
/// fast axis of the grid has `1 << parts_log2` blocks for each row or window.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AttentionGradientJoinParams {
    /// What was launched before.
    pub gradient: AttentionGradientParams,
    /// The rows or windows that were cut.
    pub cut: GlobalPtr<[u32; 4]>,
    /// Gradients that the pass adds up, one or two.
    pub results: u32,
    /// Logarithm of the columns of partial sums.
    pub width_log2: u32,
    /// Logarithm of the rows of a window.
    pub window_rows_log2: u32,
    /// Logarithm of the blocks that share a row or window.
    pub parts_log2: u32,
}

/// The kernel: blocks for each row or window, a thread for each of its elements.
pub struct AttentionGradientJoin;

impl Kernel for AttentionGradientJoin {
    type Params = AttentionGradientJoinParams;
    const FILE: &'static str = "attention/gradient/join";
    const VARIANT: Variant = Variant::AttentionGradientJoin;
    const BLOCK_THREADS: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionGradientJoinParams) {
        let of_row = gradient_partial_floats(p.results, 1 << p.width_log2);
        let record = u64::from(of_row << p.window_rows_log2);
        let walk = p.gradient.first_walk + s.block_idx_y();
        // SAFETY: the obligations of the params: slots hold what the launch before wrote; every element is one
        // thread's.
        unsafe {
            let [window, first, count, _] = s.load_readonly(p.cut.at(s.block_idx() >> p.parts_log2));
            let first = u64::from(walk) * u64::from(p.gradient.slot_count) + u64::from(first);
            let partial = p.gradient.partial.at_wide(first * record);
            let part = s.block_idx() & ((1 << p.parts_log2) - 1);
            let mut at = part * THREADS + s.thread_idx();
            while at < of_row << p.window_rows_log2 {
                let (of_result, column) = (at >> p.width_log2, at & ((1 << p.width_log2) - 1));
                // Of one or two results, which a division is not needed for.
                let (of_window, result) = (of_result >> (p.results - 1), of_result & (p.results - 1));
                let row = (window << p.window_rows_log2) + of_window;
                let of_numbers = result == 0 && p.gradient.sums[0].matrix.columns == 1;
                let place = p.gradient.place(walk, of_numbers, column);
                if let Some([head, of_head]) = place.filter(|_| row < p.gradient.rows) {
                    let (mut sum, mut slot) = (0.0, 0);
                    while slot < count {
                        let of_slot: f32 = s.load(partial.at_wide(u64::from(slot) * record).at(at));
                        sum += of_slot;
                        slot += 1;
                    }
                    p.gradient.finish(s, [head, row, result, of_head], sum);
                }
                at += THREADS << p.parts_log2;
            }
        }
    }
}

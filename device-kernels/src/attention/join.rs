//! Joins the pieces of windows that were cut, in their order.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::sums::{Joined, Softmax};
use super::{AttentionParams, partial_floats};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Threads of a block of the kernels that join pieces.
pub(super) const THREADS: u32 = 128;

/// Logarithm of the blocks among which so many elements of a cut window are dealt out: a thread has one, or none.
#[must_use]
pub const fn attention_join_parts_log2(elements: u32) -> u32 {
    elements.div_ceil(THREADS).next_power_of_two().ilog2()
}

/// Arguments of [`AttentionJoin`].
///
/// # Obligations
/// Those of [`AttentionParams`], whose launch comes before this one; `windows[i] = [window, first slot, slots, _]`,
/// each window once; windows have `1 << window_rows_log2` rows and partial sums `1 << width_log2` columns. The fast
/// axis of the grid has `1 << parts_log2` blocks for each window.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AttentionJoinParams {
    /// What was launched before.
    pub attention: AttentionParams,
    /// The windows that were cut.
    pub windows: GlobalPtr<[u32; 4]>,
    /// Logarithm of the rows of a window.
    pub window_rows_log2: u32,
    /// Logarithm of the columns of partial sums.
    pub width_log2: u32,
    /// Logarithm of the blocks that share a window.
    pub parts_log2: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The kernel: blocks for each window, a thread for each of its elements.
pub struct AttentionJoin;

impl Kernel for AttentionJoin {
    type Params = AttentionJoinParams;
    const FILE: &'static str = "attention/join";
    const VARIANT: Variant = Variant::AttentionJoin;
    const BLOCK_THREADS: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionJoinParams) {
        let (window_rows, width) = (1 << p.window_rows_log2, 1 << p.width_log2);
        let heads = p.attention.heads;
        let record = u64::from(partial_floats(window_rows, width, heads));
        let walk = s.block_idx_y();
        // SAFETY: the obligations of the params: slots hold what the launch before wrote; every element is one
        // thread's.
        unsafe {
            let [window, first, count, _] = s.load_readonly(p.windows.at(s.block_idx() >> p.parts_log2));
            let first = u64::from(walk) * u64::from(p.attention.slot_count) + u64::from(first);
            let partial = p.attention.partial.at_wide(first * record);
            let part = s.block_idx() & ((1 << p.parts_log2) - 1);
            let mut at = part * THREADS + s.thread_idx();
            while at < window_rows << p.width_log2 {
                let (of_window, column) = (at >> p.width_log2, at & (width - 1));
                let row = (window << p.window_rows_log2) + of_window;
                let of_slot = |slot: u32| partial.at_wide(u64::from(slot) * record);
                let state = |slot| {
                    let state = (of_window << heads.count_log2) + heads.of_column(column);
                    let state = of_slot(slot).at(window_rows * width + 2 * state);
                    s.load::<[f32; 2]>(state.cast())
                };
                let mut max = f32::NEG_INFINITY;
                let mut slot = 0;
                while slot < count {
                    max = max.max(state(slot)[0]);
                    slot += 1;
                }
                let mut joined = Joined::new(max);
                let mut slot = 0;
                while slot < count {
                    let [max, weight] = state(slot);
                    joined.add(s, Softmax { max, weight }, s.load(of_slot(slot).at(at)));
                    slot += 1;
                }
                if row < p.attention.rows {
                    p.attention.finish(s, (walk, row, column), joined);
                }
                at += THREADS << p.parts_log2;
            }
        }
    }
}

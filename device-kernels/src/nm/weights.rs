//! The kept values of weights that are on the GPU, brought to where a kernel reads them.

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::element::Dtype;
use crate::kernel::Kernel;
use crate::place_values::{code, load, round};
use crate::variant::Variant;

/// In the list of kept rows: there is none, its weights are zero.
pub const NOT_KEPT: u32 = u32::MAX;

/// Arguments of [`NmWeights`].
///
/// # Obligations
/// - `values` has an element for each kept row and column, of the type that `given` is the [`code`] of: f32, f16 or
///   bf16, `ld_values ≥ columns` elements from row to row;
/// - `kept` has `chunks · strips · depth` elements, each a kept row or [`NOT_KEPT`]; `places` has `elements`, of which
///   the upper half is below `depth` and the lower one below `strips · strip`;
/// - `others` has `before + after` words for each chunk, and `tail` behind them, or is null;
/// - `out` has for each chunk `before` words, `elements` of the type that `dtype` is the code of, and `after` words,
///   and behind them `tail` words; where there are such words, the elements of a chunk fill words; `precision` is the
///   same code, or where `dtype` is that of f32 that of any type no wider;
/// - `overflowed` is a counter; `strip` and `chunks_per_group` are not 0; the grid has a block for each chunk and one
///   more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct NmWeightsParams {
    /// Kept values, row after row.
    pub values: GlobalPtr<u32>,
    /// The kept row of each place of each strip of each chunk.
    pub kept: GlobalPtr<u32>,
    /// Of each element of a chunk, its place, times 2¹⁶, and its column.
    pub places: GlobalPtr<u32>,
    /// Words that are no weights; null: they are left as they are.
    pub others: GlobalPtr<u32>,
    /// Where the kernel that multiplies reads.
    pub out: GlobalPtr<u32>,
    /// Where finite values that become infinite are counted.
    pub overflowed: GlobalPtr<u32>,
    /// Columns of the weights.
    pub columns: u32,
    /// Number of all chunks.
    pub chunks: u32,
    /// Weights of a chunk.
    pub elements: u32,
    /// Successive chunks that have the same columns.
    pub chunks_per_group: u32,
    /// Columns of a group.
    pub group_columns: u32,
    /// Strips of a chunk.
    pub strips: u32,
    /// Columns of a strip.
    pub strip: u32,
    /// Places of a strip.
    pub depth: u32,
    /// Words before the weights of each chunk.
    pub before: u32,
    /// Words behind the weights of each chunk.
    pub after: u32,
    /// Words behind all chunks.
    pub tail: u32,
    /// Type of the values.
    pub given: u32,
    /// Type of the weights.
    pub dtype: u32,
    /// Type that values are rounded to before they become weights: a wider type holds what that has.
    pub precision: u32,
    /// Elements from one row of the values to the next.
    pub ld_values: u32,
    /// Zero: `Pod` allows no padding.
    pub padding: u32,
}

const F16: u32 = code(Dtype::F16);
const BF16: u32 = code(Dtype::Bf16);
const TF32: u32 = code(Dtype::Tf32);

impl NmWeightsParams {
    /// A kept value.
    ///
    /// # Safety
    /// The obligations of the params, and there is such a value.
    #[inline(always)]
    unsafe fn value<S: Simt>(&self, s: &S, row: u32, column: u32) -> f32 {
        let at = u64::from(row) * u64::from(self.ld_values) + u64::from(column);
        // SAFETY: the caller's promise.
        unsafe { load(s, self.given, self.values, at) }
    }

    /// Bytes of a weight.
    #[inline(always)]
    fn bytes(&self) -> u64 {
        if self.dtype == F16 || self.dtype == BF16 { 2 } else { 4 }
    }
}

/// Rounds the kept values to where they are read: a block for each chunk, a thread for each element by turns.
pub struct NmWeights;

impl Kernel for NmWeights {
    type Params = NmWeightsParams;
    const FILE: &'static str = "nm/weights";
    const VARIANT: Variant = Variant::NmWeights;
    const BLOCK_THREADS: u32 = 256;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmWeightsParams) {
        let chunk = s.block_idx();
        let (others, bytes) = (p.before + p.after, p.bytes());
        let record = 4 * u64::from(others) + u64::from(p.elements) * bytes;
        let from = p.others.at_wide(u64::from(chunk) * u64::from(others));
        let to = p.out.byte_add(u64::from(chunk) * record);
        // SAFETY: the obligations of the params; each word and each element is one thread's. There are no collectives.
        unsafe {
            let is_tail = chunk >= p.chunks;
            let out = to.byte_add(4 * u64::from(p.before));
            if p.others != GlobalPtr::NULL {
                copy(s, from, to, if is_tail { p.tail } else { p.before });
                let behind = out.byte_add(u64::from(p.elements) * bytes);
                copy(s, from.at(p.before), behind, if is_tail { 0 } else { p.after });
            }
            if is_tail {
                return;
            }
            let per_group = NonZeroU32::new(p.chunks_per_group).unwrap_or(NonZeroU32::MIN); // it is not 0
            let strip = NonZeroU32::new(p.strip).unwrap_or(NonZeroU32::MIN); // nor this
            let first = chunk / per_group * p.group_columns;
            let kept = p.kept.at_wide(u64::from(chunk) * u64::from(p.strips) * u64::from(p.depth));
            let (mut element, mut overflowed) = (s.thread_idx(), 0);
            while element < p.elements {
                let word = s.load_readonly(p.places.at(element));
                let (place, column) = (word >> 16, word & 0xffff);
                let row = s.load_readonly(kept.at(column / strip * p.depth + place));
                let exists = row != NOT_KEPT && first + column < p.columns;
                let value = if exists { p.value(s, row, first + column) } else { 0.0 };
                let rounded = if p.dtype == p.precision { value } else { narrowed(s, p.precision, value) };
                let stored = round(s, p.dtype, out, element, rounded);
                overflowed += u32::from(value.is_finite() && !stored.is_finite());
                element += Self::BLOCK_THREADS;
            }
            if overflowed > 0 {
                s.atomic_add_u32(p.overflowed, overflowed);
            }
        }
    }
}

/// The value in a narrower type, as an f32.
#[inline(always)]
fn narrowed<S: Simt>(s: &S, precision: u32, value: f32) -> f32 {
    match precision {
        _ if value.is_nan() => value,
        F16 => s.f16_to_f32(s.f32_to_f16(value)),
        BF16 => f32::from_bits(u32::from(s.f32_to_bf16(value)) << 16),
        TF32 => f32::from_bits(s.f32_to_tf32(value)),
        _ => value,
    }
}

/// Copies words, the threads of the block by turns.
///
/// # Safety
/// There are so many, and nobody else writes where they go.
#[inline(always)]
unsafe fn copy<S: Simt>(s: &S, from: GlobalPtr<u32>, to: GlobalPtr<u32>, words: u32) {
    let mut at = s.thread_idx();
    while at < words {
        // SAFETY: the caller's promise.
        unsafe { s.store(to.at(at), s.load_readonly(from.at(at))) };
        at += NmWeights::BLOCK_THREADS;
    }
}

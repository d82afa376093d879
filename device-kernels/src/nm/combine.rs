//! Adds the partial sums of products whose kept rows were divided among blocks.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::output::Output;
use crate::unroll::each4;
use crate::variant::Variant;

/// Arguments of [`NmCombine`].
///
/// # Obligations
/// - `partial`: part `i` is a row-major matrix of `output.m` rows, `i · part_elements` elements further on, 16-byte
///   aligned; `ld_partial`, at least `output.n`, and `part_elements` are multiples of 4. All columns were written, also
///   those from `output.n` up to a multiple of 4.
/// - the grid is (`⌈m / ROWS⌉`, `⌈n / COLUMNS⌉`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmCombineParams {
    /// The result, and what becomes of sums on their way to it.
    pub output: Output,
    /// The partial sums of part 0; the other parts follow.
    pub partial: GlobalPtr<f32>,
    /// Elements from one part to the next.
    pub part_elements: u64,
    /// Leading dimension of a part, in elements.
    pub ld_partial: u32,
    /// Number of parts, at least one.
    pub parts: u32,
}

/// `C ← act(α·Σ partial + β·C + bias)`, four columns a thread; parts are added from the first to the last.
pub struct NmCombine;

impl NmCombine {
    /// Rows of `C` of a block.
    pub const ROWS: u32 = 4;
    /// Columns of `C` of a block.
    pub const COLUMNS: u32 = 128;
}

impl Kernel for NmCombine {
    type Params = NmCombineParams;
    const FILE: &'static str = "nm";
    const VARIANT: Variant = Variant::NmCombine;
    const BLOCK_THREADS: u32 = Self::ROWS * Self::COLUMNS / 4;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmCombineParams) {
        let row = s.block_idx() * Self::ROWS + s.warp();
        let column = s.block_idx_y() * Self::COLUMNS + s.lane() * 4;
        if row >= p.output.m || column >= p.output.n {
            return;
        }
        let mut from = p.partial.at_wide(u64::from(row) * u64::from(p.ld_partial) + u64::from(column));
        let mut sums = [0.0; 4];
        let mut part = 0;
        // SAFETY: all parts have this row and these columns, by the obligations of the params; the elements of `C` are
        // this thread's.
        unsafe {
            while part < p.parts {
                let four = s.load_readonly(from.cast::<[f32; 4]>());
                each4(|i| sums[i] += four[i]);
                from = from.at_wide(p.part_elements);
                part += 1;
            }
            p.output.store(s, row, column, sums);
        }
    }
}

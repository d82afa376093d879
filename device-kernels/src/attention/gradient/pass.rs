//! One pass over the entries of each row, or of each column, on CUDA cores.
//!
//! As in [`AttentionRows`](crate::attention::AttentionRows), groups of lanes take entries side by side, and a lane has
//! the same elements of every row. Here each group multiplies two pairs of rows, and all sums are plain ones, which are
//! joined in a fixed tree. Where rows are short a warp walks several, and each is a few groups', or one's.

use core::f32::consts::LOG2_E;
use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{
    AttentionGradientParams, RowTerms, SumsTo, gradient_partial_floats, gradient_results, row_terms,
};
use crate::NO_SLOT;
use crate::attention::ATTENTION_WARPS;
use crate::attention::lanes::{Elements, LaneHeads, Lanes};
use crate::attention::scores::{OtherRow, OwnRow, ScoreForm, ScoreKind, Scores};
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;
use crate::ways::{Groups, RowLists, RowWalk};

/// Which lists a pass walks.
pub trait GradientPass: 'static {
    /// Whether they are the columns of the matrix.
    const OVER_COLUMNS: bool;
}

/// The rows: the gradients of `Q` and of the bias, and what each row adds to that of the vector.
pub struct OverRows;
/// The columns: the gradients of `K` and `V`. Comes after the pass over rows.
pub struct OverColumns;

impl GradientPass for OverRows {
    const OVER_COLUMNS: bool = false;
}

impl GradientPass for OverColumns {
    const OVER_COLUMNS: bool = true;
}

/// One instance: how scores are made, the pass, how rows are read, lanes across the width, and what each has of it,
/// times a vector or an element.
pub struct AttentionGradient<C, P, G, const LANES: u32, const PARTS: usize>(PhantomData<(C, P, G)>);

/// A lane's elements of two sums; of a number, the first of them.
type Pair<const PARTS: usize> = [Elements<PARTS>; 2];

/// The entries of one row that a lane's group and its neighbours walk, and what they are multiplied by.
struct Walk<const PARTS: usize> {
    heads: LaneHeads,
    of: RowWalk,
    own: OwnRow<PARTS>,
    /// The row of `V`, or of the gradient of the result.
    response: Elements<PARTS>,
    /// Over rows, those of the row.
    terms: RowTerms,
}

/// An entry whose rows are under way.
struct Fetched<G: Gather, const PARTS: usize> {
    position: u32,
    /// The column, or over columns the row.
    other: u32,
    row: OtherRow<G, PARTS>,
    /// Its row of the gradient of the result, or of `V`.
    response: [G::Raw; PARTS],
    terms: RowTerms,
    bias: f32,
}

impl<C: ScoreForm, P: GradientPass, G: Gather, const LANES: u32, const PARTS: usize>
    AttentionGradient<C, P, G, LANES, PARTS>
{
    /// Columns that there is room for.
    pub const WIDTH: u32 = Lanes::<G, LANES, PARTS>::WIDTH;
    /// Numbers from one sum of a block's warp to the next: they begin in different banks.
    const PITCH: u32 = Self::WIDTH + 8;
    /// Whether the second result is that of the vector.
    const OF_VECTOR: bool = !P::OVER_COLUMNS && matches!(C::KIND, ScoreKind::Gatv2);
    /// Gradients that the pass adds up.
    const RESULTS: u32 = gradient_results(P::OVER_COLUMNS, C::KIND);

    /// Whether a lane adds up an element of a gradient: of that of a number there is one.
    const fn has(result: usize, part: usize, e: usize) -> bool {
        (result as u32) < Self::RESULTS && (result == 1 || !C::ADDITIVE || (part == 0 && e == 0))
    }

    /// Byte of a warp's sum in shared memory.
    #[inline(always)]
    const fn sum_at(warp: u32, result: u32, column: u32) -> u32 {
        ((warp * Self::RESULTS + result) * Self::PITCH + column) * 4
    }
}

impl<C, P, G, const LANES: u32, const PARTS: usize> Kernel for AttentionGradient<C, P, G, LANES, PARTS>
where
    C: ScoreForm,
    P: GradientPass,
    G: Gather<Element: Element<Sum = f32>>,
{
    type Params = AttentionGradientParams;
    const FILE: &'static str = "attention/gradient/pass";
    const VARIANT: Variant = Variant::AttentionGradient {
        over_columns: P::OVER_COLUMNS,
        scores: C::KIND,
        dtype: G::Element::DTYPE,
        vectors: G::VECTORS,
        width: Self::WIDTH,
    };
    const BLOCK_THREADS: u32 = ATTENTION_WARPS * WARP;
    const SHARED_BYTES: u32 = Self::sum_at(ATTENTION_WARPS, 0, 0);
    const UNITS_PER_BLOCK: u32 = ATTENTION_WARPS * (WARP / LANES);
    // Left to itself, `ptxas` spills a few registers to fit more blocks.
    const MIN_BLOCKS: u32 = match (Self::WIDTH, G::VECTORS) {
        (0..=128, _) => 4,
        (_, false) if matches!(C::KIND, ScoreKind::Gatv2) => 2,
        _ => 3,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionGradientParams) {
        const { Lanes::<G, LANES, PARTS>::VALID }
        let block = s.block_idx();
        let heads = Lanes::<G, LANES, PARTS>::heads(s, p.heads, p.first_walk + s.block_idx_y());
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets a
        // barrier of the block; a warp stays together, whichever rows its lanes have.
        unsafe {
            if block < p.piece_count {
                let [row, first, end, slot] = s.load_readonly(p.pieces.at(block));
                let of = RowWalk::of_block(s, Groups::pairs(LANES), [row, first, end], ATTENTION_WARPS);
                let mut walk = Self::start(s, p, heads, of);
                let sums = Self::walk(s, p, &mut walk);
                if s.warp() == 0 && first == s.load_readonly(p.offsets.at(row)) {
                    Self::keep_terms(s, p, &walk);
                }
                Self::each_sum(s, (&walk, &sums), |result, column, sum| {
                    s.store_shared(Self::sum_at(s.warp(), result, column), sum);
                });
                s.sync_block(); // RAW: sums of warps written -> added up
                Self::add_warps(s, p, [heads.walk, row, slot]);
                return;
            }
            let warp = (block - p.piece_count) * ATTENTION_WARPS + s.warp();
            let Some(of) = RowWalk::of_warp(s, Groups::pairs(LANES), p.lists(), warp) else { return };
            let mut walk = Self::start(s, p, heads, of);
            let sums = Self::walk(s, p, &mut walk);
            if of.is_own {
                Self::keep_terms(s, p, &walk);
                let store = |result, column, sum| {
                    if C::ADDITIVE && result == 0 {
                        if heads.leads {
                            p.finish(s, [heads.own, of.row, 0, 0], sum);
                        }
                    } else {
                        p.finish(s, [heads.first, of.row, result, column], sum);
                    }
                };
                Self::each_sum(s, (&walk, &sums), store);
            }
        }
    }
}

impl<C, P, G, const LANES: u32, const PARTS: usize> AttentionGradient<C, P, G, LANES, PARTS>
where
    C: ScoreForm,
    P: GradientPass,
    G: Gather<Element: Element<Sum = f32>>,
{
    /// Reads the row that a warp walks the entries of, and over rows what its scores become weights by.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn start<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        heads: LaneHeads,
        of: RowWalk,
    ) -> Walk<PARTS> {
        let row = of.row;
        let mut terms = [0.0; 4];
        // SAFETY: the caller's promise; only elements that are there are read.
        unsafe {
            let own = Scores::<C, G, LANES, PARTS>::own(s, &p.own[0], p.vector, (heads, row));
            let raw = Lanes::<G, LANES, PARTS>::fetch(s, &p.own[1], heads.first, row);
            let response = Lanes::<G, LANES, PARTS>::elements(s, raw);
            if !P::OVER_COLUMNS {
                let [max, sum] = s.load_readonly(p.states.at_wide(p.row_at(heads.own, row)));
                let mut out = [[0.0; 8]; PARTS];
                Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                    let column = Lanes::<G, LANES, PARTS>::column(s, part);
                    if column < p.out.columns {
                        out[part][e] =
                            p.out.load(s, p.out_type, p.out.at(heads.first, row, column + e as u32));
                    }
                });
                let term = Lanes::<G, LANES, PARTS>::product(s, heads, &response, &out);
                terms = row_terms([max, sum], term);
            }
            Walk { heads, of, own, response, terms }
        }
    }

    /// What the entries of a row add up to, the same in each of its ways.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(s: &S, p: &AttentionGradientParams, walk: &mut Walk<PARTS>) -> Pair<PARTS> {
        let mut sums = [[[0.0; 8]; PARTS]; 2];
        // SAFETY: the caller's promise; all lanes go on as long as one of them has entries, and have as many ways.
        unsafe {
            while walk.of.goes_on() {
                let [one, other] = walk.of.positions(s);
                // Not in a loop: what is under way stays in registers.
                let first = Self::gather(s, p, walk, one);
                let second = Self::gather(s, p, walk, other);
                Self::add(s, p, walk, &first, &mut sums);
                Self::add(s, p, walk, &second, &mut sums);
                walk.of.step();
            }
            let mut mask = LANES;
            while mask < LANES * walk.of.ways {
                each::<2>(|i| {
                    Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                        if Self::has(i, part, e) {
                            let sum = sums[i][part][e];
                            sums[i][part][e] = sum + f32::from_bits(s.shuffle_xor(sum.to_bits(), mask));
                        }
                    });
                });
                mask *= 2;
            }
        }
        Scores::<C, G, LANES, PARTS>::complete(&walk.own, &mut sums[0]);
        sums
    }

    /// The entry at a position, its rows under way; none behind the last.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn gather<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        walk: &Walk<PARTS>,
        position: u32,
    ) -> Fetched<G, PARTS> {
        let (row, response) = (Scores::<C, G, LANES, PARTS>::NONE, Lanes::<G, LANES, PARTS>::NONE);
        let mut entry = Fetched { position, other: 0, row, response, terms: walk.terms, bias: 0.0 };
        if position < walk.of.end {
            // SAFETY: the caller's promise; an entry names a row of what is gathered.
            unsafe {
                entry.other = s.load_readonly(p.entries.at(position));
                entry.row = Scores::<C, G, LANES, PARTS>::fetch(s, &p.gathered[0], walk.heads, entry.other);
                entry.response =
                    Lanes::<G, LANES, PARTS>::fetch(s, &p.gathered[1], walk.heads.first, entry.other);
                if P::OVER_COLUMNS {
                    entry.terms = s.load_readonly(p.terms.at_wide(p.row_at(walk.heads.own, entry.other)));
                    if p.positions != GlobalPtr::NULL {
                        entry.bias = p.bias.of(s, walk.heads.own, s.load_readonly(p.positions.at(position)));
                    }
                } else {
                    entry.bias = p.bias.of(s, walk.heads.own, position);
                }
            }
        }
        entry
    }

    /// Adds an entry to the sums, and over rows stores the gradient of its bias.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn add<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        walk: &Walk<PARTS>,
        entry: &Fetched<G, PARTS>,
        sums: &mut Pair<PARTS>,
    ) {
        let rows = (&walk.own, &entry.row);
        // SAFETY: the caller's promise; the gradient of a bias is one lane's.
        unsafe {
            let made = Scores::<C, G, LANES, PARTS>::made(s, (p.factors(), walk.heads), rows.0, rows.1);
            let score = Scores::<C, G, LANES, PARTS>::score(p.factors(), made, entry.bias);
            let of_entry = Lanes::<G, LANES, PARTS>::elements(s, entry.response);
            let response = Lanes::<G, LANES, PARTS>::product(s, walk.heads, &walk.response, &of_entry);
            if entry.position >= walk.of.end {
                return;
            }
            let [base, inverse, term, _] = entry.terms;
            let weight = s.exp2((score - base) * LOG2_E) * inverse;
            let (row, column) =
                if P::OVER_COLUMNS { (entry.other, walk.of.row) } else { (walk.of.row, entry.other) };
            let slope = weight * (p.dropped.kept(walk.heads.own, row, column, response) - term);
            let given = (made, entry.bias, slope);
            let of_bias = Scores::<C, G, LANES, PARTS>::accumulate(s, p.factors(), rows, given, &mut sums[0]);
            if Self::OF_VECTOR {
                Scores::<C, G, LANES, PARTS>::accumulate_vector(s, p.factors(), rows, slope, &mut sums[1]);
            }
            if P::OVER_COLUMNS {
                let kept = p.dropped.kept(walk.heads.own, row, column, weight);
                Lanes::<G, LANES, PARTS>::accumulate(s, kept, entry.response, &mut sums[1]);
            } else if p.bias_gradient != GlobalPtr::NULL && walk.heads.leads {
                let to = p.bias_gradient.at_wide(p.bias.at(walk.heads.own, entry.position));
                let before = if p.adds_bias_gradient == 0 { 0.0 } else { s.load(to) };
                s.store(to, before + of_bias);
            }
        }
    }

    /// Leaves what the pass over columns needs of a row.
    ///
    /// # Safety
    /// The obligations of the params; no other warp has the row.
    #[inline(always)]
    unsafe fn keep_terms<S: Simt>(s: &S, p: &AttentionGradientParams, walk: &Walk<PARTS>) {
        if !P::OVER_COLUMNS && walk.heads.leads && walk.of.tells(s) {
            // SAFETY: the caller's promise.
            unsafe { s.store(p.terms.at_wide(p.row_at(walk.heads.own, walk.of.row)), walk.terms) };
        }
    }

    /// Calls `visit(result, column, sum)` for the sums of a row, each in one lane.
    #[inline(always)]
    fn each_sum<S: Simt>(
        s: &S,
        (walk, sums): (&Walk<PARTS>, &Pair<PARTS>),
        mut visit: impl FnMut(u32, u32, f32),
    ) {
        if walk.of.tells(s) {
            let column = |part| Lanes::<G, LANES, PARTS>::column(s, part);
            each::<2>(|i| {
                Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                    if Self::has(i, part, e) {
                        visit(i as u32, column(part) + e as u32, sums[i][part][e]);
                    }
                });
            });
        }
    }

    /// Adds up what the warps have left of a piece, in their order: to the result, or to the piece's slot.
    ///
    /// # Safety
    /// The obligations of the params; all threads of the block are here, behind a barrier after all has been left.
    #[inline(always)]
    unsafe fn add_warps<S: Simt>(s: &S, p: &AttentionGradientParams, [walk, row, slot]: [u32; 3]) {
        let record = u64::from(gradient_partial_floats(Self::RESULTS, Self::WIDTH));
        let of_slot = u64::from(walk) * u64::from(p.slot_count) + u64::from(slot);
        let mut at = s.thread_idx();
        while at < Self::RESULTS * Self::WIDTH {
            let (result, column) = (at / Self::WIDTH, at % Self::WIDTH);
            if let Some([head, of_head]) = p.place(walk, C::ADDITIVE && result == 0, column) {
                // SAFETY: the caller's promise; the element is this thread's.
                unsafe {
                    let mut sum = 0.0;
                    each::<{ ATTENTION_WARPS as usize }>(|warp| {
                        let of_warp: f32 = s.load_shared(Self::sum_at(warp as u32, result, column));
                        sum += of_warp;
                    });
                    if slot == NO_SLOT {
                        p.finish(s, [head, row, result, of_head], sum);
                    } else {
                        s.store(p.partial.at_wide(of_slot * record).at(at), sum);
                    }
                }
            }
            at += s.block_dim();
        }
    }
}

impl AttentionGradientParams {
    const fn lists(&self) -> RowLists {
        RowLists {
            offsets: self.offsets,
            rows: self.rows,
            longest: self.longest,
            warp_rows_log2: self.warp_rows_log2,
        }
    }

    /// Where states and terms of a row are.
    #[inline(always)]
    pub(super) const fn row_at(&self, head: u32, row: u32) -> u64 {
        head as u64 * self.matrix_rows as u64 + row as u64
    }

    /// The head and the column of it that sums of a walk's column are for: of numbers, one a head, sums are where the
    /// columns of their head begin, and none elsewhere. Others go by the first head.
    #[inline(always)]
    pub(super) const fn place(&self, walk: u32, of_numbers: bool, column: u32) -> Option<[u32; 2]> {
        let first = self.heads.first(walk);
        match of_numbers {
            false => Some([first, column]),
            true if self.heads.begins(column) => Some([first + self.heads.of_column(column), 0]),
            true => None,
        }
    }

    /// Writes an element of a gradient whose sum is complete, if there is such a column.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the element.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simt>(&self, s: &S, [head, row, result, column]: [u32; 4], sum: f32) {
        let SumsTo { matrix: to, scale, code } = if result == 0 { &self.sums[0] } else { &self.sums[1] };
        if column < to.columns {
            // SAFETY: the caller's promise.
            unsafe { to.store(s, *code, to.at(head, row, column), sum * scale) };
        }
    }
}

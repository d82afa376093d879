//! What products with vector-wise N:M weights know before they start: which rows of the activations each block of
//! columns needs, and which of them each kept row takes.

use rayon::prelude::*;
use windrow_formats::memory::{make_room, try_collect, try_filled};
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};

use super::{NO_ROW, row_number, short};

/// How a kernel cuts weights into pieces.
///
/// # Examples
/// ```
/// use windrow_preprocess::nm::BlockShape;
///
/// let shape = BlockShape {
///     block_columns: 128,
///     strip_columns: 32,
///     kept_per_stage: 16,
///     depth_multiple: 8,
///     packed: true,
/// };
/// assert_eq!((shape.strips(), shape.depth()), (4, 16));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShape {
    /// Columns of a block: a multiple of `strip_columns`.
    pub block_columns: usize,
    /// Columns of a strip, which share one list of picks: a strip lies inside one vector, so this divides `L`, unless
    /// there is one vector only.
    pub strip_columns: usize,
    /// Kept rows of a stage, except the last; unless `packed`, whole groups: a multiple of `N`.
    pub kept_per_stage: usize,
    /// What the number of picks of a stage is rounded up to a multiple of.
    pub depth_multiple: usize,
    /// Whether a stage brings only the rows that strips of the block pick in it, not all of its groups.
    pub packed: bool,
}

impl BlockShape {
    /// Strips of a block.
    #[must_use]
    pub const fn strips(self) -> usize {
        self.block_columns / self.strip_columns
    }

    /// Picks of a strip in a stage.
    #[must_use]
    pub const fn depth(self) -> usize {
        self.kept_per_stage.next_multiple_of(self.depth_multiple)
    }

    /// Most slots that a stage can need for weights with so many columns: what shared memory must have room for,
    /// whatever is kept. If there are enough blocks and stages, weights exist that need them all.
    #[must_use]
    pub fn most_slots(self, pattern: NmPattern, columns: usize) -> usize {
        self.most_rows(pattern, columns).next_multiple_of(SLOT_MULTIPLE)
    }

    /// Most rows that a stage can bring.
    fn most_rows(self, pattern: NmPattern, columns: usize) -> usize {
        let (n, m, kept) = (pattern.n(), pattern.m(), self.kept_per_stage);
        if !self.packed {
            return kept.div_ceil(n) * m;
        }
        let vectors = most_touched(self.block_columns, pattern.l()).min(pattern.vectors(columns));
        // What a stage has of a group: a row for each kept row and vector. But positions ascend, so the group's kept
        // rows before and behind the stage, N − part of them, leave as many rows at its ends to the other stages.
        let of_group = |part: usize| (vectors * part).min(m - n + part);
        let of_stage = |skipped: usize| {
            let first = kept.min(n - skipped);
            let behind = kept - first;
            of_group(first) + behind / n * of_group(n) + of_group(behind % n)
        };
        // Stages begin at multiples of their kept rows, so at these places of a group.
        (0..n).step_by(gcd(kept, n)).map(of_stage).max().unwrap_or(0)
    }
}

/// Most cells of `cell` elements in which a run of `run` elements lies that begins at a multiple of `run`.
const fn most_touched(run: usize, cell: usize) -> usize {
    // It begins at multiples of the common divisor in a cell, at the latest so many elements before its end.
    1 + (run - gcd(run, cell)).div_ceil(cell)
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What the number of slots is a multiple of, so that kernels read lists in vectors.
const SLOT_MULTIPLE: usize = 8;

/// What memory is for.
const ROWS: &str = "rows of stages";
const PICKS: &str = "picks of strips";

/// The offline preprocessing of NM-SpMM (section III-C): `col_info` and the reordered `D`.
///
/// The columns of `W[k × n]` are cut into *blocks*, blocks into *strips* that lie inside one vector, and the `w` kept
/// rows into *stages*. A kernel brings the rows of the k-major activations that a (block, stage) needs into the *slots*
/// of a slab; then it adds, for each strip, the products of kept row and picked slot:
///
/// ```text
/// rows(block, stage)[slot]           -> row of W, so of k-major A         `NO_ROW`: none
/// picks(stage, block, strip)[place]  -> slot of the place's kept row      `slots`: the slab row that holds zeros
/// kept(stage, place)                 -> kept row                          the same for all blocks
/// ```
///
/// Invariants, for every strip that begins before column `n`, with `v` the vector of its columns:
///
/// - every kept row `u < w` is `kept(stage, place)` of exactly one place;
/// - there, `rows(block, stage)[picks(block, stage, strip)[place]] = weights.source_row(u, v)`;
/// - other places, and all places of strips from column `n` on, pick the zero slot;
/// - packed lists of rows ascend, and every row in one is picked by some strip of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    shape: BlockShape,
    blocks: usize,
    stages: usize,
    slots: usize,
    kept_rows: usize,
    columns: usize,
    /// (blocks or one, stages, slots)
    rows: Vec<u32>,
    /// (blocks, stages, strips, depth)
    picks: Vec<u16>,
}

impl Blocks {
    /// Preprocesses the pattern of `weights`. The same weights give the same result, whatever the number of threads.
    ///
    /// # Cost
    /// Two passes over the indices of each block, all threads; linear in `w · n / strip_columns` and, for each block,
    /// in the rows of the groups that its stages touch.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If `shape` breaks what its fields document, or a stage has 2¹⁶ slots or more: `shape` is a kernel's choice.
    pub fn new<T: Sync>(weights: &VectorNm<T>, shape: BlockShape) -> Result<Self, OutOfMemory> {
        let pattern = weights.pattern();
        let (kept_rows, columns) = (weights.kept_rows(), weights.cols());
        assert!(
            shape.strip_columns > 0 && shape.block_columns.is_multiple_of(shape.strip_columns),
            "{shape:?}"
        );
        assert!(
            pattern.l().is_multiple_of(shape.strip_columns) || pattern.l() >= columns,
            "strips of {} columns in {pattern}",
            shape.strip_columns
        );
        assert!(shape.kept_per_stage > 0 && shape.depth_multiple > 0, "{shape:?}");
        assert!(
            shape.packed || shape.kept_per_stage.is_multiple_of(pattern.n()),
            "stages of {} rows in {pattern}",
            shape.kept_per_stage
        );
        let stages = kept_rows.div_ceil(shape.kept_per_stage);
        let blocks = columns.div_ceil(shape.block_columns);
        let (rows, slots) = match shape.packed {
            true => packed_rows(weights, shape, blocks, stages)?,
            false => plain_rows(weights, shape, stages)?,
        };
        assert!(slots < 1 << 16, "{slots} slots are more than picks can name");
        let mut this = Self { shape, blocks, stages, slots, kept_rows, columns, rows, picks: Vec::new() };
        this.picks = this.all_picks(weights)?;
        Ok(this)
    }

    /// How the weights are cut.
    #[must_use]
    pub fn shape(&self) -> BlockShape {
        self.shape
    }

    /// How many blocks the columns are cut into.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Stages of kept rows.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// Slots of a stage, a multiple of 8; also the number of the zero slot.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Picks of a strip in a stage.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// The row of `W` in each slot of a stage; [`NO_ROW`] for none.
    ///
    /// # Panics
    /// If there is no such block or stage.
    #[must_use]
    pub fn rows(&self, block: usize, stage: usize) -> &[u32] {
        assert!(block < self.blocks && stage < self.stages, "no stage {stage} of block {block}");
        let list = if self.shape.packed { block } else { 0 };
        &self.rows[(list * self.stages + stage) * self.slots..][..self.slots]
    }

    /// All lists of rows, (blocks, stages, slots) if packed, else (stages, slots): the same for every block.
    #[must_use]
    pub fn row_lists(&self) -> &[u32] {
        &self.rows
    }

    /// The slot that each place of a strip picks in a stage.
    ///
    /// # Panics
    /// If there is no such block, stage or strip.
    #[must_use]
    pub fn picks(&self, block: usize, stage: usize, strip: usize) -> &[u16] {
        let strips = self.shape.strips();
        assert!(block < self.blocks && stage < self.stages && strip < strips, "no such strip");
        &self.picks[((block * self.stages + stage) * strips + strip) * self.depth()..][..self.depth()]
    }

    /// All lists of picks, (blocks, stages, strips, depth).
    #[must_use]
    pub fn pick_lists(&self) -> &[u16] {
        &self.picks
    }

    /// The kept row in a place of a stage, for all strips alike; `None` where the stage has fewer.
    #[must_use]
    pub fn kept(&self, stage: usize, place: usize) -> Option<usize> {
        let kept = stage * self.shape.kept_per_stage + place;
        (place < self.shape.kept_per_stage && kept < self.kept_rows).then_some(kept)
    }

    /// The kept values, w × n, as the stages take them: (blocks, stages, depth, block columns), zero where a place has
    /// no kept row and beyond the last column.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// Unless there are as many values as the weights have that the blocks were made of.
    pub fn arrange<T: Copy + Default + Send + Sync>(&self, values: &[T]) -> Result<Vec<T>, OutOfMemory> {
        let (width, columns) = (self.shape.block_columns, self.columns);
        assert_eq!(values.len(), self.kept_rows * columns, "values of other weights");
        let len = self.blocks * self.stages * self.depth() * width;
        let mut arranged = try_filled(len, T::default(), "values as stages take them")?;
        if arranged.is_empty() {
            return Ok(arranged);
        }
        let of_stage = self.depth() * width;
        arranged.par_chunks_mut(of_stage).enumerate().for_each(|(at, arranged)| {
            let (block, stage) = (at / self.stages, at % self.stages);
            let first = block * width;
            let present = width.min(columns - first);
            for (place, row) in arranged.chunks_mut(width).enumerate() {
                if let Some(kept) = self.kept(stage, place) {
                    row[..present].copy_from_slice(&values[kept * columns + first..][..present]);
                }
            }
        });
        Ok(arranged)
    }

    fn all_picks<T: Sync>(&self, weights: &VectorNm<T>) -> Result<Vec<u16>, OutOfMemory> {
        let (shape, pattern) = (self.shape, weights.pattern());
        let of_stage = shape.strips() * self.depth();
        let zero_slot = short(self.slots);
        let mut picks = try_filled(self.blocks * self.stages * of_stage, zero_slot, PICKS)?;
        if picks.is_empty() {
            return Ok(picks);
        }
        let of_block = picks.par_chunks_mut(self.stages * of_stage).enumerate();
        of_block.try_for_each(|(block, picks)| {
            let mut slot_of = Vec::new();
            for (stage, picks) in picks.chunks_mut(of_stage).enumerate() {
                let span = Span::of(weights, shape, stage);
                slot_of.clear();
                make_room(&mut slot_of, span.rows, "slots of a stage")?;
                slot_of.resize(span.rows, zero_slot);
                for (slot, &row) in (0..).zip(self.rows(block, stage)) {
                    if row != NO_ROW {
                        slot_of[row as usize - span.first_row] = slot;
                    }
                }
                for (strip, picks) in picks.chunks_mut(self.depth()).enumerate() {
                    let column = block * shape.block_columns + strip * shape.strip_columns;
                    if column < weights.cols() {
                        let vector = column / pattern.l();
                        for (place, kept) in span.kept.clone().enumerate() {
                            picks[place] = slot_of[weights.source_row(kept, vector) - span.first_row];
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(picks)
    }
}

/// The kept rows of a stage and the rows of their groups.
struct Span {
    kept: std::ops::Range<usize>,
    first_row: usize,
    rows: usize,
}

impl Span {
    fn of<T>(weights: &VectorNm<T>, shape: BlockShape, stage: usize) -> Self {
        let start = stage * shape.kept_per_stage;
        let kept = start..(start + shape.kept_per_stage).min(weights.kept_rows());
        let group = weights.pattern().m();
        let first_row = weights.group_of(kept.start) * group;
        let end_row = ((weights.group_of(kept.end - 1) + 1) * group).min(weights.rows());
        Self { kept, first_row, rows: end_row - first_row }
    }
}

/// Every row of each stage's groups, and the number of slots.
fn plain_rows<T>(
    weights: &VectorNm<T>,
    shape: BlockShape,
    stages: usize,
) -> Result<(Vec<u32>, usize), OutOfMemory> {
    let pattern = weights.pattern();
    let rows_per_stage = shape.kept_per_stage / pattern.n() * pattern.m();
    let slots = rows_per_stage.next_multiple_of(SLOT_MULTIPLE);
    let mut rows = try_filled(stages * slots, NO_ROW, ROWS)?;
    for (stage, rows) in rows.chunks_mut(slots).enumerate() {
        for (slot, row) in rows.iter_mut().enumerate().take(rows_per_stage) {
            let number = stage * rows_per_stage + slot;
            if number < weights.rows() {
                *row = row_number(number);
            }
        }
    }
    Ok((rows, slots))
}

/// The rows that strips of a block pick, stage after stage.
#[derive(Default)]
struct Union {
    rows: Vec<u32>,
    /// Where the rows of each stage end.
    ends: Vec<usize>,
}

impl Union {
    /// Finds those of the block whose columns these are.
    fn fill<T: Sync>(
        &mut self,
        weights: &VectorNm<T>,
        shape: BlockShape,
        stages: usize,
        columns: std::ops::Range<usize>,
    ) -> Result<(), OutOfMemory> {
        let l = weights.pattern().l();
        let vectors = columns.start / l..=(columns.end - 1) / l;
        let mut marks = Vec::new();
        make_room(&mut self.ends, stages, ROWS)?;
        for stage in 0..stages {
            let span = Span::of(weights, shape, stage);
            marks.clear();
            make_room(&mut marks, span.rows, "marks of a stage")?;
            marks.resize(span.rows, false);
            for kept in span.kept {
                for vector in vectors.clone() {
                    marks[weights.source_row(kept, vector) - span.first_row] = true;
                }
            }
            make_room(&mut self.rows, marks.iter().filter(|marked| **marked).count(), ROWS)?;
            let marked = marks.iter().enumerate().filter(|(_, marked)| **marked);
            self.rows.extend(marked.map(|(at, _)| row_number(span.first_row + at)));
            self.ends.push(self.rows.len());
        }
        Ok(())
    }

    /// The rows of each stage.
    fn of_stages(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.rows[start..end])
    }
}

/// The rows that strips of a block pick in each stage, ascending, and the number of slots.
fn packed_rows<T: Sync>(
    weights: &VectorNm<T>,
    shape: BlockShape,
    blocks: usize,
    stages: usize,
) -> Result<(Vec<u32>, usize), OutOfMemory> {
    let mut unions = try_collect((0..blocks).map(|_| Union::default()), ROWS)?;
    unions.par_iter_mut().enumerate().try_for_each(|(block, union)| {
        let first = block * shape.block_columns;
        let end = (first + shape.block_columns).min(weights.cols());
        union.fill(weights, shape, stages, first..end)
    })?;
    let most = unions.iter().flat_map(Union::of_stages).map(<[u32]>::len).max().unwrap_or(0);
    let slots = most.next_multiple_of(SLOT_MULTIPLE);
    let mut rows = try_filled(blocks * stages * slots, NO_ROW, ROWS)?;
    if slots > 0 {
        rows.chunks_mut(slots)
            .zip(unions.iter().flat_map(Union::of_stages))
            .for_each(|(rows, union)| rows[..union.len()].copy_from_slice(union));
    }
    Ok((rows, slots))
}

#[cfg(test)]
pub(super) mod tests;

//! Weights in the order that the instruction for two of four rows takes them.

use std::ops::Range;

use windrow_formats::memory::{try_filled, try_zeroed};
use windrow_formats::{OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{
    NOT_KEPT, RUN_COLUMNS, SPARSE_METADATA_BYTES, SPARSE_NEUTRAL, SPARSE_VALUE_BYTES, STAGE_SLOTS,
    picked_order_index, sparse_metadata_at, sparse_value_index,
};
use windrow_preprocess::nm::{Fours, NO_ROW};

use super::ORDER;
use crate::cpu::each_chunk;
use crate::nm::placing::{DeviceValues, Placement, strip};
use crate::num::{index, narrow};

/// Rows of which two are kept.
pub(in crate::nm) const FOUR: usize = 4;
/// Fours of a stage.
const FOURS: usize = STAGE_SLOTS as usize / FOUR;
/// Places for kept rows of a stage.
const DEPTH: usize = 2 * FOURS;
/// Columns of a run, which a warpgroup multiplies at once.
const RUN: usize = RUN_COLUMNS as usize;
/// Values of a run in a stage, and words of its metadata.
const VALUES: usize = SPARSE_VALUE_BYTES as usize / 2;
const METADATA: usize = SPARSE_METADATA_BYTES as usize / 4;
/// Runs of a tile, at most.
const MOST_RUNS: usize = 4;

/// A kept row, if there is one, and which row of its four it is.
pub(in crate::nm) type Place = (Option<usize>, u32);

/// The two places that a vector has in four rows, in ascending order; where less is kept, those without a row fill up,
/// then others.
pub(in crate::nm) fn two_of_four<V>(
    weights: &VectorNm<V>,
    vector: usize,
    rows: [Option<usize>; FOUR],
) -> [Place; 2] {
    // Which kept row of the vector a row is.
    let kept_of = |row: usize| {
        let mut of_group = weights.kept_of_group(row / weights.pattern().m());
        of_group.find(|&kept| weights.source_row(kept, vector) == row)
    };
    let kept = rows.map(|row| row.and_then(kept_of));
    let all = 0..FOUR;
    let is_kept = all.clone().filter(|&at| kept[at].is_some());
    let is_empty = all.clone().filter(|&at| rows[at].is_none());
    let others = all.filter(|&at| rows[at].is_some() && kept[at].is_none());
    let mut chosen = is_kept.chain(is_empty).chain(others);
    // There are four, of which each is in one of these.
    let [one, other] = [chosen.next(), chosen.next()].map(Option::unwrap_or_default);
    [one.min(other), one.max(other)].map(|at| (kept[at], narrow(at)))
}

/// The order of weights for tiles of so many columns. A *chunk* is what a tile takes in a stage: the values of all runs
/// of 64 columns, and then their metadata.
pub(super) struct Packing<'a, V> {
    weights: &'a VectorNm<V>,
    /// Columns of a tile.
    columns: usize,
    /// The order of rows in slots; none if they are as they come.
    order: Option<&'a Fours>,
}

impl<'a, V: Sync> Packing<'a, V> {
    pub(super) fn new(weights: &'a VectorNm<V>, columns: u32, order: Option<&'a Fours>) -> Self {
        Self { weights, columns: index(u64::from(columns)), order }
    }

    /// Stages of the inner dimension, or of its order.
    pub(super) fn stages(&self) -> usize {
        self.order.map_or(self.weights.rows(), Fours::slots).div_ceil(FOUR * FOURS)
    }

    fn chunks(&self) -> usize {
        self.weights.cols().div_ceil(self.columns) * self.stages()
    }

    fn runs(&self) -> usize {
        self.columns / RUN
    }

    /// Columns of `C` of a chunk, and the rows in each of its fours.
    fn at(&self, chunk: usize) -> (Range<usize>, impl Fn(usize) -> [Option<usize>; FOUR]) {
        let (tile, stage) = (chunk / self.stages(), chunk % self.stages());
        let (first, rows) = (tile * self.columns, self.weights.rows());
        let of_four = move |four: usize| {
            let slot = (stage * FOURS + four) * FOUR;
            std::array::from_fn(|i| match self.order {
                None => (slot + i < rows).then_some(slot + i),
                Some(order) => {
                    let row = order.rows()[tile * order.slots() + slot + i];
                    (row != NO_ROW).then(|| index(u64::from(row)))
                }
            })
        };
        (first..(first + self.columns).min(self.weights.cols()), of_four)
    }

    /// Visits the places of all columns of a chunk that there are: the column, counted from the tile's first, the four,
    /// counted from the stage's first, and what the two places hold.
    fn each(&self, chunk: usize, mut visit: impl FnMut(usize, usize, [Place; 2])) {
        let (columns, rows) = self.at(chunk);
        let mut begin = columns.start;
        while begin < columns.end {
            let vector = begin / self.weights.pattern().l();
            let end = self.weights.vector_columns(vector).end.min(columns.end);
            for four in 0..FOURS {
                let places = two_of_four(self.weights, vector, rows(four));
                (begin..end).for_each(|column| visit(column - columns.start, four, places));
            }
            begin = end;
        }
    }

    /// (tiles of columns, stages, 64): which row is in which slot, as the kernel reads them; none if they are as they
    /// come.
    pub(super) fn rows(&self) -> Result<Option<Vec<u32>>, OutOfMemory> {
        let Some(order) = self.order else { return Ok(None) };
        let mut rows = try_filled(order.rows().len(), NO_ROW, ORDER)?;
        let stage = index(u64::from(STAGE_SLOTS));
        for (to, from) in rows.chunks_mut(stage).zip(order.rows().chunks(stage)) {
            for (slot, &row) in (0..).zip(from) {
                to[index(u64::from(picked_order_index(slot)))] = row;
            }
        }
        Ok(Some(rows))
    }

    /// The metadata of a chunk.
    fn metadata(&self, chunk: usize, words: &mut [u32]) {
        words.fill(SPARSE_NEUTRAL * 0x1111_1111);
        self.each(chunk, |column, four, [(_, first), (_, second)]| {
            let (word, bit) = sparse_metadata_at(narrow(column % RUN), narrow(four));
            let word = &mut words[column / RUN * METADATA + index(u64::from(word))];
            *word ^= ((first | second << 2) ^ SPARSE_NEUTRAL) << bit;
        });
    }

    /// Where in a chunk the value in one of the two places of a four is.
    fn value_index(column: usize, four: usize, place: usize) -> usize {
        let of_run = sparse_value_index(narrow(column % RUN), narrow(four), narrow(place));
        column / RUN * VALUES + index(u64::from(of_run))
    }

    /// All chunks, of values in host memory.
    pub(super) fn pack(&self, given: &[u16]) -> Result<Vec<u16>, OutOfMemory> {
        let (values, metadata) = (self.runs() * VALUES, self.runs() * METADATA);
        let len = self.chunks() * (values + 2 * metadata);
        let mut packed = try_zeroed(len, "weights as kernels read them")?;
        each_chunk(&mut packed, values + 2 * metadata, &|chunk, packed: &mut [u16]| {
            let (of_values, of_metadata) = packed.split_at_mut(values);
            let first = self.at(chunk).0.start;
            self.each(chunk, |column, four, places| {
                for (place, (kept, _)) in places.into_iter().enumerate() {
                    if let Some(kept) = kept {
                        let value = given[kept * self.weights.cols() + first + column];
                        of_values[Self::value_index(column, four, place)] = value;
                    }
                }
            });
            let mut words = [0; MOST_RUNS * METADATA];
            self.metadata(chunk, &mut words[..metadata]);
            for (halves, word) in of_metadata.chunks_exact_mut(2).zip(words) {
                [halves[0], halves[1]] = [(word & 0xffff) as u16, (word >> 16) as u16];
            }
        });
        Ok(packed)
    }

    /// Which value is where in each chunk, of values on the device.
    pub(super) fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let metadata = self.runs() * METADATA;
        let strip = strip(self.weights, self.columns);
        let strips = self.columns / strip;
        let mut kept = try_filled(self.chunks() * strips * DEPTH, NOT_KEPT, "kept rows")?;
        each_chunk(&mut kept, strips * DEPTH, &|chunk, of_chunk: &mut [u32]| {
            self.each(chunk, |column, four, places| {
                for (place, (row, _)) in places.into_iter().enumerate() {
                    of_chunk[column / strip * DEPTH + 2 * four + place] = row.map_or(NOT_KEPT, narrow);
                }
            });
        });
        let mut places = try_filled(self.runs() * VALUES, 0, "places of weights")?;
        for column in 0..self.columns {
            for place in 0..DEPTH {
                let at = Self::value_index(column, place / 2, place % 2);
                places[at] = narrow(place) << 16 | narrow(column);
            }
        }
        let mut others = try_zeroed(self.chunks() * metadata, "metadata of weights")?;
        each_chunk(&mut others, metadata, &|chunk, words: &mut [u32]| self.metadata(chunk, words));
        Ok(Placement {
            given,
            kept,
            places,
            others,
            chunks: self.chunks(),
            chunks_per_group: self.stages(),
            group_columns: self.columns,
            strips,
            strip,
            depth: DEPTH,
            before: 0,
            after: metadata,
            tail: 0,
            dtype,
        })
    }
}

//! Weights in the order that the instruction for two of four rows takes them.

use std::ops::Range;

use windrow_formats::memory::{try_filled, try_zeroed};
use windrow_formats::{OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{
    NOT_KEPT, SPARSE_COLUMNS, SPARSE_METADATA_BYTES, SPARSE_NEUTRAL, SPARSE_STAGE, SPARSE_VALUE_BYTES,
    sparse_metadata_at, sparse_value_index,
};

use crate::cpu::each_chunk;
use crate::nm::placing::{DeviceValues, Placement};
use crate::num::{index, narrow};
use crate::plan::Bits;

/// Rows of which two are kept.
const FOUR: usize = 4;
/// Fours of a stage.
const FOURS: usize = SPARSE_STAGE as usize / FOUR;
/// Places for kept rows of a stage.
const DEPTH: usize = 2 * FOURS;
/// Columns of a run, which a warpgroup multiplies at once.
const RUN: usize = SPARSE_COLUMNS as usize;
/// Values of a run in a stage, and words of its metadata.
const VALUES: usize = SPARSE_VALUE_BYTES as usize / 2;
const METADATA: usize = SPARSE_METADATA_BYTES as usize / 4;
/// Runs of a tile, at most.
const MOST_RUNS: usize = 4;

/// A kept row, if there is one, and which row of its four it is.
type Place = (Option<usize>, u32);

/// The order of weights for tiles of so many columns. A *chunk* is what a tile takes in a stage: the values of all runs
/// of 64 columns, and then their metadata.
pub(super) struct Packing<'a, V> {
    weights: &'a VectorNm<V>,
    /// Columns of a tile.
    columns: usize,
}

impl<'a, V: Sync> Packing<'a, V> {
    pub(super) fn new(weights: &'a VectorNm<V>, columns: u32) -> Self {
        Self { weights, columns: index(u64::from(columns)) }
    }

    /// Stages of the inner dimension.
    pub(super) fn stages(&self) -> usize {
        self.weights.rows().div_ceil(FOUR * FOURS)
    }

    fn chunks(&self) -> usize {
        self.weights.cols().div_ceil(self.columns) * self.stages()
    }

    fn runs(&self) -> usize {
        self.columns / RUN
    }

    /// Columns of `C` of a chunk, and the first of its fours.
    fn at(&self, chunk: usize) -> (Range<usize>, usize) {
        let first = chunk / self.stages() * self.columns;
        let end = (first + self.columns).min(self.weights.cols());
        (first..end, chunk % self.stages() * FOURS)
    }

    /// The two places that a vector has in four rows, in ascending order; where less is kept, others fill up.
    fn places(&self, vector: usize, four: usize) -> [Place; 2] {
        let pattern = self.weights.pattern();
        let rows = four * FOUR..((four + 1) * FOUR).min(self.weights.rows());
        let groups = rows.start / pattern.m()..rows.end.div_ceil(pattern.m());
        let kept = groups.flat_map(|group| self.weights.kept_of_group(group));
        let mut kept = kept.filter_map(|kept| {
            let row = self.weights.source_row(kept, vector);
            rows.contains(&row).then(|| (Some(kept), narrow(row - rows.start)))
        });
        match [kept.next(), kept.next()] {
            [Some(first), Some(second)] => [first, second],
            [Some(last @ (_, 3)), None] => [(None, 0), last],
            [Some(first), None] => [first, (None, 3)],
            _ => [(None, 0), (None, 1)],
        }
    }

    /// Visits the places of all columns of a chunk that there are: the column, counted from the tile's first, the four,
    /// counted from the stage's first, and what the two places hold.
    fn each(&self, chunk: usize, mut visit: impl FnMut(usize, usize, [Place; 2])) {
        let (columns, first_four) = self.at(chunk);
        let mut begin = columns.start;
        while begin < columns.end {
            let vector = begin / self.weights.pattern().l();
            let end = self.weights.vector_columns(vector).end.min(columns.end);
            for four in 0..FOURS {
                let places = self.places(vector, first_four + four);
                (begin..end).for_each(|column| visit(column - columns.start, four, places));
            }
            begin = end;
        }
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

    /// All chunks, of values in host memory; none of types that the instruction does not take.
    pub(super) fn weights(&self, values: &Bits) -> Result<Option<Bits>, OutOfMemory> {
        Ok(match values {
            Bits::F16(values) => Some(Bits::F16(self.pack(values)?)),
            Bits::Bf16(values) => Some(Bits::Bf16(self.pack(values)?)),
            Bits::F32(_) | Bits::Tf32(_) | Bits::F64(_) => None,
        })
    }

    fn pack(&self, given: &[u16]) -> Result<Vec<u16>, OutOfMemory> {
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
        // Columns of a strip are of one vector, wherever a tile begins.
        let l = self.weights.pattern().l();
        let strip = if l < self.weights.cols() { gcd(l, self.columns) } else { self.columns };
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

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

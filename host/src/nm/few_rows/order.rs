//! What goes where in the arrays of a product of few rows.

use windrow_formats::memory::{try_filled, try_zeroed};
use windrow_formats::{OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{
    FEW_ROWS_DEPTH, FEW_ROWS_UNIT, NOT_KEPT, SPARSE_NEUTRAL, few_rows_metadata_at, few_rows_pick_index,
    few_rows_weight_index,
};

use super::choice::Choice;
use crate::cpu::each_chunk;
use crate::nm::placing::{DeviceValues, Placement, strip};
use crate::nm::warpgroups::{FOUR, Place, two_of_four};
use crate::num::{index, narrow};

/// Kept rows of a step, or places for them.
const DEPTH: usize = FEW_ROWS_DEPTH as usize;
/// Fours of a step, each with two places.
const FOURS: usize = DEPTH / 2;
const UNIT: usize = FEW_ROWS_UNIT as usize;
/// Weights of a unit of columns in a step.
const OF_UNIT: usize = DEPTH * UNIT;

/// The order of weights for an instance. A *chunk* is what a strip of columns has in a step.
pub(super) struct Order<'a, V> {
    pub(super) weights: &'a VectorNm<V>,
    pub(super) choice: Choice,
}

impl<V: Sync> Order<'_, V> {
    fn is_sparse(&self) -> bool {
        self.choice.cut.sparse
    }

    fn steps(&self) -> usize {
        index(u64::from(self.choice.cut.steps))
    }

    /// Columns of a strip.
    fn strip(&self) -> usize {
        index(u64::from(self.choice.tile.columns))
    }

    fn chunks(&self) -> usize {
        self.weights.cols().div_ceil(self.strip()) * self.steps()
    }

    /// Columns of the strip's runs that keep the same rows, each inside one vector.
    fn run(&self) -> usize {
        strip(self.weights, self.strip())
    }

    /// The first column of a chunk, and its step.
    fn at(&self, chunk: usize) -> (usize, usize) {
        (chunk / self.steps() * self.strip(), chunk % self.steps())
    }

    /// The columns of a chunk that there are, in runs that keep the same rows: the first of each counted from the
    /// chunk's, how many they are, and their vector.
    fn runs(&self, chunk: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (first, _) = self.at(chunk);
        let (columns, run, l) = (self.weights.cols(), self.run(), self.weights.pattern().l());
        let begins = (0..self.strip()).step_by(run).take_while(move |begin| first + begin < columns);
        begins.map(move |begin| (begin, run.min(columns - first - begin), (first + begin) / l))
    }

    /// The kept row in each place of a step for a vector, if there is one.
    fn kept(&self, step: usize, vector: usize) -> [Option<usize>; DEPTH] {
        match self.is_sparse() {
            true => {
                let fours: [[Place; 2]; FOURS] = std::array::from_fn(|four| self.places(step, four, vector));
                std::array::from_fn(|place| fours[place / 2][place % 2].0)
            }
            false => std::array::from_fn(|place| {
                let kept = step * DEPTH + place;
                (kept < self.weights.kept_rows()).then_some(kept)
            }),
        }
    }

    /// The two places that a vector has in a four of a step.
    fn places(&self, step: usize, four: usize, vector: usize) -> [Place; 2] {
        let first = (step * FOURS + four) * FOUR;
        let rows = std::array::from_fn(|i| (first + i < self.weights.rows()).then_some(first + i));
        two_of_four(self.weights, vector, rows)
    }

    /// Which activations the weights of each chunk multiply, as the kernel has it.
    pub(super) fn names(&self) -> Result<Vec<u32>, OutOfMemory> {
        if self.is_sparse() { self.metadata() } else { self.picks() }
    }

    fn metadata(&self) -> Result<Vec<u32>, OutOfMemory> {
        // Of columns that there are not, the first two of each four are named.
        let neutral = SPARSE_NEUTRAL * 0x1111_1111;
        let words = self.strip();
        let mut metadata = try_filled(self.chunks() * words, neutral, "metadata of weights")?;
        each_chunk(&mut metadata, words, &|chunk, words| {
            let (_, step) = self.at(chunk);
            for (first, count, vector) in self.runs(chunk) {
                for four in 0..FOURS {
                    let [(_, one), (_, other)] = self.places(step, four, vector);
                    for column in first..first + count {
                        let (word, bit) = few_rows_metadata_at(narrow(column), narrow(four));
                        words[index(u64::from(word))] ^= (SPARSE_NEUTRAL ^ (one | other << 2)) << bit;
                    }
                }
            }
        });
        Ok(metadata)
    }

    /// Offsets in bytes in rows of windows, two a word.
    fn picks(&self) -> Result<Vec<u32>, OutOfMemory> {
        // An instance has windows of fewer than 2¹⁵ columns.
        let zeros = 2 * self.choice.tile.few_rows_window();
        let mut picks = try_filled(self.chunks() * DEPTH / 2, zeros << 16 | zeros, "picks of strips")?;
        each_chunk(&mut picks, DEPTH / 2, &|chunk, picks| {
            let (first, step) = self.at(chunk);
            let (vector, begin) = (first / self.weights.pattern().l(), self.choice.cut.first_column(step));
            for (place, kept) in (0..).zip(self.kept(step, vector)) {
                if let Some(kept) = kept {
                    let offset = 2 * narrow(self.weights.source_row(kept, vector) - begin);
                    let to = few_rows_pick_index(place);
                    let shift = 16 * (to % 2);
                    let word = &mut picks[index(u64::from(to / 2))];
                    *word = *word & !(0xffff << shift) | offset << shift;
                }
            }
        });
        Ok(picks)
    }

    /// Where in a chunk the weight of a place and column is.
    fn value_index(place: usize, column: usize) -> usize {
        let of_unit = few_rows_weight_index(narrow(place), narrow(column % UNIT));
        column / UNIT * OF_UNIT + index(u64::from(of_unit))
    }

    /// `given`, w × columns, in the order of registers; zeros where nothing is kept.
    pub(super) fn values(&self, given: &[u16]) -> Result<Vec<u16>, OutOfMemory> {
        let of_chunk = DEPTH * self.strip();
        let mut values = try_zeroed(self.chunks() * of_chunk, "weights as kernels read them")?;
        each_chunk(&mut values, of_chunk, &|chunk, values: &mut [u16]| {
            let (of_strip, step) = self.at(chunk);
            for (first, count, vector) in self.runs(chunk) {
                for (place, kept) in self.kept(step, vector).into_iter().enumerate() {
                    let Some(kept) = kept else { continue };
                    let of_row = &given[kept * self.weights.cols() + of_strip + first..][..count];
                    for (column, &value) in (first..).zip(of_row) {
                        values[Self::value_index(place, column)] = value;
                    }
                }
            }
        });
        Ok(values)
    }

    /// Which kept value is where, of values on the device.
    pub(super) fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let (run, runs) = (self.run(), self.strip() / self.run());
        let mut kept = try_filled(self.chunks() * runs * DEPTH, NOT_KEPT, "kept rows")?;
        each_chunk(&mut kept, runs * DEPTH, &|chunk, of_chunk| {
            let (_, step) = self.at(chunk);
            for (first, _, vector) in self.runs(chunk) {
                let of_run = &mut of_chunk[first / run * DEPTH..][..DEPTH];
                for (to, kept) in of_run.iter_mut().zip(self.kept(step, vector)) {
                    *to = kept.map_or(NOT_KEPT, narrow);
                }
            }
        });
        let mut places = try_filled(DEPTH * self.strip(), 0, "places of weights")?;
        for place in 0..DEPTH {
            for column in 0..self.strip() {
                places[Self::value_index(place, column)] = narrow(place) << 16 | narrow(column);
            }
        }
        Ok(Placement {
            given,
            kept,
            places,
            others: Vec::new(),
            chunks: self.chunks(),
            chunks_per_group: self.steps(),
            group_columns: self.strip(),
            strips: runs,
            strip: run,
            depth: DEPTH,
            before: 0,
            after: 0,
            tail: 0,
            dtype,
        })
    }
}

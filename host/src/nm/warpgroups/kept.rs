//! Weights of which every row of a stage is kept in all columns of a tile.

use windrow_formats::memory::{try_filled, try_zeroed};
use windrow_formats::{OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{
    NOT_KEPT, RUN_COLUMNS, STAGE_SLOTS, WHOLE_VALUE_BYTES, picked_order_index, whole_value_index,
};
use windrow_preprocess::nm::NO_ROW;

use super::ORDER;
use crate::cpu::each_chunk;
use crate::nm::placing::{DeviceValues, Placement};
use crate::num::{index, narrow};

/// Rows of a stage.
const SLOTS: usize = STAGE_SLOTS as usize;
/// Columns of a run, which a warpgroup multiplies at once, and their values in a stage.
const RUN: usize = RUN_COLUMNS as usize;
const VALUES: usize = WHOLE_VALUE_BYTES as usize / 2;

/// The order of weights for tiles of so many columns, each of which lies in one vector. A *chunk* is what a tile takes
/// in a stage: the values of all runs of 64 columns.
pub(super) struct KeptRows<'a, V> {
    weights: &'a VectorNm<V>,
    /// Columns of a tile.
    columns: usize,
}

impl<'a, V: Sync> KeptRows<'a, V> {
    pub(super) fn new(weights: &'a VectorNm<V>, columns: u32) -> Self {
        Self { weights, columns: index(u64::from(columns)) }
    }

    fn stages(&self) -> usize {
        self.weights.kept_rows().div_ceil(SLOTS)
    }

    fn tiles(&self) -> usize {
        self.weights.cols().div_ceil(self.columns)
    }

    fn chunks(&self) -> usize {
        self.tiles() * self.stages()
    }

    /// Values of a chunk.
    fn elements(&self) -> usize {
        self.columns / RUN * VALUES
    }

    /// Where in a chunk the value of a column and a slot is.
    fn value_index(column: usize, slot: usize) -> usize {
        column / RUN * VALUES + index(u64::from(whole_value_index(narrow(column % RUN), narrow(slot))))
    }

    /// The kept rows in the slots of a chunk, where there are any.
    fn kept(&self, chunk: usize) -> impl Iterator<Item = Option<usize>> {
        let (first, count) = (chunk % self.stages() * SLOTS, self.weights.kept_rows());
        (first..first + SLOTS).map(move |kept| (kept < count).then_some(kept))
    }

    /// (tiles of columns, stages, 64): which row of the weights is in which slot, or [`NO_ROW`]; as the kernel reads
    /// them.
    pub(super) fn rows(&self) -> Result<Vec<u32>, OutOfMemory> {
        let mut rows = try_filled(self.chunks() * SLOTS, NO_ROW, ORDER)?;
        each_chunk(&mut rows, SLOTS, &|chunk, of_chunk: &mut [u32]| {
            let vector = chunk / self.stages() * self.columns / self.weights.pattern().l();
            for (slot, kept) in (0..).zip(self.kept(chunk)) {
                let Some(kept) = kept else { continue };
                let row = self.weights.source_row(kept, vector);
                of_chunk[index(u64::from(picked_order_index(slot)))] = narrow(row);
            }
        });
        Ok(rows)
    }

    /// All chunks, of values in host memory.
    pub(super) fn pack(&self, given: &[u16]) -> Result<Vec<u16>, OutOfMemory> {
        let cols = self.weights.cols();
        let mut packed = try_zeroed(self.chunks() * self.elements(), "weights as kernels read them")?;
        each_chunk(&mut packed, self.elements(), &|chunk, packed: &mut [u16]| {
            let first = chunk / self.stages() * self.columns;
            let columns = self.columns.min(cols - first);
            for (slot, kept) in self.kept(chunk).enumerate() {
                let Some(kept) = kept else { continue };
                let of_row = &given[kept * cols + first..][..columns];
                for (column, &value) in of_row.iter().enumerate() {
                    packed[Self::value_index(column, slot)] = value;
                }
            }
        });
        Ok(packed)
    }

    /// Which value is where in each chunk, of values on the device.
    pub(super) fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let mut kept = try_filled(self.chunks() * SLOTS, NOT_KEPT, "kept rows")?;
        each_chunk(&mut kept, SLOTS, &|chunk, of_chunk: &mut [u32]| {
            for (to, kept) in of_chunk.iter_mut().zip(self.kept(chunk)) {
                *to = kept.map_or(NOT_KEPT, narrow);
            }
        });
        let mut places = try_filled(self.elements(), 0, "places of weights")?;
        for column in 0..self.columns {
            for slot in 0..SLOTS {
                places[Self::value_index(column, slot)] = narrow(slot) << 16 | narrow(column);
            }
        }
        Ok(Placement {
            given,
            kept,
            places,
            others: Vec::new(),
            chunks: self.chunks(),
            chunks_per_group: self.stages(),
            group_columns: self.columns,
            strips: 1,
            strip: self.columns,
            depth: SLOTS,
            before: 0,
            after: 0,
            tail: 0,
            dtype,
        })
    }
}

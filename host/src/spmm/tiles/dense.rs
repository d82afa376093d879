//! Records with dense values: those of a lane side by side, +0 where there is no entry.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_zeroed;
use windrow_kernels::Dtype;
use windrow_kernels::tile_stream::{MORE_STEPS, RECORD_TAIL, piece_word, record_words};

use super::{Layout, STEP_TILES, TilePattern, WINDOW_ROWS};
use crate::num::wide;
use crate::plan::Bits;

/// Words of a step's record; 0 for a type without tile kernels.
pub(crate) fn words_per_record(dtype: Dtype) -> usize {
    Layout::of(dtype).map_or(0, |layout| record_words(layout.lane_words))
}

/// Bytes of the records of so many steps.
pub(super) fn record_bytes(steps: usize, dtype: Dtype) -> u64 {
    4 * wide(words_per_record(dtype)) * wide(steps)
}

impl TilePattern {
    /// The [`records`](TilePattern::records) of [`Form::Dense`](super::Form::Dense): a word or a part of one for each
    /// place.
    pub(super) fn dense_records(&self, layout: Layout, values: &Bits) -> Result<Vec<u32>, OutOfMemory> {
        let words = record_words(layout.lane_words);
        let rows_at = words - RECORD_TAIL - WINDOW_ROWS;
        let bits_of_element = 32 / layout.per_word;
        let mut records = try_zeroed::<u32>(words * self.steps(), "records")?;
        self.pieces_of(&mut records, words)?.zip(self.pieces()).for_each(|(records, piece)| {
            for record in records.chunks_exact_mut(words) {
                record[rows_at..][..WINDOW_ROWS].fill(MORE_STEPS);
                record[rows_at + WINDOW_ROWS] = piece_word(piece.slot, piece.shared);
            }
            let last = records.len() - words + rows_at;
            records[last..][..WINDOW_ROWS].copy_from_slice(self.rows_of(piece));
            for (i, tile) in self.tiles_of(piece) {
                let record = &mut records[words * (i / STEP_TILES)..];
                self.each_entry(layout, i % STEP_TILES, tile, |at, entry| {
                    let value = values.word(entry as usize);
                    record[at / layout.per_word] |= value << (bits_of_element * (at % layout.per_word) % 32);
                });
            }
        });
        Ok(records)
    }

    /// The [`places`](TilePattern::places) of [`Form::Dense`](super::Form::Dense): calls
    /// `place(entry, element of the records)`.
    pub(super) fn dense_places(&self, layout: Layout, place: impl Fn(u32, usize) + Sync) {
        let elements = record_words(layout.lane_words) * layout.per_word;
        self.pieces().par_iter().zip(&self.piece_steps).for_each(|(piece, &first)| {
            for (i, tile) in self.tiles_of(piece) {
                let record = elements * (first as usize + i / STEP_TILES);
                self.each_entry(layout, i % STEP_TILES, tile, |at, entry| place(entry, record + at));
            }
        });
    }
}

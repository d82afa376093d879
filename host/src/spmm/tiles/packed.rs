//! Packed records: the values of entries only, one after the other in the order of a mask; see
//! [`Packed`](windrow_kernels::tile_stream::Packed) for the words of one.

use rayon::prelude::*;
use windrow_kernels::Dtype;
use windrow_kernels::tile_stream::{
    CHUNK_BYTES, LINK_STEPS, MASK_WORDS, MORE_STEPS, PACKED_COUNTS, PACKED_HEAD_WORDS, PACKED_LINK,
    piece_word,
};

use super::{Layout, STEP_TILES, TilePattern, WINDOW_ROWS};
use crate::num::narrow;
use crate::plan::Bits;

/// Elements of a step.
const ELEMENTS: usize = 32 * MASK_WORDS;
const CHUNK_WORDS: usize = CHUNK_BYTES as usize / 4;

/// Chunks of the record of a step with so many entries. At most 36, and fewer than 2³² for all the steps and entries
/// that a plan may have.
fn chunks(entries: u32, dtype: Dtype) -> u32 {
    narrow(PACKED_HEAD_WORDS / CHUNK_WORDS) + (entries * dtype.bytes()).div_ceil(CHUNK_BYTES)
}

impl TilePattern {
    /// Entries of each step.
    fn step_entries(&self) -> Vec<u32> {
        let mut entries = vec![0u32; self.steps()];
        self.pieces_of(&mut entries, 1).zip(self.pieces()).for_each(|(entries, piece)| {
            for (i, tile) in self.tiles_of(piece) {
                entries[i / STEP_TILES] += self.bitmaps[tile].count_ones();
            }
        });
        entries
    }

    /// Bytes of all packed records.
    pub(super) fn packed_bytes(&self, dtype: Dtype) -> u64 {
        let bytes = |&entries: &u32| u64::from(chunks(entries, dtype) * CHUNK_BYTES);
        self.step_entries().par_iter().map(bytes).sum()
    }

    /// First chunk of each packed record, and the number of chunks.
    pub(crate) fn record_starts(&self, dtype: Dtype) -> Vec<u32> {
        let mut starts = Vec::with_capacity(self.steps() + 1);
        starts.push(0);
        let mut end = 0;
        starts.extend(self.step_entries().iter().map(|&entries| {
            end += chunks(entries, dtype);
            end
        }));
        starts
    }

    /// The [`records`](TilePattern::records) of [`Form::Packed`](super::Form::Packed): values of entries only.
    pub(super) fn packed_records(&self, layout: Layout, values: &Bits) -> Vec<u32> {
        let starts = self.record_starts(values.dtype());
        let word = |step: usize| CHUNK_WORDS * starts[step] as usize;
        let mut records = vec![0u32; word(self.steps())];
        let pieces = self.split_by_piece(&mut records, &|steps| word(steps.end) - word(steps.start));
        let pieces = pieces.zip(self.pieces()).zip(&self.stream.piece_steps);
        pieces.for_each(|((mut records, piece), &first)| {
            let tiles: Vec<usize> = self.tile_range(piece).collect();
            let mut tiles = tiles.chunks(STEP_TILES);
            let first = first as usize;
            let end = first + piece.steps() as usize;
            for step in first..end {
                let (record, rest) = records.split_at_mut(word(step + 1) - word(step));
                records = rest;
                self.pack((layout, values), tiles.next().unwrap_or_default(), record);
                let rows = &mut record[MASK_WORDS..][..WINDOW_ROWS];
                match step + 1 == end {
                    true => rows.copy_from_slice(self.rows_of(piece)),
                    false => rows.fill(MORE_STEPS),
                }
                record[MASK_WORDS + WINDOW_ROWS] = piece_word(piece.slot, piece.shared);
                if let Some(&[begin, end]) =
                    starts.get(step + LINK_STEPS as usize..).and_then(<[u32]>::first_chunk)
                {
                    record[PACKED_LINK..][..2].copy_from_slice(&[begin, end - begin]);
                }
            }
        });
        records
    }

    /// The [`places`](TilePattern::places) of [`Form::Packed`](super::Form::Packed): calls
    /// `place(entry, element of the records)`.
    pub(super) fn packed_places(&self, (layout, dtype): (Layout, Dtype), place: impl Fn(u32, usize) + Sync) {
        let starts = self.record_starts(dtype);
        self.pieces().par_iter().zip(&self.stream.piece_steps).for_each(|(piece, &first)| {
            let tiles: Vec<usize> = self.tile_range(piece).collect();
            for (tiles, &start) in tiles.chunks(STEP_TILES).zip(&starts[first as usize..]) {
                let mut elements = [None; ELEMENTS];
                for (half, &tile) in tiles.iter().enumerate() {
                    self.each_entry(layout, (half, tile), |at, entry| elements[at] = Some(entry));
                }
                let values = layout.per_word * (CHUNK_WORDS * start as usize + PACKED_HEAD_WORDS);
                for (count, &entry) in elements.iter().flatten().enumerate() {
                    place(entry, values + count);
                }
            }
        });
    }

    /// Mask, counts and values of a step with these tiles.
    fn pack(&self, (layout, values): (Layout, &Bits), tiles: &[usize], record: &mut [u32]) {
        let mut elements = [None; ELEMENTS];
        for (half, &tile) in tiles.iter().enumerate() {
            self.each_entry(layout, (half, tile), |at, entry| {
                elements[at] = Some(values.word(entry as usize));
            });
        }
        let mut count = 0;
        for (at, value) in elements.iter().enumerate() {
            if at % 32 == 0 {
                record[PACKED_COUNTS] |= narrow(count) << (at / 4);
            }
            if let Some(value) = value {
                record[at / 32] |= 1 << (at % 32);
                let shift = 32 / layout.per_word * (count % layout.per_word);
                record[PACKED_HEAD_WORDS + count / layout.per_word] |= value << shift;
                count += 1;
            }
        }
    }
}

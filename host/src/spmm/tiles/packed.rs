//! Packed records: the values of entries only, one after the other in the order of a mask or of the tiles' bitmaps; see
//! [`Packed`](windrow_kernels::tile_stream::Packed) for the words of one.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_zeroed;
use windrow_kernels::Dtype;
use windrow_kernels::tile_stream::{
    CHUNK_BYTES, Form, LINK_STEPS, MASK_WORDS, MORE_STEPS, PACKED_COUNTS, PACKED_HEAD_WORDS, PACKED_LINK,
    piece_word,
};
use windrow_preprocess::balance::Piece;

use super::{Layout, TilePattern, WINDOW_ROWS};
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
    /// Chunks of the record of each step of a piece.
    fn step_chunks(&self, piece: &Piece, dtype: Dtype) -> impl Iterator<Item = u32> {
        let entries = |tiles: Range<usize>| self.bitmaps[tiles].iter().map(|bits| bits.count_ones()).sum();
        (0..piece.steps()).map(move |step| chunks(entries(self.tiles_of_step(piece, step)), dtype))
    }

    /// Bytes of all packed records.
    pub(super) fn packed_bytes(&self, dtype: Dtype) -> u64 {
        let chunks = |piece: &Piece| self.step_chunks(piece, dtype).map(u64::from).sum::<u64>();
        self.pieces().par_iter().map(chunks).sum::<u64>() * u64::from(CHUNK_BYTES)
    }

    /// First chunk of each packed record, and the number of chunks.
    pub(crate) fn record_starts(&self, dtype: Dtype) -> Result<Vec<u32>, OutOfMemory> {
        let mut starts = try_zeroed::<u32>(self.steps() + 1, "record_starts")?;
        self.pieces_of(&mut starts[1..], 1)?.zip(self.pieces()).for_each(|(chunks, piece)| {
            chunks.iter_mut().zip(self.step_chunks(piece, dtype)).for_each(|(to, chunks)| *to = chunks);
        });
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        Ok(starts)
    }

    /// The [`records`](TilePattern::records) of [`Form::Packed`] and [`Form::Bitmap`]: values of entries only.
    pub(super) fn packed_records(
        &self,
        form: Form,
        layout: Layout,
        values: &Bits,
    ) -> Result<Vec<u32>, OutOfMemory> {
        let starts = self.record_starts(values.dtype())?;
        let word = |step: usize| CHUNK_WORDS * starts[step] as usize;
        let mut records = try_zeroed::<u32>(word(self.steps()), "records")?;
        let pieces = self.split_by_piece(&mut records, &|steps| word(steps.end) - word(steps.start))?;
        let pieces = pieces.zip(self.pieces()).zip(&self.piece_steps);
        pieces.for_each(|((mut records, piece), &first)| {
            let end = (first + piece.steps()) as usize;
            for (step, of_piece) in (first as usize..end).zip(0..) {
                let (record, rest) = records.split_at_mut(word(step + 1) - word(step));
                records = rest;
                self.pack(form, layout, values, (self.tiles_of_step(piece, of_piece), record));
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
        Ok(records)
    }

    /// The [`places`](TilePattern::places) of [`Form::Packed`] and [`Form::Bitmap`]: calls
    /// `place(entry, element of the records)`.
    pub(super) fn packed_places(
        &self,
        form: Form,
        layout: Layout,
        dtype: Dtype,
        place: impl Fn(u32, usize) + Sync,
    ) -> Result<(), OutOfMemory> {
        let starts = self.record_starts(dtype)?;
        self.pieces().par_iter().zip(&self.piece_steps).for_each(|(piece, &first)| {
            for (step, &start) in (0..piece.steps()).zip(&starts[first as usize..]) {
                let mut at = layout.per_word * (CHUNK_WORDS * start as usize + PACKED_HEAD_WORDS);
                self.each_value(form, layout, self.tiles_of_step(piece, step), |_, entry| {
                    place(entry, at);
                    at += 1;
                });
            }
        });
        Ok(())
    }

    /// Calls `visit(element, entry)` for the entries of a step with these tiles, in the order in which its record has
    /// their values.
    fn each_value(&self, form: Form, layout: Layout, tiles: Range<usize>, mut visit: impl FnMut(usize, u32)) {
        let mut elements = [None; ELEMENTS];
        for (half, tile) in tiles.enumerate() {
            self.each_entry(layout, half, tile, |at, entry| match form {
                Form::Bitmap => visit(at, entry),
                Form::Packed | Form::Dense => elements[at] = Some(entry),
            });
        }
        for (at, entry) in elements.into_iter().enumerate() {
            if let Some(entry) = entry {
                visit(at, entry);
            }
        }
    }

    /// Values of a step with these tiles, and what says where they are: a mask and its counts, or two bitmaps.
    fn pack(&self, form: Form, layout: Layout, values: &Bits, (tiles, record): (Range<usize>, &mut [u32])) {
        let mut count = 0;
        self.each_value(form, layout, tiles.clone(), |at, entry| {
            if form == Form::Packed {
                record[at / 32] |= 1 << (at % 32);
            }
            let shift = 32 / layout.per_word * (count % layout.per_word);
            record[PACKED_HEAD_WORDS + count / layout.per_word] |= values.word(entry as usize) << shift;
            count += 1;
        });
        if form == Form::Bitmap {
            for (words, bitmap) in record[..MASK_WORDS].chunks_exact_mut(2).zip(&self.bitmaps[tiles]) {
                words.copy_from_slice(&bytemuck::cast::<u64, [u32; 2]>(bitmap.to_le()));
            }
            record[PACKED_COUNTS] = record[..2].iter().map(|word| word.count_ones()).sum();
            return;
        }
        let mut before = 0;
        for word in 0..MASK_WORDS {
            record[PACKED_COUNTS] |= before << (8 * word);
            before += record[word].count_ones();
        }
    }
}

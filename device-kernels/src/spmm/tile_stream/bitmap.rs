//! RS-Tile's own bitmaps, decoded in the multiply: as RSH-SpMM prints it (sections 3.2 and 3.3), for comparison with
//! [`Masked`](super::Masked), whose mask is in the order of the MMA's registers.
//!
//! A bitmap lists a tile column by column, the rows of the MMA's operand one by one in each: so the elements of a lane
//! are not neighbours, and each wants a population count of 64 bits of its own.

use windrow_simt::{GlobalPtr, Simt};

use super::held::{Decode, Element, Form, HEAD_BYTES, PACKED_COUNTS};
use super::{TileElement, WINDOW_ROWS};

/// Values in the order of the tiles' bitmaps, those of the first tile first.
///
/// ```text
/// words 0..4      bitmap of each tile, the lower half first: bit 8·k + r for column k, row r
/// word  13        entries of the first tile: where the values of the second begin
/// ```
pub struct Bitmaps;

/// The last bit of a bitmap.
const LAST_BIT: u32 = u64::BITS - 1;

impl<E: TileElement> Decode<E> for Bitmaps {
    const FORM: Form = Form::Bitmap;

    /// An element without an entry is given the place of the last entry before it, or of the word in front of the
    /// values: words that have arrived. What is read there is masked out.
    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment {
        let bytes = size_of::<E::Bits>() as u32;
        // SAFETY: the caller's promise; see above.
        unsafe {
            let bitmaps: [u64; 2] = s.load_shared(record);
            let of_first: u32 = s.load_shared(record + 4 * PACKED_COUNTS as u32);
            let mut present = 0;
            let elements = [0, 1, 2, 3].map(|i| {
                let (tile, k) = E::element_column(lane, i);
                // The element's bit becomes the highest: those that are left are its own and the ones before it.
                let bitmap = if tile == 0 { bitmaps[0] } else { bitmaps[1] };
                let up_to = bitmap << (LAST_BIT - (k * WINDOW_ROWS + lane / 4));
                present |= u32::from(up_to >> LAST_BIT == 1) << i;
                let entries = up_to.count_ones() + tile * of_first;
                s.load_shared(record + HEAD_BYTES - bytes + entries * bytes)
            });
            E::of_elements(elements, present)
        }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, record: GlobalPtr<u32>, _: u32) -> [u64; 2] {
        // SAFETY: the caller's promise; records are aligned to 16 bytes.
        unsafe { s.load_readonly(record.cast()) }
    }

    #[inline(always)]
    unsafe fn values_before<S: Simt>(s: &S, record: GlobalPtr<u32>, element: &Element) -> u32 {
        let &Element { tile, row, k, .. } = element;
        // SAFETY: the caller's promise: two bitmaps, and how many bits the first has.
        unsafe {
            let bitmap = s.load_readonly(record.cast::<u64>().at(tile));
            let of_first = s.load_readonly(record.at(PACKED_COUNTS as u32));
            (bitmap & ((1 << (k * WINDOW_ROWS + row)) - 1)).count_ones() + tile * of_first
        }
    }
}

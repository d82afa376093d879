//! Indices in as many bits as a position needs.

use super::check::{self, length};
use super::{VectorNm, VectorNmParts};
use crate::memory::{try_with_room, try_zeroed};
use crate::{FormatError, OutOfMemory, Value};

/// Bytes of `count` indices of `bits` bits.
pub(crate) fn packed_len(count: usize, bits: usize) -> usize {
    // Not `count · bits`, which could overflow where `count` is a length.
    count / 8 * bits + (count % 8 * bits).div_ceil(8)
}

impl<T> VectorNm<T> {
    /// The [indices](Self::indices) in `b = ⌈log₂ M⌉` bits each, the first in the lowest bits of the first byte: index
    /// `i` is bits `i·b .. (i + 1)·b` of the whole, counted from the lowest of each byte. Bits behind the last are 0.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{NmPattern, VectorNm};
    ///
    /// let dense = [0.0f32, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    /// let weights = VectorNm::from_dense(&dense, 8, 1, NmPattern::new(2, 4, 1)?)?;
    /// assert_eq!(weights.indices(), [1, 2, 2, 3]);
    /// assert_eq!(weights.packed_indices()?, [0b11_10_10_01]);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn packed_indices(&self) -> Result<Vec<u8>, OutOfMemory> {
        let bits = self.pattern.index_bits();
        let mut packed = try_with_room(packed_len(self.indices.len(), bits), "packed indices")?;
        let (mut word, mut held) = (0u32, 0);
        for &position in &self.indices {
            word |= u32::from(position) << held;
            held += bits;
            while held >= 8 {
                packed.push(word.to_le_bytes()[0]);
                word >>= 8;
                held -= 8;
            }
        }
        if held > 0 {
            packed.push(word.to_le_bytes()[0]);
        }
        Ok(packed)
    }
}

impl<T: Value> VectorNm<T> {
    /// The matrix with [packed](Self::packed_indices) indices, all invariants checked. `parts` has no indices of its
    /// own.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless `packed` has the bytes that the shape and the pattern ask for, and
    ///   `parts.indices` is empty;
    /// - [`FormatError::NmSpareBits`] if a bit behind the last index is set;
    /// - those of [`try_from_parts`](Self::try_from_parts).
    pub fn from_packed(mut parts: VectorNmParts<T>, packed: &[u8]) -> Result<Self, FormatError> {
        let (pattern, kept) = (parts.pattern, parts.pattern.kept_rows(parts.rows));
        let (bits, count) = (pattern.index_bits(), kept.checked_mul(pattern.vectors(parts.cols)));
        length("parts.indices", parts.indices.len(), Some(0), "where the indices are packed")?;
        check::values_len(parts.values.len(), kept, parts.cols)?;
        let bytes = count.map(|count| packed_len(count, bits));
        length("the packed indices", packed.len(), bytes, "⌈log₂ M⌉ bits for each kept row and vector")?;
        parts.indices = unpack(packed, count.unwrap_or(0), bits)?;
        Self::try_from_parts(parts)
    }
}

/// `count` indices of `bits` bits; `packed` has the bytes for them.
fn unpack(packed: &[u8], count: usize, bits: usize) -> Result<Vec<u8>, FormatError> {
    let mut indices = try_zeroed::<u8>(count, "indices")?;
    let (mut word, mut held, mut bytes) = (0u32, 0, packed.iter());
    let mask = (1u32 << bits) - 1;
    for index in &mut indices {
        if held < bits {
            word |= bytes.next().map_or(0, |&byte| u32::from(byte)) << held;
            held += 8;
        }
        *index = (word & mask).to_le_bytes()[0];
        word >>= bits;
        held -= bits;
    }
    if word != 0 {
        let last = packed.last().copied().unwrap_or(0);
        return Err(FormatError::NmSpareBits { last, used: 8 - held });
    }
    Ok(indices)
}

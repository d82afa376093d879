//! Byte counts, and allocations that report failure instead of aborting.

use crate::FormatError;

/// Names and sizes of the arrays that make up a matrix, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteSizes {
    arrays: Vec<(&'static str, u64)>,
}

impl ByteSizes {
    pub(crate) fn new(arrays: Vec<(&'static str, u64)>) -> Self {
        Self { arrays }
    }

    /// Each array's name and size in bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.arrays.iter().copied()
    }

    /// Size in bytes of the array called `name`; `None` if there is no such array.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.arrays.iter().find(|(array, _)| *array == name).map(|&(_, bytes)| bytes)
    }

    /// Sum over all arrays, in bytes.
    pub fn total(&self) -> u64 {
        self.arrays.iter().map(|&(_, bytes)| bytes).sum()
    }
}

/// Bytes that a slice occupies.
pub(crate) fn bytes_of<T>(slice: &[T]) -> u64 {
    size_of_val(slice) as u64
}

/// A vector of `len` zeros whose pages the system provides lazily, or [`FormatError::OutOfMemory`].
pub(crate) fn try_zeroed<T: bytemuck::Zeroable>(
    len: usize,
    what: &'static str,
) -> Result<Vec<T>, FormatError> {
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    bytemuck::try_zeroed_slice_box(len)
        .map(<[T]>::into_vec)
        .map_err(|()| FormatError::OutOfMemory { what, bytes })
}

/// An empty vector with room for `len` elements, or [`FormatError::OutOfMemory`].
pub(crate) fn try_with_room<T>(len: usize, what: &'static str) -> Result<Vec<T>, FormatError> {
    let mut vector = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    vector.try_reserve_exact(len).map_err(|_| FormatError::OutOfMemory { what, bytes })?;
    Ok(vector)
}

/// `x` as an index.
///
/// Offsets of a checked matrix are at most the length of a vector that exists, so they fit.
#[expect(clippy::cast_possible_truncation, reason = "offsets are at most the length of an existing vector")]
pub(crate) const fn index(x: u64) -> usize {
    x as usize
}

/// `x` as a 32-bit row, column or tile number.
///
/// The dimensions of a checked matrix are at most `u32::MAX`, so numbers below them fit.
#[expect(clippy::cast_possible_truncation, reason = "dimensions are checked to fit 32 bits at construction")]
pub(crate) const fn narrow(x: usize) -> u32 {
    debug_assert!(x as u64 <= u32::MAX as u64);
    x as u32
}

/// `x` as a dimension, or [`FormatError::DimensionTooLarge`].
pub(crate) fn dimension(x: usize, what: &'static str) -> Result<u32, FormatError> {
    u32::try_from(x).map_err(|_| FormatError::DimensionTooLarge { what, found: x })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up_and_are_found_by_name() {
        let sizes = ByteSizes::new(vec![("a", 8), ("b", 12)]);
        assert_eq!((sizes.get("b"), sizes.get("c"), sizes.total()), (Some(12), None, 20));
        assert_eq!(sizes.iter().collect::<Vec<_>>(), [("a", 8), ("b", 12)]);
    }

    #[test]
    fn an_impossible_allocation_is_an_error() {
        let error = try_zeroed::<u64>(usize::MAX / 4, "row_offsets").unwrap_err();
        let bytes = (usize::MAX / 4) as u64;
        assert_eq!(error, FormatError::OutOfMemory { what: "row_offsets", bytes: bytes.saturating_mul(8) });
        assert!(error.to_string().ends_with("bytes for row_offsets could not be allocated"));
        assert_eq!(try_with_room::<u64>(usize::MAX / 4, "row_offsets").unwrap_err(), error);
    }
}

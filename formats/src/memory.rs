//! Byte counts, and allocations that report failure instead of aborting.
//!
//! Everything whose size follows from a file, a matrix or a width is allocated by these: a machine with too little
//! memory then gives an error with numbers, where an ordinary vector would end the process.

use rayon::prelude::*;

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

/// The machine refused an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes for {what} could not be allocated; free memory, or compute in smaller parts")]
pub struct OutOfMemory {
    /// What the memory was for.
    pub what: &'static str,
    /// How much was asked for.
    pub bytes: u64,
}

impl OutOfMemory {
    /// For `len` elements of type `T`.
    fn of<T>(len: usize, what: &'static str) -> Self {
        Self { what, bytes: (len as u64).saturating_mul(size_of::<T>() as u64) }
    }
}

impl From<OutOfMemory> for FormatError {
    fn from(OutOfMemory { what, bytes }: OutOfMemory) -> Self {
        Self::OutOfMemory { what, bytes }
    }
}

/// A vector of `len` zeros whose pages the system provides lazily.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_zeroed<T: bytemuck::Zeroable>(len: usize, what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    bytemuck::try_zeroed_slice_box(len).map(<[T]>::into_vec).map_err(|()| OutOfMemory::of::<T>(len, what))
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_with_room<T>(len: usize, what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(len).map_err(|_| OutOfMemory::of::<T>(len, what))?;
    Ok(vector)
}

/// Room for `more` elements behind those of a vector that grows.
///
/// # Errors
/// [`OutOfMemory`].
pub fn make_room<T>(vector: &mut Vec<T>, more: usize, what: &'static str) -> Result<(), OutOfMemory> {
    vector.try_reserve(more).map_err(|_| OutOfMemory::of::<T>(vector.len().saturating_add(more), what))
}

/// Puts an element behind those of a vector that grows.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_push<T>(vector: &mut Vec<T>, element: T, what: &'static str) -> Result<(), OutOfMemory> {
    make_room(vector, 1, what)?;
    vector.push(element);
    Ok(())
}

/// A vector of `len` times `value`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_filled<T: Clone>(len: usize, value: T, what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_with_room(len, what)?;
    vector.resize(len, value);
    Ok(vector)
}

/// A copy of `elements`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_copy<T: Copy>(elements: &[T], what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_with_room(elements.len(), what)?;
    vector.extend_from_slice(elements);
    Ok(vector)
}

/// `pieces` one after the other.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_concat<T: Copy>(pieces: &[impl AsRef<[T]>], what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_with_room(pieces.iter().map(|piece| piece.as_ref().len()).sum(), what)?;
    pieces.iter().for_each(|piece| vector.extend_from_slice(piece.as_ref()));
    Ok(vector)
}

/// The elements of an iterator that knows how many there are.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_collect<T>(
    elements: impl ExactSizeIterator<Item = T>,
    what: &'static str,
) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_with_room(elements.len(), what)?;
    vector.extend(elements);
    Ok(vector)
}

/// The elements of a parallel iterator that knows how many there are, in their order.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_par_collect<T: Send>(
    elements: impl rayon::iter::IndexedParallelIterator<Item = T>,
    what: &'static str,
) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_with_room(elements.len(), what)?;
    elements.collect_into_vec(&mut vector);
    Ok(vector)
}

/// What a parallel iterator that knows how many there are gives, in its order, or the first error.
///
/// # Errors
/// The first in that order; [`OutOfMemory`].
pub fn try_par_collect_ok<T: Send, E: From<OutOfMemory> + Send>(
    results: impl rayon::iter::IndexedParallelIterator<Item = Result<T, E>>,
    what: &'static str,
) -> Result<Vec<T>, E> {
    let results = try_par_collect(results, what)?;
    let mut vector = try_with_room(results.len(), what)?;
    for result in results {
        vector.push(result?);
    }
    Ok(vector)
}

/// What `items` gives for 0, 1, … below `len`, one after the other, in parallel. It is asked twice for each, first to
/// count. `blank` is any element.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_par_flat_map<T: Copy + Send + Sync, I: IntoIterator<Item = T>>(
    len: usize,
    blank: T,
    items: impl Fn(usize) -> I + Sync,
    what: &'static str,
) -> Result<Vec<T>, OutOfMemory> {
    const CHUNK: usize = 1 << 12;
    let chunk = |at: usize| (CHUNK * at..len.min(CHUNK * (at + 1))).flat_map(&items);
    let chunks = len.div_ceil(CHUNK);
    let counts = try_par_collect((0..chunks).into_par_iter().map(|at| chunk(at).count()), what)?;
    let count = counts.iter().sum::<usize>();
    let mut all = try_par_collect((0..count).into_par_iter().map(|_| blank), what)?;
    let mut parts = try_with_room(chunks, what)?;
    let mut rest = all.as_mut_slice();
    for count in counts {
        let (part, tail) = rest.split_at_mut(count);
        parts.push(part);
        rest = tail;
    }
    parts.into_par_iter().enumerate().for_each(|(at, part)| {
        part.iter_mut().zip(chunk(at)).for_each(|(place, item)| *place = item);
    });
    Ok(all)
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
        let bytes = ((usize::MAX / 4) as u64).saturating_mul(8);
        assert_eq!(error, OutOfMemory { what: "row_offsets", bytes });
        assert!(error.to_string().starts_with(&format!("{bytes} bytes for row_offsets could not")));
        assert_eq!(FormatError::from(error).to_string(), error.to_string());
        assert_eq!(try_with_room::<u64>(usize::MAX / 4, "row_offsets").unwrap_err(), error);
        assert_eq!(try_filled(usize::MAX / 4, 1u64, "row_offsets").unwrap_err(), error);
    }

    #[test]
    fn vectors_hold_what_they_were_asked_to() {
        assert_eq!(try_filled(3, 7, "x").unwrap(), [7; 3]);
        assert_eq!(try_copy(&[1, 2], "x").unwrap(), [1, 2]);
        assert_eq!(try_concat(&[vec![1, 2], vec![], vec![3]], "x").unwrap(), [1, 2, 3]);
        assert_eq!(try_collect([1, 2].iter().map(|x| 2 * x), "x").unwrap(), [2, 4]);
        let mut grows = vec![1];
        try_push(&mut grows, 2, "x").unwrap();
        assert_eq!(grows, [1, 2]);
        let refused = |at: u32| OutOfMemory { what: "x", bytes: at.into() };
        let of = |limit| {
            let results = (0..10u32).into_par_iter();
            let results = results.map(move |at| if at < limit { Ok(at) } else { Err(refused(at)) });
            try_par_collect_ok(results, "x")
        };
        assert_eq!((of(10), of(7)), (Ok((0..10).collect()), Err(refused(7))));
        let many = try_par_collect((0..10_000).into_par_iter().map(|x| 2 * x), "x").unwrap();
        assert!(many.iter().enumerate().all(|(i, &x)| x == 2 * i));
        for len in [0, 1, 4096, 10_000] {
            let items = |i: usize| (i % 3 != 1).then_some([i, 7]).into_iter().flatten();
            let want: Vec<usize> = (0..len).flat_map(items).collect();
            assert_eq!(try_par_flat_map(len, 0, items, "x").unwrap(), want, "{len}");
        }
    }
}

//! Orders of rows: validated bijections.

use crate::memory::{ByteSizes, bytes_of, dimension, narrow, try_collect, try_copy, try_filled, try_zeroed};
use crate::{FormatError, OutOfMemory};

/// An order of `n` things: new position `i` takes what was at old position `new_to_old[i]`.
///
/// Invariants, with `n = |new_to_old|`:
/// - `n ≤ 2³² − 1`
/// - bijection: `∀ i: new_to_old[i] < n` and `∀ i ≠ j: new_to_old[i] ≠ new_to_old[j]`
///
/// # Examples
/// ```
/// use windrow_formats::Permutation;
///
/// let order = Permutation::try_from_new_to_old(vec![2, 0, 1])?;
/// let sorted = order.apply(&['a', 'b', 'c']);
/// assert_eq!(sorted, ['c', 'a', 'b']);
/// assert_eq!(order.inverse().apply(&sorted), ['a', 'b', 'c']);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    new_to_old: Vec<u32>,
    old_to_new: Vec<u32>,
}

impl Permutation {
    /// The order in which new position `i` takes old position `new_to_old[i]`.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] for more than 2³² − 1 positions;
    /// - [`FormatError::PermutationRange`] for the first element that is not below the length,
    ///   [`FormatError::PermutationDuplicate`] for the first that came before, whichever comes first;
    /// - [`FormatError::OutOfMemory`].
    pub fn try_from_new_to_old(new_to_old: Vec<u32>) -> Result<Self, FormatError> {
        /// No position has this number: there are at most `u32::MAX` of them.
        const UNSEEN: u32 = u32::MAX;
        let len = new_to_old.len();
        dimension(len, "positions")?;
        let mut old_to_new = try_filled(len, UNSEEN, "a permutation")?;
        for (position, &found) in new_to_old.iter().enumerate() {
            let Some(seen) = old_to_new.get_mut(found as usize) else {
                return Err(FormatError::PermutationRange { position, found, len });
            };
            if *seen != UNSEEN {
                return Err(FormatError::PermutationDuplicate { position, found, first: *seen as usize });
            }
            *seen = narrow(position);
        }
        Ok(Self { new_to_old, old_to_new })
    }

    /// The order that changes nothing.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] for more than 2³² − 1 positions;
    /// - [`FormatError::OutOfMemory`].
    pub fn identity(len: usize) -> Result<Self, FormatError> {
        let positions = 0..dimension(len, "positions")?;
        let mut new_to_old = try_zeroed(len, "a permutation")?;
        new_to_old.iter_mut().zip(positions).for_each(|(old, new)| *old = new);
        Ok(Self { old_to_new: try_copy(&new_to_old, "a permutation")?, new_to_old })
    }

    /// How many positions there are.
    pub fn len(&self) -> usize {
        self.new_to_old.len()
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.new_to_old.is_empty()
    }

    /// Whether every position keeps its place.
    pub fn is_identity(&self) -> bool {
        self.new_to_old.iter().zip(0..).all(|(&old, new)| old == new)
    }

    /// The old position of each new one.
    pub fn new_to_old(&self) -> &[u32] {
        &self.new_to_old
    }

    /// The new position of each old one.
    pub fn old_to_new(&self) -> &[u32] {
        &self.old_to_new
    }

    /// The old position of new position `new`.
    ///
    /// # Panics
    /// If `new` is not below [`len`](Self::len), like an index into a slice.
    pub fn to_old(&self, new: usize) -> usize {
        self.new_to_old[new] as usize
    }

    /// The new position of old position `old`.
    ///
    /// # Panics
    /// If `old` is not below [`len`](Self::len), like an index into a slice.
    pub fn to_new(&self, old: usize) -> usize {
        self.old_to_new[old] as usize
    }

    /// The order that undoes this one.
    ///
    /// # Panics
    /// If there is no memory for it; see [`try_inverse`](Self::try_inverse).
    #[must_use]
    pub fn inverse(&self) -> Self {
        self.try_inverse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The order that undoes this one.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_inverse(&self) -> Result<Self, OutOfMemory> {
        let new_to_old = try_copy(&self.old_to_new, "a permutation")?;
        Ok(Self { new_to_old, old_to_new: try_copy(&self.new_to_old, "a permutation")? })
    }

    /// This order, then `next`: `result.to_old(i) = self.to_old(next.to_old(i))`.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless both have the same length;
    /// - [`FormatError::OutOfMemory`].
    pub fn compose(&self, next: &Self) -> Result<Self, FormatError> {
        self.check_len(next.len())?;
        Ok(Self {
            new_to_old: by_way_of(&next.new_to_old, &self.new_to_old)?,
            old_to_new: by_way_of(&self.old_to_new, &next.old_to_new)?,
        })
    }

    /// `items` in the new order: `result[i] = items[self.to_old(i)]`.
    ///
    /// # Panics
    /// Unless there are [`len`](Self::len) items; see [`try_apply`](Self::try_apply).
    pub fn apply<T: Clone>(&self, items: &[T]) -> Vec<T> {
        match self.try_apply(items) {
            Ok(permuted) => permuted,
            Err(error) => panic!("{error}"),
        }
    }

    /// `items` in the new order: `result[i] = items[self.to_old(i)]`.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless there are [`len`](Self::len) items;
    /// - [`FormatError::OutOfMemory`].
    pub fn try_apply<T: Clone>(&self, items: &[T]) -> Result<Vec<T>, FormatError> {
        self.check_len(items.len())?;
        let permuted = self.new_to_old.iter().map(|&old| items[old as usize].clone());
        Ok(try_collect(permuted, "a permuted list")?)
    }

    fn check_len(&self, found: usize) -> Result<(), FormatError> {
        if found == self.len() {
            return Ok(());
        }
        let (expected, why) = (self.len(), "one for each position of the permutation");
        Err(FormatError::LengthMismatch { array: "the permuted list", found, expected, why })
    }

    /// Size of each array in bytes.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("new_to_old", bytes_of(&self.new_to_old)),
            ("old_to_new", bytes_of(&self.old_to_new)),
        ])
    }
}

/// `second[first[i]]` for each `i`.
fn by_way_of(first: &[u32], second: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
    try_collect(first.iter().map(|&middle| second[middle as usize]), "a permutation")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_bijection() {
        let message = |list: &[u32]| Permutation::try_from_new_to_old(list.to_vec()).unwrap_err().to_string();
        assert_eq!(message(&[0, 3, 1]), "position 1 of the permutation: 3 is not below its length 3");
        assert_eq!(message(&[1, 0, 2, 1]), "position 3 of the permutation: 1 was already at position 0");
        assert_eq!(
            message(&[u32::MAX]),
            "position 0 of the permutation: 4294967295 is not below its length 1"
        );
    }

    #[test]
    fn refuses_a_list_of_another_length() {
        let identity = Permutation::identity(3).unwrap();
        let error = identity.try_apply(&[1, 2]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the permuted list has 2 elements but 3 are needed, one for each position of the permutation"
        );
        assert!(identity.compose(&Permutation::identity(4).unwrap()).is_err());
    }

    #[test]
    fn the_empty_order_is_an_identity() {
        let empty = Permutation::try_from_new_to_old(vec![]).unwrap();
        assert!(empty.is_empty() && empty.is_identity() && empty.inverse().is_empty());
        assert!(empty.apply::<u8>(&[]).is_empty());
    }
}

//! The arrays of a tensor in compressed sparse fibers, to take apart and to put together.

use super::Csf3;
use super::check::check;
use crate::coo3::mode_dimensions;
use crate::{FormatError, Value};

/// The arrays of a [`Csf3`], unchecked: input of [`Csf3::try_from_parts`].
#[derive(Debug, Clone, PartialEq)]
pub struct Csf3Parts<V> {
    /// Dimensions `I`, `J`, `K`, in the order of the tensor's modes.
    pub dims: [usize; 3],
    /// The mode at each level.
    pub mode_order: [usize; 3],
    /// Index of each root.
    pub root_indices: Vec<u32>,
    /// First fiber of each root, and the number of fibers.
    pub root_offsets: Vec<u64>,
    /// Index of each fiber.
    pub fiber_indices: Vec<u32>,
    /// First entry of each fiber, and the number of entries.
    pub fiber_offsets: Vec<u64>,
    /// Index of each entry.
    pub leaf_indices: Vec<u32>,
    /// Value of each entry.
    pub values: Vec<V>,
}

impl<V: Value> Csf3<V> {
    /// The tensor that `parts` describes, all invariants checked. Nothing is sorted or summed.
    ///
    /// # Cost
    /// One parallel pass over the arrays.
    ///
    /// # Errors
    /// - [`FormatError::ModeTooLarge`] if a dimension exceeds 2³² − 1;
    /// - [`FormatError::ModeOrder`] unless `mode_order` holds 0, 1 and 2 once each;
    /// - [`FormatError::Csf3`] with the label of the first invariant that is broken, and the place.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{Csf3, Csf3Parts};
    ///
    /// let parts = |leaf| Csf3Parts {
    ///     dims: [2, 3, 2],
    ///     mode_order: [0, 1, 2],
    ///     root_indices: vec![1],
    ///     root_offsets: vec![0, 1],
    ///     fiber_indices: vec![2],
    ///     fiber_offsets: vec![0, 2],
    ///     leaf_indices: vec![0, leaf],
    ///     values: vec![4.0f32, 8.0],
    /// };
    /// assert_eq!(Csf3::try_from_parts(parts(1))?.fiber(0), (&[0, 1][..], &[4.0, 8.0][..]));
    /// let error = Csf3::try_from_parts(parts(2)).unwrap_err().to_string();
    /// assert_eq!(error, "CSF invariant E1 does not hold: entry 1: index 2 is not below the 2 of mode 2");
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn try_from_parts(parts: Csf3Parts<V>) -> Result<Self, FormatError> {
        let dims = mode_dimensions(parts.dims)?;
        check(dims, &parts)?;
        Ok(Self {
            dims,
            mode_order: parts.mode_order,
            root_indices: parts.root_indices,
            root_offsets: parts.root_offsets,
            fiber_indices: parts.fiber_indices,
            fiber_offsets: parts.fiber_offsets,
            leaf_indices: parts.leaf_indices,
            values: parts.values,
            summed_duplicates: 0,
        })
    }
}

impl<V> Csf3<V> {
    /// Takes the tensor apart; [`try_from_parts`](Self::try_from_parts) puts it together again.
    pub fn into_parts(self) -> Csf3Parts<V> {
        Csf3Parts {
            dims: self.dims(),
            mode_order: self.mode_order,
            root_indices: self.root_indices,
            root_offsets: self.root_offsets,
            fiber_indices: self.fiber_indices,
            fiber_offsets: self.fiber_offsets,
            leaf_indices: self.leaf_indices,
            values: self.values,
        }
    }
}

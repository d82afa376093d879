//! Coordinate lists of three modes: what the tensor reader produces and [`Csf3`](crate::Csf3) is built from.

use crate::coo::first_not_below;
use crate::memory::{ByteSizes, bytes_of, try_push};
use crate::{Csf3, FormatError, Value};

/// A sparse tensor of three modes, `I × J × K`, as a list of `(i, j, k, value)` in any order, duplicates allowed.
///
/// Invariants, checked by [`Coo3::try_new`], with `nnz = |values|` and modes counted from 0:
/// - `∀ m < 3: dims[m] ≤ 2³² − 1`
/// - `∀ m < 3: |indices(m)| = nnz`
/// - `∀ m < 3, ∀ e: indices(m)[e] < dims[m]`
///
/// Zeros, NaN and infinities are entries like any other.
///
/// # Examples
/// ```
/// use windrow_formats::Coo3;
///
/// let tensor = Coo3::from_entries([2, 3, 2], [([0, 0, 1], 5.0f32), ([1, 2, 0], 7.0)])?;
/// assert_eq!((tensor.dims(), tensor.nnz()), ([2, 3, 2], 2));
/// assert_eq!(tensor.indices(1), [0, 2]);
/// assert!(Coo3::from_entries([2, 3, 2], [([0, 3, 0], 1.0f32)]).is_err());
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Coo3<V> {
    dims: [u32; 3],
    indices: [Vec<u32>; 3],
    values: Vec<V>,
}

impl<V: Value> Coo3<V> {
    /// The `dims[0] × dims[1] × dims[2]` tensor with entry `e` at
    /// `(indices[0][e], indices[1][e], indices[2][e])`.
    ///
    /// # Errors
    /// - [`FormatError::ModeTooLarge`] if a dimension exceeds 2³² − 1;
    /// - [`FormatError::LengthMismatch`] unless there are as many indices of each mode as values;
    /// - [`FormatError::TensorEntryOutOfRange`] for the first entry outside of the tensor.
    pub fn try_new(dims: [usize; 3], indices: [Vec<u32>; 3], values: Vec<V>) -> Result<Self, FormatError> {
        let bounds = mode_dimensions(dims)?;
        for (array, found) in ["indices of mode 0", "indices of mode 1", "indices of mode 2"]
            .into_iter()
            .zip(indices.each_ref().map(Vec::len))
        {
            if found != values.len() {
                let (expected, why) = (values.len(), "one for each value");
                return Err(FormatError::LengthMismatch { array, found, expected, why });
            }
        }
        let outside =
            indices.iter().zip(bounds).filter_map(|(of_mode, bound)| first_not_below(of_mode, bound));
        if let Some(entry) = outside.min() {
            let (index, value) =
                (indices.each_ref().map(|of_mode| of_mode[entry]), values[entry].to_string());
            return Err(FormatError::TensorEntryOutOfRange { entry, index, value, dims });
        }
        Ok(Self { dims: bounds, indices, values })
    }

    /// The tensor that `entries` lists, in their order.
    ///
    /// # Errors
    /// Those of [`Coo3::try_new`], but for the lengths, which are right; [`FormatError::OutOfMemory`].
    pub fn from_entries(
        dims: [usize; 3],
        entries: impl IntoIterator<Item = ([u32; 3], V)>,
    ) -> Result<Self, FormatError> {
        let (mut indices, mut values) = ([const { Vec::new() }; 3], Vec::new());
        for (index, value) in entries {
            for (of_mode, index) in indices.iter_mut().zip(index) {
                try_push(of_mode, index, "indices")?;
            }
            try_push(&mut values, value, "values")?;
        }
        Self::try_new(dims, indices, values)
    }

    /// Compressed fibers: sorted, duplicates summed. The same as [`Csf3::try_from_coo`].
    ///
    /// # Errors
    /// [`FormatError::ModeOrder`], [`FormatError::OutOfMemory`].
    pub fn to_csf(&self, mode_order: [usize; 3]) -> Result<Csf3<V>, FormatError> {
        Csf3::try_from_coo(self, mode_order)
    }
}

impl<V> Coo3<V> {
    /// Dimensions `I`, `J`, `K`.
    pub fn dims(&self) -> [usize; 3] {
        self.dims.map(|dim| dim as usize)
    }

    /// Number of entries, duplicates counted each time.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Index of each entry in mode `mode`.
    ///
    /// # Panics
    /// If `mode` is not below 3, like an index into an array.
    pub fn indices(&self, mode: usize) -> &[u32] {
        &self.indices[mode]
    }

    /// Value of each entry.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Every entry as `([i, j, k], value)`, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = ([u32; 3], V)>
    where
        V: Copy,
    {
        let [i, j, k] = &self.indices;
        let indices = i.iter().zip(j).zip(k);
        indices.zip(&self.values).map(|(((&i, &j), &k), &value)| ([i, j, k], value))
    }

    /// The arrays: indices of each mode, values.
    pub fn into_parts(self) -> ([Vec<u32>; 3], Vec<V>) {
        (self.indices, self.values)
    }

    /// Size of each array in bytes.
    pub fn byte_sizes(&self) -> ByteSizes {
        let [i, j, k] = &self.indices;
        ByteSizes::new(vec![
            ("indices of mode 0", bytes_of(i)),
            ("indices of mode 1", bytes_of(j)),
            ("indices of mode 2", bytes_of(k)),
            ("values", bytes_of(&self.values)),
        ])
    }
}

/// Dimensions of a tensor in 32 bits.
///
/// # Errors
/// [`FormatError::ModeTooLarge`] for the first that exceeds 2³² − 1.
pub fn mode_dimensions(dims: [usize; 3]) -> Result<[u32; 3], FormatError> {
    let mut narrowed = [0; 3];
    for (mode, (narrowed, &found)) in narrowed.iter_mut().zip(&dims).enumerate() {
        *narrowed = u32::try_from(found).map_err(|_| FormatError::ModeTooLarge { mode, found })?;
    }
    Ok(narrowed)
}

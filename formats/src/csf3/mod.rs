//! Compressed sparse fibers of three modes.

mod build;
mod check;
mod parts;
mod transform;

#[cfg(test)]
mod tests;

use std::ops::Range;

pub use check::check_mode_order;
pub use parts::Csf3Parts;

use crate::memory::{ByteSizes, bytes_of, index};
use crate::{Coo3, FormatError, Value};

/// A sparse tensor of three modes in compressed sparse fibers (CSF; Smith and Karypis, "Tensor-Matrix Products with
/// a Compressed Sparse Tensor", IA³ 2015): what [`Csr`](crate::Csr) is for matrices, without empty slices.
///
/// The entries are the leaves of a tree of three levels, and level `l` has the indices of mode `mode_order[l]`.
/// A *root* is a slice with entries. Its children are its *fibers* with entries, those of root `r` at
/// `root_offsets[r] .. root_offsets[r + 1]`. The children of a fiber are its entries, those of fiber `f` at
/// `fiber_offsets[f] .. fiber_offsets[f + 1]`. Nothing is as long as a mode.
///
/// Invariants, with `r = |root_indices|`, `f = |fiber_indices|` and `nnz = |values|`; dimensions are at most
/// 2³² − 1, and `mode_order` holds 0, 1 and 2 once each. [`FormatError::Csf3`] names the others by label:
///
/// | label | formula |
/// | --- | --- |
/// | L1 | `len(root_offsets) = r + 1`, `len(fiber_offsets) = f + 1`, `len(leaf_indices) = nnz` |
/// | R1 | `root_offsets[0] = 0`, `∀ i < r: root_offsets[i] < root_offsets[i + 1]`, `root_offsets[r] = f` |
/// | R2 | root indices strictly ascend and are `< dims[mode_order[0]]` |
/// | F1 | `fiber_offsets[0] = 0`, `∀ i < f: fiber_offsets[i] < fiber_offsets[i + 1]`, `fiber_offsets[f] = nnz` |
/// | F2 | the fiber indices of each root strictly ascend and are `< dims[mode_order[1]]` |
/// | E1 | the leaf indices of each fiber strictly ascend and are `< dims[mode_order[2]]` |
///
/// So no root or fiber is empty, and there are no duplicates. Zeros, NaN and infinities are entries like any other
/// and are kept, also where duplicates sum to zero.
///
/// Two tensors are equal if dimensions, order of modes, pattern and values are; how many duplicates were summed does
/// not matter.
///
/// # Examples
/// ```
/// use windrow_formats::Coo3;
///
/// let entries = [([1, 2, 0], 4.0f32), ([0, 0, 1], 1.0), ([1, 0, 1], 2.0), ([1, 0, 1], 0.5), ([1, 2, 1], 8.0)];
/// let a = Coo3::from_entries([2, 3, 2], entries)?.to_csf([0, 1, 2])?;
/// assert_eq!((a.root_indices(), a.root_offsets()), (&[0, 1][..], &[0, 1, 3][..]));
/// assert_eq!((a.fiber_indices(), a.fiber_offsets()), (&[0, 0, 2][..], &[0, 1, 2, 4][..]));
/// assert_eq!((a.leaf_indices(), a.values()), (&[1, 1, 0, 1][..], &[1.0, 2.5, 4.0, 8.0][..]));
/// assert_eq!(a.summed_duplicates(), 1);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Csf3<V> {
    dims: [u32; 3],
    mode_order: [usize; 3],
    root_indices: Vec<u32>,
    root_offsets: Vec<u64>,
    fiber_indices: Vec<u32>,
    fiber_offsets: Vec<u64>,
    leaf_indices: Vec<u32>,
    values: Vec<V>,
    summed_duplicates: u64,
}

impl<V: Value> Csf3<V> {
    /// The tensor that `coo` lists, with mode `mode_order[l]` at level `l`; duplicates are summed in the order in
    /// which they came.
    ///
    /// # Cost
    /// A parallel stable sort by comparison, and a pass over the entries on one thread. Needs room for two copies of
    /// the list beside the result.
    ///
    /// # Errors
    /// - [`FormatError::ModeOrder`] unless `mode_order` holds 0, 1 and 2 once each;
    /// - [`FormatError::OutOfMemory`].
    pub fn try_from_coo(coo: &Coo3<V>, mode_order: [usize; 3]) -> Result<Self, FormatError> {
        build::from_coo(coo, mode_order)
    }
}

impl<V> Csf3<V> {
    /// Dimensions `I`, `J`, `K`, in the order of the tensor's modes.
    pub fn dims(&self) -> [usize; 3] {
        self.dims.map(|dim| dim as usize)
    }

    /// The mode at each level: roots, fibers, leaves.
    pub fn mode_order(&self) -> [usize; 3] {
        self.mode_order
    }

    /// Number of roots: slices that have entries.
    pub fn roots(&self) -> usize {
        self.root_indices.len()
    }

    /// Number of fibers that have entries.
    pub fn fibers(&self) -> usize {
        self.fiber_indices.len()
    }

    /// Number of entries, explicit zeros included.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Index of each root in mode `mode_order[0]`, ascending.
    pub fn root_indices(&self) -> &[u32] {
        &self.root_indices
    }

    /// Offsets of fibers, one more than roots: root `r` has fibers `root_offsets[r] .. root_offsets[r + 1]`.
    pub fn root_offsets(&self) -> &[u64] {
        &self.root_offsets
    }

    /// Index of each fiber in mode `mode_order[1]`, ascending in each root.
    pub fn fiber_indices(&self) -> &[u32] {
        &self.fiber_indices
    }

    /// Offsets of entries, one more than fibers: fiber `f` has entries `fiber_offsets[f] .. fiber_offsets[f + 1]`.
    pub fn fiber_offsets(&self) -> &[u64] {
        &self.fiber_offsets
    }

    /// Index of each entry in mode `mode_order[2]`, ascending in each fiber.
    pub fn leaf_indices(&self) -> &[u32] {
        &self.leaf_indices
    }

    /// Value of each entry.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Entries of the list that were added to another entry at the same place.
    pub fn summed_duplicates(&self) -> u64 {
        self.summed_duplicates
    }

    /// Positions of the fibers of root `r`.
    ///
    /// # Panics
    /// If `r` is not below [`roots`](Self::roots), like an index into a slice.
    pub fn root_range(&self, r: usize) -> Range<usize> {
        index(self.root_offsets[r])..index(self.root_offsets[r + 1])
    }

    /// Positions of the entries of fiber `f`.
    ///
    /// # Panics
    /// If `f` is not below [`fibers`](Self::fibers), like an index into a slice.
    pub fn fiber_range(&self, f: usize) -> Range<usize> {
        index(self.fiber_offsets[f])..index(self.fiber_offsets[f + 1])
    }

    /// Leaf indices and values of fiber `f`.
    ///
    /// # Panics
    /// If `f` is not below [`fibers`](Self::fibers), like an index into a slice.
    pub fn fiber(&self, f: usize) -> (&[u32], &[V]) {
        let range = self.fiber_range(f);
        (&self.leaf_indices[range.clone()], &self.values[range])
    }

    /// Every entry as `([i, j, k], value)`, modes as the tensor numbers them, in the order of the tree.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Coo3;
    ///
    /// let a = Coo3::from_entries([2, 3, 2], [([0, 0, 1], 1.0f32), ([1, 2, 0], 4.0)])?.to_csf([2, 0, 1])?;
    /// assert!(a.entries().eq([([1, 2, 0], 4.0), ([0, 0, 1], 1.0)]));
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn entries(&self) -> impl Iterator<Item = ([u32; 3], V)>
    where
        V: Copy,
    {
        (0..self.roots()).flat_map(move |r| {
            self.root_range(r).flat_map(move |f| {
                let (leaves, values) = self.fiber(f);
                leaves.iter().zip(values).map(move |(&leaf, &value)| {
                    let path = [self.root_indices[r], self.fiber_indices[f], leaf];
                    (in_modes(self.mode_order, path), value)
                })
            })
        })
    }

    /// Size of each array in bytes.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("root_indices", bytes_of(&self.root_indices)),
            ("root_offsets", bytes_of(&self.root_offsets)),
            ("fiber_indices", bytes_of(&self.fiber_indices)),
            ("fiber_offsets", bytes_of(&self.fiber_offsets)),
            ("leaf_indices", bytes_of(&self.leaf_indices)),
            ("values", bytes_of(&self.values)),
        ])
    }
}

impl<V: PartialEq> PartialEq for Csf3<V> {
    fn eq(&self, other: &Self) -> bool {
        (self.dims, self.mode_order) == (other.dims, other.mode_order)
            && (&self.root_indices, &self.root_offsets) == (&other.root_indices, &other.root_offsets)
            && (&self.fiber_indices, &self.fiber_offsets) == (&other.fiber_indices, &other.fiber_offsets)
            && self.leaf_indices == other.leaf_indices
            && self.values == other.values
    }
}

/// `path`, an index for each level, with an index for each mode.
fn in_modes(mode_order: [usize; 3], path: [u32; 3]) -> [u32; 3] {
    let mut by_mode = [0; 3];
    mode_order.iter().zip(path).for_each(|(&mode, index)| by_mode[mode] = index);
    by_mode
}

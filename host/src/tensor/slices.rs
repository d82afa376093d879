//! The entries of a tensor by slices: compressed roots and fibers made as long as the mode and the entries.

use windrow_formats::memory::{try_copy, try_with_room, try_zeroed};
use windrow_formats::{Csf3, OutOfMemory};

use crate::num::wide;
use crate::plan::{ArraySize, push};

/// The entries of a tensor in the order of its fibers, rows being the slices of the roots' mode, empty ones too.
#[derive(Debug)]
pub(super) struct Slices {
    /// First entry of each slice, and the number of entries.
    pub(super) offsets: Vec<u64>,
    /// Index of each entry's fiber.
    pub(super) fibers: Vec<u32>,
    /// Index of each entry's leaf.
    pub(super) leaves: Vec<u32>,
}

impl Slices {
    /// Names and sizes of the arrays, before there are any.
    pub(super) fn sizes<V>(a: &Csf3<V>) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "slice_offsets", 8 * (wide(level_dims(a)[0]) + 1));
        push(&mut sizes, "fiber_indices", 4 * wide(a.nnz()));
        push(&mut sizes, "leaf_indices", 4 * wide(a.nnz()));
        sizes
    }

    pub(super) fn new<V>(a: &Csf3<V>) -> Result<Self, OutOfMemory> {
        let [rows, ..] = level_dims(a);
        let mut offsets = try_zeroed(rows + 1, "slice_offsets")?;
        let (roots, fiber_offsets) = (a.root_indices(), a.fiber_offsets());
        for (root, &row) in roots.iter().enumerate() {
            let fibers = a.root_range(root);
            offsets[row as usize + 1] = fiber_offsets[fibers.end];
        }
        // An empty slice ends where the one before does.
        let mut end = 0;
        for offset in &mut offsets {
            end = end.max(*offset);
            *offset = end;
        }
        let mut fibers = try_with_room(a.nnz(), "fiber_indices")?;
        for (fiber, &index) in a.fiber_indices().iter().enumerate() {
            fibers.resize(a.fiber_range(fiber).end, index);
        }
        Ok(Self { offsets, fibers, leaves: try_copy(a.leaf_indices(), "leaf_indices")? })
    }
}

/// What decides how a tensor is multiplied, wherever it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorFacts {
    /// Dimensions in the order of the levels.
    pub(super) dims: [usize; 3],
    pub(super) mode_order: [usize; 3],
    pub(super) nnz: usize,
    pub(super) fibers: usize,
    /// Slices of the roots' mode without entries.
    pub(super) empty_slices: u64,
}

impl TensorFacts {
    pub(super) fn of<V>(a: &Csf3<V>) -> Self {
        let dims = level_dims(a);
        Self {
            dims,
            mode_order: a.mode_order(),
            nnz: a.nnz(),
            fibers: a.fibers(),
            empty_slices: wide(dims[0] - a.roots()),
        }
    }
}

/// Dimensions in the order of the levels: roots, fibers, leaves.
pub(super) fn level_dims<V>(a: &Csf3<V>) -> [usize; 3] {
    a.mode_order().map(|mode| a.dims()[mode])
}

#[cfg(test)]
mod tests {
    use windrow_formats::Coo3;

    use super::*;

    #[test]
    fn empty_slices_are_rows_too() {
        let entries = [([1, 0, 2], 1.0f32), ([1, 3, 0], 2.0), ([1, 3, 1], 3.0), ([4, 2, 2], 4.0)];
        let tensor = Coo3::from_entries([6, 4, 3], entries).unwrap();
        let slices = Slices::new(&tensor.to_csf([0, 1, 2]).unwrap()).unwrap();
        assert_eq!(slices.offsets, [0, 0, 3, 3, 3, 4, 4]);
        assert_eq!((slices.fibers, slices.leaves), (vec![0, 3, 3, 2], vec![2, 0, 1, 2]));
        let by_leaf = tensor.to_csf([2, 0, 1]).unwrap();
        assert_eq!(level_dims(&by_leaf), [3, 6, 4]);
        assert_eq!(Slices::new(&by_leaf).unwrap().offsets, [0, 1, 2, 4]);
        let empty = Coo3::<f32>::from_entries([2, 0, 0], []).unwrap().to_csf([0, 1, 2]).unwrap();
        assert_eq!(Slices::new(&empty).unwrap().offsets, [0, 0, 0]);
    }
}

//! Tensors made from a tensor: other values, other form.

use super::Csf3;
use crate::memory::{try_collect, try_copy, try_zeroed};
use crate::{Coo3, FormatError, OutOfMemory, Value};

impl<V: Value> Csf3<V> {
    /// The same pattern with value `f(v)` in place of each `v`.
    ///
    /// # Panics
    /// If there is no memory for it; [`with_values`](Self::with_values) says so.
    pub fn map_values<W: Value>(&self, f: impl Fn(V) -> W) -> Csf3<W> {
        let values = try_collect(self.values.iter().map(|&value| f(value)), "values");
        values.and_then(|values| self.on_this_pattern(values)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same tensor in another element type, each value rounded once.
    ///
    /// # Panics
    /// As [`map_values`](Self::map_values).
    pub fn cast<W: Value>(&self) -> Csf3<W> {
        self.map_values(|value| W::from_f64(value.to_f64()))
    }

    /// The same pattern with other values, one for each entry in order.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are as many values as entries;
    /// [`FormatError::OutOfMemory`]: the indices are copied.
    pub fn with_values<W: Value>(&self, values: Vec<W>) -> Result<Csf3<W>, FormatError> {
        if values.len() != self.nnz() {
            let (found, expected, why) = (values.len(), self.nnz(), "one for each entry of the pattern");
            return Err(FormatError::LengthMismatch { array: "values", found, expected, why });
        }
        Ok(self.on_this_pattern(values)?)
    }

    fn on_this_pattern<W>(&self, values: Vec<W>) -> Result<Csf3<W>, OutOfMemory> {
        Ok(Csf3 {
            dims: self.dims,
            mode_order: self.mode_order,
            root_indices: try_copy(&self.root_indices, "root_indices")?,
            root_offsets: try_copy(&self.root_offsets, "root_offsets")?,
            fiber_indices: try_copy(&self.fiber_indices, "fiber_indices")?,
            fiber_offsets: try_copy(&self.fiber_offsets, "fiber_offsets")?,
            leaf_indices: try_copy(&self.leaf_indices, "leaf_indices")?,
            values,
            summed_duplicates: self.summed_duplicates,
        })
    }

    /// The entries as a list, in the order of the tree, modes as the tensor numbers them.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn to_coo(&self) -> Result<Coo3<V>, FormatError> {
        let mut roots = try_zeroed(self.nnz(), "indices")?;
        let mut fibers = try_zeroed(self.nnz(), "indices")?;
        for r in 0..self.roots() {
            for f in self.root_range(r) {
                let entries = self.fiber_range(f);
                roots[entries.clone()].fill(self.root_indices[r]);
                fibers[entries].fill(self.fiber_indices[f]);
            }
        }
        let mut indices = [const { Vec::new() }; 3];
        let levels = [roots, fibers, try_copy(&self.leaf_indices, "indices")?];
        self.mode_order.iter().zip(levels).for_each(|(&mode, of_level)| indices[mode] = of_level);
        Coo3::try_new(self.dims(), indices, try_copy(&self.values, "values")?)
    }
}

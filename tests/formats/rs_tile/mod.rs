//! RS-Tile: exact round trips, and the refusal of every broken invariant.

mod invariants;
mod round_trip;

use crate::common::lists;
use proptest::collection::vec;
use proptest::prelude::*;
use windrow_formats::{Csr, RowAssignment, RowPath};

/// A matrix with any bits as values, and a path for each row.
fn assigned(most: usize) -> impl Strategy<Value = (Csr<f32>, RowAssignment)> {
    lists(most).prop_flat_map(|list| {
        let pattern = list.to_coo().to_csr().unwrap();
        let bits = vec(any::<u32>(), pattern.nnz());
        let path = prop_oneof![3 => Just(RowPath::Tile), 1 => Just(RowPath::Residual)];
        (bits, vec(path, pattern.rows())).prop_map(move |(bits, paths)| {
            let values = bits.into_iter().map(f32::from_bits).collect();
            (pattern.with_values(values).unwrap(), RowAssignment::from(paths))
        })
    })
}

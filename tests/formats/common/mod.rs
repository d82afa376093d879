//! Small random matrices with values for which every sum is exact.

use proptest::collection::vec;
use proptest::prelude::*;
use windrow_formats::Coo;

/// A list of coordinates with duplicates, in any order; either side may be 0.
#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) entries: Vec<(u32, u32, i8)>,
}

impl List {
    pub(crate) fn to_coo(&self) -> Coo<f32> {
        let rows = self.entries.iter().map(|entry| entry.0).collect();
        let cols = self.entries.iter().map(|entry| entry.1).collect();
        let values = self.entries.iter().map(|entry| f32::from(entry.2)).collect();
        Coo::try_new(self.rows, self.cols, rows, cols, values).unwrap()
    }
}

/// Up to `most` entries in a matrix of up to 40 × 40, thin and empty shapes included.
pub(crate) fn lists(most: usize) -> impl Strategy<Value = List> {
    (0..=40usize, 0..=40usize).prop_flat_map(move |(rows, cols)| {
        let most = if rows == 0 || cols == 0 { 0 } else { most };
        let bound = |dimension: usize| 0..u32::try_from(dimension.max(1)).unwrap();
        let entry = (bound(rows), bound(cols), -4..=4i8);
        vec(entry, 0..=most).prop_map(move |entries| List { rows, cols, entries })
    })
}

//! Compressed fibers against a map from places to sums, on small integer tensors compared exactly.

use std::collections::BTreeMap;

use proptest::prelude::*;
use windrow_formats::{Coo3, Csf3, FormatError};

/// A list with duplicates, in any order; any dimension may be 0.
#[derive(Debug, Clone)]
struct List {
    dims: [usize; 3],
    entries: Vec<([u32; 3], i8)>,
}

impl List {
    fn to_coo(&self) -> Coo3<f32> {
        let entries = self.entries.iter().map(|&(index, value)| (index, f32::from(value)));
        Coo3::from_entries(self.dims, entries).unwrap()
    }

    /// What there is at each place, places as paths in the tree.
    fn sums(&self, mode_order: [usize; 3]) -> BTreeMap<[u32; 3], f32> {
        let mut sums = BTreeMap::new();
        for &(index, value) in &self.entries {
            *sums.entry(mode_order.map(|mode| index[mode])).or_default() += f32::from(value);
        }
        sums
    }
}

fn lists() -> impl Strategy<Value = List> {
    [0..=9usize, 0..=9usize, 0..=9usize].prop_flat_map(|dims| {
        let most = if dims.contains(&0) { 0 } else { 150 };
        let index = dims.map(|dim| 0..u32::try_from(dim.max(1)).unwrap());
        proptest::collection::vec((index, -4..=4i8), 0..=most).prop_map(move |entries| List { dims, entries })
    })
}

fn orders() -> impl Strategy<Value = [usize; 3]> {
    proptest::sample::select(vec![[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
}

/// Every invariant of the type's documentation.
fn assert_invariants(csf: &Csf3<f32>) {
    let bound = csf.mode_order().map(|mode| u32::try_from(csf.dims()[mode]).unwrap());
    let ascends = |indices: &[u32], bound: u32| {
        indices.is_sorted_by(|a, b| a < b) && indices.last().is_none_or(|&last| last < bound)
    };
    let offsets = |offsets: &[u64], parents: usize, children: usize| {
        assert_eq!((offsets.len(), offsets[0], offsets[parents]), (parents + 1, 0, children as u64));
        assert!(offsets.is_sorted_by(|a, b| a < b));
    };
    offsets(csf.root_offsets(), csf.roots(), csf.fibers());
    offsets(csf.fiber_offsets(), csf.fibers(), csf.nnz());
    assert_eq!((csf.leaf_indices().len(), csf.values().len()), (csf.nnz(), csf.nnz()));
    assert!(ascends(csf.root_indices(), bound[0]));
    assert!((0..csf.roots()).all(|root| ascends(&csf.fiber_indices()[csf.root_range(root)], bound[1])));
    assert!((0..csf.fibers()).all(|fiber| ascends(csf.fiber(fiber).0, bound[2])));
}

proptest! {
    #[test]
    fn lists_are_sorted_and_summed(list in lists(), order in orders()) {
        let csf = list.to_coo().to_csf(order).unwrap();
        assert_invariants(&csf);
        let want = list.sums(order);
        prop_assert_eq!((csf.dims(), csf.mode_order()), (list.dims, order));
        prop_assert_eq!(csf.summed_duplicates(), (list.entries.len() - want.len()) as u64);
        let found: Vec<_> = csf.entries().map(|(index, value)| (order.map(|mode| index[mode]), value)).collect();
        prop_assert_eq!(found, want.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn lists_and_parts_come_back(list in lists(), order in orders(), other in orders()) {
        let csf = list.to_coo().to_csf(order).unwrap();
        let back = csf.to_coo().unwrap();
        prop_assert!(back.entries().eq(csf.entries()));
        prop_assert_eq!(&back.to_csf(order).unwrap(), &csf);
        prop_assert_eq!(back.to_csf(order).unwrap().summed_duplicates(), 0);
        prop_assert_eq!(back.to_csf(other).unwrap(), list.to_coo().to_csf(other).unwrap());
        prop_assert_eq!(Csf3::try_from_parts(csf.clone().into_parts()).unwrap(), csf);
    }

    #[test]
    fn one_wrong_number_is_refused_or_a_valid_tensor(
        list in lists(),
        order in orders(),
        (array, at) in (0..5usize, any::<proptest::sample::Index>()),
        number in prop_oneof![0..20u64, Just(u64::from(u32::MAX)), Just(u64::MAX)],
    ) {
        let mut parts = list.to_coo().to_csf(order).unwrap().into_parts();
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        let set = |indices: &mut Vec<u32>| {
            if !indices.is_empty() {
                let at = at.index(indices.len());
                indices[at] = index;
            }
        };
        match array {
            0 => set(&mut parts.root_indices),
            1 => set(&mut parts.fiber_indices),
            2 => set(&mut parts.leaf_indices),
            3 => { let at = at.index(parts.root_offsets.len()); parts.root_offsets[at] = number; }
            _ => { let at = at.index(parts.fiber_offsets.len()); parts.fiber_offsets[at] = number; }
        }
        match Csf3::try_from_parts(parts) {
            Ok(csf) => assert_invariants(&csf),
            Err(error) => prop_assert!(matches!(error, FormatError::Csf3 { .. }), "{}", error),
        }
    }
}

//! A tensor checked by hand, messages of refusals, and lists long enough to be sorted in parallel.

use std::collections::BTreeMap;

use super::*;
use crate::synthetic::SplitMix64;

/// Every order of three modes.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// `2 × 3 × 2`, out of order and with `(1, 2, 0)` twice:
///
/// ```text
/// i = 0:  j\k  0  1      i = 1:  j\k  0  1
///          0   .  1               0   .  .
///          1   .  .               1   .  .
///          2   2  3               2   9  6
/// ```
fn example() -> Coo3<f32> {
    let entries = [
        ([1, 2, 0], 4.0),
        ([0, 2, 1], 3.0),
        ([0, 0, 1], 1.0),
        ([1, 2, 1], 6.0),
        ([1, 2, 0], 5.0),
        ([0, 2, 0], 2.0),
    ];
    Coo3::from_entries([2, 3, 2], entries).unwrap()
}

#[test]
fn levels_by_hand() {
    let csf = example().to_csf([0, 1, 2]).unwrap();
    assert_eq!((csf.dims(), csf.mode_order()), ([2, 3, 2], [0, 1, 2]));
    assert_eq!((csf.roots(), csf.fibers(), csf.nnz(), csf.summed_duplicates()), (2, 3, 5, 1));
    assert_eq!((csf.root_indices(), csf.root_offsets()), (&[0, 1][..], &[0, 2, 3][..]));
    assert_eq!((csf.fiber_indices(), csf.fiber_offsets()), (&[0, 2, 2][..], &[0, 1, 3, 5][..]));
    assert_eq!(csf.leaf_indices(), [1, 0, 1, 0, 1]);
    assert_eq!(csf.values(), [1.0, 2.0, 3.0, 9.0, 6.0]);
    assert_eq!((csf.root_range(0), csf.root_range(1)), (0..2, 2..3));
    assert_eq!((csf.fiber_range(1), csf.fiber(1)), (1..3, (&[0, 1][..], &[2.0, 3.0][..])));

    // Roots are k, fibers j, leaves i: slice k = 0 has the fiber j = 2 only.
    let csf = example().to_csf([2, 1, 0]).unwrap();
    assert_eq!((csf.dims(), csf.mode_order()), ([2, 3, 2], [2, 1, 0]));
    assert_eq!((csf.root_indices(), csf.root_offsets()), (&[0, 1][..], &[0, 1, 3][..]));
    assert_eq!((csf.fiber_indices(), csf.fiber_offsets()), (&[2, 0, 2][..], &[0, 2, 3, 5][..]));
    assert_eq!(csf.leaf_indices(), [0, 1, 0, 0, 1]);
    assert_eq!(csf.values(), [2.0, 9.0, 1.0, 3.0, 6.0]);
    let first: Vec<_> = csf.entries().take(3).collect();
    assert_eq!(first, [([0, 2, 0], 2.0), ([1, 2, 0], 9.0), ([0, 0, 1], 1.0)]);

    // Roots are j: slice j = 1 is empty and no root.
    let csf = example().to_csf([1, 2, 0]).unwrap();
    assert_eq!((csf.root_indices(), csf.root_offsets()), (&[0, 2][..], &[0, 1, 3][..]));
    assert_eq!((csf.fiber_indices(), csf.fiber_offsets()), (&[1, 0, 1][..], &[0, 1, 3, 5][..]));
    assert_eq!(csf.leaf_indices(), [0, 0, 1, 0, 1]);
}

#[test]
fn tensors_without_entries() {
    for dims in [[0, 0, 0], [0, 3, 4], [3, 0, 4], [3, 4, 0], [3, 4, 5]] {
        for order in ORDERS {
            let coo = Coo3::<f64>::from_entries(dims, []).unwrap();
            let csf = coo.to_csf(order).unwrap();
            assert_eq!((csf.dims(), csf.roots(), csf.fibers(), csf.nnz()), (dims, 0, 0, 0));
            assert_eq!((csf.root_offsets(), csf.fiber_offsets()), (&[0][..], &[0][..]));
            assert_eq!(csf.entries().count(), 0);
            assert_eq!(csf.to_coo().unwrap(), coo);
            assert_eq!(Csf3::try_from_parts(csf.clone().into_parts()).unwrap(), csf);
        }
    }
}

#[test]
fn orders_that_are_none() {
    for (order, shown) in [([0, 0, 1], "[0, 0, 1]"), ([1, 2, 3], "[1, 2, 3]"), ([usize::MAX, 0, 1], "")] {
        let message = example().to_csf(order).unwrap_err().to_string();
        assert!(message.ends_with(" is no order of three modes; give 0, 1 and 2, each once"), "{message}");
        assert!(message.starts_with(shown), "{message}");
        let parts = Csf3Parts { mode_order: order, ..example().to_csf([0, 1, 2]).unwrap().into_parts() };
        assert_eq!(Csf3::try_from_parts(parts).unwrap_err().to_string(), message);
    }
}

#[test]
fn lists_that_are_none() {
    let refusal = |dims, indices, values: &[f32]| {
        Coo3::try_new(dims, indices, values.to_vec()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal([1, 1 << 32, 1], [vec![], vec![], vec![]], &[]),
        "mode 1 has 4294967296 indices, more than the 4294967295 that 32 bits can name; split the tensor"
    );
    assert_eq!(
        refusal([4, 5, 6], [vec![0], vec![0], vec![]], &[1.0]),
        "indices of mode 2 has 0 elements but 1 are needed, one for each value"
    );
    // The first entry that is outside, not the first mode that has one.
    assert_eq!(
        refusal([4, 5, 6], [vec![0, 1, 4], vec![0, 1, 1], vec![5, 6, 1]], &[1.0, f32::NAN, 2.5]),
        "entry 1 (index [1, 1, 6], value NaN) lies outside of 4 × 5 × 6"
    );
    assert_eq!(
        refusal([0, 5, 6], [vec![0], vec![0], vec![0]], &[2.5]),
        "entry 0 (index [0, 0, 0], value 2.5) lies outside of 0 × 5 × 6"
    );
    let widest = u32::MAX as usize;
    let index = u32::MAX - 1;
    assert!(Coo3::from_entries([widest; 3], [([index; 3], 1.0f32)]).is_ok());
    assert!(Coo3::from_entries([widest; 3], [([index, index, u32::MAX], 1.0f32)]).is_err());
}

#[test]
fn arrays_that_are_no_tensor() {
    let refused = |change: fn(&mut Csf3Parts<f32>), message: &str| {
        let mut parts = example().to_csf([2, 1, 0]).unwrap().into_parts();
        change(&mut parts);
        assert_eq!(Csf3::try_from_parts(parts).unwrap_err().to_string(), message);
    };
    let broken = |change, message: &str| refused(change, &format!("CSF invariant {message}"));
    refused(
        |parts| parts.dims[0] = 1 << 32,
        "mode 0 has 4294967296 indices, more than the 4294967295 that 32 bits can name; split the tensor",
    );
    broken(
        |parts| parts.root_offsets.clear(),
        "L1 does not hold: root_offsets has 0 elements, not 3, one more than roots",
    );
    broken(
        |parts| parts.fiber_indices.truncate(2),
        "L1 does not hold: fiber_offsets has 4 elements, not 3, one more than fibers",
    );
    broken(
        |parts| parts.leaf_indices.push(1),
        "L1 does not hold: leaf_indices has 6 elements, not 5, one for each value",
    );
    broken(|parts| parts.root_offsets[0] = 1, "R1 does not hold: root_offsets starts at 1, not at 0");
    broken(|parts| parts.root_offsets[1] = 3, "R1 does not hold: root 1 has no fibers: it goes from 3 to 3");
    broken(
        |parts| parts.root_offsets[1] = u64::MAX,
        "R1 does not hold: root 1 has no fibers: it goes from 18446744073709551615 to 3",
    );
    broken(
        |parts| parts.root_offsets[2] = u64::MAX,
        "R1 does not hold: root_offsets ends at 18446744073709551615 but there are 3 fibers",
    );
    broken(
        |parts| parts.root_indices[1] = 2,
        "R2 does not hold: root 1: index 2 is not below the 2 of mode 2",
    );
    broken(
        |parts| parts.root_indices[0] = 1,
        "R2 does not hold: root 1: index 1 follows 1; indices must strictly ascend",
    );
    broken(|parts| parts.fiber_offsets[0] = 2, "F1 does not hold: fiber_offsets starts at 2, not at 0");
    broken(
        |parts| parts.fiber_offsets[2] = 2,
        "F1 does not hold: fiber 1 has no entries: it goes from 2 to 2",
    );
    broken(
        |parts| parts.fiber_offsets[3] = 4,
        "F1 does not hold: fiber_offsets ends at 4 but there are 5 entries",
    );
    broken(
        |parts| parts.fiber_indices[0] = u32::MAX,
        "F2 does not hold: fiber 0: index 4294967295 is not below the 3 of mode 1",
    );
    broken(
        |parts| parts.fiber_indices[1] = 2,
        "F2 does not hold: fiber 2: index 2 follows 2; indices must strictly ascend",
    );
    broken(
        |parts| parts.leaf_indices[1] = 2,
        "E1 does not hold: entry 1: index 2 is not below the 2 of mode 0",
    );
    broken(
        |parts| parts.leaf_indices.swap(3, 4),
        "E1 does not hold: entry 4: index 0 follows 1; indices must strictly ascend",
    );
    // The first of several, in the order of the labels and of the places.
    broken(
        |parts| (parts.leaf_indices, parts.fiber_indices) = (vec![9; 5], vec![9, 8, 7]),
        "F2 does not hold: fiber 0: index 9 is not below the 3 of mode 1",
    );
    broken(|parts| parts.dims = [0, 0, 0], "R2 does not hold: root 0: index 0 is not below the 0 of mode 2");
}

#[test]
fn long_lists_are_sorted_and_summed_in_order() {
    // Values are no integers, so that the order of the sums shows.
    let mut random = SplitMix64::new(5);
    let mut draw = || {
        let index = [random.below(50), random.below(9), random.below(700)];
        (index, random.below(1000) as f32 / 7.0)
    };
    let entries: Vec<_> = (0..400_000).map(|_| draw()).collect();
    let coo = Coo3::from_entries([50, 9, 700], entries.iter().copied()).unwrap();
    for order in ORDERS {
        let mut want = BTreeMap::new();
        for &(index, value) in &entries {
            let sum = want.entry(order.map(|mode| index[mode]));
            sum.and_modify(|sum| *sum += value).or_insert(value);
        }
        let csf = coo.to_csf(order).unwrap();
        assert_eq!(csf.summed_duplicates(), 400_000 - want.len() as u64);
        let found = csf.entries().map(|(index, value)| (order.map(|mode| index[mode]), value));
        assert!(found.eq(want), "{order:?}");
        assert_eq!(Csf3::try_from_parts(csf.clone().into_parts()).unwrap(), csf);
    }
}

#[test]
fn a_place_in_long_arrays_is_the_first() {
    let entries = (0..300_000u32).map(|i| ([i / 3, i % 3, i % 7], 1.0f32));
    let csf = Coo3::from_entries([100_000, 3, 7], entries).unwrap().to_csf([0, 1, 2]).unwrap();
    let mut parts = csf.into_parts();
    for at in [299_999, 222_223, 222_222] {
        parts.leaf_indices[at] = 7;
    }
    let message = Csf3::try_from_parts(parts).unwrap_err().to_string();
    assert_eq!(message, "CSF invariant E1 does not hold: entry 222222: index 7 is not below the 7 of mode 2");
}

#[test]
fn special_values_are_entries() {
    let values = [0.0, f32::NAN, f32::INFINITY, -0.0, 1.0, -1.0];
    let entries = values.into_iter().zip([0, 1, 2, 3, 4, 4]).map(|(value, k)| ([0, 0, k], value));
    let csf = Coo3::from_entries([1, 1, 5], entries).unwrap().to_csf([0, 1, 2]).unwrap();
    assert_eq!((csf.nnz(), csf.summed_duplicates()), (5, 1));
    assert_eq!(csf.values()[4], 0.0, "duplicates that cancel stay an entry");
    assert!(csf.values()[3].is_sign_negative() && csf != csf.clone());
}

#[test]
fn other_values_on_the_same_pattern() {
    let csf = example().to_csf([0, 1, 2]).unwrap();
    let doubled = csf.map_values(|value| f64::from(value) * 2.0);
    assert_eq!(doubled.values(), [2.0, 4.0, 6.0, 18.0, 12.0]);
    assert_eq!(doubled.cast::<f32>(), csf.with_values(vec![2.0, 4.0, 6.0, 18.0, 12.0]).unwrap());
    assert_eq!(doubled.summed_duplicates(), 1);
    assert_eq!(
        csf.with_values(vec![1.0f32]).unwrap_err().to_string(),
        "values has 1 elements but 5 are needed, one for each entry of the pattern"
    );
}

#[test]
fn byte_sizes_are_those_of_the_arrays() {
    let sizes: Vec<_> =
        example().to_csf([0, 1, 2]).unwrap().byte_sizes().iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(sizes, [8, 24, 12, 32, 20, 20]);
    assert_eq!(example().byte_sizes().total(), 6 * 16);
}

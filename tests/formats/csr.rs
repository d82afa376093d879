//! Compressed rows against a map from positions to sums, on small integer matrices compared exactly.

use std::collections::BTreeMap;

use crate::common::lists;
use proptest::prelude::*;
use windrow_formats::{Canonicalised, Csr, FormatError, Pattern, Permutation};

type Sums = BTreeMap<(usize, u32), f32>;

fn sums(csr: &Csr<f32>) -> Sums {
    let rows = csr.rows_iter().enumerate();
    rows.flat_map(|(r, (cols, values))| cols.iter().zip(values).map(move |(&c, &v)| ((r, c), v))).collect()
}

/// Where the two index arrays are.
fn addresses(csr: &Csr<impl Sized>) -> (*const u64, *const u32) {
    (csr.row_offsets().as_ptr(), csr.col_indices().as_ptr())
}

/// Every invariant of the type's documentation.
fn assert_invariants(csr: &Csr<f32>) {
    let (offsets, nnz) = (csr.row_offsets(), csr.nnz());
    assert_eq!((offsets.len(), offsets[0], offsets[csr.rows()]), (csr.rows() + 1, 0, nnz as u64));
    assert!(offsets.is_sorted());
    assert_eq!((csr.col_indices().len(), csr.values().len()), (nnz, nnz));
    assert!(csr.col_indices().iter().all(|&column| (column as usize) < csr.cols()));
    assert!(csr.rows_iter().all(|(cols, _)| cols.is_sorted_by(|a, b| a < b)));
}

proptest! {
    #[test]
    fn lists_are_sorted_and_summed(list in lists(200)) {
        let mut want = Sums::new();
        for &(row, column, value) in &list.entries {
            *want.entry((row as usize, column)).or_default() += f32::from(value);
        }
        let csr = list.to_coo().to_csr().unwrap();
        assert_invariants(&csr);
        prop_assert_eq!((csr.rows(), csr.cols()), (list.rows, list.cols));
        prop_assert_eq!(csr.canonicalised().summed_duplicates, (list.entries.len() - want.len()) as u64);
        let unsorted = (0..list.rows).filter(|&row| {
            let of_row = list.entries.iter().filter(|entry| entry.0 as usize == row);
            !of_row.map(|entry| entry.1).is_sorted()
        });
        prop_assert_eq!(csr.canonicalised().sorted_rows, unsorted.count() as u64);
        prop_assert_eq!(sums(&csr), want);
    }

    #[test]
    fn compressed_rows_in_any_order_give_the_same(list in lists(200)) {
        let mut entries = list.entries.clone();
        entries.sort_by_key(|entry| entry.0);
        let offset = |row: usize| entries.partition_point(|entry| (entry.0 as usize) < row) as u64;
        let offsets = (0..=list.rows).map(offset).collect();
        let cols = entries.iter().map(|entry| entry.1).collect();
        let values = entries.iter().map(|entry| f32::from(entry.2)).collect();
        let csr = Csr::try_from_parts(list.rows, list.cols, offsets, cols, values).unwrap();
        assert_invariants(&csr);
        let from_list = list.to_coo().to_csr().unwrap();
        prop_assert_eq!(csr.canonicalised(), from_list.canonicalised());
        prop_assert_eq!(csr, from_list);
    }

    #[test]
    fn canonical_input_passes_unchanged(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let (offsets, cols, values) = csr.clone().into_parts();
        let again = Csr::try_from_parts(csr.rows(), csr.cols(), offsets, cols, values).unwrap();
        prop_assert_eq!(again.canonicalised().sorted_rows + again.canonicalised().summed_duplicates, 0);
        prop_assert!(again.bitwise_eq(&csr));
        prop_assert!(csr.to_coo().unwrap().to_csr().unwrap().bitwise_eq(&csr));
    }

    #[test]
    fn dense_matrices_come_back(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let mut dense = vec![0.0f32; csr.rows() * csr.cols()];
        for ((row, column), value) in sums(&csr) {
            dense[row * csr.cols() + column as usize] = value;
        }
        let back = Csr::from_dense(csr.rows(), csr.cols(), &dense).unwrap();
        assert_invariants(&back);
        let nonzero: Sums = sums(&csr).into_iter().filter(|&(_, value)| value != 0.0).collect();
        prop_assert_eq!(sums(&back), nonzero);
    }

    #[test]
    fn transposing_swaps_indices(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let transposed = csr.transpose().unwrap();
        assert_invariants(&transposed);
        let swapped: Sums =
            sums(&csr).into_iter().map(|((row, column), value)| ((column as usize, u32::try_from(row).unwrap()), value)).collect();
        prop_assert_eq!(sums(&transposed), swapped);
        prop_assert!(transposed.transpose().unwrap().bitwise_eq(&csr));
        let order = csr.transpose_order().unwrap();
        prop_assert!(transposed.with_values(order.apply(csr.values())).unwrap().bitwise_eq(&transposed));
        prop_assert_eq!(transposed.transpose_order().unwrap(), order.inverse());
    }

    #[test]
    fn permuting_moves_rows(list in lists(100), seed in any::<u64>()) {
        let csr = list.to_coo().to_csr().unwrap();
        let permutation = shuffled(csr.rows(), seed);
        let permuted = csr.permute_rows(&permutation).unwrap();
        assert_invariants(&permuted);
        for new in 0..csr.rows() {
            prop_assert_eq!(permuted.row(new), csr.row(permutation.to_old(new)));
        }
        prop_assert!(permuted.permute_rows(&permutation.inverse()).unwrap().bitwise_eq(&csr));
        prop_assert!(csr.permute_rows(&shuffled(csr.rows() + 1, seed)).is_err());
    }

    #[test]
    fn any_bits_survive_new_values(bits in proptest::collection::vec(any::<u32>(), 12)) {
        let pattern = Csr::<f64>::identity(12).unwrap();
        let csr = pattern.with_values(bits.iter().map(|&bits| f32::from_bits(bits)).collect()).unwrap();
        prop_assert!(csr.values().iter().map(|value| value.to_bits()).eq(bits.iter().copied()));
        prop_assert!(csr.bitwise_eq(&csr.transpose().unwrap()));
        let short = matches!(pattern.with_values(vec![0.0f32; 11]), Err(FormatError::LengthMismatch { .. }));
        prop_assert!(short);
    }

    #[test]
    fn what_has_the_same_pattern_shares_it(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let values: Vec<f64> = (0..csr.nnz()).map(|entry| entry as f64).collect();
        let made = Csr::from_pattern(csr.pattern().clone(), values.clone()).unwrap();
        let (replaced, mapped) = (csr.with_values(values).unwrap(), csr.map_values(|value| f64::from(value) * 2.0));
        let (half, wide): (Csr<half::f16>, Csr<f64>) = (csr.cast(), csr.cast());
        for pattern in [csr.clone().pattern(), made.pattern(), replaced.pattern(), mapped.pattern(), half.pattern(), wide.pattern()] {
            prop_assert!(pattern.is_shared_with(csr.pattern()));
        }
        prop_assert!([addresses(&made), addresses(&replaced), addresses(&half)].iter().all(|&at| at == addresses(&csr)));
        prop_assert_eq!(replaced.canonicalised(), csr.canonicalised());
        prop_assert_eq!(&made, &replaced);
        prop_assert!(half.cast::<f32>().bitwise_eq(&csr), "sums of small integers are f16");
    }

    #[test]
    fn patterns_and_values_come_back(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let (pattern, values) = csr.clone().into_pattern_values();
        let again = Csr::from_pattern(pattern.clone(), values).unwrap();
        prop_assert!(again.bitwise_eq(&csr) && again.pattern().is_shared_with(csr.pattern()));
        for wrong in [csr.nnz() + 1, csr.nnz().checked_sub(1).unwrap_or(7)] {
            let error = Csr::from_pattern(pattern.clone(), vec![0.0f32; wrong]).unwrap_err();
            let (expected, why) = (csr.nnz(), "one for each entry of the pattern");
            prop_assert_eq!(error, FormatError::LengthMismatch { array: "values", found: wrong, expected, why });
        }
        // Built anew from its arrays, which others still hold, a pattern is equal and not shared.
        let (offsets, columns) = pattern.clone().into_parts();
        let rebuilt = Pattern::try_new(csr.rows(), csr.cols(), offsets, columns).unwrap();
        prop_assert!(rebuilt == pattern && !rebuilt.is_shared_with(&pattern));
    }

    /// The last holder gets the arrays themselves; a holder among others gets a copy, and theirs stay as they are.
    #[test]
    fn only_the_last_holder_takes_the_arrays(list in lists(100)) {
        let csr = list.to_coo().to_csr().unwrap();
        let (at, values_at, copy) = (addresses(&csr), csr.values().as_ptr(), csr.clone());
        let (offsets, columns, values) = csr.into_parts();
        prop_assert!(offsets.as_ptr() != at.0 && values.as_ptr() == values_at);
        // An empty vector has no memory, so that its copy is where it is.
        prop_assert!(columns.is_empty() || columns.as_ptr() != at.1);
        prop_assert_eq!(addresses(&copy), at);
        prop_assert_eq!((&offsets[..], &columns[..]), (copy.row_offsets(), copy.col_indices()));
        let (offsets, columns, _) = copy.into_parts();
        prop_assert_eq!((offsets.as_ptr(), columns.as_ptr()), at);
    }

    /// Arrays are a pattern exactly if they are a matrix that nothing had to be done to.
    #[test]
    fn patterns_are_what_needs_no_sorting(
        rows in 0..4usize,
        offsets in proptest::collection::vec(0..6u64, 0..5),
        columns in proptest::collection::vec(0..5u32, 0..6),
    ) {
        let mut offsets = offsets;
        offsets.sort_unstable();
        let values = vec![1.0f32; columns.len()];
        let pattern = Pattern::try_new(rows, 4, offsets.clone(), columns.clone());
        match Csr::try_from_parts(rows, 4, offsets, columns, values) {
            Ok(csr) if csr.canonicalised() == Canonicalised::default() => prop_assert_eq!(&pattern.unwrap(), csr.pattern()),
            Ok(_) => {
                let refused = matches!(pattern, Err(FormatError::ColumnsNotAscending { .. }));
                prop_assert!(refused);
            }
            Err(error) => prop_assert_eq!(pattern.unwrap_err(), error),
        }
    }

    /// Arrays of any numbers are refused or make a matrix that satisfies the invariants; nothing panics.
    #[test]
    fn arbitrary_parts_never_panic(
        rows in 0..6usize,
        cols in 0..6usize,
        offsets in proptest::collection::vec(prop_oneof![4 => 0..8u64, 1 => any::<u64>()], 0..8),
        columns in proptest::collection::vec(prop_oneof![6 => 0..6u32, 1 => any::<u32>()], 0..8),
        extra in 0..2usize,
    ) {
        let values = vec![1.0f32; columns.len() + extra];
        if let Ok(csr) = Csr::try_from_parts(rows, cols, offsets, columns, values) {
            assert_invariants(&csr);
        }
    }

    #[test]
    fn one_changed_number_is_refused(list in lists(60), at in any::<prop::sample::Index>(), by in 1..1000u32) {
        let csr = list.to_coo().to_csr().unwrap();
        prop_assume!(csr.nnz() > 0);
        let (offsets, columns, values) = csr.clone().into_parts();
        let refused = |offsets: &[u64], columns: &[u32]| {
            Csr::try_from_parts(csr.rows(), csr.cols(), offsets.to_vec(), columns.to_vec(), values.clone()).unwrap_err()
        };
        let entry = at.index(columns.len());
        let mut bad = columns.clone();
        bad[entry] = u32::try_from(csr.cols()).unwrap() + by - 1;
        let row = (0..csr.rows()).find(|&row| csr.row_range(row).contains(&entry)).unwrap();
        prop_assert_eq!(
            refused(&offsets, &bad),
            FormatError::ColumnOutOfRange { row, entry, column: u64::from(bad[entry]), cols: csr.cols() }
        );
        // Above the total, an offset makes the row that follows it decrease, or the end wrong.
        let mut bad = offsets.clone();
        let row = at.index(csr.rows());
        bad[row + 1] = offsets[csr.rows()] + u64::from(by);
        let end = FormatError::LastOffset { found: bad[row + 1], entries: columns.len() };
        let decrease = FormatError::OffsetsDecrease {
            row: row + 1,
            start: bad[row + 1],
            end: offsets.get(row + 2).copied().unwrap_or(0),
        };
        prop_assert_eq!(refused(&bad, &columns), if row + 1 == csr.rows() { end } else { decrease });
        let mut bad = offsets.clone();
        bad[0] = u64::from(by);
        prop_assert_eq!(refused(&bad, &columns), FormatError::FirstOffset { found: u64::from(by) });
        let short = matches!(refused(&offsets[1..], &columns), FormatError::LengthMismatch { .. });
        prop_assert!(short);
    }
}

fn shuffled(len: usize, seed: u64) -> Permutation {
    let mut random = windrow_formats::synthetic::SplitMix64::new(seed);
    let mut order: Vec<u32> = (0..u32::try_from(len).unwrap()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(u32::try_from(i + 1).unwrap()) as usize);
    }
    Permutation::try_from_new_to_old(order).unwrap()
}

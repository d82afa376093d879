//! Vector-wise N:M matrices: round trips, every invariant, and the refusal of everything else.

use proptest::collection::vec;
use proptest::prelude::*;
use windrow_formats::{FormatError, NmPattern, Value, VectorNm, VectorNmParts};

/// Any pattern of small groups and vectors.
fn patterns() -> impl Strategy<Value = NmPattern> {
    (1..=12usize, 1..=9usize)
        .prop_flat_map(|(m, l)| (1..=m, Just(m), Just(l)))
        .prop_map(|(n, m, l)| NmPattern::new(n, m, l).unwrap())
}

/// Valid parts of any small shape; values are small integers, zeros among them.
fn parts() -> impl Strategy<Value = VectorNmParts<f32>> {
    (patterns(), 0..30usize, 0..20usize).prop_flat_map(|(pattern, rows, cols)| {
        let (kept, vectors) = (pattern.kept_rows(rows), pattern.vectors(cols));
        let values = vec(-3..=3i8, kept * cols);
        let keys = vec(any::<u32>(), pattern.groups(rows) * vectors * pattern.m());
        (values, keys).prop_map(move |(values, keys)| {
            let mut indices = vec![0u8; kept * vectors];
            for group in 0..pattern.groups(rows) {
                let in_group = pattern.m().min(rows - group * pattern.m());
                for vector in 0..vectors {
                    let keys = &keys[(group * vectors + vector) * pattern.m()..][..in_group];
                    let mut chosen: Vec<usize> = (0..in_group).collect();
                    chosen.sort_by_key(|&position| keys[position]);
                    chosen.truncate(pattern.n());
                    chosen.sort_unstable();
                    for (i, position) in chosen.into_iter().enumerate() {
                        let u = group * pattern.n() + i;
                        indices[u * vectors + vector] = u8::try_from(position).unwrap();
                    }
                }
            }
            let values = values.iter().map(|&x| f32::from(x)).collect();
            VectorNmParts { rows, cols, pattern, values, indices }
        })
    })
}

/// What the formula of the type's documentation says the matrix is.
fn by_formula(weights: &VectorNm<f32>) -> Vec<f32> {
    let (n, pattern) = (weights.cols(), weights.pattern());
    let mut dense = vec![0.0; weights.rows() * n];
    for (u, j) in (0..weights.kept_rows()).flat_map(|u| (0..n).map(move |j| (u, j))) {
        let position = weights.indices()[u * weights.vectors() + j / pattern.l()];
        let row = u / pattern.n() * pattern.m() + usize::from(position);
        dense[row * n + j] = weights.values()[u * n + j];
    }
    dense
}

proptest! {
    #[test]
    fn parts_make_the_matrix_and_come_back(parts in parts()) {
        let weights = VectorNm::try_from_parts(parts.clone()).unwrap();
        let dense = weights.to_dense().unwrap();
        prop_assert_eq!(&dense, &by_formula(&weights));
        prop_assert_eq!(weights.kept(), weights.kept_rows() * weights.cols());
        let again = VectorNm::from_dense_at(
            &dense, (parts.rows, parts.cols), parts.pattern, parts.indices.clone(),
        ).unwrap();
        prop_assert_eq!(&again, &weights);
        prop_assert_eq!(weights.into_parts(), parts);
    }

    #[test]
    fn a_dense_matrix_with_the_pattern_comes_back(parts in parts()) {
        let weights = VectorNm::try_from_parts(parts).unwrap();
        let dense = weights.to_dense().unwrap();
        let found = VectorNm::from_dense(&dense, weights.rows(), weights.cols(), weights.pattern()).unwrap();
        prop_assert_eq!(found.to_dense().unwrap(), dense);
        // Valid by its own account: the parts pass all checks.
        prop_assert!(VectorNm::try_from_parts(found.into_parts()).is_ok());
    }

    #[test]
    fn packed_indices_come_back(parts in parts()) {
        let weights = VectorNm::try_from_parts(parts.clone()).unwrap();
        let packed = weights.packed_indices().unwrap();
        let (plain_bytes, packed_bytes) = (weights.bytes(), weights.packed_bytes());
        prop_assert_eq!(packed_bytes.get("indices"), Some(packed.len() as u64));
        prop_assert_eq!(plain_bytes.get("values"), packed_bytes.get("values"));
        prop_assert_eq!(plain_bytes.get("indices"), Some(parts.indices.len() as u64));
        // Bit by bit, as the documentation has it.
        let bits = parts.pattern.index_bits();
        for (i, &index) in parts.indices.iter().enumerate() {
            let bit = |at: usize| packed[at / 8] >> (at % 8) & 1;
            let found = (0..bits).map(|b| bit(i * bits + b) << b).fold(0, |all, bit| all | bit);
            prop_assert_eq!(found, index);
        }
        let bare = VectorNmParts { indices: vec![], ..parts };
        prop_assert_eq!(VectorNm::from_packed(bare, &packed).unwrap(), weights);
    }

    #[test]
    fn indices_are_accepted_exactly_if_they_are_valid(
        (pattern, rows, cols) in (patterns(), 0..9usize, 0..9usize),
        noise in vec(0..7u8, 81),
    ) {
        let (kept, vectors) = (pattern.kept_rows(rows), pattern.vectors(cols));
        let indices = noise[..kept * vectors].to_vec();
        let at = |u: usize, v: usize| indices[u * vectors + v];
        let rows_of = |u: usize| pattern.m().min(rows - u / pattern.n() * pattern.m());
        let in_range = |u, v| usize::from(at(u, v)) < rows_of(u);
        let ascends = |u: usize, v| u.is_multiple_of(pattern.n()) || at(u - 1, v) < at(u, v);
        let places = || (0..kept).flat_map(|u| (0..vectors).map(move |v| (u, v)));
        let first = places().find(|&(u, v)| !in_range(u, v) || !ascends(u, v));
        let values = vec![1.0f32; kept * cols];
        match VectorNm::try_from_parts(VectorNmParts { rows, cols, pattern, values, indices: indices.clone() }) {
            Ok(_) => prop_assert_eq!(first, None),
            Err(FormatError::NmIndexRange { kept_row, vector, group, found, rows }) => {
                prop_assert_eq!(Some((kept_row, vector)), first);
                prop_assert_eq!((group, rows), (kept_row / pattern.n(), rows_of(kept_row)));
                prop_assert!(found == at(kept_row, vector) && !in_range(kept_row, vector));
            }
            Err(FormatError::NmIndexOrder { kept_row, vector, group, found, before }) => {
                prop_assert_eq!(Some((kept_row, vector)), first);
                prop_assert_eq!(group, kept_row / pattern.n());
                prop_assert_eq!((before, found), (at(kept_row - 1, vector), at(kept_row, vector)));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn the_first_group_with_too_many_vectors_is_named(
        (pattern, rows, cols) in (patterns(), 0..20usize, 0..12usize),
        holes in vec(0..3u8, 240),
    ) {
        let dense: Vec<f32> = holes[..rows * cols].iter().map(|&x| f32::from(x == 0)).collect();
        let holds = |row: usize, v: usize| {
            let columns = v * pattern.l()..cols.min((v + 1) * pattern.l());
            columns.into_iter().any(|j| dense[row * cols + j] != 0.0)
        };
        let rows_of = |g: usize| g * pattern.m()..rows.min((g + 1) * pattern.m());
        let count = |g: usize, v: usize| rows_of(g).filter(|&row| holds(row, v)).count();
        let places = (0..pattern.groups(rows)).flat_map(|g| (0..pattern.vectors(cols)).map(move |v| (g, v)));
        let first = places.into_iter().find(|&(g, v)| count(g, v) > pattern.n());
        match VectorNm::from_dense(&dense, rows, cols, pattern) {
            Ok(weights) => {
                prop_assert_eq!(first, None);
                prop_assert_eq!(weights.to_dense().unwrap(), dense);
            }
            Err(FormatError::NmGroup { group, vector, rows: within, found, limit, .. }) => {
                prop_assert_eq!(Some((group, vector)), first);
                prop_assert_eq!((found, limit), (count(group, vector), pattern.n()));
                prop_assert_eq!(within.0..within.1, rows_of(group));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn missing_vectors_are_the_lowest_that_are_not_used() {
    let pattern = NmPattern::new(3, 5, 1).unwrap();
    let weights = VectorNm::from_dense(&[0.0f32, 0.0, 7.0, 0.0, 0.0], 5, 1, pattern).unwrap();
    assert_eq!((weights.indices(), weights.values()), (&[0, 1, 2][..], &[0.0, 0.0, 7.0][..]));
    let weights = VectorNm::from_dense(&[0.0f32, 0.0, 0.0, 6.0, 7.0], 5, 1, pattern).unwrap();
    assert_eq!(weights.indices(), [0, 3, 4]);
}

#[test]
fn nan_is_an_entry_and_negative_zero_is_none() {
    let pattern = NmPattern::new(1, 2, 1).unwrap();
    let weights = VectorNm::from_dense(&[-0.0f32, f32::NAN], 2, 1, pattern).unwrap();
    assert_eq!(weights.indices(), [1]);
    assert!(weights.values()[0].is_nan());
}

#[test]
fn the_largest_group_uses_every_position() {
    let pattern = NmPattern::new(256, 256, 3).unwrap();
    let dense: Vec<f32> = (0..512u16).map(f32::from).collect();
    let weights = VectorNm::from_dense(&dense, 512, 1, pattern).unwrap();
    assert_eq!(weights.indices()[255], 255);
    assert_eq!(weights.values(), dense);
    assert_eq!(weights.packed_indices().unwrap(), weights.indices(), "a position among 256 is a byte");
    let all = NmPattern::new(1, 1, 1).unwrap();
    let weights = VectorNm::from_dense(&dense, 512, 1, all).unwrap();
    assert!(weights.packed_indices().unwrap().is_empty());
}

#[test]
fn the_first_index_that_is_wrong_is_named() {
    // 10 × 4 with 2:4 in vectors of 2: the last group has two rows.
    let pattern = NmPattern::new(2, 4, 2).unwrap();
    let with = |changes: &[(usize, u8)]| {
        let mut indices = vec![0u8, 1, 2, 3, 1, 0, 3, 2, 0, 0, 1, 1];
        for &(at, to) in changes {
            indices[at] = to;
        }
        let values = vec![1.0f32; 24];
        VectorNm::try_from_parts(VectorNmParts { rows: 10, cols: 4, pattern, values, indices })
    };
    assert!(with(&[]).is_ok());
    let range = |(kept_row, vector), group, found, rows| {
        Err(FormatError::NmIndexRange { kept_row, vector, group, found, rows })
    };
    let order = |(kept_row, vector), group, found, before| {
        Err(FormatError::NmIndexOrder { kept_row, vector, group, found, before })
    };
    assert_eq!(with(&[(2, 4)]), range((1, 0), 0, 4, 4), "beyond the group");
    assert_eq!(with(&[(7, 255)]), range((3, 1), 1, 255, 4), "far beyond");
    assert_eq!(with(&[(10, 2)]), range((5, 0), 2, 2, 2), "beyond the ragged group, inside of others");
    assert_eq!(with(&[(2, 0)]), order((1, 0), 0, 0, 0), "twice");
    assert_eq!(with(&[(0, 3), (2, 1)]), order((1, 0), 0, 1, 3), "descending");
}

/// Promise, memory: sizes are checked before anything is allocated for them.
#[test]
fn lengths_and_sizes_are_checked_before_anything_is_allocated() {
    let pattern = NmPattern::new(2, 4, 2).unwrap();
    let message = |rows, cols, values: usize, indices: usize| {
        let (values, indices) = (vec![0.0f32; values], vec![0; indices]);
        let parts = VectorNmParts { rows, cols, pattern, values, indices };
        VectorNm::try_from_parts(parts).unwrap_err().to_string()
    };
    let needed = "values has 5 elements but 6 are needed, one for each kept row and column";
    assert_eq!(message(4, 3, 5, 4), needed);
    let needed = "indices has 3 elements but 4 are needed, one for each kept row and vector";
    assert_eq!(message(4, 3, 6, 3), needed);
    assert!(message(usize::MAX, 3, 0, 0).contains("rows are more than"));
    assert!(message(u32::MAX as usize, u32::MAX as usize, 1, 1).starts_with("values has 1 elements"));
    let dense = VectorNm::from_dense(&[1.0f32], u32::MAX as usize, u32::MAX as usize, pattern);
    assert!(matches!(dense, Err(FormatError::LengthMismatch { found: 1, .. })));
    for (rows, cols) in [(0, 0), (0, 9), (u32::MAX as usize, 0)] {
        let empty = VectorNm::<f32>::from_dense(&[], rows, cols, pattern).unwrap();
        assert!(empty.to_dense().unwrap().is_empty() && empty.packed_indices().unwrap().is_empty());
    }
}

#[test]
fn packed_indices_of_another_length_or_with_more_bits_are_refused() {
    let pattern = NmPattern::new(1, 5, 1).unwrap();
    let parts = || VectorNmParts { rows: 5, cols: 1, pattern, values: vec![1.0f32], indices: vec![] };
    assert_eq!(VectorNm::from_packed(parts(), &[0b100]).unwrap().indices(), [4]);
    let message = |packed: &[u8]| VectorNm::from_packed(parts(), packed).unwrap_err().to_string();
    assert_eq!(
        message(&[0b1100]),
        "the last byte of the packed indices is 0x0c, but only its lowest 3 bits hold indices; the others must be 0"
    );
    assert!(message(&[]).starts_with("the packed indices has 0 elements but 1 are needed"));
    assert!(
        message(&[0b101]).starts_with("kept row 0, vector 0: index 5 is not below the 5 rows of group 0")
    );
    let both = VectorNmParts { indices: vec![0], ..parts() };
    assert!(VectorNm::from_packed(both, &[0]).is_err());
}

#[test]
fn values_can_be_of_any_type() {
    fn check<T: Value>() {
        let dense = [T::ZERO, T::ONE, T::from_f64(3.0), T::ZERO];
        let weights = VectorNm::from_dense(&dense, 4, 1, NmPattern::new(1, 2, 1).unwrap()).unwrap();
        assert_eq!(weights.to_dense().unwrap(), dense);
        let doubled = weights.with_values(vec![2.0f64, 6.0]).unwrap();
        assert_eq!(doubled.to_dense().unwrap(), [0.0, 2.0, 6.0, 0.0]);
        assert!(weights.with_values(vec![1.0f32]).is_err());
    }
    check::<f32>();
    check::<f64>();
    check::<half::f16>();
    check::<half::bf16>();
}

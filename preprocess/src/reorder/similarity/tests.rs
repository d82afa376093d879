//! What each stage promises, against the plain definition on small matrices.

use proptest::prelude::*;
use windrow_formats::{Coo, Csr};

use super::*;

/// Up to 60 rows, columns drawn at random, some of them much likelier.
fn matrices() -> impl Strategy<Value = Csr<f32>> {
    let cell = (0..60u32, prop_oneof![0..40u32, 0..5u32]);
    prop::collection::vec(cell, 1..300).prop_map(|cells| {
        let (r, c): (Vec<u32>, Vec<u32>) = cells.into_iter().unzip();
        let ones = vec![1.0; r.len()];
        Coo::try_new(60, 40, r, c, ones).unwrap().to_csr().unwrap()
    })
}

/// Calls `check` with the distinct rows and with neighbours found under `options`.
fn with_rows(a: &Csr<f32>, options: &SimilarityOptions, check: impl FnOnce(&Rows<'_>, &Neighbours)) {
    let pattern = Pattern::of(a);
    let weights = Weights::of(&pattern, options.alpha, &()).unwrap();
    let rows = Rows::of(pattern, &weights, &()).unwrap();
    let index = Index::of(&rows, options.representatives, &()).unwrap();
    let neighbours = Neighbours::find(&rows, &index, options, &()).unwrap();
    check(&rows, &neighbours);
}

/// The similarity by its definition.
fn similarity(a: &Csr<f32>, alpha: f64, r: u32, u: u32) -> f64 {
    let degree = |column: u32| a.col_indices().iter().filter(|&&other| other == column).count() as f64;
    let columns = |r: u32| a.row(r as usize).0;
    let sum = |columns: Vec<u32>| columns.into_iter().map(|c| degree(c).powf(-alpha)).sum::<f64>();
    let shared = sum(columns(r).iter().copied().filter(|c| columns(u).contains(c)).collect());
    let union: std::collections::BTreeSet<u32> = columns(r).iter().chain(columns(u)).copied().collect();
    shared / sum(union.into_iter().collect())
}

/// The sum of dissimilarities of an order's neighbours.
fn cost(rows: &Rows<'_>, order: &[u32]) -> f32 {
    order.windows(2).map(|beside| 1.0 - rows.similarity(beside[0], beside[1])).sum()
}

/// How often each row is in an order.
fn counts(rows: &Rows<'_>, order: &[u32]) -> Vec<usize> {
    let mut counts = vec![0; rows.len()];
    order.iter().for_each(|&d| counts[d as usize] += 1);
    counts
}

/// The root of a tree, for a plain union-find.
fn root(parents: &mut [u32], mut d: u32) -> u32 {
    while parents[d as usize] != d {
        d = parents[d as usize];
    }
    d
}

proptest! {
    #[test]
    fn similarities_are_those_of_the_definition(a in matrices(), alpha in 0.0..2.0f64) {
        let options = SimilarityOptions { alpha, ..SimilarityOptions::default() };
        with_rows(&a, &options, |rows, _| {
            let all = 0..narrow(rows.len());
            for (d, e) in all.clone().flat_map(|d| all.clone().map(move |e| (d, e))) {
                let want = similarity(&a, alpha, rows.distinct.first(d), rows.distinct.first(e));
                approx::assert_abs_diff_eq!(f64::from(rows.similarity(d, e)), want, epsilon = 1e-4);
            }
        });
    }

    #[test]
    fn neighbours_are_the_most_similar_rows(a in matrices(), k in 1..10usize) {
        // Few enough rows that the index proposes all that share a column.
        let cells: Vec<(u32, u32)> =
            (0..30).flat_map(|r| a.row(r as usize).0.iter().map(move |&c| (r, c))).collect();
        let (r, c): (Vec<u32>, Vec<u32>) = cells.into_iter().unzip();
        let ones = vec![1f32; r.len()];
        let a = Coo::try_new(30, 40, r, c, ones).unwrap().to_csr().unwrap();
        for representatives in [2, 40] {
            let options = SimilarityOptions { neighbours: k, representatives, ..SimilarityOptions::default() };
            with_rows(&a, &options, |rows, neighbours| {
                for d in 0..narrow(rows.len()) {
                    let others = (0..narrow(rows.len())).filter(|&e| e != d);
                    let mut want: Vec<f32> = others.map(|e| rows.similarity(d, e)).collect();
                    want.retain(|&similarity| similarity > 0.0);
                    want.sort_by(|a, b| b.total_cmp(a));
                    want.truncate(k);
                    let found: Vec<f32> = neighbours.of(d).map(|e| rows.similarity(d, e)).collect();
                    assert!(found.is_sorted_by(|a, b| a >= b) && !neighbours.of(d).any(|e| e == d));
                    // With few representatives some are missed; none is better than the best.
                    if representatives == 40 {
                        assert_eq!(found, want);
                    } else {
                        assert!(found.iter().zip(&want).all(|(found, want)| found <= want));
                    }
                }
            });
        }
    }

    #[test]
    fn the_forest_spans_and_no_other_is_heavier(a in matrices(), k in 1..6usize) {
        let options = SimilarityOptions { neighbours: k, ..SimilarityOptions::default() };
        with_rows(&a, &options, |rows, neighbours| {
            let forest = forest::spanning_forest(rows.len(), neighbours, &()).unwrap();
            // Kruskal's, over the same edges.
            let mut edges: Vec<forest::Edge> =
                neighbours.taken(0..neighbours.slots()).map(|slot| neighbours.slot(slot)).collect();
            edges.sort_by(|a, b| b.2.total_cmp(&a.2));
            let mut parents: Vec<u32> = (0..narrow(rows.len())).collect();
            let (mut weight, mut count) = (0.0, 0);
            for (d, e, similarity) in edges {
                let (d, e) = (root(&mut parents, d), root(&mut parents, e));
                if d != e {
                    parents[d as usize] = e;
                    weight += similarity;
                    count += 1;
                }
            }
            assert_eq!(forest.len(), count);
            approx::assert_abs_diff_eq!(forest.iter().map(|edge| edge.2).sum::<f32>(), weight, epsilon = 1e-4);
            let mut parents: Vec<u32> = (0..narrow(rows.len())).collect();
            for (d, e, _) in &forest {
                let (d, e) = (root(&mut parents, *d), root(&mut parents, *e));
                assert_ne!(d, e, "a cycle");
                parents[d as usize] = e;
            }
            let order = traverse::depth_first(rows.len(), &forest, &()).unwrap();
            assert_eq!(counts(rows, &order), vec![1; rows.len()]);
            // A tree is consecutive in the order.
            let mut met = std::collections::BTreeSet::new();
            let trees: Vec<u32> = order.iter().map(|&d| root(&mut parents, d)).collect();
            assert!(trees.chunk_by(|a, b| a == b).all(|tree| met.insert(tree[0])));
        });
    }

    #[test]
    fn stages_keep_rows_and_lower_what_they_lower(a in matrices()) {
        with_rows(&a, &SimilarityOptions::default(), |rows, neighbours| {
            let first: Vec<u32> = (0..narrow(rows.len())).collect();
            let original = rows.with_members(&first).unwrap();
            let members = counts(rows, &original);

            let mut refined = original.clone();
            refine::two_opt(rows, &mut refined, &()).unwrap();
            assert!(cost(rows, &refined) <= cost(rows, &original) + 1e-3);
            for (window, was) in refined.chunks(8).zip(original.chunks(8)) {
                assert_eq!(counts(rows, window), counts(rows, was), "a window keeps its rows");
            }

            let moved = isolated::move_isolated(rows, neighbours, &original, &()).unwrap();
            assert_eq!(counts(rows, &moved), members);

            let mut filled = windows::fill_windows(rows, &first, &()).unwrap();
            assert_eq!(counts(rows, &filled), members);

            let before = column_vectors(rows, &filled, &()).unwrap();
            exchange::exchange(rows, neighbours, &mut filled, &()).unwrap();
            assert_eq!(counts(rows, &filled), members);
            assert!(column_vectors(rows, &filled, &()).unwrap() <= before);

            let before = column_vectors(rows, &filled, &()).unwrap();
            let backwards: Vec<u32> = (0..narrow(rows.len())).rev().collect();
            let arranged = arrange::arrange(rows, &filled, &[backwards], &()).unwrap();
            assert_eq!(counts(rows, &arranged), members);
            assert_eq!(column_vectors(rows, &arranged, &()).unwrap(), before, "windows stay");
        });
    }
}

#[test]
fn an_isolated_row_goes_to_its_closest_match() {
    // Rows 0 to 3 share columns, row 4 is like nothing, row 5 like rows 0 to 3, rows 6 and 7 like each other.
    let rows: [&[u32]; 8] =
        [&[0, 1, 2], &[0, 1, 3], &[0, 1, 4], &[0, 1, 5], &[20, 21], &[10, 11], &[0, 1, 3, 6], &[10, 11, 12]];
    let offsets = rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    });
    let offsets = [0].into_iter().chain(offsets).collect();
    let columns = rows.concat();
    let ones = vec![1f32; columns.len()];
    let a = Csr::try_from_parts(8, 30, offsets, columns, ones).unwrap();
    with_rows(&a, &SimilarityOptions::default(), |rows, neighbours| {
        let order = isolated::move_isolated(rows, neighbours, &[0, 1, 2, 3, 4, 5, 6, 7], &()).unwrap();
        // Row 6 comes behind row 1, the most similar; rows 5 and 7 are isolated both, so they have no host.
        assert_eq!(order, [0, 1, 6, 2, 3, 7, 4, 5]);
    });
}

#[test]
fn a_window_takes_in_what_shares_its_columns() {
    // Sixteen rows in two groups, interleaved.
    let columns = (0..16u32).flat_map(|r| [r % 2 * 10, r % 2 * 10 + 1, 20 + r]).collect();
    let offsets = (0..17).map(|r| 3 * r).collect();
    let a = Csr::try_from_parts(16, 36, offsets, columns, vec![1f32; 48]).unwrap();
    with_rows(&a, &SimilarityOptions::default(), |rows, _| {
        let order: Vec<u32> = (0..16).collect();
        let filled = windows::fill_windows(rows, &order, &()).unwrap();
        assert_eq!(filled, [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]);
    });
}

/// Sixteen rows of two kinds: five columns that all of a kind share, and one of its own each.
fn two_kinds(is_second: impl Fn(u32) -> bool) -> Csr<f32> {
    let row = |r: u32| {
        let first = if is_second(r) { 10 } else { 0 };
        (first..first + 5).chain([20 + r])
    };
    let offsets = (0..17).map(|r| 6 * r).collect();
    Csr::try_from_parts(16, 36, offsets, (0..16).flat_map(row).collect(), vec![1f32; 96]).unwrap()
}

#[test]
fn two_opt_parts_the_kinds_of_a_window() {
    // Either window has its kinds in turn: seven times neighbours share nothing, which once is enough.
    with_rows(&two_kinds(|r| r % 2 == 1), &SimilarityOptions::default(), |rows, _| {
        let original: Vec<u32> = (0..16).collect();
        let mut refined = original.clone();
        refine::two_opt(rows, &mut refined, &()).unwrap();
        for window in refined.chunks(8) {
            let changes = window.windows(2).filter(|beside| beside[0] % 2 != beside[1] % 2).count();
            assert_eq!(changes, 1, "{refined:?}");
        }
        assert!(cost(rows, &refined) < cost(rows, &original) - 5.0, "{refined:?}");
    });
}

#[test]
fn rows_in_each_others_window_are_exchanged() {
    // One row of either kind is among the seven of the other.
    let is_second = |r: u32| (r >= 8) != (r % 8 == 7);
    with_rows(&two_kinds(is_second), &SimilarityOptions::default(), |rows, neighbours| {
        let mut order: Vec<u32> = (0..16).collect();
        assert_eq!(column_vectors(rows, &order, &()).unwrap(), 2 * (5 + 5 + 8));
        exchange::exchange(rows, neighbours, &mut order, &()).unwrap();
        assert_eq!(column_vectors(rows, &order, &()).unwrap(), 2 * (5 + 8), "{order:?}");
    });
}

#[test]
fn candidates_are_those_around_a_row() {
    // Twelve rows that a column represents, each with a column of its own.
    let columns = (0..12u32).flat_map(|r| [0, 1 + r]).collect();
    let offsets = (0..13).map(|r| 2 * r).collect();
    let a = Csr::try_from_parts(12, 13, offsets, columns, vec![1f32; 24]).unwrap();
    with_rows(&a, &SimilarityOptions::default(), |rows, _| {
        let index = Index::of(rows, 2, &()).unwrap();
        let (all, complete) = index.around(0, 0, 12);
        assert!(complete && all.len() == 12 && all.is_sorted());
        for (place, &rank) in all.iter().enumerate() {
            let (around, complete) = index.around(0, rank, 4);
            let start = place.saturating_sub(2).min(8);
            assert_eq!((around, complete), (&all[start..start + 4], false), "two before it, two from it on");
        }
    });
}

#[test]
fn a_window_weighs_shared_columns_by_length() {
    // Row 1 shares three of its 25 columns with row 0, row 2 both of its own: the greater share of a row goes first.
    let rows: [Vec<u32>; 3] = [vec![0, 1, 2, 3], [0, 1, 2].into_iter().chain(10..32).collect(), vec![0, 1]];
    let offsets = vec![0, 4, 29, 31];
    let a = Csr::try_from_parts(3, 32, offsets, rows.concat(), vec![1f32; 31]).unwrap();
    with_rows(&a, &SimilarityOptions::default(), |rows, _| {
        assert_eq!(windows::fill_windows(rows, &[0, 1, 2], &()).unwrap(), [0, 2, 1]);
    });
}

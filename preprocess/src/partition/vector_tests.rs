//! The division by column vectors against its definition.

use std::collections::BTreeMap;

use proptest::prelude::*;
use windrow_formats::{NO_COLUMN, NO_ROW, RsTile, WINDOW_ROWS};

use super::tests::{order_of, rows, with_rows};
use super::*;

const fn rule(threshold: VectorThreshold) -> PartitionRule {
    PartitionRule::ColumnVectors { threshold }
}

/// The entries `(row, column)` in tiles, window after window, after the documentation.
fn in_tiles_by_definition(csr: &Csr<f32>, order: &[u32], least: usize) -> Vec<Vec<(u32, u32)>> {
    let with_entries: Vec<u32> = order.iter().copied().filter(|&row| csr.row_len(row as usize) > 0).collect();
    let of_window = |window: &[u32]| {
        let mut vectors = BTreeMap::<u32, Vec<u32>>::new();
        for &row in window {
            csr.row(row as usize).0.iter().for_each(|&column| vectors.entry(column).or_default().push(row));
        }
        let full = vectors.values().filter(|rows| rows.len() >= least).count();
        // Fullest first; the sort is stable, so that equals stay in the order of their columns.
        let mut fullest: Vec<_> = vectors.into_iter().collect();
        fullest.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
        fullest.truncate(full.div_ceil(16) * 16);
        let entries = fullest.iter().flat_map(|(column, rows)| rows.iter().map(|&row| (row, *column)));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        entries
    };
    with_entries.chunks(WINDOW_ROWS).map(of_window).filter(|window| !window.is_empty()).collect()
}

/// The entries of a part, told by the whole matrix: `sources` must be right for it.
fn entries_of(whole: &Csr<f32>, part: &VectorPart<f32>) -> Vec<(u32, u32)> {
    let mut entries = Vec::new();
    for row in 0..part.matrix.rows() {
        for at in part.matrix.row_range(row) {
            let source = usize::try_from(part.sources[at]).unwrap();
            assert!(whole.row_range(row).contains(&source), "entry {source} is not of row {row}");
            assert_eq!(part.matrix.col_indices()[at], whole.col_indices()[source]);
            assert_eq!(part.matrix.values()[at], whole.values()[source]);
            entries.push((u32::try_from(row).unwrap(), whole.col_indices()[source]));
        }
    }
    assert_eq!(entries.len(), part.sources.len());
    entries
}

proptest! {
    #[test]
    fn vectors_are_divided_as_documented(rows in rows(), eighths in 1usize..=8, seed: u64, ordered: bool) {
        let csr = with_rows(60, &rows);
        let csr = csr.with_values((0..csr.nnz()).map(|entry| entry as f32).collect()).unwrap();
        let order = order_of(csr.rows(), seed);
        let visited = if ordered { order.new_to_old().to_vec() } else { (0..).take(csr.rows()).collect() };
        let threshold = VectorThreshold::ALL[eighths - 1];
        let split = split_vectors(&csr, ordered.then_some(&order), threshold).unwrap();
        let windows = in_tiles_by_definition(&csr, &visited, eighths);

        let mut want = windows.concat();
        want.sort_unstable();
        let (tiles, residual) = (entries_of(&csr, &split.tiles), entries_of(&csr, &split.residual));
        prop_assert_eq!(&tiles, &want);
        let mut all: Vec<u64> = split.tiles.sources.iter().chain(&split.residual.sources).copied().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..csr.nnz() as u64).collect::<Vec<_>>(), "each entry once");

        // The windows are what the format takes, and hold the rows that were judged together.
        let built = RsTile::from_windows(&split.tiles.matrix, split.window_rows.clone()).unwrap();
        prop_assert_eq!((built.windows(), built.residual().nnz()), (windows.len(), 0));
        for (at, entries) in windows.iter().enumerate() {
            let mut rows: Vec<u32> = entries.iter().map(|entry| entry.0).collect();
            rows.dedup();
            let mut listed = built.rows_of_window(at).to_vec();
            prop_assert!(listed.is_sorted_by_key(|row| visited.iter().position(|r| r == row)));
            listed.sort_unstable();
            prop_assert_eq!(listed, rows);
        }
        let columns = built.tile_cols().iter().filter(|&&column| column != NO_COLUMN).count() as u64;
        let steps: usize = (0..built.windows()).map(|w| built.tiles_of_window(w).len().div_ceil(2)).sum();
        let density = split.density;
        prop_assert_eq!((density.columns, density.steps, density.tiles), (columns, steps as u64, built.tiles() as u64));
        prop_assert_eq!((density.entries_in_tiles, density.windows), (tiles.len() as u64, built.windows() as u64));
        prop_assert_eq!(density.residual_entries, residual.len() as u64);
        let rows_of = |entries: &[(u32, u32)]| entries.iter().map(|e| e.0).collect::<std::collections::BTreeSet<_>>();
        let (tile_rows, residual_rows) = (rows_of(&tiles), rows_of(&residual));
        prop_assert_eq!(density.residual_rows, residual_rows.len() as u64);
        prop_assert_eq!(split.rows_in_both(), tile_rows.intersection(&residual_rows).count());
        let order = ordered.then_some(&order);
        prop_assert_eq!(super::density(&csr, order, rule(threshold)).unwrap(), density);
        let paths = match order {
            Some(order) => assign_in_order(&csr, order, rule(threshold)).unwrap(),
            None => assign(&csr, rule(threshold)).unwrap(),
        };
        let in_tiles = (0..).take(csr.rows()).filter(|&row| paths.path(row as usize) == RowPath::Tile);
        prop_assert!(in_tiles.eq(tile_rows));
    }
}

/// `count` windows of 8 rows: a block of 4 columns, and in row 0 a number of columns of its own.
fn blocks(count: u32, own: u32) -> Csr<f32> {
    let rows = (0..count).flat_map(|block| {
        let shared = 4 * block..4 * (block + 1);
        let first = 4 * count + own * block..4 * count + own * (block + 1);
        let long = shared.clone().chain(first).collect();
        std::iter::once(long).chain(std::iter::repeat_n(shared.collect(), 7))
    });
    let rows: Vec<std::collections::BTreeSet<u32>> = rows.collect();
    with_rows(((4 + own) * count) as usize, &rows)
}

#[test]
fn a_step_is_filled_and_no_more() {
    for (own, left) in [(0, 0), (3, 0), (12, 0), (13, 1), (28, 16u64)] {
        let split = split_vectors(&blocks(1, own), None, VectorThreshold::LIBRA).unwrap();
        let density = split.density;
        assert_eq!((density.steps, density.residual_entries), (1, left), "{own} columns of one row");
        assert_eq!(split.rows_in_both(), usize::from(left > 0));
        // What is left are the last of the columns.
        assert!(split.residual.matrix.col_indices().iter().all(|&column| column >= 4 + 12));
    }
}

#[test]
fn windows_without_full_vectors_have_no_tiles() {
    let a = Csr::<f32>::identity(100).unwrap();
    let split = split_vectors(&a, None, VectorThreshold::LIBRA).unwrap();
    assert_eq!((split.window_rows.len(), split.residual.matrix.nnz(), split.density.windows), (0, 100, 0));
    assert_eq!(split.residual.matrix, a);
    let all = split_vectors(&a, None, VectorThreshold::ALL[0]).unwrap();
    assert_eq!((all.residual.matrix.nnz(), all.density.windows), (0, 13));
    assert_eq!(all.density, density(&a, None, PartitionRule::AllTile).unwrap());
    assert_eq!(all.window_rows[100..], [NO_ROW; 4]);
    let empty = split_vectors(&Csr::<f32>::zeros(0, 3).unwrap(), None, VectorThreshold::LIBRA).unwrap();
    assert!(empty.window_rows.is_empty());
}

#[test]
fn threads_change_no_division() {
    let a = blocks(3000, 20);
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| split_vectors(&a, None, VectorThreshold::LIBRA).unwrap())
    };
    let split = with_threads(1);
    assert_eq!((split.density.residual_entries, split.rows_in_both()), (8 * 3000, 3000));
    assert_eq!(split, with_threads(5));
}

#[test]
fn thresholds_are_shares() {
    for (eta, entries) in [(1e-300, 1), (0.125, 1), (0.126, 2), (0.375, 3), (0.9, 8), (1.0, 8)] {
        let threshold = VectorThreshold::try_new(eta).unwrap();
        assert_eq!(threshold.entries(), entries, "{eta}");
        assert!(threshold.eta() >= eta);
        assert_eq!(threshold.to_string().parse(), Ok(threshold));
        assert_eq!(eta.to_string().parse(), Ok(threshold));
    }
    for eta in [0.0, -0.5, 1.1, f64::NAN, f64::INFINITY] {
        let error = VectorThreshold::try_new(eta).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{eta} is no share of a column vector")), "{error}");
    }
    for text in ["", "x", "0/8", "9/8", "/8", "1/4"] {
        assert!(text.parse::<VectorThreshold>().is_err(), "{text}");
    }
    assert_eq!(VectorThreshold::default(), VectorThreshold::LIBRA);
    let order = Permutation::identity(4).unwrap();
    let refused = split_vectors(&Csr::<f32>::identity(3).unwrap(), Some(&order), VectorThreshold::LIBRA);
    assert!(refused.unwrap_err().to_string().starts_with("the order of rows has 4 elements"));
}

//! Rules against their definitions, densities against the tiles that are built, predictions against their
//! promises.

use std::collections::BTreeSet;

use proptest::prelude::*;
use windrow_formats::synthetic::SplitMix64;
use windrow_formats::{RsTile, WINDOW_ROWS};

use super::windows::{Condition, tile_rows_in_chunks};
use super::*;

const fn overlap(max_entries: u32) -> PartitionRule {
    PartitionRule::Overlap { thresholds: Thresholds::new(max_entries) }
}

/// A matrix with the columns `rows[r]` in row `r`.
pub(super) fn with_rows<'a>(cols: usize, rows: impl IntoIterator<Item = &'a BTreeSet<u32>>) -> Csr<f32> {
    let mut ends = vec![0];
    let mut columns = Vec::new();
    for row in rows {
        columns.extend(row);
        ends.push(columns.len() as u64);
    }
    let ones = vec![1.0; columns.len()];
    Csr::try_from_parts(ends.len() - 1, cols, ends, columns, ones).unwrap()
}

fn columns<const N: usize>(columns: [u32; N]) -> BTreeSet<u32> {
    columns.into()
}

fn residual_rows(assignment: &RowAssignment) -> Vec<usize> {
    (0..assignment.rows()).filter(|&row| assignment.path(row) == RowPath::Residual).collect()
}

/// Rows that are mostly short, some empty, a few long.
pub(super) fn rows() -> impl Strategy<Value = Vec<BTreeSet<u32>>> {
    let length = prop_oneof![1 => 0..1usize, 5 => 1..5usize, 1 => 5..30usize];
    let row = (length, 4..60u32)
        .prop_flat_map(|(len, cols)| prop::collection::vec(0..cols, len).prop_map(BTreeSet::from_iter));
    prop::collection::vec(row, 0..70)
}

pub(super) fn order_of(len: usize, seed: u64) -> Permutation {
    let mut random = SplitMix64::new(seed);
    let mut order: Vec<u32> = (0..).take(len).collect();
    order.sort_by_cached_key(|_| random.next_u64());
    Permutation::try_from_new_to_old(order).unwrap()
}

/// The rows that stay, after the documentation: Δ from unions of sets, every time anew.
fn stay_by_definition(rows: &[BTreeSet<u32>], chunk_rows: usize, condition: Condition) -> Vec<u32> {
    let with_entries: Vec<u32> = (0..).zip(rows).filter(|(_, row)| !row.is_empty()).map(|(r, _)| r).collect();
    let union = |window: &[usize], without: Option<usize>| -> usize {
        let others = window.iter().filter(|&&at| Some(at) != without);
        others.flat_map(|&at| &rows[with_entries[at] as usize]).collect::<BTreeSet<_>>().len()
    };
    let mut stay = Vec::new();
    for begin in (0..with_entries.len()).step_by(chunk_rows) {
        let end = with_entries.len().min(begin + chunk_rows);
        let (mut window, mut next) = (Vec::new(), begin);
        while next < end || window.iter().any(|&at| at < end) {
            while window.len() < WINDOW_ROWS && next < with_entries.len() {
                window.push(next);
                next += 1;
            }
            let leaves = |&&at: &&usize| {
                let nz = rows[with_entries[at] as usize].len();
                let increment = union(&window, None) - union(&window, Some(at));
                at < end
                    && match condition {
                        Condition::Overlap(Thresholds { max_entries, max_shared_percent }) => {
                            nz <= max_entries as usize
                                && increment > 0
                                && 100 * (nz - increment) <= max_shared_percent as usize * nz
                        }
                        Condition::Printed { max_entries, max_increment } => {
                            at == window[0]
                                && increment < max_increment as usize
                                && nz <= max_entries as usize
                        }
                    }
            };
            let leaving: Vec<usize> = window.iter().filter(leaves).copied().collect();
            if leaving.is_empty() {
                stay.extend(window.drain(..).filter(|&at| at < end).map(|at| with_entries[at]));
            }
            window.retain(|at| !leaving.contains(at));
        }
    }
    stay
}

#[test]
fn column_vectors_are_counted_or_estimated() {
    // Of each three rows one is empty; windows share their columns by turns, all of them or none.
    let row = |at: u32| match (at % 3, at / 12 % 2) {
        (0, _) => BTreeSet::new(),
        (_, 0) => columns([1, 2, 3, 4]),
        _ => (0..4).map(|k| 4 * at + k).collect(),
    };
    let rows: Vec<_> = (0..1200).map(row).collect();
    let a = with_rows(4800, &rows);
    let counted = density(&a, None, PartitionRule::AllTile).unwrap().columns;
    assert_eq!(counted, 50 * (4 + 32));
    assert_eq!(column_vectors(&a, a.nnz()).unwrap(), counted);
    let third = column_vectors(&a, a.nnz().div_ceil(3)).unwrap();
    assert_eq!(third, 17 * (4 + 32) * 3200 / (34 * 32), "17 of each sort, 32 entries each");
    assert_eq!(column_vectors(&a, 0).unwrap(), 4 * 100, "the first window alone");
    assert_eq!(column_vectors(&with_rows(9, &[BTreeSet::new()]), 100).unwrap(), 0);
}

proptest! {
    #[test]
    fn rules_are_what_their_definitions_say(
        rows in rows(),
        chunk_rows in 1usize..40,
        max_entries in 0u32..9,
        bound in 0u32..120,
    ) {
        let csr = with_rows(60, &rows);
        let visited: Vec<u32> = rows_with_entries(&csr, None).unwrap();
        for condition in [
            Condition::Overlap(Thresholds { max_entries, max_shared_percent: bound }),
            Condition::Printed { max_entries, max_increment: bound / 12 },
        ] {
            let stay = tile_rows_in_chunks(&csr, &visited, condition, chunk_rows).unwrap();
            prop_assert_eq!(stay, stay_by_definition(&rows, chunk_rows, condition), "{:?}", condition);
        }
    }

    #[test]
    fn an_order_is_a_permuted_matrix(rows in rows(), max_entries in 0u32..9, seed: u64) {
        let csr = with_rows(60, &rows);
        let order = order_of(csr.rows(), seed);
        let permuted = csr.permute_rows(&order).unwrap();
        for rule in [
            PartitionRule::AllTile,
            PartitionRule::ShortRows { max_entries },
            overlap(max_entries),
            PartitionRule::Printed { max_entries, max_increment: 2 },
        ] {
            let in_order = assign_in_order(&csr, &order, rule).unwrap();
            let expected = assign(&permuted, rule).unwrap();
            prop_assert_eq!(order.apply(in_order.paths()), expected.paths());
            prop_assert_eq!(density(&csr, Some(&order), rule), density(&permuted, None, rule));
        }
    }

    #[test]
    fn densities_are_those_of_the_tiles_that_are_built(rows in rows(), max_entries in 0u32..9, seed: u64) {
        let csr = with_rows(60, &rows);
        let order = order_of(csr.rows(), seed);
        for rule in [
            PartitionRule::AllTile,
            PartitionRule::AllResidual,
            PartitionRule::ShortRows { max_entries },
            overlap(max_entries),
            PartitionRule::Printed { max_entries, max_increment: 3 },
        ] {
            let assignment = assign_in_order(&csr, &order, rule).unwrap();
            let built = RsTile::from_csr_in_order(&csr, &assignment, &order).unwrap();
            let density = density(&csr, Some(&order), rule).unwrap();
            let columns = built.tile_cols().iter().filter(|&&c| c != windrow_formats::NO_COLUMN).count();
            let steps: usize = (0..built.windows()).map(|w| built.tiles_of_window(w).len().div_ceil(2)).sum();
            prop_assert_eq!(density.tiles, built.tiles() as u64);
            prop_assert_eq!(density.windows, built.windows() as u64);
            prop_assert_eq!((density.columns, density.steps), (columns as u64, steps as u64));
            prop_assert_eq!(density.entries_in_tiles, built.values().len() as u64);
            prop_assert_eq!(density.residual_rows, built.residual().rows().len() as u64);
            prop_assert_eq!(density.residual_entries, built.residual().nnz() as u64);
            let mean = |parts: usize| built.values().len() as f64 / parts.max(1) as f64;
            prop_assert_eq!(density.mean_nnz_per_tile, mean(built.tiles()));
            prop_assert_eq!(density.mean_nnz_per_window, mean(built.windows()));
        }
    }

    #[test]
    fn a_hybrid_pays_for_its_launch(rows in rows(), launch_seconds in 0.0..1e-9f64, width in 1usize..300) {
        let csr = with_rows(60, &rows);
        let model = CostModel { launch_seconds, ..CostModel::h200() };
        let estimate = estimate(&csr, None, width, 2, &model).unwrap();
        let best = estimate.best;
        prop_assert!(estimate.predictions.iter().all(|prediction| best.seconds <= prediction.seconds));
        prop_assert_eq!(estimate.predictions[2].density, estimate.predictions[0].density, "nobody leaves at 0");
        for prediction in &estimate.predictions {
            prop_assert_eq!(prediction.density, density(&csr, None, prediction.rule).unwrap());
        }
        let shape = ProductShape { rows: csr.rows(), cols: 60, width, element_bytes: 2 };
        let free = CostModel { launch_seconds: 0.0, ..model };
        if estimate.thresholds().is_some() {
            prop_assert!(best.density.residual_rows > 0 && best.density.windows > 0);
            for part in &estimate.predictions[..2] {
                let saved = free.seconds(&part.density, shape) - free.seconds(&best.density, shape);
                let extra = launch_seconds;
                prop_assert!(saved > extra - 1e-20, "saves {} for launches of {}", saved, extra);
            }
        } else {
            prop_assert!(estimate.predictions[..2].contains(&best));
        }
    }
}

#[test]
fn lengths_alone_decide_the_other_rules() {
    let rows = [0, 1, 4, 5, 100].map(|len| (0..len).collect::<BTreeSet<u32>>());
    let a = with_rows(100, &rows);
    assert_eq!(residual_rows(&assign(&a, PartitionRule::AllTile).unwrap()), [0; 0]);
    assert_eq!(residual_rows(&assign(&a, PartitionRule::AllResidual).unwrap()), [0, 1, 2, 3, 4]);
    for (max_entries, leaving) in [(0, 1), (1, 2), (3, 2), (4, 3), (5, 4), (99, 4), (100, 5), (u32::MAX, 5)] {
        let paths = assign(&a, PartitionRule::ShortRows { max_entries }).unwrap();
        assert_eq!(residual_rows(&paths), (0..leaving).collect::<Vec<_>>(), "max_entries = {max_entries}");
    }
}

#[test]
fn what_is_printed_sends_away_what_is_meant_to_stay() {
    // Row 0 shares all that it has; row 1 is alone in columns 50 and 51; the others are a block.
    let mut rows = vec![columns([0, 1]), columns([50, 51])];
    rows.resize(8, (0..16).collect());
    let a = with_rows(60, &rows);
    assert_eq!(residual_rows(&assign(&a, overlap(4)).unwrap()), [1]);
    let printed = PartitionRule::Printed { max_entries: 4, max_increment: 2 };
    assert_eq!(residual_rows(&assign(&a, printed).unwrap()), [0], "row 1 then brings two columns, and stays");
    let before = density(&a, None, PartitionRule::AllTile).unwrap().columns;
    assert_eq!(before - density(&a, None, overlap(4)).unwrap().columns, 2, "both columns of row 1 are saved");
    assert_eq!(before - density(&a, None, printed).unwrap().columns, 0);
}

#[test]
fn rows_leave_after_those_that_they_shared_with() {
    // Row 1 shares one of four columns, which is a quarter; row 0 holds that column and no other.
    let mut rows = vec![columns([50]), columns([50, 51, 52, 53])];
    rows.resize(9, (0..16).collect());
    let a = with_rows(60, &rows);
    assert_eq!(residual_rows(&assign(&a, overlap(3)).unwrap()), [0; 0]);
    assert_eq!(residual_rows(&assign(&a, overlap(4)).unwrap()), [0, 1]);
}

/// `blocks` windows of 8 rows with 16 columns in common, and in each a row of `1 + block % 4` columns that
/// no other holds.
fn blocks_with_isolated_rows(blocks: u32) -> Csr<f32> {
    let mut rows = Vec::new();
    for block in 0..blocks {
        let dense: BTreeSet<u32> = (16 * block..16 * (block + 1)).collect();
        rows.extend(std::iter::repeat_n(dense, 8));
        let isolated = 16 * blocks + 4 * block;
        let at = rows.len() - 1 - block as usize % 8;
        rows.insert(at, (isolated..=isolated + block % 4).collect());
    }
    with_rows(20 * blocks as usize, &rows)
}

#[test]
fn tiles_get_denser_and_then_no_more() {
    let a = blocks_with_isolated_rows(2000);
    let sweep: Vec<Density> = (0..=8).map(|max| density(&a, None, overlap(max)).unwrap()).collect();
    for pair in sweep[..=4].windows(2) {
        assert!(pair[1].mean_nnz_per_tile > pair[0].mean_nnz_per_tile, "{pair:?}");
        assert!(pair[1].mean_nnz_per_window > pair[0].mean_nnz_per_window, "{pair:?}");
    }
    assert_eq!(sweep[4], sweep[8], "no row of 5 to 8 entries");
    assert_eq!((sweep[4].mean_nnz_per_tile, sweep[4].residual_rows), (64.0, 2000));
    assert!(sweep[0].mean_nnz_per_tile < 40.0, "{:?}", sweep[0]);
}

#[test]
fn threads_change_nothing() {
    let a = blocks_with_isolated_rows(4000); // 36 000 rows: five chunks
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let estimate = estimate(&a, None, 128, 2, &CostModel::h200()).unwrap();
            let printed = PartitionRule::Printed { max_entries: 4, max_increment: 4 };
            (assign(&a, overlap(3)).unwrap(), assign(&a, printed).unwrap(), estimate)
        })
    };
    assert_eq!(with_threads(1), with_threads(5));
    assert_eq!(residual_rows(&with_threads(2).0).len(), 3000);
}

#[test]
fn the_model_decides_what_a_hybrid_is_worth() {
    let a = blocks_with_isolated_rows(20_000);
    let estimate = |a: &Csr<f32>, model| estimate(a, None, 128, 2, &model).unwrap();
    let h200 = estimate(&a, CostModel::h200());
    assert_eq!(h200.thresholds(), Some(Thresholds::new(4)), "{:?}", h200.best);
    let slow_launches = estimate(&a, CostModel { launch_seconds: 1.0, ..CostModel::h200() });
    assert_eq!(slow_launches.best.rule, PartitionRule::AllTile);
    let slow_tiles = estimate(&a, CostModel { tile_factor: 100.0, ..CostModel::h200() });
    assert_eq!(slow_tiles.best.rule, PartitionRule::AllResidual);
    let empty = estimate(&Csr::zeros(9, 9).unwrap(), CostModel::default());
    assert_eq!(empty.best.rule, PartitionRule::AllTile);
}

#[test]
fn a_prediction_is_the_documented_sum() {
    let a = blocks_with_isolated_rows(8); // 64 rows of 16, two each of 1 to 4
    let model = CostModel::h200();
    let shape = ProductShape { rows: a.rows(), cols: a.cols(), width: 256, element_bytes: 2 };
    let density = |rule| density(&a, None, rule).unwrap();
    let [rows, tiles] = model.path_seconds(&density(overlap(8)), shape);
    let bound = |stream: f64, gather: f64| (stream / 4.3e12).hypot(gather / 8.7e12);
    let want = 1.3 * bound(8.0 * 1024.0 + 20.0 * 6.0, 20.0 * (512.0 + 2.0 * 16.0) + 8.0 * 64.0) + 2.5e-6;
    approx::assert_abs_diff_eq!(rows, want, epsilon = 1e-15);
    let stream = 64.0 * 1024.0 + 8.0 * 368.0 + 160.0 * 512.0;
    let want = 1.05 * bound(stream, 128.0 * 512.0 + 8.0 * 2.0 * 368.0) + 2.5e-6;
    approx::assert_abs_diff_eq!(tiles, want, epsilon = 1e-15);
    assert_eq!(model.seconds(&density(overlap(8)), shape), rows + tiles);
    assert_eq!(model.path_seconds(&density(PartitionRule::AllTile), shape)[0], 0.0);
    assert_eq!(model.path_seconds(&density(PartitionRule::AllResidual), shape)[1], 0.0);
}

#[test]
fn empty_rows_are_steps_of_the_tiles() {
    let a = blocks_with_isolated_rows(8);
    let (model, rows) = (CostModel::h200(), a.rows());
    let shape = |rows| ProductShape { rows, cols: a.cols(), width: 256, element_bytes: 2 };
    let seconds = |rule, rows| model.path_seconds(&density(&a, None, rule).unwrap(), shape(rows));
    // 17 rows more are three windows: what a matrix with three more steps and these rows of C takes.
    let [scalar, tiles] = seconds(overlap(8), rows + 17);
    let mut longer = density(&a, None, overlap(8)).unwrap();
    (longer.steps, longer.windows) = (longer.steps + 3, longer.windows + 3);
    assert_eq!([scalar, tiles], model.path_seconds(&longer, shape(rows + 17)));
    assert!(tiles > seconds(overlap(8), rows)[1]);
    assert_eq!(scalar, seconds(overlap(8), rows)[0], "they are written with the tiles");
}

#[test]
fn an_order_of_another_length_is_refused() {
    let a = Csr::<f32>::identity(3).unwrap();
    let order = Permutation::identity(4).unwrap();
    let message = "the order of rows has 4 elements but 3 are needed, one for each row";
    assert_eq!(assign_in_order(&a, &order, PartitionRule::AllTile).unwrap_err().to_string(), message);
    assert_eq!(density(&a, Some(&order), overlap(1)).unwrap_err().to_string(), message);
    let refused = estimate(&a, Some(&order), 1, 2, &CostModel::h200());
    assert_eq!(refused.unwrap_err().to_string(), message);
}

#[test]
fn a_matrix_without_rows_has_no_paths() {
    let a = Csr::<f32>::zeros(0, 7).unwrap();
    let printed = PartitionRule::Printed { max_entries: 3, max_increment: 3 };
    for rule in [PartitionRule::AllTile, PartitionRule::AllResidual, overlap(3), printed] {
        assert_eq!(assign(&a, rule).unwrap().rows(), 0);
        assert_eq!(density(&a, None, rule).unwrap(), Density::default());
    }
}

#[test]
fn footprints_are_those_of_the_arrays() {
    let a = blocks_with_isolated_rows(30);
    let assignment = assign(&a, overlap(4)).unwrap();
    let built = RsTile::from_csr(&a, &assignment).unwrap();
    let sizes = footprint(&a, &built);
    let [coo, csr, rs_tile, me_tcf, me_tcf_balanced, bit_tcf, balanced] = sizes;
    let entries = a.nnz() as u64;
    assert_eq!(coo.total_bytes(), a.to_coo().unwrap().byte_sizes().total());
    assert_eq!(csr.total_bytes(), a.byte_sizes().total());
    assert_eq!(rs_tile.total_bytes(), built.byte_sizes().total());
    assert!(sizes.iter().all(|size| size.value_bytes == 4 * entries));
    // 240 rows of 16 in 30 windows of two tiles, and an isolated row in each.
    assert_eq!((built.windows(), built.tiles(), built.residual().rows().len()), (30, 60, 30));
    let residual_entries: u64 = (0..30).map(|block| 1 + block % 4).sum();
    let residual = 24 * 4 + 4 * 30 + 4 * residual_entries; // four lengths; a bucket is 24 bytes
    assert_eq!(rs_tile.metadata_bytes, 30 * 32 + 31 * 4 + 60 * (32 + 8) + 61 * 8 + residual);
    // 270 consecutive rows are 34 windows.
    let tiles = windrow_formats::Structure::of(&a).tiles;
    assert_eq!(bit_tcf.metadata_bytes, 35 * 4 + (tiles + 1) * 4 + tiles * 40);
    assert_eq!(me_tcf.metadata_bytes, 35 * 4 + (tiles + 1) * 4 + tiles * 32 + entries);
    for (plain, balanced) in [(me_tcf, me_tcf_balanced), (bit_tcf, balanced)] {
        assert_eq!(balanced.metadata_bytes - plain.metadata_bytes, tiles * 4 + (tiles.div_ceil(32) + 1) * 4);
    }
}

#[test]
fn rows_in_both_parts_are_written_read_and_written_again() {
    let model = CostModel {
        gather_rate: f64::INFINITY,
        stream_rate: 1.0,
        row_factor: 1.0,
        tile_factor: 1.0,
        launch_seconds: 0.0,
        step_overhead_bytes: 0.0,
        ..CostModel::h200()
    };
    let shape = ProductShape { rows: 80, cols: 0, width: 128, element_bytes: 2 };
    let mut density = Density::default();
    (density.windows, density.steps, density.residual_rows) = (10, 10, 80);
    density.rows_in_both = 80;
    let out = 80.0 * 128.0 * 4.0;
    assert_eq!(model.path_seconds(&density, shape), [2.0 * out, out]);
    // Forty of them are the CUDA cores' alone: five windows are all that the tiles write.
    (density.windows, density.steps, density.rows_in_both) = (5, 5, 40);
    assert_eq!(model.path_seconds(&density, shape), [1.5 * out, 0.5 * out]);
}

//! Real matrices: statistics that were computed independently of this crate, and round trips.

use windrow_formats::{Csr, RowAssignment, RowPath, RsTile, Structure, io};

fn load(file: &str) -> Csr<f32> {
    io::read_csr(format!("{}/../data/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Rounded as the table rounds that the expectations are from.
fn summary(structure: &Structure) -> String {
    let Structure { rows, cols, nnz, row_lengths, .. } = structure;
    let (mean, max, variation) = (row_lengths.mean, row_lengths.max, row_lengths.variation);
    let (empty, single) = (100.0 * structure.empty_row_share(), structure.single_vector_share());
    let per_tile = structure.nnz_per_tile();
    format!("{rows} {cols} {nnz} | {mean:.2} {max} {variation:.2} {empty:.1} % | {single:.3} {per_tile:.2}")
}

#[track_caller]
fn check(file: &str, want: &str) {
    let csr = load(file);
    assert_eq!(summary(&Structure::of(&csr)), want);
    let by_length = |limit| {
        let path = |row| if csr.row_len(row) <= limit { RowPath::Residual } else { RowPath::Tile };
        RowAssignment::from_fn(csr.rows(), path).unwrap()
    };
    for limit in [0, 3, csr.cols()] {
        let tiles = RsTile::from_csr(&csr, &by_length(limit)).unwrap();
        assert!(tiles.to_csr().unwrap().bitwise_eq(&csr), "rows up to {limit} in the residual");
        assert_eq!(RsTile::try_from_parts(tiles.clone().into_parts()).unwrap(), tiles);
    }
    assert!(csr.transpose().unwrap().transpose().unwrap().bitwise_eq(&csr));
}

#[test]
fn ct2010() {
    check("ct2010.mtx.gz", "67578 67578 336352 | 4.98 53 0.58 0.0 % | 0.921 7.93");
}

#[test]
fn mbeacxc() {
    check("mbeacxc.mtx.gz", "496 496 49920 | 100.65 484 1.26 9.7 % | 0.361 20.93");
}

#[test]
fn lyra_conv_to_gates() {
    check("lyra_conv_to_gates.smtx.gz", "3072 1024 251664 | 81.92 1016 2.17 10.0 % | 0.000 35.46");
}

//! Layout by example, messages, and a matrix large enough for many groups of windows.

use super::*;
use crate::NO_COLUMN;
use crate::synthetic::Synthetic;

/// 11 rows, 20 columns: row 1 is empty, row 4 full, row 10 alone in the second window.
fn example() -> Csr<f32> {
    let rows: [&[u32]; 11] = [
        &[0, 9],
        &[],
        &[9],
        &[3, 9, 19],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
        &[2],
        &[3],
        &[4, 5],
        &[19],
        &[0],
        &[7, 8],
    ];
    let columns: Vec<u32> = rows.concat();
    let mut offsets = vec![0];
    offsets.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let values = (1..=columns.len()).map(|value| value as f32).collect();
    Csr::try_from_parts(11, 20, offsets, columns, values).unwrap()
}

#[test]
fn windows_skip_empty_rows_and_condense_columns() {
    let csr = example();
    let tiles = RsTile::from_csr(&csr, &RowAssignment::all_tile(11).unwrap()).unwrap();
    assert_eq!((tiles.windows(), tiles.tiles(), tiles.nnz()), (2, 4, csr.nnz()));
    assert_eq!(tiles.rows_of_window(0), [0, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(tiles.rows_of_window(1), [9, 10]);
    assert_eq!(tiles.window_rows()[10..], [NO_ROW; 6]);
    assert_eq!(tiles.window_tiles(), [0, 3, 4]);
    assert_eq!(tiles.tile(0).cols, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(tiles.tile(2).cols[3..], [19, NO_COLUMN, NO_COLUMN, NO_COLUMN, NO_COLUMN]);
    assert_eq!(tiles.tile(3).cols[..4], [0, 7, 8, NO_COLUMN]);
    assert_eq!(tiles.tiles_of_window(1), 3..4);
    // Column 0: slots 0 and 3 (rows 0 and 4). Value 1 is the first of row 0, value 7 the first of row 4.
    assert_eq!(tiles.bitmaps()[0] & 0xFF, 0b1001);
    assert_eq!(tiles.tile(0).values[..2], [1.0, 7.0]);
    assert_eq!(tiles.tile(3).bitmap, 0b10_0000_0010_0000_0001);
    assert_eq!(tiles.tile(3).values, [32.0, 33.0, 34.0]);
    assert_eq!(tiles.to_csr().unwrap(), csr);
}

#[test]
fn the_residual_is_ordered_by_length_then_row() {
    let csr = example();
    let assignment =
        RowAssignment::from_fn(11, |row| if row == 4 { RowPath::Tile } else { RowPath::Residual }).unwrap();
    let tiles = RsTile::from_csr(&csr, &assignment).unwrap();
    assert_eq!((tiles.windows(), tiles.rows_of_window(0)), (1, &[4][..]));
    let residual = tiles.residual();
    assert_eq!(residual.rows(), [2, 5, 6, 8, 9, 0, 7, 10, 3]);
    let buckets: Vec<_> =
        residual.buckets().iter().map(|b| (b.len, b.first_row, b.rows, b.first_entry)).collect();
    assert_eq!(buckets, [(1, 0, 5, 0), (2, 5, 3, 5), (3, 8, 1, 11)]);
    assert_eq!(residual.col_indices(), [9, 2, 3, 19, 0, 0, 9, 4, 5, 7, 8, 3, 9, 19]);
    let (row, columns, values) = residual.rows_iter().last().unwrap();
    assert_eq!((row, columns, values), (3, &[3, 9, 19][..], &[4.0, 5.0, 6.0][..]));
    assert_eq!(tiles.to_csr().unwrap(), csr);
}

#[test]
fn windows_are_those_that_are_chosen() {
    let csr = example();
    let slots = |rows: &[u32]| {
        let mut slots = rows.to_vec();
        slots.resize(WINDOW_ROWS, NO_ROW);
        slots
    };
    let tiles =
        RsTile::from_windows(&csr, [slots(&[10, 0, 4]), slots(&[2]), slots(&[3, 5])].concat()).unwrap();
    assert_eq!((tiles.windows(), tiles.window_tiles()), (3, &[0, 3, 4, 5][..]));
    assert_eq!([tiles.rows_of_window(0), tiles.rows_of_window(1)], [&[10, 0, 4][..], &[2]]);
    assert_eq!(tiles.residual().rows(), [6, 8, 9, 7], "by length");
    assert_eq!(tiles.to_csr().unwrap(), csr);
    assert_eq!(RsTile::try_from_parts(tiles.clone().into_parts()).unwrap(), tiles);
    let sources = tiles.entry_sources(&csr).unwrap();
    assert!(sources.tile().iter().zip(tiles.values()).all(|(&e, value)| csr.values()[index(e)] == *value));
    assert_eq!(RsTile::from_windows(&csr, Vec::new()).unwrap().residual().nnz(), csr.nnz());

    for (windows, problem) in [
        (vec![0; 7], "W2 does not hold: window_rows has 7 elements, not 8 for each window"),
        (slots(&[]), "W2 does not hold: window 0 has no row in slot 0"),
        (slots(&[0, 11]), "W2 does not hold: window 0, slot 1: row 11 is not below 11 rows"),
        (
            slots(&[0, NO_ROW, 2]),
            "W2 does not hold: window 0, slot 2 holds a row after a slot that holds none",
        ),
        ([slots(&[2]), slots(&[0, 2])].concat(), "W3 does not hold: row 2 is stored more than once"),
        (slots(&[0, 1]), "T5 does not hold: window 0, slot 1: row 1 has no bit"),
    ] {
        let error = RsTile::from_windows(&csr, windows).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
    }
}

#[test]
fn byte_sizes_are_those_of_the_arrays() {
    let tiles = RsTile::from_csr(&example(), &RowAssignment::all_tile(11).unwrap()).unwrap();
    let sizes = tiles.byte_sizes();
    let of = |name| sizes.get(name).unwrap();
    assert_eq!((of("window_rows"), of("window_tiles"), of("tile_cols")), (64, 12, 128));
    assert_eq!((of("bitmaps"), of("tile_values"), of("values")), (32, 40, 136));
    assert_eq!(of("residual_rows") + of("residual_buckets"), 0);
    assert_eq!(sizes.total(), 412);
}

#[test]
fn what_does_not_fit_is_refused() {
    let csr = example();
    let error = RsTile::from_csr(&csr, &RowAssignment::all_tile(10).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "the row assignment has 10 elements but 11 are needed, one path for each row");
    let order = Permutation::identity(12).unwrap();
    let error = RsTile::from_csr_in_order(&csr, &RowAssignment::all_tile(11).unwrap(), &order)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "the order of rows has 12 elements but 11 are needed, one for each row");

    let mut tiles = RsTile::from_csr(&csr, &RowAssignment::all_tile(11).unwrap()).unwrap();
    let other = Csr::<f32>::identity(11).unwrap();
    let error = tiles.entry_sources(&other).unwrap_err().to_string();
    assert_eq!(
        error,
        "the RS-Tile matrix was built from another pattern: 11 × 20 with 34 entries against 11 × 11 with 11"
    );
    let mut columns = csr.col_indices().to_vec();
    columns[2] = 10;
    let moved =
        Csr::try_from_parts(11, 20, csr.row_offsets().to_vec(), columns, csr.values().to_vec()).unwrap();
    let error = tiles.entry_sources(&moved).unwrap_err().to_string();
    assert!(error.ends_with("another pattern: row 2 has other columns"), "{error}");
    let residual = RsTile::from_csr(&csr, &RowAssignment::all_residual(11).unwrap()).unwrap();
    assert!(residual.entry_sources(&moved).unwrap_err().to_string().ends_with("row 2 has other columns"));

    let sources = tiles.entry_sources(&csr).unwrap();
    assert!(tiles.replace_values(&sources, &[0.0; 33]).is_err());
    let sources = residual.entry_sources(&csr).unwrap();
    let error = tiles.replace_values(&sources, &[0.0; 34]).unwrap_err().to_string();
    assert!(error.ends_with("34 entries in tiles and 0 in the residual against 0 and 34"), "{error}");
}

#[test]
fn messages_name_the_place() {
    let parts = RsTile::from_csr(&example(), &RowAssignment::all_tile(11).unwrap()).unwrap().into_parts();
    let message = |change: fn(&mut RsTileParts<f32>)| {
        let mut parts = parts.clone();
        change(&mut parts);
        RsTile::try_from_parts(parts).unwrap_err().to_string()
    };
    let starts = "RS-Tile invariant ";
    assert_eq!(
        message(|parts| parts.window_rows[9] = 40),
        format!("{starts}W2 does not hold: window 1, slot 1: row 40 is not below 11 rows")
    );
    assert_eq!(
        message(|parts| parts.tile_cols[17] = 20),
        format!("{starts}T2 does not hold: window 0, tile 2, column 1: 20 is not below 20 columns")
    );
    assert_eq!(
        message(|parts| parts.tile_cols[1] = 0),
        format!("{starts}T2 does not hold: window 0, tile 0, column 1: 0 is not above 0")
    );
    assert_eq!(
        message(|parts| parts.bitmaps[3] |= 1 << 40),
        format!("{starts}T4 does not hold: window 1, tile 3, column 5 (stands for none): bits 0b00000001")
    );
    assert_eq!(
        message(|parts| parts.tile_values[2] += 1),
        format!("{starts}V1 does not hold: tile 1 has 11 bits but its values run from 14 to 26")
    );
}

#[test]
fn large_matrices_come_back() {
    let csr = Synthetic::Molbatch300k.generate::<f32>(3).unwrap();
    let short_rows_apart = RowAssignment::from_fn(csr.rows(), |row| {
        if csr.row_len(row) < 3 { RowPath::Residual } else { RowPath::Tile }
    })
    .unwrap();
    for assignment in [RowAssignment::all_tile(csr.rows()).unwrap(), short_rows_apart] {
        let tiles = RsTile::from_csr(&csr, &assignment).unwrap();
        assert!(tiles.to_csr().unwrap().bitwise_eq(&csr));
        let sources = tiles.entry_sources(&csr).unwrap();
        assert!(
            sources.tile().iter().zip(tiles.values()).all(|(&e, value)| csr.values()[index(e)] == *value)
        );
        assert_eq!(sources.tile().len() + sources.residual().len(), csr.nnz());
        assert_eq!(RsTile::try_from_parts(tiles.clone().into_parts()).unwrap(), tiles);
    }
    // The windows of the tiles are those of the statistics, since no row is empty.
    let tiles = RsTile::from_csr(&csr, &RowAssignment::all_tile(csr.rows()).unwrap()).unwrap();
    assert_eq!(tiles.tiles() as u64, crate::Structure::of(&csr).tiles);
}

//! Values made from parts: what is accepted keeps every invariant, whatever was done to parts that were valid.

use windrow_formats::{
    Coo3, Csf3, Csr, NmPattern, RowAssignment, RowPath, RsTile, Value, VectorNm, VectorNmParts,
};

use super::bytes::Bytes;

/// Builds something, changes its parts, and has them checked. Returns whether they were accepted.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    match bytes.byte() % 4 {
        0 => csr(&mut bytes),
        1 => tiles(&mut bytes),
        2 => weights(&mut bytes),
        _ => fibers(&mut bytes),
    }
}

/// A small matrix; values are numbers of entries, so that places can be told apart.
fn matrix(bytes: &mut Bytes<'_>) -> Csr<f32> {
    let (rows, cols) = (bytes.below(40), 1 + bytes.below(40));
    let (mut offsets, mut col_indices) = (vec![0u64], Vec::new());
    for _ in 0..rows {
        let (mut column, step) = (bytes.below(12), 1 + bytes.below(9));
        for _ in 0..bytes.below(12) {
            if column < cols {
                col_indices.push(column as u32);
            }
            column += step;
        }
        offsets.push(col_indices.len() as u64);
    }
    let values = (0..col_indices.len()).map(|i| i as f32 + 1.0).collect();
    Csr::try_from_parts(rows, cols, offsets, col_indices, values).unwrap()
}

/// Changes up to three elements of an array, or its length.
fn damage<T: Copy + Default>(bytes: &mut Bytes<'_>, array: &mut Vec<T>, number: impl Fn(u64) -> T) {
    match bytes.byte() % 8 {
        0 => drop(array.pop()),
        1 => array.push(number(bytes.edge())),
        2 => array.clear(),
        edits => {
            for _ in 0..edits % 3 {
                if !array.is_empty() {
                    let at = bytes.below(array.len());
                    array[at] = number(bytes.edge());
                }
            }
        }
    }
}

fn narrow(number: u64) -> u32 {
    number as u32
}

fn csr(bytes: &mut Bytes<'_>) -> bool {
    let csr = matrix(bytes);
    let (mut rows, mut cols) = (csr.rows(), csr.cols());
    let (mut offsets, mut col_indices, mut values) = csr.into_parts();
    match bytes.byte() % 5 {
        0 => rows = bytes.edge() as usize,
        1 => cols = bytes.edge() as usize,
        2 => damage(bytes, &mut offsets, |number| number),
        3 => damage(bytes, &mut col_indices, narrow),
        _ => damage(bytes, &mut values, |number| number as f32),
    }
    let Ok(csr) = Csr::try_from_parts(rows, cols, offsets, col_indices, values) else { return false };
    // Safe code elsewhere relies on these without looking.
    assert_eq!(csr.row_offsets().len(), csr.rows() + 1);
    assert!(csr.row_offsets().is_sorted() && csr.row_offsets()[0] == 0);
    assert_eq!(csr.row_offsets()[csr.rows()], csr.nnz() as u64);
    for row in 0..csr.rows() {
        let columns = csr.row(row).0;
        assert!(
            columns.is_sorted_by(|a, b| a < b) && columns.last().is_none_or(|&c| (c as usize) < csr.cols())
        );
    }
    true
}

fn tiles(bytes: &mut Bytes<'_>) -> bool {
    let csr = matrix(bytes);
    let assignment = RowAssignment::from_fn(csr.rows(), |_| match bytes.byte() % 3 {
        0 => RowPath::Residual,
        _ => RowPath::Tile,
    })
    .unwrap();
    let mut parts = RsTile::from_csr(&csr, &assignment).unwrap().into_parts();
    for _ in 0..bytes.byte() % 3 {
        match bytes.byte() % 11 {
            0 => parts.rows = bytes.edge() as usize,
            1 => parts.cols = bytes.edge() as usize,
            2 => damage(bytes, &mut parts.window_rows, narrow),
            3 => damage(bytes, &mut parts.window_tiles, narrow),
            4 => damage(bytes, &mut parts.tile_cols, narrow),
            5 => damage(bytes, &mut parts.bitmaps, |number| number),
            6 => damage(bytes, &mut parts.tile_values, |number| number),
            7 => damage(bytes, &mut parts.values, |number| number as f32),
            8 => damage(bytes, &mut parts.residual_rows, narrow),
            9 => damage(bytes, &mut parts.residual_col_indices, narrow),
            _ => damage(bytes, &mut parts.residual_values, |number| number as f32),
        }
    }
    let Ok(tiles) = RsTile::try_from_parts(parts) else { return false };
    if tiles.rows() > 1 << 16 {
        return true; // rows that are nowhere are empty ones: right, and 32 GiB of offsets
    }
    let csr = tiles.to_csr().unwrap();
    let again = RsTile::try_from_parts(tiles.clone().into_parts()).unwrap();
    assert!(again.to_csr().unwrap().bitwise_eq(&csr));
    true
}

fn weights(bytes: &mut Bytes<'_>) -> bool {
    let (rows, cols) = (bytes.below(40), bytes.below(30));
    let pattern = [(1, 2, 1), (2, 4, 2), (2, 4, 32), (3, 5, 4), (8, 32, 8), (1, 256, 1)];
    let (n, m, length) = bytes.of(&pattern);
    let pattern = NmPattern::new(n, m, length).unwrap();
    let dense: Vec<f32> = (0..rows * cols).map(|at| if at % m < n { at as f32 } else { 0.0 }).collect();
    let Ok(weights) = VectorNm::from_dense(&dense, rows, cols, pattern) else { return false };
    let mut parts = VectorNmParts {
        rows,
        cols,
        pattern,
        values: weights.values().to_vec(),
        indices: weights.indices().to_vec(),
    };
    match bytes.byte() % 5 {
        0 => parts.rows = bytes.edge() as usize,
        1 => parts.cols = bytes.edge() as usize,
        2 => damage(bytes, &mut parts.values, |number| number as f32),
        _ => damage(bytes, &mut parts.indices, |number| number as u8),
    }
    let Ok(weights) = VectorNm::try_from_parts(parts) else { return false };
    let dense = weights.to_dense().unwrap();
    assert_eq!(dense.len(), weights.rows() * weights.cols());
    let packed = weights.packed_indices().unwrap();
    let parts = VectorNmParts {
        rows: weights.rows(),
        cols: weights.cols(),
        pattern: weights.pattern(),
        values: weights.values().to_vec(),
        indices: Vec::new(),
    };
    assert_eq!(VectorNm::from_packed(parts, &packed).unwrap().indices(), weights.indices());
    true
}

fn fibers(bytes: &mut Bytes<'_>) -> bool {
    let dims = [(); 3].map(|()| 1 + bytes.below(9));
    let entries = (0..bytes.below(60)).map(|at| (dims.map(|dim| bytes.below(dim) as u32), at as f32));
    let coo = Coo3::from_entries(dims, entries.collect::<Vec<_>>()).unwrap();
    let order = bytes.of(&[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]);
    let mut parts = Csf3::try_from_coo(&coo, order).unwrap().into_parts();
    for _ in 0..bytes.byte() % 3 {
        match bytes.byte() % 8 {
            0 => parts.dims[bytes.below(3)] = bytes.edge() as usize,
            1 => parts.mode_order[bytes.below(3)] = bytes.below(4),
            2 => damage(bytes, &mut parts.root_indices, narrow),
            3 => damage(bytes, &mut parts.root_offsets, |number| number),
            4 => damage(bytes, &mut parts.fiber_indices, narrow),
            5 => damage(bytes, &mut parts.fiber_offsets, |number| number),
            6 => damage(bytes, &mut parts.leaf_indices, narrow),
            _ => damage(bytes, &mut parts.values, |number| number as f32),
        }
    }
    let Ok(fibers) = Csf3::try_from_parts(parts) else { return false };
    let coo = fibers.to_coo().unwrap();
    let again = Csf3::try_from_coo(&coo, fibers.mode_order()).unwrap();
    assert_eq!(again.leaf_indices(), fibers.leaf_indices());
    assert!(again.values().iter().zip(fibers.values()).all(|(a, b)| a.to_bits_f64() == b.to_bits_f64()));
    true
}

/// The bits of a number, widened: equal for equal numbers, NaN included.
trait Bits {
    fn to_bits_f64(&self) -> u64;
}

impl<V: Value> Bits for V {
    fn to_bits_f64(&self) -> u64 {
        self.to_f64().to_bits()
    }
}

//! Messages of refusals, and matrices large enough to take every parallel path.

use super::*;
use crate::synthetic::SplitMix64;

fn refusal(rows: usize, cols: usize, offsets: &[u64], columns: &[u32], values: usize) -> String {
    let error = Csr::try_from_parts(rows, cols, offsets.to_vec(), columns.to_vec(), vec![1.0f32; values]);
    error.unwrap_err().to_string()
}

#[test]
fn refusals_name_the_place() {
    let too_large =
        "4294967296 rows are more than the 4294967295 that 32-bit indices can name; split the matrix";
    assert_eq!(refusal(1 << 32, 1, &[0], &[], 0), too_large);
    assert_eq!(refusal(1, 1 << 33, &[0, 0], &[], 0).split(' ').nth(1), Some("columns"));
    assert_eq!(
        refusal(2, 2, &[0, 0], &[], 0),
        "row_offsets has 2 elements but 3 are needed, one more than there are rows"
    );
    assert_eq!(
        refusal(0, 2, &[], &[], 0).split(',').next(),
        Some("row_offsets has 0 elements but 1 are needed")
    );
    assert_eq!(
        refusal(1, 2, &[0, 2], &[0, 1], 3),
        "values has 3 elements but 2 are needed, one for each column index"
    );
    assert_eq!(refusal(1, 2, &[1, 2], &[0, 1], 2), "row_offsets starts at 1; the first offset must be 0");
    assert_eq!(refusal(3, 2, &[0, 2, 1, 2], &[0, 1], 2), "row 1: row_offsets decreases from 2 to 1");
    assert_eq!(
        refusal(1, 2, &[0, u64::MAX], &[0], 1),
        format!("row_offsets ends at {} but there are 1 column indices", u64::MAX)
    );
    // Rows 1 and 2 are empty and start where row 3 does.
    let columns: Vec<u32> = (0..17).chain([900]).collect();
    assert_eq!(
        refusal(5, 800, &[0, 17, 17, 17, 18, 18], &columns, 18),
        "row 3, entry 17: column 900 is not below 800 columns"
    );
    assert_eq!(refusal(1, 0, &[0, 1], &[0], 1), "row 0, entry 0: column 0 is not below 0 columns");
}

#[test]
fn patterns_are_refused_by_the_place() {
    let refusal = |rows, offsets: &[u64], columns: &[u32]| {
        Pattern::try_new(rows, 9, offsets.to_vec(), columns.to_vec()).unwrap_err()
    };
    assert_eq!(
        refusal(3, &[0, 0, 3, 5], &[1, 4, 8, 2, 2]).to_string(),
        "row 2, entry 4: column 2 follows column 2; a pattern needs ascending columns, Csr::try_from_parts sorts them \
         with their values"
    );
    let error = FormatError::ColumnsNotAscending { row: 1, entry: 2, column: 3, before: 4 };
    assert_eq!(refusal(2, &[0, 0, 4], &[1, 4, 3, 3]), error, "the first of the row");
    // From one row to the next columns may fall, and an empty row has none to compare.
    assert!(Pattern::try_new(3, 9, vec![0, 1, 1, 2], vec![8, 0]).is_ok());
    let error = FormatError::ColumnOutOfRange { row: 1, entry: 1, column: 9, cols: 9 };
    assert_eq!(refusal(2, &[0, 1, 2], &[8, 9]), error);
    assert_eq!(refusal(1, &[1, 1], &[8]), FormatError::FirstOffset { found: 1 });
    assert_eq!(refusal(1, &[0, 2], &[8]), FormatError::LastOffset { found: 2, entries: 1 });
    assert_eq!(refusal(2, &[0, 2, 1], &[8]), FormatError::OffsetsDecrease { row: 1, start: 2, end: 1 });
    let (expected, why) = (4, "one more than there are rows");
    assert_eq!(
        refusal(3, &[0, 0], &[]),
        FormatError::LengthMismatch { array: "row_offsets", found: 2, expected, why }
    );
    assert_eq!(refusal(1 << 32, &[0], &[]), FormatError::DimensionTooLarge { what: "rows", found: 1 << 32 });
}

#[test]
fn a_large_pattern_out_of_order_is_found_in_its_row() {
    let rows = 50_000u32;
    let offsets: Vec<u64> = (0..=u64::from(rows)).map(|row| 3 * row).collect();
    let mut columns: Vec<u32> = (0..rows).flat_map(|row| [row, row + 1, row + 2]).collect();
    assert!(Pattern::try_new(rows as usize, 60_000, offsets.clone(), columns.clone()).is_ok());
    columns.swap(3 * 40_000, 3 * 40_000 + 1);
    columns.swap(3 * 44_444, 3 * 44_444 + 2);
    let error = Pattern::try_new(rows as usize, 60_000, offsets, columns).unwrap_err();
    let first =
        FormatError::ColumnsNotAscending { row: 40_000, entry: 120_001, column: 40_000, before: 40_001 };
    assert_eq!(error, first);
}

#[test]
fn equal_patterns_need_not_be_shared() {
    let pattern = |cols, columns: &[u32]| Pattern::try_new(1, cols, vec![0, 2], columns.to_vec()).unwrap();
    let one = pattern(5, &[1, 3]);
    assert!(one.is_shared_with(&one.clone()));
    assert!(one == pattern(5, &[1, 3]) && !one.is_shared_with(&pattern(5, &[1, 3])));
    assert!(one != pattern(6, &[1, 3]) && one != pattern(5, &[1, 4]));
    assert_eq!((one.rows(), one.cols(), one.nnz(), one.row(0)), (1, 5, 2, &[1, 3][..]));
    assert_eq!(one.byte_sizes().iter().collect::<Vec<_>>(), [("row_offsets", 16), ("col_indices", 8)]);
}

#[test]
fn coordinates_outside_are_named() {
    let error = Coo::try_new(4, 5, vec![0, 9, 1], vec![0, 1, 7], vec![1.0f32, 2.5, 3.0]).unwrap_err();
    assert_eq!(error.to_string(), "entry 1 (row 9, column 1, value 2.5) lies outside of 4 rows × 5 columns");
    let error = Coo::try_new(4, 5, vec![0, 1], vec![5, 1], vec![f32::NAN, 2.5]).unwrap_err();
    assert_eq!(error.to_string(), "entry 0 (row 0, column 5, value NaN) lies outside of 4 rows × 5 columns");
    let error = Coo::try_new(4, 5, vec![0, 1], vec![5], vec![1.0f32, 2.5]).unwrap_err();
    assert_eq!(error.to_string(), "col_indices has 1 elements but 2 are needed, one for each value");
    assert!(Coo::<f32>::try_new(1 << 32, 5, vec![], vec![], vec![]).is_err());
}

#[test]
fn the_last_column_index_is_never_a_column() {
    let error =
        Csr::try_from_parts(1, u32::MAX as usize, vec![0, 1], vec![u32::MAX], vec![1.0f32]).unwrap_err();
    assert!(matches!(error, FormatError::ColumnOutOfRange { column: 0xffff_ffff, .. }));
    let widest = Csr::try_from_parts(1, u32::MAX as usize, vec![0, 1], vec![u32::MAX - 1], vec![1.0f32]);
    assert_eq!(widest.unwrap().cols(), 4_294_967_295);
}

#[test]
fn special_values_are_entries() {
    let values = vec![0.0f32, f32::NAN, f32::INFINITY, -0.0, 1.0, -1.0];
    let csr = Csr::try_from_parts(1, 5, vec![0, 6], vec![0, 1, 2, 3, 4, 4], values).unwrap();
    assert_eq!((csr.nnz(), csr.canonicalised().summed_duplicates), (5, 1));
    assert_eq!(csr.values()[4], 0.0, "duplicates that cancel stay an entry");
    assert!(csr.bitwise_eq(&csr.clone()) && csr != csr, "NaN differs from itself but for its bits");
    let negative = csr.with_values(vec![0.0f32; 5]).unwrap().map_values(|value| -value);
    assert!(!negative.bitwise_eq(&csr.with_values(vec![0.0; 5]).unwrap()));
}

#[test]
fn shapes_without_entries() {
    for (rows, cols) in [(0, 0), (0, 7), (7, 0), (7, 7)] {
        let zeros = Csr::<f64>::zeros(rows, cols).unwrap();
        assert_eq!((zeros.rows(), zeros.cols(), zeros.nnz()), (rows, cols, 0));
        let coo = Coo::try_new(rows, cols, vec![], vec![], vec![]).unwrap();
        assert_eq!(coo.to_csr().unwrap(), zeros);
        assert_eq!(zeros.transpose().unwrap(), Csr::zeros(cols, rows).unwrap());
        assert_eq!(Csr::from_dense(rows, cols, &vec![0.0; rows * cols]).unwrap(), zeros);
        assert_eq!(Csr::try_from_parts(rows, cols, vec![0; rows + 1], vec![], vec![]).unwrap(), zeros);
        assert_eq!(zeros.rows_iter().len(), rows);
        assert!(zeros.get_row(rows).is_none());
    }
    assert!(Csr::from_dense(2, 3, &[1.0f32; 5]).is_err());
    assert!(Csr::from_dense(usize::MAX, 3, &[1.0f32; 5]).is_err());
}

/// What the constructors must make of a list: stable sort, then sums from the left.
fn naive(rows: usize, cols: usize, mut entries: Vec<(u32, u32, f32)>) -> Csr<f32> {
    entries.sort_by_key(|&(row, column, _)| (row, column));
    let (mut offsets, mut columns, mut values) = (vec![0u64; rows + 1], Vec::new(), Vec::<f32>::new());
    let mut last = None;
    for (row, column, value) in entries {
        if last == Some((row, column)) {
            *values.last_mut().unwrap() += value;
            continue;
        }
        last = Some((row, column));
        offsets[row as usize + 1] += 1;
        columns.push(column);
        values.push(value);
    }
    (0..rows).for_each(|row| offsets[row + 1] += offsets[row]);
    let csr = Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap();
    assert_eq!(csr.canonicalised(), Canonicalised::default());
    csr
}

fn from_list(rows: usize, cols: usize, entries: &[(u32, u32, f32)]) -> Csr<f32> {
    let row_indices = entries.iter().map(|entry| entry.0).collect();
    let columns = entries.iter().map(|entry| entry.1).collect();
    let values = entries.iter().map(|entry| entry.2).collect();
    Coo::try_new(rows, cols, row_indices, columns, values).unwrap().to_csr().unwrap()
}

/// 400 000 entries: a dozen blocks. Values are not integers, so the order of the sums shows.
fn many_entries(rows: u32, cols: u32, seed: u64) -> Vec<(u32, u32, f32)> {
    let mut random = SplitMix64::new(seed);
    let mut draw = || (random.below(rows), random.below(cols), random.below(1000) as f32 / 7.0);
    (0..400_000).map(|_| draw()).collect()
}

#[test]
fn large_lists_are_sorted_and_summed() {
    // Many rows, few rows, one row, one column; the narrow ones are full of duplicates.
    for (rows, cols) in [(300_000, 1000), (700, 500), (1, 600_000), (600_000, 1), (3, 3)] {
        let mut entries = many_entries(rows, cols, u64::from(rows));
        let (rows, cols) = (rows as usize, cols as usize);
        let want = naive(rows, cols, entries.clone());
        let from_any = from_list(rows, cols, &entries);
        assert_eq!(from_any, want, "{rows} × {cols}");
        assert_eq!(from_any.canonicalised().summed_duplicates, 400_000 - want.nnz() as u64);

        // In order of rows: nothing is distributed; entries of a row keep their order.
        entries.sort_by_key(|entry| entry.0);
        let from_rows = from_list(rows, cols, &entries);
        assert_eq!(from_rows, want, "{rows} × {cols}, by row");
        assert_eq!(from_rows.canonicalised(), from_any.canonicalised());

        // The same entries as compressed rows.
        let (mut offsets, mut columns, mut values) = (vec![0u64; rows + 1], Vec::new(), Vec::new());
        for &(row, column, value) in &entries {
            offsets[row as usize + 1] += 1;
            columns.push(column);
            values.push(value);
        }
        (0..rows).for_each(|row| offsets[row + 1] += offsets[row]);
        let from_parts = Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap();
        assert_eq!(from_parts, want, "{rows} × {cols}, compressed");
        assert_eq!(from_parts.canonicalised(), from_any.canonicalised());
    }
}

#[test]
fn one_full_row_among_empty_ones() {
    let (rows, cols, full) = (100_000, 200_000, 77_777u32);
    let columns: Vec<u32> = (0..cols).rev().collect();
    let values: Vec<f32> = columns.iter().map(|&column| column as f32).collect();
    let offsets = (0..=rows).map(|row| if row > full as usize { u64::from(cols) } else { 0 }).collect();
    let csr = Csr::try_from_parts(rows, cols as usize, offsets, columns.clone(), values.clone()).unwrap();
    assert_eq!(csr.canonicalised(), Canonicalised { sorted_rows: 1, summed_duplicates: 0 });
    let (row_columns, row_values) = csr.row(full as usize);
    assert!(row_columns.iter().copied().eq(0..cols));
    assert!(row_values.iter().zip(0..cols).all(|(&value, column)| value == column as f32));
    let rows_of_entries = vec![full; cols as usize];
    let coo = Coo::try_new(rows, cols as usize, rows_of_entries, columns, values).unwrap();
    assert_eq!(coo.to_csr().unwrap(), csr);
}

#[test]
fn a_large_bad_column_is_found_in_its_row() {
    let entries = 300_000u32;
    let offsets = (0..=u64::from(entries)).collect();
    let mut columns = vec![0; entries as usize];
    columns[222_222] = 5;
    columns[222_223] = 6;
    let error = Csr::try_from_parts(entries as usize, 5, offsets, columns, vec![1.0f32; entries as usize]);
    assert_eq!(error.unwrap_err().to_string(), "row 222222, entry 222222: column 5 is not below 5 columns");
}

#[test]
fn byte_sizes_are_those_of_the_arrays() {
    let csr = Csr::<f64>::identity(10).unwrap();
    let sizes: Vec<_> = csr.byte_sizes().iter().collect();
    assert_eq!(sizes, [("row_offsets", 88), ("col_indices", 40), ("values", 80)]);
    assert_eq!(csr.byte_sizes().total(), 208);
    assert_eq!(csr.to_coo().unwrap().byte_sizes().total(), 160);
}

#[test]
fn casting_rounds_once_and_back_is_exact() {
    let csr = Csr::try_from_parts(1, 3, vec![0, 3], vec![0, 1, 2], vec![1.0f32, 0.1, 70_000.0]).unwrap();
    let half: Csr<half::f16> = csr.cast();
    assert_eq!(half.values()[1], half::f16::from_f32(0.1));
    assert_eq!(half.values()[2], half::f16::INFINITY);
    assert_eq!(half.cast::<f64>().cast::<half::f16>(), half);
}

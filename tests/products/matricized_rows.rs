//! Products by matricised rows: row-major and column-major operands, rows of every class, against the f64 reference.

use crate::common::{
    Layout, Setup, check, check_in, devices, every_case, kernel_devices, replaces_values, report_missing_gpu,
};
use windrow::{Algorithm, Csr, DenseRef, Determinism, Device, DeviceMatrix, Precision, Spmm, SpmmError, f16};
use windrow_testkit::shape_cases;

const SETUP: Setup = Setup::new(Algorithm::MatricizedRows, Precision::F16);

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn row_major() {
    check(SETUP, &every_case(20));
    check(Setup { narrow: Some(Precision::F16), ..SETUP }, &shape_cases());
}

#[test]
fn row_major_in_any_order() {
    check(SETUP.told(|o| o.determinism = Determinism::Fast), &shape_cases());
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn column_major() {
    let cases = every_case(20);
    check_in("column-major", SETUP, &cases, &[Layout::ColumnMajor]);
}

/// Rows of so many entries each, of small integers: sums are exact.
fn integers(lens: &[usize], cols: usize) -> Csr<f32> {
    let mut offsets = vec![0_u64];
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    for (row, &len) in lens.iter().enumerate() {
        // A stride that divides nothing: columns differ from row to row, and ascend.
        for entry in 0..len {
            columns.push(u32::try_from(entry * cols / len).unwrap());
            values.push(((row + 3 * entry) % 5) as f32 - 2.0);
        }
        offsets.push(u64::try_from(columns.len()).unwrap());
    }
    Csr::try_from_parts(lens.len(), cols, offsets, columns, values).unwrap()
}

/// Rows around the limits of every class, at widths around those of slices and MMAs, exactly.
#[test]
fn every_class_of_rows() {
    let lens = [
        0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 383, 384, 385, 511,
        512, 513, 1000,
    ];
    let a = integers(&lens, 1024);
    let mut cut = 0;
    for n in [1, 2, 3, 5, 8, 16, 17, 63, 64, 65, 100, 130] {
        let b: Vec<f32> = (0..1024 * n).map(|i| ((i * 7 + i / n) % 9) as f32 - 4.0).collect();
        let expected = Spmm::builder(&a).build(&Device::cpu()).unwrap().run(&b).unwrap();
        let halves: Vec<f16> = b.iter().map(|&x| f16::from_f32(x)).collect();
        let columns: Vec<f16> = (0..n).flat_map(|j| halves[j..].iter().step_by(n).copied()).collect();
        for device in devices() {
            let builder = Spmm::builder(&a).width(n).precision(Precision::F16);
            let plan = builder.algorithm(Algorithm::MatricizedRows).build(&device).unwrap();
            cut += plan.report().split_rows;
            assert!(plan.run(&b).unwrap() == expected, "{n} columns on {device}");
            let of = DenseRef::packed(&columns, n, 1024).unwrap();
            let b_transposed = DeviceMatrix::upload(&device, of).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(&device, lens.len(), n).unwrap();
            plan.run_column_major_into(1.0, &b_transposed, 0.0, &mut c).unwrap();
            assert!(c.download().unwrap() == expected, "{n} columns, column-major, on {device}");
        }
    }
    assert!(cut > 0, "rows are cut");
    report_missing_gpu("classes of rows", 24);
}

/// A plan's width is a hint: what is wider than its workspace is done in blocks of columns, each of which must begin at
/// its own column of `B`.
#[test]
fn column_major_in_several_blocks() {
    let a = integers(&[1000, 513, 7, 0, 40], 1024);
    let n = 300;
    let b: Vec<f32> = (0..1024 * n).map(|i| ((i * 7 + i / n) % 9) as f32 - 4.0).collect();
    let expected = Spmm::builder(&a).build(&Device::cpu()).unwrap().run(&b).unwrap();
    let columns: Vec<f16> =
        (0..n).flat_map(|j| b[j..].iter().step_by(n).map(|&x| f16::from_f32(x))).collect();
    for device in kernel_devices(3) {
        let builder = Spmm::builder(&a).width(8).precision(Precision::F16);
        let plan = builder.algorithm(Algorithm::MatricizedRows).build(&device).unwrap();
        assert!(plan.report().split_rows > 0, "rows are cut, so there is a workspace");
        let of = DenseRef::packed(&columns, n, 1024).unwrap();
        let b_transposed = DeviceMatrix::upload(&device, of).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, a.rows(), n).unwrap();
        plan.run_column_major_into(1.0, &b_transposed, 0.0, &mut c).unwrap();
        assert!(c.download().unwrap() == expected, "on {device}");
    }
    report_missing_gpu("blocks of columns", 1);
}

#[test]
fn the_report_counts_mmas() {
    // Rows of 8, 16, 32 and 64 entries fill what they get: equation 1 of the paper.
    let a = integers(&[8, 16, 32, 64], 64);
    for device in kernel_devices(0) {
        let plan = |width| {
            let builder = Spmm::builder(&a).width(width).precision(Precision::F16);
            builder.algorithm(Algorithm::MatricizedRows).build(&device).unwrap()
        };
        assert_eq!(plan(128).report().mma_count, 120 * 128 / 128);
        assert_eq!(plan(16).report().mma_count, 15);
        assert!(plan(16).report().to_string().contains("15 MMAs at width 16"));
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let a = Csr::<f32>::identity(8).unwrap();
    for device in kernel_devices(1) {
        let builder = Spmm::builder(&a).algorithm(Algorithm::MatricizedRows);
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            let error = builder.clone().precision(precision).build(&device).unwrap_err();
            assert!(error.to_string().contains("use precision f16"), "{error}");
        }
        let plan = Spmm::builder(&a).precision(Precision::F16).algorithm(Algorithm::RowSplit).build(&device);
        let plan = plan.unwrap();
        let b = DeviceMatrix::<f16>::zeros(&device, 2, 8).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, 8, 2).unwrap();
        let error = plan.run_column_major_into(1.0, &b, 0.0, &mut c).unwrap_err();
        assert!(matches!(error, SpmmError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("matricized-rows"), "{error}");
        // Shapes are those of a transposed operand.
        let plan = builder.precision(Precision::F16).build(&device).unwrap();
        let b = DeviceMatrix::<f16>::zeros(&device, 8, 2).unwrap();
        let error = plan.run_column_major_into(1.0, &b, 0.0, &mut c).unwrap_err();
        assert!(matches!(error, SpmmError::InnerDim { a_cols: 8, b_rows: 2 }), "{error}");
    }
}

#[test]
fn values_are_replaced() {
    replaces_values(SETUP.options);
}

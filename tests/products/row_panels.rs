//! Products by panels of rows: every width of slices, panels that are cut, against the f64 reference.

use crate::common::{Setup, check, every_case, kernel_devices, replaces_values, report_missing_gpu};
use windrow::{
    Algorithm, Csr, Determinism, Device, Precision, Preprocessing, Profile, RowDivision, Sddmm,
    SddmmAlgorithm, Spmm, SpmmOptions,
};
use windrow_testkit::{Pattern, SplitMix64, Values, shape_cases};

const SETUP: Setup = Setup::new(Algorithm::RowPanels, Precision::F32);

/// Pieces of a panel of one chunk each.
fn in_pieces(options: &mut SpmmOptions) {
    options.row_division = RowDivision { piece_entries: Some(1), ..options.row_division };
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn whole_panels() {
    check(SETUP, &every_case(20));
    check(Setup { narrow: Some(Precision::F16), ..SETUP }, &shape_cases());
    check(Setup { narrow: Some(Precision::Bf16), ..SETUP }, &shape_cases());
}

/// The same where panels are cut: sums of pieces are added in their order, or in any.
#[test]
fn panels_in_pieces() {
    check(SETUP.told(in_pieces), &every_case(20));
    let any_order = |options: &mut SpmmOptions| options.determinism = Determinism::Fast;
    check(SETUP.told(in_pieces).told(any_order), &shape_cases());
}

/// Small integers, so that sums are exact: an entry where a hash of row and column is below `percent`, and rows of all
/// columns, of none and of one between them.
fn integers(rows: usize, cols: usize, percent: usize) -> Csr<f32> {
    let mut dense = vec![0.0_f32; rows * cols];
    for (at, value) in dense.iter_mut().enumerate() {
        let (row, col) = (at / cols, at % cols);
        let is_entry = match row % 23 {
            3 => true,
            5 => false,
            7 => col == row % cols,
            _ => (row * 7919 + col * 104_729 + row * col) % 100 < percent,
        };
        if is_entry {
            *value = [1.0, -2.0, 3.0][(row + 5 * col) % 3];
        }
    }
    Csr::from_dense(rows, cols, &dense).unwrap()
}

/// Slices of every width that there are kernels for, whole and in part, of panels whole and cut, exactly.
#[test]
fn every_slice() {
    let (mut cut, mut whole, mut entries) = (0, 0, Vec::new());
    for (turn, (rows, cols, percent)) in
        [(1, 1, 100), (63, 33, 50), (70, 300, 12), (200, 95, 3)].into_iter().enumerate()
    {
        let a = integers(rows, cols, percent);
        for n in [1, 4, 31, 32, 33, 64, 65, 130, 257] {
            let b: Vec<f32> = (0..cols * n).map(|i| ((i * 7 + i / n) % 9) as f32 - 4.0).collect();
            let expected = Spmm::builder(&a).build(&Device::cpu()).unwrap().run(&b).unwrap();
            for slice_columns in [None, Some(32), Some(128), Some(256)] {
                for device in kernel_devices(turn + n) {
                    let row_division = RowDivision { slice_columns, ..RowDivision::default() };
                    let options = SpmmOptions { width: n, row_division, ..SETUP.options };
                    let plan = Spmm::builder(&a).options(options).build(&device).unwrap();
                    let report = plan.report();
                    cut += report.split;
                    whole += u64::from(report.split == 0);
                    entries.extend(report.entries.clone());
                    assert!(
                        plan.run(&b).unwrap() == expected,
                        "{rows} × {cols}, {n} columns on {device}: {report}"
                    );
                }
            }
        }
    }
    assert!(cut > 0 && whole > 0, "{cut} panels are cut, {whole} pieces are whole");
    for entry in
        ["spmm_row_panels_c32", "spmm_row_panels_c64", "spmm_row_panels_c128", "spmm_row_panels_c256"]
    {
        assert!(entries.contains(&entry), "{entry} is among {entries:?}");
    }
    report_missing_gpu("slices of panels", 144);
}

#[test]
fn values_are_replaced() {
    replaces_values(SETUP.options);
}

/// 600 cliques of 64 vertices, side by side.
fn cliques() -> Csr<f32> {
    let rows = 64 * 600_u32;
    let offsets = (0..=u64::from(rows)).map(|row| 64 * row).collect();
    let columns: Vec<u32> = (0..rows).flat_map(|row| row / 64 * 64..row / 64 * 64 + 64).collect();
    let (values, extent) = (vec![1.0_f32; columns.len()], rows as usize);
    Csr::try_from_parts(extent, extent, offsets, columns, values).unwrap()
}

/// Auto weighs panels in f32 and for tf32, which they serve, where rows have entries enough, and takes them of cliques;
/// not for a few products, nor in another precision.
#[test]
fn auto_takes_panels_of_rows_that_share_columns() {
    let h200 = Profile::built_in(&Device::cpu());
    let cliques = cliques();
    let taken = |a: &Csr<f32>, precision, runs| {
        let builder = Spmm::builder(a).width(128).precision(precision);
        let builder = match runs {
            Some(runs) => builder.expected_runs(runs),
            None => builder,
        };
        let weighed = builder.weigh(&h200).unwrap();
        let has_panels = weighed.candidates.iter().any(|of| of.algorithm == "row-panels");
        (weighed.algorithm == Algorithm::RowPanels, has_panels)
    };
    assert_eq!(taken(&cliques, Precision::F32, None), (true, true));
    assert!(taken(&cliques, Precision::Tf32, None).1);
    assert_eq!(taken(&cliques, Precision::F32, Some(1)), (false, false));
    // What a hundred products save pays for what kernels lay out, not for what the host does.
    assert_eq!(taken(&cliques, Precision::F32, Some(100)), (true, true));
    let on_host = Spmm::builder(&cliques).width(128).preprocessing(Preprocessing::Cpu);
    let of_runs = |runs| on_host.clone().expected_runs(runs).weigh(&h200).unwrap().algorithm;
    assert_eq!([of_runs(100), of_runs(100_000)], [Algorithm::RowSplit, Algorithm::RowPanels]);
    assert_eq!(taken(&cliques, Precision::F16, None), (false, false));
    let mut rng = SplitMix64::new(0x11d);
    let unlike = Pattern::random(3000, 60_000, 24, &mut rng).with_values(Values::Reals, &mut rng);
    assert_eq!(taken(&unlike, Precision::F32, None), (false, true));
    assert_eq!(taken(&Csr::identity(5000).unwrap(), Precision::F32, None), (false, false));
}

/// The same of sampled products.
#[test]
fn auto_takes_sampled_panels_of_rows_that_share_columns() {
    let h200 = Profile::built_in(&Device::cpu());
    let taken = |a: &Csr<f32>, precision, runs| {
        let builder = Sddmm::builder(a).inner(128).precision(precision);
        let builder = match runs {
            Some(runs) => builder.expected_runs(runs),
            None => builder,
        };
        let weighed = builder.weigh(&h200).unwrap();
        let has_panels = weighed.candidates.iter().any(|of| of.algorithm == "row-panels");
        ((weighed.algorithm, weighed.precision) == (SddmmAlgorithm::RowPanels, Precision::F32), has_panels)
    };
    let cliques = cliques();
    assert_eq!(taken(&cliques, Precision::F32, None), (true, true));
    assert!(taken(&cliques, Precision::Tf32, None).1);
    assert_eq!(taken(&cliques, Precision::F32, Some(10)), (false, false), "they do not pay");
    assert_eq!(taken(&cliques, Precision::F32, Some(100_000)), (true, true));
    assert_eq!(taken(&cliques, Precision::F16, None), (false, false));
    assert_eq!(taken(&Csr::identity(5000).unwrap(), Precision::F32, None), (false, false));
}

#[test]
fn other_precisions_are_refused() {
    let a = Csr::<f32>::identity(8).unwrap();
    for device in kernel_devices(1) {
        let builder = Spmm::builder(&a).algorithm(Algorithm::RowPanels);
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32, Precision::F64] {
            let error = builder.clone().precision(precision).build(&device).unwrap_err();
            assert!(error.to_string().contains("use precision f32"), "{error}");
        }
    }
}

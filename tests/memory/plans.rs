//! Plans for GPUs, and verification.

use windrow::synthetic::{seeded_tensor, seeded_weights};
use windrow::{
    Algorithm, Csr, DenseRef, Determinism, Device, DeviceMatrix, EmulatorSchedule, Epilogue, Mttkrp,
    NmPattern, NmSpmm, Permutation, Precision, Preprocessing, RowDivision, Sddmm, SddmmAlgorithm, SddmmForm,
    Spmm, Ttm,
};

use super::{alone, each_refusal, laid_out};

/// Layouts for a GPU, laid out on the host: plans up to where their memory is counted, then whole ones.
///
/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn plans_for_gpus() {
    let _alone = alone();
    // Rows of 100 entries, all of which are cut.
    let columns = (0..2_000).flat_map(|row| (0..100).map(move |at| 50 * at + row % 50)).collect();
    let offsets = (0..=2_000).map(|row| 100 * row).collect();
    let a = Csr::try_from_parts(2_000, 5_000, offsets, columns, vec![1.0f32; 200_000]).unwrap();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let order = Permutation::try_from_new_to_old((0..2_000).rev().collect()).unwrap();
    for (algorithm, least) in [
        (Algorithm::RowSplit, 2),
        (Algorithm::SegmentGroup, 4),
        (Algorithm::MergePath, 1),
        (Algorithm::RowPanels, 4),
        (Algorithm::MatricizedRows, 2),
        (Algorithm::TileStream, 4),
        (Algorithm::Hybrid, 4),
    ] {
        for determinism in [Determinism::RunToRun, Determinism::Fast] {
            let division = RowDivision { piece_entries: Some(2), ..RowDivision::default() };
            let builder = Spmm::builder(&a).width(3).algorithm(algorithm).determinism(determinism);
            let builder = builder.row_division(division).memory_limit(1);
            let builder = match algorithm {
                Algorithm::SegmentGroup => builder.parallelism("{<2 nnz, 1 col>, 8}".parse().unwrap()),
                Algorithm::TileStream | Algorithm::Hybrid | Algorithm::MatricizedRows => {
                    builder.precision(Precision::F16)
                }
                _ => builder,
            };
            each_refusal(&format!("{algorithm:?}"), least, || laid_out(builder.build(&device)));
            each_refusal(&format!("{algorithm:?}, uploaded"), least, || {
                // Its own: an emulator lists what was ever freed.
                let device = Device::emulator(EmulatorSchedule::InOrder);
                let builder = builder.clone().memory_limit(u64::MAX).preprocessing(Preprocessing::Cpu);
                builder.values_from_device().build(&device)?.replace_values(a.values())
            });
            if matches!(algorithm, Algorithm::RowSplit | Algorithm::TileStream | Algorithm::Hybrid) {
                each_refusal("in another order", 2, || {
                    laid_out(builder.clone().order(&order).build(&device))
                });
            }
        }
    }
    let sddmm = Sddmm::builder(&a).inner(3).algorithm(SddmmAlgorithm::Entries).memory_limit(1);
    each_refusal("entries", 2, || laid_out(sddmm.build(&device)));
    // Of the columns that a window of rows has, 50 are in all of them, enough for four tiles, and others in one.
    let column = |row: u32, at: u32| 50 * at + if at.is_multiple_of(2) { 0 } else { row % 50 };
    let columns = (0..2_000).flat_map(|row| (0..100).map(move |at| column(row, at))).collect();
    let shared =
        Csr::try_from_parts(2_000, 5_000, a.row_offsets().to_vec(), columns, a.values().to_vec()).unwrap();
    for (algorithm, precision, least) in [
        (SddmmAlgorithm::Entries, Precision::F32, 2),
        (SddmmAlgorithm::Groups, Precision::F32, 1),
        (SddmmAlgorithm::RowPanels, Precision::F32, 8),
        (SddmmAlgorithm::Tiles, Precision::F16, 4),
        (SddmmAlgorithm::Hybrid, Precision::Bf16, 8),
    ] {
        let builder = Sddmm::builder(&shared).inner(3).algorithm(algorithm).precision(precision);
        let builder = builder.tile_threshold(20);
        each_refusal(&format!("SDDMM by {algorithm}"), least, || {
            laid_out(builder.clone().memory_limit(1).build(&device))
        });
        each_refusal(&format!("SDDMM by {algorithm}, uploaded"), least, || {
            builder.clone().form(SddmmForm::Scale).build(&Device::emulator(EmulatorSchedule::InOrder))
        });
    }
    let tensor = seeded_tensor::<f32>([3_000, 40, 2_500], 9_000, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let (mttkrp, ttm) = (Mttkrp::builder(&tensor).width(2), Ttm::builder(&tensor).width(2));
    each_refusal("MTTKRP", 4, || laid_out(mttkrp.clone().memory_limit(1).build(&device)));
    each_refusal("TTM", 2, || laid_out(ttm.clone().memory_limit(1).build(&device)));
    let own = || Device::emulator(EmulatorSchedule::InOrder);
    each_refusal("MTTKRP, uploaded", 4, || mttkrp.build(&own()));
    each_refusal("TTM, uploaded", 2, || ttm.build(&own()));
}

/// Rows of a result that are longer than what may be refused.
#[test]
fn verification() {
    let _alone = alone();
    let (device, n) = (Device::cpu(), 1_100);
    let a = Csr::<f32>::identity(300).unwrap();
    let ones = vec![1.0f32; 300 * n];
    let upload = || DeviceMatrix::upload(&device, DenseRef::packed(&ones, 300, n).unwrap()).unwrap();
    let (b, c) = (upload(), upload());
    let plan = Spmm::builder(&a).width(n).build(&device).unwrap();
    each_refusal("SpMM", 0, || plan.verify(&a, &b, &c).map(|found| assert!(found.passed())));
    let tensor = seeded_tensor::<f32>([300, 300, 300], 900, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let plan = Mttkrp::builder(&tensor).width(n).build(&device).unwrap();
    let mut y = upload();
    plan.run_into(1.0, [&b, &c], 0.0, &mut y).unwrap();
    each_refusal("MTTKRP", 2, || plan.verify(&tensor, [&b, &c], &y).map(|found| assert!(found.passed())));
    let weights = seeded_weights::<f32>((64, n), NmPattern::new(2, 8, 4).unwrap(), 1).unwrap();
    let plan = NmSpmm::builder(&weights).build(&device).unwrap();
    let a = DeviceMatrix::upload(&device, DenseRef::packed(&ones[..300 * 64], 300, 64).unwrap()).unwrap();
    let run = Epilogue::default();
    plan.run_into(&run, &a, &mut y).unwrap();
    each_refusal("N:M", 4, || plan.verify(&weights, &run, &a, &y).map(|found| assert!(found.passed())));
}

//! Merged paths of matrices that are on the device: shares, steps and cut rows are those of the host.

use windrow::{Algorithm, Csr, Determinism, DeviceCsr, DeviceKind, RowDivision, SpmmOptions};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::device_csr::compare;

fn plans() -> Vec<SpmmOptions> {
    let path = SpmmOptions { algorithm: Algorithm::MergePath, width: 3, ..SpmmOptions::default() };
    let cut = RowDivision { piece_entries: Some(600), ..RowDivision::default() };
    let steps = |point: &str| Some(point.parse().unwrap());
    vec![
        path,
        SpmmOptions { parallelism: steps("{<8 nnz, 1 col>, 32}"), ..path },
        SpmmOptions { parallelism: steps("{<16 nnz, 1 col>, 32}"), row_division: cut, ..path },
        SpmmOptions { row_division: cut, ..path },
        SpmmOptions { row_division: cut, determinism: Determinism::Fast, ..path },
    ]
}

/// What reports of such plans say.
const THERE: &str = "the matrix is there";

fn matrix(lengths: impl IntoIterator<Item = usize>, rng: &mut SplitMix64) -> Csr<f32> {
    Pattern::from_lengths(3000, lengths, rng).with_values(Values::Reals, rng)
}

/// Rows that fill blocks to the last step or have one more, rows by themselves, and pieces.
#[test]
fn shares_are_those_of_the_host() {
    let mut rng = SplitMix64::new(0x9a7b);
    let matrices = [
        ("full blocks", matrix([383, 1, 381, 0, 384, 382, 0, 0, 895, 896, 5], &mut rng)),
        ("rows by themselves", matrix([2000, 384, 384, 0, 1500, 384, 2999], &mut rng)),
        ("no entries", matrix([0; 500], &mut rng)),
        ("one row", matrix([7], &mut rng)),
        ("one long row", matrix([1000], &mut rng)),
    ];
    for device in devices().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        for (name, a) in &matrices {
            for options in plans() {
                let said = compare(options, device, name, (a, &DeviceCsr::from_host(device, a).unwrap()));
                assert_eq!(said, THERE);
            }
        }
    }
    report_missing_gpu("merged paths of matrices on the device", plans().len() * matrices.len());
}

/// Several chunks of rows: shares that lie across their ends, whole chunks without entries, and long rows at both
/// sides.
#[test]
fn shares_are_followed_from_chunk_to_chunk() {
    let mut rng = SplitMix64::new(0xc4a1);
    let lengths: Vec<usize> = (0..30_000)
        .map(|row| match row {
            8191 | 16_383 | 24_575 => 2500,
            8192 | 29_999 => 700,
            9000..18_000 => 0,
            _ => rng.below(6),
        })
        .collect();
    let a = matrix(lengths, &mut rng);
    for (turn, options) in plans().into_iter().enumerate() {
        for device in kernel_devices(turn) {
            let said = compare(options, &device, "chunks", (&a, &DeviceCsr::from_host(&device, &a).unwrap()));
            assert_eq!(said, THERE);
        }
    }
    report_missing_gpu("merged paths of several chunks", plans().len());
}

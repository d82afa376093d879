//! Groups of entries of matrices that are on the device: starts, slots and cut rows are those of the host.

use windrow::{Algorithm, Csr, Determinism, DeviceCsr, DeviceKind, SpmmOptions};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::device_csr::compare;

/// Small groups and large ones, each piece with a slot of its own and each row.
fn divisions() -> Vec<SpmmOptions> {
    let groups = SpmmOptions { algorithm: Algorithm::SegmentGroup, width: 4, ..SpmmOptions::default() };
    let points = ["{<1 nnz, 4 col>, 2}", "{<4 nnz, 4 col>, 4}", "{<4 nnz, 1 col>, 32}"];
    let both = |point: &str| {
        let groups = SpmmOptions { parallelism: Some(point.parse().unwrap()), ..groups };
        [groups, SpmmOptions { determinism: Determinism::Fast, ..groups }]
    };
    points.into_iter().flat_map(both).collect()
}

/// What reports of such plans say.
const THERE: &str = "the matrix is there";

fn matrix(lengths: impl IntoIterator<Item = usize>, rng: &mut SplitMix64) -> Csr<f32> {
    Pattern::from_lengths(2000, lengths, rng).with_values(Values::Reals, rng)
}

/// Rows that end with a group or a word of starts, two in one group, and rows in so many groups that a block adds them
/// up.
#[test]
fn groups_are_those_of_the_host() {
    let mut rng = SplitMix64::new(0x6209);
    let matrices = [
        ("ends of groups", matrix([16, 16, 0, 32, 64, 128, 256, 1, 15, 17], &mut rng)),
        ("two in a group", matrix([6, 6, 0, 0, 3, 10, 1, 2, 130, 130, 126], &mut rng)),
        ("many groups", matrix([2000, 0, 1, 1999, 3, 700, 64], &mut rng)),
        ("one entry", matrix([0, 0, 1, 0], &mut rng)),
        ("no empty rows", matrix([5; 77], &mut rng)),
    ];
    for device in devices().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        for (name, a) in &matrices {
            for options in divisions() {
                let said = compare(options, device, name, (a, &DeviceCsr::from_host(device, a).unwrap()));
                assert_eq!(said, THERE);
            }
        }
    }
    report_missing_gpu("groups of entries of matrices on the device", divisions().len() * matrices.len());
}

/// More groups, words and rows than one block of a sum.
#[test]
fn groups_of_many_blocks_are_those_of_the_host() {
    let mut rng = SplitMix64::new(0xb10c);
    let lengths: Vec<usize> =
        (0..20_000).map(|row| if row % 999 == 5 { 900 } else { rng.below(5) }).collect();
    let a = matrix(lengths, &mut rng);
    for (turn, options) in divisions().into_iter().enumerate() {
        for device in kernel_devices(turn) {
            let said =
                compare(options, &device, "many blocks", (&a, &DeviceCsr::from_host(&device, &a).unwrap()));
            assert_eq!(said, THERE);
        }
    }
    report_missing_gpu("groups of entries of many blocks", divisions().len());
}

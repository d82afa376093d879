//! The order of kernels against the one of the host, row for row.

use windrow_formats::Csr;
use windrow_formats::synthetic::SplitMix64;
use windrow_preprocess::reorder::{Method, Options, reorder};

use super::*;
use crate::EmulatorSchedule;

fn devices() -> Vec<Device> {
    let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
    devices.extend(Device::cuda(0));
    devices
}

fn matrix(cols: usize, rows: &[Vec<u32>]) -> Csr<f32> {
    let mut offsets = vec![0];
    offsets.extend(rows.iter().scan(0, |sum, row| {
        *sum += row.len() as u64;
        Some(*sum)
    }));
    let columns = rows.concat();
    let ones = vec![1f32; columns.len()];
    Csr::try_from_parts(rows.len(), cols, offsets, columns, ones).unwrap()
}

/// The order of the kernels is the host's, row for row, and so is what it is worth.
#[track_caller]
fn check(device: &Device, a: &Csr<f32>) {
    let options = Options { method: Method::MinHash, ..Options::default() };
    let want = reorder(a, &options, &()).unwrap();
    let found = min_hash_order(device, a, |_| true).unwrap().unwrap();
    let what = format!("{} rows, {} columns, {} entries on {device}", a.rows(), a.cols(), a.nnz());
    let [own, new] = found.column_vectors.map(u64::from);
    assert_eq!(own, want.quality.before.column_vectors, "{what}");
    if want.kept_original {
        assert!(new > own, "{what}");
    } else {
        assert_eq!(found.new_to_old, want.permutation.new_to_old(), "{what}");
        assert_eq!(new, want.quality.after.column_vectors, "{what}");
    }
}

/// `rows` rows of up to `longest` columns, of `kinds` kinds with a few columns of their own.
fn random(seed: u64, rows: u32, cols: u32, longest: u32, kinds: u32) -> Csr<f32> {
    let mut random = SplitMix64::new(seed);
    let rows: Vec<Vec<u32>> = (0..rows)
        .map(|_| {
            let kind = random.below(kinds);
            let shared = random.below(longest + 1);
            let mut columns: Vec<u32> =
                (0..shared).map(|i| kind.wrapping_mul(7919).wrapping_add(i * i) % cols).collect();
            columns.extend((0..random.below(3)).map(|_| random.below(cols)));
            columns.sort_unstable();
            columns.dedup();
            columns
        })
        .collect();
    matrix(cols as usize, &rows)
}

#[test]
fn random_patterns() {
    for device in devices() {
        for (seed, rows, cols, longest, kinds) in
            [(1, 17, 40, 6, 3), (2, 100, 60, 9, 5), (3, 333, 2000, 12, 40), (4, 65, 9, 4, 2)]
        {
            check(&device, &random(seed, rows, cols, longest, kinds));
        }
    }
}

#[test]
fn edges_of_shape() {
    let none: Vec<u32> = Vec::new();
    let far = vec![vec![0, 4_000_000_000], vec![7, u32::MAX - 1], none.clone(), vec![0]];
    for device in devices() {
        for (rows, cols) in [(0, 0), (0, 5), (5, 0), (100, 7)] {
            check(&device, &Csr::zeros(rows, cols).unwrap());
        }
        check(&device, &matrix(9, &[vec![3, 5]]));
        check(&device, &Csr::identity(33).unwrap());
        check(&device, &matrix(u32::MAX as usize, &far));
        for rows in [7, 8, 9, 15, 16, 25] {
            check(&device, &matrix(4, &vec![vec![0, 2]; rows]));
            // Two kinds that alternate, with rows without entries between them.
            let kinds = [vec![0, 1], none.clone(), vec![1, 3], vec![3]];
            let rows: Vec<Vec<u32>> = kinds.iter().cycle().take(2 * rows + 1).cloned().collect();
            check(&device, &matrix(4, &rows));
        }
    }
}

#[test]
fn long_rows_are_sampled() {
    let mut random = SplitMix64::new(7);
    let mut rows: Vec<Vec<u32>> = (0..19)
        .map(|r| (r % 3 * 300..r % 3 * 300 + 150 + 20 * r).filter(|_| random.below(8) > 0).collect())
        .collect();
    rows.push((0..3000).collect());
    rows.push((1000..3000).collect());
    for device in devices() {
        check(&device, &matrix(3000, &rows));
    }
}

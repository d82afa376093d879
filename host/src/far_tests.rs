//! Operands whose last rows begin beyond element 2³²: offsets that were computed in 32 bits would come out in the first
//! rows. The emulator holds what is touched of them only.

use windrow_formats::{Coo3, Csr, NmPattern, Value};
use windrow_simt::emulator::Schedule;

use crate::device::Device;
use crate::element::Element;
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::sddmm::{Sddmm, SddmmAlgorithm};
use crate::spmm::Spmm;
use crate::training::{ColumnSums, normalize_rows, relu, round_into};
use crate::{
    Algorithm, DeviceBuffer, Epilogue, Mttkrp, NmSpmm, Precision, Ttm, prune_magnitude, with_element,
};

/// Rows of every operand, and entries of each row of `A`.
const ROWS: usize = 5;
/// With these, rows begin at multiples of 16 bytes or not; the third row begins beyond element 2³² − 1.
const LEADING: [usize; 2] = [1 << 31, (1 << 31) + 1];

fn device() -> Device {
    Device::emulator_with_memory(Schedule::InOrder, 1 << 40)
}

fn place_of<T: Element>(matrix: &DeviceMatrix<T>, row: usize) -> u64 {
    matrix.buffer().address() + wide(row * matrix.ld() * size_of::<T>())
}

/// A matrix of `ROWS` rows with these numbers.
fn far<T: Element>(
    device: &Device,
    (cols, ld): (usize, usize),
    number: impl Fn(usize) -> f32,
) -> DeviceMatrix<T> {
    let matrix = DeviceMatrix::with_ld(device, ROWS, cols, ld).unwrap();
    for row in 0..ROWS {
        let elements: Vec<T> = (0..cols).map(|col| T::from_f32(number(row * cols + col))).collect();
        // SAFETY: a row of a matrix that is live.
        unsafe {
            let machine = device.machine().unwrap();
            machine.upload(place_of(&matrix, row), bytemuck::cast_slice(&elements)).unwrap();
        }
    }
    matrix
}

/// The numbers of a matrix of [`ROWS`] rows.
fn numbers<T: Element>(matrix: &DeviceMatrix<T>) -> Vec<f64> {
    let row = |row| {
        let mut elements = vec![T::ZERO; matrix.cols()];
        // SAFETY: a row of a matrix that is live.
        unsafe {
            let machine = matrix.device().machine().unwrap();
            machine.download(place_of(matrix, row), bytemuck::cast_slice_mut(&mut elements)).unwrap();
        }
        elements.into_iter().map(|x| x.to_f64())
    };
    (0..ROWS).flat_map(row).collect()
}

/// Small whole numbers, of which no two rows have the same.
fn small(i: usize) -> f32 {
    ((i * 7 + i / 5) % 11) as f32 - 5.0
}

/// All entries are there, so that every row of `C` takes from every row of `B`.
fn full() -> Csr<f32> {
    Csr::from_dense(ROWS, ROWS, &(0..ROWS * ROWS).map(|i| small(i) + 6.0).collect::<Vec<_>>()).unwrap()
}

/// `C[r, j]` for the operands of the tests.
fn product(a: &Csr<f32>, n: usize) -> Vec<f64> {
    let element = |i: usize| {
        let (r, j) = (i / n, i % n);
        (0..ROWS).map(|k| f64::from(a.row(r).1[k] * small(k * n + j))).sum::<f64>()
    };
    (0..ROWS * n).map(element).collect()
}

/// Promise, shapes: rows of operands and results that begin behind element 2³² are read and written where they are.
#[test]
fn products_of_far_rows() {
    use Precision::{Bf16, F16, F32, F64, Tf32};
    let kinds: [(Algorithm, &[Precision], usize); 8] = [
        (Algorithm::RowSplit, &[F32, F64, F16, Tf32, Bf16], 13),
        (Algorithm::ShortRows, &[F32, F64, F16], 13),
        (Algorithm::SegmentGroup, &[F32, F64, F16], 13),
        (Algorithm::SegmentGroup, &[F32], 1),
        (Algorithm::MergePath, &[F32, F16], 1),
        (Algorithm::RowPanels, &[F32], 13),
        (Algorithm::MatricizedRows, &[F16], 13),
        (Algorithm::TileStream, &[F16, Bf16, Tf32], 13),
    ];
    let a = full();
    for (algorithm, precisions, n) in kinds {
        for &precision in precisions {
            for ld in LEADING {
                let device = device();
                let builder = Spmm::builder(&a).width(n).algorithm(algorithm).precision(precision);
                let plan = builder.build(&device).unwrap();
                with_element!(precision, E => {
                    let b = far::<E>(&device, (n, ld), small);
                    let mut c = far::<<E as Element>::Sum>(&device, (n, ld), |_| 9.0);
                    let [zero, one] = [0.0, 1.0].map(<E as Element>::Sum::from_f32);
                    plan.run_into(one, &b, zero, &mut c).unwrap();
                    let what = format!("{algorithm} {precision}, {n} columns, {ld} elements from row to row");
                    assert_eq!(numbers(&c), product(&a, n), "{what}");
                    assert!(plan.verify(&a, &b, &c).unwrap().passed(), "{what}");
                });
            }
        }
    }
}

/// Tiles with a sum that is not finite compute it again, entry by entry.
#[test]
fn products_of_far_rows_that_are_not_finite() {
    let (a, n) = (full(), 13);
    let infinite = (ROWS - 1) * n;
    let number = |i| if i == infinite { f32::INFINITY } else { small(i) };
    let mut want = product(&a, n);
    want.iter_mut().step_by(n).for_each(|x| *x = f64::INFINITY);
    for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
        for ld in LEADING {
            let device = device();
            let builder = Spmm::builder(&a).width(n).algorithm(Algorithm::TileStream).precision(precision);
            let plan = builder.build(&device).unwrap();
            with_element!(precision, E => {
                let b = far::<E>(&device, (n, ld), number);
                let mut c = far::<<E as Element>::Sum>(&device, (n, ld), |_| 9.0);
                let [zero, one] = [0.0, 1.0].map(<E as Element>::Sum::from_f32);
                plan.run_into(one, &b, zero, &mut c).unwrap();
                assert_eq!(numbers(&c), want, "{precision}, {ld} elements from row to row");
            });
        }
    }
}

/// Promise, shapes: rows of operands and results that begin behind element 2³² are read and written where they are.
#[test]
fn sampled_products_of_far_rows() {
    use Precision::{Bf16, F16, F32, F64, Tf32};
    let kinds: [(SddmmAlgorithm, &'static [Precision]); 4] = [
        (SddmmAlgorithm::Tiles, &[F16, Bf16, Tf32]),
        (SddmmAlgorithm::Entries, &[F32, F64, F16]),
        (SddmmAlgorithm::Groups, &[F32, F64, F16]),
        (SddmmAlgorithm::RowPanels, &[F32]),
    ];
    let a = full();
    // From the second on, tiles bring rows of `Y` to shared memory.
    for inner in [12, 136] {
        let sum = |x: usize, y: usize| {
            (0..inner).map(|k| f64::from(small(x * inner + k) * small(y * inner + k))).sum::<f64>()
        };
        let expected: Vec<f64> = (0..ROWS * ROWS).map(|i| sum(i / ROWS, i % ROWS)).collect();
        let of_all = |(algorithm, precisions): (_, &'static [Precision])| {
            precisions.iter().map(move |&precision| (algorithm, precision))
        };
        for (algorithm, precision) in kinds.into_iter().flat_map(of_all) {
            for ld in LEADING {
                let device = device();
                let builder = Sddmm::builder(&a).inner(inner).algorithm(algorithm).precision(precision);
                let plan = builder.build(&device).unwrap();
                with_element!(precision, E => {
                    let x = far::<E>(&device, (inner, ld), small);
                    let y = far::<E>(&device, (inner, ld), small);
                    let mut out = DeviceBuffer::<<E as Element>::Sum>::alloc_zeroed(&device, ROWS * ROWS).unwrap();
                    plan.run_into(<E as Element>::Sum::from_f32(1.0), &x, &y, &mut out).unwrap();
                    let got: Vec<f64> = out.to_vec().unwrap().into_iter().map(|x| x.to_f64()).collect();
                    let what = format!("{algorithm} {precision}, {inner} columns, {ld} elements from row to row");
                    assert_eq!(got, expected, "{what}");
                });
            }
        }
    }
}

/// Promise, shapes: rows of operands and results that begin behind element 2³² are read and written where they are.
#[test]
fn products_of_tensors_of_far_rows() {
    use Precision::{F16, F32, F64};
    let n = 7;
    let entry = |i: usize| {
        let index = [i / (ROWS * ROWS), i / ROWS % ROWS, i % ROWS];
        (index.map(|i| u32::try_from(i).unwrap()), small(i))
    };
    let whole = Coo3::from_entries([ROWS; 3], (0..ROWS * ROWS * ROWS).map(entry)).unwrap();
    // As many fibers as rows.
    let thin = Coo3::from_entries(
        [ROWS, 1, ROWS],
        (0..ROWS * ROWS).map(|i| ([i / ROWS, 0, i % ROWS].map(|i| u32::try_from(i).unwrap()), small(i))),
    )
    .unwrap();
    let number = |row: u32, col: usize| f64::from(small(row as usize * n + col));
    let mut want = [vec![0.0; ROWS * n], vec![0.0; ROWS * n]];
    for ([i, j, k], value) in whole.entries() {
        for col in 0..n {
            want[0][i as usize * n + col] += f64::from(value) * number(j, col) * number(k, col);
        }
    }
    for ([i, _, k], value) in thin.entries() {
        for col in 0..n {
            want[1][i as usize * n + col] += f64::from(value) * number(k, col);
        }
    }
    let [whole, thin] = [whole, thin].map(|tensor| tensor.to_csf([0, 1, 2]).unwrap());
    for (precision, ld) in [F32, F64, F16].into_iter().flat_map(|of| LEADING.map(|ld| (of, ld))) {
        let device = device();
        let mttkrp = Mttkrp::builder(&whole).width(n).precision(precision).build(&device).unwrap();
        let ttm = Ttm::builder(&thin).width(n).precision(precision).build(&device).unwrap();
        with_element!(precision, E => {
            let b = far::<E>(&device, (n, ld), small);
            let mut y = far::<<E as Element>::Sum>(&device, (n, ld), |_| 9.0);
            let [zero, one] = [0.0, 1.0].map(<E as Element>::Sum::from_f32);
            mttkrp.run_into(one, [&b, &b], zero, &mut y).unwrap();
            assert_eq!(numbers(&y), want[0], "MTTKRP {precision}, {ld} elements from row to row");
            ttm.run_into(one, &b, zero, &mut y).unwrap();
            assert_eq!(numbers(&y), want[1], "TTM {precision}, {ld} elements from row to row");
        });
    }
}

/// Promise, shapes: rows of operands and results that begin behind element 2³² are read and written where they are.
#[test]
fn products_with_pruned_weights_of_far_rows() {
    use Precision::{Bf16, F16, F32, Tf32};
    let inner = 32;
    // Long vectors have blocks that store whole rows of a tile at once.
    for (vector, cols) in [(8, 40), (16, 64), (32, 64)] {
        let weights: Vec<f32> = (0..inner * cols).map(small).collect();
        let pattern = NmPattern::new(2, 4, vector).unwrap();
        let weights = prune_magnitude(&weights, inner, cols, pattern).unwrap();
        let dense = weights.to_dense().unwrap();
        let element = |i: usize| {
            let (r, j) = (i / cols, i % cols);
            (0..inner).map(|k| f64::from(small(r * inner + k) * dense[k * cols + j])).sum::<f64>()
        };
        let want: Vec<f64> = (0..ROWS * cols).map(element).collect();
        for (precision, ld) in [F32, Tf32, F16, Bf16].into_iter().flat_map(|of| LEADING.map(|ld| (of, ld))) {
            let device = device();
            let plan = NmSpmm::builder(&weights).rows(ROWS).precision(precision).build(&device).unwrap();
            let mut c = far::<f32>(&device, (cols, ld), |_| 9.0);
            let run = Epilogue::default();
            match precision {
                F16 => plan.run_into(&run, &far::<half::f16>(&device, (inner, ld), small), &mut c),
                Bf16 => plan.run_into(&run, &far::<half::bf16>(&device, (inner, ld), small), &mut c),
                _ => plan.run_into(&run, &far::<f32>(&device, (inner, ld), small), &mut c),
            }
            .unwrap();
            let what = format!("N:M {precision}, vectors of {vector}, {ld} elements from row to row");
            assert_eq!(numbers(&c), want, "{what}");
        }
    }
}

/// Promise, shapes: rows of operands and results that begin behind element 2³² are read and written where they are.
#[test]
fn far_rows_of_what_training_needs() {
    for ld in LEADING {
        let device = device();
        let n = 7;
        let want = |f: fn(f32) -> f32| (0..ROWS * n).map(|i| f64::from(f(small(i)))).collect::<Vec<_>>();
        let mut x = far::<f32>(&device, (n, ld), small);
        let mut rounded = far::<half::f16>(&device, (n, ld), |_| 9.0);
        round_into(1.0, &x, &mut rounded).unwrap();
        assert_eq!(numbers(&rounded), want(|x| x), "{ld}");
        let mut out = DeviceMatrix::zeros(&device, 1, n).unwrap();
        ColumnSums::new(&device, n).unwrap().sum(&x, &mut out).unwrap();
        let sums: Vec<f32> = (0..n).map(|col| (0..ROWS).map(|row| small(row * n + col)).sum()).collect();
        assert_eq!(out.download().unwrap(), sums, "{ld}");
        let mut y = far::<f32>(&device, (n, ld), |_| 9.0);
        let mut inverse = DeviceBuffer::alloc_zeroed(&device, ROWS).unwrap();
        normalize_rows(&x, &mut y, &mut inverse).unwrap();
        for (row, y) in numbers(&y).chunks(n).enumerate() {
            let norm = (0..n).map(|col| f64::from(small(row * n + col)).powi(2)).sum::<f64>().sqrt();
            for (col, y) in y.iter().enumerate() {
                approx::assert_abs_diff_eq!(*y, f64::from(small(row * n + col)) / norm, epsilon = 1e-6);
            }
        }
        relu(&mut x).unwrap();
        assert_eq!(numbers(&x), want(|x| x.max(0.0)), "{ld}");
    }
}

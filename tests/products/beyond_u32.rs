//! A `C` of 2.7·10⁹ elements on a GPU: rows behind element 2³¹ and byte 2³³ are where they belong.
//!
//! The emulator reaches such places by leading dimensions of 2³¹ and more (`far_tests.rs` in `host/src`); here a matrix
//! has so many rows that it does, and memory is all there.

use cudarc::driver::result::memcpy_dtoh_sync;
use half::f16;
use windrow::{Algorithm, Csr, DenseRef, Device, DeviceError, DeviceMatrix, Element, PlanError, Spmm};
use windrow_testkit::{announce, announce_skip};

use crate::common::{gpu, report_missing_gpu};

/// No power of two, so that the limits come within rows.
const WIDTH: usize = 1000;
const ROWS: usize = 2_700_001;
const INNER: usize = 64;
/// What must be free: `C` has 10.8 GB.
const NEEDED: u64 = 24 << 30;

const WAYS: [(Algorithm, bool); 5] = [
    (Algorithm::RowSplit, false),
    (Algorithm::RowSplit, true),
    (Algorithm::ShortRows, false),
    (Algorithm::SegmentGroup, false),
    (Algorithm::TileStream, true),
];

/// Two entries a row, of which no two rows that are compared have the same values at the same places.
fn matrix() -> Csr<f32> {
    let offsets = (0..=ROWS).map(|row| u64::try_from(2 * row).unwrap()).collect();
    let cols = (0..ROWS).flat_map(|row| entries(row).map(|(col, _)| u32::try_from(col).unwrap())).collect();
    let values = (0..ROWS).flat_map(|row| entries(row).map(|(_, value)| value)).collect();
    Csr::try_from_parts(ROWS, INNER, offsets, cols, values).unwrap()
}

/// Column and value of each entry of a row.
fn entries(row: usize) -> [(usize, f32); 2] {
    let (first, second) = (row % 31, 32 + row / 31 % 32);
    [(first, (row % 13) as f32 - 6.0), (second, (row / 7 % 11) as f32 + 1.0)]
}

fn b(row: usize, col: usize) -> f32 {
    ((row * 5 + col * 3 + col / 7) % 17) as f32 - 8.0
}

/// A whole number below 1000, which every precision here computes exactly.
fn product(row: usize, col: usize) -> f32 {
    entries(row).iter().map(|&(k, value)| value * b(k, col)).sum()
}

/// Rows around the places where offsets of 31 and 32 bits end, counted in elements and in bytes, and where they would
/// come out if they were cut there; the first rows, the last ones, and some between.
fn rows() -> Vec<usize> {
    let limits = [1usize << 29, 1 << 30, 1 << 31, (ROWS * WIDTH) - (1 << 31), (ROWS * WIDTH) - (1 << 30)];
    let near = limits.iter().flat_map(|limit| [limit / WIDTH - 1, limit / WIDTH, limit / WIDTH + 1]);
    let mut rows: Vec<usize> = near.chain([0, 1, ROWS - 2, ROWS - 1]).collect();
    rows.extend((1..200).map(|i| i * 13_499 % ROWS));
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn run<B: Element<Sum = f32>>(
    a: &Csr<f32>,
    device: &Device,
    algorithm: Algorithm,
    alpha: f32,
    c: &mut DeviceMatrix<f32>,
) {
    let builder = Spmm::builder(a).width(WIDTH).algorithm(algorithm).precision(B::PRECISION);
    let plan = builder.build(device).unwrap_or_else(|error| panic!("{algorithm}: {error}"));
    let elements: Vec<B> = (0..INNER * WIDTH).map(|i| B::from_f32(b(i / WIDTH, i % WIDTH))).collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&elements, INNER, WIDTH).unwrap()).unwrap();
    plan.run_into(alpha, &b, 0.0, c).unwrap_or_else(|error| panic!("{algorithm}: {error}"));
    device.synchronize().unwrap_or_else(|error| panic!("{algorithm}: {error}"));
}

/// One row of `C`, whatever the offsets that windrow would compute.
fn row_of(c: &DeviceMatrix<f32>, row: usize) -> Vec<f32> {
    let mut elements = vec![0.0f32; WIDTH];
    let at = c.buffer().address()
        + u64::try_from(row).unwrap() * u64::try_from(c.ld() * size_of::<f32>()).unwrap();
    // SAFETY: a row of a matrix that is live, whose device's context `cuda_handles` has made current; all work on the
    // device is done.
    unsafe { memcpy_dtoh_sync(&mut elements, at) }.unwrap();
    elements
}

/// Promise, shapes: a `C` of more than 2³¹ elements and 2³³ bytes is right at either side of every such limit.
#[test]
fn a_c_of_two_billion_elements() {
    let what = "products of 2.7e9 elements";
    let Some(device) = gpu() else { return report_missing_gpu(what, WAYS.len()) };
    let free = device.memory_free().unwrap().unwrap_or(0);
    if free < NEEDED {
        return announce_skip(what, WAYS.len(), &format!("{free} bytes free of {NEEDED}"));
    }
    let a = matrix();
    let mut c = match DeviceMatrix::<f32>::with_ld(&device, ROWS, WIDTH, WIDTH) {
        Ok(c) => c,
        // Others use the GPU, too.
        Err(PlanError::Device(DeviceError::OutOfMemory { .. })) => {
            return announce_skip(what, WAYS.len(), "the memory went to others");
        }
        Err(error) => panic!("{error}"),
    };
    assert!(ROWS * WIDTH > 1 << 31 && c.ld() == WIDTH);
    let rows = rows();
    assert!(rows.len() > 200 && rows.contains(&((1 << 31) / WIDTH)) && rows.contains(&(ROWS - 1)));
    for (i, (algorithm, half)) in WAYS.into_iter().enumerate() {
        // Another factor each time: what one product left cannot pass for what the next did not write.
        let alpha = (i + 1) as f32;
        match half {
            true => run::<f16>(&a, &device, algorithm, alpha, &mut c),
            false => run::<f32>(&a, &device, algorithm, alpha, &mut c),
        }
        windrow::interop::cuda_handles(&device).unwrap().expect("a GPU has handles");
        for &row in &rows {
            for (col, &found) in row_of(&c, row).iter().enumerate() {
                let want = alpha * product(row, col);
                assert!(found == want, "{algorithm}, half {half}: C[{row}, {col}] is {found}, not {want}");
            }
        }
    }
    announce(&format!("{what}: {} products, {} rows of each compared", WAYS.len(), rows.len()));
}

#[test]
fn rows_that_are_compared_differ() {
    // A row that came out where another belongs is noticed.
    let rows = rows();
    for pair in rows.windows(2) {
        let [one, other] =
            [pair[0], pair[1]].map(|row| (0..WIDTH).map(|col| product(row, col)).collect::<Vec<_>>());
        assert_ne!(one, other, "rows {pair:?}");
    }
    assert!(rows.iter().all(|&row| (0..WIDTH).all(|col| product(row, col).abs() < 1000.0)));
}

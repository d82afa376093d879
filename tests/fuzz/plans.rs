//! Plans with any options on the emulator: refused with an error, or exactly right.

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, AtomicParallelism, Bounds, Coo3, Csf3, Csr, Determinism, Device, EmulatorSchedule,
    GroupLaunch, Mttkrp, NmPattern, NmSpmm, Precision, Preprocessing, RowDivision, Schedule, Sddmm,
    SddmmAlgorithm, SddmmForm, Spmm, SpmmOptions, TilePipeline, TileValues, Ttm, VectorNm,
};

use super::bytes::Bytes;

/// Makes a plan as the bytes say and runs it. Returns whether there was one.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let device = match bytes.byte() % 5 {
        0 => Device::cpu(),
        schedule => Device::emulator(EmulatorSchedule::STANDARD[usize::from(schedule) - 1]),
    };
    match bytes.byte() % 8 {
        0 => sddmm(&device, &mut bytes),
        1 => weights(&device, &mut bytes),
        2 => tensor(&device, &mut bytes),
        _ => spmm(&device, &mut bytes),
    }
}

/// Whole numbers from −3 to 3: exact in every precision, and so are their sums.
fn number(bytes: &mut Bytes<'_>) -> f32 {
    f32::from(bytes.byte() % 7) - 3.0
}

/// The same without the bytes, which would run out.
fn filled(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 5 + at / 7) % 7) as f32 - 3.0).collect()
}

fn matrix(bytes: &mut Bytes<'_>) -> Csr<f32> {
    let (rows, cols) = (bytes.below(70), 1 + bytes.below(150));
    let dense = bytes.below(1 + rows); // a row that is full, unless there is none of that number
    let (mut offsets, mut col_indices, mut values) = (vec![0u64], Vec::new(), Vec::new());
    let kind = bytes.byte();
    for row in 0..rows {
        let (mut column, step) = (bytes.below(20), 1 + bytes.below(9));
        let len = match kind % 3 {
            _ if row == dense => (column, cols).1,
            0 => bytes.below(4),
            1 => bytes.below(40),
            _ => 9,
        };
        let step = if row == dense { 1 } else { step };
        column = if row == dense { 0 } else { column };
        for _ in 0..len {
            if column < cols {
                col_indices.push(column as u32);
                values.push(number(bytes));
            }
            column += step;
        }
        offsets.push(col_indices.len() as u64);
    }
    Csr::try_from_parts(rows, cols, offsets, col_indices, values).unwrap()
}

fn spmm(device: &Device, bytes: &mut Bytes<'_>) -> bool {
    let options = spmm_options(bytes);
    let (width, a) = (1 + bytes.below(70), matrix(bytes));
    let plan = match Spmm::builder(&a).options(options).build(device) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let b = filled(a.cols() * width);
    let c = plan.run(&b).unwrap_or_else(|error| panic!("{options:?} on {device}: {error}"));
    for row in 0..a.rows() {
        let (columns, values) = a.row(row);
        for n in 0..width {
            let want: f32 = columns.iter().zip(values).map(|(&k, &x)| x * b[k as usize * width + n]).sum();
            assert!(c[row * width + n] == want, "{options:?} on {device}: ({row}, {n})");
        }
    }
    true
}

fn spmm_options(bytes: &mut Bytes<'_>) -> SpmmOptions {
    let points: Vec<_> = AtomicParallelism::all(&Bounds::default()).collect();
    let given = |bytes: &mut Bytes<'_>| bytes.byte().is_multiple_of(3);
    SpmmOptions {
        width: 1 + bytes.below(140),
        precision: bytes.of(&Precision::ALL),
        determinism: bytes.of(&Determinism::ALL),
        memory_limit: given(bytes).then(|| bytes.edge().saturating_mul(64)),
        preprocessing: bytes.of(&Preprocessing::ALL),
        values_from_device: bytes.byte().is_multiple_of(2),
        algorithm: bytes.of(&Algorithm::ALL),
        partition: match bytes.byte() % 4 {
            0 => Some(PartitionRule::ShortRows { max_entries: bytes.word() % 12 }),
            1 => Some(PartitionRule::ColumnVectors { threshold: bytes.of(&VectorThreshold::ALL) }),
            _ => None,
        },
        tile_values: bytes.of(&TileValues::ALL),
        tile_pipeline: bytes.of(&TilePipeline::ALL),
        schedule: bytes.of(&Schedule::ALL),
        parallelism: given(bytes).then(|| bytes.of(&points)),
        group_launch: given(bytes).then(|| GroupLaunch {
            block_threads: bytes.of(&[0, 1, 32, 64, 100, 128, 512, 1024]),
            tile_columns: given(bytes).then(|| bytes.below(70) as u32),
            workers_log2: i32::from(bytes.byte() % 9) - 4,
        }),
        row_division: RowDivision {
            piece_entries: given(bytes).then(|| bytes.of(&[0, 1, 31, 32, 64, u32::MAX])),
            several_ways: given(bytes).then(|| bytes.byte().is_multiple_of(2)),
            slice_columns: given(bytes).then(|| bytes.of(&[0, 1, 16, 32, 64, 128, u32::MAX])),
        },
        workers: given(bytes).then(|| bytes.of(&[0, 1, 3, 50, 4000])),
        window_each: bytes.byte().is_multiple_of(5),
        ..SpmmOptions::default()
    }
}

fn sddmm(device: &Device, bytes: &mut Bytes<'_>) -> bool {
    let (algorithm, form) = (bytes.of(&SddmmAlgorithm::ALL), bytes.of(&SddmmForm::ALL));
    let (precision, inner) = (bytes.of(&Precision::ALL), bytes.below(40));
    let a = matrix(bytes);
    let builder = Sddmm::builder(&a).inner(inner).algorithm(algorithm).form(form).precision(precision);
    let builder = builder.schedule(bytes.of(&Schedule::ALL));
    let Ok(plan) = builder.build(device) else { return false };
    let (x, y) = (filled(a.rows() * inner), filled(a.cols() * inner));
    if a.rows() == 0 {
        return true;
    }
    let out: Vec<f32> = plan.run(&x, &y).unwrap_or_else(|error| panic!("{algorithm:?} on {device}: {error}"));
    for row in 0..a.rows() {
        let (columns, values) = a.row(row);
        for ((&column, &value), at) in columns.iter().zip(values).zip(a.row_range(row)) {
            let (x, y) = (&x[row * inner..][..inner], &y[column as usize * inner..][..inner]);
            let factor = if form == SddmmForm::Scale { value } else { 1.0 };
            let want = factor * x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
            assert!(out[at] == want, "{algorithm:?}, {precision:?}, {form:?} on {device}: entry {at}");
        }
    }
    true
}

fn weights(device: &Device, bytes: &mut Bytes<'_>) -> bool {
    let pattern =
        bytes.of(&[(1, 2, 1), (2, 4, 2), (2, 4, 32), (1, 4, 8), (4, 8, 32), (3, 5, 4), (8, 32, 16)]);
    let (n, m, length) = pattern;
    let (k, cols, rows) = (bytes.below(70), bytes.below(70), bytes.below(40));
    let dense: Vec<f32> =
        (0..k * cols).map(|at| if at / cols % m < n { ((at * 3) % 7) as f32 - 3.0 } else { 0.0 }).collect();
    let Ok(weights) = VectorNm::from_dense(&dense, k, cols, NmPattern::new(n, m, length).unwrap()) else {
        return false;
    };
    let precision = bytes.of(&Precision::ALL);
    let Ok(plan) = NmSpmm::builder(&weights).rows(rows).precision(precision).build(device) else {
        return false;
    };
    if k == 0 {
        return true;
    }
    let a = filled(rows * k);
    let c = plan.run(&a).unwrap_or_else(|error| panic!("{pattern:?} on {device}: {error}"));
    for row in 0..rows {
        for column in 0..cols {
            let want: f32 = (0..k).map(|i| a[row * k + i] * dense[i * cols + column]).sum();
            assert!(
                c[row * cols + column] == want,
                "{pattern:?}, {precision:?} on {device}: ({row}, {column})"
            );
        }
    }
    true
}

fn tensor(device: &Device, bytes: &mut Bytes<'_>) -> bool {
    let dims = [(); 3].map(|()| 1 + bytes.below(20));
    let entries: Vec<_> =
        (0..bytes.below(150)).map(|_| (dims.map(|dim| bytes.below(dim) as u32), number(bytes))).collect();
    let coo = Coo3::from_entries(dims, entries).unwrap();
    let order = bytes.of(&[[0, 1, 2], [1, 0, 2], [2, 1, 0]]);
    let a = Csf3::try_from_coo(&coo, order).unwrap();
    let (width, precision) = (1 + bytes.below(20), bytes.of(&Precision::ALL));
    let determinism = bytes.of(&Determinism::ALL);
    let dims = order.map(|mode| dims[mode]);
    let (b, c) = (filled(dims[1] * width), filled(dims[2] * width));
    let mttkrp = Mttkrp::builder(&a).width(width).precision(precision).determinism(determinism).build(device);
    if let Ok(plan) = &mttkrp {
        let y: Vec<f32> = plan.run(&b, &c).unwrap_or_else(|error| panic!("on {device}: {error}"));
        let mut want = vec![0.0; dims[0] * width];
        for (indices, value) in a.entries() {
            let [i, j, k] = order.map(|mode| indices[mode] as usize);
            for n in 0..width {
                want[i * width + n] += value * b[j * width + n] * c[k * width + n];
            }
        }
        assert!(y == want, "MTTKRP, {precision:?}, {determinism:?} on {device}");
    }
    let ttm = Ttm::builder(&a).width(width).precision(precision).determinism(determinism).build(device);
    if let Ok(plan) = &ttm {
        let y: Vec<f32> = plan.run(&c).unwrap_or_else(|error| panic!("on {device}: {error}"));
        assert_eq!(y.len(), a.fibers() * width);
        for fiber in 0..a.fibers() {
            let (leaves, values) = a.fiber(fiber);
            for n in 0..width {
                let want: f32 = leaves.iter().zip(values).map(|(&k, &x)| x * c[k as usize * width + n]).sum();
                assert!(y[fiber * width + n] == want, "TTM, {precision:?}, {determinism:?} on {device}");
            }
        }
    }
    mttkrp.is_ok() || ttm.is_ok()
}

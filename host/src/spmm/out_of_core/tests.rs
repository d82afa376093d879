//! Products by arrangements that small matrices would not get.

use windrow_formats::Csr;

use super::OutOfCoreSpmm;
use super::arrange::Arrangement;
use crate::{Dense, DenseRef, Device, EmulatorSchedule, Fault, Faults, Spmm, SpmmOptions};

const ROWS: usize = 300;
const COLS: usize = 50;
const WIDTH: usize = 40;

/// Rows of up to eleven whole numbers.
fn matrix() -> Csr<f32> {
    let lengths = (0..ROWS).map(|row| row * 7 % 12);
    let mut offsets = vec![0];
    let mut columns = Vec::new();
    for (row, length) in lengths.enumerate() {
        let mut of_row: Vec<u32> =
            (0..length).map(|i| crate::num::narrow((row * 13 + i * 4) % COLS)).collect();
        of_row.sort_unstable();
        of_row.dedup();
        columns.extend(of_row);
        offsets.push(columns.len() as u64);
    }
    let values = (0..columns.len()).map(|entry| (entry % 5) as f32 - 2.0).collect();
    Csr::try_from_parts(ROWS, COLS, offsets, columns, values).unwrap()
}

/// `B` of a product that is told from others.
fn operand(seed: usize) -> Vec<f32> {
    (0..COLS * WIDTH).map(|i| ((i * 31 + seed * 17) % 7) as f32 - 3.0).collect()
}

fn want(a: &Csr<f32>, b: &[f32]) -> Vec<f32> {
    let mut c = vec![0.0; ROWS * WIDTH];
    for (row, c) in c.chunks_mut(WIDTH).enumerate() {
        let (columns, values) = a.row(row);
        for (&column, value) in columns.iter().zip(values) {
            c.iter_mut().zip(&b[column as usize * WIDTH..]).for_each(|(c, b)| *c += value * b);
        }
    }
    c
}

fn plan(device: &Device, a: &Csr<f32>, arrangement: Arrangement) -> OutOfCoreSpmm {
    let options = SpmmOptions { width: WIDTH, memory_limit: Some(1 << 20), ..SpmmOptions::default() };
    Spmm::builder(a).options(options).build_arranged(device, |_, _| Ok(arrangement)).unwrap()
}

fn run(plan: &mut OutOfCoreSpmm, b: &[f32]) -> Vec<f32> {
    let mut c = Dense::zeros(ROWS, WIDTH).unwrap();
    plan.run_host(1.0, DenseRef::packed(b, COLS, WIDTH).unwrap(), 0.0, c.view_mut()).unwrap();
    c.into_data()
}

fn of(slice: usize, buffers: u64, piece: u64, resident_bytes: u64) -> Arrangement {
    Arrangement { slice, buffers, unit: 4096, piece, resident_bytes, seconds: 0.0 }
}

/// Arrangements with slices and blocks, of which some stay.
fn arrangements() -> impl Iterator<Item = Arrangement> {
    let shapes = [(8, 1), (8, 2), (16, 2), (24, 1), (40, 1)];
    shapes.into_iter().flat_map(|(slice, buffers)| {
        [(0, 100), (6000, 1000)].map(|(resident_bytes, piece)| of(slice, buffers, piece, resident_bytes))
    })
}

#[test]
fn every_arrangement_is_the_product_again_and_again() {
    let a = matrix();
    let [first, second] = [operand(1), operand(2)];
    let wanted = [want(&a, &first), want(&a, &second)];
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        for arrangement in arrangements() {
            let what = format!("{schedule:?}, {arrangement:?}");
            let mut plan = plan(&device, &a, arrangement.clone());
            let report = plan.report();
            assert!(report.blocks > 5 && report.a_bytes_up > 0, "{report:?}");
            assert_eq!(report.resident_blocks > 0, arrangement.resident_bytes > 0, "{report:?}");
            assert!(run(&mut plan, &first) == wanted[0], "{what}");
            assert!(run(&mut plan, &second) == wanted[1], "{what}, the second");
        }
    }
}

/// What pipes hold is not taken for what is there after a copy that failed.
#[test]
fn after_a_fault_blocks_come_again() {
    let (a, b) = (matrix(), operand(1));
    let wanted = want(&a, &b);
    let (device, faults): (Device, Faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
    let mut plan = plan(&device, &a, of(16, 2, 1000, 0));
    run(&mut plan, &b);
    let before = faults.calls();
    run(&mut plan, &b);
    let calls = faults.calls() - before;
    for (at, fault) in (0..calls).flat_map(|at| [(at, Fault::Refused), (at, Fault::Late)]) {
        faults.plan(at, fault);
        let mut c = Dense::<f32>::zeros(ROWS, WIDTH).unwrap();
        let view = DenseRef::packed(&b, COLS, WIDTH).unwrap();
        plan.run_host(1.0, view, 0.0, c.view_mut()).unwrap_err();
        faults.clear();
        assert!(run(&mut plan, &b) == wanted, "after call {at}, {fault:?}");
    }
}

//! Every type, activation and alignment against f64.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;

/// `act(x)` in f64, from its definition.
fn act(activate: Activate, x: f64) -> f64 {
    match activate {
        Activate::Identity => x,
        Activate::Relu => x.max(0.0),
        Activate::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activate::Silu => x / (1.0 + (-x).exp()),
    }
}

/// Sum `i` of row `r`.
fn sum_of(r: u32, c: u32) -> f32 {
    (f32::from(u16::try_from((7 * r + 13 * c) % 32).unwrap()) - 16.0) / 4.0
}

struct Case {
    element: OutputType,
    activate: Activate,
    vectors: bool,
    n: u32,
    ldc: u32,
    beta: f32,
    bias: bool,
    gated: bool,
    /// Whether elements are stored by [`Output::store_linear`].
    linear: bool,
}

const ROWS: u32 = 5;
const OLD: f32 = 0.5;
const MARK: f32 = -77.0;

/// Stores every element of a `ROWS × n` matrix by threads of `WIDTH` columns, more rows and columns than there are.
fn run<const WIDTH: usize>(case: &Case) -> Vec<f64> {
    let memory = Memory::new();
    let old = if case.beta == 0.0 && !case.gated { f32::NAN } else { OLD };
    let held: Vec<f32> =
        (0..ROWS * case.ldc).map(|at| if at % case.ldc < case.n { old } else { MARK }).collect();
    let len = held.len();
    let c = match case.element {
        OutputType::Sums => memory.alloc_from(&held).cast(),
        OutputType::F16 => {
            memory.alloc_from(&held.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()).cast()
        }
        OutputType::Bf16 => {
            memory.alloc_from(&held.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>()).cast()
        }
    };
    let bias: Vec<f32> = (0..u16::try_from(case.n).unwrap()).map(|c| f32::from(c) / 8.0).collect();
    let output = Output {
        c,
        bias: if case.bias { memory.alloc_from(&bias).cast() } else { GlobalPtr::NULL },
        m: ROWS,
        n: case.n,
        ldc: case.ldc,
        alpha: Factor::new(2.0f32),
        beta: Factor::new(case.beta),
        flags: Output::flags(case.element, case.activate, case.vectors) | Output::gate(case.gated),
    };
    let width = WIDTH as u32;
    let threads = 32;
    let launch =
        Launch { grid: [ROWS + 1, 1], block_threads: threads, shared_bytes: 0, schedule: Schedule::InOrder };
    memory
        .launch(&launch, |s| {
            let (row, column) = (s.block_idx(), s.thread_idx() * width);
            let mut sums = [0.0; WIDTH];
            for (c, sum) in (column..).zip(&mut sums) {
                *sum = sum_of(row, c);
            }
            // SAFETY: the output is as its documentation demands; each thread has columns of its own.
            unsafe {
                match case.linear {
                    true if row >= ROWS => {} // it does not look
                    true => output.store_linear(s, case.beta, (row, column), sums),
                    false => output.store(s, row, column, sums),
                }
            }
        })
        .unwrap_or_else(|violation| panic!("{violation}"));
    match case.element {
        OutputType::Sums => memory.read(c.cast::<f32>(), len).unwrap().into_iter().map(f64::from).collect(),
        OutputType::F16 => memory.read(c.cast::<f16>(), len).unwrap().into_iter().map(f64::from).collect(),
        OutputType::Bf16 => memory.read(c.cast::<bf16>(), len).unwrap().into_iter().map(f64::from).collect(),
    }
}

#[track_caller]
fn check<const WIDTH: usize>(case: &Case) {
    let got = run::<WIDTH>(case);
    let unit = match case.element {
        OutputType::Sums => 2f64.powi(-20), // of the exponential's argument, mostly
        OutputType::F16 => 2f64.powi(-11),
        OutputType::Bf16 => 2f64.powi(-8),
    };
    for (at, got) in (0u32..).zip(got) {
        let (r, c) = (at / case.ldc, at % case.ldc);
        if c >= case.n {
            assert_eq!(got, f64::from(MARK), "written past the row at ({r}, {c})");
            continue;
        }
        let bias = if case.bias { f64::from(c) / 8.0 } else { 0.0 };
        let x = 2.0 * f64::from(sum_of(r, c)) + f64::from(case.beta) * f64::from(OLD) + bias;
        let want = act(case.activate, x) * if case.gated { f64::from(OLD) } else { 1.0 };
        let bound = unit * want.abs() + 2f64.powi(-24);
        assert!((got - want).abs() <= bound, "({r}, {c}) width {WIDTH}: {got} instead of {want}");
    }
}

#[test]
fn every_type_activation_and_alignment() {
    for element in [OutputType::Sums, OutputType::F16, OutputType::Bf16] {
        for activate in [Activate::Identity, Activate::Relu, Activate::Gelu, Activate::Silu] {
            for (n, ldc, vectors) in [
                (16, 16, true),
                (16, 16, false),
                (17, 20, true),
                (22, 24, true),
                (13, 13, false),
                (1, 1, false),
                (3, 4, true),
            ] {
                for (beta, bias, gated) in [
                    (0.0, false, false),
                    (0.0, true, false),
                    (-1.5, false, false),
                    (1.0, true, false),
                    (0.0, false, true),
                    (-1.5, true, true),
                ] {
                    for linear in [false, true] {
                        // What `store_linear` leaves to `store`.
                        let more =
                            bias || gated || activate != Activate::Identity || element == OutputType::Bf16;
                        if linear && more {
                            continue;
                        }
                        let case = Case { element, activate, vectors, n, ldc, beta, bias, gated, linear };
                        check::<1>(&case);
                        check::<2>(&case);
                        check::<4>(&case);
                    }
                }
            }
        }
    }
}

/// What an activation makes of numbers that are not finite, and of large ones.
#[test]
fn extreme_values() {
    for (activate, x, want) in [
        (Activate::Relu, f32::NAN, f32::NAN),
        (Activate::Relu, f32::NEG_INFINITY, 0.0),
        (Activate::Relu, f32::INFINITY, f32::INFINITY),
        (Activate::Relu, -0.0, 0.0),
        (Activate::Gelu, f32::NAN, f32::NAN),
        (Activate::Gelu, f32::INFINITY, f32::INFINITY),
        (Activate::Gelu, 1e30, 1e30),
        (Activate::Gelu, -1e30, 0.0),
        (Activate::Gelu, 0.0, 0.0),
        (Activate::Silu, f32::NAN, f32::NAN),
        (Activate::Silu, f32::INFINITY, f32::INFINITY),
        (Activate::Silu, 1e30, 1e30),
        (Activate::Silu, -1e30, 0.0),
        (Activate::Silu, 0.0, 0.0),
    ] {
        let memory = Memory::new();
        let c = memory.alloc_uninit::<f32>(2);
        let output = Output {
            c: c.cast(),
            bias: GlobalPtr::NULL,
            m: 1,
            n: 2,
            ldc: 2,
            alpha: Factor::new(1.0f32),
            beta: Factor::new(0.0f32),
            flags: Output::flags(OutputType::Sums, activate, false),
        };
        let launch = Launch { grid: [1, 1], block_threads: 32, shared_bytes: 0, schedule: Schedule::InOrder };
        // SAFETY: as above; there is one row.
        memory.launch(&launch, |s| unsafe { output.store(s, s.thread_idx(), 0, [x, x]) }).unwrap();
        let got = memory.read(c, 1).unwrap()[0];
        let same = match activate {
            Activate::Relu if x == 0.0 => got.to_bits() == want.to_bits(),
            _ => got == want || got.is_nan() && want.is_nan(),
        };
        assert!(same, "{activate:?}({x}) is {got}");
    }
}

/// Sums in f64 keep all their bits.
#[test]
fn sums_in_f64() {
    let little = 2f64.powi(-50);
    for (vectors, activate) in
        [(true, Activate::Identity), (false, Activate::Identity), (true, Activate::Relu)]
    {
        for n in [4, 7, 12] {
            let memory = Memory::new();
            let c = memory.alloc_from(&[1.0 + little; 2 * 12]);
            let bias = memory.alloc_from(&vec![-4.0; n]);
            let output = Output {
                c: c.cast(),
                bias: bias.cast(),
                alpha: Factor::new(3.0),
                beta: Factor::new(2.0),
                m: 2,
                n: n.try_into().unwrap(),
                ldc: 12,
                flags: Output::flags(OutputType::Sums, activate, vectors),
            };
            let launch =
                Launch { grid: [3, 1], block_threads: 32, shared_bytes: 0, schedule: Schedule::InOrder };
            let sum = |row: u32| if row == 0 { little } else { -1.0 };
            // SAFETY: the output is as its documentation demands; each thread has columns of its own.
            let stored = memory.launch(&launch, |s| unsafe {
                let (row, column) = (s.block_idx(), s.thread_idx() * 4);
                output.store(s, row, column, [sum(row); 4]);
            });
            stored.unwrap();
            let got = memory.read(c, 24).unwrap();
            let want = match activate {
                Activate::Relu => [0.0, 0.0],
                _ => [-2.0 + 5.0 * little, -5.0 + 2.0 * little],
            };
            for (at, got) in got.into_iter().enumerate() {
                let want = if at % 12 < n { want[at / 12] } else { 1.0 + little };
                assert_eq!(got.to_bits(), want.to_bits(), "element {at} of {n} columns");
            }
        }
    }
}

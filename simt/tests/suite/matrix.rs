//! `mma` and `ldmatrix` against a plain matrix product, and the number formats around them.
//!
//! Operands reach the registers the way kernels load them, by `ldmatrix` from tiles in shared memory,
//! and results leave by the formula of the PTX manual: no table of `fragment` is used here, so one that
//! were wrong would be noticed.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule, Thread};
use windrow_simt::{GlobalPtr, Simt};

use crate::{Bf16, F16};

fn one_warp(memory: &Memory, kernel: impl Fn(&Thread<'_>) + Sync) {
    for schedule in Schedule::STANDARD {
        let launch = Launch { grid: [1, 1], block_threads: 32, shared_bytes: 2048, schedule };
        if let Err(violation) = memory.launch(&launch, &kernel) {
            panic!("{schedule:?}: {violation}");
        }
    }
}

/// Small integers that differ from place to place and from matrix to matrix: sums of them are exact.
fn integers(count: u16, step: u16) -> Vec<f32> {
    (0..count).map(|i| f32::from(i.wrapping_mul(step) >> 7 & 15) - 8.0).collect()
}

/// `c + a·b` for a: 16 × k, b: k × 8, c: 16 × 8, all row-major.
fn product(k: usize, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let entry = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * 8 + j]).sum::<f32>();
    (0..16 * 8).map(|at| c[at] + entry(at / 8, at % 8)).collect()
}

/// Row and column of the lane's accumulator register `i`: figures of `mma.m16n8k*` in the PTX manual.
fn accumulator(lane: u32, i: u32) -> u32 {
    let (row, column) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + (i & 1));
    8 * row + column
}

/// Copies a 16-bit tile of `elements` to byte `at` of shared memory.
unsafe fn stage(t: &Thread<'_>, at: u32, tile: GlobalPtr<u16>, elements: u32) {
    for i in (t.lane()..elements).step_by(32) {
        // SAFETY: the caller's tile has `elements` elements, and shared memory has room for them.
        unsafe { t.store_shared(at + 2 * i, t.load_readonly(tile.at(i))) };
    }
}

/// Runs a 16-bit product with tiles in shared memory: A row-major, B row-major and loaded transposed.
fn check_16bit(
    k: u16,
    convert: impl Fn(f32) -> u16,
    mma: impl Fn(&Thread<'_>, [u32; 4], [u32; 2], [f32; 4]) -> [f32; 4] + Sync,
) {
    let (a, b, c) = (integers(16 * k, 2741), integers(k * 8, 3319), integers(16 * 8, 1877));
    let memory = Memory::new();
    let upload = |tile: &[f32]| memory.alloc_from(&tile.iter().map(|&x| convert(x)).collect::<Vec<_>>());
    let (a_gmem, b_gmem) = (upload(&a), upload(&b));
    let (c_gmem, d_gmem) = (memory.alloc_from(&c), memory.alloc_uninit::<f32>(16 * 8));
    let k = u32::from(k);
    one_warp(&memory, |t| {
        let lane = t.lane();
        // SAFETY: tiles of 16 · k and 8 · k elements below byte 1024; all lanes go the same way.
        unsafe {
            stage(t, 0, a_gmem, 16 * k);
            stage(t, 1024, b_gmem, k * 8);
            t.sync_warp();
            // Matrices of A: rows 0 and 8, then the same of columns 8 to 15. For k = 8 the last two
            // are the first two again and go unused.
            let a_frag = t.load_matrix_x4(2 * k * (lane % 16) + 2 * ((8 * (lane / 16)) % k));
            let [b0, b1, ..] = t.load_matrix_x4_trans(1024 + 16 * (lane % k));
            let acc = [0, 1, 2, 3].map(|i| t.load_readonly(c_gmem.at(accumulator(lane, i))));
            let sum = mma(t, a_frag, [b0, b1], acc);
            for (i, sum) in (0..).zip(sum) {
                t.store(d_gmem.at(accumulator(lane, i)), sum);
            }
        }
    });
    assert_eq!(memory.read(d_gmem, 16 * 8).unwrap(), product(k as usize, &a, &b, &c));
}

#[test]
fn products_of_16_bit_elements() {
    let f16_bits = |x| f16::from_f32(x).to_bits();
    let bf16_bits = |x| bf16::from_f32(x).to_bits();
    // SAFETY: `check_16bit` calls them from all lanes.
    unsafe {
        check_16bit(16, f16_bits, |t, a, b, acc| t.mma_m16n8k16_f16(a, b, acc));
        check_16bit(16, bf16_bits, |t, a, b, acc| t.mma_m16n8k16_bf16(a, b, acc));
        check_16bit(8, f16_bits, |t, a, b, acc| t.mma_m16n8k8_f16([a[0], a[1]], b[0], acc));
        check_16bit(8, bf16_bits, |t, a, b, acc| t.mma_m16n8k8_bf16([a[0], a[1]], b[0], acc));
    }
}

/// A lane has two successive elements of a row of each matrix, by the figures of the PTX manual; of what is stored each
/// row is a column of them. Addresses come in no order.
#[test]
fn matrices_are_stored_transposed() {
    one_warp(&Memory::new(), |t| {
        let lane = t.lane();
        let address = |row: u32| 16 * (row * 13 % 32);
        let element = |matrix: u32, row: u32, column: u32| matrix << 8 | row << 4 | column;
        let registers = [0, 1, 2, 3].map(|matrix| {
            let half = |half: u32| element(matrix, lane / 4, lane % 4 * 2 + half);
            half(0) | half(1) << 16
        });
        // SAFETY: 32 rows of 16 bytes; all lanes go the same way.
        let row: [u32; 4] = unsafe {
            t.store_matrix_x4_trans(address(lane), registers);
            t.sync_warp();
            t.load_shared(address(lane))
        };
        let pair =
            |at: u32| element(lane / 8, 2 * at, lane % 8) | element(lane / 8, 2 * at + 1, lane % 8) << 16;
        assert_eq!(row, [0, 1, 2, 3].map(pair));
    });
}

/// Which two of four successive columns a row of a sparse A has.
fn kept(row: u32, group: u32) -> [u32; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][((row * 7 + group * 5) % 6) as usize]
}

/// Runs a product with a sparse A, of which only what is kept is there; operands are packed by the formulas of the PTX
/// manual. The lanes whose metadata this selector does not name hold what names no places.
fn check_sparse(
    selector: u32,
    convert: impl Fn(f32) -> u16 + Sync,
    mma: impl Fn(&Thread<'_>, [u32; 4], [u32; 4], [f32; 4], u32) -> [f32; 4] + Sync,
) {
    let (given, b, c) = (integers(16 * 32, 2741), integers(32 * 8, 3319), integers(16 * 8, 1877));
    let is_kept = |row: u32, column: u32| kept(row, column / 4).contains(&(column % 4));
    let a: Vec<f32> =
        (0..).zip(&given).map(|(at, &x)| if is_kept(at / 32, at % 32) { x } else { 0.0 }).collect();
    let memory = Memory::new();
    let (c_gmem, d_gmem) = (memory.alloc_from(&c), memory.alloc_uninit::<f32>(16 * 8));
    let pair = |halves: [f32; 2]| u32::from(convert(halves[0])) | u32::from(convert(halves[1])) << 16;
    one_warp(&memory, |t| {
        let (g, q) = (t.lane() / 4, t.lane() % 4);
        // Packed columns 2q, 2q + 1 and eight further on, which are the two kept ones of a group.
        let a_frag = [(0, 0), (8, 0), (0, 4), (8, 4)].map(|(row, group)| {
            let (row, group) = (g + row, q + group);
            pair(kept(row, group).map(|place| a[(row * 32 + group * 4 + place) as usize]))
        });
        let b_frag =
            [0, 8, 16, 24].map(|first| pair([0, 1].map(|row| b[((first + 2 * q + row) * 8 + g) as usize])));
        // Row g in the low half, row g + 8 in the high one; lanes q = 0 and 1 of the two have four groups each.
        let metadata = (0..8).fold(0, |word, nibble| {
            let [one, other] = kept(g + nibble / 4 * 8, q % 2 * 4 + nibble % 4);
            word | (one | other << 2) << (4 * nibble)
        });
        let metadata = if q / 2 == selector { metadata } else { 0 };
        // SAFETY: all lanes go the same way; C and D have 16 × 8 elements.
        unsafe {
            let acc = [0, 1, 2, 3].map(|i| t.load_readonly(c_gmem.at(accumulator(t.lane(), i))));
            let sum = mma(t, a_frag, b_frag, acc, metadata);
            for (i, sum) in (0..).zip(sum) {
                t.store(d_gmem.at(accumulator(t.lane(), i)), sum);
            }
        }
    });
    assert_eq!(memory.read(d_gmem, 16 * 8).unwrap(), product(32, &a, &b, &c));
}

#[test]
fn products_with_a_sparse_operand() {
    let f16_bits = |x| f16::from_f32(x).to_bits();
    let bf16_bits = |x| bf16::from_f32(x).to_bits();
    // SAFETY: `check_sparse` calls them from all lanes.
    unsafe {
        check_sparse(0, f16_bits, |t, a, b, acc, e| t.mma_sparse_m16n8k32::<F16, 0>(a, b, acc, e));
        check_sparse(1, f16_bits, |t, a, b, acc, e| t.mma_sparse_m16n8k32::<F16, 1>(a, b, acc, e));
        check_sparse(0, bf16_bits, |t, a, b, acc, e| t.mma_sparse_m16n8k32::<Bf16, 0>(a, b, acc, e));
        check_sparse(1, bf16_bits, |t, a, b, acc, e| t.mma_sparse_m16n8k32::<Bf16, 1>(a, b, acc, e));
    }
}

/// tf32 tiles, too, go through `ldmatrix`: a pair of 16-bit elements is one tf32. B is column-major.
#[test]
fn products_of_tf32_elements() {
    let (a, b, c) = (integers(16 * 8, 2741), integers(8 * 8, 3319), integers(16 * 8, 1877));
    let memory = Memory::new();
    // The low 13 bits are noise that the product must not see.
    let upload = |tile: Vec<f32>| {
        memory.alloc_from(&tile.iter().map(|x| x.to_bits() | 0x1fff).collect::<Vec<u32>>()).cast::<u16>()
    };
    let b_columns = (0..64).map(|i| b[i % 8 * 8 + i / 8]).collect();
    let (a_gmem, b_gmem) = (upload(a.clone()), upload(b_columns));
    let (c_gmem, d_gmem) = (memory.alloc_from(&c), memory.alloc_uninit::<f32>(16 * 8));
    one_warp(&memory, |t| {
        let lane = t.lane();
        // SAFETY: tiles of 512 and 256 bytes; all lanes go the same way.
        unsafe {
            stage(t, 0, a_gmem, 2 * 16 * 8);
            stage(t, 1024, b_gmem, 2 * 8 * 8);
            t.sync_warp();
            let a_frag = t.load_matrix_x4(32 * (lane % 16) + 16 * (lane / 16));
            let [b0, b1, ..] = t.load_matrix_x4(1024 + 32 * (lane % 8) + 16 * (lane / 8 % 2));
            let acc = [0, 1, 2, 3].map(|i| t.load_readonly(c_gmem.at(accumulator(lane, i))));
            let sum = t.mma_m16n8k8_tf32(a_frag, [b0, b1], acc);
            for (i, sum) in (0..).zip(sum) {
                t.store(d_gmem.at(accumulator(lane, i)), sum);
            }
        }
    });
    assert_eq!(memory.read(d_gmem, 16 * 8).unwrap(), product(8, &a, &b, &c));
}

/// 2²⁴ + 1 + 1 is 2²⁴ + 2 if rounded once and 2²⁴ if rounded after each addition.
#[test]
fn a_product_is_rounded_once() {
    let memory = Memory::new();
    let one = u32::from(f16::ONE.to_bits());
    one_warp(&memory, |t| {
        // SAFETY: all lanes.
        let sum = unsafe { t.mma_m16n8k8_f16([one | one << 16; 2], one | one << 16, [16_777_216.0; 4]) };
        assert_eq!(sum, [16_777_224.0; 4]);
        // SAFETY: all lanes. Only columns 0 and 1 of A are not zero.
        let sum = unsafe {
            let a = if t.lane() % 4 == 0 { one | one << 16 } else { 0 };
            t.mma_m16n8k8_f16([a; 2], one | one << 16, [16_777_216.0; 4])
        };
        assert_eq!(sum, [16_777_218.0; 4]);
        // SAFETY: all lanes.
        let sum = unsafe { t.mma_m16n8k8_bf16([0; 2], 0x7f80_7f80, [0.0; 4]) };
        assert!(sum.iter().all(|x| x.is_nan()), "0 times infinity");
    });
}

#[test]
fn conversions() {
    one_warp(&Memory::new(), |t| {
        for bits in (t.lane()..0x1_0000).step_by(32) {
            let bits = u16::try_from(bits).unwrap();
            let value = t.f16_to_f32(bits);
            assert_eq!(value.to_bits(), f16::from_bits(bits).to_f32().to_bits());
            let pair = u32::from(bits) << 16 | u32::from(!bits);
            assert_eq!(
                t.f16x2_to_f32(pair).map(f32::to_bits),
                [t.f16_to_f32(!bits), value].map(f32::to_bits)
            );
            assert_eq!(t.f32_to_f16(value), if value.is_nan() { 0x7fff } else { bits });
            let value = bf16::from_bits(bits).to_f32();
            assert_eq!(t.f32_to_bf16(value), if value.is_nan() { 0x7fff } else { bits });
        }
        // Ties to even in both 16-bit formats; overflow goes to infinity.
        assert_eq!(t.f32_to_f16(1.0 + 0.5 / 1024.0), 0x3c00);
        assert_eq!(t.f32_to_f16(1.0 + 1.5 / 1024.0), 0x3c02);
        assert_eq!(t.f32_to_f16(65_520.0), 0x7c00);
        assert_eq!(t.f32_to_bf16(1.0 + 0.5 / 128.0), 0x3f80);
        assert_eq!(t.f32_to_bf16(1.0 + 1.5 / 128.0), 0x3f82);
        assert_eq!(t.f32_to_bf16(f32::MAX), 0x7f80);
        // Ties away from zero in tf32.
        for (bits, rounded) in [
            (0x3f80_0fff, 0x3f80_0000),
            (0x3f80_1000, 0x3f80_2000),
            (0xbf80_1000, 0xbf80_2000),
            (0x3fff_f000, 0x4000_0000),
            (0x7f7f_ffff, 0x7f80_0000),
            (0x7f80_0000, 0x7f80_0000),
            (0xff80_0001, 0x7fff_ffff),
            (0x8000_0000, 0x8000_0000),
        ] {
            assert_eq!(t.f32_to_tf32(f32::from_bits(bits)), rounded, "{bits:#x}");
        }
    });
}

#[test]
fn arithmetic() {
    one_warp(&Memory::new(), |t| {
        assert_eq!(t.permute_bytes(0x3322_1100, 0x7766_5544, 0x5140), 0x5511_4400);
        assert_eq!(t.permute_bytes(0x3322_1100, 0x7766_5544, 0x7632), 0x7766_3322);
        assert_eq!(t.permute_bytes(0x3322_1100, 0x7766_5544, 0xffff_0000), 0);
        let x = 1.0 + f32::EPSILON;
        assert_eq!(t.fma(x, x, -(1.0 + 2.0 * f32::EPSILON)), f32::EPSILON * f32::EPSILON);
        assert_eq!(t.population(u64::MAX >> 3), 61);
        assert_eq!((t.maximum(1.0, -3.0), t.maximum(f32::NEG_INFINITY, -3.0)), (1.0, -3.0));
        assert!(t.maximum(f32::NAN, 1.0).is_nan() && t.maximum(f32::INFINITY, f32::NAN).is_nan());
        assert_eq!(
            [t.maximum(-0.0, 0.0), t.maximum(0.0, -0.0), t.maximum(-0.0, -0.0)].map(f32::to_bits),
            [0, 0, 1 << 31]
        );
        for i in 0..=253i16 {
            // Powers of two are exact, those between off by no more than what is promised.
            let (x, between) = (f32::from(i - 126), f32::from(i - 126) + 0.3);
            assert_eq!(f64::from(t.exp2(x)), f64::from(x).exp2());
            let want = f64::from(between).exp2();
            assert!((f64::from(t.exp2(between)) - want).abs() <= want / 4_194_304.0, "{between}");
        }
        for one in [0.0, -0.0, 1e-40, -1e-40] {
            assert_eq!(t.exp2(one), 1.0);
        }
        for zero in [-126.001, -149.0, -1e30, f32::NEG_INFINITY] {
            assert_eq!(t.exp2(zero).to_bits(), 0, "2^{zero} is subnormal or less");
        }
        assert_eq!((t.exp2(128.0), t.exp2(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(t.exp2(f32::NAN).is_nan());
        for x in [1e-30f32, 0.4, 0.7, 1.0, 1.3, 2.5, 7e20] {
            let want = f64::from(x).log2();
            assert!((f64::from(t.log2(x)) - want).abs() <= want.abs().max(1.0) / 4_194_304.0, "{x}");
            assert_eq!(t.sqrt(x), x.sqrt());
        }
        assert_eq!((t.log2(0.0), t.log2(1e-40), t.log2(1.0)), (f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0));
        assert!(t.log2(f32::INFINITY) == f32::INFINITY && t.log2(-1.0).is_nan() && t.sqrt(-1.0).is_nan());
    });
}

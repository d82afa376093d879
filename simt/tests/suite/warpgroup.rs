//! Products of a warpgroup against a plain matrix product, with operands as the copy engine brings them.
//!
//! Places of elements follow the figures of the PTX manual, and what was seen on a card; no table of `fragment` is
//! used.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule, Thread};
use windrow_simt::{
    BoxedMatrix, GlobalPtr, OperandLayout, SharedOperand, Simt, Swizzle, TensorMap, WARPGROUP, WarpgroupSums,
};

use crate::{Bf16, F16};

/// Inner elements of a step, and rows of a warpgroup's sums.
const STEP: usize = 32;
const ROWS: usize = 64;
/// A: no swizzle, 128 bytes along the inner dimension, 256 to the next eight rows.
const A: OperandLayout = OperandLayout { inner_bytes: 128, rows_bytes: 256, swizzle: Swizzle::None };
/// B: rows of 128 bytes as a box brings them.
const B: OperandLayout = OperandLayout { inner_bytes: 16, rows_bytes: 1024, swizzle: Swizzle::Bytes128 };
/// B transposed: boxes of 64 inner elements of 64 columns, one after the other.
const B_TRANSPOSED: OperandLayout = OperandLayout { inner_bytes: 8192, ..B };
/// Bytes of two steps of A, then of their metadata; where B and the counter begin.
const A_BYTES: u32 = 4096;
const METADATA_BYTES: u32 = 512;
const B_AT: u32 = 5120;

/// A number that differs from place to place: products and sums of a few are exact.
fn number(at: usize, step: usize) -> f32 {
    let bits = u16::try_from(at.wrapping_mul(step) >> 7 & 15).unwrap();
    f32::from(bits) - 8.0
}

/// The two places of four that a row keeps in a group.
fn kept(row: usize, group: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(row * 7 + group * 5) % 6]
}

/// Two steps of A in the order of core matrices, and the metadata for both selectors, a word a thread.
fn packed(convert: impl Fn(f32) -> u16) -> Vec<u32> {
    let mut halves = vec![0u16; A_BYTES as usize / 2];
    let mut metadata = vec![0u32; WARPGROUP as usize];
    for row in 0..ROWS {
        for group in 0..16 {
            let (step, in_step) = (group / 8, group % 8);
            let [first, second] = kept(row, group);
            for (i, place) in [first, second].into_iter().enumerate() {
                let column = in_step * 2 + i;
                let at = step * 1024 + row / 8 * 128 + column / 8 * 64 + row % 8 * 8 + column % 8;
                halves[at] = convert(number(row * 64 + group * 4 + place, 2741));
            }
            let thread = row / 16 * 32 + row % 8 * 4 + 2 * step + in_step / 4;
            let nibble = row % 16 / 8 * 4 + group % 4;
            metadata[thread] |= u32::try_from(first | second << 2).unwrap() << (4 * nibble);
        }
    }
    let words = halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16);
    words.chain(metadata).collect()
}

/// One block multiplies two steps, the box of B beginning at `(column, row)` of a matrix of `extents`. Columns of B are
/// rows of the matrix, or its columns, if it is transposed.
fn check<const R: usize, const TRANSPOSED: u32>(
    (columns, rows): (u32, u32),
    at: [u32; 2],
    convert: impl Fn(f32) -> u16,
    product: impl Fn(&Thread<'_>, &mut WarpgroupSums<R>, [SharedOperand; 2], u32) + Sync,
    second: impl Fn(&Thread<'_>, &mut WarpgroupSums<R>, [SharedOperand; 2], u32) + Sync,
) {
    let count = 2 * u32::try_from(R).unwrap();
    let stride = columns.next_multiple_of(8);
    let value = |row: u32, column: u32| {
        if row < rows && column < columns { number((row * columns + column) as usize, 3319) } else { 0.0 }
    };
    let value_of_b = |column: u32, inner: u32| match TRANSPOSED {
        0 => value(at[1] + column, at[0] + inner),
        _ => value(at[1] + inner, at[0] + column),
    };
    let (box_rows, boxes) = if TRANSPOSED == 0 { (count, 1) } else { (64, count.div_ceil(64)) };
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let a = memory.alloc_from(&packed(&convert));
        let elements = (0..rows * stride).map(|i| convert(value(i / stride, i % stride)));
        let b = memory.alloc_from(&elements.collect::<Vec<_>>());
        let out = memory.alloc_uninit::<f32>(ROWS * count as usize);
        let matrix =
            BoxedMatrix { address: b.address(), columns, rows, row_bytes: 2 * u64::from(stride), box_rows };
        let map = TensorMap::emulated(&matrix);
        let shared_bytes = B_AT + boxes * matrix.box_bytes() + 16;
        let counter = shared_bytes - 16;
        let launch = Launch { grid: [1, 1], block_threads: WARPGROUP, shared_bytes, schedule };
        // SAFETY: the protocol is kept.
        let ran = memory.launch(&launch, |t| unsafe {
            if t.thread_idx() == 0 {
                t.copy_bulk_begin(counter, 1);
                t.copy_bulk(0, a, A_BYTES + METADATA_BYTES, counter);
                for i in 0..boxes {
                    let to = B_AT + i * matrix.box_bytes();
                    t.copy_bulk_box(to, &map, [at[0] + 64 * i, at[1]], counter);
                }
                t.copy_bulk_commit(counter, A_BYTES + METADATA_BYTES + boxes * matrix.box_bytes());
                t.copy_bulk_wait(counter, 0);
            }
            t.sync_block();
            let mut metadata = t.load_shared::<u32>(A_BYTES + 4 * t.thread_idx());
            let mut sums = WarpgroupSums::<R>::zeros();
            let step = |step: u32| {
                let b = match TRANSPOSED {
                    0 => SharedOperand { at: B_AT + 64 * step, layout: B },
                    _ => SharedOperand { at: B_AT + 4096 * step, layout: B_TRANSPOSED },
                };
                [SharedOperand { at: 2048 * step, layout: A }, b]
            };
            t.warpgroup_fence();
            product(t, &mut sums, step(0), metadata);
            second(t, &mut sums, step(1), metadata);
            t.warpgroup_commit();
            t.warpgroup_wait::<0, 1>(std::array::from_mut(&mut metadata));
            let sums = t.warpgroup_finish(sums);
            let (warp, lane) = (t.thread_idx() / 32, t.thread_idx() % 32);
            for (i, sum) in (0..).zip(sums) {
                let row = 16 * warp + lane / 4 + if i % 4 < 2 { 0 } else { 8 };
                let column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                t.store(out.at(row * count + column), sum);
            }
        });
        if let Err(violation) = ran {
            panic!("{schedule:?}: {violation}");
        }
        let found = memory.read(out, ROWS * count as usize).unwrap();
        for row in 0..ROWS {
            for column in 0..count {
                let entry = (0..2 * STEP / 4).map(|group| {
                    let of_group = kept(row, group).map(|place| {
                        let inner = u32::try_from(group * 4 + place).unwrap();
                        number(row * 64 + group * 4 + place, 2741) * value_of_b(column, inner)
                    });
                    of_group.iter().sum::<f32>()
                });
                let found = found[row * count as usize + column as usize];
                assert_eq!(found, entry.sum::<f32>(), "{schedule:?}: row {row}, column {column}");
            }
        }
    }
}

/// The same with this type's products.
macro_rules! checks {
    ($columns:literal, $transposed:literal, $extents:expr, $at:expr, $convert:expr, $element:ident) => {
        check::<$columns, $transposed>(
            $extents,
            $at,
            $convert,
            // SAFETY: `check` keeps the protocol.
            |t, sums, [a, b], metadata| unsafe {
                t.warpgroup_mma_sparse::<$element, 0, $transposed, _>(sums, a, b, metadata)
            },
            // SAFETY: likewise.
            |t, sums, [a, b], metadata| unsafe {
                t.warpgroup_mma_sparse::<$element, 1, $transposed, _>(sums, a, b, metadata)
            },
        )
    };
}

#[test]
fn products_of_f16() {
    checks!(32, 0, (64, 64), [0, 0], |x| f16::from_f32(x).to_bits(), F16);
    checks!(88, 0, (200, 176), [128, 0], |x| f16::from_f32(x).to_bits(), F16);
    checks!(128, 0, (64, 256), [0, 0], |x| f16::from_f32(x).to_bits(), F16);
}

#[test]
fn products_of_bf16() {
    checks!(64, 0, (64, 128), [0, 0], |x| bf16::from_f32(x).to_bits(), Bf16);
    checks!(96, 0, (192, 200), [64, 8], |x| bf16::from_f32(x).to_bits(), Bf16);
}

/// B as it lies if its columns follow one another.
#[test]
fn products_of_a_transposed_operand() {
    checks!(32, 1, (64, 64), [0, 0], |x| f16::from_f32(x).to_bits(), F16);
    checks!(96, 1, (300, 100), [64, 16], |x| f16::from_f32(x).to_bits(), F16);
    checks!(88, 1, (176, 70), [0, 3], |x| bf16::from_f32(x).to_bits(), Bf16);
}

/// One product of 16 inner elements with operands that are both whole: A in core matrices, B in rows of 128 bytes, or
/// transposed.
fn check_whole<const R: usize, const TRANSPOSED: u32>(
    convert: impl Fn(f32) -> u16,
    product: impl Fn(&Thread<'_>, &mut WarpgroupSums<R>, [SharedOperand; 2]) + Sync,
) {
    let count = 2 * R;
    let (of_a, of_b) =
        (|row, inner| number(row * 16 + inner, 2741), |column, inner| number(column * 16 + inner, 3319));
    let mut halves = vec![0u16; 1024];
    for (row, inner) in (0..ROWS).flat_map(|row| (0..16).map(move |inner| (row, inner))) {
        halves[row / 8 * 128 + inner / 8 * 64 + row % 8 * 8 + inner % 8] = convert(of_a(row, inner));
    }
    let b_at = 2048;
    let b_bytes = if TRANSPOSED == 0 { count * 128 } else { 16 * 128 * count.div_ceil(64) };
    halves.resize(1024 + b_bytes / 2, 0);
    for (column, inner) in (0..count).flat_map(|column| (0..16).map(move |inner| (column, inner))) {
        // Pieces of eight elements: of a column's inner elements, or of the columns of an inner element.
        let (line, piece, at) = match TRANSPOSED {
            0 => (column, inner / 8, inner % 8),
            _ => (
                inner / 8 * 8 * count.div_ceil(64) + column / 64 * 8 + inner % 8,
                column % 64 / 8,
                column % 8,
            ),
        };
        halves[1024 + line * 64 + (piece ^ (line % 8)) * 8 + at] = convert(of_b(column, inner));
    }
    let words: Vec<u32> =
        halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect();
    let eights = 1024 * u32::try_from(count.div_ceil(64)).unwrap();
    let b = match TRANSPOSED {
        0 => SharedOperand { at: b_at, layout: B },
        _ => SharedOperand { at: b_at, layout: OperandLayout { inner_bytes: 1024, rows_bytes: eights, ..B } },
    };
    let bytes = u32::try_from(4 * words.len()).unwrap();
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let given = memory.alloc_from(&words);
        let out = memory.alloc_uninit::<f32>(ROWS * count);
        let launch = Launch { grid: [1, 1], block_threads: WARPGROUP, shared_bytes: bytes + 16, schedule };
        // SAFETY: the protocol is kept.
        let ran = memory.launch(&launch, |t| unsafe {
            if t.thread_idx() == 0 {
                t.copy_bulk_begin(bytes, 1);
                t.copy_bulk(0, given, bytes, bytes);
                t.copy_bulk_commit(bytes, bytes);
                t.copy_bulk_wait(bytes, 0);
            }
            t.sync_block();
            let mut sums = WarpgroupSums::<R>::zeros();
            t.warpgroup_fence();
            product(t, &mut sums, [SharedOperand { at: 0, layout: A }, b]);
            t.warpgroup_commit();
            let (warp, lane) = (t.thread_idx() / 32, t.thread_idx() % 32);
            for (i, sum) in (0..).zip(t.warpgroup_finish(sums)) {
                let row = 16 * warp + lane / 4 + if i % 4 < 2 { 0 } else { 8 };
                let column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                t.store(out.at(row * u32::try_from(count).unwrap() + column), sum);
            }
        });
        if let Err(violation) = ran {
            panic!("{schedule:?}: {violation}");
        }
        let found = memory.read(out, ROWS * count).unwrap();
        for (row, column) in (0..ROWS).flat_map(|row| (0..count).map(move |column| (row, column))) {
            let expected: f32 = (0..16).map(|inner| of_a(row, inner) * of_b(column, inner)).sum();
            assert_eq!(found[row * count + column], expected, "{schedule:?}: row {row}, column {column}");
        }
    }
}

#[test]
fn products_of_whole_operands() {
    let (f16, bf16) = (|x| f16::from_f32(x).to_bits(), |x| bf16::from_f32(x).to_bits());
    // SAFETY: `check_whole` keeps the protocol.
    check_whole::<32, 0>(f16, |t, sums, [a, b]| unsafe { t.warpgroup_mma::<F16, 0, _>(sums, a, b) });
    // SAFETY: likewise.
    check_whole::<88, 0>(bf16, |t, sums, [a, b]| unsafe { t.warpgroup_mma::<Bf16, 0, _>(sums, a, b) });
    // SAFETY: likewise.
    check_whole::<128, 1>(f16, |t, sums, [a, b]| unsafe { t.warpgroup_mma::<F16, 1, _>(sums, a, b) });
    // SAFETY: likewise.
    check_whole::<96, 1>(bf16, |t, sums, [a, b]| unsafe { t.warpgroup_mma::<Bf16, 1, _>(sums, a, b) });
}

/// What is outside of the matrix is zero, to the element.
#[test]
fn boxes_reach_beyond_their_matrix() {
    checks!(32, 0, (77, 50), [64, 8], |x| f16::from_f32(x).to_bits(), F16);
    checks!(32, 0, (3, 1), [0, 0], |x| f16::from_f32(x).to_bits(), F16);
}

/// A core matrix is read where the formula says, in bytes: a small part of the layout that A has above.
#[test]
fn a_pointer_is_a_plain_number() {
    assert_eq!(A.offset(9, 16), 256 + 128 + 16);
    assert_eq!(B.swizzle.apply(B.offset(9, 16)), 1024 + 128);
    assert_eq!(GlobalPtr::<u32>::NULL.address(), 0);
}

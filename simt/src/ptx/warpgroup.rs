//! Matrix products of a warpgroup, and what they read.

use core::arch::asm;

use super::memory;
use crate::warpgroup::{HalfElement, SharedOperand, WarpgroupSums};

/// The descriptor of an operand.
#[inline(always)]
fn descriptor(operand: SharedOperand) -> u64 {
    operand.layout.descriptor() | u64::from(memory::shared(operand.at) >> 4 & 0x3fff)
}

/// The same word, of which the compiler knows no more than that it is in a register here.
#[inline(always)]
pub(super) fn keep(word: &mut u32) {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(reg32) * word, options(nostack)) }
}

/// A product with a sparse operand, as many registers of whose sums as numbers are given are read and written.
macro_rules! sparse {
    ($sums:ident, $columns:literal, $types:literal, $a:expr, $b:expr, $metadata:expr, $selector:expr, $transposed:expr;
     $first:literal $(, $rest:literal)*) => {
        asm!(
            concat!(
                "{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sp.sync.aligned.m64n", $columns, "k32.f32.",
                $types, " {{{", $first, "}", $(", {", $rest, "}",)*
                "}}, {a}, {b}, {metadata}, {selector}, p, 1, 1, 0, {transposed}; }}",
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$rest],)*
            a = in(reg64) $a, b = in(reg64) $b, metadata = in(reg32) $metadata, selector = const $selector,
            transposed = const $transposed,
            options(nostack)
        )
    };
}

/// The same of a product whose operands are both whole.
macro_rules! whole {
    ($sums:ident, $columns:literal, $types:literal, $a:expr, $b:expr, $transposed:expr;
     $first:literal $(, $rest:literal)*) => {
        asm!(
            concat!(
                "{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n", $columns, "k16.f32.",
                $types, " {{{", $first, "}", $(", {", $rest, "}",)*
                "}}, {a}, {b}, p, 1, 1, 0, {transposed}; }}",
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$rest],)*
            a = in(reg64) $a, b = in(reg64) $b, transposed = const $transposed,
            options(nostack)
        )
    };
}

/// The end of all products: whoever uses the sums does so after it.
macro_rules! finish {
    ($sums:ident, $columns:literal; $first:literal $(, $rest:literal)*) => {
        asm!(
            concat!("wgmma.wait_group.sync.aligned 0; /* {", $first, "}", $(" {", $rest, "}",)* " */"),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$rest],)* options(nostack)
        )
    };
}

/// One of these, with the numbers of as many registers as there are.
macro_rules! by_count {
    ($count:expr, $sums:expr, $what:ident $(, $operand:expr)*) => {{
        let sums: *mut f32 = $sums.0.as_mut_ptr();
        // SAFETY: each arm sees the array at its own length. All lanes are at this call, outside of divergent branches;
        // the kernel that calls has written what the operands name.
        unsafe {
            match $count {
                32 => {
                    let sums = &mut *sums.cast::<[f32; 32]>();
                    $what!(sums, "64" $(, $operand)*;
                        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31)
                }
                64 => {
                    let sums = &mut *sums.cast::<[f32; 64]>();
                    $what!(sums, "128" $(, $operand)*;
                        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                        49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
                }
                88 => {
                    let sums = &mut *sums.cast::<[f32; 88]>();
                    $what!(sums, "176" $(, $operand)*;
                        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                        49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71,
                        72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87)
                }
                96 => {
                    let sums = &mut *sums.cast::<[f32; 96]>();
                    $what!(sums, "192" $(, $operand)*;
                        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                        49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71,
                        72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95)
                }
                128 => {
                    let sums = &mut *sums.cast::<[f32; 128]>();
                    $what!(sums, "256" $(, $operand)*;
                        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                        49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71,
                        72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94,
                        95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114,
                        115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127)
                }
                _ => const { assert!(matches!($count, 32 | 64 | 88 | 96 | 128), "there is no such instruction") },
            }
        }
    }};
}

/// `sums ← sums + a·b`, of whose `a` two of four are kept.
#[inline(always)]
pub(super) unsafe fn mma_sparse<
    E: HalfElement,
    const SELECTOR: u32,
    const TRANSPOSED: u32,
    const R: usize,
>(
    sums: &mut WarpgroupSums<R>,
    operands: [SharedOperand; 2],
    metadata: u32,
) {
    let [a, b] = operands.map(descriptor);
    if E::BF16 {
        by_count!(R, sums, sparse, "bf16.bf16", a, b, metadata, SELECTOR, TRANSPOSED);
    } else {
        by_count!(R, sums, sparse, "f16.f16", a, b, metadata, SELECTOR, TRANSPOSED);
    }
}

/// `sums ← sums + a·b`.
#[inline(always)]
pub(super) unsafe fn mma<E: HalfElement, const TRANSPOSED: u32, const R: usize>(
    sums: &mut WarpgroupSums<R>,
    operands: [SharedOperand; 2],
) {
    let [a, b] = operands.map(descriptor);
    if E::BF16 {
        by_count!(R, sums, whole, "bf16.bf16", a, b, TRANSPOSED);
    } else {
        by_count!(R, sums, whole, "f16.f16", a, b, TRANSPOSED);
    }
}

/// Waits for all products, and gives out their sums.
#[inline(always)]
pub(super) unsafe fn finished<const R: usize>(mut sums: WarpgroupSums<R>) -> [f32; R] {
    by_count!(R, sums, finish);
    sums.0
}

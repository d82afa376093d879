//! What the bits of `A` and `B` become before they are multiplied.

use half::bf16;
use windrow_kernels::{Bf16, Element, F16, F32, F64, Gather, Real, Scalars, Tf32, Vectors};
use windrow_simt::emulator::{Launch, Memory, Schedule, Thread};

fn one_warp(memory: &Memory, kernel: impl Fn(&Thread<'_>) + Sync) {
    for schedule in Schedule::STANDARD {
        let launch = Launch { grid: [1, 1], block_threads: 32, shared_bytes: 0, schedule };
        if let Err(violation) = memory.launch(&launch, &kernel) {
            panic!("{schedule:?}: {violation}");
        }
    }
}

#[test]
fn every_bf16_is_widened_exactly() {
    one_warp(&Memory::new(), |t| {
        for bits in 0..=u16::MAX {
            let (got, want) = (Bf16::widen(t, bits), bf16::from_bits(bits).to_f32());
            assert!(got == want || got.is_nan() && want.is_nan(), "{bits:#06x}");
        }
    });
}

/// Bits of an f32, and of the tf32 nearest to it, ties away from zero.
const TF32_CASES: [(u32, u32); 16] = [
    (0x3f80_0000, 0x3f80_0000), // 1
    (0x3f80_0fff, 0x3f80_0000), // below the tie
    (0x3f80_1000, 0x3f80_2000), // a tie: away from zero,
    (0xbf80_1000, 0xbf80_2000), // of either sign,
    (0x3f80_3000, 0x3f80_4000), // to an even or an odd neighbour
    (0x3f80_2fff, 0x3f80_2000),
    (0x3fff_efff, 0x3fff_e000),
    (0x3fff_f000, 0x4000_0000), // the carry reaches the exponent
    (0x0000_0fff, 0x0000_0000), // subnormal numbers round the same
    (0x0000_1000, 0x0000_2000),
    (0x007f_f000, 0x0080_0000),
    (0x8000_0000, 0x8000_0000),
    (0x7f7f_efff, 0x7f7f_e000), // the largest that stays finite
    (0x7f7f_f000, 0x7f80_0000),
    (0x7f80_0000, 0x7f80_0000), // infinities
    (0xff80_0000, 0xff80_0000),
];

#[test]
fn tf32_rounds_to_nearest_once() {
    one_warp(&Memory::new(), |t| {
        for (bits, rounded) in TF32_CASES {
            assert_eq!(Tf32::widen(t, bits).to_bits(), rounded, "{bits:#010x}");
            assert_eq!(Tf32::widen(t, rounded).to_bits(), rounded, "what is rounded stays");
        }
        for nan in [0x7f80_0001, 0x7fc0_0000, 0xff80_1000, u32::MAX] {
            assert!(Tf32::widen(t, nan).is_nan(), "{nan:#010x}");
        }
    });
}

/// Vectors and single elements are the same numbers, in the order in which they lie in memory.
fn vectors_agree_with_elements<E: Element>(words: [u32; 4]) {
    let memory = Memory::new();
    let b = memory.alloc_from(&words);
    one_warp(&memory, |t| {
        let mut vector = [E::Sum::ZERO; 8];
        // SAFETY: the 16 bytes of `words`, aligned to 16.
        let raw = unsafe { Vectors::<E>::fetch(t, b, 0) };
        Vectors::<E>::accumulate(t, E::Sum::ONE, raw, &mut vector);
        for (i, sum) in vector.into_iter().enumerate() {
            let mut one = [E::Sum::ZERO; 8];
            if i < E::PER_VECTOR {
                // SAFETY: element `i` of `PER_VECTOR` in the 16 bytes.
                let raw = unsafe { Scalars::<E>::fetch(t, b, i as u64) };
                Scalars::<E>::accumulate(t, E::Sum::ONE, raw, &mut one);
                assert_ne!(sum, E::Sum::ZERO, "element {i}");
            }
            assert_eq!(sum, one[0], "element {i}");
        }
    });
}

#[test]
fn both_ways_of_reading_b_agree() {
    let words = [0x3f81_4002, 0xc043_4104, 0x3e85_bf06, 0x4187_4008];
    vectors_agree_with_elements::<F16>(words);
    vectors_agree_with_elements::<Bf16>(words);
    vectors_agree_with_elements::<F32>(words);
    vectors_agree_with_elements::<Tf32>(words);
    vectors_agree_with_elements::<F64>(words);
}

//! The emulator: what it reports, and what its matrix operations compute.
#![cfg(feature = "emulator")]

mod litmus;
mod matrix;
mod warpgroup;

use windrow_simt::HalfElement;

/// The one type: IEEE binary16.
struct F16;

impl HalfElement for F16 {
    const BF16: bool = false;
}

/// The other: the upper half of an f32.
struct Bf16;

impl HalfElement for Bf16 {
    const BF16: bool = true;
}

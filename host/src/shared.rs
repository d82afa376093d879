//! Generic code that programs need for the usual types, compiled with the library.
//!
//! A build whose optimisation level shares generic code (1, as that of tests) takes from a library what is compiled
//! there, and compiles the rest anew for each program: tests, benchmarks, examples, the command, the Python package.
//! Builds of other levels compile all of it themselves, and have none of this.

use std::hint::black_box;

use half::{bf16, f16};
use windrow_formats::Csr;

use crate::cpu::spmm_fused;
use crate::{SddmmBuilder, SpmmBuilder, SpmmPlan};

/// Never called. That it exists has the compiler make what it names.
#[used]
static SHARED: fn() = || {
    macro_rules! products {
        ($($of_b:ty => $($of_c:ty),+;)+) => {$($(
            black_box(spmm_fused::<$of_b, $of_c> as *const ());
            black_box(SpmmPlan::run_into::<$of_b, $of_c> as *const ());
        )+)+};
    }
    products! { f32 => f32, f16, bf16; f16 => f32, f16, bf16; bf16 => f32, f16, bf16; f64 => f64; }
    macro_rules! plans {
        ($($values:ty),+) => {$(
            black_box(SpmmBuilder::<'static, Csr<$values>>::build as *const ());
            black_box(SddmmBuilder::<'static, Csr<$values>>::build as *const ());
        )+};
    }
    plans!(f32, f64, f16, bf16);
};

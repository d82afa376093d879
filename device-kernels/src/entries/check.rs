//! Entry points: comparing products with their references.

use crate::check::Check;
use crate::element::{Bf16, F16, F32, F64, Tf32};

entries! {
    Check:
    @from Sm80:
    check_f16 {
        spmm_check_f16 => Check<F16>,
    }
    check_f32 {
        spmm_check_f32 => Check<F32>,
    }
    check_bf16 {
        spmm_check_bf16 => Check<Bf16>,
    }
    check_tf32 {
        spmm_check_tf32 => Check<Tf32>,
    }
    check_f64 {
        spmm_check_f64 => Check<F64>,
    }
}

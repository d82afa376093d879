//! Entry points: products of tensors.

use crate::atomic_entries::AtomicEntries;
use crate::element::{F16, F32, F64};
use crate::spmm::segment_group::Mttkrp;

entries! {
    Tensor:
    @from Sm80:
    tensor_mttkrp_f32_n1 {
        mttkrp_nonzero_groups_f32_n1c1 => Mttkrp<F32, 1, 1>,
        mttkrp_nonzero_groups_f32_n1c2 => Mttkrp<F32, 1, 2>,
        mttkrp_nonzero_groups_f32_n1c4 => Mttkrp<F32, 1, 4>,
    }
    tensor_mttkrp_f32_n2 {
        mttkrp_nonzero_groups_f32_n2c1 => Mttkrp<F32, 2, 1>,
        mttkrp_nonzero_groups_f32_n2c2 => Mttkrp<F32, 2, 2>,
        mttkrp_nonzero_groups_f32_n2c4 => Mttkrp<F32, 2, 4>,
    }
    tensor_mttkrp_f32_n4 {
        mttkrp_nonzero_groups_f32_n4c1 => Mttkrp<F32, 4, 1>,
        mttkrp_nonzero_groups_f32_n4c2 => Mttkrp<F32, 4, 2>,
        mttkrp_nonzero_groups_f32_n4c4 => Mttkrp<F32, 4, 4>,
    }
    tensor_mttkrp_f16_n1 {
        mttkrp_nonzero_groups_f16_n1c1 => Mttkrp<F16, 1, 1>,
        mttkrp_nonzero_groups_f16_n1c2 => Mttkrp<F16, 1, 2>,
        mttkrp_nonzero_groups_f16_n1c4 => Mttkrp<F16, 1, 4>,
    }
    tensor_mttkrp_f16_n2 {
        mttkrp_nonzero_groups_f16_n2c1 => Mttkrp<F16, 2, 1>,
        mttkrp_nonzero_groups_f16_n2c2 => Mttkrp<F16, 2, 2>,
        mttkrp_nonzero_groups_f16_n2c4 => Mttkrp<F16, 2, 4>,
    }
    tensor_mttkrp_f16_n4 {
        mttkrp_nonzero_groups_f16_n4c1 => Mttkrp<F16, 4, 1>,
        mttkrp_nonzero_groups_f16_n4c2 => Mttkrp<F16, 4, 2>,
        mttkrp_nonzero_groups_f16_n4c4 => Mttkrp<F16, 4, 4>,
    }
    tensor_mttkrp_f64_n1 {
        mttkrp_nonzero_groups_f64_n1c1 => Mttkrp<F64, 1, 1>,
        mttkrp_nonzero_groups_f64_n1c2 => Mttkrp<F64, 1, 2>,
        mttkrp_nonzero_groups_f64_n1c4 => Mttkrp<F64, 1, 4>,
    }
    tensor_mttkrp_f64_n2 {
        mttkrp_nonzero_groups_f64_n2c1 => Mttkrp<F64, 2, 1>,
        mttkrp_nonzero_groups_f64_n2c2 => Mttkrp<F64, 2, 2>,
        mttkrp_nonzero_groups_f64_n2c4 => Mttkrp<F64, 2, 4>,
    }
    tensor_mttkrp_f64_n4 {
        mttkrp_nonzero_groups_f64_n4c1 => Mttkrp<F64, 4, 1>,
        mttkrp_nonzero_groups_f64_n4c2 => Mttkrp<F64, 4, 2>,
    }
    tensor_atomic {
        mttkrp_atomic_f32 => AtomicEntries<2>,
        ttm_atomic_f32 => AtomicEntries<1>,
    }
}

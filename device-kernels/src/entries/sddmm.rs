//! Entry points: sampled products.

use crate::element::{Bf16, F16, F32, F64, Scalars, Tf32, Vectors};
use crate::sddmm::{Scan, SddmmEntries, SddmmGroups, SddmmPanels, SddmmTiles};
use crate::spmm::tile_stream::{Bulk, ByElement};

entries! {
    Sddmm:
    @from Sm80:
    sddmm_tiles_f16 {
        sddmm_tiles_f16_1 => SddmmTiles<F16, Bulk, 1>,
        sddmm_tiles_f16_2 => SddmmTiles<F16, Bulk, 2>,
        sddmm_tiles_f16_4 => SddmmTiles<F16, Bulk, 4>,
        sddmm_tiles_f16_8 => SddmmTiles<F16, Bulk, 8>,
        sddmm_tiles_f16_elements => SddmmTiles<F16, ByElement, 1>,
    }
    sddmm_tiles_bf16 {
        sddmm_tiles_bf16_1 => SddmmTiles<Bf16, Bulk, 1>,
        sddmm_tiles_bf16_2 => SddmmTiles<Bf16, Bulk, 2>,
        sddmm_tiles_bf16_4 => SddmmTiles<Bf16, Bulk, 4>,
        sddmm_tiles_bf16_8 => SddmmTiles<Bf16, Bulk, 8>,
        sddmm_tiles_bf16_elements => SddmmTiles<Bf16, ByElement, 1>,
    }
    sddmm_tiles_tf32 {
        sddmm_tiles_tf32_1 => SddmmTiles<Tf32, Bulk, 1>,
        sddmm_tiles_tf32_2 => SddmmTiles<Tf32, Bulk, 2>,
        sddmm_tiles_tf32_4 => SddmmTiles<Tf32, Bulk, 4>,
        sddmm_tiles_tf32_8 => SddmmTiles<Tf32, Bulk, 8>,
        sddmm_tiles_tf32_elements => SddmmTiles<Tf32, ByElement, 1>,
    }
    sddmm_tiles_f16_scan {
        sddmm_tiles_f16_4_scan => SddmmTiles<F16, Bulk, 4, Scan>,
    }
    sddmm_entries_f16 {
        sddmm_entries_f16 => SddmmEntries<Vectors<F16>>,
        sddmm_entries_f16_elements => SddmmEntries<Scalars<F16>>,
    }
    sddmm_entries_bf16 {
        sddmm_entries_bf16 => SddmmEntries<Vectors<Bf16>>,
        sddmm_entries_bf16_elements => SddmmEntries<Scalars<Bf16>>,
    }
    sddmm_entries_f32 {
        sddmm_entries_f32 => SddmmEntries<Vectors<F32>>,
        sddmm_entries_f32_elements => SddmmEntries<Scalars<F32>>,
    }
    sddmm_entries_tf32 {
        sddmm_entries_tf32 => SddmmEntries<Vectors<Tf32>>,
        sddmm_entries_tf32_elements => SddmmEntries<Scalars<Tf32>>,
    }
    sddmm_entries_f64 {
        sddmm_entries_f64 => SddmmEntries<Vectors<F64>>,
        sddmm_entries_f64_elements => SddmmEntries<Scalars<F64>>,
    }
    sddmm_groups_f16 {
        sddmm_groups_f16 => SddmmGroups<Vectors<F16>>,
        sddmm_groups_f16_elements => SddmmGroups<Scalars<F16>>,
    }
    sddmm_groups_f32 {
        sddmm_groups_f32 => SddmmGroups<Vectors<F32>>,
        sddmm_groups_f32_elements => SddmmGroups<Scalars<F32>>,
    }
    sddmm_groups_f64 {
        sddmm_groups_f64 => SddmmGroups<Vectors<F64>>,
        sddmm_groups_f64_elements => SddmmGroups<Scalars<F64>>,
    }
    sddmm_panels {
        sddmm_panels_c16 => SddmmPanels<4, 1, true>,
        sddmm_panels_c32 => SddmmPanels<8, 1, true>,
        sddmm_panels_c64 => SddmmPanels<16, 1, true>,
        sddmm_panels_c128 => SddmmPanels<32, 1, true>,
        sddmm_panels_c256 => SddmmPanels<32, 2, true>,
        sddmm_panels_elements => SddmmPanels<32, 2, false>,
    }
}

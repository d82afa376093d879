//! Entry points: products of a sparse matrix and a dense one.

use crate::element::{Bf16, F16, F32, F64, Scalars, Tf32, Vectors};
use crate::place_values::PlaceValues;
use crate::spmm::combine::Combine;
use crate::spmm::matricized_rows::{ColumnMajor, MatricizedRows, RowMajor, RowMajorElements};
use crate::spmm::merge_based::{CarriedRows, MergeBased};
use crate::spmm::merge_path::MergePath;
use crate::spmm::row_panels::RowPanels;
use crate::spmm::row_split::RowSplit;
use crate::spmm::segment_group::{NonzeroGroups, RowGroups};
use crate::spmm::short_rows::ShortRows;
use crate::spmm::tile_stream::{Bitmaps, Bulk, ByElement, Packed, RegisterStream, TileStream};

entries! {
    Spmm:
    @from Sm80:
    spmm_row_split_f16 {
        spmm_row_split_f16_l4w1 => RowSplit<Vectors<F16>, 4, 1>,
        spmm_row_split_f16_l4w8 => RowSplit<Vectors<F16>, 4, 8>,
        spmm_row_split_f16_l8w1 => RowSplit<Vectors<F16>, 8, 1>,
        spmm_row_split_f16_l8w4 => RowSplit<Vectors<F16>, 8, 4>,
        spmm_row_split_f16_l16w1 => RowSplit<Vectors<F16>, 16, 1>,
        spmm_row_split_f16_l16w2 => RowSplit<Vectors<F16>, 16, 2>,
        spmm_row_split_f16_l32w1 => RowSplit<Vectors<F16>, 32, 1>,
        spmm_row_split_f16_elements => RowSplit<Scalars<F16>, 32, 1>,
    }
    spmm_row_split_f32 {
        spmm_row_split_f32_l8w1 => RowSplit<Vectors<F32>, 8, 1>,
        spmm_row_split_f32_l8w4 => RowSplit<Vectors<F32>, 8, 4>,
        spmm_row_split_f32_l16w1 => RowSplit<Vectors<F32>, 16, 1>,
        spmm_row_split_f32_l16w2 => RowSplit<Vectors<F32>, 16, 2>,
        spmm_row_split_f32_l32w1 => RowSplit<Vectors<F32>, 32, 1>,
        spmm_row_split_f32_elements => RowSplit<Scalars<F32>, 32, 1>,
    }
    spmm_row_split_bf16 {
        spmm_row_split_bf16_l4w1 => RowSplit<Vectors<Bf16>, 4, 1>,
        spmm_row_split_bf16_l4w8 => RowSplit<Vectors<Bf16>, 4, 8>,
        spmm_row_split_bf16_l8w1 => RowSplit<Vectors<Bf16>, 8, 1>,
        spmm_row_split_bf16_l8w4 => RowSplit<Vectors<Bf16>, 8, 4>,
        spmm_row_split_bf16_l16w1 => RowSplit<Vectors<Bf16>, 16, 1>,
        spmm_row_split_bf16_l16w2 => RowSplit<Vectors<Bf16>, 16, 2>,
        spmm_row_split_bf16_l32w1 => RowSplit<Vectors<Bf16>, 32, 1>,
        spmm_row_split_bf16_elements => RowSplit<Scalars<Bf16>, 32, 1>,
    }
    spmm_row_split_tf32 {
        spmm_row_split_tf32_l8w1 => RowSplit<Vectors<Tf32>, 8, 1>,
        spmm_row_split_tf32_l8w4 => RowSplit<Vectors<Tf32>, 8, 4>,
        spmm_row_split_tf32_l16w1 => RowSplit<Vectors<Tf32>, 16, 1>,
        spmm_row_split_tf32_l16w2 => RowSplit<Vectors<Tf32>, 16, 2>,
        spmm_row_split_tf32_l32w1 => RowSplit<Vectors<Tf32>, 32, 1>,
        spmm_row_split_tf32_elements => RowSplit<Scalars<Tf32>, 32, 1>,
    }
    spmm_row_split_f64 {
        spmm_row_split_f64_l8w1 => RowSplit<Vectors<F64>, 8, 1>,
        spmm_row_split_f64_l8w4 => RowSplit<Vectors<F64>, 8, 4>,
        spmm_row_split_f64_l16w1 => RowSplit<Vectors<F64>, 16, 1>,
        spmm_row_split_f64_l16w2 => RowSplit<Vectors<F64>, 16, 2>,
        spmm_row_split_f64_l32w1 => RowSplit<Vectors<F64>, 32, 1>,
        spmm_row_split_f64_elements => RowSplit<Scalars<F64>, 32, 1>,
    }
    spmm_short_rows_f16 {
        spmm_short_rows_f16_l4 => ShortRows<Vectors<F16>, 4>,
        spmm_short_rows_f16_l8 => ShortRows<Vectors<F16>, 8>,
        spmm_short_rows_f16_l16 => ShortRows<Vectors<F16>, 16>,
        spmm_short_rows_f16_l32 => ShortRows<Vectors<F16>, 32>,
        spmm_short_rows_f16_elements => ShortRows<Scalars<F16>, 32>,
    }
    spmm_short_rows_f32 {
        spmm_short_rows_f32_l8 => ShortRows<Vectors<F32>, 8>,
        spmm_short_rows_f32_l16 => ShortRows<Vectors<F32>, 16>,
        spmm_short_rows_f32_l32 => ShortRows<Vectors<F32>, 32>,
        spmm_short_rows_f32_elements => ShortRows<Scalars<F32>, 32>,
    }
    spmm_short_rows_bf16 {
        spmm_short_rows_bf16_l4 => ShortRows<Vectors<Bf16>, 4>,
        spmm_short_rows_bf16_l8 => ShortRows<Vectors<Bf16>, 8>,
        spmm_short_rows_bf16_l16 => ShortRows<Vectors<Bf16>, 16>,
        spmm_short_rows_bf16_l32 => ShortRows<Vectors<Bf16>, 32>,
        spmm_short_rows_bf16_elements => ShortRows<Scalars<Bf16>, 32>,
    }
    spmm_short_rows_tf32 {
        spmm_short_rows_tf32_l8 => ShortRows<Vectors<Tf32>, 8>,
        spmm_short_rows_tf32_l16 => ShortRows<Vectors<Tf32>, 16>,
        spmm_short_rows_tf32_l32 => ShortRows<Vectors<Tf32>, 32>,
        spmm_short_rows_tf32_elements => ShortRows<Scalars<Tf32>, 32>,
    }
    spmm_short_rows_f64 {
        spmm_short_rows_f64_l8 => ShortRows<Vectors<F64>, 8>,
        spmm_short_rows_f64_l16 => ShortRows<Vectors<F64>, 16>,
        spmm_short_rows_f64_l32 => ShortRows<Vectors<F64>, 32>,
        spmm_short_rows_f64_elements => ShortRows<Scalars<F64>, 32>,
    }
    spmm_tile_stream_f16 {
        spmm_tile_stream_f16_64 => TileStream<F16, Bulk, 1, 3>,
        spmm_tile_stream_f16_128 => TileStream<F16, Bulk, 2, 3>,
        spmm_tile_stream_f16_elements => TileStream<F16, ByElement, 1, 2>,
    }
    spmm_tile_stream_bf16 {
        spmm_tile_stream_bf16_64 => TileStream<Bf16, Bulk, 1, 3>,
        spmm_tile_stream_bf16_128 => TileStream<Bf16, Bulk, 2, 3>,
        spmm_tile_stream_bf16_elements => TileStream<Bf16, ByElement, 1, 2>,
    }
    spmm_tile_stream_tf32 {
        spmm_tile_stream_tf32_32 => TileStream<Tf32, Bulk, 1, 3>,
        spmm_tile_stream_tf32_64 => TileStream<Tf32, Bulk, 2, 3>,
        spmm_tile_stream_tf32_elements => TileStream<Tf32, ByElement, 1, 2>,
    }
    spmm_tile_stream_f16_packed {
        spmm_tile_stream_f16_64_packed => TileStream<F16, Bulk, 1, 3, Packed>,
        spmm_tile_stream_f16_128_packed => TileStream<F16, Bulk, 2, 3, Packed>,
        spmm_tile_stream_f16_elements_packed => TileStream<F16, ByElement, 1, 3, Packed>,
    }
    spmm_tile_stream_bf16_packed {
        spmm_tile_stream_bf16_64_packed => TileStream<Bf16, Bulk, 1, 3, Packed>,
        spmm_tile_stream_bf16_128_packed => TileStream<Bf16, Bulk, 2, 3, Packed>,
        spmm_tile_stream_bf16_elements_packed => TileStream<Bf16, ByElement, 1, 3, Packed>,
    }
    spmm_tile_stream_tf32_packed {
        spmm_tile_stream_tf32_32_packed => TileStream<Tf32, Bulk, 1, 3, Packed>,
        spmm_tile_stream_tf32_64_packed => TileStream<Tf32, Bulk, 2, 3, Packed>,
        spmm_tile_stream_tf32_elements_packed => TileStream<Tf32, ByElement, 1, 3, Packed>,
    }
    spmm_tile_stream_f16_bitmap {
        spmm_tile_stream_f16_64_bitmap => TileStream<F16, Bulk, 1, 3, Packed<Bitmaps>>,
        spmm_tile_stream_f16_128_bitmap => TileStream<F16, Bulk, 2, 3, Packed<Bitmaps>>,
        spmm_tile_stream_f16_elements_bitmap => TileStream<F16, ByElement, 1, 3, Packed<Bitmaps>>,
    }
    spmm_tile_stream_bf16_bitmap {
        spmm_tile_stream_bf16_64_bitmap => TileStream<Bf16, Bulk, 1, 3, Packed<Bitmaps>>,
        spmm_tile_stream_bf16_128_bitmap => TileStream<Bf16, Bulk, 2, 3, Packed<Bitmaps>>,
        spmm_tile_stream_bf16_elements_bitmap => TileStream<Bf16, ByElement, 1, 3, Packed<Bitmaps>>,
    }
    spmm_tile_stream_tf32_bitmap {
        spmm_tile_stream_tf32_32_bitmap => TileStream<Tf32, Bulk, 1, 3, Packed<Bitmaps>>,
        spmm_tile_stream_tf32_64_bitmap => TileStream<Tf32, Bulk, 2, 3, Packed<Bitmaps>>,
        spmm_tile_stream_tf32_elements_bitmap => TileStream<Tf32, ByElement, 1, 3, Packed<Bitmaps>>,
    }
    spmm_tile_stream_f16_two_stages {
        spmm_tile_stream_f16_64_two_stages => TileStream<F16, Bulk, 1, 2>,
        spmm_tile_stream_f16_128_two_stages => TileStream<F16, Bulk, 2, 2>,
        spmm_tile_stream_f16_64_packed_two_stages => TileStream<F16, Bulk, 1, 2, Packed>,
        spmm_tile_stream_f16_128_packed_two_stages => TileStream<F16, Bulk, 2, 2, Packed>,
        spmm_tile_stream_f16_64_bitmap_two_stages => TileStream<F16, Bulk, 1, 2, Packed<Bitmaps>>,
        spmm_tile_stream_f16_128_bitmap_two_stages => TileStream<F16, Bulk, 2, 2, Packed<Bitmaps>>,
    }
    spmm_tile_stream_f16_registers {
        spmm_tile_stream_f16_64_registers => RegisterStream<1>,
        spmm_tile_stream_f16_128_registers => RegisterStream<2>,
        spmm_tile_stream_f16_64_packed_registers => RegisterStream<1, Packed>,
        spmm_tile_stream_f16_128_packed_registers => RegisterStream<2, Packed>,
        spmm_tile_stream_f16_64_bitmap_registers => RegisterStream<1, Packed<Bitmaps>>,
        spmm_tile_stream_f16_128_bitmap_registers => RegisterStream<2, Packed<Bitmaps>>,
    }
    spmm_row_groups_f32 {
        spmm_row_groups_f32_c1 => RowGroups<F32, 1>,
        spmm_row_groups_f32_c2 => RowGroups<F32, 2>,
        spmm_row_groups_f32_c4 => RowGroups<F32, 4>,
    }
    spmm_row_groups_f16 {
        spmm_row_groups_f16_c1 => RowGroups<F16, 1>,
        spmm_row_groups_f16_c2 => RowGroups<F16, 2>,
        spmm_row_groups_f16_c4 => RowGroups<F16, 4>,
    }
    spmm_row_groups_f64 {
        spmm_row_groups_f64_c1 => RowGroups<F64, 1>,
        spmm_row_groups_f64_c2 => RowGroups<F64, 2>,
        spmm_row_groups_f64_c4 => RowGroups<F64, 4>,
    }
    spmm_nonzero_groups_f32_n1 {
        spmm_nonzero_groups_f32_n1c1 => NonzeroGroups<F32, 1, 1>,
        spmm_nonzero_groups_f32_n1c2 => NonzeroGroups<F32, 1, 2>,
        spmm_nonzero_groups_f32_n1c4 => NonzeroGroups<F32, 1, 4>,
    }
    spmm_nonzero_groups_f32_n2 {
        spmm_nonzero_groups_f32_n2c1 => NonzeroGroups<F32, 2, 1>,
        spmm_nonzero_groups_f32_n2c2 => NonzeroGroups<F32, 2, 2>,
        spmm_nonzero_groups_f32_n2c4 => NonzeroGroups<F32, 2, 4>,
    }
    spmm_nonzero_groups_f32_n4 {
        spmm_nonzero_groups_f32_n4c1 => NonzeroGroups<F32, 4, 1>,
        spmm_nonzero_groups_f32_n4c2 => NonzeroGroups<F32, 4, 2>,
        spmm_nonzero_groups_f32_n4c4 => NonzeroGroups<F32, 4, 4>,
    }
    spmm_nonzero_groups_f16_n1 {
        spmm_nonzero_groups_f16_n1c1 => NonzeroGroups<F16, 1, 1>,
        spmm_nonzero_groups_f16_n1c2 => NonzeroGroups<F16, 1, 2>,
        spmm_nonzero_groups_f16_n1c4 => NonzeroGroups<F16, 1, 4>,
    }
    spmm_nonzero_groups_f16_n2 {
        spmm_nonzero_groups_f16_n2c1 => NonzeroGroups<F16, 2, 1>,
        spmm_nonzero_groups_f16_n2c2 => NonzeroGroups<F16, 2, 2>,
        spmm_nonzero_groups_f16_n2c4 => NonzeroGroups<F16, 2, 4>,
    }
    spmm_nonzero_groups_f16_n4 {
        spmm_nonzero_groups_f16_n4c1 => NonzeroGroups<F16, 4, 1>,
        spmm_nonzero_groups_f16_n4c2 => NonzeroGroups<F16, 4, 2>,
        spmm_nonzero_groups_f16_n4c4 => NonzeroGroups<F16, 4, 4>,
    }
    spmm_nonzero_groups_f64_n1 {
        spmm_nonzero_groups_f64_n1c1 => NonzeroGroups<F64, 1, 1>,
        spmm_nonzero_groups_f64_n1c2 => NonzeroGroups<F64, 1, 2>,
        spmm_nonzero_groups_f64_n1c4 => NonzeroGroups<F64, 1, 4>,
    }
    spmm_nonzero_groups_f64_n2 {
        spmm_nonzero_groups_f64_n2c1 => NonzeroGroups<F64, 2, 1>,
        spmm_nonzero_groups_f64_n2c2 => NonzeroGroups<F64, 2, 2>,
        spmm_nonzero_groups_f64_n2c4 => NonzeroGroups<F64, 2, 4>,
    }
    spmm_nonzero_groups_f64_n4 {
        spmm_nonzero_groups_f64_n4c1 => NonzeroGroups<F64, 4, 1>,
        spmm_nonzero_groups_f64_n4c2 => NonzeroGroups<F64, 4, 2>,
        spmm_nonzero_groups_f64_n4c4 => NonzeroGroups<F64, 4, 4>,
    }
    spmm_row_panels {
        spmm_row_panels_c32 => RowPanels<8, 1, true>,
        spmm_row_panels_c64 => RowPanels<16, 1, true>,
        spmm_row_panels_c128 => RowPanels<32, 1, true>,
        spmm_row_panels_c256 => RowPanels<32, 2, true>,
        spmm_row_panels_elements => RowPanels<32, 1, false>,
    }
    spmm_matricized_rows {
        spmm_matricized_rows => MatricizedRows<RowMajor>,
        spmm_matricized_rows_elements => MatricizedRows<RowMajorElements>,
        spmm_matricized_rows_column_major => MatricizedRows<ColumnMajor>,
    }
    spmm_merge_path_f32 {
        spmm_merge_path_f32_s3 => MergePath<F32, 1>,
        spmm_merge_path_f32_s7 => MergePath<F32, 2>,
        spmm_merge_path_f32_s15 => MergePath<F32, 4>,
    }
    spmm_merge_path_f16 {
        spmm_merge_path_f16_s3 => MergePath<F16, 1>,
        spmm_merge_path_f16_s7 => MergePath<F16, 2>,
        spmm_merge_path_f16_s15 => MergePath<F16, 4>,
    }
    spmm_merge_path_bf16 {
        spmm_merge_path_bf16_s3 => MergePath<Bf16, 1>,
        spmm_merge_path_bf16_s7 => MergePath<Bf16, 2>,
        spmm_merge_path_bf16_s15 => MergePath<Bf16, 4>,
    }
    spmm_merge_path_tf32 {
        spmm_merge_path_tf32_s3 => MergePath<Tf32, 1>,
        spmm_merge_path_tf32_s7 => MergePath<Tf32, 2>,
        spmm_merge_path_tf32_s15 => MergePath<Tf32, 4>,
    }
    spmm_merge_based_f32_l8 {
        spmm_merge_based_f32_l8 => MergeBased<Vectors<F32>, 8>,
    }
    spmm_merge_based_f32_l16 {
        spmm_merge_based_f32_l16 => MergeBased<Vectors<F32>, 16>,
    }
    spmm_merge_based_f32_l32 {
        spmm_merge_based_f32_l32 => MergeBased<Vectors<F32>, 32>,
    }
    spmm_merge_based_f32_elements_l1 {
        spmm_merge_based_f32_elements_l1 => MergeBased<Scalars<F32>, 1>,
    }
    spmm_merge_based_f32_elements_l8 {
        spmm_merge_based_f32_elements_l8 => MergeBased<Scalars<F32>, 8>,
    }
    spmm_merge_based_f32_elements_l32 {
        spmm_merge_based_f32_elements_l32 => MergeBased<Scalars<F32>, 32>,
    }
    spmm_merge_based_f16_l4 {
        spmm_merge_based_f16_l4 => MergeBased<Vectors<F16>, 4>,
    }
    spmm_merge_based_f16_l8 {
        spmm_merge_based_f16_l8 => MergeBased<Vectors<F16>, 8>,
    }
    spmm_merge_based_f16_l16 {
        spmm_merge_based_f16_l16 => MergeBased<Vectors<F16>, 16>,
    }
    spmm_merge_based_f16_l32 {
        spmm_merge_based_f16_l32 => MergeBased<Vectors<F16>, 32>,
    }
    spmm_merge_based_f16_elements_l1 {
        spmm_merge_based_f16_elements_l1 => MergeBased<Scalars<F16>, 1>,
    }
    spmm_merge_based_f16_elements_l8 {
        spmm_merge_based_f16_elements_l8 => MergeBased<Scalars<F16>, 8>,
    }
    spmm_merge_based_f16_elements_l32 {
        spmm_merge_based_f16_elements_l32 => MergeBased<Scalars<F16>, 32>,
    }
    spmm_merge_based_bf16_l4 {
        spmm_merge_based_bf16_l4 => MergeBased<Vectors<Bf16>, 4>,
    }
    spmm_merge_based_bf16_l8 {
        spmm_merge_based_bf16_l8 => MergeBased<Vectors<Bf16>, 8>,
    }
    spmm_merge_based_bf16_l16 {
        spmm_merge_based_bf16_l16 => MergeBased<Vectors<Bf16>, 16>,
    }
    spmm_merge_based_bf16_l32 {
        spmm_merge_based_bf16_l32 => MergeBased<Vectors<Bf16>, 32>,
    }
    spmm_merge_based_bf16_elements_l1 {
        spmm_merge_based_bf16_elements_l1 => MergeBased<Scalars<Bf16>, 1>,
    }
    spmm_merge_based_bf16_elements_l8 {
        spmm_merge_based_bf16_elements_l8 => MergeBased<Scalars<Bf16>, 8>,
    }
    spmm_merge_based_bf16_elements_l32 {
        spmm_merge_based_bf16_elements_l32 => MergeBased<Scalars<Bf16>, 32>,
    }
    spmm_merge_based_f64_l8 {
        spmm_merge_based_f64_l8 => MergeBased<Vectors<F64>, 8>,
    }
    spmm_merge_based_f64_l16 {
        spmm_merge_based_f64_l16 => MergeBased<Vectors<F64>, 16>,
    }
    spmm_merge_based_f64_l32 {
        spmm_merge_based_f64_l32 => MergeBased<Vectors<F64>, 32>,
    }
    spmm_merge_based_f64_elements_l1 {
        spmm_merge_based_f64_elements_l1 => MergeBased<Scalars<F64>, 1>,
    }
    spmm_merge_based_f64_elements_l8 {
        spmm_merge_based_f64_elements_l8 => MergeBased<Scalars<F64>, 8>,
    }
    spmm_merge_based_f64_elements_l32 {
        spmm_merge_based_f64_elements_l32 => MergeBased<Scalars<F64>, 32>,
    }
    spmm_carried_rows {
        spmm_carried_rows => CarriedRows<f32>,
    }
    spmm_carried_rows_f64 {
        spmm_carried_rows_f64 => CarriedRows<f64>,
    }
    spmm_combine {
        spmm_combine => Combine<f32>,
    }
    spmm_combine_f64 {
        spmm_combine_f64 => Combine<f64>,
    }
    spmm_place_values {
        place_values => PlaceValues<f32>,
    }
    spmm_place_values_f64 {
        place_values_f64 => PlaceValues<f64>,
    }
}

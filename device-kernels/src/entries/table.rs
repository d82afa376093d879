//! The table of entry points: one line each.

use windrow_simt::Simt;

use super::run_bytes;
use crate::arch::Arch;
use crate::atomic_entries::AtomicEntries;
use crate::check::Check;
use crate::csr::{
    CountCuts, CountOrdered, CountParts, CutRows, ExpandRows, MarkColumns, MarkDistinct, MarkOrdered,
    OrderSegments, ReadCsr, SplitEntries, SpreadCsr, SumCuts, SumEntries, TransposeEntries, TransposeFew,
    TransposeParts,
};
use crate::deal::{CountWindows, OrderWindows, PlacePieces, ScheduleWindows};
use crate::element::{Bf16, F16, F32, F64, Scalars, Tf32, Vectors};
use crate::gather_probe::GatherProbe;
use crate::groups::{CountPieces, ListGroupPieces, ListRows, StartWords};
use crate::hybrid::{
    CountRest, CutRest, JudgeRows, KeyRows, ListShort, MarkShort, MeasureRest, SumRest, SumShort,
};
use crate::kernel::{Entry, Family, Kernel};
use crate::nm::{
    self, Bits16, Block, ByColumn, ByLane, ByWarp, NmCombine, NmCudaCores, NmSparse, NmStage, NmTensorCores,
    NmWeights, Single, Widened,
};
use crate::paths::{ChainShares, FillSteps, ListShares, MarkShares, NextShares};
use crate::patterns::{
    CountBatches, CountClasses, CountTiles, ListBatches, ListRest, MarkRest, PlaceClasses, RankVectors,
    SampleTiles,
};
use crate::place_values::PlaceValues;
use crate::preprocess::{
    DistributeEntries, DistributeVectors, GatherValues, KeepEntries, ListStreamPieces, ListVectors,
    ListWorkers, MergeColumns, PlaceAllRows, PlaceRows, PlaceWindows, RowLengths, TileRecords, TileSteps,
};
use crate::reorder::{
    ClusterKeys, CollectCandidates, CountColumns, CountLists, CountUnions, CountVectors, ListFilled,
    ListLeft, ListPairs, MarkPairs, Match, PairLeft, PlaceOrder, Propose, WriteLists, WriteUnions,
};
use crate::row_softmax::{EightLanes, RowSoftmax, RowSoftmaxGrad, WholeBlock};
use crate::scan;
use crate::sddmm::{Scan, SddmmEntries, SddmmGroups, SddmmTiles};
use crate::sort::{SortCount, SortScan, SortScatter};
use crate::spmm::combine::Combine;
use crate::spmm::matricized_rows::{ColumnMajor, MatricizedRows, RowMajor, RowMajorElements};
use crate::spmm::merge_based::{CarriedRows, MergeBased};
use crate::spmm::merge_path::MergePath;
use crate::spmm::row_split::RowSplit;
use crate::spmm::segment_group::{Mttkrp, NonzeroGroups, RowGroups};
use crate::spmm::short_rows::ShortRows;
use crate::spmm::tile_stream::{Bitmaps, Bulk, ByElement, Packed, RegisterStream, TileStream};
use crate::tensors::{ListLevels, MarkPaths, ReadCoo3, SliceOffsets};
use crate::training::{Adam, ColumnSums, CrossEntropy, NormalizeRows, NormalizeRowsGrad, Pointwise};

entries! {
    @from Sm80:
    Spmm {
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
    Tensor {
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
    Sddmm {
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
    }
    Softmax {
        softmax {
            row_softmax_short => RowSoftmax<EightLanes>,
            row_softmax_long => RowSoftmax<WholeBlock>,
        }
        softmax_grad {
            row_softmax_grad_short => RowSoftmaxGrad<EightLanes>,
            row_softmax_grad_long => RowSoftmaxGrad<WholeBlock>,
        }
    }
    Nm {
        nm_f32_128x128 {
            nm_f32_128x128 => NmCudaCores<ByWarp, 16, 8, 4>,
        }
        nm_f32_64x128 {
            nm_f32_64x128 => NmCudaCores<ByWarp, 8, 8, 4>,
        }
        nm_f32_64x64 {
            nm_f32_64x64 => NmCudaCores<ByWarp, 8, 8, 2>,
        }
        nm_f32_32x64 {
            nm_f32_32x64 => NmCudaCores<ByWarp, 4, 8, 2>,
        }
        nm_f32_32x32 {
            nm_f32_32x32 => NmCudaCores<ByWarp, 4, 4, 2>,
        }
        nm_f32_128x128_single {
            nm_f32_128x128_single => NmCudaCores<ByWarp, 16, 8, 4, Single>,
        }
        nm_f32_64x128_single {
            nm_f32_64x128_single => NmCudaCores<ByWarp, 8, 8, 4, Single>,
        }
        nm_f32_128x128_by8 {
            nm_f32_128x128_by8 => NmCudaCores<ByLane, 16, 8, 4>,
        }
        nm_f32_32x64_by8 {
            nm_f32_32x64_by8 => NmCudaCores<ByLane, 4, 8, 2>,
        }
        nm_f32_128x64_by4 {
            nm_f32_128x64_by4 => NmCudaCores<ByLane, 16, 4, 4>,
        }
        nm_f32_32x32_by4 {
            nm_f32_32x32_by4 => NmCudaCores<ByLane, 4, 4, 2>,
        }
        nm_f32_32x32_by1 {
            nm_f32_32x32_by1 => NmCudaCores<ByColumn, 4, 4, 2>,
        }
        nm_f16_64x512_128 {
            nm_f16_64x512_128 => NmTensorCores<F16, Block<16, 32, 128, 4>, 4>,
        }
        nm_f16_64x512_256 {
            nm_f16_64x512_256 => NmTensorCores<F16, Block<16, 32, 256, 3>, 4>,
        }
        nm_f16_64x512_by16 {
            nm_f16_64x512_by16 => NmTensorCores<F16, Block<16, 16, 256, 3>, 4>,
        }
        nm_f16_32x512_by8 {
            nm_f16_32x512_by8 => NmTensorCores<F16, Block<16, 8, 256, 3>, 2>,
        }
        nm_f16_64x256 {
            nm_f16_64x256 => NmTensorCores<F16, Block<8, 32, 256, 3>, 4>,
        }
        nm_f16_32x256 {
            nm_f16_32x256 => NmTensorCores<F16, Block<8, 32, 256, 3>, 2>,
        }
        nm_f16_16x128 {
            nm_f16_16x128 => NmTensorCores<F16, Block<4, 32, 128, 4>, 1>,
        }
        nm_bf16_64x512_128 {
            nm_bf16_64x512_128 => NmTensorCores<Bf16, Block<16, 32, 128, 4>, 4>,
        }
        nm_bf16_64x512_256 {
            nm_bf16_64x512_256 => NmTensorCores<Bf16, Block<16, 32, 256, 3>, 4>,
        }
        nm_bf16_64x512_by16 {
            nm_bf16_64x512_by16 => NmTensorCores<Bf16, Block<16, 16, 256, 3>, 4>,
        }
        nm_bf16_32x512_by8 {
            nm_bf16_32x512_by8 => NmTensorCores<Bf16, Block<16, 8, 256, 3>, 2>,
        }
        nm_bf16_64x256 {
            nm_bf16_64x256 => NmTensorCores<Bf16, Block<8, 32, 256, 3>, 4>,
        }
        nm_bf16_32x256 {
            nm_bf16_32x256 => NmTensorCores<Bf16, Block<8, 32, 256, 3>, 2>,
        }
        nm_bf16_16x128 {
            nm_bf16_16x128 => NmTensorCores<Bf16, Block<4, 32, 128, 4>, 1>,
        }
        nm_tf32_64x512_64 {
            nm_tf32_64x512_64 => NmTensorCores<Tf32, Block<16, 32, 64, 5>, 4>,
        }
        nm_tf32_64x512_128 {
            nm_tf32_64x512_128 => NmTensorCores<Tf32, Block<16, 32, 128, 4>, 4>,
        }
        nm_tf32_64x256 {
            nm_tf32_64x256 => NmTensorCores<Tf32, Block<8, 32, 128, 4>, 4>,
        }
        nm_tf32_64x256_by16 {
            nm_tf32_64x256_by16 => NmTensorCores<Tf32, Block<8, 16, 128, 4>, 4>,
        }
        nm_tf32_64x256_by8 {
            nm_tf32_64x256_by8 => NmTensorCores<Tf32, Block<8, 8, 128, 4>, 4>,
        }
        nm_tf32_32x128 {
            nm_tf32_32x128 => NmTensorCores<Tf32, Block<4, 32, 64, 4>, 2>,
        }
        nm_combine {
            nm_combine => NmCombine,
        }
        nm_stage {
            nm_stage_16bit => NmStage<Bits16, true>,
            nm_stage_16bit_elements => NmStage<Bits16, false>,
            nm_stage_f32 => NmStage<Widened<F32>, true>,
            nm_stage_f32_elements => NmStage<Widened<F32>, false>,
            nm_stage_tf32 => NmStage<Widened<Tf32>, true>,
            nm_stage_tf32_elements => NmStage<Widened<Tf32>, false>,
            nm_stage_f16_to_f32 => NmStage<Widened<F16>, true>,
            nm_stage_f16_to_f32_elements => NmStage<Widened<F16>, false>,
            nm_stage_bf16_to_f32 => NmStage<Widened<Bf16>, true>,
            nm_stage_bf16_to_f32_elements => NmStage<Widened<Bf16>, false>,
        }
        nm_weights {
            nm_weights => NmWeights,
        }
    }
    Training {
        training {
            training_pointwise => Pointwise,
            training_cross_entropy => CrossEntropy,
            training_normalize_rows => NormalizeRows,
            training_normalize_rows_grad => NormalizeRowsGrad,
            training_column_sums => ColumnSums,
            training_adam => Adam,
        }
    }
    Preprocess {
        preprocess {
            scan => scan::Scan,
            scan_add => scan::ScanAdd,
            preprocess_row_lengths => RowLengths,
            preprocess_place_rows => PlaceRows,
            preprocess_place_all_rows => PlaceAllRows,
            preprocess_merge_columns => MergeColumns,
            preprocess_list_vectors => ListVectors,
            preprocess_list_pieces => ListStreamPieces,
            preprocess_list_workers => ListWorkers,
            preprocess_tile_steps => TileSteps,
            preprocess_distribute_vectors => DistributeVectors,
            preprocess_distribute_entries => DistributeEntries,
            preprocess_keep_entries => KeepEntries,
            preprocess_place_windows => PlaceWindows,
            preprocess_gather_values_16bit => GatherValues<F16>,
            preprocess_gather_values_32bit => GatherValues<Tf32>,
            preprocess_tile_records_16bit => TileRecords<F16>,
            preprocess_tile_records_32bit => TileRecords<Tf32>,
        }
        preprocess_deal {
            deal_count_windows => CountWindows,
            deal_order_windows => OrderWindows,
            deal_schedule_windows => ScheduleWindows,
            deal_place_pieces => PlacePieces,
        }
        preprocess_csr {
            csr_read => ReadCsr,
            csr_mark_columns => MarkColumns,
            csr_count_cuts => CountCuts,
            csr_sum_cuts => SumCuts,
            csr_cut_rows => CutRows,
            csr_spread => SpreadCsr,
        }
        preprocess_transpose {
            csr_expand_rows => ExpandRows,
            csr_transpose_entries => TransposeEntries,
            csr_mark_distinct => MarkDistinct,
            csr_sum_entries => SumEntries,
        }
        preprocess_order {
            csr_count_ordered => CountOrdered,
            csr_order_segments => OrderSegments,
            csr_mark_ordered => MarkOrdered,
        }
        preprocess_ranges {
            csr_transpose_few => TransposeFew,
            csr_split_entries => SplitEntries,
            csr_count_parts => CountParts,
            csr_transpose_parts => TransposeParts,
        }
        preprocess_tensors {
            tensors_read => ReadCoo3,
            tensors_mark_paths => MarkPaths,
            tensors_list_levels => ListLevels,
            tensors_slice_offsets => SliceOffsets,
        }
        preprocess_sort {
            sort_count => SortCount,
            sort_scan => SortScan,
            sort_scatter => SortScatter,
        }
        preprocess_reorder {
            reorder_list_filled => ListFilled,
            reorder_count_columns => CountColumns,
            reorder_count_lists => CountLists,
            reorder_write_lists => WriteLists,
            reorder_cluster_keys => ClusterKeys,
            reorder_collect_candidates => CollectCandidates,
            reorder_propose => Propose,
            reorder_match => Match,
            reorder_list_left => ListLeft,
            reorder_pair_left => PairLeft,
            reorder_mark_pairs => MarkPairs,
            reorder_list_pairs => ListPairs,
            reorder_count_unions => CountUnions,
            reorder_write_unions => WriteUnions,
            reorder_place_order => PlaceOrder,
            reorder_count_vectors => CountVectors,
        }
        preprocess_patterns {
            patterns_count_batches => CountBatches,
            patterns_list_batches => ListBatches,
            patterns_rank_vectors => RankVectors,
            patterns_mark_rest => MarkRest,
            patterns_list_rest => ListRest,
            patterns_count_tiles => CountTiles,
            patterns_sample_tiles => SampleTiles,
        }
        preprocess_paths {
            paths_next_shares => NextShares,
            paths_chain_shares => ChainShares,
            paths_mark_shares => MarkShares,
            paths_list_shares => ListShares,
            paths_fill_steps => FillSteps,
        }
        preprocess_groups {
            groups_list_rows => ListRows,
            groups_start_words => StartWords,
            groups_count_pieces => CountPieces,
            groups_list_pieces => ListGroupPieces,
        }
        preprocess_hybrid {
            hybrid_judge_rows => JudgeRows,
            hybrid_key_rows => KeyRows,
            hybrid_mark_short => MarkShort,
            hybrid_sum_short => SumShort,
            hybrid_list_short => ListShort,
            hybrid_measure_rest => MeasureRest,
            hybrid_count_rest => CountRest,
            hybrid_sum_rest => SumRest,
            hybrid_cut_rest => CutRest,
        }
        preprocess_softmax {
            patterns_count_classes => CountClasses,
            patterns_place_classes => PlaceClasses,
        }
    }
    Check {
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
    Probe {
        probe {
            gather_probe => GatherProbe,
        }
    }

    @from Sm90:
    Nm {
        nm_f32_128x128_bulk {
            nm_f32_128x128_bulk => NmCudaCores<ByWarp, 16, 8, 4, nm::Bulk>,
        }
        nm_f32_64x128_bulk {
            nm_f32_64x128_bulk => NmCudaCores<ByWarp, 8, 8, 4, nm::Bulk>,
        }
    }

    @from Sm90a:
    Nm {
        nm_sparse_f16_256x128 {
            nm_sparse_f16_256x128 => NmSparse<F16, 1, 128, 4>,
        }
        nm_sparse_f16_176x256 {
            nm_sparse_f16_176x256 => NmSparse<F16, 2, 88, 4>,
        }
        nm_sparse_f16_128x128 {
            nm_sparse_f16_128x128 => NmSparse<F16, 1, 64, 6>,
        }
        nm_sparse_f16_64x128 {
            nm_sparse_f16_64x128 => NmSparse<F16, 1, 32, 8>,
        }
        nm_sparse_bf16_256x128 {
            nm_sparse_bf16_256x128 => NmSparse<Bf16, 1, 128, 4>,
        }
        nm_sparse_bf16_176x256 {
            nm_sparse_bf16_176x256 => NmSparse<Bf16, 2, 88, 4>,
        }
        nm_sparse_bf16_128x128 {
            nm_sparse_bf16_128x128 => NmSparse<Bf16, 1, 64, 6>,
        }
        nm_sparse_bf16_64x128 {
            nm_sparse_bf16_64x128 => NmSparse<Bf16, 1, 32, 8>,
        }
    }
}

//! Entry points: what makes plans on the device.

use crate::scan;
use crate::csr::{CountCuts, CountOrdered, CountParts, CutRows, ExpandRows, MarkColumns, MarkDistinct, MarkOrdered, OrderSegments, ReadCsr, SplitEntries, SpreadCsr, SumCuts, SumEntries, TransposeEntries, TransposeFew, TransposeParts};
use crate::deal::{CountWindows, OrderWindows, PlacePieces, ScheduleWindows};
use crate::element::{F16, Tf32};
use crate::groups::{CountPieces, ListGroupPieces, ListRows, StartWords};
use crate::hybrid::{CountRest, CutRest, JudgeRows, KeyRows, ListShort, MarkShort, MeasureRest, SumRest, SumShort};
use crate::paths::{ChainShares, FillSteps, ListShares, MarkShares, NextShares};
use crate::panels::{BundleRows, CountSpans, MarkRows, MeasurePositions, MeasureRecords, WritePositions, WriteRecords};
use crate::patterns::{CountBatches, CountClasses, CountTiles, ListBatches, ListRest, MarkRest, PlaceClasses, RankVectors, SampleTiles};
use crate::preprocess::{DistributeEntries, DistributeVectors, GatherValues, KeepEntries, ListStreamPieces, ListVectors, ListWorkers, MergeColumns, PlaceAllRows, PlaceRows, PlaceWindows, RowLengths, TileRecords, TileSteps};
use crate::reorder::{ClusterKeys, CollectCandidates, CountColumns, CountLists, CountUnions, CountVectors, ListFilled, ListLeft, ListPairs, MarkPairs, Match, PairLeft, PlaceOrder, Propose, WriteLists, WriteUnions};
use crate::sort::{SortCount, SortScan, SortScatter};
use crate::tensors::{ListLevels, MarkPaths, ReadCoo3, SliceOffsets};

entries! {
    Preprocess:
    @from Sm80:
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
    preprocess_panels {
        panels_count_spans => CountSpans,
        panels_mark_rows => MarkRows,
        panels_bundle_rows => BundleRows,
        panels_measure_records => MeasureRecords,
        panels_write_records => WriteRecords,
        panels_measure_positions => MeasurePositions,
        panels_write_positions => WritePositions,
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

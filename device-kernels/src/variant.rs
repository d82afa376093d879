//! The keys by which the host picks an entry point.

mod nm;

pub use nm::{NmRows, NmTile};

use crate::attention::ScoreKind;
use crate::element::Dtype;
use crate::spmm::tile_stream::{Form, Pipeline};

/// What distinguishes the entry points: the key by which the host picks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// [`crate::spmm::row_split`]: groups of lanes take segments of rows.
    RowSplit {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Lanes across the width; each covers one 16-byte vector of `B`, or one element.
        lanes: u32,
        /// Nonzeros of one row handled side by side.
        ways: u32,
        /// Whether `B` is read in 16-byte vectors (else element by element, for any alignment).
        vectors: bool,
    },
    /// [`crate::spmm::row_panels`]: blocks take panels of rows, in f32.
    RowPanels {
        /// Columns of a slice of the width.
        slice: u32,
        /// As for [`RowSplit`](Self::RowSplit): whether `B` is read in vectors.
        vectors: bool,
    },
    /// [`crate::spmm::short_rows`]: a group of lanes takes a whole row.
    ShortRows {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// As for [`RowSplit`](Self::RowSplit): lanes across the width.
        lanes: u32,
        /// As for [`RowSplit`](Self::RowSplit): whether `B` is read in vectors.
        vectors: bool,
    },
    /// [`crate::spmm::tile_stream`]: warps take steps of tiles on Tensor Cores.
    TileStream {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Columns of `C` per warp.
        features: u32,
        /// As for [`RowSplit`](Self::RowSplit): whether `B` is read in vectors.
        vectors: bool,
        /// In which form records hold the values of tiles.
        form: Form,
        /// How rows of `B` get to the Tensor Cores.
        pipeline: Pipeline,
    },
    /// [`crate::spmm::segment_group::RowGroups`]: threads take whole rows, or share them.
    RowGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::spmm::segment_group::NonzeroGroups`]: threads take entries wherever rows end.
    NonzeroGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Entries that a thread reads at once.
        at_once: u32,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::spmm::matricized_rows`]: a row at a time, laid out as a matrix for Tensor Cores.
    MatricizedRows {
        /// Whether `B` is column-major.
        column_major: bool,
        /// As for [`RowSplit`](Self::RowSplit): whether `B` is read in vectors.
        vectors: bool,
    },
    /// [`crate::spmm::merge_path`]: threads take as many entries and ends of rows.
    MergePath {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Steps of a thread.
        steps: u32,
    },
    /// [`crate::spmm::merge_based::MergeBased`]: groups of lanes take as many entries and ends of rows of a matrix that
    /// is as somebody else keeps it.
    MergeBased {
        /// Type of the elements of `B`.
        dtype: Dtype,
        /// As for [`RowSplit`](Self::RowSplit): lanes across the width.
        lanes: u32,
        /// As for [`RowSplit`](Self::RowSplit): whether `B` is read in vectors.
        vectors: bool,
    },
    /// [`crate::spmm::merge_based::CarriedRows`]: rows that blocks of that have shared.
    CarriedRows {
        /// Bytes of a sum.
        sum_bytes: u32,
    },
    /// [`crate::spmm::segment_group::Mttkrp`]: nonzero groups with two factors.
    Mttkrp {
        /// Type of the tensor's values and of the factors.
        dtype: Dtype,
        /// As for [`NonzeroGroups`](Self::NonzeroGroups): entries that are read at once.
        at_once: u32,
        /// As for [`NonzeroGroups`](Self::NonzeroGroups): columns of a thread.
        columns: u32,
    },
    /// [`crate::atomic_entries`]: every product is one atomic addition.
    AtomicEntries {
        /// Dense matrices that an entry is multiplied by.
        factors: u32,
    },
    /// [`crate::attention::AttentionWindows`]: attention by windows of rows on Tensor Cores.
    AttentionWindows {
        /// Type of `Q`, `K` and `V`.
        dtype: Dtype,
        /// Rows of a window.
        rows: u32,
        /// Whether a column is listed once for all rows of its window.
        shared: bool,
        /// Most columns of the dense operands.
        width: u32,
    },
    /// [`crate::attention::AttentionRows`]: attention by rows on CUDA cores.
    AttentionRows {
        /// How scores are made.
        scores: ScoreKind,
        /// Type of `V`, and of `Q` and `K` unless scores are additive.
        dtype: Dtype,
        /// Whether they are read in 16-byte vectors.
        vectors: bool,
        /// Most columns of the dense operands.
        width: u32,
    },
    /// [`crate::attention::AttentionJoin`]: windows whose entries several blocks have shared.
    AttentionJoin,
    /// [`crate::attention::AttentionGradient`]: the gradients of attention, over rows or over columns.
    AttentionGradient {
        /// Whether it walks columns.
        over_columns: bool,
        /// How scores are made.
        scores: ScoreKind,
        /// Type of `V` and the gradient of the result, and of `Q` and `K` unless scores are additive.
        dtype: Dtype,
        /// Whether they are read in 16-byte vectors.
        vectors: bool,
        /// Most columns of the dense operands.
        width: u32,
    },
    /// [`crate::attention::AttentionGradientWindows`]: the gradients of attention on Tensor Cores.
    AttentionGradientWindows {
        /// Whether it walks columns.
        over_columns: bool,
        /// Type of the operands.
        dtype: Dtype,
        /// Most columns of the dense operands.
        width: u32,
    },
    /// [`crate::attention::AttentionGradientJoin`]: rows and columns whose entries several blocks have shared.
    AttentionGradientJoin,
    /// [`crate::aggregate::Aggregate`]: reductions over rows, and their gradients over columns.
    Aggregate {
        /// Whether the result is one of the messages.
        picks: bool,
        /// Whether it is a gradient.
        backward: bool,
        /// Type of `X`, or of the gradient of the result.
        dtype: Dtype,
        /// Whether it is read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::aggregate::AggregateSlopes`]: the gradient of the values of a reduction.
    AggregateSlopes {
        /// Type of `X` and of the gradient of the result.
        dtype: Dtype,
        /// Whether they are read in 16-byte vectors.
        vectors: bool,
        /// Columns that the lanes of an entry read together.
        width: u32,
    },
    /// [`crate::aggregate::AggregateJoin`]: rows and columns whose entries several blocks have shared.
    AggregateJoin,
    /// [`crate::sddmm::SddmmTiles`]: tiles of a sampled product on Tensor Cores.
    SddmmTiles {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// Times 64 bytes of a row in flight.
        chunks: u32,
        /// Whether `X` and `Y` are read in 16-byte vectors.
        vectors: bool,
        /// Whether an entry's position is found by scanning, for comparison.
        scans: bool,
    },
    /// [`crate::sddmm::SddmmEntries`]: batches of entries of one row.
    SddmmEntries {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// Whether `X` and `Y` are read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::sddmm::SddmmGroups`]: groups of threads that share an entry's inner dimension.
    SddmmGroups {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// Whether `X` and `Y` are read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::sddmm::SddmmPanels`]: blocks take panels of rows, in f32.
    SddmmPanels {
        /// Columns of the inner dimension at a time.
        slice: u32,
        /// Whether `X` and `Y` are read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::row_softmax::RowSoftmax`]: softmax over each row.
    RowSoftmax {
        /// Whether a row is a block's work, not that of eight lanes.
        long: bool,
    },
    /// [`crate::row_softmax::RowSoftmaxGrad`]: its gradient with respect to the scores.
    RowSoftmaxGrad {
        /// As for [`RowSoftmax`](Self::RowSoftmax): whether a row is a block's.
        long: bool,
    },
    /// [`crate::nm::NmCudaCores`]: N:M products in f32.
    NmCudaCores {
        /// What a block computes.
        tile: NmTile,
        /// Stages that are in shared memory at a time.
        buffers: u32,
        /// Whether they come by bulk copies.
        bulk: bool,
    },
    /// [`crate::nm::NmTensorCores`]: N:M products by MMAs.
    NmTensorCores {
        /// Type of the activations and weights.
        dtype: Dtype,
        /// What a block computes.
        tile: NmTile,
        /// Slots of a stage.
        slots: u32,
    },
    /// [`crate::nm::Warpgroups`]: N:M products by MMAs of warpgroups.
    NmWarpgroups {
        /// Type of activations and weights.
        dtype: Dtype,
        /// Rows and columns of a block.
        tile: NmTile,
        /// Which rows of the weights a tile of columns multiplies.
        rows: NmRows,
    },
    /// [`crate::nm::NmFewRows`]: N:M products of few rows, by MMAs whose rows are columns of `C`.
    NmFewRows {
        /// Type of the activations and weights.
        dtype: Dtype,
        /// What a block computes.
        tile: NmTile,
        /// Whether the MMAs have a sparse operand, for weights that keep two of each four rows.
        sparse: bool,
    },
    /// [`crate::nm::NmCombine`]: adds up the parts of an N:M product.
    NmCombine,
    /// [`crate::nm::NmWeights`]: puts kept values where kernels read them.
    NmWeights,
    /// [`crate::nm::NmTransposed`]: brings kept values into a dense matrix.
    NmTransposed,
    /// [`crate::nm::NmTaken`]: takes those that are kept out of one.
    NmTaken,
    /// [`crate::nm::NmStage`]: brings activations to the layout that kernels read.
    NmStage {
        /// The type that becomes f32; none for elements of 16 bits that stay as they are.
        widened: Option<Dtype>,
        /// Whether activations are read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::place_values`]: new values, rounded and moved to their places.
    PlaceValues {
        /// Bytes of a value as it is given.
        value_bytes: u32,
    },
    /// [`crate::training::Pointwise`]: scale, bias, ReLU and its gate.
    Pointwise,
    /// [`crate::training::CrossEntropy`]: loss and gradient of each row.
    CrossEntropy,
    /// [`crate::training::NormalizeRows`]: rows of length 1.
    NormalizeRows,
    /// [`crate::training::NormalizeRowsGrad`]: the gradient of that.
    NormalizeRowsGrad,
    /// [`crate::training::ColumnSums`]: sums of a chunk of rows.
    ColumnSums,
    /// [`crate::training::Adam`]: a step of the optimiser.
    Adam,
    /// [`crate::spmm::combine`]: adds up the partial sums of cut rows.
    Combine {
        /// Bytes of a sum.
        sum_bytes: u32,
    },
    /// [`crate::scan::Scan`]: exclusive sums inside each block.
    Scan,
    /// [`crate::scan::ScanAdd`]: adds to each block what comes before it.
    ScanAdd,
    /// [`crate::preprocess::RowLengths`]: entries of each row.
    RowLengths,
    /// [`crate::preprocess::PlaceRows`]: rows with and without entries in their windows.
    PlaceRows,
    /// [`crate::preprocess::PlaceAllRows`]: rows in their own order in their windows.
    PlaceAllRows,
    /// [`crate::preprocess::MergeColumns`]: entries of a window by columns.
    MergeColumns,
    /// [`crate::preprocess::ListVectors`]: column vectors of each window.
    ListVectors,
    /// [`crate::preprocess::ListStreamPieces`]: the pieces of windows that were dealt out.
    ListStreamPieces,
    /// [`crate::preprocess::ListWorkers`]: the steps of each worker.
    ListWorkers,
    /// [`crate::deal::CountWindows`]: windows by the class of their length.
    CountWindows,
    /// [`crate::deal::OrderWindows`]: the windows in the order in which they are dealt out.
    OrderWindows,
    /// [`crate::deal::ScheduleWindows`]: the worker of each window.
    ScheduleWindows,
    /// [`crate::deal::PlacePieces`]: the pieces of the workers.
    PlacePieces,
    /// [`crate::preprocess::TileSteps`]: columns and bitmaps of each step.
    TileSteps,
    /// [`crate::preprocess::DistributeVectors`]: which column vectors go to tiles.
    DistributeVectors,
    /// [`crate::preprocess::DistributeEntries`]: which entries are in them, and which are not.
    DistributeEntries,
    /// [`crate::preprocess::KeepEntries`]: brings both to lists of their own.
    KeepEntries,
    /// [`crate::preprocess::PlaceWindows`]: rows that have entries in tiles, without gaps.
    PlaceWindows,
    /// [`crate::preprocess::GatherValues`]: values of the entries that a list names.
    GatherValues {
        /// Bytes of a value.
        value_bytes: u32,
    },
    /// [`crate::preprocess::TileRecords`]: the records of a tile stream.
    TileRecords {
        /// Bytes of a value.
        value_bytes: u32,
    },
    /// [`crate::csr::ReadCsr`]: a matrix that is on the GPU, checked and brought to the form of plans.
    ReadCsr,
    /// [`crate::csr::CountCuts`]: segments and slots of each block of rows.
    CountCuts,
    /// [`crate::csr::SumCuts`]: those of the blocks before each.
    SumCuts,
    /// [`crate::csr::CutRows`]: the segments of rows.
    CutRows,
    /// [`crate::csr::SpreadCsr`]: a checked matrix as row-split takes it, its segments with gaps.
    SpreadCsr,
    /// [`crate::csr::MarkColumns`]: the columns of some rows.
    MarkColumns,
    /// [`crate::csr::CountOrdered`]: segments of rows in an order.
    CountOrdered,
    /// [`crate::csr::OrderSegments`]: segments in an order of the rows.
    OrderSegments,
    /// [`crate::csr::MarkOrdered`]: the columns of listed rows.
    MarkOrdered,
    /// [`crate::csr::ExpandRows`]: the row of each entry.
    ExpandRows,
    /// [`crate::csr::TransposeEntries`]: entries in the order of columns.
    TransposeEntries,
    /// [`crate::csr::TransposeFew`]: the transpose of a matrix with few entries.
    TransposeFew,
    /// [`crate::csr::SplitEntries`]: entries by ranges of columns.
    SplitEntries,
    /// [`crate::csr::CountParts`]: entries of columns in parts of ranges.
    CountParts,
    /// [`crate::csr::TransposeParts`]: the transpose of ranges of columns.
    TransposeParts,
    /// [`crate::csr::MarkDistinct`]: the first entry of each place.
    MarkDistinct,
    /// [`crate::csr::SumEntries`]: the entries of each place added up.
    SumEntries,
    /// [`crate::tensors::ReadCoo3`]: coordinates of a tensor, checked.
    ReadCoo3,
    /// [`crate::tensors::MarkPaths`]: where roots, fibers and entries begin.
    MarkPaths,
    /// [`crate::tensors::ListLevels`]: the roots and fibers.
    ListLevels,
    /// [`crate::tensors::SliceOffsets`]: where slices begin.
    SliceOffsets,
    /// [`crate::sort::SortCount`]: keys of each block by their digit.
    SortCount,
    /// [`crate::sort::SortScan`]: those of the blocks before each.
    SortScan,
    /// [`crate::sort::SortScatter`]: keys in the order of a digit.
    SortScatter,
    /// [`crate::reorder::ListFilled`]: rows with entries, and those without.
    ListFilled,
    /// [`crate::reorder::CountColumns`]: entries of columns.
    CountColumns,
    /// [`crate::reorder::CountLists`]: how many columns a row is compared by.
    CountLists,
    /// [`crate::reorder::WriteLists`]: these columns, listed.
    WriteLists,
    /// [`crate::reorder::ClusterKeys`]: the column of least hash of each cluster.
    ClusterKeys,
    /// [`crate::reorder::CollectCandidates`]: with whom it might be paired.
    CollectCandidates,
    /// [`crate::reorder::Propose`]: with whom it would be.
    Propose,
    /// [`crate::reorder::Match`]: with whom it is.
    Match,
    /// [`crate::reorder::ListLeft`]: who has no partner.
    ListLeft,
    /// [`crate::reorder::PairLeft`]: these paired in their order.
    PairLeft,
    /// [`crate::reorder::MarkPairs`]: the first of each pair.
    MarkPairs,
    /// [`crate::reorder::ListPairs`]: the pairs and their rows.
    ListPairs,
    /// [`crate::reorder::CountUnions`]: how many columns a pair is compared by.
    CountUnions,
    /// [`crate::reorder::WriteUnions`]: these columns, listed.
    WriteUnions,
    /// [`crate::reorder::PlaceOrder`]: where each row is in an order.
    PlaceOrder,
    /// [`crate::reorder::CountVectors`]: column vectors of an order.
    CountVectors,
    /// [`crate::patterns::CountBatches`]: batches of the entries of each row.
    CountBatches,
    /// [`crate::patterns::ListBatches`]: row and beginning of each batch.
    ListBatches,
    /// [`crate::patterns::RankVectors`]: the columns of each window that make tiles full enough.
    RankVectors,
    /// [`crate::patterns::MarkRest`]: which entries are in no tile.
    MarkRest,
    /// [`crate::patterns::ListRest`]: brings these to a list.
    ListRest,
    /// [`crate::patterns::CountTiles`]: tiles of each window.
    CountTiles,
    /// [`crate::patterns::SampleTiles`]: the records of tiles of sampled products.
    SampleTiles,
    /// [`crate::panels::CountSpans`]: how many spans the columns of each panel fill.
    CountSpans,
    /// [`crate::panels::MarkRows`]: which columns of a span each row of a panel has.
    MarkRows,
    /// [`crate::panels::BundleRows`]: the rows of panels that make bundles.
    BundleRows,
    /// [`crate::panels::MeasureRecords`]: how long the records of chunks are.
    MeasureRecords,
    /// [`crate::panels::WriteRecords`]: the records of chunks but for their values.
    WriteRecords,
    /// [`crate::panels::MeasurePositions`]: how long the records of chunks of sampled products are.
    MeasurePositions,
    /// [`crate::panels::WritePositions`]: the records of chunks of sampled products.
    WritePositions,
    /// [`crate::patterns::CountClasses`]: rows of each block by how long a softmax works on them.
    CountClasses,
    /// [`crate::patterns::PlaceClasses`]: rows sorted by that.
    PlaceClasses,
    /// [`crate::paths::NextShares`]: where a share of the path ends from each row on.
    NextShares,
    /// [`crate::paths::ChainShares`]: where shares enter each chunk of rows.
    ChainShares,
    /// [`crate::paths::MarkShares`]: rows that begin shares of the path.
    MarkShares,
    /// [`crate::paths::ListShares`]: the shares of the path.
    ListShares,
    /// [`crate::paths::FillSteps`]: the words of their threads.
    FillSteps,
    /// [`crate::groups::ListRows`]: rows with and without entries.
    ListRows,
    /// [`crate::groups::StartWords`]: where rows start among the entries.
    StartWords,
    /// [`crate::groups::CountPieces`]: pieces of rows in each group of entries.
    CountPieces,
    /// [`crate::groups::ListGroupPieces`]: their slots, and the rows that are cut.
    ListGroupPieces,
    /// [`crate::hybrid::JudgeRows`]: which rows leave the tiles.
    JudgeRows,
    /// [`crate::hybrid::KeyRows`]: the key by which each row is sorted.
    KeyRows,
    /// [`crate::hybrid::MarkShort`]: where blocks of rows of one length begin.
    MarkShort,
    /// [`crate::hybrid::SumShort`]: what short rows add up to.
    SumShort,
    /// [`crate::hybrid::ListShort`]: the arrays of short rows.
    ListShort,
    /// [`crate::hybrid::MeasureRest`]: the longest row outside of tiles.
    MeasureRest,
    /// [`crate::hybrid::CountRest`]: segments and slots of each block of rows outside of tiles.
    CountRest,
    /// [`crate::hybrid::SumRest`]: those of the blocks before each.
    SumRest,
    /// [`crate::hybrid::CutRest`]: the segments of these rows.
    CutRest,
    /// [`crate::check`]: compares an SpMM with its reference.
    Check {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
    },
    /// [`crate::gather_probe`]: measures the gather roofline.
    GatherProbe,
}

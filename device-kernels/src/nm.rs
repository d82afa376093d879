//! Products with vector-wise N:M sparse weights, `C[m × n] ← act(α·A[m × k]·W[k × n] + β·C + bias)`.
//!
//! Of every `M` successive rows of `W`, each run of `L` columns keeps `N` (Ma and others, NM-SpMM, section II). What is
//! kept is a dense matrix of `w = k·N/M` rows; which row of `W`, so of the transposed activations, a kept row came from
//! depends on the run of columns. All kernels but [`NmSparse`] and [`NmFewRows`] read activations `k`-major, where such
//! a row is contiguous.
//!
//! - [`NmCudaCores`]: products in f32, on CUDA cores;
//! - [`NmTensorCores`]: products in f16, bf16 and tf32, on Tensor Cores;
//! - [`NmSparse`]: products in f16 and bf16 with two of each four rows kept, or one, on Hopper's sparse Tensor
//!   Cores; these read row-major activations as they lie;
//! - [`NmPacked`]: the same with two of each four rows kept in an order that each tile of columns has for itself;
//! - [`NmKept`]: products in f16 and bf16 of long vectors, all columns of a tile in one, by warpgroups;
//! - [`NmFewRows`]: products in f16 and bf16 of few rows of row-major activations, as fast as weights are read;
//! - [`NmCombine`]: adds the sums of products that were divided along `k`;
//! - [`NmStage`]: brings activations of any layout to that form;
//! - [`NmWeights`]: brings kept values that are on the GPU to where these read them;
//! - [`NmTransposed`], [`NmTaken`]: bring kept values into a dense matrix, and back, for gradients;
//! - [`Output`]: how sums reach `C`.

mod combine;
mod cuda_cores;
mod few_rows;
mod gradient;
mod operand;
mod stage;
mod tensor_cores;
#[cfg(test)]
mod testing;
mod tile;
mod warpgroups;
mod weights;

pub use crate::output::{Activate, Output, OutputType};
pub use crate::variant::{NmRows, NmTile};
pub use combine::{NmCombine, NmCombineParams};
pub use cuda_cores::{
    Buffers, Bulk, ByColumn, ByLane, ByWarp, Double, NmCudaCores, NmCudaCoresParams, Picks, Single,
};
pub use few_rows::{
    ByMetadata, ByPicks, FEW_ROWS_DEPTH, FEW_ROWS_TURNS, FEW_ROWS_UNIT, FEW_ROWS_WARPS, FewRowsForm,
    NmFewRows, NmFewRowsParams, few_rows_metadata_at, few_rows_pick_index, few_rows_weight_index,
};
pub use gradient::{NmKeptParams, NmTaken, NmTransposed};
pub use operand::NmOperand;
pub use stage::{Bits16, Moved, NmStage, NmStageParams, STAGE_TILE, Widened};
pub use tensor_cores::{
    Block, BlockShape, NmTensorCores, NmTensorCoresParams, STEPS, WARP_COLUMNS, weight_index,
};
pub use warpgroups::{
    Activations, NmKept, NmPacked, NmPickedParams, NmSparse, NmSparseParams, Picked, RUN_COLUMNS, RowMajor,
    SPARSE_METADATA_BYTES, SPARSE_NEUTRAL, SPARSE_VALUE_BYTES, STAGE_SLOTS, StageWeights, TwoOfFour,
    WHOLE_VALUE_BYTES, WarpgroupWork, Warpgroups, Whole, picked_order_index, sparse_metadata_at,
    sparse_value_index, whole_value_index,
};
pub use weights::{NOT_KEPT, NmWeights, NmWeightsParams};

//! What records tell of products of tensors.

use serde::{Deserialize, Serialize};

use crate::measure::{TensorOperation, Timing};

/// One product. Of a tensor that could not be had only the name is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TensorFacts {
    /// Name of the tensor.
    pub(crate) tensor: String,
    pub(crate) dims: [usize; 3],
    /// Its entries, duplicates summed.
    pub(crate) nnz: usize,
    pub(crate) operation: TensorOperation,
    /// The mode that it is for.
    pub(crate) mode: usize,
    /// Fibers of the tensor in the order of modes that the product takes.
    pub(crate) fibers: usize,
    /// Columns of the dense matrices.
    pub(crate) width: usize,
    /// Type of values and matrices.
    pub(crate) precision: String,
    /// `default`, `segment-group` (with a point that the library chooses), a point, or `atomic`.
    pub(crate) path: String,
    /// How what is cut is added; of `atomic`, as it comes.
    pub(crate) determinism: String,
    /// The plan; none for `atomic`.
    pub(crate) plan: Option<TensorPlanFacts>,
    /// Of `atomic`, the time without that of setting the result to zero.
    pub(crate) kernel_time: Option<Timing>,
    /// 10⁹ operations a second.
    pub(crate) gflops: Option<f64>,
}

/// A plan of a product of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TensorPlanFacts {
    /// Entry points that are launched.
    pub(crate) entries: Vec<String>,
    /// The point and its launch.
    pub(crate) parallelism: Option<String>,
    /// Slices or fibers that are cut.
    pub(crate) split_rows: u64,
    /// Device memory of the plan, in bytes.
    pub(crate) device_bytes: u64,
    /// The part of it that is workspace.
    pub(crate) workspace_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub(crate) preprocess_ms: f64,
}

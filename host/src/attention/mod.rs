//! Attention over the entries of a sparse matrix.

mod backward;
mod build;
mod builder;
mod from_device;
mod gpu;
mod host;
mod operands;
mod options;
mod plan;
mod report;
mod verify;
mod windows;

pub use backward::{AttentionBackward, AttentionGradients};
pub use builder::AttentionBuilder;
pub use operands::AttentionOperands;
pub use options::{AttentionAlgorithm, AttentionOptions, AttentionScores, Dropout, HeadLayout};
pub use plan::AttentionPlan;
pub use report::AttentionReport;

use crate::spmm::SparseMatrix;

/// `O = softmax(scale · Q·Kᵀ ⊙ A + bias) · V`, the softmax over the entries of each row of a sparse `A`, in one pass:
/// the way to a plan.
///
/// What a node of a graph gathers from its neighbours, weighted by how well they match it. Scores become weights while
/// entries are walked (online softmax), so that no array holds a number for each entry and head; several heads are one
/// launch. The values of `A` do not matter, and a score of zero is one like any other. Scores may also be
/// [additive](AttentionBuilder::additive), as in graph attention networks (GAT).
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, GraphAttention};
///
/// // Two heads of one column: 3 × 2 operands, a head's columns beside the other's.
/// let a = Csr::try_from_parts(3, 3, vec![0, 1, 3, 3], vec![2, 0, 1], vec![1.0f32; 3])?;
/// let plan = GraphAttention::builder(&a).heads(2).columns(1).build(&Device::best()?)?;
/// let q = [0.0f32; 6]; // all scores are 0: means
/// let v = [1.0, 10.0, 3.0, 30.0, 5.0, 50.0];
/// assert_eq!(plan.run(1.0, &q, &v, &v)?, [5.0, 50.0, 2.0, 20.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct GraphAttention;

impl GraphAttention {
    /// Starts a plan for attention over the entries of `a`, a [`Csr`](windrow_formats::Csr) in host memory or a
    /// [`DeviceCsr`](crate::DeviceCsr) in that of a device. The plan keeps what it needs; `a` may be dropped after
    /// [`build`](AttentionBuilder::build) or [`build_on`](AttentionBuilder::build_on).
    pub fn builder<A: SparseMatrix>(a: &A) -> AttentionBuilder<'_, A> {
        AttentionBuilder::new(a)
    }
}

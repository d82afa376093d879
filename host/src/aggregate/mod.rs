//! Reductions over the neighbours of a graph's nodes: sums, means, maxima and minima of messages.

mod build;
mod builder;
mod gpu;
mod host;
mod operands;
mod options;
mod plan;
mod report;

pub use builder::AggregateBuilder;
pub use operands::{AggregateBackward, AggregateGradients, AggregateOperands};
pub use options::{AggregateOptions, Message, Reduce};
pub use plan::AggregatePlan;
pub use report::AggregateReport;

use crate::spmm::SparseMatrix;

/// `out[i, c] = reduce over the entries (i, j) of row i of message(A[i, j], X[j, c])`, for a sparse `A` and a dense `X`
/// (g-SpMM): the way to a plan.
///
/// [`Reduce`] is a sum, a mean, a maximum or a minimum; a [`Message`] is the row of `X`, or the entry's value times it
/// or added to it. A row without entries gives zeros. Of a maximum or a minimum the *winners* can be kept, the position
/// of the entry that each element came from, which the gradient needs. For sums of products alone
/// [`Spmm`](crate::Spmm) has faster kernels.
///
/// # Examples
/// ```
/// use windrow::{Aggregate, Csr, Device, Reduce};
///
/// // Node 0 has the neighbours 1 and 2, node 1 has 0, node 2 has none.
/// let a = Csr::try_from_parts(3, 3, vec![0, 2, 3, 3], vec![1, 2, 0], vec![1.0f32; 3])?;
/// let plan = Aggregate::builder(&a).reduce(Reduce::Max).columns(2).build(&Device::best()?)?;
/// let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, -6.0];
/// assert_eq!(plan.run(&x)?, [5.0, 4.0, 1.0, 2.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Aggregate;

impl Aggregate {
    /// Starts a plan for reductions over the rows of `a`, a [`Csr`](windrow_formats::Csr) in host memory or a
    /// [`DeviceCsr`](crate::DeviceCsr) in that of a device. The plan keeps what it needs; `a` may be dropped after
    /// [`build`](AggregateBuilder::build) or [`build_on`](AggregateBuilder::build_on).
    pub fn builder<A: SparseMatrix>(a: &A) -> AggregateBuilder<'_, A> {
        AggregateBuilder::new(a)
    }
}

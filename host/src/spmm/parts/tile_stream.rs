//! The algorithm [`TileStream`](crate::Algorithm::TileStream): 8 × 8 tiles on Tensor Cores, as a stream that warps
//! share, and what [`Hybrid`](crate::Algorithm::Hybrid) puts beside it. Its kernel is [`windrow_kernels::tile_stream`].

mod choose;
mod on_gpu;
mod on_host;
mod received;
mod stream;
mod vectors;

use windrow_formats::{Csr, Value};
use windrow_preprocess::partition::PartitionRule;

use crate::error::SpmmError;
use crate::plan::StageClock;
use crate::spmm::layout::Context;
use crate::spmm::part::LaidOut;

pub(in crate::spmm) use on_gpu::{MAX_STEPS, only_on_host};
pub(in crate::spmm) use received::{ReceivedTiles, kernels_divide, lay_out_received};

/// The forms of RS-Tile: every row in tiles, every row in the residual, or both; laid out on the GPU or on the host.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    rule: PartitionRule,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, SpmmError> {
    on_gpu::place(context, rule).lay_out(
        clock,
        |clock| on_gpu::lay_out(context, rule, clock),
        |clock| match rule {
            PartitionRule::ColumnVectors { threshold } => vectors::lay_out(context, threshold, clock),
            rule => on_host::lay_out(context, rule, clock),
        },
    )
}

//! What can go wrong among ranks.

use std::time::Duration;

use thiserror::Error;

use super::sddmm::SddmmError;
use super::spmm::SpmmError;
use super::{DeviceError, PlanError};
use windrow_formats::{FormatError, OutOfMemory};

/// Why ranks of a [`dist`](crate::dist) group could not plan or run a product together.
///
/// A rank that fails says so to the others, which get [`RankFailed`](Self::RankFailed) at once; one that is silent is
/// waited for until the group's time-out.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DistError {
    /// A group without ranks, or of more than there are queues for.
    #[error("a group has 1 to 1024 ranks, not {ranks}")]
    GroupSize {
        /// The ranks asked for.
        ranks: usize,
    },
    /// Processes that did not become a group.
    #[error("ranks could not meet at {place}: {reason}")]
    Rendezvous {
        /// Where they were to meet.
        place: String,
        /// Who is missing, or what is wrong there.
        reason: String,
    },
    /// Another rank failed, or ended while this one waited for it.
    #[error("rank {rank} failed while this rank, {waiting}, waited for it: {reason}")]
    RankFailed {
        /// The rank that failed.
        rank: usize,
        /// The rank that tells it.
        waiting: usize,
        /// What it said of it.
        reason: String,
    },
    /// Another rank sent nothing until the time was up.
    #[error("rank {rank} sent nothing for {} s, for which rank {waiting} waited; it hangs, or works on something else", .waited.as_secs_f64())]
    TimedOut {
        /// The rank that is silent.
        rank: usize,
        /// The rank that waited.
        waiting: usize,
        /// The time-out of the group.
        waited: Duration,
    },
    /// Ranks were given what does not fit together.
    #[error("ranks disagree on {what}: rank {rank} has {theirs}, rank {own_rank} has {own}")]
    Disagreement {
        /// What they disagree on.
        what: &'static str,
        /// The rank that has something else.
        rank: usize,
        /// What that other one has.
        theirs: String,
        /// The rank that tells it.
        own_rank: usize,
        /// What this one has.
        own: String,
    },
    /// A file of which ranks were to have parts.
    #[error("{reason}")]
    Read {
        /// What is wrong with it, with its name.
        reason: String,
    },
    /// A division of rows or columns that is none of the matrix's, or among other ranks.
    #[error(
        "the division is of {len} {what} among {parts} ranks; there are {wanted_len} among {wanted_parts}"
    )]
    Division {
        /// Whether rows or columns are divided.
        what: &'static str,
        /// How many are divided.
        len: usize,
        /// Among how many ranks.
        parts: usize,
        /// How many there are.
        wanted_len: usize,
        /// Ranks of the group.
        wanted_parts: usize,
    },
    /// NCCL was asked for, and rows cannot go by it.
    #[error("rows cannot go by NCCL: {reason}; with Transport::Auto they go through host memory then")]
    NoNccl {
        /// What stands in its way.
        reason: String,
    },
    /// Sampled products divided by columns.
    #[error("sampled products are divided by rows; use scheme rows, halo or all-gather")]
    NotByColumns,
    /// What can go wrong with a product on one device.
    #[error(transparent)]
    Spmm(#[from] SpmmError),
    /// What can go wrong with a sampled product on one device.
    #[error(transparent)]
    Sddmm(#[from] SddmmError),
}

impl From<PlanError> for DistError {
    fn from(error: PlanError) -> Self {
        Self::Spmm(error.into())
    }
}

impl From<DeviceError> for DistError {
    fn from(error: DeviceError) -> Self {
        Self::Spmm(error.into())
    }
}

impl From<FormatError> for DistError {
    fn from(error: FormatError) -> Self {
        Self::Spmm(error.into())
    }
}

impl From<OutOfMemory> for DistError {
    fn from(error: OutOfMemory) -> Self {
        Self::Spmm(error.into())
    }
}

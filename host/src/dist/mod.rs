//! Matrices that several ranks have together: a sparse matrix and its dense operands divided among threads of a
//! process, or processes of one host or several, each with a device of its own.
//!
//! | | |
//! | --- | --- |
//! | [`Communicator`] | one rank's end of a group: what it sends, gets and sums |
//! | [`Rendezvous`] | how processes become a group |
//! | [`Ownership`] | which rank owns which rows |
//! | [`DistCsr`] | a sparse matrix of which each rank has its rows |
//! | [`DistSpmm`] | plans of products with it, by rows or by columns |
//! | [`DistSddmm`] | plans of products of two dense matrices at its entries, by rows |
//!
//! A product is divided in one of three ways ([`Scheme`]): each rank multiplies its rows of `A`, and gets those rows of
//! `B` that they name, or all of them; or each multiplies all of `A` by columns of its own, and nothing is exchanged.
//!
//! Rows go from GPU to GPU by NCCL where each rank has one of its own, else through host memory ([`Transport`]). The
//! program is the same for any devices and any number of ranks, one included; there may be more ranks than rows.
//!
//! # Faults
//!
//! A rank whose call fails tells the others, whose calls end with [`DistError::RankFailed`](crate::DistError): they
//! name the rank and what it said. So it is where a rank panics, drops its end, or is killed. One that says nothing is
//! waited for until the group's [time-out](Communicator::time_out). No call hands out a part of a result as the whole.

mod communicator;
mod csr;
mod exchange;
mod mailbox;
mod ownership;
mod parts;
mod reduce;
mod rendezvous;
mod scheme;
mod sddmm;
mod sockets;
mod spmm;
mod transport;

pub use communicator::Communicator;
pub use csr::DistCsr;
pub use ownership::Ownership;
pub use parts::PartTimes;
pub use rendezvous::Rendezvous;
pub use scheme::{DistReport, Scheme};
pub use sddmm::{DistSddmm, DistSddmmBuilder, DistSddmmPlan};
pub use spmm::{DistSpmm, DistSpmmBuilder, DistSpmmPlan};
pub use transport::Transport;

//! What a kernel did wrong: [`Violation`], with where, who and at which byte.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::emulator::spot::{Line, Operation, Spot};

/// An allocation of global memory: its label if it has one, its address and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What [`Memory::label`](super::Memory::label) called it.
    pub label: Option<Arc<str>>,
    /// Address of its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "`{label}` ({} bytes at {:#x})", self.bytes, self.base),
            None => write!(f, "the allocation of {} bytes at {:#x}", self.bytes, self.base),
        }
    }
}

/// Where an address lies that no live allocation holds for the access's whole width.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outside {
    /// Starts inside and ends outside of an allocation.
    Straddles {
        /// Bytes between the allocation's start and the address.
        offset: u64,
        /// The allocation that the access starts in.
        region: Region,
    },
    /// After the end of the nearest allocation below it.
    Past {
        /// Bytes between the allocation's end and the address.
        distance: u64,
        /// The nearest allocation below the address.
        region: Region,
    },
    /// Inside an allocation that has been freed.
    Freed {
        /// Bytes between the allocation's start and the address.
        offset: u64,
        /// The freed allocation that held the address.
        region: Region,
    },
    /// Below every allocation: a null pointer, or one cut to 32 bits.
    Below,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Straddles { offset, region } => {
                write!(f, "begins at byte {offset} of {region} and passes its end")
            }
            Self::Past { distance, region } => write!(f, "is {distance} bytes past the end of {region}"),
            Self::Freed { offset, region } => write!(f, "is byte {offset} of {region}, which has been freed"),
            Self::Below => f.write_str("is below every allocation"),
        }
    }
}

/// The threads that a collective is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// The warp with this number in the block.
    Warp(u32),
    /// The four warps of the warpgroup with this number in the block.
    Warpgroup(u32),
    /// All threads of the block.
    Block,
}

/// Threads of one group that wait at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The method that they called.
    pub operation: Operation,
    /// The call's place in the source.
    pub location: &'static Location<'static>,
    /// How many they are.
    pub threads: u32,
}

/// A group of threads that can never go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// `(x, y)` of the block in the grid.
    pub block: [u32; 2],
    /// The group that the collective is for.
    pub group: Group,
    /// Threads in the group.
    pub threads: u32,
    /// Who waits where, in the order of the lowest thread of each.
    pub waiting: Vec<Waiting>,
    /// Threads of the group that have returned from the kernel.
    pub exited: u32,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y] = self.block;
        let noun = match self.group {
            Group::Warp(warp) => {
                write!(f, "in warp {warp} of block ({x}, {y}): ")?;
                "lanes"
            }
            Group::Warpgroup(group) => {
                write!(f, "in warpgroup {group} of block ({x}, {y}): ")?;
                "threads"
            }
            Group::Block => {
                write!(f, "in block ({x}, {y}): ")?;
                "threads"
            }
        };
        for (i, Waiting { operation, location, threads }) in self.waiting.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(
                f,
                "{comma}{threads} of {} {noun} wait in {operation} at {}",
                self.threads,
                Line(location)
            )?;
        }
        if self.exited != 0 {
            write!(f, ", {} have exited", self.exited)?;
        }
        Ok(())
    }
}

/// Two accesses that nothing orders, sorted by block and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The access of the lower block or thread.
    pub first: Spot,
    /// The access of the higher block or thread.
    pub second: Spot,
}

impl Conflict {
    /// Sorts the two, so that the report does not depend on which ran first.
    pub(super) fn between(a: Spot, b: Spot) -> Self {
        let key = |spot: &Spot| (spot.block[1], spot.block[0], spot.thread);
        if key(&a) <= key(&b) { Self { first: a, second: b } } else { Self { first: b, second: a } }
    }
}

/// What a kernel, or a launch, did wrong. `Display` tells all of it in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The launch itself asks for what no GPU allows.
    InvalidLaunch {
        /// Which number is wrong, and its limit.
        reason: String,
    },
    /// The operating system gave no more memory for the threads' stacks.
    NoStack {
        /// What the operating system said.
        reason: String,
    },
    /// A global access outside every live allocation.
    GlobalOutOfBounds {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// Width of the access.
        bytes: u32,
        /// First byte of the access.
        address: u64,
        /// Where that is, as seen from the nearest allocation.
        place: Box<Outside>,
    },
    /// A global address that is no multiple of the access's width.
    GlobalMisaligned {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// The required alignment in bytes.
        alignment: u32,
        /// First byte of the access.
        address: u64,
        /// The allocation it is in.
        region: Box<Region>,
    },
    /// A read of global bytes that neither host nor kernel ever wrote.
    GlobalUnwritten {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// Offset of the first unwritten byte in the allocation.
        offset: u64,
        /// The allocation that is read.
        region: Box<Region>,
    },
    /// Two threads of one launch touch a global byte, at least one writes, and nothing orders them.
    GlobalRace {
        /// The two accesses, of which at least one writes.
        conflict: Box<Conflict>,
        /// Offset of the first byte both touch, to 2 bytes.
        offset: u64,
        /// The allocation that both touch.
        region: Box<Region>,
    },
    /// A byte is both written and read through the read-only path in one launch.
    ReadonlyWritten {
        /// The access through the read-only path.
        reader: Box<Spot>,
        /// The access that writes.
        writer: Box<Spot>,
        /// Offset of the first byte both touch, to 2 bytes.
        offset: u64,
        /// The allocation that both touch.
        region: Box<Region>,
    },
    /// A shared access beyond the block's dynamic allocation.
    SharedOutOfBounds {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// Width of the access.
        bytes: u32,
        /// First byte of the access.
        offset: u32,
        /// Length of the block's shared memory in bytes.
        shared_bytes: u32,
    },
    /// A shared offset that is no multiple of the access's width.
    SharedMisaligned {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// The required alignment in bytes.
        alignment: u32,
        /// First byte of the access.
        offset: u32,
    },
    /// A read of shared bytes that no thread of the block wrote.
    SharedUnwritten {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// The first unwritten byte, to 2 bytes.
        offset: u32,
    },
    /// Two threads touch a shared byte, at least one writes, and no barrier is between.
    SharedRace {
        /// The two accesses, of which at least one writes.
        conflict: Box<Conflict>,
        /// The first byte both touch, to 2 bytes.
        offset: u32,
    },
    /// A read of shared bytes that an unfinished copy is writing.
    CopyNotWaited {
        /// Where the copy was started.
        copy: Box<Spot>,
        /// The operation that reads, its thread and its place in the source.
        by: Box<Spot>,
        /// First byte of the access.
        offset: u32,
    },
    /// A write to shared bytes that an unfinished copy is writing.
    CopyOverwritten {
        /// Where the copy was started.
        copy: Box<Spot>,
        /// The operation that writes, its thread and its place in the source.
        by: Box<Spot>,
        /// First byte of the access.
        offset: u32,
    },
    /// A write to shared bytes that a warpgroup's product under way reads.
    OperandOverwritten {
        /// Where the product was started.
        product: Box<Spot>,
        /// The operation that writes, its thread and its place in the source.
        by: Box<Spot>,
        /// First byte of the access.
        offset: u32,
    },
    /// A warpgroup's product reads what a thread has stored, and not fenced off for the copy engine's proxy.
    NotFenced {
        /// The operation that wrote.
        write: Box<Spot>,
        /// The product that reads.
        by: Box<Spot>,
        /// The first byte of both, to 2 bytes.
        offset: u32,
    },
    /// A thread returned while products of its warpgroup were under way.
    ProductNeverWaited {
        /// `(x, y)` of the block in the grid.
        block: [u32; 2],
        /// The thread's number in its block.
        thread: u32,
        /// How many they are.
        products: usize,
    },
    /// A thread returned while copies of its own were under way.
    CopyNeverWaited {
        /// The oldest of them.
        copy: Spot,
        /// How many they are.
        copies: usize,
    },
    /// A block ended with a round of bulk copies that too few threads had committed: waiting for it never ends.
    RoundNeverComplete {
        /// `(x, y)` of the block in the grid.
        block: [u32; 2],
        /// First byte of the counter.
        counter: u32,
        /// Threads that had committed when the block ended.
        committed: u32,
        /// Threads that the counter was made for.
        threads: u32,
    },
    /// Threads of one group wait in different calls.
    DivergentCollective(Box<Stuck>),
    /// Threads of one group wait in one call that the others will never reach.
    IncompleteCollective(Box<Stuck>),
    /// An operand outside what the method's documentation allows.
    InvalidOperand {
        /// The operation, its thread and its place in the source.
        by: Spot,
        /// The operand, its value and its limit.
        reason: String,
    },
    /// The kernel panicked. On a GPU it would have trapped.
    Panicked {
        /// `(x, y)` of the block in the grid.
        block: [u32; 2],
        /// The thread's number in its block.
        thread: u32,
        /// What the panic said, if it was a text.
        message: String,
    },
    /// A thread made more calls than the limit allows: a loop that does not end, most likely.
    StepLimit {
        /// The first call beyond the limit.
        by: Spot,
        /// The limit, in calls of one thread.
        limit: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidLaunch { reason } => write!(f, "invalid launch: {reason}"),
            Self::NoStack { reason } => {
                write!(f, "no memory for the stacks of the emulated threads ({reason}): use smaller blocks")
            }
            Self::GlobalOutOfBounds { by, bytes, address, place } => {
                write!(f, "out of bounds: {by}: {bytes} bytes at {address:#x}, which {place}")
            }
            Self::GlobalMisaligned { by, alignment, address, region } => write!(
                f,
                "misaligned: {by}: address {address:#x}, byte {} of {region}, is no multiple of {alignment}",
                address - region.base
            ),
            Self::GlobalUnwritten { by, offset, region } => {
                write!(f, "read of unwritten memory: {by}: nothing wrote byte {offset} of {region}")
            }
            Self::GlobalRace { conflict, offset, region } => write!(
                f,
                "race on byte {offset} of {region}: nothing orders {} and {}",
                conflict.first, conflict.second
            ),
            Self::ReadonlyWritten { reader, writer, offset, region } => write!(
                f,
                "write to read-only memory: byte {offset} of {region} is written by {writer} \
                 in the launch that reads it by {reader}"
            ),
            Self::SharedOutOfBounds { by, bytes, offset, shared_bytes } => write!(
                f,
                "out of bounds: {by}: {bytes} bytes at byte {offset} of shared memory, \
                 of which the block has {shared_bytes}"
            ),
            Self::SharedMisaligned { by, alignment, offset } => {
                write!(f, "misaligned: {by}: byte {offset} of shared memory is no multiple of {alignment}")
            }
            Self::SharedUnwritten { by, offset } => write!(
                f,
                "read of unwritten memory: {by}: no thread of the block wrote byte {offset} of shared memory"
            ),
            Self::SharedRace { conflict, offset } => write!(
                f,
                "race on byte {offset} of shared memory: no barrier between {} and {}",
                conflict.first, conflict.second
            ),
            Self::CopyNotWaited { copy, by, offset } => write!(
                f,
                "read of a copy under way: {by}: no wait has covered byte {offset} of \
                 shared memory, the destination of {copy}"
            ),
            Self::CopyOverwritten { copy, by, offset } => write!(
                f,
                "write over a copy under way: {by}: no wait has covered byte {offset} of \
                 shared memory, the destination of {copy}"
            ),
            Self::OperandOverwritten { product, by, offset } => write!(
                f,
                "write over an operand: {by}: not all threads have waited for the product that reads byte {offset} of \
                 shared memory, {product}"
            ),
            Self::NotFenced { write, by, offset } => write!(
                f,
                "stores not fenced off: {by}: byte {offset} of shared memory is from {write}, and its thread has called \
                 no copy_bulk_fence since"
            ),
            Self::ProductNeverWaited { block: [x, y], thread, products } => write!(
                f,
                "product never waited for: thread {thread} of block ({x}, {y}) exited with {products} products of its \
                 warpgroup under way"
            ),
            Self::CopyNeverWaited { copy, copies } => write!(
                f,
                "copy never waited for: thread {} of block ({}, {}) exited with {copies} copies under way, \
                 the oldest of them {copy}",
                copy.thread, copy.block[0], copy.block[1]
            ),
            Self::RoundNeverComplete { block: [x, y], counter, committed, threads } => write!(
                f,
                "round never complete: {committed} of {threads} threads of block ({x}, {y}) committed the last \
                 round of bulk copies that the counter at byte {counter} of shared memory tells apart"
            ),
            Self::DivergentCollective(stuck) => write!(f, "divergent collective {stuck}"),
            Self::IncompleteCollective(stuck) => write!(f, "incomplete collective {stuck}"),
            Self::InvalidOperand { by, reason } => write!(f, "invalid operand: {by}: {reason}"),
            Self::Panicked { block: [x, y], thread, message } => {
                write!(f, "panic in thread {thread} of block ({x}, {y}): {message}")
            }
            Self::StepLimit { by, limit } => write!(
                f,
                "step limit: {by} is call {} of its thread, the limit is {limit}: \
                 the loop does not end, or the limit needs raising (Memory::set_step_limit)",
                limit + 1
            ),
        }
    }
}

impl std::error::Error for Violation {}

/// How checks fail inside the emulator: boxed, because success is the case that must be quick.
pub(super) type Checked<T> = Result<T, Box<Violation>>;

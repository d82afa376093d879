//! Runs kernels on the CPU and reports what they do wrong.
//!
//! [`Memory`] is the emulated global memory, [`Memory::launch`] runs a kernel over a grid. Each GPU
//! thread is a coroutine with a stack of 64 KiB; the threads of a block share one OS thread and take
//! turns, blocks run in parallel. A thread runs until it reaches a collective; then the [`Schedule`]
//! picks another, and the collective is performed once its whole group has arrived. A launch stops at
//! the first [`Violation`].
//!
//! ```
//! use windrow_simt::emulator::{Launch, Memory, Schedule};
//! use windrow_simt::{GlobalPtr, Simt};
//!
//! /// Stores to `out` the sum over each warp of `numbers`.
//! unsafe fn warp_sums<S: Simt>(s: &S, numbers: GlobalPtr<u32>, out: GlobalPtr<u32>) {
//!     // SAFETY: the caller's arrays have an element per thread and per warp.
//!     unsafe {
//!         let mut sum = s.load_readonly(numbers.at(s.thread_idx()));
//!         for mask in [16, 8, 4, 2, 1] {
//!             sum += s.shuffle_xor(sum, mask);
//!         }
//!         if s.lane() == 0 {
//!             s.store(out.at(s.warp()), sum);
//!         }
//!     }
//! }
//!
//! let memory = Memory::new();
//! let numbers = memory.alloc_from(&(0..64).collect::<Vec<u32>>());
//! let out = memory.alloc_uninit::<u32>(1);
//! let launch = Launch { grid: [1, 1], block_threads: 32, shared_bytes: 0, schedule: Schedule::Seeded(1) };
//!
//! // SAFETY: one warp, 32 numbers, one sum.
//! memory.launch(&launch, |t| unsafe { warp_sums(t, numbers, out) })?;
//! assert_eq!(memory.read(out, 1)?, [496]);
//!
//! // Two warps, but room for one sum only:
//! let launch = Launch { block_threads: 64, ..launch };
//! // SAFETY: not safe, which is what the emulator is for.
//! let violation = memory.launch(&launch, |t| unsafe { warp_sums(t, numbers, out) }).unwrap_err();
//! assert!(violation.to_string().starts_with("out of bounds: store by thread 32 of block (0, 0) at "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it detects
//!
//! - *Global memory*: accesses outside of an allocation, freed or not; misaligned ones; reads of bytes
//!   that nothing wrote; two threads on one byte that no barrier orders (of two blocks nothing ever
//!   does), unless both read or both update it atomically; any write to a byte that the launch reads
//!   through the read-only path or as the source of a `cp.async`.
//! - *Shared memory*: the same, with everything unwritten when a block begins.
//! - *Order*: only `sync_block`, `sync_warpgroup` and `sync_warp` order memory; shuffles, votes, `ldmatrix`, `stmatrix`
//!   and `mma` wait for their lanes, but order nothing. Within that rule, races are found exactly, to 2 bytes, and
//!   whatever the schedule: the accesses need not happen to come in the wrong order.
//! - *Collectives*: lanes or threads that wait at different calls, or whose partners have exited.
//! - *`cp.async`*: bytes arrive at the last legal moment, inside the wait that covers their group.
//!   Until then every access to them is reported, by whatever thread; after it, those of other threads
//!   without a barrier; and a thread that exits with copies under way.
//! - *Products of a warpgroup*: operands that were stored without a fence of the copy engine's proxy, or not written
//!   at all; places that are written before all threads have waited for the product; products without a fence before
//!   them, a commit or a wait after them; metadata that names no two places in order. Sums cannot be read too early,
//!   since nothing but the wait gives them out.
//! - *Products of a warp with a sparse operand*: metadata that names no two places in order.
//! - Operands out of range, panics, and loops that do not end ([`Memory::set_step_limit`]).
//!
//! # What it cannot see
//!
//! - *Weak memory across blocks.* Atomics of different blocks are performed in some order, one after
//!   the other; a protocol between blocks that needs fences is reported as a race if it uses plain
//!   accesses, and not questioned if it uses atomics alone.
//! - *Forward progress.* A thread that spins until another has written makes no progress here, because
//!   only collectives give way; the step limit reports it, though a GPU might run it.
//! - *Divergence inside a phase.* Between two collectives each lane runs by itself. How a warp would
//!   split, reconverge or serialise is not modelled; nor is a collective's call site told apart from the
//!   same one in another turn of a loop or another call of the function around it.
//! - *Tensor Core rounding.* `mma` adds in f64 and rounds once to f32; hardware aligns, truncates and
//!   orders differently. NaNs of products are quiet, but their bits may differ from a GPU's. `fma` and
//!   conversions are exact, without flushing subnormals.
//! - *Registers that a product reads while it runs*: that a register of metadata is not loaded anew under it is up to
//!   the compiler, and to who hands it to the wait.
//! - *Timing and caches.* No bank conflicts, coalescing, occupancy, register pressure or eviction; cache
//!   hints do nothing. The read-only path never returns stale data: it is reported instead.
//! - *Floating-point atomics between blocks.* Blocks run in parallel, so the order of their
//!   `reduce_add_f32`, and with it the last bit, varies from run to run, as on a GPU. Within a block it
//!   is the schedule's.
//! - *Values that a race would have produced.* A launch ends at the first violation and says nothing
//!   about what would have followed. Of several in different blocks it may name another one next time
//!   if they race with each other.
//! - *Accesses that bypass [`Simt`](crate::Simt)*: whatever a kernel reads or writes through references
//!   or statics; and a loop that never calls [`Simt`](crate::Simt) is never interrupted.
//! - *Two launches at once.* They are kept memory-safe, but races between them are not looked for.
//! - *Resources.* 227 KiB of shared memory and 1024 threads are allowed, whatever the device; stack
//!   frames beyond 64 KiB end the process, as the guard page is hit.

mod access;
mod allocation;
mod block;
mod bulk;
mod collectives;
mod global;
mod launch;
mod memory;
mod mma;
#[cfg(test)]
mod race_tests;
mod schedule;
mod scheduler;
mod shared;
mod spot;
mod thread;
mod violation;
mod warpgroup;

pub use launch::{Launch, Stats};
pub use memory::{Memory, MemoryError};
pub use schedule::Schedule;
pub use spot::{Operation, Spot};
pub use thread::Thread;
pub use violation::{Conflict, Group, Outside, Region, Stuck, Violation, Waiting};

//! Measures the gather roofline: rows of `16·2^log_lanes` bytes read from random places of a table.
//!
//! What an SpMM is bound by on a large GPU. `2^log_lanes` lanes read one row with 16-byte loads,
//! eight rows in flight; the words are folded into a checksum, so that no load can be left out, and
//! each lane writes its own, so that the host can verify that the right rows were read.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::variant::Variant;

/// Rows that each lane group has in flight.
pub const IN_FLIGHT: usize = 8;

/// Arguments of [`GatherProbe`].
///
/// # Obligations
/// The grid's threads, divided by `2^log_lanes`, are the number of groups; `indices` holds
/// `groups · per_group` row numbers below the table's rows, `checksums` a word per thread;
/// `per_group` is a multiple of [`IN_FLIGHT`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct GatherProbeParams {
    /// The table, rows of `16·2^log_lanes` bytes, 16-byte aligned.
    pub table: GlobalPtr<u32>,
    /// Row numbers, group after group.
    pub indices: GlobalPtr<u32>,
    /// XOR of the words that each thread read.
    pub checksums: GlobalPtr<u32>,
    /// Rows that each group reads.
    pub per_group: u32,
    /// log₂ of the lanes that share a row.
    pub log_lanes: u32,
}

/// The kernel: each group of lanes reads its rows, each lane folds its words by exclusive or.
pub struct GatherProbe;

impl Kernel for GatherProbe {
    type Params = GatherProbeParams;
    const FILE: &'static str = "gather_probe";
    const VARIANT: Variant = Variant::GatherProbe;
    const BLOCK_THREADS: u32 = 256;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GatherProbeParams) {
        let thread = s.block_idx() * Self::BLOCK_THREADS + s.thread_idx();
        let lane = thread & ((1 << p.log_lanes) - 1);
        let first = (thread >> p.log_lanes) * p.per_group;
        let mut checksum = 0;
        let mut i = 0;
        while i < p.per_group {
            let mut rows = [[0u32; 4]; IN_FLIGHT];
            let mut u = 0;
            while u < IN_FLIGHT {
                // SAFETY: `first + i + u` is below groups · per_group; the row is in the table.
                unsafe {
                    let row = s.load_readonly_once(p.indices.at(first + i + u as u32));
                    let at = (u64::from(row) << p.log_lanes) + u64::from(lane);
                    rows[u] = s.load_readonly(p.table.cast::<[u32; 4]>().at_wide(at));
                }
                u += 1;
            }
            let mut u = 0;
            while u < IN_FLIGHT {
                let [a, b, c, d] = rows[u];
                checksum ^= a ^ b ^ c ^ d;
                u += 1;
            }
            i += IN_FLIGHT as u32;
        }
        // SAFETY: one word per thread of the grid.
        unsafe { s.store(p.checksums.at(thread), checksum) };
    }
}

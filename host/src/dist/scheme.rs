//! How a product is divided among ranks, and what decides.

use std::fmt;

use windrow_formats::{Value, names};

use super::communicator::Communicator;
use super::csr::DistCsr;
use super::exchange::Needed;
use crate::error::DistError;

/// How a product is divided among the ranks of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scheme {
    /// The better of [`Halo`](Self::Halo) and [`Gather`](Self::AllGather): rows of `B` and `C` are owned.
    #[default]
    Rows,
    /// Each rank multiplies its rows, and gets from the others the rows of `B` that these name.
    Halo,
    /// Each rank multiplies its rows, and gets all rows of `B`, which need not be chosen and packed.
    AllGather,
    /// Each rank multiplies all of `A` by columns of its own. `A` is everywhere, and nothing is exchanged.
    Columns,
}

impl Scheme {
    /// Every scheme, the default first.
    pub const ALL: [Self; 4] = [Self::Rows, Self::Halo, Self::AllGather, Self::Columns];
}

names!(Scheme, "scheme"; Rows => "rows", Halo => "halo", AllGather => "all-gather", Columns => "columns");

/// What it takes to bring rows from rank to rank: a time for a message of any size, and one for each byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    latency_us: f64,
    bytes_per_us: f64,
}

/// Rows that are chosen are read and written once more before they go: a launch, and half of what memory moves.
const LAUNCH_US: f64 = 5.0;
const PACKED_BYTES_PER_US: f64 = 1.5e6;

impl Rates {
    /// Between two H200s of one host: 0.5 MB took 34 µs, 17 MB 114, 268 MB 946.
    pub(super) const NCCL: Self = Self { latency_us: 30.0, bytes_per_us: 3e5 };
    /// Between the same GPUs: 5 MB took 4 to 7 ms.
    pub(super) const HOST_MEMORY: Self = Self { latency_us: 100.0, bytes_per_us: 1.2e3 };

    fn message_us(self, bytes: f64) -> f64 {
        if bytes > 0.0 { self.latency_us + bytes / self.bytes_per_us } else { 0.0 }
    }
}

fn packing_us(bytes: f64) -> f64 {
    if bytes > 0.0 { LAUNCH_US + bytes / PACKED_BYTES_PER_US } else { 0.0 }
}

/// The scheme by rows for a matrix whose operand has rows of so many bytes, and why, the same for all ranks.
pub(super) fn better_of_rows<V: Value>(
    communicator: &Communicator,
    a: &DistCsr<V>,
    needed: &Needed,
    (rates, row_bytes): (Rates, usize),
) -> Result<(Scheme, String), DistError> {
    let others = a.columns().rows() - a.columns().range(a.rank()).len();
    Ok(weighed(&communicator.all_gather(&[needed.rows.len(), others])?, rates, row_bytes))
}

/// The same for ranks that need so many of so many rows of others. The slowest rank's time is that of all.
fn weighed(needed: &[[usize; 2]], rates: Rates, row_bytes: usize) -> (Scheme, String) {
    let bytes = |rows: usize| rows as f64 * row_bytes as f64;
    let most = |of: usize| needed.iter().map(|rank| rank[of]).max().unwrap_or(0);
    let [some, all] = [most(0), most(1)];
    // As many go as come, but for which rank they go from.
    let sent = needed.iter().map(|rank| rank[0]).sum::<usize>() / needed.len().max(1);
    let halo_us = packing_us(bytes(sent)) + rates.message_us(bytes(some));
    let all_us = rates.message_us(bytes(all));
    let scheme = if halo_us <= all_us { Scheme::Halo } else { Scheme::AllGather };
    let reason = format!(
        "a rank gets the {some} rows that it needs in about {halo_us:.0} µs, packed before, all {all} of others in \
         {all_us:.0}"
    );
    (scheme, reason)
}

/// What a rank's plan is, and what it exchanges. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DistReport {
    /// Number of the rank that tells this.
    pub rank: usize,
    /// Ranks of the group.
    pub ranks: usize,
    /// How the product is divided.
    pub scheme: Scheme,
    /// Why it is divided so, with times as they are estimated.
    pub reason: String,
    /// Rows of `A` that this rank multiplies.
    pub rows: usize,
    /// Entries of these rows.
    pub nnz: usize,
    /// Entries among them whose row of `B` another rank owns.
    pub outer_nnz: usize,
    /// Rows of `B` that others own and this rank needs: the least that it must get.
    pub needed_rows: usize,
    /// Rows that it gets.
    pub received_rows: usize,
    /// Rows that it sends, one to several ranks counted for each.
    pub sent_rows: usize,
    /// The way that rows take from device to device, and why.
    pub transport: String,
    /// Memory of this rank's plans on its device, in bytes.
    pub device_bytes: u64,
}

impl DistReport {
    /// Of a rank's part of a matrix, before anything is exchanged.
    pub(super) fn of<V: Value>(a: &DistCsr<V>, needed: &Needed, (ranks, scheme): (usize, Scheme)) -> Self {
        Self {
            rank: a.rank(),
            ranks,
            scheme,
            reason: "asked for".to_owned(),
            rows: a.local().rows(),
            nnz: a.local().nnz(),
            outer_nnz: needed.entries,
            needed_rows: needed.rows.len(),
            received_rows: 0,
            sent_rows: 0,
            transport: "nothing is exchanged".to_owned(),
            device_bytes: 0,
        }
    }
}

impl fmt::Display for DistReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank           {} of {}", self.rank, self.ranks)?;
        writeln!(f, "scheme         {}: {}", self.scheme, self.reason)?;
        writeln!(
            f,
            "rows           {}, with {} entries, {} of rows of B that others own",
            self.rows, self.nnz, self.outer_nnz
        )?;
        writeln!(
            f,
            "exchange       {} rows of B received, {} needed, {} sent, {}",
            self.received_rows, self.needed_rows, self.sent_rows, self.transport
        )?;
        write!(f, "device memory  {} bytes", self.device_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halos_are_sent_unless_packing_costs_more_than_it_saves() {
        let scheme = |needed: [usize; 2]| weighed(&[needed, [0, 0]], Rates::NCCL, 256).0;
        assert_eq!(scheme([0, 0]), Scheme::Halo);
        assert_eq!(scheme([0, 1000]), Scheme::Halo);
        assert_eq!(scheme([1_000_000, 1_000_000]), Scheme::AllGather);
        assert_eq!(scheme([500_000, 1_000_000]), Scheme::Halo);
        // Whatever a message costs, a few rows cost no less.
        assert_eq!(scheme([900, 1000]), Scheme::AllGather);
        // Of the way through host memory packing is next to nothing.
        assert_eq!(weighed(&[[950_000, 1_000_000]; 2], Rates::HOST_MEMORY, 256).0, Scheme::Halo);
        let (_, reason) = weighed(&[[10, 100_000], [30, 100_000]], Rates::NCCL, 512);
        assert_eq!(
            reason,
            "a rank gets the 30 rows that it needs in about 35 µs, packed before, all 100000 of others in 201"
        );
    }
}

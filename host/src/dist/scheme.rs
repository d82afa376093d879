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

/// Of the rows of others, how many a rank may need for it to be quicker to choose them than to get all: packing reads
/// and writes each once more, and messages of some rows reach less of what a link can do than one of all.
const MOST_OF_OTHERS: f64 = 0.6;

/// The scheme by rows for a matrix, and why, the same for all ranks.
pub(super) fn better_of_rows<V: Value>(
    communicator: &Communicator,
    a: &DistCsr<V>,
    needed: &Needed,
) -> Result<(Scheme, String), DistError> {
    let others = a.columns().rows() - a.columns().range(a.rank()).len();
    Ok(weighed(&communicator.all_gather(&[needed.rows.len(), others])?))
}

/// The same for ranks that need so many of so many rows of others.
fn weighed(needed: &[[usize; 2]]) -> (Scheme, String) {
    let share = |&[needed, others]: &[usize; 2]| needed as f64 / others.max(1) as f64;
    let most = needed.iter().map(share).fold(0.0, f64::max);
    let percent = 100.0 * most;
    let limit = 100.0 * MOST_OF_OTHERS;
    if most <= MOST_OF_OTHERS {
        (
            Scheme::Halo,
            format!("ranks need at most {percent:.0} % of the rows of others, no more than {limit:.0}"),
        )
    } else {
        (
            Scheme::AllGather,
            format!("a rank needs {percent:.0} % of the rows of others, more than {limit:.0}"),
        )
    }
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
    /// Why it is divided so.
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
            "exchange       {} rows of B received, {} needed, {} sent",
            self.received_rows, self.needed_rows, self.sent_rows
        )?;
        write!(f, "device memory  {} bytes", self.device_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halos_are_sent_unless_a_rank_needs_most_of_them() {
        assert_eq!(weighed(&[[10, 100], [60, 100]]).0, Scheme::Halo);
        assert_eq!(weighed(&[[10, 100], [61, 100]]).0, Scheme::AllGather);
        assert_eq!(weighed(&[[0, 0]]).0, Scheme::Halo);
    }
}

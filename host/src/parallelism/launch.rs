//! What a point leaves to its launch.

use std::fmt;

use windrow_kernels::segment_group::MOST_THREADS;

use super::{AtomicParallelism, IllegalPoint};

/// Launch parameters that a point leaves open: `blockSz`, `tileSz` and `workerDimR` of Sgap's section 7.2; the fourth,
/// `groupSz`, is the point's `r`. Results are the same with all of them, but for the order of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupLaunch {
    /// Threads of a block: a multiple of 32, at most 512.
    pub block_threads: u32,
    /// Columns of `B` that threads side by side have together; as many as the width has, if none is given, and as
    /// lanes of a warp allow. A power of two, at least the point's columns; more than lanes allow is taken for as
    /// many as they do.
    pub tile_columns: Option<u32>,
    /// The share, `2^workers_log2`, of the threads that all of `A` would occupy at once: with fewer each has several
    /// shares of it, one after the other. At most 0.
    pub workers_log2: i32,
}

impl Default for GroupLaunch {
    fn default() -> Self {
        Self { block_threads: 128, tile_columns: None, workers_log2: 0 }
    }
}

impl GroupLaunch {
    /// Whether there is such a launch of a point.
    ///
    /// # Errors
    /// [`IllegalPoint::Launch`].
    pub(crate) fn check(self, point: AtomicParallelism) -> Result<(), IllegalPoint> {
        let refused = |what, found: i64, expected| Err(IllegalPoint::Launch { what, found, expected });
        if !(32..=MOST_THREADS).contains(&self.block_threads) || !self.block_threads.is_multiple_of(32) {
            let found = i64::from(self.block_threads);
            return refused("threads of a block", found, "a multiple of 32 up to 512");
        }
        if let Some(columns) = self.tile_columns
            && (!columns.is_power_of_two() || columns < point.columns_per_thread())
        {
            return refused(
                "columns of a tile",
                i64::from(columns),
                "a power of two, no less than a thread's columns",
            );
        }
        if !(-31..=0).contains(&self.workers_log2) {
            return refused("logarithm of the share of workers", i64::from(self.workers_log2), "-31 to 0");
        }
        Ok(())
    }

    /// Lanes side by side along `n` columns.
    pub(crate) fn lanes(self, point: AtomicParallelism, n: u32) -> u32 {
        let columns = point.columns_per_thread();
        let threads = point.threads_per_row().unwrap_or(point.reduction()).max(point.reduction());
        let wanted = self.tile_columns.map_or(n.div_ceil(columns), |tile| tile / columns);
        wanted.clamp(1, 32).next_power_of_two().min(32 / threads)
    }
}

/// In the paper's order, without `groupSz`: `256, 8, 1/2`; `-` for a tile that is not given.
impl fmt::Display for GroupLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.block_threads)?;
        match self.tile_columns {
            Some(columns) => write!(f, "{columns}, ")?,
            None => write!(f, "-, ")?,
        }
        match self.workers_log2 {
            0 => write!(f, "1"),
            log2 => write!(f, "1/{}", 1_u64 << log2.unsigned_abs().min(63)),
        }
    }
}

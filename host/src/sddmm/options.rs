//! What a caller chooses for sampled products.

use std::fmt;

use windrow_formats::names;

use crate::options::Precision;
use crate::parallelism::IllegalPoint;
use crate::plan::Schedule;

/// What the values of the pattern are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SddmmForm {
    /// Nothing: the result is the product alone.
    #[default]
    Mask,
    /// The product is multiplied by the stored value, in f32.
    Scale,
}

impl SddmmForm {
    /// Both forms, the default first.
    pub const ALL: [Self; 2] = [Self::Mask, Self::Scale];
}

names!(SddmmForm, "form of a sampled product";
    Mask => "mask", Scale => "scale");

/// How a sampled product is computed on a GPU. The CPU has one algorithm, whichever is asked of those that there are
/// for the precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SddmmAlgorithm {
    /// What is predicted to be quickest: in f32 entries, groups or panels of rows, for tf32 also tiles; in f16 entries,
    /// groups or tiles. Tiles in bf16, entries in f64.
    #[default]
    Auto,
    /// Tensor Cores over tiles of 8 rows × 16 condensed columns. f16, bf16 and tf32.
    Tiles,
    /// CUDA cores, entry by entry. Any precision.
    Entries,
    /// CUDA cores, entry by entry, by groups of threads of [a size that can be chosen](super::SddmmBuilder::groups),
    /// after Sgap. f32, f64 and f16.
    Groups,
    /// CUDA cores over panels of 64 rows: what rows of a panel need of `Y` is brought to shared memory once, 64 rows of
    /// it at a time, and read once for every four rows of `X`, which are kept in registers. For patterns whose rows
    /// share columns. f32. Of a pattern that is on the device kernels lay it out, of others the host.
    RowPanels,
    /// Libra's distribution (section 4): the columns of a window in descending order of their entries, tiles that have
    /// at least [`tile_threshold`](super::SddmmBuilder::tile_threshold) entries on Tensor Cores, the rest on
    /// CUDA cores. f16, bf16 and tf32.
    Hybrid,
}

impl SddmmAlgorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Tiles, Self::Entries, Self::Groups, Self::RowPanels, Self::Hybrid];

    /// Whether there are kernels for `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match self {
            Self::Auto | Self::Entries => true,
            Self::Groups => matches!(precision, Precision::F32 | Precision::F64 | Precision::F16),
            Self::RowPanels => matches!(precision, Precision::F32),
            Self::Tiles | Self::Hybrid => precision.has_tile_kernels(),
        }
    }
}

names!(SddmmAlgorithm, "algorithm of sampled products";
    Auto => "auto", Tiles => "tiles", Entries => "entries", Groups => "groups", RowPanels => "row-panels",
    Hybrid => "hybrid");

/// How [`SddmmAlgorithm::Groups`] divides a sampled product.
///
/// The sum of an entry is along the dense inner dimension, Sgap's equation 4. `threads` is the reduction parallelism
/// `r` of the paper: so many threads of a warp take turns along the inner dimension, 16 bytes of a row each, and add
/// their sums in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct SddmmGroup {
    /// Threads that share an entry: 1, 2, 4, 8, 16 or 32.
    pub threads: u32,
    /// Successive entries that a group has, 1 to 1024; it works on four at a time.
    pub entries: u32,
}

impl SddmmGroup {
    /// Most entries of a group.
    const MOST_ENTRIES: u32 = 1024;

    /// What suits rows of `X` and `Y` of so many elements, which are read in pieces of 16 bytes. Threads that share a
    /// row read the sectors of 32 bytes whole; more of them are more work in flight, but more sums to add up, for which
    /// long rows leave less need. On an H200, of up to ten divisions for 49 patterns and inner dimensions of 16 to 256
    /// in f16 and f32, in 50 sizes of patterns and rows: mostly the quickest in the mean, at most an eighth behind.
    pub(crate) fn of(inner: usize, precision: Precision) -> Self {
        let bytes = precision.bytes() as usize;
        let threads = match inner.saturating_mul(bytes).div_ceil(16) {
            0..=2 => 1,
            // But for those of two bytes, rows of `X` are kept for successive entries: there is less to read.
            5..=8 if bytes > 2 => 4,
            3..=8 => 2,
            9..=32 => 4,
            pieces => pieces.div_ceil(8).clamp(1, 32).next_power_of_two(),
        };
        Self { threads: crate::num::narrow(threads), entries: 4 }
    }

    /// Threads that so many entries take.
    pub(super) fn threads_for(self, entries: u64) -> u64 {
        entries.div_ceil(u64::from(self.entries.max(1))).saturating_mul(u64::from(self.threads))
    }

    /// # Errors
    /// [`IllegalPoint::Reduction`], [`IllegalPoint::Launch`].
    pub(super) fn check(self) -> Result<(), IllegalPoint> {
        if !self.threads.is_power_of_two() || self.threads > 32 {
            return Err(IllegalPoint::Reduction { reduction: self.threads });
        }
        if !(1..=Self::MOST_ENTRIES).contains(&self.entries) {
            let (what, expected) = ("entries of a group", "1 to 1024");
            return Err(IllegalPoint::Launch { what, found: i64::from(self.entries), expected });
        }
        Ok(())
    }
}

/// `8 threads, 4 entries`.
impl fmt::Display for SddmmGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} threads, {} entries", self.threads, self.entries))
    }
}

/// The options of a plan as one plain value: what [`SddmmBuilder`](super::SddmmBuilder) sets one by one. As JSON a
/// missing field has its default, and a field that there is not is an error.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SddmmOptions {
    /// Columns of `X` and `Y` that most products will have: [`SddmmBuilder::inner`](super::SddmmBuilder::inner).
    pub inner: usize,
    /// The type that `X` and `Y` are rounded to: [`SddmmBuilder::precision`](super::SddmmBuilder::precision).
    pub precision: Precision,
    /// What the values of the pattern are for: [`SddmmBuilder::form`](super::SddmmBuilder::form).
    pub form: SddmmForm,
    /// The algorithm on a GPU: [`SddmmBuilder::algorithm`](super::SddmmBuilder::algorithm).
    pub algorithm: SddmmAlgorithm,
    /// How many threads share how many entries, for the algorithm that has groups:
    /// [`SddmmBuilder::groups`](super::SddmmBuilder::groups).
    pub group: Option<SddmmGroup>,
    /// Entries from which on a hybrid gives a tile to Tensor Cores:
    /// [`SddmmBuilder::tile_threshold`](super::SddmmBuilder::tile_threshold).
    pub tile_threshold: Option<u32>,
    /// Whether the parts of a hybrid follow each other or run beside each other:
    /// [`SddmmBuilder::schedule`](super::SddmmBuilder::schedule).
    pub schedule: Schedule,
    /// Whether the two paths that are predicted to be quickest are timed:
    /// [`SddmmBuilder::autotune`](super::SddmmBuilder::autotune).
    pub autotune: bool,
    /// Products that the plan will make: [`SddmmBuilder::expected_runs`](super::SddmmBuilder::expected_runs).
    pub expected_runs: Option<u64>,
    /// Device memory that the plan may take, in bytes:
    /// [`SddmmBuilder::memory_limit`](super::SddmmBuilder::memory_limit).
    pub memory_limit: Option<u64>,
    /// Whether an entry's position is found by scanning, for comparison.
    pub scan: bool,
}

impl Default for SddmmOptions {
    fn default() -> Self {
        Self {
            inner: 128,
            precision: Precision::F32,
            form: SddmmForm::Mask,
            algorithm: SddmmAlgorithm::Auto,
            group: None,
            tile_threshold: None,
            schedule: Schedule::Auto,
            autotune: false,
            expected_runs: None,
            memory_limit: None,
            scan: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_powers_of_two_and_follow_the_rows() {
        let of_f16 =
            [(0, 1), (16, 1), (17, 2), (64, 2), (65, 4), (256, 4), (257, 8), (512, 8), (100_000, 32)];
        let of_f32 = [(8, 1), (9, 2), (16, 2), (17, 4), (128, 4), (129, 8), (256, 8), (usize::MAX, 32)];
        let of = |precision| move |(inner, threads)| (precision, inner, threads);
        let cases = of_f16.map(of(Precision::F16)).into_iter().chain(of_f32.map(of(Precision::F32)));
        for (precision, inner, threads) in cases {
            let group = SddmmGroup::of(inner, precision);
            assert_eq!((group.threads, group.check()), (threads, Ok(())), "{inner} of {precision}");
        }
        for (threads, entries) in [(0, 4), (3, 4), (64, 4), (8, 0), (8, 1025)] {
            assert!(SddmmGroup { threads, entries }.check().is_err(), "{threads} threads, {entries} entries");
        }
    }

    #[test]
    fn names_round_trip() {
        for algorithm in SddmmAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<SddmmAlgorithm>().unwrap(), algorithm);
        }
        for form in SddmmForm::ALL {
            assert_eq!(form.to_string().parse::<SddmmForm>().unwrap(), form);
        }
        let error = "sum".parse::<SddmmForm>().unwrap_err();
        assert_eq!(error.to_string(), "\"sum\" is no form of a sampled product; there are mask and scale");
        let error = "csr".parse::<SddmmAlgorithm>().unwrap_err();
        let expected = "\"csr\" is no algorithm of sampled products; there are auto, tiles, entries, groups, row-panels and \
             hybrid";
        assert_eq!(error.to_string(), expected);
    }
}

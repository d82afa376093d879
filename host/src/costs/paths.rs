//! What each path of a product takes, in the terms of [`predict`](crate::predict): a number for each, all of them
//! fitted to measured times by `windrow-bench tuned --fit-paths`.

use serde::{Deserialize, Serialize};

/// What makes a cost less on another GPU.
#[derive(Clone, Copy)]
enum By {
    /// The cache and the multiprocessors, which go with the number of these and their clock.
    Cores,
    /// The rate at which memory is read.
    Memory,
    /// The clock alone: what one group of lanes waits for.
    Clock,
    /// Nothing makes it less, as with a launch.
    Fixed,
}

/// How many times as fast a GPU is as another.
#[derive(Clone, Copy)]
struct Times {
    multiprocessors: f64,
    clock: f64,
    memory: f64,
}

impl Times {
    fn of(self, by: By) -> f64 {
        match by {
            By::Cores => self.multiprocessors * self.clock,
            By::Memory => self.memory,
            By::Clock => self.clock,
            By::Fixed => 1.0,
        }
    }
}

/// A struct of numbers with names, in an order: as an array for a fit, by name in files and in the source. Behind each
/// name is by what it is scaled. What files did not have before counts nothing where it is left out: the other numbers
/// were fitted without it.
macro_rules! costs {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $field:ident: $by:ident),+ $(,)? }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$inner])* pub $field: f64),+
        }

        impl $name {
            /// Names of the numbers, in their order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            /// These numbers, in their order.
            ///
            /// # Panics
            /// If there are more or fewer.
            #[must_use]
            pub fn from_numbers(numbers: &[f64]) -> Self {
                let mut numbers = numbers.iter().copied();
                let found = Self { $($field: numbers.next().expect("a number for each term")),+ };
                assert!(numbers.next().is_none(), "a number for each term");
                found
            }

            /// The numbers in their order.
            #[must_use]
            pub fn numbers(&self) -> Vec<f64> {
                vec![$(self.$field),+]
            }

            fn scaled(self, times: Times) -> Self {
                Self { $($field: self.$field / times.of(By::$by)),+ }
            }
        }
    };
}

costs! {
    /// Row-split: microseconds for each of its terms.
    RowCosts {
        /// A launch, and whatever does not depend on the matrix.
        launch: Fixed,
        /// A megabyte of rows of `B`, gathered for each entry.
        gathered: Cores,
        /// A megabyte of these that the L1 cache does not hold. It holds what 64 rows of `A` have in common, as far as
        /// that fits.
        #[serde(default)]
        l1_missed: Cores,
        /// A megabyte of these that the L2 cache does not hold.
        missed: Memory,
        /// A megabyte of `A`, `B` and `C`, each read or written once.
        streamed: Memory,
        /// A megabyte of `A`, `B` and `C` by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
        /// A million entries, each for each slice of the width.
        entry: Cores,
        /// A million groups of lanes that have a row, for each slice.
        row: Cores,
        /// A thousand entries in a row of one group of lanes, for each slice: the longest waits for all of its own.
        chain: Clock,
        /// A second launch, for rows that are cut.
        cut: Fixed,
        /// A megabyte of sums of the pieces of the longest row, which one block adds up.
        #[serde(default)]
        joined: Clock,
        /// A million entries for which lanes of a warp wait as its rows differ in length.
        uneven: Cores,
    }
}

costs! {
    /// Segment groups: microseconds for each of their terms.
    GroupCosts {
        /// A launch, and whatever does not depend on the matrix.
        launch: Fixed,
        /// A megabyte of gathered rows of `B` that the L1 cache does not hold. It holds what 64 rows of `A` have in
        /// common, as far as that fits.
        #[serde(default)]
        l1_missed: Cores,
        /// A megabyte of them that the L2 cache does not hold.
        missed: Memory,
        /// A megabyte of `A`, for each tile of the width, `B` and `C`.
        streamed: Memory,
        /// A megabyte of `A`, `B` and `C` by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
        /// A million entries, for each thread side by side that reads one.
        entry: Cores,
        /// Of each million threads.
        thread: Cores,
        /// A thousand entries of one thread, one after the other.
        chain: Clock,
        /// A second launch, for rows that lie in two groups.
        cut: Fixed,
        /// A million threads that divide entries, and so find their rows and add up by segments.
        divided: Cores,
    }
}

costs! {
    /// The tile stream: microseconds for each of its terms.
    TileCosts {
        /// A launch, and whatever does not depend on the matrix.
        launch: Fixed,
        /// A megabyte of rows of `B`, gathered for each column vector.
        gathered: Cores,
        /// A megabyte of these that the cache does not hold.
        missed: Memory,
        /// A megabyte of steps, `B` and `C`.
        streamed: Memory,
        /// A megabyte by which all of these exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
        /// A million steps, for each slice of the width.
        step: Cores,
        /// A million windows, for each slice.
        window: Cores,
        /// A thousand steps of the longest window, if one warp has them.
        chain: Clock,
    }
}

costs! {
    /// Panels of rows: microseconds for each of their terms.
    PanelCosts {
        /// A launch, and whatever does not depend on the matrix.
        launch: Fixed,
        /// A megabyte of `A`, `B` and `C`, each read or written once.
        streamed: Memory,
        /// A megabyte of `A`, `B` and `C` by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
        /// A million vectors of four rows, for each 128 columns.
        vector: Cores,
        /// A million chunks of 32 columns, for each slice.
        chunk: Cores,
        /// A million panels, for each slice.
        panel: Cores,
        /// A megabyte of sums of pieces, where there are too few panels for the GPU.
        kept: Cores,
    }
}

costs! {
    /// Sampled products entry by entry: microseconds for each of their terms.
    SampledEntryCosts {
        /// A launch, and whatever does not depend on the pattern.
        launch: Fixed,
        /// A megabyte of gathered rows of `Y` that the cache does not hold.
        missed: Memory,
        /// A million batches of eight entries of a row.
        batch: Cores,
        /// A million lines of 128 bytes that batches work along.
        line: Cores,
        /// A megabyte of gathered rows of `Y` that the L1 cache does not hold. It holds what 64 rows of the pattern
        /// have in common, as far as that fits.
        #[serde(default)]
        l1_missed: Cores,
        /// A megabyte of `X`, `Y`, the pattern and the result by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
    }
}

costs! {
    /// Sampled products by groups of threads: microseconds for each of their terms.
    SampledGroupCosts {
        /// A launch, and whatever does not depend on the pattern.
        launch: Fixed,
        /// A megabyte of rows of `Y`, gathered for each entry.
        gathered: Cores,
        /// A megabyte of these that the cache does not hold.
        missed: Memory,
        /// A megabyte of `X`, `Y`, the pattern and the result.
        streamed: Memory,
        /// Of each million entries.
        entry: Cores,
        /// A million loads of 16 bytes that a thread does for an entry, one after the other.
        #[serde(default)]
        load: Cores,
        /// A million threads that share an entry, whose sums are added up.
        #[serde(default)]
        thread: Cores,
        /// A megabyte of `X`, `Y`, the pattern and the result by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
    }
}

costs! {
    /// Sampled products in tiles: microseconds for each of their terms.
    SampledTileCosts {
        /// A launch, and whatever does not depend on the pattern.
        launch: Fixed,
        /// A megabyte of `X`, `Y`, the pattern and the result.
        streamed: Memory,
        /// A million tiles of 8 × 16.
        tile: Cores,
        /// A million pieces of 64 bytes that tiles work along.
        piece: Cores,
        /// Of each million entries.
        entry: Cores,
        /// A million windows of eight rows.
        window: Cores,
        /// A megabyte of `X`, `Y`, the pattern and the result by which all of them exceed the L2 cache.
        #[serde(default)]
        spilled: Memory,
    }
}

costs! {
    /// Sampled products by panels of rows: microseconds for each of their terms.
    SampledPanelCosts {
        /// A launch, and whatever does not depend on the pattern.
        launch: Fixed,
        /// A megabyte of `X`, `Y`, the pattern and the result.
        streamed: Memory,
        /// A million vectors of four rows, for each slice of the inner dimension.
        vector: Cores,
        /// A million of them for each 128 columns that their products are formed along.
        dot: Cores,
        /// A million chunks of 64 columns, for each slice.
        chunk: Cores,
        /// A megabyte of rows of `Y` that chunks bring to shared memory.
        staged: Cores,
        /// A megabyte of rows of `X` that pieces of panels read.
        fetched: Cores,
    }
}

/// What each path of sparse-dense and sampled products takes, by which [`Algorithm::Auto`](crate::Algorithm::Auto) and
/// [`SddmmAlgorithm::Auto`](crate::SddmmAlgorithm::Auto) choose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PathCosts {
    /// Bytes of `B` or `Y` that stay in the L2 cache: of larger ones so much is missed.
    pub cache_bytes: f64,
    /// Bytes of rows of `B` that 64 rows of `A` may refer to, so that what they have in common stays in the L1 cache.
    pub l1_bytes: f64,
    /// Multiprocessors, by which rows are cut.
    pub multiprocessors: f64,
    /// Row-split with operands of f16.
    pub rows_f16: RowCosts,
    /// Row-split with operands of f32.
    pub rows_f32: RowCosts,
    /// Segment groups in f16.
    pub groups_f16: GroupCosts,
    /// Segment groups in f32.
    pub groups_f32: GroupCosts,
    /// The tile stream in f16.
    #[serde(alias = "tiles")]
    pub tiles_f16: TileCosts,
    /// The tile stream in tf32.
    pub tiles_tf32: TileCosts,
    /// Panels of rows in f32.
    pub panels_f32: PanelCosts,
    /// Microseconds in which the host lays an entry out in panels.
    pub panel_entry_us: f64,
    /// Microseconds in which kernels lay panels out, of however few entries.
    pub panel_kernels_us: f64,
    /// Microseconds that an entry adds to these.
    pub panel_kernels_entry_us: f64,
    /// Sampled products entry by entry, in f16.
    pub sampled_entries_f16: SampledEntryCosts,
    /// Sampled products entry by entry, in f32.
    #[serde(alias = "sampled_entries")]
    pub sampled_entries_f32: SampledEntryCosts,
    /// By groups of threads, in f16.
    pub sampled_groups_f16: SampledGroupCosts,
    /// By groups of threads, in f32.
    #[serde(alias = "sampled_groups")]
    pub sampled_groups_f32: SampledGroupCosts,
    /// In tiles, in f16.
    pub sampled_tiles_f16: SampledTileCosts,
    /// In tiles, in tf32.
    #[serde(alias = "sampled_tiles")]
    pub sampled_tiles_tf32: SampledTileCosts,
    /// By panels of rows, in f32.
    pub sampled_panels_f32: SampledPanelCosts,
}

impl PathCosts {
    /// These for a GPU with so many times the multiprocessors, their clock and the memory rate.
    pub(super) fn scaled(self, multiprocessors: f64, clock: f64, memory: f64) -> Self {
        let times = Times { multiprocessors, clock, memory };
        Self {
            cache_bytes: self.cache_bytes,
            l1_bytes: self.l1_bytes,
            multiprocessors: self.multiprocessors * multiprocessors,
            rows_f16: self.rows_f16.scaled(times),
            rows_f32: self.rows_f32.scaled(times),
            groups_f16: self.groups_f16.scaled(times),
            groups_f32: self.groups_f32.scaled(times),
            tiles_f16: self.tiles_f16.scaled(times),
            tiles_tf32: self.tiles_tf32.scaled(times),
            panels_f32: self.panels_f32.scaled(times),
            panel_entry_us: self.panel_entry_us,
            panel_kernels_us: self.panel_kernels_us,
            panel_kernels_entry_us: self.panel_kernels_entry_us,
            sampled_entries_f16: self.sampled_entries_f16.scaled(times),
            sampled_entries_f32: self.sampled_entries_f32.scaled(times),
            sampled_groups_f16: self.sampled_groups_f16.scaled(times),
            sampled_groups_f32: self.sampled_groups_f32.scaled(times),
            sampled_tiles_f16: self.sampled_tiles_f16.scaled(times),
            sampled_tiles_tf32: self.sampled_tiles_tf32.scaled(times),
            sampled_panels_f32: self.sampled_panels_f32.scaled(times),
        }
    }

    /// Microseconds in which so many entries are laid out in panels of rows, by kernels or by the host.
    pub(crate) fn panel_layout_us(&self, entries: f64, by_kernels: bool) -> f64 {
        match by_kernels {
            true => self.panel_kernels_us + self.panel_kernels_entry_us * entries,
            false => self.panel_entry_us * entries,
        }
    }

    /// What takes less than no time, or none at all, if anything.
    pub(super) fn nonsense(&self) -> Option<String> {
        let bad = |numbers: &[f64]| {
            numbers.iter().any(|cost| !(*cost >= 0.0 && cost.is_finite())) || numbers[0] <= 0.0
        };
        let (name, _) = self.named().into_iter().find(|(_, numbers)| bad(numbers))?;
        Some(format!("a number of costs.paths.{name} is negative or infinite, or the first of them is 0"))
    }

    /// Each group of numbers with the name of its field.
    fn named(&self) -> [(&'static str, Vec<f64>); 16] {
        [
            ("rows_f16", self.rows_f16.numbers()),
            ("rows_f32", self.rows_f32.numbers()),
            ("groups_f16", self.groups_f16.numbers()),
            ("groups_f32", self.groups_f32.numbers()),
            ("tiles_f16", self.tiles_f16.numbers()),
            ("tiles_tf32", self.tiles_tf32.numbers()),
            ("panels_f32", self.panels_f32.numbers()),
            ("panel_entry_us", vec![self.panel_entry_us]),
            ("panel_kernels_us", vec![self.panel_kernels_us, self.panel_kernels_entry_us]),
            ("sampled_entries_f16", self.sampled_entries_f16.numbers()),
            ("sampled_entries_f32", self.sampled_entries_f32.numbers()),
            ("sampled_groups_f16", self.sampled_groups_f16.numbers()),
            ("sampled_groups_f32", self.sampled_groups_f32.numbers()),
            ("sampled_tiles_f16", self.sampled_tiles_f16.numbers()),
            ("sampled_tiles_tf32", self.sampled_tiles_tf32.numbers()),
            ("sampled_panels_f32", self.sampled_panels_f32.numbers()),
        ]
    }
}

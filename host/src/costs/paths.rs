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
/// name is by what it is scaled.
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
        /// A megabyte of these that the cache does not hold.
        missed: Memory,
        /// A megabyte of `A`, `B` and `C`, each read or written once.
        streamed: Memory,
        /// A million entries, each for each slice of the width.
        entry: Cores,
        /// A million groups of lanes that have a row, for each slice.
        row: Cores,
        /// A thousand entries in a row of one group of lanes, for each slice: the longest waits for all of its own.
        chain: Clock,
        /// A second launch, for rows that are cut.
        cut: Fixed,
        /// A million entries for which lanes of a warp wait as its rows differ in length.
        uneven: Cores,
    }
}

costs! {
    /// Segment groups: microseconds for each of their terms.
    GroupCosts {
        /// A launch, and whatever does not depend on the matrix.
        launch: Fixed,
        /// A megabyte of gathered rows of `B` that the cache does not hold.
        missed: Memory,
        /// A megabyte of `A`, for each tile of the width, `B` and `C`.
        streamed: Memory,
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
        /// A million pieces of 32 bytes that tiles work along.
        piece: Cores,
        /// Of each million entries.
        entry: Cores,
        /// A million windows of eight rows.
        window: Cores,
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
}

impl PathCosts {
    /// Fitted by `windrow-bench tuned --fit-paths` to times of 29 matrices on one H200. Above each group is to how many
    /// times it was fitted, and the root of the mean square of their logarithmic errors, as a factor.
    pub(super) const H200: Self = Self {
        cache_bytes: 30e6,
        multiprocessors: 132.0,
        // 282 times, predicted within a factor of 1.20.
        rows_f16: RowCosts {
            launch: 2.23,
            gathered: 0.0734,
            missed: 0.044,
            streamed: 0.159,
            entry: 1.96,
            row: 16.9,
            chain: 75.0,
            cut: 4.09,
            uneven: 7.4,
        },
        // 319 times, predicted within a factor of 1.21.
        rows_f32: RowCosts {
            launch: 1.92,
            gathered: 0.0417,
            missed: 0.0209,
            streamed: 0.159,
            entry: 5.6,
            row: 16.6,
            chain: 20.7,
            cut: 2.74,
            uneven: 4.93,
        },
        // 313 times, predicted within a factor of 1.20.
        groups_f16: GroupCosts {
            launch: 2.23,
            missed: 0.0859,
            streamed: 0.297,
            entry: 1.46,
            thread: 3.33,
            chain: 94.0,
            cut: 2.29,
            divided: 12.6,
        },
        // 319 times, predicted within a factor of 1.19.
        groups_f32: GroupCosts {
            launch: 2.56,
            missed: 0.0295,
            streamed: 0.227,
            entry: 1.15,
            thread: 2.59,
            chain: 50.5,
            cut: 2.49,
            divided: 13.2,
        },
        // 283 times, predicted within a factor of 1.15.
        tiles_f16: TileCosts {
            launch: 3.08,
            gathered: 0.0279,
            missed: 0.0396,
            streamed: 0.124,
            step: 162.0,
            window: 194.0,
            chain: 27.3,
        },
        // 290 times, predicted within a factor of 1.14.
        tiles_tf32: TileCosts {
            launch: 3.51,
            gathered: 0.0349,
            missed: 0.0234,
            streamed: 0.119,
            step: 202.0,
            window: 101.0,
            chain: 31.1,
        },
        // 108 times of 18 matrices with six entries a row or more, predicted within a factor of 1.15.
        panels_f32: PanelCosts {
            launch: 6.81,
            streamed: 0.212,
            vector: 23.3,
            chunk: 1840.0,
            panel: 2810.0,
            kept: 0.324,
        },
        // 0.007 to 0.011 on 16 threads, of four matrices of 0.8 to 7.7 million entries that panels are taken for.
        panel_entry_us: 0.009,
        // 118 times, predicted within a factor of 1.16.
        sampled_entries_f16: SampledEntryCosts { launch: 1.63, missed: 0.0458, batch: 107.0, line: 105.0 },
        // 132 times, predicted within a factor of 1.18.
        sampled_entries_f32: SampledEntryCosts { launch: 1.59, missed: 0.0357, batch: 105.0, line: 86.5 },
        // 118 times, predicted within a factor of 1.14.
        sampled_groups_f16: SampledGroupCosts {
            launch: 2.93,
            gathered: 0.191,
            missed: 0.0463,
            streamed: 0.116,
            entry: 4.55,
        },
        // 118 times, predicted within a factor of 1.13.
        sampled_groups_f32: SampledGroupCosts {
            launch: 2.6,
            gathered: 0.152,
            missed: 0.0592,
            streamed: 0.101,
            entry: 9.37,
        },
        // 132 times, predicted within a factor of 1.15.
        sampled_tiles_f16: SampledTileCosts {
            launch: 2.76,
            streamed: 0.0848,
            tile: 169.0,
            piece: 56.3,
            entry: 0.91,
            window: 33.7,
        },
        // 132 times, predicted within a factor of 1.15.
        sampled_tiles_tf32: SampledTileCosts {
            launch: 2.9,
            streamed: 0.0643,
            tile: 152.0,
            piece: 69.0,
            entry: 1.15,
            window: 65.2,
        },
    };

    /// These for a GPU with so many times the multiprocessors, their clock and the memory rate.
    pub(super) fn scaled(self, multiprocessors: f64, clock: f64, memory: f64) -> Self {
        let times = Times { multiprocessors, clock, memory };
        Self {
            cache_bytes: self.cache_bytes,
            multiprocessors: self.multiprocessors * multiprocessors,
            rows_f16: self.rows_f16.scaled(times),
            rows_f32: self.rows_f32.scaled(times),
            groups_f16: self.groups_f16.scaled(times),
            groups_f32: self.groups_f32.scaled(times),
            tiles_f16: self.tiles_f16.scaled(times),
            tiles_tf32: self.tiles_tf32.scaled(times),
            panels_f32: self.panels_f32.scaled(times),
            panel_entry_us: self.panel_entry_us,
            sampled_entries_f16: self.sampled_entries_f16.scaled(times),
            sampled_entries_f32: self.sampled_entries_f32.scaled(times),
            sampled_groups_f16: self.sampled_groups_f16.scaled(times),
            sampled_groups_f32: self.sampled_groups_f32.scaled(times),
            sampled_tiles_f16: self.sampled_tiles_f16.scaled(times),
            sampled_tiles_tf32: self.sampled_tiles_tf32.scaled(times),
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
    fn named(&self) -> [(&'static str, Vec<f64>); 14] {
        [
            ("rows_f16", self.rows_f16.numbers()),
            ("rows_f32", self.rows_f32.numbers()),
            ("groups_f16", self.groups_f16.numbers()),
            ("groups_f32", self.groups_f32.numbers()),
            ("tiles_f16", self.tiles_f16.numbers()),
            ("tiles_tf32", self.tiles_tf32.numbers()),
            ("panels_f32", self.panels_f32.numbers()),
            ("panel_entry_us", vec![self.panel_entry_us]),
            ("sampled_entries_f16", self.sampled_entries_f16.numbers()),
            ("sampled_entries_f32", self.sampled_entries_f32.numbers()),
            ("sampled_groups_f16", self.sampled_groups_f16.numbers()),
            ("sampled_groups_f32", self.sampled_groups_f32.numbers()),
            ("sampled_tiles_f16", self.sampled_tiles_f16.numbers()),
            ("sampled_tiles_tf32", self.sampled_tiles_tf32.numbers()),
        ]
    }
}

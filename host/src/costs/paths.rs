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
    /// The tile stream in f16 and tf32: a matter of bytes.
    pub tiles: TileCosts,
    /// Sampled products entry by entry, in f32.
    pub sampled_entries: SampledEntryCosts,
    /// By groups of threads, in f32.
    pub sampled_groups: SampledGroupCosts,
    /// In tiles, in tf32.
    pub sampled_tiles: SampledTileCosts,
}

impl PathCosts {
    /// Fitted by `windrow-bench tuned --fit-paths` to times of 29 matrices on one H200. Above each group is to how many
    /// times it was fitted, and the root of the mean square of their logarithmic errors, as a factor.
    pub(super) const H200: Self = Self {
        cache_bytes: 30e6,
        multiprocessors: 132.0,
        // 174 times, predicted within a factor of 1.19.
        rows_f16: RowCosts {
            launch: 1.8,
            gathered: 0.076,
            missed: 0.0308,
            streamed: 0.21,
            entry: 1.29,
            row: 13.2,
            chain: 73.8,
            cut: 3.88,
            uneven: 8.26,
        },
        // 290 times, predicted within a factor of 1.21.
        rows_f32: RowCosts {
            launch: 1.81,
            gathered: 0.0419,
            missed: 0.0204,
            streamed: 0.16,
            entry: 5.62,
            row: 17.6,
            chain: 21.4,
            cut: 2.69,
            uneven: 4.83,
        },
        // 232 times, predicted within a factor of 1.26.
        groups_f16: GroupCosts {
            launch: 2.11,
            missed: 0.272,
            streamed: 0.233,
            entry: 1.92,
            thread: 3.97,
            chain: 120.0,
            cut: 1.94,
            divided: 34.1,
        },
        // 232 times, predicted within a factor of 1.19.
        groups_f32: GroupCosts {
            launch: 2.64,
            missed: 0.068,
            streamed: 0.219,
            entry: 1.23,
            thread: 1.48,
            chain: 55.0,
            cut: 2.39,
            divided: 15.0,
        },
        // 298 times, predicted within a factor of 1.14.
        tiles: TileCosts {
            launch: 2.82,
            gathered: 0.0507,
            missed: 0.0189,
            streamed: 0.138,
            step: 122.0,
            window: 167.0,
            chain: 28.3,
        },
        // 116 times, predicted within a factor of 1.18.
        sampled_entries: SampledEntryCosts { launch: 1.47, missed: 0.0337, batch: 105.0, line: 87.7 },
        // 87 times, predicted within a factor of 1.12.
        sampled_groups: SampledGroupCosts {
            launch: 2.26,
            gathered: 0.154,
            missed: 0.0551,
            streamed: 0.107,
            entry: 9.32,
        },
        // 116 times, predicted within a factor of 1.15.
        sampled_tiles: SampledTileCosts {
            launch: 2.96,
            streamed: 0.0432,
            tile: 106.0,
            piece: 71.2,
            entry: 1.86,
            window: 212.0,
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
            tiles: self.tiles.scaled(times),
            sampled_entries: self.sampled_entries.scaled(times),
            sampled_groups: self.sampled_groups.scaled(times),
            sampled_tiles: self.sampled_tiles.scaled(times),
        }
    }

    /// What takes less than no time, or none at all, if anything.
    pub(super) fn nonsense(&self) -> Option<String> {
        let bad = |numbers: &[f64]| {
            numbers.iter().any(|cost| !(*cost >= 0.0 && cost.is_finite())) || numbers[0] <= 0.0
        };
        let (name, _) = self.named().into_iter().find(|(_, numbers)| bad(numbers))?;
        Some(format!("a number of costs.paths.{name} is negative or infinite, or its launch takes no time"))
    }

    /// Each group of numbers with the name of its field.
    fn named(&self) -> [(&'static str, Vec<f64>); 8] {
        [
            ("rows_f16", self.rows_f16.numbers()),
            ("rows_f32", self.rows_f32.numbers()),
            ("groups_f16", self.groups_f16.numbers()),
            ("groups_f32", self.groups_f32.numbers()),
            ("tiles", self.tiles.numbers()),
            ("sampled_entries", self.sampled_entries.numbers()),
            ("sampled_groups", self.sampled_groups.numbers()),
            ("sampled_tiles", self.sampled_tiles.numbers()),
        ]
    }
}

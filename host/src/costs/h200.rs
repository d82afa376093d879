//! What each path takes on an H200.

use super::{
    GroupCosts, PanelCosts, PathCosts, RowCosts, SampledEntryCosts, SampledGroupCosts, SampledPanelCosts,
    SampledTileCosts, TileCosts,
};

impl PathCosts {
    /// Fitted by `windrow-bench tuned --fit-paths` to times of 61 matrices on one H200, of sampled panels of 29 of
    /// these. Above each group is to how many times it was fitted, and the root of the mean square of their logarithmic
    /// errors, as a factor.
    pub(super) const H200: Self = Self {
        cache_bytes: 30e6,
        l1_bytes: 600e3,
        multiprocessors: 132.0,
        // 549 times, predicted within a factor of 1.16.
        rows_f16: RowCosts {
            launch: 3.01,
            gathered: 0.0619,
            l1_missed: 0.0326,
            missed: 0.0207,
            streamed: 0.0,
            spilled: 0.202,
            entry: 2.76,
            row: 15.8,
            chain: 73.0,
            cut: 3.94,
            joined: 9.0,
            uneven: 7.88,
        },
        // 549 times, predicted within a factor of 1.16.
        rows_f32: RowCosts {
            launch: 3.1,
            gathered: 0.0264,
            l1_missed: 0.0431,
            missed: 0.000206,
            streamed: 0.0,
            spilled: 0.221,
            entry: 6.54,
            row: 10.4,
            chain: 17.2,
            cut: 2.92,
            joined: 27.0,
            uneven: 6.44,
        },
        // 549 times, predicted within a factor of 1.18.
        groups_f16: GroupCosts {
            launch: 3.21,
            l1_missed: 0.0751,
            missed: 0.0,
            streamed: 0.042,
            spilled: 0.335,
            entry: 1.29,
            thread: 4.66,
            chain: 68.0,
            cut: 2.85,
            divided: 11.9,
        },
        // 549 times, predicted within a factor of 1.18.
        groups_f32: GroupCosts {
            launch: 3.46,
            l1_missed: 0.0395,
            missed: 0.0,
            streamed: 0.0994,
            spilled: 0.215,
            entry: 0.96,
            thread: 2.81,
            chain: 34.6,
            cut: 2.63,
            divided: 10.4,
        },
        // 549 times, predicted within a factor of 1.15.
        tiles_f16: TileCosts {
            launch: 3.66,
            gathered: 0.0341,
            missed: 0.0202,
            streamed: 0.0336,
            spilled: 0.112,
            step: 184.0,
            window: 173.0,
            chain: 15.9,
        },
        // 549 times, predicted within a factor of 1.14.
        tiles_tf32: TileCosts {
            launch: 3.88,
            gathered: 0.0379,
            missed: 0.0165,
            streamed: 0.0464,
            spilled: 0.0813,
            step: 219.0,
            window: 97.3,
            chain: 14.2,
        },
        // 549 times, predicted within a factor of 1.16.
        panels_f32: PanelCosts {
            launch: 7.6,
            streamed: 0.122,
            spilled: 0.0232,
            vector: 25.4,
            chunk: 1860.0,
            panel: 2490.0,
            kept: 0.28,
        },
        // 0.007 to 0.011 on 16 threads, of four matrices of 0.8 to 7.7 million entries that panels are taken for.
        panel_entry_us: 0.009,
        // 305 times, predicted within a factor of 1.11.
        sampled_entries_f16: SampledEntryCosts { launch: 2.34, missed: 0.059, batch: 104.0, line: 104.0 },
        // 305 times, predicted within a factor of 1.16.
        sampled_entries_f32: SampledEntryCosts { launch: 2.42, missed: 0.0403, batch: 97.5, line: 88.4 },
        // 305 times, predicted within a factor of 1.13.
        sampled_groups_f16: SampledGroupCosts {
            launch: 3.12,
            gathered: 0.184,
            missed: 0.0748,
            streamed: 0.0893,
            entry: 0.616,
            load: 1.49,
        },
        // 305 times, predicted within a factor of 1.14.
        sampled_groups_f32: SampledGroupCosts {
            launch: 2.91,
            gathered: 0.159,
            missed: 0.061,
            streamed: 0.0999,
            entry: 8.26,
            load: 0.0,
        },
        // 305 times, predicted within a factor of 1.13.
        sampled_tiles_f16: SampledTileCosts {
            launch: 3.34,
            streamed: 0.0896,
            tile: 150.0,
            piece: 117.0,
            entry: 0.45,
            window: 0.0,
        },
        // 305 times, predicted within a factor of 1.14.
        sampled_tiles_tf32: SampledTileCosts {
            launch: 3.11,
            streamed: 0.0785,
            tile: 184.0,
            piece: 133.0,
            entry: 0.276,
            window: 1.93,
        },
        // 145 times, predicted within a factor of 1.14.
        sampled_panels_f32: SampledPanelCosts {
            launch: 2.57,
            streamed: 0.0605,
            vector: 5.26,
            dot: 40.9,
            chunk: 2170.0,
            staged: 0.0689,
            fetched: 0.254,
        },
    };
}

//! What each path takes on an H200.

use super::{
    GroupCosts, PanelCosts, PathCosts, RowCosts, SampledEntryCosts, SampledGroupCosts, SampledPanelCosts,
    SampledTileCosts, TileCosts,
};

impl PathCosts {
    /// Fitted by `windrow-bench tuned --fit-paths` to times of 61 matrices on one H200. Above each group is to how many
    /// times it was fitted, and the root of the mean square of their logarithmic errors, as a factor.
    pub(super) const H200: Self = Self {
        cache_bytes: 30e6,
        l1_bytes: 600e3,
        multiprocessors: 132.0,
        // 549 times, predicted within a factor of 1.16.
        rows_f16: RowCosts {
            launch: 2.91,
            gathered: 0.0624,
            l1_missed: 0.0317,
            missed: 0.0176,
            streamed: 0.0088,
            spilled: 0.201,
            entry: 2.94,
            row: 13.5,
            chain: 76.4,
            cut: 3.75,
            joined: 9.45,
            uneven: 7.6,
        },
        // 549 times, predicted within a factor of 1.16.
        rows_f32: RowCosts {
            launch: 2.9,
            gathered: 0.0264,
            l1_missed: 0.0439,
            missed: 0.0,
            streamed: 0.00922,
            spilled: 0.214,
            entry: 6.54,
            row: 10.4,
            chain: 19.0,
            cut: 3.01,
            joined: 26.7,
            uneven: 6.14,
        },
        // 549 times, predicted within a factor of 1.18.
        groups_f16: GroupCosts {
            launch: 3.2,
            l1_missed: 0.0752,
            missed: 0.0,
            streamed: 0.0525,
            spilled: 0.345,
            entry: 1.27,
            thread: 4.32,
            chain: 71.8,
            cut: 2.71,
            divided: 13.2,
        },
        // 549 times, predicted within a factor of 1.18.
        groups_f32: GroupCosts {
            launch: 3.4,
            l1_missed: 0.0394,
            missed: 0.0,
            streamed: 0.111,
            spilled: 0.221,
            entry: 0.946,
            thread: 2.38,
            chain: 37.5,
            cut: 2.63,
            divided: 11.4,
        },
        // 549 times, predicted within a factor of 1.15.
        tiles_f16: TileCosts {
            launch: 3.47,
            gathered: 0.0365,
            missed: 0.016,
            streamed: 0.035,
            spilled: 0.112,
            step: 182.0,
            window: 185.0,
            chain: 16.1,
        },
        // 549 times, predicted within a factor of 1.14.
        tiles_tf32: TileCosts {
            launch: 3.72,
            gathered: 0.0403,
            missed: 0.0128,
            streamed: 0.0482,
            spilled: 0.0825,
            step: 218.0,
            window: 107.0,
            chain: 14.0,
        },
        // 549 times, predicted within a factor of 1.15.
        panels_f32: PanelCosts {
            launch: 6.37,
            streamed: 0.0565,
            spilled: 0.0954,
            vector: 26.0,
            chunk: 1770.0,
            panel: 3980.0,
            kept: 0.165,
        },
        // 0.007 to 0.011 on 16 threads, of four matrices of 0.8 to 7.7 million entries that panels are taken for.
        panel_entry_us: 0.009,
        // 0.83 to 1.12 of what it takes for five matrices of 0.8 to 7.7 million entries that panels are taken for, 1.46
        // for one of 50 thousand; less, down to 0.2, where rows share nothing. Not measured of sampled products.
        panel_kernels_us: 250.0,
        panel_kernels_entry_us: 0.0002,
        // 305 times, predicted within a factor of 1.10.
        sampled_entries_f16: SampledEntryCosts {
            launch: 2.16,
            missed: 0.0106,
            batch: 110.0,
            line: 93.6,
            l1_missed: 0.0147,
            spilled: 0.145,
        },
        // 305 times, predicted within a factor of 1.13.
        sampled_entries_f32: SampledEntryCosts {
            launch: 2.28,
            missed: 0.0158,
            batch: 103.0,
            line: 71.2,
            l1_missed: 0.0271,
            spilled: 0.118,
        },
        // 305 times, predicted within a factor of 1.12.
        sampled_groups_f16: SampledGroupCosts {
            launch: 2.96,
            gathered: 0.143,
            missed: 0.00999,
            streamed: 0.0184,
            entry: 0.0,
            load: 1.25,
            thread: 2.73,
            spilled: 0.187,
        },
        // 305 times, predicted within a factor of 1.14.
        sampled_groups_f32: SampledGroupCosts {
            launch: 2.95,
            gathered: 0.0959,
            missed: 0.0081,
            streamed: 0.0141,
            entry: 1.52,
            load: 0.976,
            thread: 1.86,
            spilled: 0.145,
        },
        // 305 times, predicted within a factor of 1.13.
        sampled_tiles_f16: SampledTileCosts {
            launch: 2.95,
            streamed: 0.083,
            tile: 162.0,
            piece: 115.0,
            entry: 0.441,
            window: 0.0,
            spilled: 0.0255,
        },
        // 305 times, predicted within a factor of 1.14.
        sampled_tiles_tf32: SampledTileCosts {
            launch: 2.95,
            streamed: 0.0681,
            tile: 184.0,
            piece: 133.0,
            entry: 0.411,
            window: 21.5,
            spilled: 0.0167,
        },
        // 305 times, predicted within a factor of 1.12.
        sampled_panels_f32: SampledPanelCosts {
            launch: 2.47,
            streamed: 0.0933,
            vector: 6.46,
            dot: 38.2,
            chunk: 1860.0,
            staged: 0.0771,
            fetched: 0.222,
        },
    };
}

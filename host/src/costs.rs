//! What work costs on a GPU model: the rates and thresholds by which plans choose among kernels.
//!
//! All of them were measured on an NVIDIA H200 ([`DeviceCosts::H200`]). A GPU that nothing was measured on has the
//! H200's, in proportion to what its driver tells: multiprocessors, clock and memory rate ([`DeviceCosts::of`]). They
//! are part of a [`Profile`](crate::Profile).

mod h200;
mod nm;
mod paths;

use serde::{Deserialize, Deserializer, Serialize};
use windrow_preprocess::partition::CostModel;

pub use self::nm::{
    NmCudaCoreCosts, NmDenseCosts, NmFewRowsCosts, NmSparseTensorCoreCosts, NmTensorCoreCosts,
};
pub use self::paths::{
    GroupCosts, PanelCosts, PathCosts, RowCosts, SampledEntryCosts, SampledGroupCosts, SampledPanelCosts,
    SampledTileCosts, TileCosts,
};
use crate::device::{Device, Speeds};

/// What work costs on a GPU model.
///
/// # Examples
/// ```
/// use windrow::costs::DeviceCosts;
/// use windrow::{Device, Profile};
///
/// let mut profile = Profile::built_in(&Device::cpu());
/// assert_eq!(profile.costs, DeviceCosts::H200);
/// profile.costs.spmm.stream_rate = 1.5e12; // as measured
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DeviceCosts {
    /// Sparse-dense products, for the choice of a partition and predicted times.
    pub spmm: CostModel,
    /// What each path takes, by which plans choose among them.
    pub paths: PathCosts,
    /// Where the division of segment groups turns.
    pub groups: GroupThresholds,
    /// Where the forms of tile streams turn.
    pub tiles: TileThresholds,
    /// Orders of rows that nobody asked for.
    pub orders: OrderCosts,
    /// Threads that occupy the GPU several times over, for MTTKRP: with fewer, each has fewer entries.
    pub tensor_threads: f64,
    /// Products with N:M weights on CUDA cores.
    pub nm_cuda_cores: NmCudaCoreCosts,
    /// Products with N:M weights on Tensor Cores.
    pub nm_tensor_cores: NmTensorCoreCosts,
    /// What products with N:M weights cost on sparse Tensor Cores.
    pub nm_sparse_tensor_cores: NmSparseTensorCoreCosts,
    /// Products of few rows with N:M weights.
    pub nm_few_rows: NmFewRowsCosts,
    /// Dense products by a library, to compare those with N:M weights with.
    pub nm_dense: NmDenseCosts,
}

/// Where the questions of the decision tree of [`Algorithm::SegmentGroup`](crate::Algorithm::SegmentGroup) turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupThresholds {
    /// Entries that a thread of a row has, if there are rows enough; twice as many where threads lie side by side.
    pub entries_each: f64,
    /// Threads that a GPU holds: fewer rows are shared by more threads.
    pub threads: f64,
    /// Most threads that share a row for want of rows.
    pub most_for_want: f64,
    /// Entries of the longest row that one thread may have: some rounds of four loads.
    pub longest_each: f64,
    /// Times the mean length that the longest row may have if it is longer.
    pub alike: f64,
    /// Entries of the longest row for one thread even then.
    pub longest_of_alike_each: f64,
    /// Groups of entries that occupy a GPU: with fewer entries threads have fewer each.
    pub groups: f64,
    /// Most entries of a thread.
    pub most_each: f64,
    /// Most threads side by side along the columns of `B`: with fewer, more of them share a row.
    pub most_lanes: f64,
    /// Threads of a launch below which its blocks have 64.
    pub small_blocks: f64,
    /// Threads of a launch from which on its blocks have 256; infinite, in a file `null`, for never.
    #[serde(deserialize_with = "or_infinite")]
    pub large_blocks: f64,
    /// Widest `B` for which threads own rows; wider ones are left to row-split.
    pub widest_rows: f64,
    /// Widest `B` for which threads own entries.
    pub widest_nonzeros: f64,
}

/// Where the forms of tile streams turn, which slices they are divided into, and where they are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TileThresholds {
    /// Mean steps of a warp below which a width of one wide slice is divided into narrow ones: the time is latency,
    /// which more warps hide better.
    pub narrow_steps: f64,
    /// Mean entries of a step, of 128 that there is room for, up to which its values are packed: beyond, they are
    /// hardly fewer bytes than all places.
    pub packed_entries: f64,
    /// Mean steps of a warp from which on they are packed: the first records are found by one more load, which few
    /// steps do not make up for.
    pub packed_steps: f64,
    /// The same of warps with one slice of 128 bytes: a step has less data to the instructions that decode its values.
    pub packed_steps_narrow: f64,
    /// Bytes of `B` below which such warps are limited by their instructions, not by what they gather.
    pub packed_b_bytes_narrow: u64,
    /// Entries from which on the GPU lays a matrix out unless told otherwise: for fewer, its part is some thirty
    /// launches and a dozen allocations, whatever the matrix.
    pub layout_entries: u64,
    /// Products from which on a layout in tiles pays for itself, beside one of CSR as it is: with
    /// [`expected_runs`](crate::SpmmBuilder::expected_runs) below, none is made.
    pub least_runs: u64,
}

/// What an order of rows costs that kernels find, and what it must gain to be taken where nobody asked for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct OrderCosts {
    /// Microseconds by which a plan in such an order takes longer than one in the matrix's own, whatever the matrix.
    pub base_us: f64,
    /// Nanoseconds more for each entry.
    pub entry_ns: f64,
    /// Nanoseconds more for each row.
    pub row_ns: f64,
    /// Share of a product's time that an order must be predicted to save: below, the prediction is no surer than that.
    pub least_gain: f64,
}

impl DeviceCosts {
    /// What was measured on one NVIDIA H200.
    pub const H200: Self = Self {
        spmm: CostModel::h200(),
        paths: PathCosts::H200,
        groups: GroupThresholds::FITTED,
        tiles: TileThresholds::H200,
        orders: OrderCosts::H200,
        tensor_threads: 750_000.0,
        nm_cuda_cores: NmCudaCoreCosts::H200,
        nm_tensor_cores: NmTensorCoreCosts::H200,
        nm_sparse_tensor_cores: NmSparseTensorCoreCosts::H200,
        nm_few_rows: NmFewRowsCosts::H200,
        nm_dense: NmDenseCosts::H200,
    };

    /// Those of the H200, in proportion to what the driver tells of `device`; as they are for what it does not tell,
    /// for the emulator and the CPU.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        match device.speeds() {
            Some(speeds) if device.name() != MEASURED => {
                Self::H200.scaled(speeds, device.compute_capability())
            }
            _ => Self::H200,
        }
    }

    /// Those of the H200 for a GPU with these speeds. Rates follow the multiprocessors and their clock, or the memory;
    /// how many threads fill the GPU, the multiprocessors. What a launch takes, and thresholds that are shares or
    /// counts of a warp's work, stay.
    fn scaled(self, has: Speeds, compute_capability: Option<(u32, u32)>) -> Self {
        let ratio =
            |has: Option<f64>, h200: f64| has.filter(|&rate| rate > 0.0).map_or(1.0, |rate| rate / h200);
        let multiprocessors = ratio(Some(f64::from(has.multiprocessors)), H200_MULTIPROCESSORS);
        let clock = ratio(has.clock_hz, H200_CLOCK_HZ);
        let memory = ratio(has.memory_rate, H200_MEMORY_RATE);
        let Self {
            mut spmm,
            paths,
            mut groups,
            tiles,
            orders,
            mut tensor_threads,
            nm_cuda_cores,
            nm_tensor_cores,
            nm_sparse_tensor_cores,
            nm_few_rows,
            nm_dense,
        } = self;
        spmm.gather_rate *= multiprocessors * clock;
        spmm.stream_rate *= memory;
        for filled in [
            &mut groups.threads,
            &mut groups.groups,
            &mut groups.small_blocks,
            &mut groups.large_blocks,
            &mut tensor_threads,
        ] {
            *filled *= multiprocessors;
        }
        let paths = paths.scaled(multiprocessors, clock, memory);
        Self {
            spmm,
            paths,
            groups,
            tiles,
            orders,
            tensor_threads,
            nm_cuda_cores: nm_cuda_cores.scaled(clock, memory, compute_capability),
            nm_tensor_cores: nm_tensor_cores.scaled(clock, memory),
            nm_sparse_tensor_cores: nm_sparse_tensor_cores.scaled(clock),
            nm_few_rows: nm_few_rows.scaled(clock, memory),
            nm_dense: nm_dense.scaled(clock, memory, compute_capability),
        }
    }

    /// What is divided by, or compared with, and is not a positive number, if anything.
    pub(crate) fn nonsense(&self) -> Option<String> {
        let Self {
            spmm,
            paths,
            nm_cuda_cores,
            nm_tensor_cores,
            nm_sparse_tensor_cores,
            nm_few_rows,
            nm_dense,
            tensor_threads,
            ..
        } = self;
        let [wide, half, quarter] = nm_tensor_cores.strip_flop_per_ns;
        [
            ("costs.spmm.gather_rate", spmm.gather_rate),
            ("costs.spmm.stream_rate", spmm.stream_rate),
            ("costs.paths.cache_bytes", paths.cache_bytes),
            ("costs.paths.l1_bytes", paths.l1_bytes),
            ("costs.paths.multiprocessors", paths.multiprocessors),
            ("costs.tensor_threads", *tensor_threads),
            ("costs.nm_cuda_cores.cycles_per_ns", nm_cuda_cores.cycles_per_ns),
            ("costs.nm_cuda_cores.fmas_per_cycle", nm_cuda_cores.fmas_per_cycle),
            ("costs.nm_cuda_cores.busy_warps", nm_cuda_cores.busy_warps),
            ("costs.nm_cuda_cores.combine_bytes_per_cycle", nm_cuda_cores.combine_bytes_per_cycle),
            ("costs.nm_tensor_cores.l2_bytes_per_ns", nm_tensor_cores.l2_bytes_per_ns),
            ("costs.nm_tensor_cores.memory_bytes_per_ns", nm_tensor_cores.memory_bytes_per_ns),
            ("costs.nm_tensor_cores.strip_flop_per_ns", wide.min(half).min(quarter)),
            ("costs.nm_tensor_cores.warp_flop_per_ns", nm_tensor_cores.warp_flop_per_ns),
            ("costs.nm_sparse_tensor_cores.flop_per_ns", nm_sparse_tensor_cores.flop_per_ns),
            (
                "costs.nm_sparse_tensor_cores.gathered_bytes_per_ns",
                nm_sparse_tensor_cores.gathered_bytes_per_ns,
            ),
            ("costs.nm_sparse_tensor_cores.kept_bytes_per_ns", nm_sparse_tensor_cores.kept_bytes_per_ns),
            (
                "costs.nm_sparse_tensor_cores.combine_bytes_per_ns",
                nm_sparse_tensor_cores.combine_bytes_per_ns,
            ),
            ("costs.nm_few_rows.memory_bytes_per_ns", nm_few_rows.memory_bytes_per_ns),
            ("costs.nm_few_rows.weight_bytes_per_ns", nm_few_rows.weight_bytes_per_ns),
            ("costs.nm_few_rows.activation_bytes_per_ns", nm_few_rows.activation_bytes_per_ns),
            ("costs.nm_dense.half_flop_per_ns", nm_dense.half_flop_per_ns),
            ("costs.nm_dense.tf32_flop_per_ns", nm_dense.tf32_flop_per_ns),
            ("costs.nm_dense.f32_flop_per_ns", nm_dense.f32_flop_per_ns),
            ("costs.nm_dense.memory_bytes_per_ns", nm_dense.memory_bytes_per_ns),
        ]
        .into_iter()
        .find(|&(_, rate)| !(rate > 0.0 && rate.is_finite()))
        .map(|(name, rate)| format!("{name} is {rate}, and must be a positive number"))
        .or_else(|| paths.nonsense())
    }
}

/// The GPU that was measured, as its driver calls it.
const MEASURED: &str = "NVIDIA H200";
/// What that GPU has, as the driver tells it of others: HBM of 6144 bits at 3201 MHz, twice a cycle.
const H200_MULTIPROCESSORS: f64 = 132.0;
const H200_CLOCK_HZ: f64 = 1.98e9;
const H200_MEMORY_RATE: f64 = 4.917e12;

impl GroupThresholds {
    /// What suits one H200 best, as `windrow-bench tuned --fit` found it: over 29 matrices and six widths the tree is
    /// 4.9 % behind the best of up to 115 ways in the geometric mean, 2.02 times at worst (mbeacxc at width 16);
    /// fitted to all matrices but the one in question, 6.7 %.
    pub const FITTED: Self = Self {
        entries_each: 8.0,
        threads: 270_000.0,
        most_for_want: 32.0,
        longest_each: 32.0,
        alike: 12.0,
        longest_of_alike_each: 128.0,
        groups: 32_768.0,
        most_each: 16.0,
        most_lanes: 32.0,
        small_blocks: 32_000.0,
        large_blocks: f64::INFINITY,
        widest_rows: 16.0,
        widest_nonzeros: 16.0,
    };
}

impl TileThresholds {
    /// On an H200, narrow slices at width 128 took 0.91 to 0.96 of the time for bcsstk16, `helsinki_road`, memplus,
    /// PROTEINS and pubmed (0.6 to 4.5 steps); 1.03 to 1.05 for email-Enron and p2p-Gnutella31 (9.4 and 7.5). Packed
    /// values, f16, took 0.75 to 0.96 of the time (uniform200k most) where all four thresholds hold, but for
    /// pruned4096 (1.03 at width 128), and 0.93 to 1.18 of it elsewhere. The GPU's layout took half as long as 16
    /// threads for 17,000 entries already. Tiles in f16 at width 128 paid for themselves after 17 to 316 products on 27
    /// of 28 matrices, 62 in the median, and after 2258 on one.
    const H200: Self = Self {
        narrow_steps: 5.0,
        packed_entries: 48.0,
        packed_steps: 6.0,
        packed_steps_narrow: 8.0,
        packed_b_bytes_narrow: 4 << 20,
        layout_entries: 1 << 14,
        least_runs: 60,
    };
}

impl OrderCosts {
    /// Fitted to tiles in f16 at width 128 of 28 matrices, by relative error: 0.62 to 1.50 of what was measured (1.5 to
    /// 7.9 ms). Where the cost model predicts that less than a fiftieth is saved, products took 0.99 to 1.04 of the
    /// time.
    const H200: Self = Self { base_us: 2240.0, entry_ns: 0.81, row_ns: 6.4, least_gain: 0.02 };
}

/// What a file leaves out is as on the H200.
macro_rules! default_of {
    ($($name:ident = $value:ident),*) => {$(
        impl Default for $name {
            fn default() -> Self {
                Self::$value
            }
        }
    )*};
}
default_of!(
    DeviceCosts = H200,
    PathCosts = H200,
    GroupThresholds = FITTED,
    TileThresholds = H200,
    OrderCosts = H200,
    NmCudaCoreCosts = H200,
    NmTensorCoreCosts = H200,
    NmFewRowsCosts = H200,
    NmDenseCosts = H200,
    NmSparseTensorCoreCosts = H200
);

/// A number, or infinity for `null`, as which JSON has it.
fn or_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An A100 of 40 GB, as its driver describes it.
    const A100: Speeds = Speeds { multiprocessors: 108, clock_hz: Some(1.41e9), memory_rate: Some(1.555e12) };

    #[test]
    fn the_h200_and_what_is_unknown_have_what_was_measured() {
        let h200 = Speeds {
            multiprocessors: 132,
            clock_hz: Some(H200_CLOCK_HZ),
            memory_rate: Some(H200_MEMORY_RATE),
        };
        let silent = Speeds { multiprocessors: 132, clock_hz: None, memory_rate: Some(0.0) };
        for speeds in [h200, silent] {
            assert_eq!(DeviceCosts::H200.scaled(speeds, Some((9, 0))), DeviceCosts::H200);
        }
        assert_eq!(DeviceCosts::of(&Device::cpu()), DeviceCosts::H200);
    }

    #[test]
    fn another_gpu_has_its_own_rates() {
        let costs = DeviceCosts::H200.scaled(A100, Some((8, 0)));
        let (multiprocessors, clock, memory) = (108.0 / 132.0, 1.41 / 1.98, 1.555 / 4.917);
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a}, {b}");
        near(costs.spmm.gather_rate, 8.7e12 * multiprocessors * clock);
        near(costs.spmm.stream_rate, 4.3e12 * memory);
        near(costs.groups.threads, 270_000.0 * multiprocessors);
        near(costs.tensor_threads, 750_000.0 * multiprocessors);
        near(costs.nm_tensor_cores.strip_flop_per_ns[2], 900.0 * clock);
        near(costs.nm_tensor_cores.memory_bytes_per_ns, 3500.0 * memory);
        near(costs.nm_tensor_cores.fill_ns, 2500.0 / clock);
        near(costs.nm_sparse_tensor_cores.flop_per_ns, 21_000.0 * clock);
        near(costs.nm_cuda_cores.combine_bytes_per_cycle, 1500.0 * memory / clock);
        near(costs.nm_cuda_cores.fmas_per_cycle, 64.0);
        near(costs.nm_cuda_cores.cycles_per_ns, 1.43 * clock);
        near(costs.nm_dense.half_flop_per_ns, 3600.0 * clock);
        near(costs.nm_dense.row_ns, 1.9 / clock);
        near(costs.nm_dense.memory_bytes_per_ns, 3500.0 * memory);
        near(costs.paths.rows_f32.entry, PathCosts::H200.rows_f32.entry / (multiprocessors * clock));
        near(costs.paths.tiles_f16.streamed, PathCosts::H200.tiles_f16.streamed / memory);
        near(costs.paths.groups_f16.chain, PathCosts::H200.groups_f16.chain / clock);
        near(costs.paths.multiprocessors, 108.0);
        assert_eq!(costs.paths.sampled_tiles_f16.launch, PathCosts::H200.sampled_tiles_f16.launch);
        assert_eq!(costs.groups.large_blocks, f64::INFINITY);
        assert_eq!((costs.tiles, costs.spmm.launch_seconds), (TileThresholds::H200, 2.5e-6));
        assert_eq!(costs.nonsense(), None);
    }

    #[test]
    fn costs_come_back_as_they_were_written_and_what_is_left_out_is_the_h200s() {
        let mut costs = DeviceCosts::H200.scaled(A100, Some((8, 0)));
        let text = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<DeviceCosts>(&text).unwrap(), costs);
        costs = serde_json::from_str(r#"{"spmm":{"stream_rate":1e12},"groups":{"alike":3.0}}"#).unwrap();
        assert_eq!((costs.spmm.stream_rate, costs.groups.alike), (1e12, 3.0));
        costs.spmm.stream_rate = DeviceCosts::H200.spmm.stream_rate;
        costs.groups.alike = GroupThresholds::FITTED.alike;
        assert_eq!(costs, DeviceCosts::H200, "a file that was written before there were costs of paths, too");
        let mut written = serde_json::to_value(costs).unwrap();
        written["paths"]["tiles_tf32"]["launch"] = 7.5.into();
        let read: DeviceCosts = serde_json::from_value(written).unwrap();
        assert_eq!((read.paths.tiles_tf32.launch, read.paths.rows_f32), (7.5, PathCosts::H200.rows_f32));
        // What files did not have before counts nothing beside numbers that were fitted without it.
        let mut older = serde_json::to_value(DeviceCosts::H200).unwrap();
        older["paths"]["rows_f32"].as_object_mut().unwrap().remove("spilled");
        let read: DeviceCosts = serde_json::from_value(older).unwrap();
        assert_eq!(read.paths.rows_f32, RowCosts { spilled: 0.0, ..PathCosts::H200.rows_f32 });
        for wrong in [r#"{"spmv":{}}"#, r#"{"paths":{"tiles":{"launch":1.0}}}"#] {
            assert!(serde_json::from_str::<DeviceCosts>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_that_are_none_are_named() {
        let mut costs = DeviceCosts::H200;
        costs.nm_tensor_cores.strip_flop_per_ns[1] = 0.0;
        let reason = "costs.nm_tensor_cores.strip_flop_per_ns is 0, and must be a positive number";
        assert_eq!(costs.nonsense().as_deref(), Some(reason));
        costs = DeviceCosts::H200;
        costs.spmm.gather_rate = -1.0;
        assert!(costs.nonsense().unwrap().starts_with("costs.spmm.gather_rate is -1"));
        costs = DeviceCosts::H200;
        costs.paths.tiles_f16.step = f64::NAN;
        assert!(
            costs
                .nonsense()
                .unwrap()
                .starts_with("a number of costs.paths.tiles_f16 is negative or infinite")
        );
        costs.paths = PathCosts { cache_bytes: 0.0, ..PathCosts::H200 };
        assert!(costs.nonsense().unwrap().starts_with("costs.paths.cache_bytes is 0"));
    }
}

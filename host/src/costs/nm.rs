//! What products with N:M weights cost.

use serde::{Deserialize, Serialize};

/// What products with N:M weights cost on CUDA cores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NmCudaCoreCosts {
    /// Sparsity from which on columns are packed unless told.
    pub packed_from: f64,
    /// Of the cycles in which the others are counted, those that pass in a nanosecond: fewer than the clock has, for
    /// not every one makes products where instances reach their share of the best.
    pub cycles_per_ns: f64,
    /// Products of an FMA that a multiprocessor makes in a cycle.
    pub fmas_per_cycle: f64,
    /// Warps that keep a multiprocessor busy; with fewer, nothing is done while they wait.
    pub busy_warps: f64,
    /// Cycles that a block takes beside its products: it brings its first stage, and stores its tile.
    pub block_cycles: f64,
    /// Cycles of a second launch.
    pub combine_cycles: f64,
    /// Bytes that it moves in a cycle.
    pub combine_bytes_per_cycle: f64,
}

/// What products with N:M weights cost on Tensor Cores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NmTensorCoreCosts {
    /// Bytes that come to a multiprocessor from the L2 cache in a nanosecond, when all of them ask.
    pub l2_bytes_per_ns: f64,
    /// Bytes that come from memory in a nanosecond, and that a second launch moves.
    pub memory_bytes_per_ns: f64,
    /// Nanoseconds in which a block fills its pipeline, once.
    pub fill_ns: f64,
    /// Nanoseconds in which it stores a tile.
    pub store_ns: f64,
    /// Nanoseconds of a second launch.
    pub combine_ns: f64,
    /// Operations of f16 that a multiprocessor makes in a nanosecond, for strips of 32, of 16 and of 8 columns: what
    /// reading the operand from shared memory leaves.
    pub strip_flop_per_ns: [f64; 3],
    /// The same that a warp makes by itself, where there are few.
    pub warp_flop_per_ns: f64,
    /// Nanoseconds of a stage at least: weights are asked for one stage ahead.
    pub least_stage_ns: f64,
}

/// What products with N:M weights cost on sparse Tensor Cores, and where warpgroups multiply kept rows alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NmSparseTensorCoreCosts {
    /// Operations that a multiprocessor makes in a nanosecond, those with weights that are dropped among them.
    pub flop_per_ns: f64,
    /// Nanoseconds of a step, whatever it has: of a stage of 64 rows, or of two where tiles are small.
    pub step_ns: f64,
    /// Nanoseconds of a stage's weights of 128 columns, beside its operations.
    pub stage_ns: f64,
    /// Nanoseconds of a stage whose rows are gathered in an order, beside its bytes.
    pub gathered_stage_ns: f64,
    /// Bytes of such a stage that come in a nanosecond beyond these.
    pub gathered_bytes_per_ns: f64,
    /// Nanoseconds of a stage of rows that a whole tile keeps, beside its bytes.
    pub kept_stage_ns: f64,
    /// Bytes of such a stage that come in a nanosecond beyond these.
    pub kept_bytes_per_ns: f64,
    /// Nanoseconds in which a block stores an element of 16 bits of `C`, in whole rows.
    pub element_ns: f64,
    /// The same where each warp stores columns of its own, as f32.
    pub scattered_element_ns: f64,
    /// Nanoseconds in which a block fills its pipeline, once.
    pub fill_ns: f64,
    /// Nanoseconds by which a second launch, which adds up the parts of a product, is longer than its bytes take.
    pub combine_ns: f64,
    /// Bytes that it moves in a nanosecond, most of them in the L2 cache.
    pub combine_bytes_per_ns: f64,
}

/// What products of few rows with N:M weights cost on Tensor Cores: mostly reading the weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NmFewRowsCosts {
    /// Bytes of weights that come from memory in a nanosecond.
    pub memory_bytes_per_ns: f64,
    /// Bytes of weights that come to a multiprocessor in a nanosecond.
    pub weight_bytes_per_ns: f64,
    /// Bytes of activations that do, which are the same for all of them.
    pub activation_bytes_per_ns: f64,
    /// Nanoseconds in which a block gets its first bytes, and adds up what its warps have.
    pub fill_ns: f64,
}

/// What a dense product costs by cuBLAS, as if its kernels were of a few sizes of tiles, and `k` divided where that is
/// quicker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NmDenseCosts {
    /// Operations of f16 and bf16 that a multiprocessor makes in a nanosecond.
    pub half_flop_per_ns: f64,
    /// Operations of tf32, each on elements of four bytes.
    pub tf32_flop_per_ns: f64,
    /// Operations of f32, on CUDA cores.
    pub f32_flop_per_ns: f64,
    /// Nanoseconds that each row of the weights costs a tile beside its operations.
    pub row_ns: f64,
    /// Bytes that come from memory in a nanosecond.
    pub memory_bytes_per_ns: f64,
    /// Nanoseconds that a product takes beside its work.
    pub launch_ns: f64,
    /// Nanoseconds that it takes at least.
    pub least_ns: f64,
}

impl NmCudaCoreCosts {
    /// The paper packs from 0.7 (section III-A); here packed stages hold more kept rows, and on an H200 packing wins
    /// 30 % at 0.625 and nothing at 0.5.
    pub(super) const H200: Self = Self {
        packed_from: 0.6,
        // Measured: products of 512 to 12,288 rows and columns in f32, a sixth more or less.
        cycles_per_ns: 1.43,
        fmas_per_cycle: 128.0,
        busy_warps: 8.0,
        block_cycles: 4000.0,
        combine_cycles: 5000.0,
        combine_bytes_per_cycle: 1500.0,
    };

    /// For a GPU with so many times the clock and the memory rate.
    pub(super) fn scaled(mut self, clock: f64, memory: f64, compute_capability: Option<(u32, u32)>) -> Self {
        self.cycles_per_ns *= clock;
        self.combine_bytes_per_cycle *= memory / clock;
        if compute_capability == Some((8, 0)) {
            self.fmas_per_cycle /= 2.0; // half as many cores as later ones have
        }
        self
    }
}

impl NmTensorCoreCosts {
    pub(super) const H200: Self = Self {
        l2_bytes_per_ns: 56.0,
        memory_bytes_per_ns: 3500.0,
        fill_ns: 2500.0,
        store_ns: 1000.0,
        combine_ns: 2500.0,
        strip_flop_per_ns: [2600.0, 1600.0, 900.0],
        // Measured on an H100, five tiles by eight products of 64 to 1024 rows and four patterns: of a few values the
        // one whose choice is nearest to the quickest, 1.01 times as long.
        warp_flop_per_ns: 200.0,
        // On an H100 a stage of 16 × 128 takes 0.3 to 0.5 µs with 1 to 16 rows, whatever it brings.
        least_stage_ns: 400.0,
    };

    /// For a GPU with so many times the clock and the memory rate.
    pub(super) fn scaled(mut self, clock: f64, memory: f64) -> Self {
        self.l2_bytes_per_ns *= clock;
        self.memory_bytes_per_ns *= memory;
        self.fill_ns /= clock;
        self.store_ns /= clock;
        self.strip_flop_per_ns = self.strip_flop_per_ns.map(|flop| flop * clock);
        self.warp_flop_per_ns *= clock;
        self.least_stage_ns /= clock;
        self
    }
}

impl NmSparseTensorCoreCosts {
    /// Fitted to four tiles and 17 shapes from 512³ to 4096 × 12288 × 4096 in f16, where no parts are added up: the
    /// tile that it takes is the quickest of those timed, or takes 1.01 times as long; times are predicted to 0.90 to
    /// 1.17 of what was measured, to 6 % in the root mean square. What adding up parts takes, and what gathered stages
    /// do, was measured on an H100, whose multiprocessors and L2 cache are much the same: that of rows which a whole
    /// tile keeps on 15 shapes, four tiles and four patterns, whose times are predicted to 3 % in the mean, and at
    /// worst to 0.83 of what was measured.
    pub(super) const H200: Self = Self {
        flop_per_ns: 21_000.0,
        step_ns: 156.0,
        stage_ns: 83.0,
        gathered_stage_ns: 250.0,
        gathered_bytes_per_ns: 87.0,
        kept_stage_ns: 377.0,
        kept_bytes_per_ns: 141.0,
        element_ns: 0.058,
        scattered_element_ns: 0.143,
        fill_ns: 2300.0,
        combine_ns: 500.0,
        combine_bytes_per_ns: 5500.0,
    };

    /// For a GPU with so many times the clock.
    pub(super) fn scaled(mut self, clock: f64) -> Self {
        self.flop_per_ns *= clock;
        self.step_ns /= clock;
        self.stage_ns /= clock;
        self.gathered_stage_ns /= clock;
        self.gathered_bytes_per_ns *= clock;
        self.kept_stage_ns /= clock;
        self.kept_bytes_per_ns *= clock;
        self.element_ns /= clock;
        self.scattered_element_ns /= clock;
        self.fill_ns /= clock;
        self.combine_bytes_per_ns *= clock;
        self
    }
}

impl NmFewRowsCosts {
    /// Measured on an H100, whose multiprocessors are those of the H200: 1 to 64 rows, layers of 4096 × 4096, 11008 ×
    /// 4096 and 4096 × 11008, a half, a quarter and an eighth of the rows kept.
    pub(super) const H200: Self = Self {
        memory_bytes_per_ns: 5000.0,
        weight_bytes_per_ns: 48.0,
        activation_bytes_per_ns: 26.0,
        fill_ns: 2500.0,
    };

    /// For a GPU with so many times the clock and the memory rate.
    pub(super) fn scaled(mut self, clock: f64, memory: f64) -> Self {
        self.memory_bytes_per_ns *= memory;
        self.weight_bytes_per_ns *= clock;
        self.activation_bytes_per_ns *= clock;
        self.fill_ns /= clock;
        self
    }
}

impl NmDenseCosts {
    /// Fitted to cuBLAS with a warm cache: f16 and bf16 from 128 to 8192 rows, layers of 2048 to 12,288 rows and
    /// columns, within a quarter, f32 within an eighth, tf32 of 1024 rows and more within a quarter.
    pub(super) const H200: Self = Self {
        half_flop_per_ns: 7200.0,
        tf32_flop_per_ns: 3200.0,
        f32_flop_per_ns: 400.0,
        row_ns: 1.9,
        memory_bytes_per_ns: 3500.0,
        launch_ns: 2500.0,
        // 512³ in f16, which is nothing to multiply, takes 8.3 µs.
        least_ns: 8000.0,
    };

    /// For a GPU with so many times the clock and the memory rate. Tensor Cores of a multiprocessor do half as much in
    /// a cycle on 8.0 as on 9.0, and a quarter on GPUs for desktops.
    pub(super) fn scaled(mut self, clock: f64, memory: f64, compute_capability: Option<(u32, u32)>) -> Self {
        let (tensor_cores, cores) = match compute_capability {
            Some((8, 0)) => (0.5, 0.5),
            Some((9 | 10, _)) | None => (1.0, 1.0),
            Some(_) => (0.25, 1.0),
        };
        self.half_flop_per_ns *= clock * tensor_cores;
        self.tf32_flop_per_ns *= clock * tensor_cores;
        self.f32_flop_per_ns *= clock * cores;
        self.row_ns /= clock;
        self.memory_bytes_per_ns *= memory;
        self
    }
}

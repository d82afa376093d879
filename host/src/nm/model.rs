//! What the cost models of all algorithms share: pure arithmetic.

use windrow_formats::NmPattern;
use windrow_kernels::Entry;
use windrow_kernels::nm::NmTile;

use super::operands::Operands;
use crate::costs::{
    DeviceCosts, NmCudaCoreCosts, NmDenseCosts, NmFewRowsCosts, NmSparseTensorCoreCosts, NmTensorCoreCosts,
};
use crate::num::{index, wide};

/// The sizes of a product: `C[m × n]` from weights of `inner` rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) inner: u32,
    pub(super) pattern: NmPattern,
}

impl Sizes {
    /// Rows of the packed weights.
    pub(super) fn kept_rows(&self) -> usize {
        self.pattern.kept_rows(index(u64::from(self.inner)))
    }

    /// Whether a strip of columns of this tile never reaches into a second vector.
    pub(super) fn suit(&self, tile: NmTile) -> bool {
        let l = self.pattern.l();
        l.is_multiple_of(index(u64::from(tile.strip))) || wide(l) >= u64::from(self.n)
    }

    /// Bytes that move so that a product divided into parts becomes one: each part is written and read, the sum
    /// written.
    pub(super) fn combined_bytes(&self, parts_log2: u32) -> f64 {
        f64::from(self.m) * f64::from(self.n) * 4.0 * (2.0 * f64::from(1 << parts_log2) + 1.0)
    }
}

/// What the models know of a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) multiprocessors: u32,
    /// Shared memory that a block may have, in bytes.
    pub(super) shared_bytes: u32,
    /// Compute capability, as `10·major + minor`.
    pub(super) sm: u32,
    /// What work costs on its CUDA cores.
    pub(super) cuda_cores: NmCudaCoreCosts,
    /// The same on its Tensor Cores.
    pub(super) tensor_cores: NmTensorCoreCosts,
    /// The same on its sparse Tensor Cores.
    pub(super) sparse_tensor_cores: NmSparseTensorCoreCosts,
    /// The same of products of few rows.
    pub(super) few_rows: NmFewRowsCosts,
    /// The same of dense products by a library.
    pub(super) dense: NmDenseCosts,
}

impl Capacity {
    /// That of a machine with these numbers, of which the models have these costs.
    pub(super) const fn new(multiprocessors: u32, shared_bytes: u32, sm: u32, costs: &DeviceCosts) -> Self {
        Self {
            multiprocessors,
            shared_bytes,
            sm,
            cuda_cores: costs.nm_cuda_cores,
            tensor_cores: costs.nm_tensor_cores,
            sparse_tensor_cores: costs.nm_sparse_tensor_cores,
            few_rows: costs.nm_few_rows,
            dense: costs.nm_dense,
        }
    }

    /// Nanoseconds of one more launch, which moves so many bytes.
    pub(super) fn launch_ns(&self, bytes: f64) -> f64 {
        self.tensor_cores.combine_ns + bytes / self.tensor_cores.memory_bytes_per_ns
    }

    /// Those of the launch that adds up the parts of a product; none if it has one.
    pub(super) fn combine_ns(&self, sizes: Sizes, parts_log2: u32) -> f64 {
        if parts_log2 == 0 { 0.0 } else { self.launch_ns(sizes.combined_bytes(parts_log2)) }
    }

    /// Nanoseconds of work whose weights, so many bytes, come from memory a stage or two ahead of their use: whichever
    /// takes longer, and a part of the other.
    pub(super) fn with_weights_from_memory(&self, work_ns: f64, bytes: f64) -> f64 {
        let memory_ns = bytes / self.tensor_cores.memory_bytes_per_ns;
        work_ns.max(memory_ns) + 0.3 * work_ns.min(memory_ns)
    }

    /// Whether the machine runs an entry point.
    pub(super) fn runs(&self, entry: &Entry) -> bool {
        entry.arch.runs_on(self.sm) && entry.shared_bytes <= self.shared_bytes
    }
}

/// What computes a product, from activations as it reads them to sums.
#[derive(Debug, Clone, Copy)]
pub(super) enum Program {
    /// A kernel, and what its blocks take at a time.
    Kernel { entry: &'static Entry, tile: NmTile },
    /// A function of a library.
    Library { function: &'static str },
}

impl Program {
    /// The name of the entry point or the function.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel { entry, .. } => entry.name,
            Self::Library { function } => function,
        }
    }

    /// The entry point; none of a library.
    pub(super) const fn entry(self) -> Option<&'static Entry> {
        match self {
            Self::Kernel { entry, .. } => Some(entry),
            Self::Library { .. } => None,
        }
    }
}

/// Where a program leaves its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// In `C`, after all that is done to them.
    Finished,
    /// In `1 << log2` parts of the product, in a workspace: another launch adds them up and finishes them.
    Partial { log2: u32 },
}

impl Sums {
    /// Those of a product in `1 << log2` parts, which a program finishes if it is one and `finishes`.
    pub(super) const fn of(log2: u32, finishes: bool) -> Self {
        if log2 == 0 && finishes { Self::Finished } else { Self::Partial { log2 } }
    }

    /// Into how many parts the product is divided, as a power of two.
    pub(super) const fn parts_log2(self) -> u32 {
        match self {
            Self::Finished => 0,
            Self::Partial { log2 } => log2,
        }
    }
}

/// A way to compute products: a program, and how weights are cut for it.
pub(super) trait Instance {
    fn program(&self) -> Program;

    /// Whether the program takes undivided sums to `C` as the operands of a run ask; if there are none, whether it does
    /// for any.
    fn finishes(&self, _run: Option<&Operands>) -> bool {
        true
    }

    /// Bytes that the program needs for itself while it works.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Stages that a block goes through.
    fn stages(&self, sizes: Sizes) -> usize;

    /// Parts that stages may be divided into, as a power of two.
    fn most_parts_log2(&self) -> u32;

    /// Nanoseconds that a product takes, roughly, once activations are as the program reads them.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64;

    /// Into how many parts, a power of two, the stages are best divided. No part is empty.
    fn parts_log2(&self, sizes: Sizes, capacity: Capacity) -> u32 {
        let stages = self.stages(sizes).max(1);
        let cost = |log2| self.cost(sizes, capacity, log2);
        (0..=self.most_parts_log2())
            .filter(|&log2| stages.div_ceil(1 << log2) * ((1 << log2) - 1) < stages)
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            .unwrap_or(0)
    }

    /// The cost of the product divided as is best.
    fn least_cost(&self, sizes: Sizes, capacity: Capacity) -> f64 {
        self.cost(sizes, capacity, self.parts_log2(sizes, capacity))
    }
}

/// The instances, cheapest first.
pub(super) fn by_cost<I: Instance>(mut all: Vec<I>, sizes: Sizes, capacity: Capacity) -> Vec<I> {
    all.sort_by(|a, b| a.least_cost(sizes, capacity).total_cmp(&b.least_cost(sizes, capacity)));
    all
}

//! Which tile a product on CUDA cores takes, and how weights are cut for it: pure arithmetic.

use windrow_formats::NmPattern;
use windrow_kernels::nm::NmTile;
use windrow_kernels::{ENTRIES, Entry, Variant};
use windrow_preprocess::nm::BlockShape;

use super::model::{Capacity, Instance, Program, Sizes, by_cost};
use super::options::NmPacking;
use crate::costs::NmCudaCoreCosts;
use crate::num::{gcd, index, narrow, real, wide};

/// Most kept rows of a stage: more do not make barriers noticeably rarer.
const MOST_KEPT: usize = 64;

/// An instance of the kernel and how weights are cut for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) entry: &'static Entry,
    pub(super) tile: NmTile,
    pub(super) shape: BlockShape,
}

impl Choice {
    /// Whether stages are brought while others are multiplied. Those without are for measurements.
    pub(super) fn is_pipelined(&self) -> bool {
        matches!(self.entry.variant, Variant::NmCudaCores { buffers: 2.., .. })
    }

    /// Whether they come by bulk copies.
    fn is_bulk(&self) -> bool {
        matches!(self.entry.variant, Variant::NmCudaCores { bulk: true, .. })
    }
}

/// Every instance that weights of this pattern can be cut for, cheapest first.
pub(super) fn choices(sizes: Sizes, capacity: Capacity, packing: NmPacking) -> Vec<Choice> {
    let choice = |entry: &'static Entry| match entry.variant {
        Variant::NmCudaCores { tile, .. } if sizes.suit(tile) && capacity.runs(entry) => {
            let shape =
                shape(Cut { tile, shared_bytes: entry.shared_bytes }, sizes, packing, &capacity.cuda_cores)?;
            Some(Choice { entry, tile, shape })
        }
        _ => None,
    };
    by_cost(ENTRIES.iter().filter_map(choice).collect(), sizes, capacity)
}

/// Whether packing is what the sparsity suggests.
fn packs(packing: NmPacking, pattern: NmPattern, costs: &NmCudaCoreCosts) -> bool {
    match packing {
        NmPacking::Auto => pattern.sparsity() >= costs.packed_from,
        NmPacking::Packed => true,
        NmPacking::Plain => false,
    }
}

/// What weights are cut for.
struct Cut {
    tile: NmTile,
    shared_bytes: u32,
}

/// The longest stages of which two fit into shared memory; packed where plain ones of a single group do not.
fn shape(
    Cut { tile, shared_bytes }: Cut,
    sizes: Sizes,
    packing: NmPacking,
    costs: &NmCudaCoreCosts,
) -> Option<BlockShape> {
    let multiple = index(u64::from(tile.depth_multiple()));
    let (n, columns) = (sizes.pattern.n(), index(u64::from(sizes.n)));
    // Whole groups without padding, if that is not too many kept rows; else without padding, or whole groups.
    let both = n * (multiple / gcd(n, multiple));
    let tries: &[(bool, usize)] = match (packs(packing, sizes.pattern, costs), packing) {
        (true, _) => &[(true, both), (true, multiple)],
        (false, NmPacking::Plain) => &[(false, both), (false, n), (true, both), (true, multiple)],
        (false, _) => &[(false, both), (true, both), (true, multiple), (false, n)],
    };
    let limit = MOST_KEPT.min(sizes.kept_rows().div_ceil(2));
    for &(packed, unit) in tries {
        let of = |count: usize| BlockShape {
            block_columns: index(u64::from(tile.columns)),
            strip_columns: index(u64::from(tile.strip)),
            kept_per_stage: count * unit,
            depth_multiple: multiple,
            packed,
        };
        let fits = |shape: &BlockShape| {
            let (slots, depth) = (shape.most_slots(sizes.pattern, columns), shape.depth());
            let bytes = u64::from(tile.shared_bytes(narrow(slots), narrow(depth)));
            slots < 1 << 15 && depth < 1 << 15 && bytes <= u64::from(shared_bytes)
        };
        let longest = (1..=limit.div_ceil(unit).max(1)).map(of).take_while(fits).last();
        if longest.is_some() {
            return longest;
        }
    }
    None
}

impl Instance for Choice {
    fn program(&self) -> Program {
        Program::Kernel { entry: self.entry, tile: self.tile }
    }

    fn stages(&self, sizes: Sizes) -> usize {
        sizes.kept_rows().div_ceil(self.shape.kept_per_stage)
    }

    fn most_parts_log2(&self) -> u32 {
        4
    }

    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let Self { entry, tile, shape } = self;
        let costs = &capacity.cuda_cores;
        let (m, n, w) = (f64::from(sizes.m), f64::from(sizes.n), real(wide(sizes.kept_rows())));
        let parts = f64::from(1 << parts_log2);
        let (rows, columns) = (f64::from(tile.rows), f64::from(tile.columns));
        let blocks = (m / rows).ceil() * (n / columns).ceil() * parts;
        let per_multiprocessor = (blocks / f64::from(capacity.multiprocessors)).ceil();
        let resident = per_multiprocessor.min(f64::from(entry.min_blocks));
        let busy = (resident * f64::from(entry.block_threads) / 32.0 / costs.busy_warps).min(1.0).sqrt();
        let depth = real(wide(shape.depth()));
        let padding = depth / real(wide(shape.kept_per_stage));
        let products = rows * columns * w * padding / parts / costs.fmas_per_cycle;
        let efficiency = efficiency(*tile, self.is_bulk(), depth) * busy;
        let combine = match parts_log2 {
            0 => 0.0,
            log2 => costs.combine_cycles + sizes.combined_bytes(log2) / costs.combine_bytes_per_cycle,
        };
        let rounds = per_multiprocessor / f64::from(entry.min_blocks).max(1.0);
        let cycles =
            per_multiprocessor * products / efficiency + costs.block_cycles * rounds.ceil() + combine;
        cycles / costs.cycles_per_ns
    }
}

/// Share of the peak that an instance reaches with stages of so many kept rows when nothing else limits it, of that
/// of the best at first. What the code of an instance leaves of the peak, rather than what a GPU has: measured on an
/// H200 at 4096³, and at 256 × 4096 × 4096 for small tiles.
fn efficiency(tile: NmTile, bulk: bool, depth: f64) -> f64 {
    /// Kept rows of the stages for which shares are noted.
    const NOTED_DEPTH: f64 = 16.0;
    // The share, and as many kept rows as the barrier of a stage and bringing the next cost.
    let (share, overhead) = match (tile.rows, tile.columns, tile.strip) {
        (64, 128, 32) if bulk => (0.94, 5.0),
        (64, 128, 32) => (0.90, 5.0),
        (128, 128, 32) if bulk => (0.87, 6.7),
        (128, 128, 32) => (0.87, 4.3),
        (64, 64, 32) => (0.80, 5.0),
        (32, 64, 32) => (0.66, 5.0),
        (32, 32, 16) => (0.72, 5.0),
        (128, 128, 8) => (0.80, 5.0),
        (32, 64, 8) => (0.60, 5.0),
        (128, 64, 4) => (0.55, 5.0),
        (32, 32, 4) => (0.40, 5.0),
        _ => (0.20, 5.0),
    };
    share * (NOTED_DEPTH + overhead) / NOTED_DEPTH * depth / (depth + overhead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::DeviceCosts;

    const H200: Capacity = Capacity::new(132, 227 * 1024, 90, &DeviceCosts::H200);

    fn sizes(m: u32, n: u32, k: usize, (keep, group, l): (usize, usize, usize)) -> Sizes {
        let pattern = NmPattern::new(keep, group, l).unwrap();
        Sizes { m, n, inner: narrow(k), pattern }
    }

    #[test]
    fn large_products_take_the_large_tile_undivided() {
        let old = Capacity { sm: 80, ..H200 };
        for (keep, tile) in [(16, "128x128"), (12, "128x128"), (8, "64x128"), (4, "64x128")] {
            let sizes = sizes(4096, 4096, 4096, (keep, 32, 32));
            for (capacity, name) in [(H200, format!("nm_f32_{tile}_bulk")), (old, format!("nm_f32_{tile}"))] {
                let best = choices(sizes, capacity, NmPacking::Auto)[0];
                assert_eq!(best.entry.name, name);
                assert_eq!(best.parts_log2(sizes, capacity), 0);
                assert_eq!(best.shape.packed, keep <= 12);
                assert!(best.shape.kept_per_stage >= 16, "{:?}", best.shape);
            }
        }
    }

    /// Microseconds on an H200.
    #[test]
    fn the_model_is_near_to_what_was_measured() {
        for (m, n, k, keep, took) in [
            (4096, 4096, 4096, 16, 1439.4),
            (4096, 4096, 4096, 4, 404.5),
            (1024, 4096, 11_008, 8, 520.5),
            (256, 11_008, 4096, 12, 224.9),
            (512, 2048, 2048, 16, 59.3),
            (512, 1024, 1024, 8, 11.8),
        ] {
            let sizes = sizes(m, n, k, (keep, 32, 32));
            let ratio = choices(sizes, H200, NmPacking::Auto)[0].least_cost(sizes, H200) / 1e3 / took;
            assert!((0.8..1.25).contains(&ratio), "{m} × {n} × {k}, {keep}:32: {ratio:.2}");
        }
    }

    #[test]
    fn few_blocks_are_divided() {
        let sizes = sizes(64, 1024, 8192, (8, 32, 32));
        let best = choices(sizes, H200, NmPacking::Auto)[0];
        assert!(best.parts_log2(sizes, H200) > 0, "{best:?}");
    }

    #[test]
    fn every_pattern_has_a_tile() {
        for (keep, group, l) in
            [(1, 1, 1), (1, 256, 3), (256, 256, 1), (128, 256, 32), (255, 256, 4), (7, 9, 8), (2, 4, 6)]
        {
            for packing in NmPacking::ALL {
                for (m, n, k) in [(1, 1, 1), (100, 300, 700)] {
                    let sizes = sizes(m, n, k, (keep, group, l));
                    let small = Capacity { shared_bytes: 99 * 1024, ..H200 };
                    for capacity in [H200, small] {
                        let all = choices(sizes, capacity, packing);
                        assert!(!all.is_empty(), "{keep}:{group}, {l}, {packing}");
                        for Choice { entry, tile, shape } in all {
                            let slots = narrow(shape.most_slots(sizes.pattern, index(u64::from(n))));
                            assert!(tile.shared_bytes(slots, narrow(shape.depth())) <= entry.shared_bytes);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn strips_lie_in_vectors() {
        let strips = |l, n| {
            let all = choices(sizes(64, n, 64, (2, 4, l)), H200, NmPacking::Auto);
            let mut strips: Vec<_> = all.iter().map(|choice| choice.tile.strip).collect();
            strips.sort_unstable();
            strips.dedup();
            strips
        };
        assert_eq!(strips(32, 128), [1, 4, 8, 16, 32]);
        assert_eq!(strips(24, 128), [1, 4, 8]);
        assert_eq!(strips(6, 128), [1]);
        assert_eq!(strips(100, 128), [1, 4]);
        assert_eq!(strips(100, 99), [1, 4, 8, 16, 32], "one vector");
    }
}

//! Which instance a product on sparse Tensor Cores takes: pure arithmetic.

use windrow_formats::NmPattern;
use windrow_kernels::nm::{NmTile, SPARSE_STAGE};
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::nm::model::{Capacity, Instance, Sizes, by_cost};
use crate::num::{index, narrow};
use crate::options::Precision;

/// An instance of the kernel.
#[derive(Debug, Clone, Copy)]
pub(in crate::nm) struct Choice {
    pub(super) entry: &'static Entry,
    pub(super) tile: NmTile,
}

/// Whether a pattern keeps two of each four rows at most, wherever they are. Four rows from a multiple of four on are
/// in two groups at most, and in one if groups have a multiple of four rows.
pub(in crate::nm) fn keeps_two_of_four(pattern: NmPattern) -> bool {
    let (n, m) = (pattern.n(), pattern.m());
    (n == 1 && m > 1) || (n == 2 && m.is_multiple_of(4))
}

/// Whether a pattern keeps two of each four rows of its own, so that none is multiplied by a weight of zero in place of
/// a kept one. (Where rows end, what is multiplied so is zero, too.)
pub(in crate::nm) fn fills_two_of_four(pattern: NmPattern) -> bool {
    matches!((pattern.n(), pattern.m()), (2, 4) | (1, 2))
}

/// Every instance for the precision that the machine has shared memory for, cheapest first; none for patterns that keep
/// more than the instruction takes.
pub(in crate::nm) fn choices(precision: Precision, sizes: Sizes, capacity: Capacity) -> Vec<Choice> {
    if !keeps_two_of_four(sizes.pattern) {
        return Vec::new();
    }
    let choice = |entry: &'static Entry| match entry.variant {
        Variant::NmSparse { dtype, tile } if dtype == precision.dtype() && capacity.runs(entry) => {
            Some(Choice { entry, tile })
        }
        _ => None,
    };
    by_cost(ENTRIES.iter().filter_map(choice).collect(), sizes, capacity)
}

impl Instance for Choice {
    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn tile(&self) -> NmTile {
        self.tile
    }

    fn stages(&self, sizes: Sizes) -> usize {
        index(u64::from(sizes.inner.div_ceil(SPARSE_STAGE)))
    }

    fn most_parts_log2(&self) -> u32 {
        3
    }

    /// Nanoseconds: whole rounds of tiles or their parts, of which each multiprocessor takes one at a time.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let costs = &capacity.sparse_tensor_cores;
        let NmTile { rows, columns, .. } = self.tile;
        let tiles = f64::from(sizes.m.div_ceil(rows)) * f64::from(sizes.n.div_ceil(columns));
        let rounds = (tiles * f64::from(1 << parts_log2) / f64::from(capacity.multiprocessors)).ceil();
        let stages = f64::from(narrow(self.stages(sizes).div_ceil(1 << parts_log2)));
        let area = f64::from(rows) * f64::from(columns);
        let stage = costs.stage_ns * f64::from(columns) / 128.0
            + 2.0 * area * f64::from(SPARSE_STAGE) / costs.flop_per_ns;
        let combine = match parts_log2 {
            0 => 0.0,
            log2 => costs.combine_ns + sizes.combined_bytes(log2) / costs.combine_bytes_per_ns,
        };
        rounds * (stages * stage + area * costs.element_ns) + costs.fill_ns + combine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By trying all that a pattern may keep of sixty rows.
    #[test]
    fn patterns_that_keep_two_of_four() {
        for m in 1..=12 {
            for n in 1..=m {
                // The most that four rows can have is what their groups have, each as many as fall into them.
                let most = (0..60).step_by(4).map(|first| {
                    let groups = first / m..=(first + 3) / m;
                    let of_group = |group: usize| {
                        let rows = (group * m).max(first)..((group + 1) * m).min(first + 4);
                        rows.len().min(n)
                    };
                    groups.map(of_group).sum::<usize>()
                });
                let expected = most.max().unwrap() <= 2;
                let pattern = NmPattern::new(n, m, 1).unwrap();
                assert_eq!(keeps_two_of_four(pattern), expected, "{pattern}");
            }
        }
    }
}

//! Which instance a product of warpgroups takes, and which rows of the weights it multiplies in which order.

use std::sync::Arc;

use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::nm::{
    NmRows, NmTile, RUN_COLUMNS, SPARSE_METADATA_BYTES, SPARSE_VALUE_BYTES, STAGE_SLOTS, WHOLE_VALUE_BYTES,
};
use windrow_kernels::{ENTRIES, Entry, Variant};
use windrow_preprocess::nm::{Filler, Fours};

use crate::nm::model::{Capacity, Instance, Program, Sizes};
use crate::num::{index, narrow};
use crate::options::Precision;

/// An instance of the kernel.
#[derive(Debug, Clone, Copy)]
pub(in crate::nm) struct Choice {
    pub(super) entry: &'static Entry,
    pub(super) tile: NmTile,
    pub(super) rows: NmRows,
    /// Stages of 64 rows or slots.
    pub(super) stages: usize,
}

/// An instance, and the order of the rows that it multiplies them in, if it has one.
pub(in crate::nm) struct Candidate {
    pub(in crate::nm) choice: Choice,
    pub(super) order: Option<Arc<Fours>>,
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

/// Whether a pattern that does not keep two of each four rows at most may do so in another order of the rows, in hardly
/// more slots than there are rows.
pub(in crate::nm) fn may_be_ordered(pattern: NmPattern) -> bool {
    2 * pattern.n() <= pattern.m() && !keeps_two_of_four(pattern)
}

/// Whether it may pay to look for the order of an instance in which no other row is multiplied by zero: if half of the
/// rows are kept, or its tiles reach into few vectors. Else it takes many slots, and long to find.
pub(in crate::nm) fn may_pay(entry: &Entry, pattern: NmPattern) -> bool {
    match entry.variant {
        Variant::NmWarpgroups { tile, rows: NmRows::Ordered, .. } => {
            2 * pattern.n() == pattern.m() || index(u64::from(tile.columns)) <= 2 * pattern.l()
        }
        _ => true,
    }
}

/// Instances for the precision that the machine runs, with their tiles and which rows these multiply.
fn instances(
    precision: Precision,
    capacity: Capacity,
    runs: impl Fn(&'static Entry) -> bool,
) -> impl Iterator<Item = (&'static Entry, NmTile, NmRows)> {
    ENTRIES.iter().filter_map(move |entry| match entry.variant {
        Variant::NmWarpgroups { dtype, tile, rows }
            if dtype == precision.dtype() && capacity.runs(entry) && runs(entry) =>
        {
            Some((entry, tile, rows))
        }
        _ => None,
    })
}

/// Stages of so many rows or slots.
fn stages(rows: usize) -> usize {
    rows.div_ceil(index(u64::from(STAGE_SLOTS)))
}

/// Every instance for sparse Tensor Cores; none for patterns that keep more than the instruction takes in any order.
/// Rows stay as they are where that serves, else each instance has an order for its tiles.
///
/// # Errors
/// [`OutOfMemory`].
pub(in crate::nm) fn sparse_choices<V: Sync>(
    precision: Precision,
    (sizes, capacity): (Sizes, Capacity),
    (weights, filler): (&VectorNm<V>, Filler),
    runs: impl Fn(&'static Entry) -> bool,
) -> Result<Vec<Candidate>, OutOfMemory> {
    let asked = match sizes.pattern {
        pattern if keeps_two_of_four(pattern) => NmRows::All,
        pattern if may_be_ordered(pattern) => NmRows::Ordered,
        _ => return Ok(Vec::new()),
    };
    let mut orders: Vec<(u32, Option<Arc<Fours>>)> = Vec::new();
    let mut found = Vec::new();
    for (entry, tile, rows) in instances(precision, capacity, runs).filter(|(.., rows)| *rows == asked) {
        if asked == NmRows::All {
            let stages = stages(index(u64::from(sizes.inner)));
            found.push(Candidate { choice: Choice { entry, tile, rows, stages }, order: None });
            continue;
        }
        let order = match orders.iter().find(|(columns, _)| *columns == tile.columns) {
            Some((_, order)) => order.clone(),
            None => {
                let [columns, stage] = [tile.columns, STAGE_SLOTS].map(|count| index(u64::from(count)));
                let order = Fours::new(weights, columns, stage, filler)?.map(Arc::new);
                orders.push((tile.columns, order.clone()));
                order
            }
        };
        if let Some(order) = order {
            let choice = Choice { entry, tile, rows, stages: stages(order.slots()) };
            found.push(Candidate { choice, order: Some(order) });
        }
    }
    Ok(found)
}

/// Every instance that multiplies kept rows alone: those whose tiles lie in one vector.
pub(in crate::nm) fn kept_choices(
    precision: Precision,
    (sizes, capacity): (Sizes, Capacity),
    runs: impl Fn(&'static Entry) -> bool,
) -> Vec<Candidate> {
    let stages = stages(sizes.kept_rows());
    let suit = |(_, tile, rows): &(_, NmTile, NmRows)| *rows == NmRows::Kept && sizes.suit(*tile);
    let found = instances(precision, capacity, runs).filter(suit);
    found
        .map(|(entry, tile, rows)| Candidate { choice: Choice { entry, tile, rows, stages }, order: None })
        .collect()
}

impl Choice {
    /// Bytes of the weights of a stage of a tile.
    fn weight_bytes(&self) -> f64 {
        let of_run = match self.rows {
            NmRows::All | NmRows::Ordered => SPARSE_VALUE_BYTES + SPARSE_METADATA_BYTES,
            NmRows::Kept => WHOLE_VALUE_BYTES,
        };
        f64::from(self.tile.columns / RUN_COLUMNS * of_run)
    }

    /// Those with its activations.
    fn stage_bytes(&self) -> f64 {
        f64::from(2 * STAGE_SLOTS * self.tile.rows) + self.weight_bytes()
    }
}

impl Instance for Choice {
    fn program(&self) -> Program {
        Program::Kernel { entry: self.entry, tile: self.tile }
    }

    fn stages(&self, _: Sizes) -> usize {
        self.stages
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
        // The instruction for sparse operands drops half of its operations.
        let flop_per_ns = match self.rows {
            NmRows::All | NmRows::Ordered => costs.flop_per_ns,
            NmRows::Kept => costs.flop_per_ns / 2.0,
        };
        let multiplied = costs.step_ns / f64::from(self.tile.stages_at_once(self.rows))
            + costs.stage_ns * f64::from(columns) / 128.0
            + 2.0 * area * f64::from(STAGE_SLOTS) / flop_per_ns;
        let stage = match self.rows {
            NmRows::All => multiplied,
            NmRows::Ordered => {
                multiplied.max(costs.gathered_stage_ns + self.stage_bytes() / costs.gathered_bytes_per_ns)
            }
            NmRows::Kept => {
                multiplied.max(costs.kept_stage_ns + self.stage_bytes() / costs.kept_bytes_per_ns)
            }
        };
        let combine = match parts_log2 {
            0 => 0.0,
            log2 => costs.combine_ns + sizes.combined_bytes(log2) / costs.combine_bytes_per_ns,
        };
        let tiles_of_weights = index(u64::from(sizes.n.div_ceil(columns))) * self.stages(sizes);
        let weights = self.weight_bytes() * f64::from(narrow(tiles_of_weights));
        // Sums of parts are f32. What else is to be computed of sums is not known here.
        let element_ns = match parts_log2 {
            0 if self.tile.stores_whole_rows() => costs.element_ns,
            _ => costs.scattered_element_ns,
        };
        let work = rounds * (stages * stage + area * element_ns);
        capacity.with_weights_from_memory(work, weights) + costs.fill_ns + combine
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

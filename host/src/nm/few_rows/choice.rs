//! Which instances there are for a product of few rows, how weights are cut for them, and what they cost: pure
//! arithmetic.

use windrow_kernels::nm::{FEW_ROWS_DEPTH, FEW_ROWS_TURNS, FEW_ROWS_WARPS, NmFewRowsParams, NmTile};
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::nm::model::{Capacity, Instance, Sizes};
use crate::nm::sparse::keeps_two_of_four;
use crate::num::{index, narrow};
use crate::options::Precision;

/// An instance of the kernel, and how weights are cut for it.
#[derive(Debug, Clone, Copy)]
pub(in crate::nm) struct Choice {
    pub(super) entry: &'static Entry,
    pub(super) tile: NmTile,
    pub(super) cut: Cut,
}

/// How the kept rows of a pattern are cut into steps and windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Rows of the weights.
    inner: u32,
    /// Rows that are kept of how many: where the MMA picks them itself, two of four.
    kept: u32,
    group: u32,
    /// Whether it does.
    pub(super) sparse: bool,
    pub(super) steps: u32,
    /// Steps that a warp takes of a window.
    turns: u32,
}

impl Cut {
    /// The largest windows of which the activations have room in a tile's; none if the smallest have not.
    fn new(sizes: Sizes, tile: NmTile, sparse: bool) -> Option<Self> {
        let [kept, group] = match sparse {
            true => [2, 4],
            false => [sizes.pattern.n(), sizes.pattern.m()].map(narrow),
        };
        let kept_rows = match sparse {
            true => sizes.inner.div_ceil(2),
            false => narrow(sizes.kept_rows()),
        };
        let steps = kept_rows.div_ceil(FEW_ROWS_DEPTH);
        let cut = |turns| Self { inner: sizes.inner, kept, group, sparse, steps, turns };
        let turns = (0..=FEW_ROWS_TURNS.ilog2()).rev().map(|log2| 1 << log2);
        turns.map(cut).find(|cut| cut.most_columns() <= tile.few_rows_window())
    }

    /// What the kernel knows of it; the rest is blank.
    pub(super) fn params(&self) -> NmFewRowsParams {
        let Self { inner: k, kept, group, steps, turns, .. } = *self;
        NmFewRowsParams { k, kept, group, steps, turns, ..bytemuck::Zeroable::zeroed() }
    }

    pub(super) fn windows(&self) -> u32 {
        self.params().windows()
    }

    /// Columns of `A` in a window, at most.
    pub(super) fn most_columns(&self) -> u32 {
        let params = self.params();
        let columns = |window| params.end_column(window) - params.first_column(window);
        (0..self.windows()).map(columns).max().unwrap_or_default()
    }

    /// The first column of `A` in the window that a step is of.
    pub(super) fn first_column(&self, step: usize) -> usize {
        let window = narrow(step) / (FEW_ROWS_WARPS * self.turns);
        index(u64::from(self.params().first_column(window)))
    }
}

/// Every instance for the precision whose strips suit the pattern and whose windows hold the rows that its steps pick;
/// those with a sparse MMA if `sparse`, and the pattern is theirs; those without if `dense`.
pub(in crate::nm) fn choices(
    precision: Precision,
    sizes: Sizes,
    capacity: Capacity,
    [dense, sparse]: [bool; 2],
) -> Vec<Choice> {
    let sparse_suits = sparse && keeps_two_of_four(sizes.pattern);
    let choice = |entry: &'static Entry| match entry.variant {
        Variant::NmFewRows { dtype, tile, sparse }
            if dtype == precision.dtype() && sizes.suit(tile) && capacity.runs(entry) =>
        {
            let is_wanted = if sparse { sparse_suits } else { dense };
            let cut = is_wanted.then(|| Cut::new(sizes, tile, sparse))??;
            Some(Choice { entry, tile, cut })
        }
        _ => None,
    };
    ENTRIES.iter().filter_map(choice).collect()
}

impl Instance for Choice {
    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn tile(&self) -> NmTile {
        self.tile
    }

    fn stages(&self, _: Sizes) -> usize {
        index(u64::from(self.cut.windows()))
    }

    fn most_parts_log2(&self) -> u32 {
        4
    }

    /// Nanoseconds: the weights come from memory, and to the multiprocessor that has most blocks, where each step takes
    /// longer the more rows it has.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let costs = &capacity.few_rows;
        let NmTile { rows, columns, .. } = self.tile;
        let [parts, m_tiles, strips] =
            [1 << parts_log2, sizes.m.div_ceil(rows), sizes.n.div_ceil(columns)].map(f64::from);
        // Values, and two bytes or four for each row of an MMA that name activations.
        let names = if self.cut.sparse { 4 * columns } else { 2 * FEW_ROWS_DEPTH };
        let bytes = f64::from(2 * FEW_ROWS_DEPTH * columns + names);
        let steps = f64::from(self.cut.steps);
        let from_memory = steps * bytes * strips / costs.memory_bytes_per_ns;
        let step_ns = bytes / costs.multiprocessor_bytes_per_ns + costs.row_ns * f64::from(rows.min(sizes.m));
        let busiest = (parts * m_tiles * strips / f64::from(capacity.multiprocessors)).ceil();
        let of_multiprocessor = busiest * (steps / parts).ceil() * step_ns;
        let combine = match parts_log2 {
            0 => 0.0,
            log2 => {
                let costs = &capacity.tensor_cores;
                costs.combine_ns + sizes.combined_bytes(log2) / costs.memory_bytes_per_ns
            }
        };
        costs.fill_ns + from_memory.max(of_multiprocessor) + combine
    }
}

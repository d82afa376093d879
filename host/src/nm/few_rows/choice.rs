//! Which instances there are for a product of few rows, how weights are cut for them, and what they cost: pure
//! arithmetic.

use windrow_kernels::nm::{FEW_ROWS_DEPTH, FEW_ROWS_TURNS, FEW_ROWS_WARPS, NmFewRowsParams, NmTile};
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::nm::model::{Capacity, Instance, Program, Sizes};
use crate::nm::warpgroups::keeps_two_of_four;
use crate::num::{index, narrow, real};
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
    /// Whether the MMA does.
    pub(super) sparse: bool,
    pub(super) steps: u32,
    /// Steps that a warp takes of a window.
    turns: u32,
}

impl Cut {
    /// The largest windows of which the activations have room in a tile's; none if the smallest have not.
    fn new(sizes: Sizes, tile: NmTile, sparse: bool) -> Option<Self> {
        let (kept, group, kept_rows) = match sparse {
            true => (2, 4, sizes.inner.div_ceil(2)),
            false => (narrow(sizes.pattern.n()), narrow(sizes.pattern.m()), narrow(sizes.kept_rows())),
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
    fn program(&self) -> Program {
        Program::Kernel { entry: self.entry, tile: self.tile }
    }

    fn stages(&self, _: Sizes) -> usize {
        index(u64::from(self.cut.windows()))
    }

    fn most_parts_log2(&self) -> u32 {
        4
    }

    /// Nanoseconds: the weights come from memory, and to the multiprocessor that has most blocks, each with its weights
    /// and all activations.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let costs = &capacity.few_rows;
        let NmTile { rows, columns, .. } = self.tile;
        let blocks = u64::from(sizes.m.div_ceil(rows)) * u64::from(sizes.n.div_ceil(columns));
        let parts = 1u64 << parts_log2;
        let busiest = (blocks * parts).div_ceil(u64::from(capacity.multiprocessors).max(1));
        // Values, and what names activations: two bytes for each kept row, or four for each column.
        let names = if self.cut.sparse { 4 * columns } else { 2 * FEW_ROWS_DEPTH };
        let weights = f64::from(self.cut.steps) * f64::from(2 * FEW_ROWS_DEPTH * columns + names);
        let activations = f64::from(self.cut.inner) * f64::from(2 * rows.min(sizes.m));
        let of_block = weights / costs.weight_bytes_per_ns + activations / costs.activation_bytes_per_ns;
        let of_part = of_block / real(parts);
        let from_memory = weights * f64::from(sizes.n.div_ceil(columns)) / costs.memory_bytes_per_ns;
        let combine = capacity.combine_ns(sizes, parts_log2);
        costs.fill_ns + (real(busiest) * of_part).max(from_memory) + combine
    }
}

#[cfg(test)]
mod tests {
    use windrow_formats::NmPattern;
    use windrow_preprocess::nm::Filler;

    use super::*;
    use crate::costs::DeviceCosts;
    use crate::nm::{fragments, warpgroups};

    /// That of an H100, whose memory is slower than the H200's.
    fn capacity() -> Capacity {
        let mut costs = DeviceCosts::H200;
        costs.nm_tensor_cores.memory_bytes_per_ns *= 0.68;
        costs.nm_few_rows.memory_bytes_per_ns *= 0.68;
        Capacity::new(132, 227 * 1024, 90, &costs)
    }

    fn sizes(m: u32, n: u32, inner: u32, (keep, group, l): (usize, usize, usize)) -> Sizes {
        Sizes { m, n, inner, pattern: NmPattern::new(keep, group, l).unwrap() }
    }

    /// On an H100 these take 6.0 and 9.4 µs of one row and of 16, gathered 12.1 and 13.1; 64 rows 23.8 and 18.1.
    #[test]
    fn few_rows_are_predicted_to_be_quicker_and_many_are_not() {
        for (m, is_quicker) in [(1, true), (4, true), (16, true), (64, false), (1024, false)] {
            let sizes = sizes(m, 4096, 4096, (16, 32, 32));
            let least = |all: &mut dyn Iterator<Item = f64>| all.fold(f64::INFINITY, f64::min);
            let few = choices(Precision::F16, sizes, capacity(), [true, false]);
            let few = least(&mut few.iter().map(|choice| choice.least_cost(sizes, capacity())));
            let gathered = fragments::choices(Precision::F16, sizes, capacity());
            let gathered = least(&mut gathered.iter().map(|choice| choice.least_cost(sizes, capacity())));
            assert_eq!(few < gathered, is_quicker, "{m} rows: {few} and {gathered} ns");
        }
    }

    /// On an H100, of 2:4: 9.5 µs for 12.0 with 16 rows, 14.6 for 11.3 with 32, and that in tiles of 64 × 128, 10.3
    /// with 64, where tiles of 128 × 128 take 16.4.
    #[test]
    fn few_rows_of_two_of_four() {
        let weights = crate::prune_magnitude(&[1.0f32; 16], 4, 4, NmPattern::new(2, 4, 1).unwrap()).unwrap();
        for (m, n, inner, expected) in [
            (1, 4096, 4096, "nm_few_sparse_f16_8"),
            (1, 11008, 4096, "nm_few_sparse_f16_8"),
            (16, 4096, 4096, "nm_few_sparse_f16_16"),
            (32, 4096, 4096, "nm_sparse_f16_64x128"),
            (64, 4096, 4096, "nm_sparse_f16_64x128"),
            (64, 11008, 4096, "nm_sparse_f16_64x128"),
        ] {
            let sizes = sizes(m, n, inner, (2, 4, 1));
            let asked = (sizes, capacity());
            let all =
                warpgroups::sparse_choices(Precision::F16, asked, (&weights, Filler::Any), |_| true).unwrap();
            let mut found: Vec<(f64, &str)> = Vec::new();
            let mut push = |instance: &dyn Instance| {
                found.push((instance.least_cost(sizes, capacity()), instance.program().name()));
            };
            all.iter().for_each(|candidate| push(&candidate.choice));
            choices(Precision::F16, sizes, capacity(), [false, true]).iter().for_each(|choice| push(choice));
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert_eq!(found[0].1, expected, "{m} × {n} × {inner}: {found:?}");
        }
    }

    /// The widest windows that hold what they pick from; none if 128 kept rows are of more rows than the smallest has.
    #[test]
    fn windows_hold_what_they_pick() {
        let turns = |pattern, rows| {
            let tile = NmTile { rows, columns: 32, strip: 32 };
            Cut::new(sizes(1, 64, 10_000, pattern), tile, false).map(|cut| {
                assert!(cut.most_columns() <= tile.few_rows_window());
                cut.turns
            })
        };
        assert_eq!(turns((16, 32, 32), 8), Some(4));
        assert_eq!(turns((8, 32, 32), 8), Some(2));
        assert_eq!(turns((12, 32, 32), 8), Some(2));
        assert_eq!(turns((4, 32, 32), 16), Some(1));
        assert_eq!(turns((4, 32, 32), 32), None);
        assert_eq!(turns((1, 16, 32), 8), None);
        assert_eq!(turns((32, 32, 32), 32), Some(4));
    }

    #[test]
    fn who_has_which() {
        let names = |precision, pattern, forms| {
            let all = choices(precision, sizes(1, 64, 640, pattern), capacity(), forms);
            all.iter().map(|choice| choice.entry.name).collect::<Vec<_>>()
        };
        let sparse = ["nm_few_sparse_bf16_8", "nm_few_sparse_bf16_16", "nm_few_sparse_bf16_32"];
        assert_eq!(names(Precision::Bf16, (2, 4, 1), [true, true]), sparse);
        assert_eq!(names(Precision::Bf16, (2, 8, 3), [false, true]), sparse);
        assert_eq!(names(Precision::F16, (2, 4, 16), [true, false]).len(), 3);
        assert!(names(Precision::F16, (3, 4, 1), [true, true]).is_empty());
        assert!(names(Precision::Tf32, (2, 4, 32), [true, true]).is_empty());
    }
}

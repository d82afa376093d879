//! Which instance a product on Tensor Cores takes: pure arithmetic.

use windrow_kernels::nm::{NmOperand, NmTile, STEPS, WARP_COLUMNS, weight_index};
use windrow_kernels::{Bf16, ENTRIES, Entry, F16, Tf32, Variant};
use windrow_preprocess::nm::BlockShape;

use super::model::{Capacity, Instance, Program, Sizes, by_cost};
use crate::costs::NmTensorCoreCosts;
use crate::num::{index, real, wide};
use crate::options::Precision;

/// What an element type decides of a layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Kept rows of an MMA.
    pub(super) depth: u32,
    /// Successive picks that are read together.
    pub(super) phase: u32,
    /// Bytes of an element.
    pub(super) element_bytes: u32,
    /// Where in a step's picks a kept row is.
    pub(super) place: fn(u32) -> u32,
    /// Where in a step's weights, in elements, the weight of a (strip width, kept row, column) is.
    pub(super) weight_index: fn(u32, u32, u32) -> u32,
}

impl Form {
    /// That of a precision which Tensor Cores multiply.
    pub(super) fn of(precision: Precision) -> Option<Self> {
        fn form<E: NmOperand>() -> Form {
            Form {
                depth: E::DEPTH,
                phase: E::PHASE,
                element_bytes: E::BYTES,
                place: E::place,
                weight_index: weight_index::<E>,
            }
        }
        match precision {
            Precision::F16 => Some(form::<F16>()),
            Precision::Bf16 => Some(form::<Bf16>()),
            Precision::Tf32 => Some(form::<Tf32>()),
            Precision::F32 | Precision::F64 => None,
        }
    }

    /// Kept rows of a stage.
    pub(super) const fn kept(&self) -> u32 {
        STEPS * self.depth
    }
}

/// An instance of the kernel, and what its element type decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) entry: &'static Entry,
    pub(super) tile: NmTile,
    pub(super) slots: u32,
    pub(super) form: Form,
}

impl Choice {
    /// How weights are cut for it.
    pub(super) fn shape(&self) -> BlockShape {
        let kept = index(u64::from(self.form.kept()));
        BlockShape {
            block_columns: index(u64::from(self.tile.columns)),
            strip_columns: index(u64::from(self.tile.strip)),
            kept_per_stage: kept,
            depth_multiple: kept,
            packed: true,
        }
    }

    /// Warps of a block.
    pub(super) const fn warps(&self) -> u32 {
        self.tile.columns / WARP_COLUMNS
    }
}

/// Every instance for the precision whose strips suit the pattern and which the machine has shared memory for, cheapest
/// first. Whether the rows of every stage find slots depends on the weights.
pub(super) fn choices(precision: Precision, sizes: Sizes, capacity: Capacity) -> Vec<Choice> {
    let Some(form) = Form::of(precision) else { return Vec::new() };
    let choice = |entry: &'static Entry| match entry.variant {
        Variant::NmTensorCores { dtype, tile, slots }
            if dtype == precision.dtype() && sizes.suit(tile) && capacity.runs(entry) =>
        {
            Some(Choice { entry, tile, slots, form })
        }
        _ => None,
    };
    by_cost(ENTRIES.iter().filter_map(choice).collect(), sizes, capacity)
}

impl Instance for Choice {
    fn program(&self) -> Program {
        Program::Kernel { entry: self.entry, tile: self.tile }
    }

    fn stages(&self, sizes: Sizes) -> usize {
        sizes.kept_rows().div_ceil(index(u64::from(self.form.kept())))
    }

    fn most_parts_log2(&self) -> u32 {
        5
    }

    /// Nanoseconds: what comes from the L2 or what is multiplied, whichever takes longer, and a part of the other.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let Self { entry, tile, slots, form } = self;
        let costs = &capacity.tensor_cores;
        let (m, n, w) = (f64::from(sizes.m), f64::from(sizes.n), real(wide(sizes.kept_rows())));
        let parts = f64::from(1 << parts_log2);
        let (rows, columns) = (f64::from(tile.rows), f64::from(tile.columns));
        let bytes = f64::from(form.element_bytes);
        let stages = (w / f64::from(form.kept()) / parts).ceil();
        let items = (m / rows).ceil() * (n / columns).ceil() * parts;
        let resident = f64::from(
            (capacity.shared_bytes / entry.shared_bytes.max(1)).clamp(1, 65536 / 128 / entry.block_threads),
        );
        // Few blocks have a multiprocessor each for themselves.
        let resident = (items / f64::from(capacity.multiprocessors)).ceil().clamp(1.0, resident.max(1.0));
        let rounds = (items / (f64::from(capacity.multiprocessors) * resident)).ceil();
        // Rows that a stage brings: those of as many groups as hold its kept rows, of which some are picked by nobody.
        let density = 1.0 - sizes.pattern.sparsity();
        let vectors = (columns / real(wide(sizes.pattern.l()))).max(1.0);
        let picked = f64::from(form.kept()) / density * (1.0 - (1.0 - density).powf(vectors));
        let brought = (picked.min(f64::from(*slots)) * rows + f64::from(form.kept()) * columns) * bytes;
        let l2 = brought * resident / costs.l2_bytes_per_ns;
        let flop = 2.0 * rows * columns * f64::from(form.kept());
        let warps = resident * f64::from(self.warps());
        let by_warps = costs.warp_flop_per_ns * warps * 2.0 / bytes;
        let multiplied = flop * resident / flop_per_ns(*tile, form, costs).min(by_warps);
        let stage = (l2.max(multiplied) + 0.3 * l2.min(multiplied)).max(costs.least_stage_ns);
        let combine = capacity.combine_ns(sizes, parts_log2);
        let work = rounds * (stages * stage + costs.store_ns);
        capacity.with_weights_from_memory(work, w * n * bytes) + costs.fill_ns + combine
    }
}

/// Operations that a multiprocessor makes in a nanosecond: what reading the operand from shared memory leaves.
fn flop_per_ns(tile: NmTile, form: &Form, costs: &NmTensorCoreCosts) -> f64 {
    let [of_32, of_16, of_8] = costs.strip_flop_per_ns;
    let of_strip = match tile.strip {
        32 => of_32,
        16 => of_16,
        _ => of_8,
    };
    of_strip * f64::from(tile.rows.min(64)) / 64.0 * 2.0 / f64::from(form.element_bytes)
}

#[cfg(test)]
mod tests {
    use windrow_formats::NmPattern;

    use super::*;
    use crate::costs::DeviceCosts;

    /// Few blocks have a multiprocessor each for themselves: on an H100 the smaller of these products takes 8.4 µs in
    /// tiles of 16 × 128, and 16.3 in those that suit the larger.
    #[test]
    fn small_products_have_small_tiles() {
        let capacity = Capacity::new(132, 227 * 1024, 90, &DeviceCosts::H200);
        let pattern = NmPattern::new(16, 32, 32).unwrap();
        let first = |m, n| {
            let sizes = Sizes { m, n, inner: n, pattern };
            choices(Precision::F16, sizes, capacity)[0].entry.name
        };
        assert_eq!([first(512, 1024), first(4096, 4096)], ["nm_f16_16x128", "nm_f16_64x512_128"]);
    }
}

//! How windows of tiles become a stream: the kernel's slices, the number of warps, and the form of the values.

use windrow_formats::Value;
use windrow_kernels::tile_stream::TEAM;
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::error::SpmmError;
use crate::num::{real, wide};
use crate::options::TileValues;
use crate::plan::division;
use crate::spmm::layout::{Context, Slicing};
use crate::spmm::select::{Demand, LINE_BYTES};
use crate::spmm::tiles::{Dealing, Form};

/// What a slice of `B` may occupy of the L2 cache, in quarters of it: the rest is for `A`, for `C` on its way out,
/// and for the lines that both halves of the cache hold.
const CACHE_QUARTERS: u64 = 2;
/// Work beside the gathers that a warp has per step and slice, in bytes of a gather: fragments, columns, window.
/// Packed, it is less, and it is decoded.
const STEP_OVERHEAD_BYTES: u32 = 368;
/// Columns gathered per step of a tile stream.
const STEP_COLUMNS: u32 = 16;

/// What of a stream decides its entry.
#[derive(Debug, Clone, Copy)]
pub(in crate::spmm) struct StreamShape {
    /// In which form records hold the values of tiles.
    pub(in crate::spmm) form: Form,
    /// Widest slice of `B`, in columns.
    pub(in crate::spmm) widest_slice: u32,
}

/// How windows become a stream of tiles.
pub(super) struct StreamChoice {
    pub(super) shape: StreamShape,
    pub(super) dealing: Dealing,
    /// Why values have that form.
    pub(super) why: String,
}

/// How so many windows, steps and entries become a stream of tiles.
pub(super) fn choose<V: Value>(
    context: &Context<'_, V>,
    (windows, steps, entries): (u64, u64, u64),
) -> Result<StreamChoice, SpmmError> {
    let (options, demand) = (context.options, context.demand());
    let slicing = context.slicing(CACHE_QUARTERS);
    let dense = |widest_slice| StreamShape { form: Form::Dense, widest_slice };
    let workers = worker_count(context, dense(slicing.widest), slicing)?;
    let widest_slice = widest_for_few_steps(demand, dense(slicing.widest), (windows, steps), workers);
    let workers = worker_count(context, dense(widest_slice), slicing)?;
    let packing = Packing {
        entries,
        steps,
        workers,
        narrow: select(demand, dense(widest_slice))
            .is_some_and(|entry| division(entry).slice * demand.dtype.bytes() <= LINE_BYTES),
        b_bytes: wide(context.a.cols())
            .saturating_mul(wide(options.width))
            .saturating_mul(u64::from(demand.dtype.bytes())),
    };
    let (form, why) = packs_values(options.tile_values, packing);
    let shape = StreamShape { form, widest_slice };
    let dealing = match options.window_each {
        true => Dealing::WindowEach,
        false => Dealing::Evenly(worker_count(context, shape, slicing)?),
    };
    Ok(StreamChoice { shape, dealing, why })
}

/// As many workers as the device holds warps of the kernel at a time; divided by the slices of the width if
/// these are worked on together.
fn worker_count<V: Value>(
    context: &Context<'_, V>,
    shape: StreamShape,
    slicing: Slicing,
) -> Result<u32, SpmmError> {
    if let Some(workers) = context.options.workers {
        return Ok(workers);
    }
    let demand = context.demand();
    let Some(entry) = select(demand, shape) else { return Ok(1) };
    let division = division(entry);
    let slices = if slicing.together { demand.n.div_ceil(division.slice).max(1) } else { 1 };
    let machine = context.machine;
    let blocks = machine.multiprocessors() * machine.resident_blocks(entry)?;
    Ok((blocks * division.units_per_block / slices).max(1))
}

/// The entry with the slicing that wastes least, of a step's bytes, among those that are not too wide.
pub(in crate::spmm) fn select(demand: Demand, shape: StreamShape) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors } = demand;
    let StreamShape { form, widest_slice } = shape;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::TileStream { dtype: d, vectors: v, packed: p, .. }
            if d == dtype && v == vectors && p == (form == Form::Packed))
    };
    ENTRIES.iter().filter(of_family).min_by_key(|entry| {
        let slice = division(entry).slice;
        let step_bytes = STEP_COLUMNS * slice * dtype.bytes() + STEP_OVERHEAD_BYTES;
        let cost = u64::from(n.div_ceil(slice).max(1)) * u64::from(step_bytes);
        (slice > widest_slice, if slice > widest_slice { u64::from(slice) } else { cost })
    })
}

/// Mean steps of a worker below which a width of one wide slice is divided into narrow ones: the time is latency,
/// which more warps hide better.
///
/// On an H200 at width 128 that took 0.91 to 0.96 of the time for bcsstk16, `helsinki_road`, memplus, PROTEINS and
/// pubmed (0.6 to 4.5 steps); 1.03 to 1.05 for email-Enron and p2p-Gnutella31 (9.4 and 7.5).
const NARROW_STEPS: f64 = 5.0;

/// The widest slice that a stream of `windows` windows of `steps` steps in all should have for this demand, in
/// columns, if `workers` warps would work on it as demanded. Fewer windows than teams are shared by the warps of a
/// block each, and wide slices are as quick.
fn widest_for_few_steps(
    demand: Demand,
    shape: StreamShape,
    (windows, steps): (u64, u64),
    workers: u32,
) -> u32 {
    let narrow = LINE_BYTES / demand.dtype.bytes();
    let one_wide = select(demand, shape).is_some_and(|entry| division(entry).slice >= demand.n);
    let few = real(steps) < NARROW_STEPS * f64::from(workers) && windows >= u64::from(workers / TEAM);
    if few && one_wide && demand.n > narrow { narrow } else { shape.widest_slice }
}

/// What decides whether the values of tiles are packed.
#[derive(Debug, Clone, Copy)]
struct Packing {
    entries: u64,
    steps: u64,
    workers: u32,
    /// Whether a worker has but one slice of 128 bytes of each row of `B`.
    narrow: bool,
    /// Bytes of `B`.
    b_bytes: u64,
}

/// Mean entries of a step, of 128 that there is room for, up to which its values are packed: beyond, they are hardly
/// fewer bytes than all places.
///
/// On an H200, f16, packed values took 0.75 to 0.96 of the time (uniform200k most) where this and the next three hold,
/// but for pruned4096 (1.03 at width 128), and 0.93 to 1.18 of it elsewhere.
const PACKED_ENTRIES: f64 = 48.0;
/// Mean steps of a worker from which on they are packed: the first records are found by one more load, which
/// few steps do not make up for.
const PACKED_STEPS: f64 = 6.0;
/// The same of workers with one slice: a step has less data to the instructions that decode its values.
const PACKED_STEPS_NARROW: f64 = 8.0;
/// Bytes of `B` below which such workers are limited by their instructions, not by what they gather.
const PACKED_B_BYTES_NARROW: u64 = 4 << 20;

/// The form in which records hold the values of tiles, and why.
fn packs_values(asked: TileValues, packing: Packing) -> (Form, String) {
    let Packing { entries, steps, workers, narrow, b_bytes } = packing;
    let per_step = real(entries) / real(steps.max(1));
    let per_worker = real(steps) / f64::from(workers.max(1));
    let least_steps = if narrow { PACKED_STEPS_NARROW } else { PACKED_STEPS };
    match asked {
        TileValues::Dense => (Form::Dense, "as asked".to_owned()),
        TileValues::Packed => (Form::Packed, "as asked".to_owned()),
        TileValues::Auto if per_step > PACKED_ENTRIES => {
            (Form::Dense, format!("{per_step:.1} entries a step, more than {PACKED_ENTRIES}"))
        }
        TileValues::Auto if per_worker < least_steps => {
            (Form::Dense, format!("{per_worker:.1} steps a warp, fewer than {least_steps}"))
        }
        TileValues::Auto if narrow && b_bytes < PACKED_B_BYTES_NARROW => {
            (Form::Dense, "B is small and its rows are narrow: instructions limit, not bytes".to_owned())
        }
        TileValues::Auto => {
            (Form::Packed, format!("{per_step:.1} entries a step, {per_worker:.1} steps a warp"))
        }
    }
}

#[cfg(test)]
mod tests {
    use windrow_kernels::Dtype;

    use super::*;

    const ANY: StreamShape = StreamShape { form: Form::Dense, widest_slice: u32::MAX };

    #[test]
    fn tile_stream_takes_the_slices_that_fit() {
        for (n, name) in [(64, "64"), (65, "128"), (128, "128"), (130, "64"), (192, "64"), (256, "128")] {
            let demand = Demand::aligned(Dtype::F16, n);
            assert_eq!(select(demand, ANY).unwrap().name, format!("spmm_tile_stream_f16_{name}"), "n = {n}");
            let packed = StreamShape { form: Form::Packed, ..ANY };
            assert_eq!(select(demand, packed).unwrap().name, format!("spmm_tile_stream_f16_{name}_packed"));
        }
    }

    #[test]
    fn values_are_packed_where_steps_have_few_entries() {
        let wide = Packing { entries: 480, steps: 10, workers: 1, narrow: false, b_bytes: 1 };
        let narrow = Packing { entries: 80, narrow: true, workers: 10, steps: 80, b_bytes: 4 << 20 };
        let form = |packing| packs_values(TileValues::Auto, packing).0;
        assert_eq!(form(wide), Form::Packed);
        assert_eq!(form(Packing { entries: 481, ..wide }), Form::Dense);
        assert_eq!(form(Packing { workers: 2, ..wide }), Form::Dense, "5 steps each");
        assert_eq!(form(narrow), Form::Packed);
        assert_eq!(form(Packing { steps: 79, ..narrow }), Form::Dense);
        assert_eq!(form(Packing { b_bytes: (4 << 20) - 1, ..narrow }), Form::Dense);
        assert_eq!(form(Packing { entries: 0, steps: 0, ..wide }), Form::Dense);
        assert_eq!(packs_values(TileValues::Dense, wide).0, Form::Dense);
        assert_eq!(packs_values(TileValues::Packed, Packing { entries: 1280, ..wide }).0, Form::Packed);
        let why = packs_values(TileValues::Auto, Packing { entries: 165, ..wide }).1;
        assert_eq!(why, "16.5 entries a step, 10.0 steps a warp");
    }

    #[test]
    fn few_steps_are_divided_into_narrow_slices() {
        let widest = |n, windows, steps| {
            widest_for_few_steps(Demand::aligned(Dtype::F16, n), ANY, (windows, steps), 100)
        };
        assert_eq!(widest(128, 25, 499), 64);
        assert_eq!(widest(128, 25, 500), u32::MAX, "5 steps each");
        assert_eq!(widest(128, 24, 499), u32::MAX, "fewer windows than teams");
        assert_eq!(widest(64, 25, 499), u32::MAX, "narrow by itself");
        assert_eq!(widest(256, 25, 499), u32::MAX, "two wide slices");
    }

    #[test]
    fn slices_are_no_wider_than_asked() {
        let demand = Demand::aligned(Dtype::F16, 128);
        let name = |widest_slice| select(demand, StreamShape { widest_slice, ..ANY }).unwrap().name;
        assert_eq!(name(64), "spmm_tile_stream_f16_64");
        assert_eq!(name(1), "spmm_tile_stream_f16_64", "there is no narrower one");
    }

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for (vectors, form) in
                    [(true, Form::Dense), (false, Form::Dense), (true, Form::Packed), (false, Form::Packed)]
                {
                    let entry = select(Demand { dtype, n, vectors }, StreamShape { form, ..ANY });
                    assert_eq!(entry.is_some(), dtype != Dtype::F32);
                    assert!(entry.is_none_or(|e| e.name.ends_with("_packed") == (form == Form::Packed)));
                }
            }
        }
    }
}

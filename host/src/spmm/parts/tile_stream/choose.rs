//! How windows of tiles become a stream: the kernel's slices, the number of warps, and the form of the values.

use windrow_kernels::tile_stream::{Pipeline, TEAM};
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::costs::TileThresholds;
use crate::error::SpmmError;
use crate::num::{real, wide};
use crate::options::{Precision, TilePipeline, TileValues};
use crate::plan::division;
use crate::spmm::layout::{Context, LEAST_QUARTERS, Matrix, Slicing};
use crate::spmm::options::SpmmOptions;
use crate::spmm::select::{Demand, LINE_BYTES};
use crate::spmm::tiles::{Dealing, Form};

/// What a slice of `B` may occupy of the L2 cache, in quarters of it: the rest is for `A`, for `C` on its way out,
/// and for the lines that both halves of the cache hold.
const CACHE_QUARTERS: u64 = LEAST_QUARTERS;
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
    /// How rows of `B` get to Tensor Cores, if they are aligned.
    pub(in crate::spmm) pipeline: Pipeline,
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

/// What a stream is dealt out of.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamWork {
    pub(super) windows: u64,
    pub(super) steps: u64,
    pub(super) entries: u64,
}

/// How work becomes a stream of tiles.
pub(super) fn choose<A: Matrix>(
    context: &Context<'_, A>,
    work: StreamWork,
) -> Result<StreamChoice, SpmmError> {
    let (options, demand, turns) = (context.options, context.demand(), &context.profile.costs.tiles);
    let slicing = context.slicing(CACHE_QUARTERS)?;
    let pipeline = pipeline_of(options)?;
    let dense = |widest_slice| StreamShape { form: Form::Dense, pipeline, widest_slice };
    let workers = worker_count(context, dense(slicing.widest), slicing)?;
    let widest_slice = widest_for_few_steps(demand, dense(slicing.widest), OnWarps { work, workers }, turns);
    let workers = worker_count(context, dense(widest_slice), slicing)?;
    let packing = Packing {
        on: OnWarps { work, workers },
        narrow: select(demand, dense(widest_slice))
            .is_some_and(|entry| division(entry).slice * demand.dtype.bytes() <= LINE_BYTES),
        b_bytes: wide(context.a.cols())
            .saturating_mul(wide(options.width))
            .saturating_mul(u64::from(demand.dtype.bytes())),
    };
    let (form, why) = packs_values(options.tile_values, packing, turns);
    let shape = StreamShape { form, pipeline, widest_slice };
    let dealing = match options.window_each {
        true => Dealing::WindowEach,
        false => Dealing::Evenly(worker_count(context, shape, slicing)?),
    };
    Ok(StreamChoice { shape, dealing, why })
}

/// The pipeline that is asked for, if it has kernels for the precision.
fn pipeline_of(options: &SpmmOptions) -> Result<Pipeline, SpmmError> {
    let &SpmmOptions { tile_pipeline, precision, .. } = options;
    let pipeline = match tile_pipeline {
        TilePipeline::ThreeStages => return Ok(Pipeline::ThreeStages),
        TilePipeline::TwoStages => Pipeline::TwoStages,
        TilePipeline::Registers => Pipeline::Registers,
    };
    match precision {
        Precision::F16 => Ok(pipeline),
        _ => Err(SpmmError::NoPipeline { pipeline: tile_pipeline, precision }),
    }
}

/// As many workers as the device holds warps of the kernel at a time; divided by the slices of the width if
/// these are worked on together.
fn worker_count<A: Matrix>(
    context: &Context<'_, A>,
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
    let StreamShape { form, pipeline, widest_slice } = shape;
    let pipeline = if vectors { pipeline } else { Pipeline::ThreeStages };
    let of_family = |entry: &&Entry| {
        matches!(entry.variant, Variant::TileStream { dtype: d, vectors: v, form: f, pipeline: p, .. }
            if d == dtype && v == vectors && f == form && p == pipeline)
    };
    ENTRIES.iter().filter(of_family).min_by_key(|entry| {
        let slice = division(entry).slice;
        let step_bytes = STEP_COLUMNS * slice * dtype.bytes() + STEP_OVERHEAD_BYTES;
        let cost = u64::from(n.div_ceil(slice).max(1)) * u64::from(step_bytes);
        (slice > widest_slice, if slice > widest_slice { u64::from(slice) } else { cost })
    })
}

/// Work, and the warps that share it.
#[derive(Debug, Clone, Copy)]
struct OnWarps {
    work: StreamWork,
    workers: u32,
}

/// The widest slice that a stream should have for this demand, in columns, if so many warps would work on it as
/// demanded. Fewer windows than teams are shared by the warps of a block each, and wide slices are as quick.
fn widest_for_few_steps(
    demand: Demand,
    shape: StreamShape,
    OnWarps { work: StreamWork { windows, steps, .. }, workers }: OnWarps,
    turns: &TileThresholds,
) -> u32 {
    let narrow = LINE_BYTES / demand.dtype.bytes();
    let one_wide = select(demand, shape).is_some_and(|entry| division(entry).slice >= demand.n);
    let few = real(steps) < turns.narrow_steps * f64::from(workers) && windows >= u64::from(workers / TEAM);
    if few && one_wide && demand.n > narrow { narrow } else { shape.widest_slice }
}

/// What decides whether the values of tiles are packed.
#[derive(Debug, Clone, Copy)]
struct Packing {
    on: OnWarps,
    /// Whether a worker has but one slice of 128 bytes of each row of `B`.
    narrow: bool,
    /// Size of `B` at the plan's width, in bytes.
    b_bytes: u64,
}

/// The form in which records hold the values of tiles, and why.
fn packs_values(asked: TileValues, packing: Packing, turns: &TileThresholds) -> (Form, String) {
    let Packing { on: OnWarps { work: StreamWork { steps, entries, .. }, workers }, narrow, b_bytes } =
        packing;
    let most_entries = turns.packed_entries;
    let per_step = real(entries) / real(steps.max(1));
    let per_worker = real(steps) / f64::from(workers.max(1));
    let least_steps = if narrow { turns.packed_steps_narrow } else { turns.packed_steps };
    match asked {
        TileValues::Dense => (Form::Dense, "as asked".to_owned()),
        TileValues::Packed => (Form::Packed, "as asked".to_owned()),
        TileValues::Bitmap => (Form::Bitmap, "as asked".to_owned()),
        TileValues::Auto if per_step > most_entries => {
            (Form::Dense, format!("{per_step:.1} entries a step, more than {most_entries}"))
        }
        TileValues::Auto if per_worker < least_steps => {
            (Form::Dense, format!("{per_worker:.1} steps a warp, fewer than {least_steps}"))
        }
        TileValues::Auto if narrow && b_bytes < turns.packed_b_bytes_narrow => {
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

    const ANY: StreamShape =
        StreamShape { form: Form::Dense, pipeline: Pipeline::ThreeStages, widest_slice: u32::MAX };

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
        let turns = TileThresholds::default();
        let wide = |entries, workers| {
            let work = StreamWork { windows: 1, entries, steps: 10 };
            Packing { on: OnWarps { work, workers }, narrow: false, b_bytes: 1 }
        };
        let narrow = |steps| {
            let work = StreamWork { windows: 1, entries: 80, steps };
            Packing { on: OnWarps { work, workers: 10 }, narrow: true, b_bytes: 4 << 20 }
        };
        let form = |packing| packs_values(TileValues::Auto, packing, &turns).0;
        assert_eq!(form(wide(480, 1)), Form::Packed);
        assert_eq!(form(wide(481, 1)), Form::Dense);
        assert_eq!(form(wide(480, 2)), Form::Dense, "5 steps each");
        assert_eq!(form(narrow(80)), Form::Packed);
        assert_eq!(form(narrow(79)), Form::Dense);
        assert_eq!(form(Packing { b_bytes: (4 << 20) - 1, ..narrow(80) }), Form::Dense);
        let nothing = OnWarps { work: StreamWork { windows: 0, steps: 0, entries: 0 }, workers: 1 };
        assert_eq!(form(Packing { on: nothing, ..wide(480, 1) }), Form::Dense);
        assert_eq!(packs_values(TileValues::Dense, wide(480, 1), &turns).0, Form::Dense);
        assert_eq!(packs_values(TileValues::Packed, wide(1280, 1), &turns).0, Form::Packed);
        let why = packs_values(TileValues::Auto, wide(165, 1), &turns).1;
        assert_eq!(why, "16.5 entries a step, 10.0 steps a warp");
    }

    #[test]
    fn few_steps_are_divided_into_narrow_slices() {
        let widest = |n, windows, steps| {
            let on = OnWarps { work: StreamWork { windows, steps, entries: 1 }, workers: 100 };
            widest_for_few_steps(Demand::aligned(Dtype::F16, n), ANY, on, &TileThresholds::default())
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
    fn other_pipelines_are_for_aligned_f16() {
        let forms = [(Form::Dense, ""), (Form::Packed, "_packed"), (Form::Bitmap, "_bitmap")];
        for (pipeline, ending) in [(Pipeline::TwoStages, "two_stages"), (Pipeline::Registers, "registers")] {
            for ((form, held), (n, slice)) in forms.into_iter().flat_map(|f| [(f, (64, 64)), (f, (128, 128))])
            {
                let shape = StreamShape { form, pipeline, ..ANY };
                let name = |demand| select(demand, shape).map(|entry| entry.name);
                let expected = format!("spmm_tile_stream_f16_{slice}{held}_{ending}");
                assert_eq!(name(Demand::aligned(Dtype::F16, n)), Some(expected.as_str()));
                let loose = format!("spmm_tile_stream_f16_elements{held}");
                assert_eq!(name(Demand { dtype: Dtype::F16, n, vectors: false }), Some(loose.as_str()));
                assert_eq!(name(Demand::aligned(Dtype::Bf16, n)), None);
            }
        }
        let asked = |tile_pipeline, precision| {
            pipeline_of(&SpmmOptions { tile_pipeline, precision, ..SpmmOptions::default() })
        };
        assert_eq!(asked(TilePipeline::ThreeStages, Precision::Tf32), Ok(Pipeline::ThreeStages));
        assert_eq!(asked(TilePipeline::TwoStages, Precision::F16), Ok(Pipeline::TwoStages));
        let error = asked(TilePipeline::Registers, Precision::Bf16).unwrap_err().to_string();
        assert!(error.contains("registers has kernels for f16 only") && error.contains("bf16"), "{error}");
    }

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for (form, ending) in
                    [(Form::Dense, ""), (Form::Packed, "_packed"), (Form::Bitmap, "_bitmap")]
                {
                    for vectors in [true, false] {
                        let entry = select(Demand { dtype, n, vectors }, StreamShape { form, ..ANY });
                        assert_eq!(entry.is_some(), dtype != Dtype::F32);
                        let endings =
                            ["_packed", "_bitmap"].map(|e| entry.is_some_and(|x| x.name.ends_with(e)));
                        assert!(entry.is_none() || endings == ["_packed", "_bitmap"].map(|e| e == ending));
                    }
                }
            }
        }
    }
}

//! Products of few rows with N:M weights on Tensor Cores, as fast as weights are read.

use windrow_formats::memory::{try_filled, try_zeroed};
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::nm::{
    FEW_ROWS_DEPTH, FEW_ROWS_TURNS, FEW_ROWS_UNIT, FEW_ROWS_WARPS, NOT_KEPT, NmFewRowsParams, NmTile,
    few_rows_pick_index, few_rows_weight_index,
};
use windrow_kernels::{Dtype, ENTRIES, Entry, Variant};

use super::algorithm::Weights;
use super::launch::Launch;
use super::model::{Capacity, Instance, Sizes};
use super::options::{NmAlgorithm, NmPacking};
use super::parts::launch;
use super::placing::{DeviceValues, GivenBits, LaidOut, Placed, Placement};
use super::report::NmReport;
use super::staging::ReadAs;
use crate::cpu::each_chunk;
use crate::device::{DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::plan::Bits;

const PICKS: &str = "picks";
const DEPTH: usize = FEW_ROWS_DEPTH as usize;
const UNIT: usize = FEW_ROWS_UNIT as usize;
/// Weights of a unit of columns in a step.
const OF_UNIT: usize = DEPTH * UNIT;

/// An instance of the kernel, and how weights are cut for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    entry: &'static Entry,
    tile: NmTile,
    cut: Cut,
}

/// How the kept rows of a pattern are cut into steps and windows.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Rows of the weights.
    inner: u32,
    pattern: NmPattern,
    steps: u32,
    /// Steps that a warp takes of a window.
    turns: u32,
}

impl Cut {
    /// The largest windows of which the activations have room in a tile's; none if the smallest have not.
    fn new(sizes: Sizes, tile: NmTile) -> Option<Self> {
        let steps = narrow(sizes.kept_rows().div_ceil(DEPTH));
        let cut = |turns| Self { inner: sizes.inner, pattern: sizes.pattern, steps, turns };
        let turns = (0..=FEW_ROWS_TURNS.ilog2()).rev().map(|log2| 1 << log2);
        turns.map(cut).find(|cut| cut.most_columns() <= tile.few_rows_window())
    }

    /// What the kernel knows of it; the rest is blank.
    fn params(&self) -> NmFewRowsParams {
        let [kept, group] = [self.pattern.n(), self.pattern.m()].map(narrow);
        let Self { inner: k, steps, turns, .. } = *self;
        NmFewRowsParams { k, kept, group, steps, turns, ..bytemuck::Zeroable::zeroed() }
    }

    fn windows(&self) -> u32 {
        self.params().windows()
    }

    /// Columns of `A` in a window, at most.
    fn most_columns(&self) -> u32 {
        let params = self.params();
        let columns = |window| params.end_column(window) - params.first_column(window);
        (0..self.windows()).map(columns).max().unwrap_or_default()
    }

    /// The first column of `A` in the window that a step is of.
    fn first_column(&self, step: usize) -> usize {
        let window = narrow(step) / (FEW_ROWS_WARPS * self.turns);
        index(u64::from(self.params().first_column(window)))
    }
}

/// Every instance for the precision whose strips suit the pattern and whose windows hold the rows that its steps pick.
pub(super) fn choices(precision: Precision, sizes: Sizes, capacity: Capacity) -> Vec<Choice> {
    let choice = |entry: &'static Entry| match entry.variant {
        Variant::NmFewRows { dtype, tile }
            if dtype == precision.dtype() && sizes.suit(tile) && capacity.runs(entry) =>
        {
            Cut::new(sizes, tile).map(|cut| Choice { entry, tile, cut })
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

    /// Nanoseconds: the weights come from memory, and what a block reads to its multiprocessor, at the same time.
    fn cost(&self, sizes: Sizes, capacity: Capacity, parts_log2: u32) -> f64 {
        let costs = &capacity.few_rows;
        let NmTile { rows, columns, .. } = self.tile;
        let [parts, m_tiles, strips] =
            [1 << parts_log2, sizes.m.div_ceil(rows), sizes.n.div_ceil(columns)].map(f64::from);
        // Values and picks, and the rows of A that there are.
        let of_step = f64::from(2 * FEW_ROWS_DEPTH * (columns + 1));
        let activations = f64::from(2 * self.cut.inner) * f64::from(rows.min(sizes.m));
        let of_block = (f64::from(self.cut.steps) * of_step + activations) / parts;
        let from_memory = f64::from(self.cut.steps) * of_step * strips / costs.memory_bytes_per_ns;
        let busiest = (parts * m_tiles * strips / f64::from(capacity.multiprocessors)).ceil();
        let to_multiprocessors = busiest * of_block / costs.multiprocessor_bytes_per_ns;
        let combine = match parts_log2 {
            0 => 0.0,
            log2 => {
                let costs = &capacity.tensor_cores;
                costs.combine_ns + sizes.combined_bytes(log2) / costs.memory_bytes_per_ns
            }
        };
        costs.fill_ns + from_memory.max(to_multiprocessors) + combine
    }
}

/// Weights laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    /// (strips, steps, units, 16 kept rows · 16 columns), in register order
    weights: LaidOut,
    /// (strips, steps, 16 kept rows), likewise
    picks: Vec<u16>,
}

impl Layout {
    /// Lays out the weights' values; `None` if they are of no type of 16 bits.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        choice: Choice,
    ) -> Result<Option<Self>, OutOfMemory> {
        let order = Order { weights, choice };
        let picks = order.picks()?;
        let weights = match values {
            GivenBits::OnHost(Bits::F16(bits)) => LaidOut::OnHost(Bits::F16(order.values(bits)?)),
            GivenBits::OnHost(Bits::Bf16(bits)) => LaidOut::OnHost(Bits::Bf16(order.values(bits)?)),
            GivenBits::OnHost(Bits::F32(_) | Bits::Tf32(_) | Bits::F64(_)) => return Ok(None),
            GivenBits::OnDevice(given, dtype) => LaidOut::Placed(order.placement(given, dtype)?),
        };
        Ok(Some(Self { choice, weights, picks }))
    }
}

/// What goes where.
struct Order<'a, V> {
    weights: &'a VectorNm<V>,
    choice: Choice,
}

impl<V: Sync> Order<'_, V> {
    fn steps(&self) -> usize {
        index(u64::from(self.choice.cut.steps))
    }

    /// Columns of a strip.
    fn strip(&self) -> usize {
        index(u64::from(self.choice.tile.columns))
    }

    fn strips(&self) -> usize {
        self.weights.cols().div_ceil(self.strip())
    }

    /// The kept row in a place of a step, if there is one.
    fn kept(&self, step: usize, place: usize) -> Option<usize> {
        let kept = step * DEPTH + place;
        (kept < self.weights.kept_rows()).then_some(kept)
    }

    /// Offsets in bytes in rows of windows.
    fn picks(&self) -> Result<Vec<u16>, OutOfMemory> {
        // An instance has windows of fewer than 2¹⁵ columns.
        let offset = |columns: usize| u16::try_from(2 * columns).unwrap_or(u16::MAX);
        let zeros = offset(index(u64::from(self.choice.tile.few_rows_window())));
        let mut picks = try_filled(self.strips() * self.steps() * DEPTH, zeros, "picks of strips")?;
        each_chunk(&mut picks, DEPTH, &|at, picks| {
            let (strip, step) = (at / self.steps(), at % self.steps());
            let vector = strip * self.strip() / self.weights.pattern().l();
            let first = self.choice.cut.first_column(step);
            for place in 0..DEPTH {
                if let Some(kept) = self.kept(step, place) {
                    let to = index(u64::from(few_rows_pick_index(narrow(place))));
                    picks[to] = offset(self.weights.source_row(kept, vector) - first);
                }
            }
        });
        Ok(picks)
    }

    /// Where in a step of a strip the weight of a kept row and column is.
    fn value_index(place: usize, column: usize) -> usize {
        let of_unit = few_rows_weight_index(narrow(place), narrow(column % UNIT));
        column / UNIT * OF_UNIT + index(u64::from(of_unit))
    }

    /// `given`, w × columns, in the order of registers; zeros where nothing is kept.
    fn values(&self, given: &[u16]) -> Result<Vec<u16>, OutOfMemory> {
        let of_step = DEPTH * self.strip();
        let len = self.strips() * self.steps() * of_step;
        let mut values = try_zeroed(len, "weights as kernels read them")?;
        each_chunk(&mut values, of_step, &|at, values: &mut [u16]| {
            let (first, step) = (at / self.steps() * self.strip(), at % self.steps());
            let columns = self.strip().min(self.weights.cols() - first);
            for (place, kept) in (0..DEPTH).filter_map(|place| Some((place, self.kept(step, place)?))) {
                let of_row = &given[kept * self.weights.cols() + first..][..columns];
                for (column, &value) in of_row.iter().enumerate() {
                    values[Self::value_index(place, column)] = value;
                }
            }
        });
        Ok(values)
    }

    /// Which kept value is where, of values on the device.
    fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let chunks = self.strips() * self.steps();
        let mut kept = try_filled(chunks * DEPTH, NOT_KEPT, "kept rows")?;
        each_chunk(&mut kept, DEPTH, &|at, kept| {
            for (place, kept) in kept.iter_mut().enumerate() {
                *kept = self.kept(at % self.steps(), place).map_or(NOT_KEPT, narrow);
            }
        });
        let mut places = try_filled(DEPTH * self.strip(), 0, "places of weights")?;
        for place in 0..DEPTH {
            for column in 0..self.strip() {
                places[Self::value_index(place, column)] = narrow(place) << 16 | narrow(column);
            }
        }
        Ok(Placement {
            given,
            kept,
            places,
            others: Vec::new(),
            chunks,
            chunks_per_group: self.steps(),
            group_columns: self.strip(),
            strips: 1,
            strip: self.strip(),
            depth: DEPTH,
            before: 0,
            after: 0,
            tail: 0,
            dtype,
        })
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        NmAlgorithm::TensorCores
    }

    fn read_as(&self) -> ReadAs {
        ReadAs::RowMajorVectors
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        let mut arrays = self.weights.arrays();
        arrays.push((PICKS, 2 * wide(self.picks.len())));
        arrays
    }

    fn upload(&self, Runner { device, .. }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let (weights, placed) = self.weights.upload(device)?;
        let picks = DeviceBuffer::named(device, &self.picks, PICKS)?;
        Ok(Box::new(FewRowsNm { choice: self.choice, picks, weights, placed }))
    }

    fn stage(&self) -> [u32; 2] {
        let cut = &self.choice.cut;
        [cut.params().window_rows(), cut.most_columns()]
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        report.packing = NmPacking::Plain;
        "all of the few rows of A is brought, and picked from in shared memory"
            .clone_into(&mut report.packing_reason);
    }
}

/// The weights in device memory.
struct FewRowsNm {
    choice: Choice,
    picks: DeviceBuffer<u16>,
    weights: DeviceBuffer<u8>,
    placed: Option<Placed>,
}

impl Weights for FewRowsNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.weights))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            (PICKS, bytemuck::cast_slice(&self.picks.to_vec()?).to_vec()),
            ("weights", self.weights.to_vec()?),
        ])
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let Choice { entry, tile, cut } = self.choice;
        let m_tiles = run.output.m.div_ceil(tile.rows);
        let grid = [u64::from(run.output.n.div_ceil(tile.columns)), u64::from(m_tiles) << run.parts_log2];
        let params = NmFewRowsParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a,
            weights: self.weights.pointer().cast(),
            picks: self.picks.pointer().cast(),
            lda: run.a.ld,
            windows_per_part: cut.windows().div_ceil(1 << run.parts_log2),
            m_tiles,
            ..cut.params()
        };
        // SAFETY: picks and weights are those of a layout for this entry, cut in the same way, and its activations are
        // aligned and readable in vectors. The rest is the caller's promise.
        unsafe { launch(queue, entry, grid, &params) }
    }
}

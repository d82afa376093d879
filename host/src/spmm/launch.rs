//! A plan on a machine that runs kernels, a GPU or the emulator through the same code: its parts, in the order in which
//! they are launched.

use std::sync::{Mutex, OnceLock, PoisonError};

use windrow_formats::Value;
use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;
use windrow_kernels::output::{Activate, Output, OutputType};
use windrow_kernels::{Entry, Factor, Variant};
use windrow_simt::GlobalPtr;

use super::part::{
    DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, SecondFactor, Turn, places_size,
};
use super::places::Places;
use super::sums::{SplitPart, SplitRows, WideC};
use crate::activation::{Activation, Epilogue};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::element::{Element, kernel_factor, output_type};
use crate::error::{DeviceError, SpmmError};
use crate::num::narrow;
use crate::options::{Determinism, Precision};
use crate::parallelism::{GroupLaunch, IllegalPoint};
use crate::plan::{ArraySize, Bits, GivenValues, Lane, MAX_BLOCK_COLUMNS, Stream, push};

/// The parts of a plan in device memory. Every row of `C` is written by exactly one part; one may add to rows that
/// another has written.
pub(crate) struct GpuPlan {
    pub(super) precision: Precision,
    pub(super) determinism: Determinism,
    pub(super) parts: Vec<(Turn, Box<dyn Part>)>,
    pub(super) split: Option<SplitPart>,
    device: Device,
    /// Whether there are rows to which a part adds.
    adds: bool,
    /// Rows of `C`, those that no part writes included.
    rows: usize,
    /// Where sums wait for what may be done to them once only: made with a plan whose parts add to each other's rows,
    /// else by the first run that needs it.
    stage: OnceLock<WideC>,
    /// Where new values from the device go; made when they first come, unless asked for before.
    pub(super) places: Option<Places>,
    /// Columns of the workspace, a multiple of 8.
    pub(super) capacity: u32,
    /// Held while the launches of a run are queued: they share the workspace.
    queue: Mutex<Queue>,
}

/// What a run leaves to the next.
#[derive(Default)]
struct Queue {
    /// Whether sums of a run may be left in the workspace: one that failed half-way leaves it so.
    unfinished: bool,
    /// The entries of the last launches, and what they are for: finding them among all
    /// entries takes the CPU longer than preparing the launches.
    last: Option<(Operation, Chosen)>,
}

/// The dense operands of a run: addresses, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) b: u64,
    pub(crate) ldb: u32,
    /// Whether columns of `B` are contiguous, `ldb` elements from one to the next.
    pub(crate) column_major: bool,
    /// The other factor of entries that have two, of the same type as `B`.
    pub(crate) second: Option<SecondFactor>,
    pub(crate) c: u64,
    pub(crate) ldc: u32,
    pub(crate) n: u32,
    pub(crate) finish: Finish,
}

/// What becomes of sums: the run's epilogue, and the type of `C`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    alpha: Factor,
    beta: Factor,
    /// One number for each column, in the type of the sums; 0 if there is none.
    bias: u64,
    activation: Activation,
    c_type: OutputType,
}

impl Finish {
    /// For a `C` of elements `C`.
    pub(crate) fn of<C: Element>(run: &Epilogue<'_, C::Sum>) -> Self {
        Self {
            alpha: kernel_factor(run.alpha),
            beta: kernel_factor(run.beta),
            bias: run.bias.map_or(0, DeviceBuffer::address),
            activation: run.activation,
            c_type: output_type::<C>(),
        }
    }

    /// Whether it may be done to parts of a sum, one after the other.
    fn is_additive(&self) -> bool {
        self.c_type == OutputType::Sums && !self.needs_stage()
    }

    /// Whether only [`Combine`] does it: kernels that multiply have no registers left for a bias, an activation or
    /// bf16.
    fn needs_stage(&self) -> bool {
        self.bias != 0 || self.activation != Activation::Identity || self.c_type == OutputType::Bf16
    }
}

/// The entries of one launch sequence.
struct Chosen {
    /// One for each part.
    parts: Vec<Option<&'static Entry>>,
    /// For sums of what was cut, and for what is done once to sums that several launches have added to.
    combine: Option<&'static Entry>,
}

impl GpuPlan {
    /// The arrays that [`upload`](Self::upload) makes for so many rows of `C`, and the bytes of those that are
    /// workspace.
    pub(crate) fn sizes(
        laid: &LaidOut<'_>,
        precision: Precision,
        (rows, capacity): (usize, u32),
    ) -> (Vec<ArraySize>, u64) {
        let mut sizes = laid.arrays();
        let before = sizes.len();
        let sum_bytes = u64::from(precision.dtype().sum_bytes());
        push(&mut sizes, "workspace", sum_bytes * laid.cut.slot_rows * u64::from(capacity));
        if laid.facts.rows_in_both > 0 {
            sizes.extend(WideC::sizes(rows, precision));
        }
        let workspace = sizes[before..].iter().map(|array| array.bytes).sum();
        (sizes, workspace)
    }

    /// Uploads what was laid out, with these values in CSR order, and says what it was. The workspace has `capacity`
    /// columns, a multiple of 8.
    pub(crate) fn upload(
        device: &Device,
        values: &dyn GivenValues,
        LaidOut { parts, cut, facts }: LaidOut<'_>,
        (precision, determinism): (Precision, Determinism),
        (rows, capacity): (usize, u32),
    ) -> Result<(Self, LayoutFacts), DeviceError> {
        let split = match cut.windows.is_empty() && cut.rows.is_empty() {
            true => None,
            false => Some(SplitPart::upload(device, &cut, (capacity, precision.dtype().sum_bytes()))?),
        };
        let upload =
            |(turn, layout): (Turn, Box<dyn Layout + '_>)| Ok((turn, layout.upload(device, values)?));
        let parts = parts.into_iter().map(upload).collect::<Result<_, DeviceError>>()?;
        let plan = Self {
            precision,
            determinism,
            parts,
            split,
            device: device.clone(),
            adds: facts.rows_in_both > 0,
            rows,
            stage: OnceLock::new(),
            places: None,
            capacity,
            queue: Mutex::default(),
        };
        if plan.adds {
            plan.stage()?;
        }
        Ok((plan, facts))
    }

    /// Where sums wait for what may be done to them once only.
    fn stage(&self) -> Result<&WideC, DeviceError> {
        if let Some(stage) = self.stage.get() {
            return Ok(stage);
        }
        let made = WideC::alloc(&self.device, self.rows, self.precision)?;
        Ok(self.stage.get_or_init(|| made))
    }

    /// What the first run with such an epilogue would allocate.
    pub(super) fn stage_sizes(&self, finish: &Finish) -> Vec<ArraySize> {
        match finish.needs_stage() && self.stage.get().is_none() {
            true => WideC::sizes(self.rows, self.precision),
            false => Vec::new(),
        }
    }

    /// The entries for an operation.
    fn choose(&self, operation: Operation) -> Chosen {
        let combine = Variant::Combine { sum_bytes: self.precision.dtype().sum_bytes() };
        Chosen {
            parts: self.parts.iter().map(|(_, part)| part.entry(operation)).collect(),
            combine: windrow_kernels::entry(combine),
        }
    }

    /// The names of the entries for an operation, which the driver compiles now unless it has, so that no run waits for
    /// that.
    pub(crate) fn load(
        &self,
        machine: &dyn Machine,
        operation: Operation,
    ) -> Result<Vec<&'static str>, DeviceError> {
        let Chosen { parts, combine } = self.choose(operation);
        let combine = combine.filter(|_| self.split.is_some());
        let entries = parts.into_iter().flatten().chain(combine);
        entries.map(|entry| machine.resident_blocks(entry).map(|_| entry.name)).collect()
    }

    /// Whether Tensor Cores take part, whose rounding is not that of a fused multiply-add.
    pub(super) fn uses_tensor_cores(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.on_tensor_cores())
    }

    /// Whether there are kernels for a column-major `B`.
    pub(super) fn takes_column_major(&self) -> bool {
        self.parts.iter().all(|(_, part)| part.takes_column_major())
    }

    /// New values in CSR order, for the same pattern. Work queued before still uses the old ones.
    pub(crate) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.parts.iter_mut().try_for_each(|(_, part)| part.replace_values(values))
    }

    /// Another launch of the same division of work, and how it is described; none if no part has such.
    pub(super) fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<Option<String>, IllegalPoint> {
        for (_, part) in &mut self.parts {
            if let Some(described) = part.set_group_launch(launch)? {
                return Ok(Some(described));
            }
        }
        Ok(None)
    }

    /// The array that [`Places::new`] will make, for values that come in another order than that of the entries, or
    /// not.
    pub(super) fn places_size(&self, nnz: usize, reordered: bool) -> ArraySize {
        let placements = self.parts.iter().map(|(_, part)| part.value_slots().placement());
        places_size(placements, nnz, self.precision.bytes(), reordered)
    }

    /// Makes what values from the device need, in the order of the entries or where entry `e` takes value `order[e]`.
    pub(super) fn make_places(
        &mut self,
        device: &Device,
        nnz: usize,
        order: Option<&[u32]>,
    ) -> Result<(), SpmmError> {
        let places = {
            let slots: Vec<_> = self.parts.iter().map(|(_, part)| part.value_slots()).collect();
            Places::new(device, self.precision, &slots, nnz, order)?
        };
        self.places = Some(places);
        Ok(())
    }

    /// Queues the replacement of all values by `values`, one for each of `nnz` entries, in the order that the places
    /// were made for; without places, nothing.
    ///
    /// # Safety
    /// `values` are live memory of the plan's device until the work is done, one of the sums' type for each entry,
    /// which nothing writes meanwhile.
    pub(super) unsafe fn place_values(
        &self,
        machine: &dyn Machine,
        values: (GlobalPtr<u32>, usize),
    ) -> Result<(), DeviceError> {
        let Some(places) = &self.places else { return Ok(()) };
        let parts = self.parts.iter().map(|(_, part)| &**part);
        // SAFETY: the caller's promise about the values; the places were made for these parts.
        unsafe { places.place(machine, self.precision, parts, values) }
    }

    /// Name and content of each array that products read, the workspace excepted.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = Vec::new();
        for (_, part) in &self.parts {
            arrays.extend(part.read_arrays()?);
        }
        if let Some(split) = &self.split {
            arrays.push(("split_rows", bytemuck::cast_slice(&split.rows().to_vec()?).to_vec()));
        }
        Ok(arrays)
    }

    /// Queues `C ← act(α·A·B + β·C + bias)`, in blocks of columns.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `b` is k×n, `c` m×n, of the
    /// plan's element type and of the type that `finish` tells, with all rows readable up to `ldb`; nothing
    /// else touches `c` meanwhile, nothing writes `b`. A second factor is like `b`; a bias has n numbers.
    pub(crate) unsafe fn run(&self, machine: &dyn Machine, operands: Operands) -> Result<(), DeviceError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Determinism::Fast, Some(split)) = (queue.unfinished, self.determinism, &self.split) {
            split.clear()?; // what is accumulated must begin at zero
        }
        queue.unfinished = true;
        let finish = &operands.finish;
        let staged = finish.needs_stage() || self.adds && !finish.is_additive();
        let wide_c = if staged { Some(self.stage()?) } else { None };
        let block = match wide_c {
            Some(wide_c) => wide_c.columns,
            None if self.split.is_some() => self.capacity,
            None => self.parts.iter().map(|(_, part)| part.most_columns()).min().unwrap_or(MAX_BLOCK_COLUMNS),
        };
        let mut first = 0;
        while first < operands.n {
            let dense = self.dense(&operands, first, block.min(operands.n - first));
            // SAFETY: the caller's promise about the operands, for these columns of them; the lock keeps other runs
            // off the workspace.
            unsafe {
                match wide_c {
                    Some(wide_c) => self.launch_widened(machine, dense, wide_c, &mut queue)?,
                    None => self.launch_parts(machine, (dense, operands.column_major), &mut queue)?,
                }
            }
            first += dense.dense.n();
        }
        queue.unfinished = false;
        Ok(())
    }

    /// Columns `first..first + n` of the operands.
    fn dense(&self, operands: &Operands, first: u32, n: u32) -> DenseOperands {
        let sum_bytes = self.precision.dtype().sum_bytes();
        let Finish { alpha, beta, bias, activation, c_type } = operands.finish;
        let c_bytes = u64::from(c_type.bytes(sum_bytes));
        let c = operands.c + u64::from(first) * c_bytes;
        let bias = if bias == 0 { 0 } else { bias + u64::from(first) * u64::from(sum_bytes) };
        // Four elements, or 16 bytes.
        let aligned = |address: u64| address.is_multiple_of(16.min(4 * c_bytes));
        let vectors = aligned(c) && aligned(u64::from(operands.ldc) * c_bytes) && bias.is_multiple_of(16);
        let columns_bytes = u64::from(first) * u64::from(self.precision.bytes());
        let step = if operands.column_major { operands.ldb } else { 1 };
        let at_first = |SecondFactor { address, ld }| SecondFactor { address: address + columns_bytes, ld };
        let out = Output {
            c: GlobalPtr::from_address(c),
            bias: GlobalPtr::from_address(bias),
            alpha,
            beta,
            m: u32::MAX, // parts know their rows
            n,
            ldc: operands.ldc,
            flags: Output::flags(c_type, activation.code(), vectors),
        };
        let dense = Dense {
            out,
            b: GlobalPtr::from_address(operands.b + columns_bytes * u64::from(step)),
            partial: self.split.as_ref().map_or(GlobalPtr::NULL, |split| split.partial.pointer().cast()),
            ldb: operands.ldb,
            ld_partial: self.capacity,
            accumulate: u32::from(self.determinism == Determinism::Fast),
            reserved: 0,
        };
        DenseOperands { dense, second: operands.second.map(at_first) }
    }

    /// Launches the parts, then the sums of what was cut.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that the operands name, and no other run is being queued.
    unsafe fn launch_parts(
        &self,
        machine: &dyn Machine,
        (operands, column_major): (DenseOperands, bool),
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let dense = operands.dense;
        let bytes = u64::from(self.precision.bytes());
        let vectors =
            dense.b.address().is_multiple_of(16) && (u64::from(dense.ldb) * bytes).is_multiple_of(16);
        let operation = Operation { n: dense.n(), vectors, column_major };
        if queue.last.as_ref().is_none_or(|(last, _)| *last != operation) {
            queue.last = Some((operation, self.choose(operation)));
        }
        let Some((_, chosen)) = &queue.last else { return Ok(()) };
        let main = Stream::main(machine);
        let launch = |turn: Turn, stream: Stream<'_>| {
            let of_turn = self.parts.iter().zip(&chosen.parts).filter(|((its, _), _)| *its == turn);
            of_turn.filter_map(|((_, part), entry)| Some((part, (*entry)?))).try_for_each(|(part, entry)| {
                // SAFETY: the caller's promise about the operands, whose alignment was looked at when the entry was
                // chosen. What runs beside the main part touches neither its rows of `C` nor its slots; what comes
                // last adds to rows that were written by launches before.
                unsafe { part.launch(stream, entry, &operands) }
            })
        };
        let sums = |rows: fn(&SplitPart) -> SplitRows| match (&self.split, chosen.combine) {
            // SAFETY: the slots of these rows were written by the launches before, and so were the rows of `C` to which
            // their sums are added.
            (Some(split), Some(entry)) => unsafe { split.launch(machine, entry, dense, rows(split)) },
            _ => Ok(()),
        };
        launch(Turn::First, main)?;
        if self.parts.iter().any(|(turn, _)| *turn == Turn::Beside) {
            machine.fork()?;
            let launched = launch(Turn::Beside, Stream { machine, lane: Lane::Beside })
                .and_then(|()| launch(Turn::Main, main));
            machine.join()?; // before an error leaves: all work of the device stays in order
            launched?;
        } else {
            launch(Turn::Main, main)?;
        }
        sums(|split| split.windows)?;
        launch(Turn::Last, main)?;
        sums(|split| split.cut_rows)
    }

    /// Launches the parts for an f32 matrix in place of `C`, then does with their sums what may be done once only.
    ///
    /// # Safety
    /// As for [`launch_parts`](Self::launch_parts), of no more columns than `wide_c` has.
    unsafe fn launch_widened(
        &self,
        machine: &dyn Machine,
        operands: DenseOperands,
        wide_c: &WideC,
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let (c, columns, dense) = (wide_c.c.pointer(), wide_c.columns, operands.dense);
        let out = Output {
            c: c.cast(),
            bias: GlobalPtr::NULL,
            alpha: factor(self.precision, 1.0),
            beta: factor(self.precision, 0.0),
            ldc: columns,
            flags: Output::flags(OutputType::Sums, Activate::Identity, true),
            ..dense.out
        };
        let sums = Dense { out, ..dense };
        // SAFETY: the matrix has the rows of `C` and these columns, and `queue` keeps other runs off it.
        unsafe { self.launch_parts(machine, (DenseOperands { dense: sums, ..operands }, false), queue)? };
        let Some(entry) = queue.last.as_ref().and_then(|(_, chosen)| chosen.combine) else { return Ok(()) };
        let params = CombineParams {
            dense: Dense { partial: c.cast(), ld_partial: columns, accumulate: 0, ..dense },
            rows: wide_c.rows.pointer(),
            row_count: narrow(wide_c.rows.len()),
            wide_count: 0,
        };
        let blocks = Combine::<f32>::blocks(params.row_count, params.wide_count);
        // SAFETY: every row of the matrix was written by the launches before; each row of `C` is listed once.
        unsafe { Stream::main(machine).start(entry, u64::from(blocks), dense.n(), &params) }
    }
}

/// A number as the kernels of a precision take it.
fn factor(precision: Precision, x: f32) -> Factor {
    crate::with_element!(precision, E => kernel_factor(<<E as Element>::Sum as Value>::from_f32(x)))
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use windrow_formats::Csr;

    use super::*;
    use crate::device::{Device, DeviceBuffer};
    use crate::spmm::plan::Body;
    use crate::{Algorithm, DenseRef, DeviceMatrix, EmulatorSchedule, Spmm};

    /// Sixteen rows of 2400 ones, all cut.
    fn cut_rows() -> Csr<f32> {
        let offsets = (0..=16).map(|row| 2400 * row).collect();
        let columns = (0..16).flat_map(|_| 0..2400).collect();
        Csr::try_from_parts(16, 2400, offsets, columns, vec![1.0; 16 * 2400]).unwrap()
    }

    #[test]
    fn sums_of_a_failed_run_are_not_added_to_the_next() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let ones = [1.0f32; 2400];
        let b = DeviceMatrix::upload(&device, DenseRef::packed(&ones, 2400, 1).unwrap()).unwrap();
        for (algorithm, precision) in
            [(Algorithm::RowSplit, Precision::F32), (Algorithm::TileStream, Precision::Tf32)]
        {
            let plan = Spmm::builder(&cut_rows())
                .width(1)
                .algorithm(algorithm)
                .precision(precision)
                .determinism(Determinism::Fast)
                .workers(20)
                .build(&device)
                .unwrap();
            let Body::Gpu(parts) = &plan.body else { panic!("the emulator runs kernels") };
            let partial = || parts.split.as_ref().expect("rows are cut").partial.to_vec().unwrap();
            let lost = DeviceBuffer::<f32>::alloc_zeroed(&device, 16).unwrap().address();
            let operands = Operands {
                b: b.buffer().address(),
                ldb: crate::num::narrow(b.ld()),
                column_major: false,
                second: None,
                c: lost,
                ldc: 1,
                n: 1,
                finish: Finish::of::<f32>(&Epilogue::default()),
            };
            // SAFETY: `c` was freed, which the emulator reports; nothing is undefined there.
            unsafe { parts.run(device.machine().unwrap(), operands) }.unwrap_err();
            assert!(partial().iter().any(|&byte| byte != 0), "{algorithm}: sums are left");
            for _ in 0..2 {
                assert_eq!(plan.run(&ones).unwrap(), [2400.0; 16], "{algorithm}");
                assert!(partial().iter().all(|&byte| byte == 0), "{algorithm}: all were taken");
            }
        }
    }
}

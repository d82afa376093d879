//! The launches of a run, in their order.

use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;

use super::gpu::GpuPlan;
use super::operands::{Finish, Operands};
use super::part::{DenseOperands, Operation, Turn};
use super::state::RunState;
use super::sums::{SplitPart, SplitRows, Wide, WideC};
use crate::device::Queue;
use crate::error::{DeviceError, PlanError};
use crate::plan::{Budget, Lane, Launcher, OfStream, On, PREPARE};

/// Columns whose partial sums are read at once.
const SUMS_AT_ONCE: u32 = 4;

impl GpuPlan {
    /// Queues `C ← act(α·A·B + β·C + bias)`, in blocks of columns.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] for a stage or a workspace that is not made yet and does not fit into the budget,
    /// [`DeviceError::Captured`] for what cannot be part of a graph; those of the device.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `b` is k×n, `c` m×n, of the
    /// plan's element type and of the type that `finish` tells, with all rows of `b` readable up to `ldb` if it says
    /// so, and else up to n; nothing else touches `c` meanwhile, nothing writes `b`. A second factor is like `b`; a
    /// bias has n numbers. Where one of them is windrow's memory, `on` says that it shares memory.
    pub(crate) unsafe fn run(
        &self,
        on: &On<'_>,
        operands: Operands,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        let complete = |state: &mut OfStream<RunState>, captured: bool| match captured {
            true => {
                // Sums are added up of what was cut, and where they are brought to a stage first.
                let combines = self.split.is_some() || self.is_staged(&operands.finish);
                Ok(self.check_loaded(on, self.operations(&state.held, &operands), combines)?)
            }
            false if operands.finish.needs_stage() => self.make_stage(state, budget),
            false => Ok(()),
        };
        // SAFETY: the caller's promise; the state is lent for this run.
        let queue =
            |queue: &dyn Queue, state: &mut RunState| unsafe { self.queue_run(queue, operands, state) };
        self.states.run(on, |left| self.make_state(left, budget), complete, queue)
    }

    /// Whether a run brings its sums to a stage first.
    fn is_staged(&self, finish: &Finish) -> bool {
        finish.needs_stage() || self.adds && !finish.is_additive()
    }

    /// What a run asks of the entries: of its full blocks of columns, and of the rest.
    fn operations(&self, state: &RunState, operands: &Operands) -> Vec<Operation> {
        let block = self.block_columns(self.is_staged(&operands.finish).then_some(WideC::COLUMNS));
        let full = operands.n / block * block;
        let blocks = [(0, block.min(operands.n)), (full, operands.n - full)];
        let of = |(first, n)| {
            let columns = operands.columns(first, n, self.shape.precision, state.workspace(self.shape));
            self.operation(&columns)
        };
        blocks.into_iter().filter(|&(_, n)| n > 0).map(of).collect()
    }

    /// Columns that are multiplied at a time, of a stage or without one.
    fn block_columns(&self, stage: Option<u32>) -> u32 {
        stage.unwrap_or_else(|| self.most_columns())
    }

    /// Queues all launches of a run.
    ///
    /// # Safety
    /// As for [`run`](Self::run); no other run is being queued with this state.
    unsafe fn queue_run(
        &self,
        queue: &dyn Queue,
        operands: Operands,
        state: &mut RunState,
    ) -> Result<(), DeviceError> {
        let workspace = state.workspace(self.shape);
        let staged = self.is_staged(&operands.finish);
        let wide_c = state.stage.as_ref().filter(|_| staged).map(WideC::parts);
        if staged && wide_c.is_none() {
            // Only where nothing can be made.
            return Err(DeviceError::Captured { what: "the making of a stage", remedy: PREPARE });
        }
        let leftover = state.unfinished && workspace.accumulate;
        let unwritten = !state.is_filled && !operands.n.is_multiple_of(SUMS_AT_ONCE);
        if let (true, Some(partial)) = (leftover || unwritten, &state.partial) {
            partial.clear_in(queue)?; // what is accumulated must begin at zero
            state.is_filled = true;
        }
        state.unfinished = true;
        let block = self.block_columns(wide_c.as_ref().map(|wide_c| wide_c.columns));
        let mut first = 0;
        while first < operands.n {
            let n = block.min(operands.n - first);
            let block = operands.columns(first, n, self.shape.precision, workspace);
            // SAFETY: the caller's promise about the operands, for these columns of them.
            unsafe {
                match wide_c {
                    Some(wide_c) => self.launch_widened(queue, block, wide_c, state)?,
                    None => self.launch_parts(queue, block, state)?,
                }
            }
            first += n;
        }
        state.unfinished = false;
        Ok(())
    }

    /// Makes and compiles what runs of this width need on a stream, with a stage or without, and waits until it is
    /// there.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(crate) fn prepare(
        &self,
        on: &On<'_>,
        n: u32,
        staged: bool,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        let complete = |state: &mut OfStream<RunState>| {
            if staged {
                self.make_stage(state, budget)?;
            }
            if self.places.is_some() {
                for entry in self.placing_entries()? {
                    on.machine.load(entry)?;
                }
            }
            let stages =
                [(staged || self.adds).then_some(WideC::COLUMNS), (!staged).then(|| self.most_columns())];
            for block in stages.into_iter().flatten() {
                for n in [block.min(n), n % block] {
                    for vectors in [true, false].into_iter().filter(|_| n > 0) {
                        self.load(on.machine, Operation { n, vectors, column_major: false })?;
                    }
                }
            }
            Ok(())
        };
        self.states.prepare(on, |left| self.make_state(left, budget), complete)
    }

    /// What a launch asks of the entries.
    fn operation(&self, operands: &DenseOperands) -> Operation {
        let vectors = operands.are_vectors(self.shape.precision);
        Operation { n: operands.dense.n(), vectors, column_major: operands.column_major }
    }

    /// Launches the parts, then the sums of what was cut.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that the operands name, and no other run is being queued.
    unsafe fn launch_parts(
        &self,
        on: &dyn Queue,
        operands: DenseOperands,
        state: &mut RunState,
    ) -> Result<(), DeviceError> {
        let dense = operands.dense;
        let chosen = state.entries(self, self.operation(&operands))?;
        let main = Launcher::main(on);
        let launch = |turn: Turn, stream: Launcher<'_>| {
            let of_turn = self.parts.iter().zip(&chosen.parts).filter(|((its, _), _)| *its == turn);
            of_turn.map(|((_, part), entry)| (part, *entry)).try_for_each(|(part, entry)| {
                // SAFETY: the caller's promise about the operands, whose alignment was looked at when the entry was
                // chosen. What runs beside the main part touches neither its rows of `C` nor its slots; what comes
                // last adds to rows that were written by launches before.
                unsafe { part.launch(stream, entry, &operands) }
            })
        };
        let sums = |rows: fn(&SplitPart) -> SplitRows| match &self.split {
            // SAFETY: the slots of these rows were written by the launches before, and so were the rows of `C` to which
            // their sums are added.
            Some(split) => unsafe { split.launch(on, chosen.combine, dense, rows(split)) },
            None => Ok(()),
        };
        launch(Turn::First, main)?;
        if self.parts.iter().any(|(turn, _)| *turn == Turn::Beside) {
            on.fork()?;
            let launched = launch(Turn::Beside, Launcher { queue: on, lane: Lane::Beside })
                .and_then(|()| launch(Turn::Main, main));
            on.join()?; // before an error leaves: all work of the device stays in order
            launched?;
        } else {
            launch(Turn::Main, main)?;
        }
        sums(|split| split.windows)?;
        launch(Turn::Last, main)?;
        sums(|split| split.cut_rows)
    }

    /// Launches the parts for a matrix of sums in place of `C`, then does with their sums what may be done once only.
    ///
    /// # Safety
    /// As for [`launch_parts`](Self::launch_parts), of no more columns than `wide_c` has.
    unsafe fn launch_widened(
        &self,
        on: &dyn Queue,
        operands: DenseOperands,
        wide_c: Wide,
        state: &mut RunState,
    ) -> Result<(), DeviceError> {
        let wide = operands.into_wide(wide_c, self.shape.precision);
        // SAFETY: the matrix has the rows of `C` and these columns, and `state` keeps other runs off it.
        unsafe { self.launch_parts(on, wide, state)? };
        let entry = state.entries(self, self.operation(&wide))?.combine;
        let (partial, ld_partial) = (wide_c.c, wide_c.columns);
        let params = CombineParams {
            dense: Dense { partial, ld_partial, accumulate: 0, ..operands.dense },
            rows: wide_c.rows,
            row_count: wide_c.row_count,
            wide_count: 0,
        };
        let blocks = Combine::<f32>::blocks(params.row_count, params.wide_count);
        // SAFETY: every row of the matrix was written by the launches before; each row of `C` is listed once.
        unsafe { Launcher::main(on).start(entry, u64::from(blocks), operands.dense.n(), &params) }
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use windrow_formats::Csr;

    use super::*;
    use crate::activation::Epilogue;
    use crate::device::{Device, DeviceBuffer};
    use crate::options::{Determinism, Precision};
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
            let partial =
                || parts.states.own().held.partial.as_ref().expect("rows are cut").to_vec().unwrap();
            let lost = DeviceBuffer::<f32>::alloc_zeroed(&device, 16).unwrap().address();
            let operands = Operands {
                b: b.buffer().address(),
                ldb: crate::num::narrow(b.ld()),
                column_major: false,
                second: None,
                reads_vectors: true,
                c: lost,
                ldc: 1,
                n: 1,
                finish: Finish::of::<f32>(&Epilogue::default()),
            };
            let stream = device.stream();
            let on = On::of(&stream, &device, true).unwrap();
            // SAFETY: `c` was freed, which the emulator reports; nothing is undefined there.
            unsafe { parts.run(&on, operands, Budget::UNLIMITED) }.unwrap_err();
            assert!(partial().iter().any(|&byte| byte != 0), "{algorithm}: sums are left");
            for _ in 0..2 {
                assert_eq!(plan.run(&ones).unwrap(), [2400.0; 16], "{algorithm}");
                assert!(partial().iter().all(|&byte| byte == 0), "{algorithm}: all were taken");
            }
        }
    }
}

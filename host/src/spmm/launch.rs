//! The launches of a run, in their order.

use std::sync::PoisonError;

use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;

use super::gpu::{GpuPlan, Queue};
use super::operands::Operands;
use super::part::{DenseOperands, Operation, Turn};
use super::sums::{SplitPart, SplitRows, WideC};
use crate::device::Queue as DeviceQueue;
use crate::error::DeviceError;
use crate::num::narrow;
use crate::plan::{Lane, Launcher};

impl GpuPlan {
    /// Queues `C ← act(α·A·B + β·C + bias)`, in blocks of columns.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `b` is k×n, `c` m×n, of the
    /// plan's element type and of the type that `finish` tells, with all rows readable up to `ldb`; nothing
    /// else touches `c` meanwhile, nothing writes `b`. A second factor is like `b`; a bias has n numbers.
    pub(crate) unsafe fn run(&self, on: &dyn DeviceQueue, operands: Operands) -> Result<(), DeviceError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.workspace();
        if let (true, true, Some(split)) = (queue.unfinished, workspace.accumulate, &self.split) {
            split.clear()?; // what is accumulated must begin at zero
        }
        queue.unfinished = true;
        let finish = &operands.finish;
        let staged = finish.needs_stage() || self.adds && !finish.is_additive();
        let wide_c = if staged { Some(self.stage()?) } else { None };
        let block = wide_c.map_or_else(|| self.most_columns(), |wide_c| wide_c.columns);
        let mut first = 0;
        while first < operands.n {
            let n = block.min(operands.n - first);
            let block = operands.columns(first, n, self.shape.precision, workspace);
            // SAFETY: the caller's promise about the operands, for these columns of them; the lock keeps other runs
            // off the workspace.
            unsafe {
                match wide_c {
                    Some(wide_c) => self.launch_widened(on, block, wide_c, &mut queue)?,
                    None => self.launch_parts(on, block, &mut queue)?,
                }
            }
            first += n;
        }
        queue.unfinished = false;
        Ok(())
    }

    /// What a launch asks of the entries.
    fn operation(&self, operands: &DenseOperands) -> Operation {
        let (dense, bytes) = (&operands.dense, u64::from(self.shape.precision.bytes()));
        let vectors =
            dense.b.address().is_multiple_of(16) && (u64::from(dense.ldb) * bytes).is_multiple_of(16);
        Operation { n: dense.n(), vectors, column_major: operands.column_major }
    }

    /// Launches the parts, then the sums of what was cut.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that the operands name, and no other run is being queued.
    unsafe fn launch_parts(
        &self,
        on: &dyn DeviceQueue,
        operands: DenseOperands,
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let dense = operands.dense;
        let chosen = queue.entries(self, self.operation(&operands))?;
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
        on: &dyn DeviceQueue,
        operands: DenseOperands,
        wide_c: &WideC,
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let wide = operands.into_wide(wide_c, self.shape.precision);
        // SAFETY: the matrix has the rows of `C` and these columns, and `queue` keeps other runs off it.
        unsafe { self.launch_parts(on, wide, queue)? };
        let entry = queue.entries(self, self.operation(&wide))?.combine;
        let (partial, ld_partial) = (wide_c.c.pointer().cast(), wide_c.columns);
        let params = CombineParams {
            dense: Dense { partial, ld_partial, accumulate: 0, ..operands.dense },
            rows: wide_c.rows.pointer(),
            row_count: narrow(wide_c.rows.len()),
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

    use super::super::operands::Finish;
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
            unsafe { parts.run(&**device.machine().unwrap().own(), operands) }.unwrap_err();
            assert!(partial().iter().any(|&byte| byte != 0), "{algorithm}: sums are left");
            for _ in 0..2 {
                assert_eq!(plan.run(&ones).unwrap(), [2400.0; 16], "{algorithm}");
                assert!(partial().iter().all(|&byte| byte == 0), "{algorithm}: all were taken");
            }
        }
    }
}

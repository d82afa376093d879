//! Orders of the rows: finding them, with a bar for each stage, and giving them to a plan.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use windrow::reorder::{Options, Reordering, Watch, reorder};
use windrow::{Csr, Device, DeviceKind, Permutation, SpmmBuilder, Value, io};

use crate::args::plan::{PlanArgs, RowOrder};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::units;

/// Moves a bar, and passes a wish to end on.
struct Follower<'a> {
    bar: ProgressBar,
    cancelled: &'a AtomicBool,
}

impl Watch for Follower<'_> {
    fn begin(&self, stage: &'static str, total: u64) {
        self.bar.set_position(0);
        self.bar.set_length(total);
        self.bar.set_prefix(stage);
    }

    fn step(&self, steps: u64) {
        self.bar.inc(steps);
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Finds an order of the rows of `a`, unless `cancelled` is raised.
pub(crate) fn find<V: Value>(
    a: &Csr<V>,
    options: &Options,
    cancelled: &AtomicBool,
    console: Console,
) -> Result<Reordering> {
    let follower = Follower { bar: console.stages_bar(), cancelled };
    let found = reorder(a, options, &follower);
    follower.bar.finish_and_clear();
    Ok(found?)
}

/// The order of the rows that a plan is made with.
#[derive(Debug)]
pub(crate) enum PlanOrder {
    /// The matrix's own order: nothing is found or read.
    Own,
    /// What the plan finds, as part of the planning.
    Found(Options),
    /// One that is there.
    Given(Permutation),
}

impl PlanOrder {
    /// The order that `args` ask for; a file is read and compared with `a`.
    pub(crate) fn of(args: &PlanArgs, a: &Csr<f32>, device: &Device, console: Console) -> Result<Self> {
        let order = match &args.reorder {
            None => Self::Own,
            Some(RowOrder::Method(method)) => Self::Found(Options { method: *method, ..Options::default() }),
            Some(RowOrder::File(path)) => {
                let order = io::read_permutation(path)?;
                fits(&order, a.rows(), path.display())?;
                Self::Given(order)
            }
        };
        if !matches!(order, Self::Own) && device.kind() == DeviceKind::Cpu {
            console.note("note: on the CPU, rows are worked on in their own order");
            return Ok(Self::Own);
        }
        Ok(order)
    }

    /// The same order, found now if it is yet to be: for several plans.
    pub(crate) fn settle(self, a: &Csr<f32>, console: Console) -> Result<Self> {
        let Self::Found(options) = self else { return Ok(self) };
        let never = AtomicBool::new(false);
        Ok(Self::Given(find(a, &options, &never, console)?.permutation))
    }

    /// Gives the order, if there is one, to `builder`.
    pub(crate) fn apply<'a>(&'a self, builder: SpmmBuilder<'a, f32>) -> SpmmBuilder<'a, f32> {
        match self {
            Self::Own => builder,
            Self::Found(options) => builder.reorder(options.clone()),
            Self::Given(order) => builder.order(order),
        }
    }
}

/// An order that was made for another matrix may have another length.
///
/// # Errors
/// [`Exit::File`] with both lengths.
pub(crate) fn fits(order: &Permutation, rows: usize, name: impl Display) -> Result<()> {
    if order.len() == rows {
        return Ok(());
    }
    let message = format!(
        "{name}: an order of {} rows, but the matrix has {}; make one with windrow reorder",
        units::count(order.len()),
        units::count(rows)
    );
    Err(Failure::new(Exit::File, message))
}

#[cfg(test)]
mod tests {

    use windrow::EmulatorSchedule;
    use windrow::reorder::Method;

    use super::*;

    /// Rows of two kinds that alternate.
    fn alternating(rows: u32) -> Csr<f32> {
        let columns = (0..rows).flat_map(|r| if r % 2 == 0 { [0, 1] } else { [2, 3] }).collect();
        let offsets = (0..=u64::from(rows)).map(|r| 2 * r).collect();
        Csr::try_from_parts(rows as usize, 4, offsets, columns, vec![1.0; 2 * rows as usize]).unwrap()
    }

    fn args(reorder: Option<RowOrder>) -> PlanArgs {
        let (determinism, tile_values) = (windrow::Determinism::default(), windrow::TileValues::default());
        let (preprocess, schedule) = (windrow::Preprocessing::default(), windrow::Schedule::default());
        PlanArgs {
            reorder,
            determinism,
            tile_values,
            preprocess,
            partition: None,
            schedule,
            parallelism: None,
            block_threads: None,
            tile_columns: None,
        }
    }

    const QUIET: Console = Console { json: false, quiet: true };

    #[test]
    fn plans_work_in_the_order_that_was_asked_for() {
        let a = alternating(32);
        let gpu = Device::emulator(EmulatorSchedule::STANDARD[0]);
        let vectors = |reorder: Option<RowOrder>, settle: bool| {
            let order = PlanOrder::of(&args(reorder), &a, &gpu, QUIET).unwrap();
            let order = if settle { order.settle(&a, QUIET).unwrap() } else { order };
            let builder = windrow::Spmm::builder(&a).precision(windrow::Precision::F16);
            let builder = builder.algorithm(windrow::Algorithm::TileStream);
            let report = order.apply(builder).build(&gpu).unwrap().report().clone();
            (report.column_vectors, report.order, report.stages.iter().any(|stage| stage.name == "reorder"))
        };
        let similarity = || Some(RowOrder::Method(Method::Similarity));
        assert_eq!(vectors(None, false), (16, "its own".to_owned(), false));
        assert_eq!(vectors(similarity(), false), (8, "similarity".to_owned(), true));
        assert_eq!(vectors(similarity(), true), (8, "given".to_owned(), true));
    }

    #[test]
    fn the_cpu_keeps_the_order() {
        let asked = args(Some(RowOrder::Method(Method::Similarity)));
        let order = PlanOrder::of(&asked, &alternating(8), &Device::cpu(), QUIET).unwrap();
        assert!(matches!(order, PlanOrder::Own));
    }

    #[test]
    fn a_wish_to_end_is_passed_on() {
        let a = alternating(100);
        let failure = find(&a, &Options::default(), &AtomicBool::new(true), QUIET).unwrap_err();
        assert_eq!(failure.exit, Exit::Interrupted);
    }

    #[test]
    fn bars_begin_again_with_each_stage() {
        let none = AtomicBool::new(false);
        let follower = Follower { bar: QUIET.stages_bar(), cancelled: &none };
        for (stage, total) in [("degree", 3), ("locality", 5)] {
            follower.begin(stage, total);
            follower.step(2);
            assert_eq!((follower.bar.length(), follower.bar.position()), (Some(total), 2));
            assert_eq!(follower.bar.prefix(), stage);
        }
    }
}

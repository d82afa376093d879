//! Orders of the rows: finding them, with a bar for each stage, and giving them to a plan.

use std::fmt::Display;

use indicatif::ProgressBar;
use windrow::reorder::{Options, Reordering, Watch, reorder};
use windrow::{Csr, Device, DeviceKind, Permutation, Profile, Spmm, SpmmBuilder, SpmmOptions, Value, io};

use crate::args::plan::{PlanArgs, RowOrder};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::units;

/// Shows how far the stages of an order are.
struct Follower {
    bar: ProgressBar,
}

impl Watch for Follower {
    fn begin(&self, stage: &'static str, total: u64) {
        self.bar.set_position(0);
        self.bar.set_length(total);
        self.bar.set_prefix(stage);
    }

    fn step(&self, steps: u64) {
        self.bar.inc(steps);
    }
}

/// Finds an order of the rows of `a`.
pub(crate) fn find<V: Value>(a: &Csr<V>, options: &Options, console: Console) -> Result<Reordering> {
    let follower = Follower { bar: console.stages_bar() };
    let found = reorder(a, options, &follower);
    follower.bar.finish_and_clear();
    Ok(found?)
}

/// What a plan is told: options, an order of the rows that is there, and what was measured on the device.
#[derive(Debug)]
pub(crate) struct PlanRequest {
    pub(crate) options: SpmmOptions,
    order: Option<Permutation>,
    profile: Profile,
}

impl PlanRequest {
    /// The `options` that come of `args`, and what else these ask for; a file is read and compared with `a`.
    pub(crate) fn new<V: Value>(
        options: SpmmOptions,
        args: &PlanArgs,
        (a, device): (&Csr<V>, &Device),
        profile: Profile,
        console: Console,
    ) -> Result<Self> {
        let mut options = args.with_measured_threshold(options, &profile);
        let mut order = None;
        if let Some(RowOrder::File(path)) = &args.reorder {
            let read = io::read_permutation(path)?;
            fits(&read, a.rows(), io::printable(path))?;
            order = Some(read);
        }
        let is_ordered = order.is_some() || options.reorder.is_some();
        if is_ordered && device.kind() == DeviceKind::Cpu {
            console.note("note: on the CPU, rows are worked on in their own order");
            (options.reorder, order) = (None, None);
        }
        Ok(Self { options, order, profile })
    }

    /// With the order found now if it is yet to be: for several plans.
    pub(crate) fn settle<V: Value>(mut self, a: &Csr<V>, console: Console) -> Result<Self> {
        if let Some(options) = self.options.reorder.take() {
            self.order = Some(find(a, &options, console)?.permutation);
        }
        Ok(self)
    }

    /// Whether rows are worked on in an order that is not their own.
    pub(crate) fn is_ordered(&self) -> bool {
        self.order.is_some() || self.options.reorder.is_some()
    }

    /// The builder of the plan.
    pub(crate) fn builder<'a, V: Value>(&'a self, a: &'a Csr<V>) -> SpmmBuilder<'a, Csr<V>> {
        let builder = Spmm::builder(a).options(self.options).profile(&self.profile);
        match &self.order {
            Some(order) => builder.order(order),
            None => builder,
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

    fn request(a: &Csr<f32>, device: &Device, reorder: Option<RowOrder>) -> PlanRequest {
        let args = PlanArgs { reorder, ..PlanArgs::default() };
        PlanRequest::new(args.options().unwrap(), &args, (a, device), Profile::built_in(device), QUIET)
            .unwrap()
    }

    const QUIET: Console = Console { json: false, quiet: true };

    #[test]
    fn plans_work_in_the_order_that_was_asked_for() {
        let a = alternating(32);
        let gpu = Device::emulator(EmulatorSchedule::STANDARD[0]);
        let vectors = |reorder: Option<RowOrder>, settle: bool| {
            let mut request = request(&a, &gpu, reorder);
            request.options.precision = windrow::Precision::F16;
            request.options.algorithm = windrow::Algorithm::TileStream;
            let request = if settle { request.settle(&a, QUIET).unwrap() } else { request };
            let report = request.builder(&a).build(&gpu).unwrap().report().clone();
            (report.column_vectors, report.order, report.stages.iter().any(|stage| stage.name == "reorder"))
        };
        let similarity = || Some(RowOrder::Method(Method::Similarity));
        assert_eq!(vectors(None, false), (16, "its own".to_owned(), false));
        assert_eq!(vectors(similarity(), false), (8, "similarity".to_owned(), true));
        assert_eq!(vectors(similarity(), true), (8, "given".to_owned(), true));
    }

    #[test]
    fn the_cpu_keeps_the_order() {
        let asked = Some(RowOrder::Method(Method::Similarity));
        assert!(!request(&alternating(8), &Device::cpu(), asked).is_ordered());
    }

    #[test]
    fn bars_begin_again_with_each_stage() {
        let follower = Follower { bar: QUIET.stages_bar() };
        for (stage, total) in [("degree", 3), ("locality", 5)] {
            follower.begin(stage, total);
            follower.step(2);
            assert_eq!((follower.bar.length(), follower.bar.position()), (Some(total), 2));
            assert_eq!(follower.bar.prefix(), stage);
        }
    }
}

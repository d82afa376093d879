//! The products that a search times and checks: plans of one matrix and width, made when they are asked for.

use std::time::{Duration, Instant};

use windrow::internal::{Reference, set_group_launch, verify_with};
use windrow::reorder::Options;
use windrow::{Csr, Device, Permutation, Precision, SpmmOptions, SpmmPlan, Value, with_element};

use super::Telling;
use super::search::Subject;
use super::space::{PathFamily, neighbours};
use crate::measure::error::BenchError;
use crate::measure::operands::Filling;
use crate::measure::path::SweepPath;
use crate::measure::product::{Operands, Stored};

/// Plans that are kept, those used last.
const PLANS: usize = 6;
/// Calls of a batch at most, and the time that a batch need not exceed, in microseconds.
const BATCH_CALLS: f64 = 10.0;
const BATCH_US: f64 = 2_000.0;
/// Calls before the first timed one, after other products have run.
const WARM_UP_CALLS: u32 = 2;

/// Products of one matrix, width and precision.
pub(crate) struct Products<'a, V: Value> {
    device: &'a Device,
    csr: &'a Csr<V>,
    width: usize,
    order: Option<(Options, &'a Permutation)>,
    precision: Precision,
    operands: Operands,
    reference: Reference<'a, V>,
    /// The plan used last is the last.
    plans: Vec<(SweepPath, SpmmPlan)>,
    /// Calls of a batch, once they are known.
    calls: Vec<(SweepPath, u32)>,
    /// The path that ran last: another one is warmed up before it is timed.
    last: Option<SweepPath>,
    since: Instant,
    tell: Option<Telling<'a>>,
}

impl<'a, V: Value> Products<'a, V> {
    pub(crate) fn new(
        (device, csr): (&'a Device, &'a Csr<V>),
        width: usize,
        precision: Precision,
        seeds: (u64, u64),
    ) -> Result<Self, BenchError> {
        let since = Instant::now();
        Ok(Self {
            device,
            csr,
            width,
            order: None,
            precision,
            operands: Operands::new(device, csr, width, seeds),
            reference: Reference::new(csr, precision, device)?,
            plans: Vec::new(),
            calls: Vec::new(),
            last: None,
            since,
            tell: None,
        })
    }

    /// With an order of rows for the paths that ask for it; plans of other paths find theirs.
    pub(crate) fn ordered(self, order: Option<(Options, &'a Permutation)>) -> Self {
        Self { order, ..self }
    }

    /// With somebody who is told what is tried.
    pub(super) fn telling(self, tell: Option<Telling<'a>>) -> Self {
        Self { tell, ..self }
    }

    pub(crate) fn operands(&mut self) -> &mut Operands {
        &mut self.operands
    }

    /// The plan of a path. Launches of a point share one.
    pub(crate) fn plan(&mut self, path: SweepPath) -> Result<&SpmmPlan, BenchError> {
        let SpmmOptions { parallelism, group_launch, reorder, .. } = path.options;
        let key = match parallelism {
            Some(_) => SpmmOptions { group_launch: None, ..path.options }.into(),
            None => path,
        };
        let mut entry = match self.plans.iter().position(|(of, _)| *of == key) {
            Some(at) => self.plans.remove(at),
            None => {
                let order = self.order.filter(|(found_by, _)| reorder == Some(*found_by));
                let order = order.map(|(_, order)| order);
                let plan = key.builder(self.csr, self.width, order).build(self.device)?;
                if self.plans.len() == PLANS {
                    self.plans.remove(0);
                }
                (key, plan)
            }
        };
        if parallelism.is_some() {
            set_group_launch(&mut entry.1, group_launch.unwrap_or_default())?;
        }
        self.plans.push(entry);
        Ok(&self.plans[self.plans.len() - 1].1)
    }

    fn sample_as<T: Stored>(&mut self, path: SweepPath, batches: u32) -> Result<Vec<f64>, BenchError> {
        self.plan(path)?;
        let device = self.device;
        let (b, c) = self.operands.pair::<T>()?;
        let plan = &self.plans[self.plans.len() - 1].1;
        let mut batch = |calls: u32| -> Result<_, BenchError> {
            let start = device.record()?;
            for _ in 0..calls {
                plan.run_into(T::Sum::ONE, b, T::Sum::ZERO, c)?;
            }
            Ok((start, device.record()?))
        };
        if self.last.replace(path) != Some(path) {
            batch(WARM_UP_CALLS)?;
        }
        let calls = match self.calls.iter().find(|(of, _)| *of == path) {
            Some(&(_, calls)) => calls,
            None => {
                let (start, end) = batch(1)?;
                let calls = (BATCH_US / start.elapsed_us(&end)?).clamp(1.0, BATCH_CALLS);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 1 and 10"
                )]
                let calls = calls as u32;
                self.calls.push((path, calls));
                calls
            }
        };
        let marks = (0..batches).map(|_| batch(calls)).collect::<Result<Vec<_>, _>>()?;
        let us = marks.iter().map(|(start, end)| Ok(start.elapsed_us(end)? / f64::from(calls)));
        us.collect()
    }

    fn verify_as<T: Stored>(&mut self, path: SweepPath) -> Result<f64, BenchError> {
        self.plan(path)?;
        let (b, c) = self.operands.get::<T>(Filling::Nan)?;
        let plan = &self.plans[self.plans.len() - 1].1;
        plan.run_into(T::Sum::ONE, b, T::Sum::ZERO, c)?;
        let verification = match plan.precision() == self.precision {
            true => verify_with(plan, &self.reference, b, c)?,
            false => plan.verify(self.csr, b, c)?, // served in another precision, which rounds values otherwise
        };
        match verification.passed() {
            true => Ok(verification.worst_ratio),
            false => Err(BenchError::Wrong(verification)),
        }
    }
}

impl<V: Value> Subject for Products<'_, V> {
    type Candidate = SweepPath;
    type Family = PathFamily;

    fn family(&self, path: SweepPath) -> PathFamily {
        PathFamily::of(&path)
    }

    fn neighbours(&self, path: SweepPath) -> Vec<SweepPath> {
        neighbours(path, self.width)
    }

    fn sample(&mut self, path: SweepPath, batches: u32) -> Result<Vec<f64>, BenchError> {
        with_element!(self.precision, T => self.sample_as::<T>(path, batches))
    }

    fn verify(&mut self, path: SweepPath) -> Result<f64, BenchError> {
        with_element!(self.precision, T => self.verify_as::<T>(path))
    }

    fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    fn tell(&self, path: SweepPath) {
        if let Some(tell) = self.tell {
            tell(&path, self.elapsed());
        }
    }
}

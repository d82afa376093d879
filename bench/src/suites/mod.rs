//! The suites: what is measured together, case by case, and one line of JSON for each case.
//!
//! A suite is a [`Suite`]: its cases, what is known of a case before it is measured, and how it is measured. [`run`]
//! does the rest, the same for all: records, errors, counts. What the program asks of a suite besides (options,
//! summaries) is a [`Command`](crate::program::Command).

pub(crate) mod ablation;
pub(crate) mod attention;
#[cfg(feature = "sprs")]
mod beside_cpu;
mod compare;
pub(crate) mod facts;
mod kept;
pub(crate) mod markdown;
pub(crate) mod matrices;
pub(crate) mod nm;
pub(crate) mod plans;
pub(crate) mod preprocess;
pub(crate) mod record;
mod schedules;
pub(crate) mod sddmm;
pub(crate) mod spmm;
pub(crate) mod tensor;
pub(crate) mod tuned;

#[cfg(test)]
mod committed;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::io;
use std::ops::AddAssign;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windrow::{Device, Verification};

use crate::measure::l2::L2Facts;
use crate::measure::{BenchError, L2};
use facts::{CheckFacts, TimeFacts};
use record::Record;

/// Products that are measured together.
pub(crate) trait Suite {
    /// What the program and the records call it.
    const NAME: &'static str;
    /// One thing to measure.
    type Case;
    /// What is known of a case beside its time: fields of its record.
    type Facts: Clone + Serialize + DeserializeOwned;

    /// Everything to measure, in order: cases that share operands follow each other.
    fn cases(&self) -> Vec<Self::Case>;

    /// The name of a case, the same in every run with the same options.
    fn name(&self, case: &Self::Case) -> String;

    /// What the L2 cache holds before each timed product of a case.
    fn l2(&self, _case: &Self::Case) -> L2 {
        L2::Warm
    }

    /// What is known of a case before it is measured.
    fn facts(&self, case: &Self::Case) -> Self::Facts;

    /// Measures a case and completes its facts; after an error they tell what was known until then.
    ///
    /// # Errors
    /// Whatever goes wrong; [`BenchError::Wrong`] of a result that is not within its bound.
    fn measure(&mut self, case: &Self::Case, facts: &mut Self::Facts) -> Result<Measured, BenchError>;

    /// Times that [`cases`](Self::cases) leaves out for want of a GPU.
    fn skipped(&self) -> u64 {
        0
    }
}

/// What measuring a case gave beside its facts.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The comparison of the result with the f64 reference.
    pub(crate) check: Option<CheckFacts>,
    /// The time of a right result.
    pub(crate) time: Option<TimeFacts>,
    /// Failures of products that the facts tell of, and times left out for want of a GPU.
    pub(crate) aside: Tally,
}

impl Measured {
    /// A right result and its time.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    pub(crate) fn right(found: Verification, time: impl Into<TimeFacts>) -> Result<Self, BenchError> {
        match found.passed() {
            true => Ok(Self {
                check: Some(CheckFacts::of(&found)),
                time: Some(time.into()),
                aside: Tally::default(),
            }),
            false => Err(BenchError::Wrong(found)),
        }
    }
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Records written, those of failed cases included.
    pub(crate) cases: u64,
    /// Results that are wrong, and runs or arrays that differ where they must not.
    pub(crate) wrong: u64,
    /// Cases that did not run.
    pub(crate) errors: u64,
    /// Files that could not be read.
    pub(crate) unreadable: u64,
    /// Times that were not taken for want of a GPU.
    pub(crate) skipped: u64,
}

impl Tally {
    /// Cases without a time that they should have.
    #[cfg(test)]
    pub(crate) fn failed(&self) -> u64 {
        self.wrong + self.errors + self.unreadable
    }

    /// Counts what ended a case.
    pub(crate) fn count(&mut self, error: &BenchError) {
        match error {
            BenchError::Wrong(_) | BenchError::Gradient { .. } => self.wrong += 1,
            BenchError::Unreadable(_) => self.unreadable += 1,
            _ => self.errors += 1,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.cases += other.cases;
        self.wrong += other.wrong;
        self.errors += other.errors;
        self.unreadable += other.unreadable;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, wrong, errors, unreadable, skipped } = self;
        write!(f, "{cases} cases: {wrong} wrong, {errors} failed, {unreadable} unreadable")?;
        match skipped {
            0 => Ok(()),
            _ => write!(f, ", {skipped} times skipped for want of a GPU"),
        }
    }
}

/// Measures every case that is not `done`, and hands each record to `emit` as soon as it is there.
///
/// # Errors
/// The first error of `emit`.
pub(crate) fn run<S: Suite>(
    suite: &mut S,
    device: &Device,
    done: &dyn Fn(&str) -> bool,
    emit: &mut dyn FnMut(&Record<S::Facts>) -> io::Result<()>,
) -> io::Result<Tally> {
    let mut tally = Tally { skipped: suite.skipped(), ..Tally::default() };
    let named = suite.cases().into_iter().map(|case| (suite.name(&case), case)).collect::<Vec<_>>();
    for (name, case) in named.into_iter().filter(|(name, _)| !done(name)) {
        let mut facts = suite.facts(&case);
        let result = suite.measure(&case, &mut facts);
        let mut record = Record::new(S::NAME, name, device, facts);
        record.l2 = L2Facts::of(device, suite.l2(&case));
        match result {
            Ok(Measured { check, time, aside }) => {
                (record.check, record.time) = (check, time);
                tally += aside;
            }
            Err(error) => {
                if let BenchError::Wrong(found) = &error {
                    record.check = Some(CheckFacts::of(found));
                }
                tally.count(&error);
                record.error = Some(error.to_string());
            }
        }
        tally.cases += 1;
        emit(&record)?;
    }
    Ok(tally)
}

//! What becomes of plans, memory and later results when a call of a device fails: every call of every family in turn.
//!
//! What was found is the page `docs/faults.md`, which `WINDROW_BLESS=1 cargo test --test products device_faults`
//! writes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

use windrow::{Device, EmulatorSchedule, Fault, Faults};

use crate::common::page::holds;
use crate::stream_subjects::STREAMS;
use crate::subjects::{FAMILIES, Family, Outcome};

/// What came of the faults of one family.
#[derive(Debug, Default)]
struct Row {
    family: &'static str,
    /// Each call that could fail, by its name.
    calls: BTreeMap<&'static str, usize>,
    points: usize,
    refused: usize,
    /// The call's failure was no failure of the whole, and the result was right.
    unharmed: usize,
    /// Another result and no error.
    silent: usize,
    /// An error that does not tell of the fault.
    unclear: usize,
    /// More allocations or fewer than without the fault.
    left: usize,
    /// Then, without a fault, no result, or another one: a sum or a count in a workspace was left as it was, say.
    wrong_afterwards: usize,
    /// The first of what must not be.
    broken: Option<String>,
}

const PAGE: &str = "docs/faults.md";

impl Row {
    /// Counts an outcome: right are an error that tells of the fault, and the right result.
    fn count(&mut self, what: &str, outcome: Outcome<Vec<u32>>, want: &[u32]) {
        self.points += 1;
        match outcome {
            Ok(found) if found == want => self.unharmed += 1,
            Ok(_) => {
                self.silent += 1;
                self.break_by(format!("{what}: another result, and no error"));
            }
            Err(error) => {
                let text = error.to_string();
                if text.contains("a fault that was asked for") || text.contains("do not fit") {
                    self.refused += 1;
                } else {
                    self.unclear += 1;
                    self.break_by(format!("{what}: {text}"));
                }
            }
        }
    }

    fn count_left(&mut self, what: &str, found: (usize, u64), want: (usize, u64)) {
        if found != want {
            self.left += 1;
            self.break_by(format!("{what}: {found:?} arrays and bytes on the device, {want:?} without"));
        }
    }

    fn count_next(&mut self, what: &str, outcome: Outcome<Vec<u32>>, want: &[u32]) {
        let wrong = match outcome {
            Ok(found) if found == want => return,
            Ok(_) => "another result".to_owned(),
            Err(error) => error.to_string(),
        };
        self.wrong_afterwards += 1;
        self.break_by(format!("{what}, then: {wrong}"));
    }

    fn break_by(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn cells(&self) -> String {
        let calls: Vec<_> = self.calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let Self { family, points, refused, unharmed, silent, unclear, left, wrong_afterwards, .. } = self;
        format!(
            "| {family} | {} | {points} | {refused} | {unharmed} | {} | {left} | {wrong_afterwards} |",
            calls.join(", "),
            silent + unclear
        )
    }
}

fn rows(of: fn(&Family) -> Row) -> Vec<Row> {
    FAMILIES.iter().chain(STREAMS).map(of).collect()
}

/// Calls that have a fault, of so many: all are refused, and every third is late, another third lost, whose results
/// differ only where the driver has done what it was asked for.
fn of_calls(calls: u64, fault: Fault) -> impl Iterator<Item = u64> {
    let (first, step) = match fault {
        Fault::Refused => (0, 1),
        Fault::Late => (0, 3),
        Fault::Sticky => (1, 3),
    };
    (first..calls).step_by(step)
}

/// A plan is made and run, all of it anew for each fault.
fn from_the_plan_on() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        rows(|family| {
            let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
            let whole = || family.make(&device).and_then(|mut subject| subject.run());
            let want = whole().unwrap_or_else(|error| panic!("{}: {error}", family.name));
            let before = faults.calls();
            assert!(whole().unwrap() == want, "{}: not the same bits", family.name);
            let calls = faults.calls() - before;
            let mut row = Row { family: family.name, ..Row::default() };
            for fault in [Fault::Refused, Fault::Late, Fault::Sticky] {
                for at in of_calls(calls, fault) {
                    faults.plan(at, fault);
                    let outcome = whole();
                    let what = note_failed(&mut row, &faults, at, fault);
                    row.count(&what, outcome, &want);
                    row.count_left(&what, faults.allocated(), (0, 0));
                }
                let what = format!("{}: after all {fault:?}", family.name);
                row.count_next(&what, whole(), &want);
            }
            row
        })
    })
}

/// A plan stays, and each of its runs has a fault.
fn runs_of_a_plan() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        rows(|family| {
            let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
            let mut subject = family.make(&device).unwrap();
            let want = subject.run().unwrap();
            let held = faults.allocated();
            let before = faults.calls();
            assert!(subject.run().unwrap() == want, "{}: not the same bits", family.name);
            let calls = faults.calls() - before;
            let mut row = Row { family: family.name, ..Row::default() };
            for fault in [Fault::Refused, Fault::Late] {
                for at in of_calls(calls, fault) {
                    faults.plan(at, fault);
                    let outcome = subject.run();
                    let what = note_failed(&mut row, &faults, at, fault);
                    row.count(&what, outcome, &want);
                    row.count_next(&what, subject.run(), &want);
                    row.count_left(&what, faults.allocated(), held);
                }
            }
            drop(subject);
            row.count_left(&format!("{}: dropped", family.name), faults.allocated(), (0, 0));
            row
        })
    })
}

/// No call fails from now on; what failed, in words.
fn note_failed(row: &mut Row, faults: &Faults, at: u64, fault: Fault) -> String {
    let failed = faults.clear();
    let what = format!("{}: call {at} ({failed:?}), {fault:?}", row.family);
    assert!(!failed.is_empty(), "{what}: not reached");
    if fault == Fault::Refused {
        *row.calls.entry(failed[0]).or_default() += 1;
    }
    what
}

#[track_caller]
fn check(rows: &[Row]) {
    for row in rows {
        eprintln!("{}", row.cells());
        assert_eq!(row.broken, None, "{row:?}");
        assert!(row.points > 8 && row.refused >= row.points / 2, "{row:?}");
    }
}

/// Promise, faults: whichever call to a device fails, from the plan to the result, in any family: there is an error,
/// nothing is left on the device, and what it does next is right.
#[test]
fn a_fault_at_any_call_is_an_error_and_leaves_nothing() {
    check(from_the_plan_on());
}

/// Promise, faults: after any call of a run has failed, the plan's next run is right, and the plan holds as much memory
/// as before.
#[test]
fn a_plan_outlives_the_faults_of_its_runs() {
    check(runs_of_a_plan());
}

fn page() -> String {
    let mut page = "# Faults of a device\n\n\
        A device whose calls fail when they are told to stands in front of the emulator \
        (`host/src/device/faults.rs`). In each family, each call that can fail is *refused* once: it does nothing and \
        says so, an allocation that there is no memory. Every third is *late*, it does what it was asked for and \
        reports an error nevertheless, and another third *lost*: nor does any later call do anything. Right is an error that tells of the \
        fault, or the right result where the call was not needed for it; then all memory is there again, and the next \
        result has the same bits, which it would not have if a sum, a count or a step of Adam were left in place.\n\n\
        `WINDROW_BLESS=1 cargo test --test products device_faults` writes this page; without it the test fails if what \
        it finds is another.\n"
        .to_owned();
    for (title, text, rows) in [
        (
            "From the plan to the result",
            "A plan is made and run, all of it anew for each fault: refused, late, lost.",
            from_the_plan_on(),
        ),
        (
            "Runs of a plan that stays",
            "The same plan is run again after each fault: refused, late.",
            runs_of_a_plan(),
        ),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n{text}\n\n\
            | family | calls that can fail | faults | an error that tells | right all the same | wrong or unclear | \
            memory left or lost | wrong afterwards |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        );
        let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
        for row in rows {
            let _ = writeln!(page, "{}", row.cells());
        }
        let _ = writeln!(
            page,
            "| all {} | {} | {} | {} | {} | {} | {} | {} |",
            rows.len(),
            sum(|row| row.calls.values().sum()),
            sum(|row| row.points),
            sum(|row| row.refused),
            sum(|row| row.unharmed),
            sum(|row| row.silent + row.unclear),
            sum(|row| row.left),
            sum(|row| row.wrong_afterwards)
        );
    }
    page
}

#[test]
fn the_page_says_what_was_found() {
    holds(PAGE, &page());
}

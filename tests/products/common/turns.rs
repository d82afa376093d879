//! Which cases run where: each on the CPU, on the GPU and under one schedule of the emulator, by turns.
//!
//! A case that ran under one schedule shows most of what it would show under the others: the emulator finds races
//! whatever the order of the threads, and compares every element. What may depend on the order, a kernel shows with any
//! case, so that every kernel runs under every schedule. Of two layouts of its operands a case has one, by turns,
//! except on a GPU. `WINDROW_ALL_CASES=1` runs every case in both layouts under every schedule.

use std::collections::BTreeMap;

use windrow::{Device, DeviceKind, EmulatorSchedule};
use windrow_testkit::{Comparison, Tally};

use super::{devices, is_set, report_missing_gpu};

/// Set where every case is to run in both layouts under every schedule of the emulator, which takes up to eight times
/// as long.
const ALL_CASES: &str = "WINDROW_ALL_CASES";

/// Whether nothing is left out.
pub(crate) fn all_cases() -> bool {
    is_set(ALL_CASES)
}

/// The place of an emulator's schedule among [`EmulatorSchedule::STANDARD`]; `None` for other devices.
fn schedule_of(device: &Device) -> Option<usize> {
    if device.kind() != DeviceKind::Emulator {
        return None;
    }
    let is_that = |schedule: &EmulatorSchedule| device.name() == Device::emulator(*schedule).name();
    let found = EmulatorSchedule::STANDARD.iter().position(is_that);
    Some(found.unwrap_or_else(|| panic!("{device} has no standard schedule")))
}

/// Whether a device runs what comes at `turn`: an emulator under one of its schedules every fourth turn or so, every
/// other device always.
pub(crate) fn takes_turn(device: &Device, turn: usize) -> bool {
    // The sum of the digits to the base of the number of schedules: whatever recurs in a table with a period of its own
    // still meets each schedule.
    let base = EmulatorSchedule::STANDARD.len();
    let digits = std::iter::successors(Some(turn), |rest| (*rest >= base).then_some(rest / base));
    let whose = digits.map(|rest| rest % base).sum();
    has_schedule(device, whose)
}

/// Whether a device is an emulator under the schedule of this number, counted round and round, or no emulator, or
/// nothing is left out.
pub(super) fn has_schedule(device: &Device, number: usize) -> bool {
    let number = number % EmulatorSchedule::STANDARD.len();
    all_cases() || schedule_of(device).is_none_or(|schedule| schedule == number)
}

/// What ran under which schedule: for each kind of thing a turn that it had, and a bit for each schedule.
#[derive(Default)]
pub(crate) struct Coverage(BTreeMap<(&'static str, bool), (usize, u32)>);

impl Coverage {
    /// What ran at `turn`, on an emulator: the names of kernels, and in which of two ways.
    pub(crate) fn note(
        &mut self,
        device: &Device,
        turn: usize,
        ran: impl IntoIterator<Item = (&'static str, bool)>,
    ) {
        let Some(schedule) = schedule_of(device) else { return };
        for kind in ran {
            self.0.entry(kind).or_insert((turn, 0)).1 |= 1 << schedule;
        }
    }

    /// Turns of which something has not run on this device yet.
    fn missing(&self, device: &Device) -> Vec<usize> {
        let Some(schedule) = schedule_of(device) else { return Vec::new() };
        let missing = self.0.values().filter(|(_, schedules)| schedules >> schedule & 1 == 0);
        let mut turns: Vec<usize> = missing.map(|&(turn, _)| turn).collect();
        turns.sort_unstable();
        turns.dedup();
        turns
    }
}

/// Whether a device runs case `case` in layout number `layout`, one of two.
pub(super) fn has_layout(device: &Device, case: usize, layout: usize) -> bool {
    // Not the last digit alone: that goes with the schedule.
    let whose = case.count_ones() as usize;
    all_cases() || device.kind() == DeviceKind::Cuda || whose % 2 == layout
}

/// Runs `turns` cases, each on the devices whose turn it is, then what the notes in [`Coverage`] lack under some
/// schedule; prints what ran.
///
/// # Panics
/// If a case fails, or no case ran on a device.
#[track_caller]
pub(crate) fn by_turns(
    what: &str,
    turns: usize,
    run: impl FnMut(&Device, usize, &mut Coverage) -> Comparison,
) {
    by_some_turns(what, turns, |_, _| None, run);
}

/// [`by_turns`] without those that a reason is given for.
///
/// # Panics
/// As [`by_turns`].
#[track_caller]
pub(super) fn by_some_turns(
    what: &str,
    turns: usize,
    left_out: impl Fn(&Device, usize) -> Option<&'static str>,
    mut run: impl FnMut(&Device, usize, &mut Coverage) -> Comparison,
) {
    let devices = devices();
    let mut coverage = Coverage::default();
    let mut tallies: Vec<Tally> =
        devices.iter().map(|device| Tally::new(format!("{what} on {device}"))).collect();
    for (device, tally) in devices.iter().zip(&mut tallies) {
        for turn in 0..turns {
            match left_out(device, turn) {
                Some(reason) => tally.skipped(reason),
                None if !takes_turn(device, turn) => tally.skipped("under other schedules"),
                None => tally.ran(&run(device, turn, &mut coverage)),
            }
        }
    }
    for (device, mut tally) in devices.iter().zip(tallies) {
        for turn in coverage.missing(device) {
            tally.ran(&run(device, turn, &mut coverage));
        }
        // A table of few cases may have none for a schedule, and no kernel either.
        if tally.count() > 0 || schedule_of(device).is_none() {
            tally.finish();
        }
    }
    report_missing_gpu(what, turns);
}

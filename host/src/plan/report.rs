//! What the reports of all plans have: arrays in device memory, and the time of each stage of making a plan.

use std::fmt;
use std::time::Instant;

/// Name and size of one array in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ArraySize {
    /// Name of the array.
    pub name: &'static str,
    /// Size of the array in bytes.
    pub bytes: u64,
}

/// How long one stage of making a plan took.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct StageTime {
    /// Name of the stage.
    pub name: &'static str,
    /// Wall-clock time in microseconds.
    pub us: f64,
}

/// Adds an array to a list, unless it is empty.
pub(crate) fn push(sizes: &mut Vec<ArraySize>, name: &'static str, bytes: u64) {
    if bytes > 0 {
        sizes.push(ArraySize { name, bytes });
    }
}

/// The time of all stages, in microseconds.
pub(crate) fn total_us(stages: &[StageTime]) -> f64 {
    stages.iter().map(|stage| stage.us).sum()
}

/// The lines of a report about memory; `note` follows the sum.
pub(crate) fn write_arrays(
    f: &mut fmt::Formatter<'_>,
    device_bytes: u64,
    note: &str,
    arrays: &[ArraySize],
) -> fmt::Result {
    let mebibytes = device_bytes as f64 / f64::from(1 << 20);
    writeln!(f, "device memory  {device_bytes} bytes ({mebibytes:.2} MiB){note}")?;
    arrays.iter().try_for_each(|array| writeln!(f, "  {:<12} {} bytes", array.name, array.bytes))
}

/// The last line of a report, about time; `note` follows the sum.
pub(crate) fn write_stages(f: &mut fmt::Formatter<'_>, note: &str, stages: &[StageTime]) -> fmt::Result {
    write!(f, "preprocessing  {:.0} µs{note}", total_us(stages))?;
    stages.iter().try_for_each(|stage| write!(f, ", {} {:.0}", stage.name, stage.us))
}

/// Measures the stages of making a plan.
#[derive(Debug)]
pub(crate) struct StageClock {
    since: Instant,
    pub(crate) stages: Vec<StageTime>,
}

impl StageClock {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), stages: Vec::new() }
    }

    /// The time since the last stage ended was this one.
    pub(crate) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        let us = now.duration_since(self.since).as_secs_f64() * 1e6;
        match self.stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => stage.us += us,
            None => self.stages.push(StageTime { name, us }),
        }
        self.since = now;
    }
}

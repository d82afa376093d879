//! Records as a table for people, a line for each as it comes.

use super::SpmmRecord;
use crate::measure::SweepPath;

/// Title and width of each column; the first two stand left.
const COLUMNS: [(&str, usize); 11] = [
    ("matrix", 18),
    ("path", 24),
    ("width", 5),
    ("time µs", 10),
    ("noise", 6),
    ("GB/s", 7),
    ("% roof", 6),
    ("worst", 6),
    ("prep ms", 8),
    ("cuSPARSE µs", 11),
    ("speed-up", 8),
];
/// Columns that are text and flush left; the others are numbers and flush right.
const TEXT_COLUMNS: usize = 2;

/// Formats records. The last two columns compare with cuSPARSE's best algorithm in the same precision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Table;

impl Table {
    /// The titles, and a line below them.
    pub(super) fn titles(self) -> String {
        let titles = COLUMNS.map(|(title, _)| title.to_owned());
        let rule = COLUMNS.map(|(_, width)| "-".repeat(width));
        format!("{}\n{}", line(&titles), line(&rule))
    }

    /// The line of a record. One that failed has its error behind.
    pub(super) fn row(self, record: &SpmmRecord) -> String {
        let number =
            |x: Option<f64>, decimals: usize| x.map_or("-".to_owned(), |x| format!("{x:.decimals$}"));
        let (facts, time) = (&record.facts, record.time.as_ref());
        let median_us = time.map(|time| time.timing.median_us);
        let precision = facts.path.parse::<SweepPath>().map(|path| path.options.precision.to_string());
        let peer_us = precision.ok().and_then(|precision| facts.cusparse_us(&precision));
        let cells = [
            facts.matrix.name.clone(),
            facts.path.clone(),
            facts.width.to_string(),
            number(median_us, 1),
            time.map_or("-".to_owned(), |time| format!("{:.1}%", 100.0 * time.timing.noise)),
            number(time.and_then(|time| time.bounds.gathered_gbps), 0),
            number(time.and_then(|time| time.bounds.roofline_fraction).map(|fraction| 100.0 * fraction), 1),
            number(record.check.as_ref().and_then(|check| check.worst_ratio), 3),
            number(facts.plan.as_ref().map(|plan| plan.preprocess_ms), 2),
            number(peer_us, 1),
            number(peer_us.zip(median_us).map(|(peer, own)| peer / own), 2),
        ];
        let line = line(&cells);
        match &record.error {
            Some(error) => format!("{line}  FAILED: {error}"),
            None => line,
        }
    }
}

fn line(cells: &[String; COLUMNS.len()]) -> String {
    let cells = cells.iter().zip(COLUMNS).enumerate().map(|(at, (cell, (_, width)))| {
        if at < TEXT_COLUMNS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    cells.collect::<Vec<_>>().join("  ")
}

//! What records say of hybrids in one stream and in two.

use std::collections::BTreeMap;
use std::fmt::Write;

use windrow::OccupancyRange;

use super::facts::SchedulingFacts;
use super::markdown::{Grid, number};
use crate::measure::path::SCHEDULES;
use crate::measure::profile::{ScheduleCase, judgement};

/// A product, its path, how its parts followed each other, and its time in microseconds.
pub(crate) type Scheduled<'a> = (String, &'a str, Option<&'a SchedulingFacts>, Option<f64>);

/// The cases of some records: those of a path that were measured in both schedules.
fn cases<'a>(records: impl Iterator<Item = Scheduled<'a>>) -> (Vec<ScheduleCase>, Option<OccupancyRange>) {
    let mut found: BTreeMap<(String, String), [Option<f64>; 2]> = BTreeMap::new();
    let mut facts: BTreeMap<(String, String), &SchedulingFacts> = BTreeMap::new();
    for (product, path, scheduling, us) in records {
        let Some(schedule) = SCHEDULES.iter().position(|s| path.contains(&format!("+{s}"))) else { continue };
        let base = path.replace(&format!("+{}", SCHEDULES[schedule]), "");
        let key = (product, base);
        found.entry(key.clone()).or_default()[schedule] = us;
        if let Some(scheduling) = scheduling {
            facts.insert(key, scheduling);
        }
    }
    let range = facts.values().next().map(|facts| facts.two_streams);
    let case = |((product, base), us): (&(String, String), &[Option<f64>; 2])| {
        let facts = facts.get(&(product.clone(), base.clone()))?;
        Some(ScheduleCase {
            product: format!("{product}, {base}"),
            occupancy: facts.occupancy,
            sequential_us: us[0]?,
            multi_stream_us: us[1]?,
        })
    };
    (found.iter().filter_map(case).collect(), range)
}

/// What products in both schedules say, as a table, and how often the rule is right; nothing if there are none.
pub(crate) fn section<'a>(records: impl Iterator<Item = Scheduled<'a>>) -> String {
    let (cases, range) = cases(records);
    table(&cases, range)
}

/// Cases as a table, and how often the rule is right.
fn table(cases: &[ScheduleCase], range: Option<OccupancyRange>) -> String {
    let Some(range) = range.filter(|_| !cases.is_empty()) else { return String::new() };
    let mut text = String::new();
    for (rule, range) in [
        (format!("The plans' rule, two streams {range}"), range),
        (format!("If no launch fills the GPU, two streams {}", OccupancyRange::LIBRA), OccupancyRange::LIBRA),
    ] {
        let _ = writeln!(text, "{rule}: {}\n", judgement(cases, range));
    }
    let columns =
        ["product", "CUDA cores", "Tensor Cores", "one stream µs", "two streams µs", "rule", "loss %"];
    let mut grid = Grid::new(columns.iter());
    for case in cases {
        let rule = if range.contains(case.occupancy) { "two" } else { "one" };
        let [cuda_cores, tensor_cores] = case.occupancy;
        grid.row([
            case.product.clone(),
            number(Some(cuda_cores), 2),
            number(Some(tensor_cores), 2),
            number(Some(case.sequential_us), 1),
            number(Some(case.multi_stream_us), 1),
            rule.to_owned(),
            number(Some(100.0 * (case.loss(range) - 1.0)), 1),
        ]);
    }
    let _ = write!(text, "{grid}");
    text
}

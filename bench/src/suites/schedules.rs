//! What records say of hybrids in one stream and in two.

use std::collections::BTreeMap;
use std::fmt::Write;

use windrow::{OccupancyRange, OccupancyThresholds, StreamRule};

use super::facts::SchedulingFacts;
use super::markdown::{Grid, number};
use crate::measure::path::SCHEDULES;
use crate::measure::profile::{ScheduleCase, fit_thresholds, judgement};

/// A product, its path, how its parts followed each other, and its time in microseconds.
pub(crate) type Scheduled<'a> = (String, &'a str, Option<&'a SchedulingFacts>, Option<f64>);

/// The cases of some records: those of a path that were measured in both schedules.
fn cases<'a>(records: impl Iterator<Item = Scheduled<'a>>) -> (Vec<ScheduleCase>, Option<StreamRule>) {
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
    let rule = facts.values().next().map(|facts| facts.two_streams);
    let case = |((product, base), us): (&(String, String), &[Option<f64>; 2])| {
        let facts = facts.get(&(product.clone(), base.clone()))?;
        Some(ScheduleCase {
            product: format!("{product}, {base}"),
            occupancy: facts.occupancy,
            sequential_us: us[0]?,
            multi_stream_us: us[1]?,
        })
    };
    (found.iter().filter_map(case).collect(), rule)
}

/// What products in both schedules say, as a table, and how often rules are right; nothing if there are none.
pub(crate) fn section<'a>(records: impl Iterator<Item = Scheduled<'a>>) -> String {
    let (cases, rule) = cases(records);
    table(&cases, rule)
}

/// Cases as a table, and how often the plans' rule is right, and others.
fn table(cases: &[ScheduleCase], rule: Option<StreamRule>) -> String {
    let Some(rule) = rule.filter(|_| !cases.is_empty()) else { return String::new() };
    let mut text = String::new();
    for (name, rule) in [
        ("The plans' rule", rule),
        ("If no launch fills the GPU", OccupancyRange::UNFILLED.into()),
        ("Libra's equation 8, the paper's thresholds for an H100", OccupancyThresholds::LIBRA_H100.into()),
        ("Libra's equation 8, thresholds fitted to these records", fit_thresholds(cases).into()),
    ] {
        let _ = writeln!(text, "{name}, two streams {rule}: {}\n", judgement(cases, rule));
    }
    let columns =
        ["product", "CUDA cores", "Tensor Cores", "one stream µs", "two streams µs", "rule", "loss %"];
    let mut grid = Grid::new(columns.iter());
    for case in cases {
        let chosen = if rule.contains(case.occupancy) { "two" } else { "one" };
        let [cuda_cores, tensor_cores] = case.occupancy;
        grid.row([
            case.product.clone(),
            number(Some(cuda_cores), 2),
            number(Some(tensor_cores), 2),
            number(Some(case.sequential_us), 1),
            number(Some(case.multi_stream_us), 1),
            chosen.to_owned(),
            number(Some(100.0 * (case.loss(rule) - 1.0)), 1),
        ]);
    }
    let _ = write!(text, "{grid}");
    text
}

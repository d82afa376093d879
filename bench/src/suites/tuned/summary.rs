//! What a tuning sweep found, as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::TunedRecord;
use super::facts::TunedFacts;
use crate::suites::markdown::geometric_mean;

/// Tables of speed-ups: for each width over the default and over cuSPARSE, for each family, and for each matrix.
///
/// # Panics
/// Never: text can always be written.
pub(super) fn summarise(records: &[TunedRecord]) -> String {
    let mut text = String::new();
    write_tables(&mut text, records).expect("text can be written");
    text
}

/// The geometric mean of ratios, the least and the largest; `-` if there are none.
fn of(ratios: impl Iterator<Item = f64>) -> String {
    let ratios: Vec<f64> = ratios.collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    geometric_mean(&ratios).map_or("-".to_owned(), |mean| format!("{mean:.2} ({least:.2} to {largest:.2})"))
}

fn ratio(over: Option<f64>, own: Option<f64>) -> Option<f64> {
    over.zip(own).map(|(over, own)| over / own)
}

fn write_tables(text: &mut String, records: &[TunedRecord]) -> std::fmt::Result {
    let timed: Vec<&TunedFacts> =
        records.iter().map(|record| &record.facts).filter(|facts| facts.default_us.is_some()).collect();
    let widths: BTreeSet<usize> = timed.iter().map(|record| record.width).collect();
    let results = records.iter().flat_map(|record| &record.facts.tried);
    let right = results.clone().filter(|tried| tried.median_us.is_some()).count();
    let abandoned = results.clone().filter(|tried| tried.abandoned_us.is_some()).count();
    writeln!(
        text,
        "{} cases, {} without a default's time; {} candidates: {right} right, {abandoned} given up, {} failed or wrong. \
         Geometric means, least and largest.\n",
        records.len(),
        records.len() - timed.len(),
        results.clone().count(),
        results.filter(|tried| tried.error.is_some()).count(),
    )?;

    writeln!(
        text,
        "| width | tuned over default | default over cuSPARSE | tuned over cuSPARSE | won | tried | s |"
    )?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- | --- |")?;
    let mut row = |name: &str, records: &[&TunedFacts]| {
        let over_default = records.iter().filter_map(|record| ratio(record.default_us, record.tuned_us()));
        let default = records.iter().filter_map(|record| ratio(record.peer_us(), record.default_us));
        let tuned = records.iter().filter_map(|record| ratio(record.peer_us(), record.tuned_us()));
        let won = records.iter().filter(|record| record.winner.is_some()).count();
        let tried: usize = records.iter().map(|record| record.tried.len()).sum();
        let seconds: f64 = records.iter().map(|record| record.seconds).sum();
        let count = records.len();
        writeln!(
            text,
            "| {name} | {} | {} | {} | {won} of {count} | {tried} | {seconds:.0} |",
            of(over_default),
            of(default),
            of(tuned)
        )
    };
    let at = |width: usize| -> Vec<&TunedFacts> {
        timed.iter().filter(|record| record.width == width).copied().collect()
    };
    for &width in &widths {
        row(&width.to_string(), &at(width))?;
    }
    row("all", &timed)?;

    let families: BTreeSet<&str> =
        timed.iter().flat_map(|record| &record.families).map(|facts| facts.family.as_str()).collect();
    if !families.is_empty() {
        writeln!(text, "\nThe default's time over that of the best of each family:\n")?;
        let titles: Vec<String> = widths.iter().map(ToString::to_string).collect();
        writeln!(text, "| family | {} |\n| --- |{}", titles.join(" | "), " --- |".repeat(widths.len()))?;
        for family in families {
            let best = |record: &TunedFacts| {
                let facts = record.families.iter().find(|facts| facts.family == family)?;
                ratio(record.default_us, Some(facts.median_us))
            };
            let cells = widths.iter().map(|&width| of(at(width).into_iter().filter_map(best)));
            writeln!(text, "| {family} | {} |", cells.collect::<Vec<_>>().join(" | "))?;
        }
    }

    writeln!(text, "\n| matrix | width | default µs | tuned µs | ratio | cuSPARSE µs | default | winner |")?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- | --- | --- |")?;
    let number = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
    for record in &timed {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            record.matrix.name,
            record.width,
            number(record.default_us),
            number(record.tuned_us()),
            ratio(record.default_us, record.tuned_us()).map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            number(record.peer_us()),
            record.default.as_deref().unwrap_or("-"),
            record.winner.as_deref().unwrap_or("-"),
        )?;
    }
    for record in records {
        if let Some(error) = &record.error {
            writeln!(text, "\n{} at {}: {error}", record.facts.matrix.name, record.facts.width)?;
        }
    }
    Ok(())
}

//! Records of attention as Markdown.

use std::fmt::Write;

use super::AttendedRecord;

/// Summarises records: every time, and over that of the result for gradients.
pub(super) fn summarise(records: &[AttendedRecord]) -> String {
    let failed = records.iter().filter(|record| record.time.is_none()).count();
    let mut text = format!("# Attention\n\n{} records, {failed} without a right result.\n", records.len());
    text += "\n| matrix | columns | path | µs | over the result |\n| --- | --- | --- | --- | --- |\n";
    for record in records.iter().filter(|record| !record.facts.path.is_empty()) {
        let facts = &record.facts;
        let us = record.us();
        let of_result = facts.path.strip_suffix("+gradients").and_then(|path| {
            let same = |other: &&AttendedRecord| {
                let other = &other.facts;
                (&other.matrix.name, other.columns, other.path.as_str())
                    == (&facts.matrix.name, facts.columns, path)
            };
            records.iter().filter(same).find(|other| other.l2 == record.l2)?.us()
        });
        let number = |number: Option<f64>, digits: usize| {
            number.map_or_else(|| "–".to_owned(), |number| format!("{number:.digits$}"))
        };
        let over = us.zip(of_result).map(|(us, result)| us / result);
        let (name, us, over) = (&facts.matrix.name, number(us, 1), number(over, 2));
        let _ = writeln!(text, "| {name} | {} | {} | {us} | {over} |", facts.columns, facts.path);
    }
    text
}

//! The registers that `ptxas` gives each kernel, recorded so that a change is seen.

use crate::failure::{Context, Result};
use crate::targets::Target;
use crate::workspace::read;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Registers of a thread, by entry and architecture.
pub(super) type Table = BTreeMap<String, BTreeMap<String, u32>>;

/// The record: what one version of `ptxas` said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registers {
    /// Version of the assembler.
    pub(super) ptxas: String,
    /// Registers of the entry points, for each target by its name.
    pub(super) modules: BTreeMap<String, Table>,
}

impl Registers {
    /// Reads the record that is committed.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read(path)?;
        serde_json::from_str(&text).context(path.display())
    }

    /// The record as it is committed.
    pub(super) fn to_json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).context("registers")?;
        Ok(text + "\n")
    }

    /// One line per difference from the `committed` record. Counts of different assemblers are not compared:
    /// that only happens when somebody named the assembler, and it is said.
    pub(super) fn differences(&self, committed: &Self) -> Vec<String> {
        if self.ptxas != committed.ptxas {
            eprintln!(
                "registers are recorded with ptxas {}, this is {}: not compared",
                committed.ptxas, self.ptxas
            );
            return Vec::new();
        }
        let (now, was) = (self.flat(), committed.flat());
        let keys: BTreeSet<_> = now.keys().chain(was.keys()).collect();
        let show = |count: Option<&u32>| count.map_or_else(|| "none".to_owned(), u32::to_string);
        keys.into_iter()
            .filter(|key| now.get(*key) != was.get(*key))
            .map(|key| {
                let (entry, arch) = key;
                format!(
                    "registers: {entry} on {arch}: {} recorded, {} now",
                    show(was.get(key)),
                    show(now.get(key))
                )
            })
            .collect()
    }

    fn flat(&self) -> BTreeMap<(&str, &str), u32> {
        let tables = self.modules.values().flatten();
        tables
            .flat_map(|(entry, archs)| {
                archs.iter().map(move |(arch, count)| ((entry.as_str(), arch.as_str()), *count))
            })
            .collect()
    }
}

/// The table of a target for a person: one line per kernel, one column per architecture.
pub(super) fn render(target: &Target, table: &Table) -> String {
    let name = target.arch.name();
    let width = table.keys().map(String::len).max().unwrap_or(0).max(name.len());
    let mut text = format!("registers per thread\n{name:width$}");
    for arch in target.gpus {
        let _ = write!(text, " {arch:>7}");
    }
    text.push('\n');
    for (entry, archs) in table {
        let _ = write!(text, "{entry:width$}");
        for arch in target.gpus {
            let count = archs.get(*arch).map_or_else(|| "-".to_owned(), u32::to_string);
            let _ = write!(text, " {count:>7}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TARGETS;

    fn registers(count: u32) -> Registers {
        let archs = BTreeMap::from([("sm_80".to_owned(), count)]);
        let table = Table::from([("spmm".to_owned(), archs)]);
        Registers { ptxas: "13.0.88".to_owned(), modules: BTreeMap::from([("sm80".to_owned(), table)]) }
    }

    #[test]
    fn a_changed_count_is_reported() {
        assert!(registers(40).differences(&registers(40)).is_empty());
        let lines = registers(48).differences(&registers(40));
        assert_eq!(lines, ["registers: spmm on sm_80: 40 recorded, 48 now"]);
        let mut none = registers(40);
        none.modules.clear();
        assert_eq!(registers(40).differences(&none), ["registers: spmm on sm_80: none recorded, 40 now"]);
    }

    #[test]
    fn counts_of_another_assembler_are_not_compared() {
        let mut other = registers(48);
        other.ptxas = "12.8.93".to_owned();
        assert!(other.differences(&registers(40)).is_empty());
    }

    #[test]
    fn the_table_names_every_architecture() {
        let text = render(&TARGETS[0], &registers(40).modules["sm80"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("sm_80") && lines[1].contains("sm_89"), "{text}");
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["spmm", "40", "-", "-"]);
    }
}

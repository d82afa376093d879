//! The registers that `ptxas` gives each kernel, recorded so that a change is seen.

use crate::entries::EntrySpec;
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
    /// [`checksum`] of the text of each module, for each target by its name.
    #[serde(default)]
    pub(super) texts: BTreeMap<String, BTreeMap<String, String>>,
    /// Registers of the entry points, for each target by its name.
    pub(super) modules: BTreeMap<String, Table>,
}

/// Of a text, so that a changed one is known: its length, and a CRC-32.
pub(super) fn checksum(text: &str) -> String {
    format!("{}-{:08x}", text.len(), crc32fast::hash(text.as_bytes()))
}

impl Registers {
    /// A record without entries.
    pub(super) const fn of(ptxas: String) -> Self {
        Self { ptxas, texts: BTreeMap::new(), modules: BTreeMap::new() }
    }

    /// The modules of a target with the recorded text whose entries are all recorded for all GPUs, without one in
    /// `sample` of them.
    pub(super) fn unchanged<'a>(
        &self,
        target: &Target,
        modules: &'a BTreeMap<String, Vec<EntrySpec>>,
        texts: &BTreeMap<String, String>,
        sample: usize,
    ) -> Vec<&'a str> {
        let arch = target.arch.to_string();
        let empty = (BTreeMap::new(), Table::new());
        let was = self.texts.get(&arch).unwrap_or(&empty.0);
        let table = self.modules.get(&arch).unwrap_or(&empty.1);
        let is_known = |entry: &EntrySpec| {
            let row = table.get(&entry.name);
            row.is_some_and(|row| target.gpus.iter().all(|&gpu| row.contains_key(gpu)))
        };
        let unchanged: Vec<&str> = modules
            .iter()
            .filter(|(name, entries)| was.get(*name) == texts.get(*name) && entries.iter().all(is_known))
            .map(|(name, _)| name.as_str())
            .collect();
        // Any change of any text makes it another one.
        let all: String = texts.values().map(String::as_str).collect();
        let first = crc32fast::hash(all.as_bytes()) as usize % sample;
        unchanged.into_iter().enumerate().filter(|(i, _)| i % sample != first).map(|(_, name)| name).collect()
    }

    /// The recorded registers of some entries of a target.
    pub(super) fn rows(&self, arch: &str, entries: &[EntrySpec]) -> Table {
        let table = self.modules.get(arch);
        let row = |entry: &EntrySpec| Some((entry.name.clone(), table?.get(&entry.name)?.clone()));
        entries.iter().filter_map(row).collect()
    }

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
        let mut lines = self.entry_differences(committed);
        if self.texts != committed.texts {
            lines.push("registers: recorded for another text of the kernels".to_owned());
        }
        lines
    }

    fn entry_differences(&self, committed: &Self) -> Vec<String> {
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
        let modules = BTreeMap::from([("sm80".to_owned(), table)]);
        Registers { modules, ..Registers::of("13.0.88".to_owned()) }
    }

    /// Nine modules of an entry each, with their texts, and a record of them.
    fn recorded() -> (BTreeMap<String, Vec<EntrySpec>>, BTreeMap<String, String>, Registers) {
        let names: Vec<String> = (0..9).map(|i| format!("module_{i}")).collect();
        let modules = names.iter().map(|name| (name.clone(), vec![EntrySpec::sample(name)])).collect();
        let texts: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), checksum(name))).collect();
        let row: BTreeMap<String, u32> = TARGETS[0].gpus.iter().map(|gpu| ((*gpu).to_owned(), 40)).collect();
        let table: Table = names.iter().map(|name| (name.clone(), row.clone())).collect();
        let arch = TARGETS[0].arch.to_string();
        let registers = Registers {
            texts: BTreeMap::from([(arch.clone(), texts.clone())]),
            modules: BTreeMap::from([(arch, table)]),
            ..Registers::of("13.0.88".to_owned())
        };
        (modules, texts, registers)
    }

    #[test]
    fn a_module_of_the_recorded_text_is_not_assembled_but_for_a_sample() {
        let (modules, texts, registers) = recorded();
        let unchanged = registers.unchanged(&TARGETS[0], &modules, &texts, 8);
        assert!(matches!(unchanged.len(), 7 | 8), "{unchanged:?}");
        assert!(registers.unchanged(&TARGETS[0], &modules, &texts, 1).is_empty());
        let rows = registers.rows(&TARGETS[0].arch.to_string(), &modules["module_3"]);
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["module_3"]);
    }

    #[test]
    fn what_changed_or_is_not_recorded_is_assembled() {
        let (modules, texts, mut registers) = recorded();
        let mut changed = texts.clone();
        changed.insert("module_4".to_owned(), checksum("module_5"));
        assert!(!registers.unchanged(&TARGETS[0], &modules, &changed, 20).contains(&"module_4"));
        assert_eq!(registers.differences(&recorded().2), [""; 0]);
        registers.texts.clear();
        assert!(registers.unchanged(&TARGETS[0], &modules, &texts, 20).is_empty());
        assert_eq!(registers.differences(&recorded().2).len(), 1);
        let (.., mut registers) = recorded();
        let table = registers.modules.values_mut().next().unwrap();
        table.get_mut("module_2").unwrap().pop_last();
        assert!(!registers.unchanged(&TARGETS[0], &modules, &texts, 20).contains(&"module_2"));
    }

    #[test]
    fn a_checksum_knows_texts_apart() {
        assert_eq!(checksum("ab"), checksum("ab"));
        assert_ne!(checksum("ab"), checksum("ba"));
        assert_ne!(checksum(""), checksum("\0"));
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

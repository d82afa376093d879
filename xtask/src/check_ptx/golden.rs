//! The golden counts: per entry, the instructions that decide its speed and its safety.

use crate::entries::EntrySpec;
use crate::failure::{Context, Result};
use crate::ptx::{Function, FunctionKind, Ptx, unresolved_calls};
use crate::workspace::read;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What one entry holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Bytes of the parameter space.
    params_bytes: usize,
    /// Bytes of local memory (an array that did not stay in registers).
    local_bytes: usize,
    /// How often each watched opcode stands in the text.
    opcodes: BTreeMap<String, usize>,
}

/// Counts by entry, of all modules of a target.
pub(super) type ModuleCounts = BTreeMap<String, Counts>;

/// The golden record: counts by target and entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Golden {
    pub(super) modules: BTreeMap<String, ModuleCounts>,
}

/// Memory, barriers, collectives, matrix multiplies and calls are watched; arithmetic is not.
const WATCHED: &[&str] = &[
    "atom",
    "bar",
    "barrier",
    "call",
    "cp",
    "fence",
    "griddepcontrol",
    "ld",
    "ldmatrix",
    "match",
    "mbarrier",
    "membar",
    "mma",
    "red",
    "redux",
    "shfl",
    "st",
    "stmatrix",
    "trap",
    "vote",
    "wgmma",
];

impl Golden {
    /// Reads the record that is committed.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read(path)?;
        serde_json::from_str(&text).context(path.display())
    }

    /// The record as it is committed.
    pub(super) fn to_json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).context("golden counts")?;
        Ok(text + "\n")
    }

    /// The names of all entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = &str> {
        self.modules.values().flat_map(|module| module.keys()).map(String::as_str)
    }

    /// One line per difference from the `committed` record.
    pub(super) fn differences(&self, committed: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let empty = ModuleCounts::new();
        for module in keys(&self.modules, &committed.modules) {
            let now = self.modules.get(module).unwrap_or(&empty);
            let was = committed.modules.get(module).unwrap_or(&empty);
            for entry in keys(now, was) {
                match (now.get(entry), was.get(entry)) {
                    (Some(now), Some(was)) => lines.extend(now.differences(was, entry)),
                    (Some(_), None) => lines.push(format!("golden: {entry} is not recorded in {module}")),
                    (None, _) => lines.push(format!("golden: {entry} is recorded but gone from {module}")),
                }
            }
        }
        lines
    }
}

impl Counts {
    fn differences(&self, was: &Self, entry: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut note = |what: &str, was: usize, now: usize| {
            if was != now {
                lines.push(format!("golden: {entry}: {what}: {was} recorded, {now} now"));
            }
        };
        note("bytes of parameters", was.params_bytes, self.params_bytes);
        note("bytes of local memory", was.local_bytes, self.local_bytes);
        for opcode in keys(&self.opcodes, &was.opcodes) {
            let count = |counts: &Self| counts.opcodes.get(opcode).copied().unwrap_or(0);
            note(opcode, count(was), count(self));
        }
        lines
    }
}

fn keys<'a, V>(a: &'a BTreeMap<String, V>, b: &'a BTreeMap<String, V>) -> BTreeSet<&'a String> {
    a.keys().chain(b.keys()).collect()
}

/// The names of the entries in the record at `path`.
pub(crate) fn golden_entries(path: &Path) -> Result<BTreeSet<String>> {
    Ok(Golden::read(path)?.entries().map(str::to_owned).collect())
}

/// The counts of every entry of a module.
pub(super) fn count(ptx: &Ptx) -> ModuleCounts {
    ptx.definitions(FunctionKind::Entry).map(|entry| (entry.name.clone(), count_entry(entry))).collect()
}

fn count_entry(entry: &Function) -> Counts {
    let mut counts = Counts { params_bytes: params_bytes(&entry.signature), ..Counts::default() };
    let body = entry.body.join("\n");
    for statement in body.split(';') {
        let statement = statement_start(statement);
        if statement.starts_with(".local") {
            counts.local_bytes += array_bytes(statement);
        }
        let opcode = statement.split_whitespace().next().unwrap_or("");
        let family = opcode.split('.').next().unwrap_or("");
        if WATCHED.contains(&family) && !opcode.starts_with("ld.param") && !opcode.starts_with("st.param") {
            *counts.opcodes.entry(opcode.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Skips braces, labels and the predicate in front of an instruction.
fn statement_start(statement: &str) -> &str {
    let mut rest = statement;
    loop {
        let next = rest.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '}'));
        let word = next.split_whitespace().next().unwrap_or("");
        rest =
            if word.ends_with(':') || word.starts_with('@') { next[word.len()..].trim_start() } else { next };
        if rest == next {
            return rest;
        }
    }
}

/// Size and alignment of a PTX type such as `.b32`.
fn type_bytes(word: &str) -> Option<usize> {
    let digits = word.strip_prefix(['.'])?.trim_start_matches(|c: char| c.is_ascii_lowercase());
    Some(digits.parse::<usize>().ok()? / 8)
}

/// Elements of `name[count]`, or 1.
fn array_elements(text: &str) -> usize {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.and_then(|(count, _)| count.trim().parse().ok()).unwrap_or(1)
}

fn array_bytes(declaration: &str) -> usize {
    let element = declaration.split_whitespace().find_map(type_bytes).unwrap_or(1);
    element * array_elements(declaration)
}

/// Bytes of an entry's parameters, laid out one after the other.
fn params_bytes(signature: &[String]) -> usize {
    let mut end = 0_usize;
    for line in signature.iter().filter(|line| line.trim_start().starts_with(".param")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let element = words.iter().find_map(|word| type_bytes(word)).unwrap_or(1);
        let stated =
            words.iter().position(|word| *word == ".align").and_then(|at| words.get(at + 1)?.parse().ok());
        end = end.next_multiple_of(stated.unwrap_or(element).max(1)) + array_bytes(line);
    }
    end
}

/// What is wrong whatever was recorded: entries that differ from the table, parameters of another size, functions
/// that were not inlined (they would escape the counts, and cost a call), and calls that lead nowhere.
pub(super) fn structure_problems(ptx: &Ptx, entries: &[EntrySpec]) -> Vec<String> {
    let counts = count(ptx);
    let mut problems = Vec::new();
    for entry in entries {
        match counts.get(&entry.name) {
            None => {
                problems.push(format!("{} is in `windrow_kernels::ENTRIES` but not in the PTX", entry.name))
            }
            Some(found) if found.params_bytes != entry.params_bytes => problems.push(format!(
                "{}: {} bytes of parameters in the PTX, {} in the entry table",
                entry.name, found.params_bytes, entry.params_bytes
            )),
            Some(_) => {}
        }
    }
    for name in counts.keys().filter(|name| entries.iter().all(|entry| entry.name != **name)) {
        problems.push(format!("{name} is in the PTX but not in `windrow_kernels::ENTRIES`"));
    }
    for function in ptx.definitions(FunctionKind::Func) {
        problems.push(format!(
            "{:#} was not inlined: mark it `#[inline(always)]`",
            rustc_demangle::demangle(&function.name)
        ));
    }
    for (callee, callers) in unresolved_calls(ptx) {
        problems.push(format!(
            "{:#} is called by {} and not in the PTX",
            rustc_demangle::demangle(&callee),
            callers.join(", ")
        ));
    }
    problems
}

#[cfg(test)]
mod tests;

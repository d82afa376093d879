//! `check-ptx`: what the committed PTX holds, and what `ptxas` makes of it. No GPU is needed.
//!
//! Two records lie beside the PTX: `golden.json`, the instructions of each entry that carry its cost and its
//! correctness, and `registers.json`, the registers that `ptxas` gives it on each architecture. A difference is
//! a failure, so that it is seen; `--bless` accepts it.
//!
//! `ptxas` makes the same of the same text, so a module whose text is the recorded one is not assembled again, but for
//! one in [`SAMPLE`], which would show a record that is not what it says; `--all` assembles every one.

mod golden;
mod ptxas;
mod record;
mod tool;

use crate::failure::{Failure, Result};
use crate::ptx::Ptx;
use crate::targets::TARGETS;
use crate::workspace::{Workspace, read, write};
use golden::Golden;
use record::Registers;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use golden::golden_entries;

/// What `cargo xtask check-ptx` is told.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Record the counts and the registers as they are now.
    #[arg(long)]
    pub bless: bool,
    /// Assemble every module, also those whose text and registers are recorded.
    #[arg(long)]
    pub all: bool,
}

/// Of so many modules that are as recorded one is assembled nevertheless: another one after every change.
const SAMPLE: usize = 8;

/// File of the golden counts.
pub(crate) fn golden_path(workspace: &Workspace) -> PathBuf {
    workspace.ptx_dir().join("golden.json")
}

fn registers_path(workspace: &Workspace) -> PathBuf {
    workspace.ptx_dir().join("registers.json")
}

/// Checks every module; all problems are listed before it fails.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let mut problems = Vec::new();
    let ptxas = tool::find(workspace)?;
    eprintln!("ptxas: {} ({})", ptxas.version, ptxas.path.display());
    let recorded = Registers::read(&registers_path(workspace))
        .ok()
        .filter(|of| !arguments.all && of.ptxas == ptxas.version);
    let mut golden = Golden::default();
    let mut registers = Registers::of(ptxas.version.clone());
    let (mut assembled, mut known) = (0, 0);
    for target in TARGETS {
        let modules = target.modules();
        if modules.is_empty() {
            continue;
        }
        let mut counts = golden::ModuleCounts::new();
        let mut texts = BTreeMap::new();
        for (name, entries) in &modules {
            let text = read(&target.file(workspace, name)).map_err(|failure| {
                Failure::new(format!("{failure}; build it with `cargo xtask build-ptx`"))
            })?;
            let ptx = Ptx::parse(&text)?;
            problems.extend(golden::structure_problems(&ptx, entries));
            counts.append(&mut golden::count(&ptx));
            texts.insert(name.clone(), record::checksum(&text));
        }
        let arch = target.arch.to_string();
        golden.modules.insert(arch.clone(), counts);
        let mut table = record::Table::new();
        let mut to_assemble = modules.clone();
        if let Some(recorded) = &recorded {
            for name in recorded.unchanged(target, &modules, &texts, SAMPLE) {
                let entries = to_assemble.remove(name).unwrap_or_default();
                known += entries.len() * target.gpus.len();
                table.extend(recorded.rows(&arch, &entries));
            }
        }
        for report in ptxas::assemble_all(workspace, &ptxas, target, &to_assemble)? {
            assembled += report.usages.len();
            problems.extend(ptxas::problems(&report.usages, report.gpu, &modules[report.module]));
            for (entry, usage) in report.usages {
                table.entry(entry).or_default().insert(report.gpu.to_owned(), usage.registers);
            }
        }
        print!("{}", record::render(target, &table));
        registers.texts.insert(arch.clone(), texts);
        registers.modules.insert(arch, table);
    }
    println!(
        "kernels assembled for a GPU: {assembled}; of the text and with the registers on record: {known}"
    );
    settle(workspace, arguments.bless, &golden, &registers, &mut problems)?;
    if problems.is_empty() {
        println!("check-ptx: {} entries, no spills, no stack frame", golden.entries().count());
        return Ok(());
    }
    Err(Failure::new(format!("check-ptx found {} problem(s)\n  {}", problems.len(), problems.join("\n  "))))
}

/// Compares both records with the committed ones, or writes them if nothing else is wrong.
fn settle(
    workspace: &Workspace,
    bless: bool,
    golden: &Golden,
    registers: &Registers,
    problems: &mut Vec<String>,
) -> Result<()> {
    let golden_path = golden_path(workspace);
    let registers_path = registers_path(workspace);
    if bless && !problems.is_empty() {
        problems.push("nothing is recorded as long as there are such problems".to_owned());
        return Ok(());
    }
    if bless {
        write(&golden_path, &golden.to_json()?)?;
        write(&registers_path, &registers.to_json()?)?;
        println!("recorded {}", workspace.relative(&golden_path));
        println!("recorded {}", workspace.relative(&registers_path));
        return Ok(());
    }
    let remedy = |failure| Failure::new(format!("{failure}; record it with `cargo xtask check-ptx --bless`"));
    let mut changes = golden.differences(&Golden::read(&golden_path).map_err(remedy)?);
    changes.extend(registers.differences(&Registers::read(&registers_path).map_err(remedy)?));
    if !changes.is_empty() {
        changes.push("if these changes are meant: `cargo xtask check-ptx --bless`".to_owned());
    }
    problems.extend(changes);
    Ok(())
}

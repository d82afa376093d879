//! `check-ptx`: what the committed PTX holds, and what `ptxas` makes of it. No GPU is needed.
//!
//! Two records lie beside the PTX: `golden.json`, the instructions of each entry that carry its cost and its
//! correctness, and `registers.json`, the registers that `ptxas` gives it on each architecture. A difference is
//! a failure, so that it is seen; `--bless` accepts it.

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
}

/// File of the golden counts.
pub(crate) fn golden_path(workspace: &Workspace) -> PathBuf {
    workspace.ptx_dir().join("golden.json")
}

/// Checks every module; all problems are listed before it fails.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let mut problems = Vec::new();
    let ptxas = tool::find(workspace)?;
    eprintln!("ptxas: {} ({})", ptxas.version, ptxas.path.display());
    let mut golden = Golden::default();
    let mut registers = Registers { ptxas: ptxas.version.clone(), modules: BTreeMap::new() };
    for target in TARGETS {
        let modules = target.modules();
        if modules.is_empty() {
            continue;
        }
        let mut counts = golden::ModuleCounts::new();
        for (name, entries) in &modules {
            let text = read(&target.file(workspace, name)).map_err(|failure| {
                Failure::new(format!("{failure}; build it with `cargo xtask build-ptx`"))
            })?;
            let ptx = Ptx::parse(&text)?;
            problems.extend(golden::structure_problems(&ptx, entries));
            counts.append(&mut golden::count(&ptx));
        }
        golden.modules.insert(target.arch.to_string(), counts);
        let mut table = record::Table::new();
        for report in ptxas::assemble_all(workspace, &ptxas, target, &modules)? {
            problems.extend(ptxas::problems(&report.usages, report.gpu, &modules[report.module]));
            for (entry, usage) in report.usages {
                table.entry(entry).or_default().insert(report.gpu.to_owned(), usage.registers);
            }
        }
        print!("{}", record::render(target, &table));
        registers.modules.insert(target.arch.to_string(), table);
    }
    settle(workspace, arguments.bless, &golden, &registers, &mut problems)?;
    if problems.is_empty() {
        println!("check-ptx: {} entries, no spills, no stack frame", golden.entries().count());
        return Ok(());
    }
    Err(Failure::new(format!("check-ptx found {} problem(s)\n  {}", problems.len(), problems.join("\n  "))))
}

/// Compares both records with the committed ones, or writes them.
fn settle(
    workspace: &Workspace,
    bless: bool,
    golden: &Golden,
    registers: &Registers,
    problems: &mut Vec<String>,
) -> Result<()> {
    let golden_path = golden_path(workspace);
    let registers_path = workspace.ptx_dir().join("registers.json");
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

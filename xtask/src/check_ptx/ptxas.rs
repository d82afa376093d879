//! Assembling a module and reading what `ptxas -v` says of each kernel.

use super::tool::Ptxas;
use crate::entries::EntrySpec;
use crate::failure::{Context, Result};
use crate::process;
use crate::targets::Target;
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one kernel takes on one architecture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Registers of a thread.
    pub(super) registers: u32,
    /// Bytes of stack frame.
    pub(super) stack_bytes: u32,
    /// Bytes of spill stores and loads.
    pub(super) spill_bytes: u32,
}

/// Registers and memory that ptxas reports, by the name of the entry point.
pub(super) type Usages = BTreeMap<String, Usage>;

/// What the assembler said of one module on one architecture.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// Name of the module.
    pub(super) module: &'a str,
    /// Architecture that it was assembled for.
    pub(super) gpu: &'static str,
    /// What its entries take.
    pub(super) usages: Usages,
}

/// Assembles every module of a target for each of the target's GPUs, as many at a time as there are processors.
///
/// # Errors
/// If `ptxas` refuses one: its own words.
pub(super) fn assemble_all<'a>(
    workspace: &Workspace,
    ptxas: &Ptxas,
    target: &Target,
    modules: &'a BTreeMap<String, Vec<EntrySpec>>,
) -> Result<Vec<Report<'a>>> {
    let folder = workspace.target("cubin");
    std::fs::create_dir_all(&folder).context(folder.display())?;
    let jobs: Vec<(&'a str, &'static str)> = modules
        .keys()
        .flat_map(|module| target.gpus.iter().map(move |&gpu| (module.as_str(), gpu)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some(&(module, gpu)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let output = folder.join(format!("{module}.{gpu}.cubin"));
            let usages = assemble(ptxas, &target.file(workspace, module), gpu, &output)?;
            reports.push(Report { module, gpu, usages });
        }
        Ok(reports)
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let reports: Result<Vec<Vec<Report<'a>>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    Ok(reports?.into_iter().flatten().collect())
}

/// Assembles the PTX at `input` for `gpu`.
fn assemble(ptxas: &Ptxas, input: &Path, gpu: &str, output: &Path) -> Result<Usages> {
    let mut command = Command::new(&ptxas.path);
    command.args(["-v", &format!("-arch={gpu}"), "-o"]).arg(output).arg(input);
    // ptxas reports on its standard error.
    let output = command.output().context(process::line(&command))?;
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(crate::failure::Failure::new(format!(
            "{} ended with {}\n{text}",
            process::line(&command),
            output.status
        )));
    }
    Ok(parse(&text))
}

/// Reads the report of `ptxas -v`.
fn parse(text: &str) -> Usages {
    let mut usages = Usages::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(name) =
            line.split_once("Compiling entry function '").and_then(|(_, rest)| rest.split_once('\''))
        {
            name.0.clone_into(&mut current);
            usages.entry(current.clone()).or_default();
        }
        let Some(usage) = usages.get_mut(&current) else { continue };
        let before = |words: &str| number_before(line, words);
        if let Some(stack) = before(" bytes stack frame") {
            usage.stack_bytes += stack;
            usage.spill_bytes +=
                before(" bytes spill stores").unwrap_or(0) + before(" bytes spill loads").unwrap_or(0);
        }
        if line.contains(": Used ") {
            usage.registers = before(" registers").unwrap_or(0);
        }
    }
    usages
}

/// The number that stands before `words`.
fn number_before(line: &str, words: &str) -> Option<u32> {
    let head = &line[..line.find(words)?];
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Spills, stack frames and kernels that the report does not name.
pub(super) fn problems(usages: &Usages, arch: &str, entries: &[EntrySpec]) -> Vec<String> {
    let mut problems = Vec::new();
    for entry in entries {
        let name = &entry.name;
        let Some(usage) = usages.get(name) else {
            problems.push(format!("{arch}: {name}: ptxas does not report it"));
            continue;
        };
        if usage.registers == 0 {
            problems.push(format!("{arch}: {name}: no register count in what ptxas says"));
        }
        if usage.spill_bytes > 0 || usage.stack_bytes > 0 {
            problems.push(format!(
                "{arch}: {name}: {} bytes spilled, {} bytes of stack frame, with {} registers: unroll the loops \
                 that index arrays, or ask for fewer blocks (`min_blocks`)",
                usage.spill_bytes, usage.stack_bytes, usage.registers
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scale' for 'sm_90a'
ptxas info    : Function properties for scale
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Compile time = 3.141 ms
ptxas info    : Compiling entry function 'spmm' for 'sm_90a'
ptxas info    : Function properties for spmm
    64 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size
";

    #[test]
    fn reads_a_report() {
        let usages = parse(REPORT);
        assert_eq!(usages["scale"], Usage { registers: 12, stack_bytes: 0, spill_bytes: 0 });
        assert_eq!(usages["spmm"], Usage { registers: 255, stack_bytes: 64, spill_bytes: 40 });
    }

    #[test]
    fn spills_and_missing_kernels_are_problems() {
        let found = problems(&parse(REPORT), "sm_90a", &["scale", "spmm", "sddmm"].map(EntrySpec::sample));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0]
                .starts_with("sm_90a: spmm: 40 bytes spilled, 64 bytes of stack frame, with 255 registers")
        );
        assert!(found[1].contains("sddmm: ptxas does not report it"));
    }
}

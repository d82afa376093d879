//! `build-ptx`: the kernels, compiled to the PTX that is committed.
//!
//! The compiler's own GPU target writes the text; no linker takes part, so what a kernel calls must have been
//! inlined or compiled beside it. What is committed is that text without comments, with the launch bounds of
//! the entry table, cut into the modules of that table, each behind a header that names the compiler.

mod header;
mod toolchain;

use crate::entries::EntrySpec;
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::ptx::{Ptx, launch_bounds, number_locally, only, prune_unreachable, unresolved_calls};
use crate::targets::{LLVM_ARGS, TARGETS, Target};
use crate::workspace::{Workspace, read, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use toolchain::Toolchain;

/// What `cargo xtask build-ptx` is told.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if the committed text differs from what the sources give.
    #[arg(long)]
    pub check: bool,
}

/// So many modules are named when they change; more are counted.
const FEW: usize = 8;

/// Compiles for every target, and writes the modules or compares them with what is committed.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let toolchain = toolchain::find(workspace, committed_by(workspace).as_deref())?;
    eprintln!("device compiler: {} ({})", toolchain.version(), toolchain.origin());
    let mut files = BTreeSet::new();
    for (target, modules, texts) in build_all(workspace, &toolchain)? {
        let mut changed = Vec::new();
        let (mut entries, mut bytes) = (0, 0);
        for (name, text) in texts {
            let path = target.file(workspace, &name);
            if arguments.check {
                let committed = read(&path).map_err(|failure| {
                    Failure::new(format!("{failure}; build it with `cargo xtask build-ptx`"))
                })?;
                compare(&workspace.relative(&path).to_string(), &committed, &text)?;
            } else if !read(&path).is_ok_and(|committed| committed == text) {
                std::fs::create_dir_all(target.folder(workspace)).context(path.display())?;
                write(&path, &text)?;
                changed.push(name.clone());
            }
            entries += modules[&name].len();
            bytes += text.len();
            files.insert(path);
        }
        let news = match (arguments.check, changed.as_slice()) {
            (true, _) => "as built from the sources".to_owned(),
            (false, []) => "unchanged".to_owned(),
            (false, changed) if changed.len() > FEW => format!("{} written", changed.len()),
            (false, changed) => format!("written: {}", changed.join(", ")),
        };
        let folder = target.folder(workspace);
        let folder = workspace.relative(&folder);
        println!("{folder}: {} modules, {entries} entries, {bytes} bytes; {news}", modules.len());
    }
    drop_others(workspace, &files, arguments.check)
}

/// The compiler that the committed text names.
fn committed_by(workspace: &Workspace) -> Option<String> {
    TARGETS.iter().find_map(|target| {
        let module = target.modules().into_keys().next()?;
        header::compiler(&read(&target.file(workspace, &module)).ok()?)
    })
}

/// What is built for a target: its modules, and the text of each.
type Built = (&'static Target, Modules, Vec<(String, String)>);
/// The entries of each module.
type Modules = BTreeMap<String, Vec<EntrySpec>>;

/// Compiles for all targets at once: the compiler has one thread for each.
fn build_all(workspace: &Workspace, toolchain: &Toolchain) -> Result<Vec<Built>> {
    let build_one = |target: &'static Target| -> Result<Built> {
        let modules = target.modules();
        let texts = build(workspace, toolchain, target, &modules)?;
        Ok((target, modules, texts))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = TARGETS
            .iter()
            .filter(|target| !target.modules().is_empty())
            .map(|target| scope.spawn(move || build_one(target)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The text of every module of a target, as it is committed.
fn build(
    workspace: &Workspace,
    toolchain: &Toolchain,
    target: &Target,
    modules: &Modules,
) -> Result<Vec<(String, String)>> {
    let raw = compile(workspace, toolchain, target)?;
    let mut ptx = Ptx::parse(&raw)?;
    prune_unreachable(&mut ptx);
    refuse_unresolved(&ptx)?;
    number_locally(&mut ptx);
    let entries: Vec<EntrySpec> = modules.values().flatten().cloned().collect();
    launch_bounds(&mut ptx, &entries, target.arch)?;
    let header = header::write(toolchain.version(), target);
    let text = |(name, entries): (&String, &Vec<EntrySpec>)| {
        let text = format!("{header}{}", only(&ptx, entries));
        refuse_unreproducible(workspace, &text)?;
        Ok((name.clone(), text))
    };
    modules.iter().map(text).collect()
}

/// Removes the PTX that no target writes any more, or fails because of it.
fn drop_others(workspace: &Workspace, files: &BTreeSet<PathBuf>, check: bool) -> Result<()> {
    let ptx_dir = workspace.ptx_dir();
    let folders = TARGETS.iter().map(|target| target.folder(workspace)).filter(|folder| folder.is_dir());
    for folder in folders.chain([ptx_dir]) {
        for file in std::fs::read_dir(&folder).context(folder.display())? {
            let path = file.context(folder.display())?.path();
            if path.extension().is_none_or(|extension| extension != "ptx") || files.contains(&path) {
                continue;
            }
            let name = workspace.relative(&path);
            if check {
                return Err(Failure::new(format!(
                    "{name}: no entry of the table is in it; `cargo xtask build-ptx` removes it"
                )));
            }
            std::fs::remove_file(&path).context(&name)?;
            println!("{name}: removed, no entry of the table is in it");
        }
    }
    Ok(())
}

/// Runs the device compiler; returns its assembly text.
fn compile(workspace: &Workspace, toolchain: &Toolchain, target: &Target) -> Result<String> {
    // One for each target: Cargo lets one build at a time into a folder.
    let target_dir = workspace.target("device").join(toolchain.folder_name()).join(target.arch.name());
    let assembly = target_dir.join("kernels.s");
    std::fs::create_dir_all(&target_dir).context(target_dir.display())?;
    if !assembly.is_file() {
        // Cargo does not know this file: with a crate it takes for fresh, nothing would write it again.
        let mut clean = toolchain.cargo(workspace);
        clean.args(["clean", "--quiet", "--package", "windrow-kernels", "--target-dir"]).arg(&target_dir);
        process::run(&mut clean)?;
    }
    let mut command = toolchain.cargo(workspace);
    command
        .args(["rustc", "--package", "windrow-kernels", "--lib", "--release", "-Zbuild-std=core"])
        .args(["--target", "nvptx64-nvidia-cuda", "--target-dir"])
        .arg(&target_dir)
        .arg("--")
        .arg(format!("--emit=asm={}", assembly.display()))
        .args(["-C", &format!("target-cpu={}", target.target_cpu)])
        .args(["-C", "codegen-units=1", "-C", "debuginfo=0"])
        // It copies barriers and votes into both arms of a branch that parts a warp: on a GPU that does not end.
        .arg("-Zmir-enable-passes=-JumpThreading");
    if !target.target_features.is_empty() {
        command.args(["-C", &format!("target-feature={}", target.target_features)]);
    }
    for argument in LLVM_ARGS {
        command.args(["-C", &format!("llvm-args={argument}")]);
    }
    fix_profile(&mut command);
    // Whatever path still reaches the text must not be this folder's.
    let remap = format!("--remap-path-prefix={}=windrow", workspace.root().display());
    command.env("CARGO_ENCODED_RUSTFLAGS", remap);
    process::run(&mut command)?;
    read(&assembly)
}

/// Pins every profile setting that reaches the code, so that neither the workspace's profiles nor a user's
/// configuration can change the text. Debug sections in particular would carry paths.
fn fix_profile(command: &mut Command) {
    for (name, value) in [
        ("OPT_LEVEL", "3"),
        ("DEBUG", "0"),
        ("CODEGEN_UNITS", "1"),
        ("LTO", "off"),
        ("PANIC", "abort"),
        ("DEBUG_ASSERTIONS", "false"),
        ("OVERFLOW_CHECKS", "false"),
        ("INCREMENTAL", "false"),
    ] {
        command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
}

fn refuse_unresolved(ptx: &Ptx) -> Result<()> {
    let calls = unresolved_calls(ptx);
    if calls.is_empty() {
        return Ok(());
    }
    let mut message = String::from(
        "the PTX calls functions that it does not contain. Nothing links it, so they must inline: avoid paths \
         that can panic (indexing, division by a run-time value, `unwrap`) and mark helpers `#[inline(always)]`.",
    );
    for (callee, callers) in calls {
        let callee = format!("{:#}", rustc_demangle::demangle(&callee));
        let callers: Vec<String> =
            callers.iter().map(|caller| format!("{:#}", rustc_demangle::demangle(caller))).collect();
        let _ = write!(message, "\n  {callee}\n    called by {}", callers.join(", "));
    }
    Err(Failure::new(message))
}

/// Debug sections and paths of this machine would make the text differ in the next folder.
fn refuse_unreproducible(workspace: &Workspace, text: &str) -> Result<()> {
    let root = workspace.root().display().to_string();
    let culprit = text.lines().find(|line| {
        let line = line.trim_start();
        line.contains(&root)
            || [".file", ".loc", ".section"].iter().any(|directive| {
                line.strip_prefix(directive).is_some_and(|rest| rest.starts_with([' ', '\t']))
            })
    });
    match culprit {
        None => Ok(()),
        Some(line) => Err(Failure::new(format!(
            "the PTX holds debug information or a path of this folder, so another build would differ: `{}`",
            line.trim()
        ))),
    }
}

/// Fails with the first difference between the committed and the built text.
fn compare(name: &str, committed: &str, built: &str) -> Result<()> {
    if committed == built {
        return Ok(());
    }
    let (was, is) = (header::compiler(committed), header::compiler(built));
    let reason = if was == is {
        "the sources have changed since it was built".to_owned()
    } else {
        format!(
            "it was built by another compiler ({}, here {}), so the texts cannot be compared. Use that compiler \
             (WINDROW_DEVICE_RUSTC), or commit what this one builds",
            was.as_deref().unwrap_or("unknown"),
            is.as_deref().unwrap_or("unknown")
        )
    };
    Err(Failure::new(format!(
        "{name} is not what the sources give: {reason}.\n{}\nRun `cargo xtask build-ptx`, then `cargo xtask \
         check-ptx --bless`, and look at what changed.",
        first_difference(committed, built)
    )))
}

/// The first line that differs, for a person.
fn first_difference(committed: &str, built: &str) -> String {
    let (mut old, mut new) = (committed.lines(), built.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (was, is) if was == is => {}
            (was, is) => {
                let show = |line: Option<&str>| line.unwrap_or("(end of text)").trim().to_owned();
                return format!(
                    "first difference, line {number}:\n  committed: {}\n  built:     {}",
                    show(was),
                    show(is)
                );
            }
        }
    }
    "the texts differ in line ends only".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "// Generated by `cargo xtask build-ptx`.\n// Compiler: rustc 1.96.0, LLVM 22\n";

    #[test]
    fn the_first_difference_is_shown() {
        let committed = format!("{HEADER}.version 7.0\n\tadd.s32 %r1, %r2, %r3;\n\tret;\n");
        let built = format!("{HEADER}.version 7.0\n\tsub.s32 %r1, %r2, %r3;\n\tret;\n");
        let error = compare("k.ptx", &committed, &built).expect_err("they differ").to_string();
        assert!(error.contains("sources have changed") && error.contains("line 4"), "{error}");
        assert!(error.contains("committed: add.s32") && error.contains("built:     sub.s32"), "{error}");
        compare("k.ptx", &committed, &committed).expect("equal texts pass");
    }

    #[test]
    fn another_compiler_is_the_reason_given() {
        let committed = format!("{HEADER}\tret;\n");
        let built = committed.replace("1.96.0", "1.97.0");
        let error = compare("k.ptx", &committed, &built).expect_err("they differ").to_string();
        assert!(
            error.contains("another compiler (rustc 1.96.0, LLVM 22, here rustc 1.97.0, LLVM 22)"),
            "{error}"
        );
    }

    #[test]
    fn a_shorter_text_differs_at_its_end() {
        let text = first_difference("a\nb\n", "a\n");
        assert!(text.contains("line 2") && text.contains("(end of text)"), "{text}");
        assert!(first_difference("a\r\n", "a\n").contains("line ends"));
    }
}

//! A copy of the working tree in which all chosen changes are compiled, and one at a time is switched on.

use super::find::{Site, sites};
use crate::failure::{Context, Result};
use crate::process;
use crate::workspace::{Workspace, read};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which mutant is on, and the file that tells which were reached.
pub(super) const ACTIVE: &str = "WINDROW_MUTANT";
pub(super) const REACHED: &str = "WINDROW_MUTANTS_REACHED";

/// A change to a file of a package.
#[derive(Debug)]
pub(super) struct Mutant {
    /// From the root, with slashes.
    pub(super) file: String,
    pub(super) site: Site,
    /// What stands there in the tree, on one line.
    pub(super) original: String,
}

impl Mutant {
    /// What changes, for a table.
    pub(super) fn change(&self) -> String {
        match self.site.statement {
            true => format!("`{}` left out", self.original),
            false => format!("`{}` → `{}`", self.original, one_line(&self.site.mutated)),
        }
    }

    /// What tells it from others of the same tree.
    pub(super) fn key(&self) -> String {
        format!("{}:{}:{}", self.file, self.site.range.start, self.site.mutated)
    }

    /// The text that stands in its place, in which mutant `number` can be switched on.
    fn switched(&self, number: usize, original: &str) -> String {
        let is_on = format!("crate::planted::is_on({number})");
        match self.site.statement {
            true => format!("if !{is_on} {{ {original} }}"),
            false => format!("(if {is_on} {{ {} }} else {{ {original} }})", self.site.mutated),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Files of the working tree, ignored ones left out.
fn files(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.current_dir(workspace.root());
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = process::capture(&mut command)?;
    let there = |file: &&str| workspace.root().join(file).is_file();
    Ok(listed.split('\0').filter(|file| !file.is_empty()).filter(there).map(str::to_owned).collect())
}

/// Whether a file of a package has code that is neither a test nor for another machine than this.
fn is_source(file: &str, folder: &str) -> bool {
    let tests = file.ends_with("tests.rs") || file.contains("/tests/");
    file.starts_with(folder)
        && file.ends_with(".rs")
        && !tests
        && !file.contains("/ptx/")
        && !file.ends_with("build.rs")
}

/// All mutants of the files below some folders whose path has `part` in it.
pub(super) fn candidates(workspace: &Workspace, folders: &[&str], part: &str) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for file in files(workspace)? {
        if file.contains(part) && folders.iter().any(|folder| is_source(&file, folder)) {
            let text = read(&workspace.root().join(&file))?;
            for site in sites(&file, &text)? {
                let original = one_line(&text[site.range.clone()]);
                mutants.push(Mutant { file: file.clone(), site, original });
            }
        }
    }
    Ok(mutants)
}

/// The copy: where each planted mutant stands in it.
pub(super) struct Copy {
    pub(super) root: PathBuf,
    /// By file, the bytes of each mutant.
    pub(super) places: BTreeMap<String, Vec<(Range<usize>, usize)>>,
}

/// Copies the tree, with those mutants planted that `is_in` names.
pub(super) fn copy(workspace: &Workspace, mutants: &[Mutant], is_in: impl Fn(usize) -> bool) -> Result<Copy> {
    let root = workspace.target("mutants").join("tree");
    let mut places: BTreeMap<String, Vec<(Range<usize>, usize)>> = BTreeMap::new();
    for file in files(workspace)? {
        let from = workspace.root().join(&file);
        let mut here: Vec<usize> =
            (0..mutants.len()).filter(|&i| is_in(i) && mutants[i].file == file).collect();
        let is_root = file.ends_with("src/lib.rs");
        if here.is_empty() && !is_root {
            write_if_other(&root.join(&file), &std::fs::read(&from).context(from.display())?)?;
            continue;
        }
        let text = read(&from)?;
        here.sort_by_key(|&i| mutants[i].site.range.start);
        let (mut planted, mut done) = (String::new(), 0);
        for i in here {
            let range = mutants[i].site.range.clone();
            planted.push_str(&text[done..range.start]);
            let start = planted.len();
            planted.push_str(&mutants[i].switched(i, &text[range.clone()]));
            places.entry(file.clone()).or_default().push((start..planted.len(), i));
            done = range.end;
        }
        planted.push_str(&text[done..]);
        if is_root {
            let module = include_str!("planted.rs.in").replace("COUNT", &mutants.len().to_string());
            planted.push_str(&module.replace("ACTIVE_NAME", ACTIVE).replace("REACHED_NAME", REACHED));
        }
        write_if_other(&root.join(&file), planted.as_bytes())?;
    }
    Ok(Copy { root, places })
}

/// Leaves alone what is right already, so that cargo does not compile it again.
fn write_if_other(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).context(folder.display())?;
    }
    std::fs::write(path, bytes).context(path.display())
}

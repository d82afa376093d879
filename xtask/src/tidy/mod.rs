//! `tidy`: the rules that neither the compiler nor clippy knows.
//!
//! Each rule is a function from what it looks at to a list of problems, tested on samples; [`check`] applies
//! them all to the working tree and also runs as a test, so it cannot be forgotten.

mod allow;
mod comments;
mod dependencies;
mod documents;
mod files;
mod glossary;
mod kernels;
mod layout;
mod machine;
mod source;
mod twins;
mod words;

use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

/// Everything that a run of the rules found.
#[derive(Debug, Default)]
struct Findings {
    /// Rules that are broken: each fails the run.
    problems: Vec<String>,
    /// What is allowed but should be looked at.
    warnings: Vec<String>,
}

impl Findings {
    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    fn warning(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// Prints what was found; fails if a rule is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let findings = check(workspace)?;
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    if findings.problems.is_empty() {
        println!("tidy: no problems, {} warning(s)", findings.warnings.len());
        return Ok(());
    }
    Err(Failure::new(format!(
        "tidy found {} problem(s)\n  {}",
        findings.problems.len(),
        findings.problems.join("\n  ")
    )))
}

/// Applies every rule to the working tree.
fn check(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut allowed = allow::Exceptions::read(workspace, &mut findings)?;
    let glossary = glossary::Glossary::read(workspace, &mut findings)?;
    let files = files::all(workspace)?;
    for file in &files {
        let Some(text) = &file.text else {
            layout::binary(&file.path, &mut findings);
            continue;
        };
        layout::unfinished(&file.path, text, &mut findings);
        if file.is_rust() || file.path.ends_with(".md") {
            glossary.documentation(&file.path, text, &mut findings);
        }
        if file.is_rust() {
            layout::module_doc(&file.path, text, &mut findings);
            layout::size(&file.path, text, &mut allowed, &mut findings);
            comments::check(&file.path, text, &mut allowed, &mut findings);
            let code = source::code_only(text);
            machine::check(&file.path, &code, &mut findings);
            words::check(&file.path, &code, &glossary, &mut allowed, &mut findings);
        }
    }
    allowed.report_unused(&mut findings);
    documents::check(&files, &mut findings);
    twins::check(&files, &mut findings);
    dependencies::check(&dependencies::read(workspace)?, &mut findings);
    kernels::check(workspace, &crate::entries::all(), &mut findings)?;
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_working_tree_is_tidy() {
        let workspace = Workspace::find().expect("tests run in the workspace");
        let findings = check(&workspace).expect("the tree can be read");
        assert!(findings.problems.is_empty(), "{:#?}", findings.problems);
    }
}

//! How often each crate says `unsafe`: never more than its ceiling, which only falls.

use std::collections::BTreeMap;

use super::Findings;
use super::source::identifiers;
use crate::failure::Result;
use crate::workspace::{Workspace, read};

/// Where the ceilings are.
const FILE: &str = "xtask/unsafe.txt";

/// The uses of `unsafe` in code, by the folder of the crate.
#[derive(Debug, Default)]
pub(super) struct Uses {
    by_crate: BTreeMap<String, usize>,
}

impl Uses {
    /// Counts those of one file, of which `code` is without comments and strings.
    pub(super) fn add(&mut self, path: &str, code: &str) {
        let folder = path.split('/').next().unwrap_or_default();
        let found = identifiers(code).filter(|(_, word)| *word == "unsafe").count();
        *self.by_crate.entry(folder.to_owned()).or_default() += found;
    }

    /// Compares them with the file of ceilings.
    pub(super) fn check(&self, workspace: &Workspace, findings: &mut Findings) -> Result<()> {
        let text = read(&workspace.root().join(FILE))?;
        self.compare(&text, findings);
        Ok(())
    }

    fn compare(&self, text: &str, findings: &mut Findings) {
        let mut ceilings = BTreeMap::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [folder, count] if count.parse::<usize>().is_ok() => {
                    ceilings.insert(folder, count.parse::<usize>().unwrap_or(0));
                }
                _ => findings.problem(format!("{FILE}:{}: want `CRATE COUNT`", index + 1)),
            }
        }
        for (folder, &found) in &self.by_crate {
            let ceiling = ceilings.remove(folder.as_str()).unwrap_or(0);
            if found > ceiling {
                findings.problem(format!(
                    "{folder}/: {found} times `unsafe`, ceiling {ceiling} in {FILE}: do without, or say in the \
                     commit why the ceiling must rise"
                ));
            } else if found < ceiling {
                findings.problem(format!(
                    "{FILE}: {folder} has {found} times `unsafe`: lower its ceiling from {ceiling}"
                ));
            }
        }
        for folder in ceilings.keys() {
            findings.problem(format!("{FILE}: there is no {folder}/ any more"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::code_only;

    fn compare(ceilings: &str) -> Vec<String> {
        let mut uses = Uses::default();
        uses.add(
            "host/src/a.rs",
            &code_only("unsafe { f() } // unsafe\nunsafe fn g(x: &str) { \"unsafe\"; }"),
        );
        uses.add("host/src/b.rs", "unsafe impl Send for A {}");
        uses.add("formats/src/c.rs", "fn unsafely() {}");
        let mut findings = Findings::default();
        uses.compare(ceilings, &mut findings);
        findings.problems
    }

    #[test]
    fn code_is_counted_and_must_match() {
        assert!(compare("# crate count\nformats 0\nhost 3\n").is_empty());
        assert!(compare("formats 0\nhost 2\n")[0].contains("3 times `unsafe`, ceiling 2"));
        assert!(compare("formats 0\nhost 4\n")[0].contains("lower its ceiling"));
        assert!(compare("host 3\nsimd 7\n")[0].contains("no simd/"));
        assert!(compare("host 3\nformats\n")[0].contains("want `CRATE COUNT`"));
    }

    #[test]
    fn a_crate_without_a_line_has_none() {
        assert!(compare("formats 0\n")[0].contains("ceiling 0"));
    }
}

//! What became of the mutants, as a table.

use super::judge::Verdict;
use super::plant::Mutant;
use std::fmt::Write;

/// What the table does not show.
pub(super) struct Counts {
    /// Mutants to draw from.
    pub(super) found: usize,
    /// Drawn, and left out as they do not compile.
    pub(super) broken: usize,
    /// Tests that judged the mutants.
    pub(super) tests: usize,
    /// Tests that took too long, or failed without a mutant.
    pub(super) left_out: usize,
}

/// The table, and how many met with each fate.
pub(super) fn table(judged: &[(&Mutant, Option<(Verdict, f64)>)], counts: &Counts) -> String {
    let mut text = String::from("| where | change | verdict | by | s |\n| --- | --- | --- | --- | --- |\n");
    let mut fates = [0; 4];
    let mut unjudged = 0;
    for (mutant, verdict) in judged {
        let Some((verdict, seconds)) = verdict else {
            unjudged += 1;
            continue;
        };
        let (fate, word, by) = match verdict {
            Verdict::Killed(test) => (0, "killed", test.clone()),
            Verdict::TimedOut(test) => (1, "timed out", test.clone()),
            Verdict::Survived { ran, of } => (2, "SURVIVED", format!("{ran} of {of} tests that reach it")),
            Verdict::Unreached => (3, "NOT REACHED", String::new()),
        };
        fates[fate] += 1;
        let change = mutant.change().replace('|', "\\|");
        let line = mutant.site.line;
        let _in_memory =
            writeln!(text, "| `{}:{line}` | {change} | {word} | {by} | {seconds:.1} |", mutant.file);
    }
    let [killed, timed_out, survived, unreached] = fates;
    let Counts { found, broken, tests, left_out } = counts;
    let _in_memory = writeln!(
        text,
        "\n{} mutants of {found} judged by {tests} tests ({left_out} left out): {killed} killed, {timed_out} timed out, \
         {survived} survived, {unreached} not reached; {broken} more did not compile, for {unjudged} there was no time",
        judged.len() - unjudged
    );
    text
}

//! `mutants`: small errors are planted in the sources, one at a time, and the tests have to notice.
//!
//! All mutants of a run are compiled at once into a copy of the working tree, `target/mutants/tree`, each behind a
//! switch that an environment variable turns: one build instead of hundreds. A first run of every test without a
//! mutant tells which mutants it passes by; only those tests are then asked about a mutant.

mod build;
mod find;
mod judge;
mod plant;
mod report;

use crate::failure::{Failure, Result};
use crate::workspace::Workspace;
use judge::Limits;
use plant::Mutant;
use std::time::Duration;

/// Packages, and the folders of their sources that are changed. Of `simt` the emulator only: what it does on a GPU no
/// test here runs.
const PACKAGES: [(&str, &str); 4] = [
    ("windrow-kernels", "device-kernels/src/"),
    ("windrow-simt", "simt/src/emulator/"),
    ("windrow-preprocess", "preprocess/src/"),
    ("windrow-formats", "formats/src/"),
];

/// Options of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many mutants are drawn.
    #[arg(long, default_value_t = 100)]
    sample: usize,
    /// What the drawing begins with: the same seed draws the same mutants of the same tree.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw from this package only: windrow-kernels, windrow-simt, windrow-preprocess or windrow-formats.
    #[arg(long)]
    package: Option<String>,
    /// Draw from files only whose path contains this.
    #[arg(long, default_value = "")]
    file: String,
    /// Tests that take more seconds than this judge nothing.
    #[arg(long, default_value_t = 20)]
    test_seconds: u64,
    /// No further test is begun for a mutant after so many seconds.
    #[arg(long, default_value_t = 120)]
    mutant_seconds: u64,
    /// No further mutant is begun after so many minutes.
    #[arg(long, default_value_t = 600)]
    minutes: u64,
    /// Tests that run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Draws, plants and judges mutants, and prints what became of them as a table.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let is_asked = |name: &str| arguments.package.as_deref().is_none_or(|package| package == name);
    let folders: Vec<&str> =
        PACKAGES.iter().filter(|(name, _)| is_asked(name)).map(|&(_, folder)| folder).collect();
    if folders.is_empty() {
        let known = PACKAGES.map(|(name, _)| name).join(", ");
        return Err(Failure::new(format!("--package: one of {known}")));
    }
    let candidates = plant::candidates(workspace, &folders, &arguments.file)?;
    let found = candidates.len();
    let mutants = draw(candidates, arguments.sample, arguments.seed);
    eprintln!("{} mutants of {found} are drawn", mutants.len());
    let (programs, broken) = build::build(workspace, &mutants)?;
    let limits = Limits {
        test: Duration::from_secs(arguments.test_seconds),
        mutant: Duration::from_secs(arguments.mutant_seconds),
        all: Duration::from_secs(60 * arguments.minutes),
        jobs: arguments.jobs,
    };
    let scratch = workspace.target("mutants").join("reached");
    let (tests, left_out) = judge::tests(&programs, &scratch, &limits)?;
    let whole: Vec<usize> = (0..mutants.len()).filter(|i| !broken.contains(i)).collect();
    let verdicts = judge::judge((&programs, &tests), &whole, &limits)?;
    let judged: Vec<_> = whole.iter().zip(verdicts).map(|(&i, verdict)| (&mutants[i], verdict)).collect();
    let counts = report::Counts { found, broken: broken.len(), tests: tests.len(), left_out };
    print!("{}", report::table(&judged, &counts));
    Ok(())
}

/// So many of the candidates, no two of which overlap, in the order of the files.
fn draw(mut candidates: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut state = seed;
    let mut drawn: Vec<Mutant> = Vec::new();
    while drawn.len() < count && !candidates.is_empty() {
        let mutant = candidates.swap_remove(below(&mut state, candidates.len()));
        let range = &mutant.site.range;
        let overlaps = |other: &Mutant| {
            other.file == mutant.file
                && other.site.range.start < range.end
                && range.start < other.site.range.end
        };
        if !drawn.iter().any(overlaps) {
            drawn.push(mutant);
        }
    }
    drawn.sort_by(|a, b| (&a.file, a.site.range.start).cmp(&(&b.file, b.site.range.start)));
    drawn
}

/// A number below `bound`: `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
fn below(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    usize::try_from((u128::from(z) * bound as u128) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Mutant> {
        let site = |start: usize, end: usize| find::Site {
            range: start..end,
            line: 1,
            mutated: String::new(),
            statement: true,
        };
        let mutant =
            |(start, end)| Mutant { file: "a.rs".into(), site: site(start, end), original: String::new() };
        (0..40).map(|i| (i, i + 1 + i % 3)).map(mutant).collect()
    }

    #[test]
    fn a_seed_draws_the_same_again_and_nothing_overlaps() {
        let starts =
            |seed| draw(candidates(), 10, seed).iter().map(|m| m.site.range.start).collect::<Vec<_>>();
        assert_eq!(starts(3), starts(3));
        assert_ne!(starts(3), starts(4));
        let drawn = draw(candidates(), 40, 3);
        assert!(drawn.windows(2).all(|beside| beside[0].site.range.end <= beside[1].site.range.start));
        assert!(drawn.len() < 40 && drawn.len() > 10);
    }
}

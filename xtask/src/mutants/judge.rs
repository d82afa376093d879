//! Which tests reach a mutant, and whether one of them fails.

use super::build::Program;
use super::plant::{ACTIVE, REACHED};
use crate::failure::{Context, Failure, Result};
use crate::process;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether a test has ended.
const POLL: Duration = Duration::from_millis(4);
/// A test may take so many times as long as without a mutant, and [`GRACE`].
const PATIENCE: u32 = 10;
const GRACE: Duration = Duration::from_secs(10);

/// A test, and what is known of it without a mutant.
pub(super) struct Test {
    program: usize,
    name: String,
    seconds: f64,
    /// Mutants that it passes by.
    reaches: BTreeSet<usize>,
}

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// This test failed on it.
    Killed(String),
    /// This test did not end.
    TimedOut(String),
    /// So many tests that pass by it ran, of so many.
    Survived { ran: usize, of: usize },
    /// No test that ran to its end in time passes by it.
    Unreached,
}

/// How long tests and mutants may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Tests that take longer judge nothing.
    pub(super) test: Duration,
    /// No test is begun for a mutant after so long.
    pub(super) mutant: Duration,
    /// No mutant is begun after so long.
    pub(super) all: Duration,
    /// Tests at a time.
    pub(super) jobs: usize,
}

enum Outcome {
    Passed,
    Failed,
    TimedOut,
}

fn run(program: &Program, name: &str, environment: (&str, &Path), limit: Duration) -> Result<Outcome> {
    let mut command = Command::new(&program.path);
    command.current_dir(&program.folder).args(["--exact", name, "--test-threads", "1"]);
    command.env(environment.0, environment.1).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env("RUST_BACKTRACE", "0").env("RAYON_NUM_THREADS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context(process::line(&command))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context(process::line(&command))? {
            return Ok(if status.success() { Outcome::Passed } else { Outcome::Failed });
        }
        if started.elapsed() > limit {
            child.kill().context(process::line(&command))?;
            child.wait().context(process::line(&command))?;
            return Ok(Outcome::TimedOut);
        }
        std::thread::sleep(POLL);
    }
}

/// Does `work` for every number below `count`, some at a time.
fn each<T: Send>(jobs: usize, count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return Ok(());
            }
            let result = work(i)?;
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, result));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        let lost = |_| Err(Failure::new("a thread panicked"));
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(lost))
    })?;
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|&(i, _)| i);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Runs every test once without a mutant, and says what it passes by and how long it takes. Those that take too long
/// are left out, and counted.
pub(super) fn tests(programs: &[Program], scratch: &Path, limits: &Limits) -> Result<(Vec<Test>, usize)> {
    std::fs::create_dir_all(scratch).context(scratch.display())?;
    let mut names = Vec::new();
    for (i, program) in programs.iter().enumerate() {
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).args(["--list", "--format", "terse"]);
        let listed = process::capture(&mut command)?;
        names.extend(
            listed.lines().filter_map(|line| line.strip_suffix(": test")).map(|name| (i, name.to_owned())),
        );
    }
    eprintln!("{} tests are run without a mutant", names.len());
    let tests = each(limits.jobs, names.len(), |i| {
        let (program, name) = &names[i];
        let told = scratch.join(format!("reached-{i}"));
        let _none = std::fs::remove_file(&told);
        let started = Instant::now();
        let outcome = run(&programs[*program], name, (REACHED, &told), limits.test)?;
        let seconds = started.elapsed().as_secs_f64();
        let reached = std::fs::read_to_string(&told).unwrap_or_default();
        let reaches = reached.lines().filter_map(|line| line.parse().ok()).collect();
        match outcome {
            Outcome::Passed => Ok(Some(Test { program: *program, name: name.clone(), seconds, reaches })),
            Outcome::Failed => {
                eprintln!("{name} fails without a mutant, so it judges nothing");
                Ok(None)
            }
            Outcome::TimedOut => Ok(None),
        }
    })?;
    let left_out = tests.iter().filter(|test| test.is_none()).count();
    Ok((tests.into_iter().flatten().collect(), left_out))
}

/// Switches each of these mutants on in turn, and runs the tests that pass by it, the quickest first, until one fails.
/// A mutant for which there was no time has no verdict.
pub(super) fn judge(
    (programs, tests): (&[Program], &[Test]),
    mutants: &[usize],
    limits: &Limits,
) -> Result<Vec<Option<(Verdict, f64)>>> {
    let begun = Instant::now();
    let judged = AtomicUsize::new(0);
    each(limits.jobs, mutants.len(), |i| {
        let mutant = mutants[i];
        if begun.elapsed() > limits.all {
            return Ok(None);
        }
        let mut reaching: Vec<&Test> = tests.iter().filter(|test| test.reaches.contains(&mutant)).collect();
        reaching.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let verdict = judge_one(programs, &reaching, mutant, limits)?;
        let number = judged.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("{number} of {}: mutant {mutant}: {verdict:?}", mutants.len());
        Ok(Some(verdict))
    })
}

fn judge_one(
    programs: &[Program],
    reaching: &[&Test],
    mutant: usize,
    limits: &Limits,
) -> Result<(Verdict, f64)> {
    let started = Instant::now();
    if reaching.is_empty() {
        return Ok((Verdict::Unreached, 0.0));
    }
    let mut ran = 0;
    let number = mutant.to_string();
    for test in reaching {
        if started.elapsed() > limits.mutant {
            break;
        }
        let limit = GRACE + Duration::from_secs_f64(test.seconds) * PATIENCE;
        let program = &programs[test.program];
        let name = || format!("{} {}", program.name, test.name);
        match run(program, &test.name, (ACTIVE, Path::new(&number)), limit)? {
            Outcome::Passed => ran += 1,
            Outcome::Failed => return Ok((Verdict::Killed(name()), started.elapsed().as_secs_f64())),
            Outcome::TimedOut => return Ok((Verdict::TimedOut(name()), started.elapsed().as_secs_f64())),
        }
    }
    Ok((Verdict::Survived { ran, of: reaching.len() }, started.elapsed().as_secs_f64()))
}

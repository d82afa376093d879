//! Commands of this program that run beside the steps, one after the other, and are told of when all are done.

use super::tally::Tally;
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::Workspace;
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::Instant;

/// Commands that are under way.
pub(super) struct Beside(JoinHandle<Result<Vec<Done>>>);

/// What became of a command.
struct Done {
    name: &'static str,
    seconds: f64,
    output: Output,
}

impl Beside {
    /// Starts the first of them; each has a name and arguments, and those behind one that fails do not run.
    pub(super) fn start(
        workspace: &Workspace,
        commands: &'static [(&'static str, &'static [&'static str])],
    ) -> Result<Self> {
        let program = std::env::current_exe().context("the place of this program")?;
        let root = workspace.root().to_owned();
        Ok(Self(std::thread::spawn(move || {
            let mut done = Vec::new();
            for &(name, arguments) in commands {
                let started = Instant::now();
                let mut command = Command::new(&program);
                command.args(arguments).current_dir(&root);
                let output = command.output().context(process::line(&command))?;
                let failed = !output.status.success();
                done.push(Done { name, seconds: started.elapsed().as_secs_f64(), output });
                if failed {
                    break;
                }
            }
            Ok(done)
        })))
    }

    /// Waits for all of them, passes on what they have printed, adds up the tests among it, and notes their times.
    ///
    /// # Errors
    /// If one has failed.
    pub(super) fn finish(self, times: &mut Vec<(&'static str, f64)>, tally: &mut Tally) -> Result<()> {
        let done = self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut failure = None;
        for Done { name, seconds, output } in done {
            eprintln!("\n== {name}");
            let printed = String::from_utf8_lossy(&output.stdout);
            printed.lines().for_each(|line| tally.add(line));
            print!("{printed}");
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            times.push((name, seconds));
            if !output.status.success() {
                failure = Some(Failure::new(format!("{name} ended with {}", output.status)));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

//! `windrow-bench`: measures suites of products; JSON lines out, progress on standard error.

use std::process::ExitCode;

fn main() -> ExitCode {
    windrow_bench::main()
}

//! Too little memory: an error with exit code 6, whatever it is that does not fit.

use super::run::{Folder, windrow};
#[cfg(unix)]
use super::run::{Outcome, finish};

/// Runs with so many KiB of address space and two threads.
#[cfg(unix)]
fn within(kib: u32, arguments: &[&str]) -> Outcome {
    let limited = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &limited, env!("CARGO_BIN_EXE_windrow")]).args(arguments);
    shell.stdin(std::process::Stdio::null());
    finish(shell.env("RAYON_NUM_THREADS", "2").env("WINDROW_CACHE_DIR", ""))
}

/// "F of T bytes are free", if it says so: no more than there are.
#[cfg(unix)]
fn free_is_part_of_all(message: &str) {
    let Some((before, _)) = message.split_once(" bytes are free") else { return };
    let numbers: Vec<u64> = before.rsplit(' ').step_by(2).take(2).map(|word| word.parse().unwrap()).collect();
    assert!(numbers[1] <= numbers[0], "{message}");
}

/// Less and less memory, down to where threads hardly start: a result, or exit code 6 with numbers.
///
/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[cfg(unix)]
#[test]
fn shrinking_memory_ends_in_an_error() {
    let folder = Folder::new();
    // A row for each number up to the largest: 16 bytes of text, 17 MB of offsets.
    let graph = folder.file("rows.txt", "0 2097151\n");
    let tensor = folder.file("slices.tns", "1 1 1 1.0\n2097152 2 2 2.0\n");
    let [order, archive, gzipped] = ["rows.order", "rows.npz", "rows.mtx.gz"].map(|name| folder.path(name));
    let [pruned, picture] = ["pruned.safetensors", "rows.svg"].map(|name| folder.path(name));
    let weights = folder.path("weights.safetensors");
    let make = ["nm", "--shape", "1x1024x8192", "--pattern", "2:8", "--save", &weights, "--device", "cpu"];
    windrow(&make).succeeded();
    for work in [
        &["info", &graph][..],
        &["spmm", &graph, "--width", "1", "--device", "cpu", "--repeat", "1"],
        &["sddmm", &graph, "--inner", "2", "--device", "cpu", "--repeat", "1"],
        &["reorder", &graph, &order, "--method", "degree"],
        &["reorder", &graph, &order, "--method", "rcm"],
        &["reorder", &graph, &order, "--method", "similarity"],
        &["convert", &graph, &archive],
        &["convert", &graph, &gzipped],
        &["mttkrp", &tensor, "--width", "3", "--device", "cpu", "--repeat", "1"],
        &["ttm", &tensor, "--width", "3", "--device", "cpu", "--repeat", "1", "--verify"],
        &[
            "nm",
            "--shape",
            "4x2048x4096",
            "--pattern",
            "2:8",
            "--save",
            &pruned,
            "--device",
            "cpu",
            "--repeat",
            "1",
        ],
        &["nm", "--shape", "64", "--pruned", &weights, "--device", "cpu", "--repeat", "1", "--verify"],
        &["spy", &graph, "--out", &picture],
    ] {
        let mut refused = 0;
        for kib in [500_000, 300_000, 180_000, 120_000, 80_000, 60_000] {
            let outcome = within(kib, work);
            match outcome.code {
                Some(0) => {}
                Some(6) => {
                    // What is allocated is told in bytes; what a file names, in what it names.
                    let told = match &outcome.stderr {
                        limited if limited.contains("are more than the limit of") => "raise it with",
                        checked if checked.contains(" need ") || checked.contains("; use a smaller --") => {
                            " are free on "
                        }
                        _ => " bytes",
                    };
                    outcome.failed(6, &[told]);
                    free_is_part_of_all(&outcome.stderr);
                    refused += 1;
                }
                _ => panic!("{kib} KiB, {work:?}: {outcome:?}"),
            }
        }
        assert!(refused > 0, "{work:?}: 60 MB are enough");
    }
}

/// A limit comes before the memory that it limits: these would take 34 GB.
#[test]
fn limits_come_before_allocations() {
    let folder = Folder::new();
    let tensor = folder.file("slices.tns", "1 1 1 1.0\n4294967295 2 2 2.0\n");
    let limited = ["mttkrp", &tensor, "--width", "3", "--device", "cpu", "--memory-limit", "1MiB"];
    windrow(&limited).failed(6, &["the plan needs 343597", "the limit is 1048576", "slice_offsets"]);
}

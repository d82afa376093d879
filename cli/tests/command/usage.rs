//! The command line itself.

use super::run::{data, windrow};

const COMMANDS: [&str; 13] = [
    "info", "spy", "spmm", "sddmm", "mttkrp", "ttm", "nm", "verify", "reorder", "convert", "gen", "tune",
    "doctor",
];

#[test]
fn help_is_there_with_examples() {
    let help = windrow(&["--help"]);
    help.succeeded().says(&["6", "limit"]).says(&["130", "Ctrl-C"]).says(&["Exit codes"]);
    for command in COMMANDS {
        help.says(&[command]);
        let outcome = windrow(&[command, "--help"]);
        outcome.succeeded().says(&["Examples:"]).says(&[&format!("windrow {command} ")]).says(&["--json"]);
        let wide = outcome.stdout.lines().find(|line| line.chars().count() > 110);
        assert_eq!(wide, None, "{command}");
    }
    windrow(&["--version"]).succeeded().says(&["windrow", env!("CARGO_PKG_VERSION")]);
}

#[test]
fn nonsense_ends_with_2() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&["frobnicate"]).failed(2, &["frobnicate"]);
    windrow(&["info"]).failed(2, &["<FILE>"]);
    windrow(&["info", &file, "--sepia"]).failed(2, &["--sepia"]);
    windrow(&["spmm", &file]).failed(2, &["--width"]);
    windrow(&["spmm", &file, "--width", "-1"]).failed(2, &["-1"]);
    windrow(&["spmm", &file, "--width", "8", "--repeat", "0"]).failed(2, &["--repeat"]);
    windrow(&["info", &file, "--max-bytes", "lots"]).failed(2, &["--max-bytes", "64KiB"]);
    windrow(&["info", &file, "--spy-size", "wide"]).failed(2, &["--spy-size", "60x30"]);
    windrow(&["info", &file, "--threads", "0"]).failed(2, &["--threads"]);
    assert_eq!(windrow(&[]).code, Some(2), "no command is no success");
}

#[test]
fn threads_are_limited() {
    let file = data("mbeacxc.mtx.gz");
    let outcome = windrow(&["spmm", &file, "-n", "8", "--device", "cpu", "--repeat", "1", "--threads", "3"]);
    outcome.succeeded().says(&["device", "3 threads"]);
}

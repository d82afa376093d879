//! The command line itself.

use super::run::{data, windrow};

const COMMANDS: [&str; 14] = [
    "info",
    "spy",
    "spmm",
    "sddmm",
    "attention",
    "mttkrp",
    "ttm",
    "nm",
    "verify",
    "reorder",
    "convert",
    "gen",
    "tune",
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
    // The help of `bench` is that of another program.
    help.says(&["bench"]);
    let outcome = windrow(&["completions", "--help"]);
    outcome.succeeded().says(&["windrow completions zsh"]);
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

#[test]
fn shells_complete_commands_and_options() {
    for (shell, parts) in [
        ("bash", ["complete -F _windrow", "--precision"]),
        ("zsh", ["#compdef windrow", "--precision"]),
        ("fish", ["complete -c windrow", "precision"]),
    ] {
        let outcome = windrow(&["completions", shell]);
        parts.iter().for_each(|part| {
            outcome.succeeded().says(&[part]);
        });
        COMMANDS.iter().for_each(|command| {
            outcome.says(&[command]);
        });
    }
    windrow(&["completions", "tcsh"]).failed(2, &["tcsh", "fish"]);
}

/// Programs that stand for windrow-bench here: one that says which words it was given, one that fails.
#[cfg(unix)]
#[test]
fn bench_hands_everything_to_the_program_beside() {
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    use super::run::finish;

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (own, beside) = (folder.join("windrow"), folder.join("windrow-bench"));
    // A file that was just written may be busy while another test starts a program.
    std::fs::hard_link(env!("CARGO_BIN_EXE_windrow"), &own).unwrap();
    let start = |words: &[&str]| finish(Command::new(&own).arg("bench").args(words).env("PATH", ""));
    start(&["compare"]).failed(3, &["windrow-bench", "cargo install windrow-bench"]);
    symlink("/bin/echo", &beside).unwrap();
    let words = ["compare", "a.jsonl", "--gate", "5%", "--json", "-q"];
    start(&words).succeeded().says(&["compare a.jsonl --gate 5% --json -q"]);
    start(&["--help", "spmm"]).succeeded().says(&["--help spmm"]);
    std::fs::remove_file(&beside).unwrap();
    symlink("/bin/false", &beside).unwrap();
    assert_eq!(start(&words).code, Some(1));
    std::fs::remove_dir_all(&folder).unwrap();
}

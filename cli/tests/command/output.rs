//! Standard output and standard error: who gets what, and what if nobody listens.

use std::process::Stdio;

use super::run::{command, data, finish, windrow};

#[test]
fn quiet_is_quiet() {
    let arguments = ["verify", &data("mbeacxc.mtx.gz"), "--device", "cpu", "--widths", "2"];
    let talking = windrow(&arguments);
    assert!(talking.succeeded().stderr.contains("49,920 entries"), "{talking:?}");
    let quiet = finish(command(&arguments).arg("--quiet"));
    assert!(quiet.succeeded().stderr.is_empty(), "{quiet:?}");
    assert_eq!(quiet.stdout.lines().count(), talking.stdout.lines().count());
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let file = data("mbeacxc.mtx.gz");
    for arguments in [
        vec!["info", &file],
        vec!["info", &file, "--json"],
        vec!["verify", &file, "--device", "cpu", "--widths", "2"],
        vec!["spmm", &file, "-n", "4", "--device", "cpu", "--repeat", "1"],
    ] {
        let mut child = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        // Closed long before the matrix is read.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(141), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    finish(command(&["gen", "--list"]).stdout(full)).failed(3, &["cannot write to standard output"]);
}

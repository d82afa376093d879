//! Ctrl-C while a command is at work.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::run::{Folder, command, windrow};

/// Sends the signal of Ctrl-C.
fn press_ctrl_c(child: &Child) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-INT", &pid]).status().expect("every unix has kill");
    assert!(status.success());
}

/// The exit code, within a time that is far below that of the work.
fn ends(child: &mut Child) -> Option<i32> {
    let pressed = Instant::now();
    while pressed.elapsed() < Duration::from_secs(20) {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it did not end");
}

#[test]
fn work_that_is_interrupted_leaves_what_was_there() {
    let folder = Folder::new();
    let matrix = folder.path("rmat17.npz");
    windrow(&["gen", "rmat17", &matrix]).succeeded();
    folder.file("old.order", "what was there");
    for name in ["old.order", "new.order"] {
        let order = folder.path(name);
        let arguments = ["reorder", &matrix, &order];
        let mut child = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        // It says when the work begins, which takes seconds.
        stderr.read_line(&mut line).expect("standard error is text");
        assert!(line.contains("ordering 131,072 rows"), "{line}");
        press_ctrl_c(&child);
        assert_eq!(ends(&mut child), Some(130));
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).expect("standard error is text");
        assert_eq!(rest, "error: interrupted; nothing was written\n");
        assert_eq!(folder.names(), ["old.order", "rmat17.npz"]);
    }
    assert_eq!(std::fs::read(folder.path("old.order")).unwrap(), b"what was there");
}

#[cfg(target_os = "linux")]
#[test]
fn reading_is_interrupted_at_once() {
    let folder = Folder::new();
    let order = folder.path("a.order");
    let mut child = command(&["reorder", "-", &order])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux tells");
        // Bit 1 is SIGINT.
        u64::from_str_radix(caught.trim(), 16).expect("a hexadecimal number") & 0b10 != 0
    };
    let started = Instant::now();
    while !listens() {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    press_ctrl_c(&child);
    assert_eq!(ends(&mut child), Some(130));
    let mut stderr = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("standard error is text");
    assert_eq!(stderr, "error: interrupted; nothing was written\n");
    assert_eq!(folder.names(), [""; 0]);
}

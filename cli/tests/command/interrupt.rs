//! Signals: every command ends with the code of the signal, says so, and leaves nothing behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windrow::io::{DenseTensor, write_tensors};

use super::run::{Folder, command, windrow};

/// A signal, the exit code for it, and how it is told.
const SIGNALS: [(&str, i32, &str); 2] = [("-INT", 130, "interrupted"), ("-TERM", 143, "terminated")];
/// More than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(arguments: &[&str]) -> Child {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([signal, &pid]).status().expect("every unix has kill");
    assert!(status.success());
}

/// The exit code, within a time that is far below that of the work.
fn ends(child: &mut Child) -> Option<i32> {
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it did not end");
}

fn rest_of(stream: Option<impl Read>) -> String {
    let mut text = String::new();
    stream.expect("it is piped").read_to_string(&mut text).expect("it is text");
    text
}

#[test]
fn work_that_is_interrupted_leaves_what_was_there() {
    let folder = Folder::new();
    let matrix = folder.path("rmat17.npz");
    windrow(&["gen", "rmat17", &matrix]).succeeded();
    folder.file("old.order", "what was there");
    for (name, (signal, code, what)) in ["old.order", "new.order"].into_iter().zip(SIGNALS) {
        let mut child = start(&["reorder", &matrix, &folder.path(name)]);
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        // It says when the work begins, which takes seconds.
        stderr.read_line(&mut line).expect("standard error is text");
        assert!(line.contains("ordering 131,072 rows"), "{line}");
        send(signal, &child);
        assert_eq!(ends(&mut child), Some(code));
        assert_eq!(rest_of(Some(stderr)), format!("error: {what}; nothing was written\n"));
        assert_eq!(folder.names(), ["old.order", "rmat17.npz"]);
    }
    assert_eq!(std::fs::read(folder.path("old.order")).unwrap(), b"what was there");
}

#[test]
fn a_file_that_is_half_written_is_removed() {
    let folder = Folder::new();
    let matrix = folder.path("rmat17.npz");
    windrow(&["gen", "rmat17", &matrix]).succeeded();
    let output = folder.file("a.mtx.gz", "what was there");
    for (signal, code, what) in SIGNALS {
        let mut child = start(&["convert", &matrix, &output, "--quiet"]);
        let started = Instant::now();
        while folder.unfinished_bytes() == 0 && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE, "it writes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It compresses for a second or more.
        send(signal, &child);
        assert_eq!(ends(&mut child), Some(code));
        assert_eq!(rest_of(child.stderr.take()), format!("error: {what}; nothing was written\n"));
        assert_eq!(folder.names(), ["a.mtx.gz", "rmat17.npz"]);
        assert_eq!(std::fs::read(&output).unwrap(), b"what was there");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_command_that_reads_ends_at_once() {
    let folder = Folder::new();
    let output = folder.path("output");
    let nothing = "; nothing was written";
    for (at, (arguments, written)) in [
        (&["reorder", "-", &output][..], nothing),
        (&["convert", "-", &output, "--to", "smtx"], nothing),
        (&["spy", "-", "--out", &output], nothing),
        (&["info", "-"], ""),
        (&["spmm", "-", "--width", "3", "--device", "cpu"], ""),
        (&["sddmm", "-", "--inner", "3", "--device", "cpu"], ""),
        (&["mttkrp", "-", "--width", "3", "--device", "cpu"], ""),
        (&["verify", "-", "--device", "cpu"], ""),
        (&["tune", "-", "--width", "3", "--device", "cpu", "--dry-run"], ""),
    ]
    .into_iter()
    .enumerate()
    {
        let mut child = start(arguments);
        let listens = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux tells");
            // Bits 1 and 14 are SIGINT and SIGTERM.
            let both = 1 << 1 | 1 << 14;
            u64::from_str_radix(caught.trim(), 16).expect("a hexadecimal number") & both == both
        };
        let started = Instant::now();
        while !listens() {
            assert!(started.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        // What is written is checked before anything is read.
        std::thread::sleep(Duration::from_millis(200));
        let (signal, code, what) = SIGNALS[at % 2];
        send(signal, &child);
        assert_eq!(ends(&mut child), Some(code), "{arguments:?}");
        assert_eq!(rest_of(child.stderr.take()), format!("error: {what}{written}\n"), "{arguments:?}");
        assert_eq!(folder.names(), [""; 0]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_nohup_asks_for_stays() {
    let ignored = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let ignored = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("Linux tells");
    // These tests may be run by nohup themselves.
    if u64::from_str_radix(ignored.trim(), 16).expect("a hexadecimal number") & 1 == 0 {
        let mut child = start(&["info", "-"]);
        std::thread::sleep(Duration::from_millis(300));
        send("-HUP", &child);
        assert_eq!(ends(&mut child), Some(129));
        assert_eq!(rest_of(child.stderr.take()), "error: terminated\n");
    }
    // The shell that ignores a signal starts programs that do.
    let script = format!("trap '' HUP; exec {} info -", env!("CARGO_BIN_EXE_windrow"));
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    std::thread::sleep(Duration::from_millis(300));
    send("-HUP", &child);
    std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), b"0 1\n").expect("it reads");
    assert_eq!(ends(&mut child), Some(0));
}

#[test]
fn a_model_that_is_interrupted_leaves_no_folder() {
    let folder = Folder::new();
    let weights = vec![1.5f32; 1024 * 1024];
    let tensors: Vec<DenseTensor<f32>> = (0..16)
        .map(|layer| DenseTensor::new(format!("layer.{layer}"), 1024, 1024, weights.clone()).unwrap())
        .collect();
    let mut content = Vec::new();
    write_tensors(&mut content, &tensors).unwrap();
    let model = folder.path("model");
    std::fs::create_dir(&model).unwrap();
    folder.file("model/model.safetensors", content);
    let (out, names_in) = (folder.path("out"), |path: &str| -> Vec<String> {
        let names = std::fs::read_dir(path).into_iter().flatten();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    });
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&out).unwrap();
        }
        // What it writes is in a folder beside a new one, and in one that is there.
        let parent = if is_there { out.clone() } else { folder.path("") };
        for (signal, code, what) in SIGNALS {
            let mut child = start(&["prune", &model, &out, "--pattern", "2:4"]);
            let begun = Instant::now();
            // A file is in it once it has begun; it takes a second.
            let has_file = |name: &String| {
                name.starts_with(".windrow-") && !names_in(&format!("{parent}/{name}")).is_empty()
            };
            while !names_in(&parent).iter().any(has_file) {
                assert!(begun.elapsed() < PATIENCE, "it did not begin to write");
                std::thread::sleep(Duration::from_millis(1));
            }
            send(signal, &child);
            assert_eq!(ends(&mut child), Some(code));
            assert_eq!(rest_of(child.stderr.take()), format!("error: {what}; nothing was written\n"));
            assert_eq!(folder.names(), if is_there { &["model", "out"][..] } else { &["model"] });
            assert!(names_in(&out).is_empty());
        }
    }
}

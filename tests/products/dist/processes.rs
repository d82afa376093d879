//! Ranks that are processes: they meet, multiply, and name the one that is killed.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windrow::dist::{Communicator, Rendezvous};

use super::at_once;
use crate::numbered_examples::built;

/// A place for a group to meet at, which no other test has.
fn place() -> PathBuf {
    static PLACES: AtomicUsize = AtomicUsize::new(0);
    let (own, number) = (std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(format!("windrow-rendezvous-{own}-{number}"))
}

/// What each rank makes of a group whose ranks meet as processes do, though they are threads here.
pub(super) fn ranks<T: Send>(size: usize, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let place = place();
    at_once((0..size).collect(), |rank| work(Rendezvous::by_file(&place, rank, size).join().unwrap()))
}

/// The example `dist_spmm` as so many processes with some arguments, if it is built.
fn start(size: usize, arguments: &[&str]) -> Option<Vec<Child>> {
    let path = built("dist_spmm")?;
    let place = place();
    let started = (0..size).map(|rank| {
        let mut command = Command::new(&path);
        command.arg("--processes").args(arguments);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
        command.env("WINDROW_RENDEZVOUS", &place);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    Some(started.collect())
}

/// How a process ended, and what it wrote to its two outputs.
fn ended(child: Child) -> (ExitStatus, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status, text(&output.stdout), text(&output.stderr))
}

const WHAT: &str = "processes as ranks";

#[test]
fn processes_multiply() {
    let Some(children) = start(3, &["random:300:7", "--width", "5", "--repeat", "1"]) else {
        return windrow_testkit::announce_skip(WHAT, 1, "the example is not built here");
    };
    let all: Vec<_> = children.into_iter().map(ended).collect();
    assert!(all.iter().all(|(status, ..)| status.success()), "{all:?}");
    let said = &all[0].1;
    for scheme in ["halo", "all-gather", "columns"] {
        let line = said.lines().find(|line| line.starts_with(scheme)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains("off by 0.0e0"), "{line}"); // of whole numbers
    }
}

/// Promise, faults: the other ranks of a group name the one whose process is killed, and end.
#[test]
fn a_killed_process_is_named_by_all_others() {
    let busy = ["random:64:2", "--width", "1", "--repeat", "10000"];
    let Some(mut children) = start(3, &busy) else {
        return windrow_testkit::announce_skip(WHAT, 1, "the example is not built here");
    };
    // Rank 0 says when the products of all begin, of which there are some 600,000.
    let mut said = BufReader::new(children[0].stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("one device") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "{:?}", ended(children.swap_remove(0)));
    }
    children[2].kill().unwrap();
    let begun = Instant::now();
    let killed = ended(children.remove(2));
    for child in children {
        let (status, _, told) = ended(child);
        assert_eq!(status.code(), Some(1), "{told}");
        // By its own connection, or by the other rank, whichever tells it first.
        assert!(told.contains("rank 2 failed while this rank, "), "{told}");
        assert!(told.contains("its process has ended"), "{told}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(!killed.0.success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("columns"), "it had ended before: {rest}");
}

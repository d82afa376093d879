//! Commands that are killed in the middle: what they were to replace is as it was, or is replaced by all that is new.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::run::{Folder, command, data, windrow};

/// Moments at which each command is killed, at least; all of them with `WINDROW_ALL_CASES=1`.
const MOMENTS: [usize; 2] = [5, 100];
/// Further moments at which it is killed until what is looked for was found.
const MORE_MOMENTS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(120);

/// Numbers from 0 to 1 that look random (xorshift64*, Vigna 2016), the same in every run.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        f64::from(u32::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32).unwrap())
            / f64::from(u32::MAX)
    }
}

/// What was found at the target.
#[derive(Debug, Default)]
struct Found {
    old: usize,
    new: usize,
    /// Times at which a part of the new content was in a temporary file.
    midway: usize,
}

/// Kills the command at random moments of its time, every other one counted from when it begins to write, and goes on
/// until what is `sought` was found.
fn kill(arguments: &[&str], name: &str, seed: u64, sought: fn(&Found) -> bool) {
    let all = std::env::var_os("WINDROW_ALL_CASES").is_some_and(|value| value == "1");
    let folder = Folder::new();
    let target = folder.path(name);
    let arguments: Vec<&str> =
        arguments.iter().map(|&word| if word == "TARGET" { &*target } else { word }).collect();
    let started = Instant::now();
    windrow(&arguments).succeeded();
    let mut time = started.elapsed();
    let new = std::fs::read(&target).unwrap();
    let (mut moments, mut found) = (Moments(seed), Found::default());
    let least = MOMENTS[usize::from(all)];
    for round in 0..least + MORE_MOMENTS {
        if round >= least && sought(&found) {
            break;
        }
        std::fs::write(&target, "what was there").unwrap();
        let mut child = command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        let wait = if round % 2 == 0 {
            time.mul_f64(1.1 * moments.next())
        } else {
            let started = Instant::now();
            while folder.unfinished_bytes() == 0 && child.try_wait().unwrap().is_none() {
                assert!(started.elapsed() < PATIENCE, "it writes nothing");
                std::thread::sleep(Duration::from_micros(200));
            }
            time.mul_f64(0.1 * moments.next())
        };
        std::thread::sleep(wait);
        // On unix this is SIGKILL, which no program can catch.
        child.kill().expect("it is ours");
        child.wait().expect("it ended");
        found.midway += usize::from(folder.unfinished_bytes() > 0);
        let content = std::fs::read(&target).unwrap();
        match content == b"what was there" {
            true => found.old += 1,
            false => {
                assert!(content == new, "round {round}: {} bytes of {}", content.len(), new.len());
                found.new += 1;
            }
        }
        // It takes another time whenever the machine has other work.
        time = time.mul_f64(if content == new { 0.8 } else { 1.1 });
        for name in folder.names().iter().filter(|file| *file != name) {
            assert!(name.starts_with(".windrow-") && name.ends_with(".tmp"), "{name}");
            std::fs::remove_file(folder.path(name)).unwrap();
        }
    }
    eprintln!("{name}: {found:?}");
    assert!(sought(&found), "{name}: {found:?}");
}

#[test]
fn conversions() {
    let matrix = data("ct2010.mtx.gz");
    for (name, seed) in [("a.mtx", 1), ("a.txt", 2), ("a.npz", 3), ("a.smtx.gz", 4)] {
        kill(&["convert", &matrix, "TARGET"], name, seed, |found| found.midway > 0);
    }
}

#[test]
fn made_up_matrices() {
    kill(&["gen", "roadlike500k", "TARGET"], "a.mtx", 5, |found| found.midway > 0);
}

#[test]
fn orders() {
    let matrix = data("ct2010.mtx.gz");
    let arguments = ["reorder", &matrix, "TARGET", "--method", "degree"];
    kill(&arguments, "a.order", 6, |found| found.old > 0 && found.new > 0);
}

#[test]
fn weights() {
    let arguments = [
        "nm",
        "--pattern",
        "2:4",
        "--shape",
        "1x1024x2048",
        "--save",
        "TARGET",
        "-d",
        "cpu",
        "--repeat",
        "1",
    ];
    for (name, seed) in [("a.safetensors", 7), ("a.npz", 8)] {
        kill(&arguments, name, seed, |found| found.old > 0 && found.new > 0);
    }
}

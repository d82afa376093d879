//! Where commands write: standard output, devices, and never over what they read.

use std::fs::File;
use std::process::Stdio;

use windrow::io::{self, DenseTensor, write_tensors};

use super::run::{Folder, Outcome, command, data, finish, windrow};

const TRIANGLE: &str = "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 1.5\n2 3 2\n3 1 -3\n";

/// Runs the command with standard output into a new file; that, and what became of the rest.
fn into_file(folder: &Folder, arguments: &[&str]) -> (Vec<u8>, Outcome) {
    let path = folder.path("stdout");
    let outcome = finish(command(arguments).stdout(File::create(&path).unwrap()));
    (std::fs::read(path).unwrap(), outcome)
}

#[test]
fn a_dash_is_standard_output() {
    let folder = Folder::new();
    let matrix = folder.file("a.mtx", TRIANGLE);
    for (name, format) in
        [("b.mtx", "matrix-market"), ("b.txt", "edge-list"), ("b.smtx", "smtx"), ("b.npz", "scipy-npz")]
    {
        let file = folder.path(name);
        windrow(&["convert", &matrix, &file]).succeeded();
        for standard in ["-", "/dev/stdout"] {
            let (bytes, outcome) = into_file(&folder, &["convert", &matrix, standard, "--to", format]);
            outcome.succeeded();
            assert_eq!(bytes, std::fs::read(&file).unwrap(), "{format} to {standard}");
            let report = format!("standard output: 3 × 3, 3 entries, {format}");
            assert!(outcome.stderr.contains(&report), "{outcome:?}");
        }
    }
    let order = folder.path("b.order");
    windrow(&["reorder", &matrix, &order]).succeeded();
    let (bytes, outcome) = into_file(&folder, &["reorder", &matrix, "-"]);
    assert!(outcome.succeeded().stderr.contains("column vectors"), "{outcome:?}");
    assert_eq!(bytes, std::fs::read(&order).unwrap());
    let picture = folder.path("b.svg");
    windrow(&["spy", &matrix, "--out", &picture]).succeeded();
    let (bytes, outcome) = into_file(&folder, &["spy", &matrix, "--out", "-", "--quiet"]);
    assert!(outcome.succeeded().stderr.is_empty(), "{outcome:?}");
    assert_eq!(bytes, std::fs::read(&picture).unwrap());
    let weights = folder.path("b.safetensors");
    let nm = |save: &str| {
        into_file(&folder, &["nm", "--pattern", "2:4", "--shape", "2x8x8", "-d", "cpu", "--save", save])
    };
    nm(&weights).1.succeeded();
    assert_eq!(nm("-").0, std::fs::read(&weights).unwrap());
    let (bytes, outcome) = into_file(&folder, &["gen", "community60k", "-", "--to", "scipy-npz"]);
    outcome.succeeded();
    assert!(bytes.starts_with(b"PK"));
    assert!(!folder.names().iter().any(|name| name == "-" || name.starts_with(".windrow")));
}

#[test]
fn standard_output_has_one_thing_at_a_time() {
    let folder = Folder::new();
    let matrix = folder.file("a.mtx", TRIANGLE);
    windrow(&["convert", &matrix, "-"]).failed(2, &["standard output has no name", "--to"]);
    windrow(&["gen", "fem100k", "-"]).failed(2, &["--to"]);
    for arguments in [
        &["convert", &matrix, "-", "--to", "smtx", "--json"][..],
        &["reorder", &matrix, "-", "--json"],
        &["spy", &matrix, "-o", "-", "--json"],
        &["nm", "--pattern", "2:4", "--shape", "2x8x8", "--save", "-", "--json"],
    ] {
        let outcome = windrow(arguments);
        outcome.failed(2, &["--json and the file cannot both go to standard output"]);
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
    }
    // Whoever reads may go away.
    let mut child = command(&["convert", &data("ct2010.mtx.gz"), "-", "--to", "matrix-market", "-q"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0));
}

#[cfg(unix)]
#[test]
fn an_input_is_never_written_over() {
    let folder = Folder::new();
    let matrix = folder.file("a.mtx", TRIANGLE);
    let (hard, soft) = (folder.path("hard.mtx"), folder.path("soft.mtx"));
    std::fs::hard_link(&matrix, &hard).unwrap();
    std::os::unix::fs::symlink("a.mtx", &soft).unwrap();
    let order = folder.path("a.order");
    windrow(&["reorder", &matrix, &order]).succeeded();
    let before = std::fs::read(&order).unwrap();
    for output in [&matrix, &hard, &soft] {
        for arguments in [
            &["convert", &matrix, output][..],
            &["convert", "-", output],
            &["reorder", &matrix, output],
            &["spy", &matrix, "--out", output],
            &["spy", &matrix, "--order", &order, "--out", &order],
        ] {
            let outcome = finish(command(arguments).stdin(File::open(&matrix).unwrap()));
            outcome.failed(2, &["is the input too; write to another file"]);
        }
    }
    // Added to the end of it.
    let end = File::options().append(true).open(&matrix).unwrap();
    finish(command(&["convert", &matrix, "-", "--to", "smtx"]).stdout(end)).failed(2, &["is the input too"]);
    assert_eq!(std::fs::read_to_string(&matrix).unwrap(), TRIANGLE);
    assert_eq!(std::fs::read(&order).unwrap(), before);
}

#[test]
fn weights_are_not_saved_over_what_they_are_of() {
    let folder = Folder::new();
    let mut content = Vec::new();
    let tensor = DenseTensor::new("w", 8, 8, (0..64u8).map(f32::from).collect()).unwrap();
    write_tensors(&mut content, &[tensor]).unwrap();
    let file = folder.file("w.safetensors", &content);
    let nm = |more: &[&str]| windrow(&[&["nm", "--shape", "2", "-d", "cpu"], more].concat());
    nm(&["--pattern", "2:8", "--weights", &file, "--save", &file])
        .failed(2, &["w.safetensors is the input too"]);
    assert_eq!(std::fs::read(&file).unwrap(), content);
    let pruned = folder.path("pruned.safetensors");
    nm(&["--pattern", "2:8", "--weights", &file, "--save", &pruned]).succeeded();
    nm(&["--pruned", &pruned, "--save", &pruned]).failed(2, &["pruned.safetensors is the input too"]);
    assert_eq!(io::read_vector_nm::<f32>(&pruned, &io::ReadOptions::default()).unwrap().rows(), 8);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_told_in_one_line() {
    let file = data("mbeacxc.mtx.gz");
    for format in ["matrix-market", "edge-list", "smtx", "scipy-npz"] {
        let outcome = windrow(&["convert", &file, "/dev/full", "--to", format, "-q"]);
        let expected =
            if format == "edge-list" { "cannot hold this matrix" } else { "No space left on device" };
        outcome.failed(3, &["/dev/full", expected]);
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
    windrow(&["convert", &file, "/dev/null", "--to", "smtx"]).succeeded();
}

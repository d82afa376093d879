//! Files that are not what they say, and numbers that are none: each is told.

use windrow::io::{DenseTensor, write_tensors};

use super::run::{Folder, command, data, finish, windrow};

#[test]
fn half_an_edge_list_is_refused() {
    let folder = Folder::new();
    let list = folder.path("a.txt");
    windrow(&["convert", &data("ct2010.mtx.gz"), &list]).succeeded();
    windrow(&["info", &list]).succeeded().says(&["67,578 rows", "336,352 nonzeros"]);
    let text = std::fs::read_to_string(&list).unwrap();
    assert!(text.starts_with("# Nodes: 67578 Edges: 336352 (windrow)\n"));
    let half = &text[..=text[..text.len() / 2].rfind('\n').unwrap()];
    windrow(&["info", &folder.file("half.txt", half)])
        .failed(3, &["half.txt", "336352 edges of 67578 nodes in all, as line 1 says", "cut off"]);
    // A list from elsewhere may count otherwise: it is read, and the difference told.
    let elsewhere = folder.file("elsewhere.txt", half.replacen(" (windrow)", "", 1));
    let outcome = windrow(&["info", &elsewhere]);
    assert!(
        outcome.succeeded().stderr.contains("says that it has 336,352 edges, and lists 1"),
        "{outcome:?}"
    );
    let object = windrow(&["info", &elsewhere, "--json", "-q"]).json("windrow.info/1");
    assert_eq!(object["source"]["entries_stated"], 336_352);
    let right = folder.file("right.txt", "# Nodes: 3 Edges: 2\n0 1\n1 2\n");
    assert_eq!(windrow(&["info", &right]).succeeded().stderr, "");
}

#[test]
fn a_metis_graph_is_no_edge_list() {
    let folder = Folder::new();
    let file = folder.file("triangle.graph", "3 3\n2 3\n1 3\n1 2\n");
    windrow(&["info", &file]).failed(3, &["it is a METIS graph", "edge"]);
    windrow(&["info", &file, "--from", "edge-list"]).succeeded().says(&["4 rows × 4 columns, 4 nonzeros"]);
}

#[test]
fn weights_that_are_no_numbers_are_told() {
    let folder = Folder::new();
    for (value, name) in [(f32::NAN, "nan"), (f32::INFINITY, "inf")] {
        let mut values: Vec<f32> = (0..64u8).map(f32::from).collect();
        values[5] = value;
        let mut content = Vec::new();
        write_tensors(&mut content, &[DenseTensor::new("w", 8, 8, values).unwrap()]).unwrap();
        let file = folder.file(&format!("{name}.safetensors"), content);
        let arguments = [
            "nm",
            "--pattern",
            "4:8",
            "--vector",
            "8",
            "--shape",
            "2",
            "-d",
            "cpu",
            "--weights",
            &file,
            "--verify",
        ];
        let outcome = windrow(&arguments);
        outcome.succeeded().says(&["pruning", "1 weights were NaN or infinite before"]);
        assert!(!outcome.stdout.contains("of the sum of squares kept"), "{outcome:?}");
        assert!(outcome.stderr.contains("note: 1 of 64 weights are NaN or infinite"), "{outcome:?}");
        let object = finish(command(&arguments).args(["--json", "-q"])).json("windrow.nm/1");
        assert!(object["pruning"]["kept_squares"].is_null(), "{object}");
        assert_eq!(object["pruning"]["non_finite"], 1);
        // The row of an infinite weight is of the largest norm, and kept.
        if value.is_infinite() {
            assert_eq!(object["non_finite"], 1);
            outcome
                .says(&["not finite", "1 of the kept weights"])
                .says(&["verify", "only compared in not being finite"]);
        }
    }
    let finite =
        windrow(&["nm", "--pattern", "2:4", "--shape", "2x8x8", "-d", "cpu", "--json"]).json("windrow.nm/1");
    assert_eq!((&finite["non_finite"], &finite["pruning"]["non_finite"]), (&0.into(), &0.into()));
}

#[test]
fn small_files_cannot_ask_for_all_memory() {
    let folder = Folder::new();
    // Offsets of 2³² − 1 rows would be 34 GB.
    let file = folder.file("rows.txt", "0 4294967294\n");
    windrow(&["info", &file]).failed(6, &["4294967295 rows", "raise it with --max-rows"]);
    for command in ["info", "nm", "mttkrp"] {
        windrow(&[command, "--help"]).succeeded().says(&["[default: half of"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_limit_is_of_the_memory_that_there_is() {
    let folder = Folder::new();
    // 2²⁴ rows are more than one for each 128 bytes of 1 GB.
    let file = folder.file("rows.txt", "0 16777215\n");
    let script = format!("ulimit -v 1000000; exec {} info {file} --threads 2", env!("CARGO_BIN_EXE_windrow"));
    let limited = finish(std::process::Command::new("sh").args(["-c", &script]));
    limited.failed(6, &["16777216 rows are more than the limit of 8000000", "--max-rows"]);
}

#[test]
fn messages_are_bounded() {
    let folder = Folder::new();
    let mut archive = b"PK".to_vec();
    archive.clear();
    for at in 0..8u8 {
        stored_member(&mut archive, &vec![at + 1; 60_000]);
    }
    end_of_archive(&mut archive, 8, 60_000);
    let outcome = windrow(&["info", &folder.file("names.npz", archive)]);
    outcome.failed(3, &["a zip archive of `\\x01\\x01", "without format.npy"]);
    assert!(outcome.stderr.len() < 3000, "{} bytes", outcome.stderr.len());
}

/// An empty member of a zip archive, stored.
fn stored_member(archive: &mut Vec<u8>, name: &[u8]) {
    archive.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0");
    archive.extend([0; 12]);
    archive.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
    archive.extend([0, 0]);
    archive.extend(name);
}

/// The directory of `members` empty members, whose names have `len` bytes, and the end.
fn end_of_archive(archive: &mut Vec<u8>, members: u16, len: u16) {
    let start = archive.len();
    let each = 30 + usize::from(len);
    for at in 0..usize::from(members) {
        archive.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0");
        archive.extend([0; 12]);
        archive.extend(len.to_le_bytes());
        archive.extend([0; 12]);
        archive.extend(u32::try_from(at * each).unwrap().to_le_bytes());
        archive.extend_from_within(at * each + 30..(at + 1) * each);
    }
    let size = archive.len() - start;
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(members.to_le_bytes());
    archive.extend(members.to_le_bytes());
    archive.extend(u32::try_from(size).unwrap().to_le_bytes());
    archive.extend(u32::try_from(start).unwrap().to_le_bytes());
    archive.extend([0, 0]);
}

#[cfg(unix)]
#[test]
fn names_of_files_do_not_command_the_terminal() {
    let folder = Folder::new();
    let name = "a\u{1b}[31m\nerror.mtx";
    let missing = windrow(&["info", &folder.path(name)]);
    missing.failed(3, &["a\\u{1b}[31m\\nerror.mtx: cannot read"]);
    assert_eq!(missing.stderr.lines().count(), 1, "{missing:?}");
    let file = folder.file(name, "0 1\n1 0\n");
    let [order, copy] = [".order", ".npz"].map(|end| folder.path(&format!("{name}{end}")));
    for arguments in [
        &["info", &file][..],
        &["convert", &file, &copy],
        &["reorder", &file, &order],
        &["verify", &file, "--device", "cpu", "--widths", "1"],
        &["spmm", &file, "-n", "1", "--device", "cpu", "--repeat", "1", "--reorder", &order],
        &["convert", &file, &folder.path(&format!("{name}.bin"))],
        &["convert", &file, &file],
    ] {
        let outcome = windrow(arguments);
        assert!(!(outcome.stdout + &outcome.stderr).contains('\u{1b}'), "{arguments:?}");
    }
}

#[test]
fn thousands_of_threads_are_refused() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&["info", &file, "--threads", "20000"]).failed(6, &["--threads: 20000 threads", "ask for fewer"]);
    finish(command(&["info", &file]).env("RAYON_NUM_THREADS", "40000"))
        .failed(6, &["RAYON_NUM_THREADS: 40000 threads"]);
    finish(command(&["info", &file]).env("RAYON_NUM_THREADS", "lots")).succeeded();
}

//! Files that are no matrix, or too large: which code, and whether the message names the place.

use super::run::{Folder, data, windrow};

const HEADER: &str = "%%MatrixMarket matrix coordinate real general\n";

#[test]
fn bad_files_end_with_3_and_name_the_place() {
    let folder = Folder::new();
    let cases: &[(&str, String, &[&str])] = &[
        ("empty.mtx", String::new(), &["unknown format", "it is empty"]),
        ("prose.mtx", "Dear reader,\n".to_owned(), &["unknown format", "readable are Matrix Market"]),
        (
            "header.mtx",
            "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 0 0\n".into(),
            &["complex"],
        ),
        ("size.mtx", format!("{HEADER}3 3\n"), &["line 2"]),
        ("zero.mtx", format!("{HEADER}3 3 1\n0 1 1.0\n"), &["line 3, column 1"]),
        ("row.mtx", format!("{HEADER}3 3 2\n1 1 1\n4 1 1\n"), &["line 4, column 1"]),
        ("column.mtx", format!("{HEADER}3 3 1\n1 4 1\n"), &["line 3, column 3"]),
        ("value.mtx", format!("{HEADER}3 3 1\n1 1 one\n"), &["line 3, column 5", "one"]),
        ("short.mtx", format!("{HEADER}3 3 2\n1 1 1\n"), &["line 4"]),
        ("long.mtx", format!("{HEADER}3 3 1\n1 1 1\n2 2 2\n"), &["line 4"]),
        ("offsets.smtx", "2, 2, 2\n0 2 1\n0 1\n".to_owned(), &["line 2"]),
        ("column.smtx", "2, 2, 2\n0 1 2\n0 2\n".to_owned(), &["line 3"]),
        ("edges.txt", "0\t1\n1\tx\n".to_owned(), &["line 2, column 3"]),
        ("negative.txt", "0 1\n-1 1\n".to_owned(), &["line 2, column 1"]),
    ];
    for (name, content, parts) in cases {
        let file = folder.file(name, content);
        for arguments in [&["info", &file][..], &["verify", &file, "--device", "cpu"]] {
            let outcome = windrow(arguments);
            outcome.failed(3, parts).failed(3, &[name]);
            assert!(outcome.stdout.is_empty(), "{outcome:?}");
        }
    }
}

#[test]
fn damaged_archives_and_compression() {
    let folder = Folder::new();
    let whole = std::fs::read(data("mbeacxc.mtx.gz")).expect("the file is in the repository");
    let half = folder.file("half.mtx.gz", &whole[..whole.len() / 2]);
    windrow(&["info", &half]).failed(3, &["half.mtx.gz"]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0xff;
    windrow(&["info", &folder.file("flipped.mtx.gz", flipped)]).failed(3, &["flipped.mtx.gz"]);
    windrow(&["info", &folder.file("cut.npz", b"PK\x03\x04\x14\x00\x00\x00")]).failed(3, &["cut.npz"]);
    windrow(&["info", &folder.file("array.npy", b"\x93NUMPY\x01\x00")]).failed(3, &["save_npz"]);
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = Folder::new();
    let missing = folder.path("missing.mtx");
    windrow(&["info", &missing]).failed(3, &[&missing, "cannot read"]);
    windrow(&["spmm", &missing, "--width", "8", "--device", "cpu"]).failed(3, &[&missing]);
    windrow(&["convert", &missing, &folder.path("out.mtx")]).failed(3, &[&missing]);
    windrow(&["info", &folder.path("")]).failed(3, &["cannot read"]);
}

#[test]
fn limits_end_with_6_and_name_the_option() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&["info", &file, "--max-nnz", "1000"]).failed(6, &["49920", "1000", "raise it with --max-nnz"]);
    windrow(&["info", &file, "--max-rows", "100"]).failed(6, &["496", "100", "raise it with --max-rows"]);
    windrow(&["info", &file, "--max-bytes", "1KiB"]).failed(6, &["1024", "raise it with --max-bytes"]);
    windrow(&["info", &file, "--max-nnz", "49920", "--max-rows", "496", "--max-bytes", "10MiB"]).succeeded();
}

/// Promise, memory: a file that says that it is large, and is not, has nothing allocated for it.
#[test]
fn a_lying_header_allocates_nothing() {
    let folder = Folder::new();
    // 2⁶⁰ entries promised, one there; then more rows than any matrix may have.
    let many = folder.file("many.mtx", format!("{HEADER}10 10 1152921504606846976\n1 1 1\n"));
    windrow(&["info", &many]).failed(6, &["1152921504606846976", "--max-nnz"]);
    let rows = folder.file("rows.mtx", format!("{HEADER}4294967295 10 1\n1 1 1\n"));
    windrow(&["info", &rows]).failed(6, &["4294967295", "--max-rows"]);
    let wide = folder.file("wide.mtx", format!("{HEADER}10 4294967296 1\n1 1 1\n"));
    windrow(&["info", &wide]).failed(3, &["line 2, column 4", "4294967295"]);
}

#[test]
fn the_format_can_be_forced() {
    let folder = Folder::new();
    let file = folder.file("edges", "3 1\n1 2\n");
    windrow(&["info", &file, "--from", "edge-list"]).succeeded().says(&["4 rows × 4 columns", "2 nonzeros"]);
    windrow(&["info", &file, "--from", "matrix-market"]).failed(3, &["line 1"]);
    windrow(&["info", &file, "--from", "excel"]).failed(2, &["no format is called \"excel\"", "edge-list"]);
}

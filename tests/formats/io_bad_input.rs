//! Damaged, lying, hostile and empty text: each gets an error that names the place.

use crate::io_support::{gzip, read};
use windrow_formats::io::{Limits, ReadError, ReadOptions, read_csr, read_csr_from};

const REAL: &str = "%%MatrixMarket matrix coordinate real general\n";

/// Checks that `content` is refused with a message that holds all of `parts`.
#[track_caller]
fn refused(content: impl AsRef<[u8]>, parts: &[&str]) {
    let content = content.as_ref();
    let shown = String::from_utf8_lossy(content);
    let message = match read::<f32>(content) {
        Ok((csr, report)) => panic!("read {} x {}, {report}, from\n{shown}", csr.rows(), csr.cols()),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}; from\n{shown}");
    }
    // The same behind gzip.
    if !content.is_empty() && content.len() < 1 << 20 {
        assert_eq!(read::<f32>(gzip(content)).unwrap_err().to_string(), message);
    }
}

#[test]
fn headers() {
    for (header, parts) in [
        ("%%MatrixMarket", &["line 1, column 15", "expected `matrix`", "found the end of the line"][..]),
        ("%%MatrixMarket vector coordinate real general", &["line 1, column 16", "vector", "one column"]),
        (
            "%%MatrixMarket graph coordinate real general",
            &["line 1, column 16", "expected `matrix`, found `graph`"],
        ),
        ("%%MatrixMarket matrix", &["line 1, column 22", "expected `coordinate` or `array`"]),
        ("%%MatrixMarket matrix sparse real general", &["line 1, column 23", "found `sparse`"]),
        (
            "%%MatrixMarket matrix coordinate",
            &["line 1, column 33", "expected `real`, `integer` or `pattern`"],
        ),
        ("%%MatrixMarket matrix coordinate float general", &["line 1, column 34", "found `float`"]),
        (
            "%%MatrixMarket matrix coordinate complex general",
            &["line 1, column 34", "complex", "imaginary part"],
        ),
        (
            "%%MatrixMarket matrix array pattern general",
            &["line 1, column 29", "an array lists values", "`pattern`"],
        ),
        (
            "%%MatrixMarket matrix coordinate real",
            &["line 1, column 38", "expected `general`, `symmetric` or"],
        ),
        ("%%MatrixMarket matrix coordinate real diagonal", &["line 1, column 39", "found `diagonal`"]),
        (
            "%%MatrixMarket matrix coordinate real hermitian",
            &["line 1, column 39", "hermitian", "write `symmetric`"],
        ),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric", &["line 1, column 42", "has no signs"]),
        (
            "%%MatrixMarket matrix coordinate real general x",
            &["line 1, column 47", "the end of the line", "`x`"],
        ),
        ("%%MatrixMarketmatrix coordinate real general", &["line 1, column 1", "`%%MatrixMarketmatrix`"]),
    ] {
        refused(format!("{header}\n1 1 1\n1 1 1\n"), parts);
        refused(format!("{header}\r\n1 1 1\r\n1 1 1\r\n"), parts);
    }
}

#[test]
fn size_lines() {
    for (size, parts) in [
        ("", &["line 2, column 1", "the size line (rows, columns, entries)", "the end of the file"][..]),
        ("% only\n\n% comments\n", &["line 5, column 1", "the size line"]),
        ("2\n", &["line 2, column 2", "the number of columns", "the end of the line"]),
        ("2 2\n", &["line 2, column 4", "the number of entries", "the end of the line"]),
        ("2 2 2 2\n", &["line 2, column 7", "expected the end of the line, found `2`"]),
        ("-2 2 1\n", &["line 2, column 1", "the number of rows from 0 to 4294967295", "`-2`"]),
        ("2 2.0 1\n", &["line 2, column 3", "the number of columns", "`2.0`"]),
        ("2 2 x\n", &["line 2, column 5", "the number of entries", "`x`"]),
        ("4294967296 2 1\n", &["line 2, column 1", "from 0 to 4294967295", "`4294967296`"]),
        ("99999999999999999999999999 2 1\n", &["line 2, column 1", "`99999999999999999999999999`"]),
        (
            "300000000 2 1\n",
            &["line 2", "300000000 rows are more than the limit of 268435456", "Limits::max_rows"],
        ),
        ("2 2 1000000000000000\n", &["line 2", "1000000000000000 entries are more", "Limits::max_nnz"]),
        ("2 2 18446744073709551615\n", &["line 2, column 5", "`18446744073709551615`"]),
    ] {
        refused(format!("{REAL}{size}"), parts);
    }
    let symmetric = "%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n";
    refused(symmetric, &["line 2, column 3", "as many columns as rows, 2", "`3`"]);
    let array = "%%MatrixMarket matrix array real general\n2 2 4\n";
    refused(array, &["line 2, column 5", "the end of the line", "`4`"]);
    let array = "%%MatrixMarket matrix array real general\n100000000 100000000\n1\n";
    refused(array, &["line 2", "10000000000000000 entries are more", "Limits::max_nnz"]);
}

#[test]
fn entries() {
    for (body, parts) in [
        ("1 1 1\n1 2\n", &["line 4, column 4", "a value", "the end of the line"][..]),
        ("1 1 1\n1\n", &["line 4, column 2", "a column from 1 to 2", "the end of the line"]),
        ("1 1 1\n0 1 1\n", &["line 4, column 1", "a row from 1 to 2, found `0`"]),
        ("1 1 1\n1 0 1\n", &["line 4, column 3", "a column from 1 to 2, found `0`"]),
        ("3 1 1\n1 1 1\n", &["line 3, column 1", "a row from 1 to 2, found `3`"]),
        ("1 3 1\n1 1 1\n", &["line 3, column 3", "a column from 1 to 2, found `3`"]),
        ("1 4294967297 1\n1 1 1\n", &["line 3, column 3", "found `4294967297`"]),
        ("-1 1 1\n1 1 1\n", &["line 3, column 1", "found `-1`"]),
        ("1.0 1 1\n1 1 1\n", &["line 3, column 1", "found `1.0`"]),
        ("1 1 one\n1 1 1\n", &["line 3, column 5", "a value (a decimal number, inf or nan), found `one`"]),
        ("1 1 1.0D+00\n1 1 1\n", &["line 3, column 5", "`1.0D+00`"]),
        ("1 1 1,5\n1 1 1\n", &["line 3, column 5", "`1,5`"]),
        ("1 1 1 1\n1 1 1\n", &["line 3, column 7", "expected the end of the line, found `1`"]),
        ("1 1 1 # c\n1 1 1\n", &["line 3, column 7", "`#`"]),
        ("1 1 1\n\n% c\n1  2  x\n", &["line 6, column 7", "found `x`"]),
        ("1 1 \u{0}\n1 1 1\n", &["line 3, column 5", "`\\x00`"]),
        ("1 1 \u{ff11}\n1 1 1\n", &["line 3, column 5", "a value"]),
        ("1 1 1\n", &["line 4, column 1", "2 entries, as line 2 says", "the end of the file after 1"]),
        ("", &["line 3, column 1", "2 entries, as line 2 says", "the end of the file after 0"]),
        (
            "1 1 1\n1 2 2\n\n2 2 2\n",
            &["line 6, column 1", "the end of the file after 2 entries", "another entry"],
        ),
        ("1 1 1\n1 2 2\n2 2 2\nbad\n", &["line 5, column 1", "another entry"]),
        ("1 1 1\nbad\n2 2 2\n2 1 1\n", &["line 4, column 1", "found `bad`"]),
        ("1 1 1\r1 2 2\r", &["line 3, column 5", "`1\\r1`"]),
    ] {
        refused(format!("{REAL}2 2 2\n{body}"), parts);
    }
    let long = "9".repeat(100);
    refused(format!("{REAL}1 1 1\n1 {long} 1\n"), &["line 3, column 3", &"9".repeat(40), "…"]);
    refused(
        format!("{REAL}0 0 1\n1 1 1\n"),
        &["line 3, column 1", "no entry, since there is no room for a row"],
    );
}

#[test]
fn fields_and_symmetries() {
    let integer = "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 ";
    for value in ["1.0", "1e3", "inf", "-", "0x10"] {
        let parts = ["line 3, column 5", "an integer value, as the header says", value];
        refused(format!("{integer}{value}\n"), &parts);
    }
    let pattern = "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1 1\n";
    refused(pattern, &["line 3, column 5", "the end of the line", "`1`"]);
    let skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n2 1 1\n2 2 0\n";
    refused(skew, &["line 4, column 3", "the diagonal of a skew-symmetric matrix is zero", "`2`"]);
    let both = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 1\n2 1 1\n\n2 3 1\n";
    refused(
        both,
        &["line 6, column 1", "below the diagonal, like that in line 4", "one triangle", "`general`"],
    );
    let both = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n1 2 1\n2 1 1\n";
    refused(both, &["line 4, column 1", "above the diagonal, like that in line 3"]);
    let array = "%%MatrixMarket matrix array real symmetric\n2 2\n";
    refused(format!("{array}1\n2\n"), &["line 5", "3 entries, as line 2 makes for this symmetry", "after 2"]);
    refused(format!("{array}1\n2\n3\n4\n"), &["line 6", "after 3 entries", "another entry"]);
    refused(format!("{array}1 2\n3\n"), &["line 3, column 3", "the end of the line", "`2`"]);
    let array = "%%MatrixMarket matrix array integer general\n1 1\n1.5\n";
    refused(array, &["line 3, column 1", "an integer value", "`1.5`"]);
}

#[test]
fn edge_lists() {
    for (text, parts) in [
        ("0 1\n2\n", &["line 2, column 2", "a second id from 0 to 4294967294", "the end of the line"][..]),
        ("# c\n0 1\n1 -2\n", &["line 3, column 3", "a second id", "`-2`"]),
        ("0 1\nx 2\n", &["line 2, column 1", "an id from 0", "`x`"]),
        ("0 1\n1 2 3\n", &["line 2, column 5", "the end of the line", "`3`"]),
        ("0 1 0.5\n1 2\n", &["line 2, column 4", "a value", "the end of the line"]),
        ("0 1 0.5\n1 2 x\n", &["line 2, column 5", "a value", "`x`"]),
        ("0 1 0.5 7\n", &["line 1, column 9", "the end of the line", "`7`"]),
        ("0 4294967295\n", &["line 1, column 3", "from 0 to 4294967294", "`4294967295`"]),
        ("0 1\n0 300000000\n", &["largest id plus one", "300000001 rows are more", "Limits::max_rows"]),
        ("0 1\n% c\n", &["line 2, column 1", "an id", "`%`"]),
    ] {
        refused(text, parts);
    }
}

#[test]
fn smtx() {
    for (text, parts) in [
        (
            "2, 3, 2\n",
            &["line 2, column 1", "3 row offsets, one more than rows, as line 1 says", "after 0"][..],
        ),
        ("2, 3, 2\n0 1\n0 2\n", &["line 2, column 4", "3 row offsets", "the end of the line after 2"]),
        ("2, 3, 2\n0 1 2 2\n0 2\n", &["line 2, column 8", "3 row offsets", "found 4"]),
        ("2, 3, 2\n1 1 2\n0 2\n", &["line 2, column 1", "0 as the first of 3 offsets", "`1`"]),
        ("2, 3, 2\n0 2 1\n0 2\n", &["line 2, column 5", "at least 2, where row 1 starts", "`1`"]),
        ("2, 3, 2\n0 1 1\n0 2\n", &["line 2, column 5", "2 as the last offset", "`1`"]),
        ("2, 3, 2\n0 1 3\n0 2\n", &["line 2, column 5", "an offset from 0 to 2", "`3`"]),
        ("2, 3, 2\n0 x 2\n0 2\n", &["line 2, column 3", "an offset from 0 to 2", "`x`"]),
        ("2, 3, 2\n0 1 2\n", &["line 3, column 1", "2 column indices, as line 1 says", "after 0"]),
        ("2, 3, 2\n0 1 2\n0\n", &["line 3, column 2", "2 column indices", "after 1"]),
        ("2, 3, 2\n0 1 2\n0 1 2\n", &["line 3, column 6", "2 column indices", "found 3"]),
        ("2, 3, 2\n0 1 2\n0  3 \n", &["line 3, column 4", "a column below 3", "`3`"]),
        ("2, 3, 2\n0 1 2\n0 -1\n", &["line 3, column 3", "a column below 3", "`-1`"]),
        ("2, 3, 2\n0 1 2\n0 2\n1.0 2.0\n", &["line 4, column 1", "the end of the file", "`1.0 2.0`"]),
        ("2, 3, 99999999999999\n0 1 2\n0 2\n", &["line 1", "99999999999999 entries", "Limits::max_nnz"]),
        ("4294967295, 3, 0\n0\n\n", &["line 1", "4294967295 rows are more", "Limits::max_rows"]),
        ("4294967296, 3, 0\n0\n\n", &["line 1, column 1", "the number of rows from 0 to 4294967295"]),
        ("268435456, 3, 0\n0\n\n", &["line 2, column 2", "268435457 row offsets", "after 1"]),
    ] {
        refused(text, parts);
    }
}

#[test]
fn unknown_content() {
    for (content, parts) in [
        (&b""[..], &["unknown format: it is empty", "readable are Matrix Market"][..]),
        (b"\n \t\n", &["no text but blank lines"]),
        (b"hello\n", &["line 1 starts with `hello`"]),
        (b"# c\n\na,b\n0,1\n", &["line 3 starts with `a,b`"]),
        (b"0,1\n1,2\n", &["line 1 starts with `0,1`"]),
        (b"% sym\n1 2\n", &["line 1 starts with `%`"]),
        (b"1.5 2.5\n", &["line 1 starts with `1.5`"]),
        (b"\x93NUMPY\x01\x00", &["one NumPy array", "save_npz"]),
        (b"\x89HDF\r\n\x1a\n", &["HDF5"]),
        (b"BZh91AY", &["bzip2"]),
        (b"\xff\xfe\x00", &["line 1 starts with `\\xff\\xfe\\x00`"]),
    ] {
        refused(content, parts);
    }
    let twice = gzip(b"0 1\n");
    let message = read::<f32>(&twice[..2]).unwrap_err().to_string();
    assert!(message.starts_with("cannot read: "), "{message}");
    let message = read::<f32>(gzip(&twice)).unwrap_err().to_string();
    assert!(message.contains("gzip inside of gzip"), "{message}");
}

#[test]
fn lines_without_end() {
    let long = format!("{REAL}1 1 1\n{}", "1".repeat(2 << 19));
    refused(&long, &["line 3, column 524288", "lines shorter than 524288 bytes"]);
    let mut header = String::from("%%MatrixMarket matrix coordinate real general\n%");
    header.push_str(&" ".repeat(2 << 19));
    refused(&header, &["line 2, column 524288", "lines shorter than"]);
    let mut late = format!("{REAL}9 9 100000\n{}", "1 1 1\n".repeat(90_000));
    late.push_str(&"1".repeat(2 << 19));
    refused(&late, &["line 90003, column 524288"]);
}

/// Promise, faults: of several faults of a file the first is told, with its line, whatever the threads do.
#[test]
fn the_first_fault_in_the_text_is_reported_whatever_the_threads_do() {
    let count = 400_000;
    let mut lines: Vec<String> =
        (0..count).map(|i| format!("{} {} 0.5", i % 1000 + 1, i % 999 + 1)).collect();
    for (at, bad) in
        [(399_999, "1 1 last"), (250_000, "1 1 third"), (90_001, "1 0 second"), (90_000, "1 1 first")]
    {
        lines[at] = bad.to_owned();
        let text = format!("{REAL}% c\n\n1000 1000 {count}\n{}\n", lines.join("\n"));
        let place = format!("line {}, column", at + 5);
        for _ in 0..3 {
            refused(&text, &[&place]);
        }
    }
    // Too many entries, before a fault that is in a later block.
    let text = format!("{REAL}1000 1000 1000\n{}\n", lines.join("\n"));
    refused(&text, &["line 1003, column 1", "the end of the file after 1000 entries"]);
}

/// Promise, memory: readers keep to their limits, whatever a file declares.
#[test]
fn limits_hold() {
    let limits = Limits { max_rows: 10, max_cols: 20, max_nnz: 5, max_bytes: 1000 };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let refused = |content: &[u8], parts: &[&str]| {
        let error = read_csr_from::<f32>(content, &options).unwrap_err();
        assert!(matches!(error, ReadError::Limit { .. }), "{error:?}");
        let message = error.to_string();
        parts.iter().for_each(|part| assert!(message.contains(part), "{message:?} does not say {part:?}"));
    };
    let text = |size: &str| format!("{REAL}{size}\n");
    refused(
        text("11 20 0").as_bytes(),
        &["line 2: 11 rows are more than the limit of 10", "Limits::max_rows"],
    );
    refused(text("10 21 0").as_bytes(), &["line 2: 21 columns", "limit of 20", "Limits::max_cols"]);
    refused(text("10 20 6").as_bytes(), &["line 2: 6 entries", "limit of 5", "Limits::max_nnz"]);
    refused(b"0 1\n# c\n1 2\n2 3\n3 4\n4 5\n5 6\n", &["line 7: 6 entries", "limit of 5", "Limits::max_nnz"]);
    refused(b"0 10\n", &["11 rows", "limit of 10"]);
    refused(b"11, 2, 0\n", &["line 1: 11 rows"]);
    refused(b"1, 2, 6\n", &["line 1: 6 entries"]);
    let mirrored = "%%MatrixMarket matrix coordinate pattern symmetric\n9 9 4\n2 1\n3 1\n4 1\n1 1\n";
    refused(mirrored.as_bytes(), &["mirrored ones included: 7 entries", "limit of 5"]);
    let long = format!("# {}\n0 1\n", "x".repeat(1000));
    refused(long.as_bytes(), &["bytes (decompressed)", "limit of 1000", "Limits::max_bytes"]);
    let long = format!("1, 1, 0\n0 0\n{}\n", " ".repeat(1000));
    refused(long.as_bytes(), &["bytes (decompressed)", "limit of 1000"]);
    // A bomb: 100 MB of comments in 100 kB.
    let bomb = gzip(&b"# a comment\n".repeat(8 << 20));
    assert!(bomb.len() < 1_000_000, "{}", bomb.len());
    refused(&bomb, &["bytes (decompressed)", "limit of 1000"]);
    let limits = Limits { max_bytes: 50 << 20, ..Limits::default() };
    let error =
        read_csr_from::<f32>(&bomb[..], &ReadOptions { limits, ..ReadOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("Limits::max_bytes"), "{error}");
    // Exactly at the limit is fine.
    let text = "# c\n0 1\n".to_owned();
    let limits = Limits { max_bytes: text.len() as u64, max_nnz: 1, max_rows: 2, max_cols: 2 };
    read_csr_from::<f32>(text.as_bytes(), &ReadOptions { limits, ..ReadOptions::default() }).unwrap();
}

#[test]
fn gzip_that_is_cut_off_or_damaged() {
    let lines: String = (0..5000).map(|i| format!("{} {}\n", i * 7 % 997, i * 31 % 991)).collect();
    let packed = gzip(lines.as_bytes());
    for len in [3, 10, 20, packed.len() / 2, packed.len() - 9, packed.len() - 1] {
        let error = read::<f32>(&packed[..len]).unwrap_err();
        assert!(matches!(error, ReadError::Io(_)), "{len} of {} bytes: {error}", packed.len());
    }
    let mut damaged = packed.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 1;
    let error = read::<f32>(&damaged).unwrap_err();
    assert!(matches!(error, ReadError::Io(_)), "{error}");
    // Members one after the other are one text.
    let (head, tail) = lines.split_at(lines.len() / 2);
    let parts = [gzip(head.as_bytes()), gzip(tail.as_bytes())].concat();
    assert_eq!(read::<f32>(parts).unwrap().0, read::<f32>(&packed).unwrap().0);
}

#[test]
fn files_are_named_in_errors() {
    let folder = std::env::temp_dir();
    let missing = folder.join("windrow-no-such-file.mtx");
    let error = read_csr::<f32>(&missing).unwrap_err();
    assert!(matches!(error.cause(), ReadError::Io(_)));
    assert!(error.to_string().contains("windrow-no-such-file.mtx: cannot read: "), "{error}");
    let error = read_csr::<f32>(&folder).unwrap_err();
    assert!(error.to_string().contains("it is a directory"), "{error}");
    let path = folder.join(format!("windrow-bad-{}.mtx", std::process::id()));
    std::fs::write(&path, format!("{REAL}1 1 1\n1 1 x\n")).unwrap();
    let error = read_csr::<f32>(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(error.cause(), ReadError::Malformed { line: 3, column: 5, .. }), "{error:?}");
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
}

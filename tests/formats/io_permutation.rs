//! Orders of rows in files: what is written is read again; whatever else is there is refused, with its place.

use std::path::PathBuf;

use crate::io_support::gzip;
use proptest::prelude::*;
use windrow_formats::Permutation;
use windrow_formats::io::{
    Limits, ReadError, ReadOptions, WriteError, read_csr, read_permutation, read_permutation_from, sniff,
    write_permutation,
};

fn read(content: impl AsRef<[u8]>) -> Result<Permutation, ReadError> {
    read_permutation_from(content.as_ref(), &ReadOptions::default())
}

/// A file that is there as long as this is.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("windrow-order-{}-{name}", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A test that failed before it wrote leaves nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `0 .. len` in an order without a pattern.
fn scrambled(len: u32) -> Permutation {
    let mut order: Vec<u32> = (0..len).collect();
    order.sort_by_key(|&i| i.wrapping_mul(0x9E37_79B9) ^ 0x5bd1_e995);
    Permutation::try_from_new_to_old(order).unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    // The last is several blocks of text.
    for len in [0, 1, 2, 10, 1000, 300_000] {
        for name in ["plain.txt", "no-extension", "compressed.order.gz"] {
            let file = TempFile::new(&format!("{len}-{name}"));
            let order = scrambled(len);
            write_permutation(&file.0, &order).unwrap();
            assert_eq!(read_permutation(&file.0).unwrap(), order);
            let content = std::fs::read(&file.0).unwrap();
            assert_eq!(content.starts_with(&[0x1f, 0x8b]), name.ends_with(".gz"));
            assert_eq!(read(&content).unwrap(), order);
        }
    }
}

#[test]
fn the_text_is_this() {
    let file = TempFile::new("text");
    write_permutation(&file.0, &Permutation::try_from_new_to_old(vec![2, 0, 1]).unwrap()).unwrap();
    let text = std::fs::read_to_string(&file.0).unwrap();
    assert_eq!(text, "# windrow-permutation 1 3\n# old row of each new one, from 0\n2\n0\n1\n");
}

#[test]
fn blanks_comments_and_ends_of_lines_do_not_matter() {
    for text in [
        "# windrow-permutation 1 3\n2\n0\n1",
        "# windrow-permutation 1 3\r\n2\r\n0\r\n1\r\n",
        "\u{feff}# windrow-permutation 1 3\n2\n0\n1\n",
        " #\twindrow-permutation  1 3 \n\n  2\n# a comment\n0 \n\n000000000000000000000001\n# another\n\n",
    ] {
        assert_eq!(read(text).unwrap().new_to_old(), [2, 0, 1], "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_order_comes_back(keys in proptest::collection::vec(any::<u32>(), 0..200), name in "[a-z]{8}") {
        let mut order: Vec<u32> = (0..u32::try_from(keys.len()).unwrap()).collect();
        order.sort_by_key(|&i| keys[i as usize]);
        let order = Permutation::try_from_new_to_old(order).unwrap();
        let file = TempFile::new(&name);
        write_permutation(&file.0, &order).unwrap();
        prop_assert_eq!(read_permutation(&file.0).unwrap(), order);
    }

    #[test]
    fn any_text_is_read_or_refused(content in "(# windrow-permutation 1 [0-9]{1,2}\n)?([0-9#x \n\u{feff}-]|[0-4]\n){0,40}") {
        if let Ok(order) = read(&content) {
            let mut rows: Vec<u32> = order.new_to_old().to_vec();
            rows.sort_unstable();
            prop_assert!(rows.into_iter().eq(0..u32::try_from(order.len()).unwrap()));
        }
    }

    #[test]
    fn any_damage_to_gzip_is_read_or_refused(at in 0usize..1000, byte in any::<u8>()) {
        let mut content = gzip(b"# windrow-permutation 1 3\n2\n0\n1\n");
        let len = content.len();
        content[at % len] = byte;
        if let Ok(order) = read(&content) {
            prop_assert_eq!(order.new_to_old(), [2, 0, 1]);
        }
    }
}

/// Checks that the rows behind `# windrow-permutation 1 <rows>` are refused with this message.
#[track_caller]
fn refused(content: &str, message: &str) {
    for content in [content.as_bytes().to_vec(), gzip(content.as_bytes())] {
        assert_eq!(read(&content).unwrap_err().to_string(), message);
    }
}

#[test]
fn first_lines() {
    let wanted = "`# windrow-permutation 1` and the number of rows";
    for (line, column, found) in [
        ("", 1, "the end of the line"),
        ("\n# windrow-permutation 1 3", 1, "the end of the line"),
        ("2", 1, "`2`"),
        ("#", 2, "the end of the line"),
        ("#windrow-permutation 1 3", 1, "`#windrow-permutation`"),
        ("# windrow-order 1 3", 3, "`windrow-order`"),
        ("%%MatrixMarket matrix coordinate real general", 1, "`%%MatrixMarket`"),
    ] {
        let message = format!("line 1, column {column}: expected {wanted}, found {found}");
        // Nothing at all is no gzip either.
        if line.is_empty() {
            assert_eq!(read(line).unwrap_err().to_string(), message);
        } else {
            refused(&format!("{line}\n2\n0\n1\n"), &message);
        }
    }
    for (line, message) in [
        (
            "",
            "line 1, column 22: expected the format's version from 0 to 18446744073709551614, found the end of the line",
        ),
        (
            " x 3",
            "line 1, column 23: expected the format's version from 0 to 18446744073709551614, found `x`",
        ),
        (
            " 2 whatever",
            "line 1: version 2 of the format is not supported; make the file again with this version of windrow",
        ),
        (
            " 1",
            "line 1, column 24: expected the number of rows from 0 to 4294967295, found the end of the line",
        ),
        (" 1 -3", "line 1, column 25: expected the number of rows from 0 to 4294967295, found `-3`"),
        (
            " 1 4294967296",
            "line 1, column 25: expected the number of rows from 0 to 4294967295, found `4294967296`",
        ),
        (" 1 3 rows", "line 1, column 27: expected the end of the line, found `rows`"),
        (
            " 1 4000000000",
            "line 1: 4000000000 rows are more than the limit of 268435456; if the file can be trusted, raise \
             Limits::max_rows",
        ),
    ] {
        refused(&format!("# windrow-permutation{line}\n2\n0\n1\n"), message);
    }
}

#[test]
fn rows() {
    for (rows, message) in [
        ("2\n0\n2\n", "line 4, column 1: expected a row that is not in line 2, found `2`"),
        ("# c\n\n2\n\n# c\n0\n0\n", "line 8, column 1: expected a row that is not in line 7, found `0`"),
        ("2\n3\n1\n", "line 3, column 1: expected an old row from 0 to 2, found `3`"),
        ("2\n0\n4294967297\n", "line 4, column 1: expected an old row from 0 to 2, found `4294967297`"),
        (
            "2\n0\n99999999999999999999999\n",
            "line 4, column 1: expected an old row from 0 to 2, found `99999999999999999999999`",
        ),
        ("2\n -1\n0\n", "line 3, column 2: expected an old row from 0 to 2, found `-1`"),
        ("2\n1.0\n0\n", "line 3, column 1: expected an old row from 0 to 2, found `1.0`"),
        ("2\nzero\n1\n", "line 3, column 1: expected an old row from 0 to 2, found `zero`"),
        ("2\n0 1\n", "line 3, column 3: expected the end of the line, found `1`"),
        ("2\n0\n1\n1\n", "line 5, column 1: expected 3 rows, as line 1 says, found one more"),
        ("2\n0\n", "line 4, column 1: expected 3 rows, as line 1 says, found the end of the file after 2"),
        ("", "line 2, column 1: expected 3 rows, as line 1 says, found the end of the file after 0"),
    ] {
        refused(&format!("# windrow-permutation 1 3\n{rows}"), message);
    }
    refused(
        "# windrow-permutation 1 0\n0\n",
        "line 2, column 1: expected the end of the file, since there are 0 rows, found `0`",
    );
}

#[test]
fn places_in_long_files_are_right() {
    let mut text = "# windrow-permutation 1 400000\n".to_owned();
    (0..400_000).for_each(|row| text += &format!("{}\n", if row == 390_000 { 17 } else { row }));
    refused(&text, "line 390002, column 1: expected a row that is not in line 19, found `17`");
    text += "0\n";
    refused(&text, "line 400002, column 1: expected 400000 rows, as line 1 says, found one more");
}

#[test]
fn a_promise_reserves_nothing() {
    // 2^28 rows would be a GiB.
    refused(
        "# windrow-permutation 1 268435456\n0\n",
        "line 3, column 1: expected 268435456 rows, as line 1 says, found the end of the file after 1",
    );
    let limits = Limits { max_rows: 2, ..Limits::default() };
    let read = |limits| {
        read_permutation_from(
            &b"# windrow-permutation 1 3\n2\n0\n1\n"[..],
            &ReadOptions { limits, ..ReadOptions::default() },
        )
    };
    assert!(matches!(read(limits), Err(ReadError::Limit { found: 3, limit: 2, field: "max_rows", .. })));
    let limits = Limits { max_bytes: 20, ..Limits::default() };
    assert!(matches!(read(limits), Err(ReadError::Limit { field: "max_bytes", .. })));
    assert!(read(Limits { max_rows: 3, max_bytes: 32, ..limits }).is_ok());
}

#[test]
fn truncated_gzip_is_refused() {
    let mut text = "# windrow-permutation 1 5000\n".to_owned();
    scrambled(5000).new_to_old().iter().for_each(|row| text += &format!("{row}\n"));
    let content = gzip(text.as_bytes());
    assert!(read(&content).is_ok());
    for len in (2..content.len()).step_by(97).chain([content.len() - 1]) {
        assert!(matches!(read(&content[..len]), Err(ReadError::Io(_))), "{len} of {}", content.len());
    }
    // Without gzip, what is missing is missed.
    for len in 0..text.len() - 1 {
        // Cut within the last row, a smaller number is left, which is there already.
        assert!(matches!(read(&text[..len]), Err(ReadError::Malformed { .. })), "{len} of {}", text.len());
    }
}

#[test]
fn errors_name_the_file() {
    let missing = TempFile::new("missing/order.txt");
    let error = write_permutation(&missing.0, &scrambled(3)).unwrap_err();
    assert!(matches!(error.cause(), WriteError::Io(_)));
    assert!(error.to_string().starts_with(&format!("{}: cannot write: ", missing.0.display())), "{error}");
    let error = read_permutation(&missing.0).unwrap_err();
    assert!(matches!(error.cause(), ReadError::Io(_)));
    assert!(error.to_string().starts_with(&format!("{}: cannot read: ", missing.0.display())), "{error}");
}

#[test]
fn an_order_is_no_matrix() {
    let file = TempFile::new("no-matrix.txt");
    write_permutation(&file.0, &scrambled(3)).unwrap();
    assert!(matches!(read_csr::<f32>(&file.0).unwrap_err().cause(), ReadError::UnknownFormat { .. }));
    assert!(sniff(&std::fs::read(&file.0).unwrap()).is_err());
}

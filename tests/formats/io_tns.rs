//! Tensors in files: what is written is read again; whatever else is there is refused, with its place.

use std::path::PathBuf;

use crate::io_support::gzip;
use half::f16;
use proptest::prelude::*;
use windrow_formats::io::{
    Format, Limits, Progress, ReadError, ReadOptions, Stage, WriteError, WriteOptions, read_csr_from,
    read_tns, read_tns_from, sniff, write_csr, write_tns, write_tns_to,
};
use windrow_formats::{Coo3, Csr, Value};

type Dims = Option<[usize; 3]>;

fn read<V: Value>(content: impl AsRef<[u8]>, dims: Dims) -> Result<Coo3<V>, ReadError> {
    read_tns_from(content.as_ref(), dims, &ReadOptions::default())
}

/// A file that is there as long as this is.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("windrow-tns-{}-{name}", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A test that failed before it wrote leaves nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn progress_tells_both_stages() {
    let stages = std::sync::Mutex::new(Vec::new());
    let progress = |progress: Progress| stages.lock().unwrap().push(progress.stage);
    let options = ReadOptions { progress: Some(&progress), ..ReadOptions::default() };
    read_tns_from::<f32>(b"1 1 2 1.5\n2 3 1 4\n".as_slice(), None, &options).unwrap();
    let stages = stages.into_inner().unwrap();
    assert_eq!(stages.last(), Some(&Stage::Assembling), "{stages:?}");
}

#[test]
fn blanks_comments_and_ends_of_lines_do_not_matter() {
    let want = [([0, 0, 1], 1.5f64), ([1, 2, 0], -400.0), ([0, 0, 1], 0.25)];
    for text in [
        "1 1 2 1.5\n2 3 1 -4e2\n1 1 2 .25\n",
        "# c\n1 1 2 1.5\n\n  # c 1 2\n2 3 1 -400\n1 1 2 +0.25",
        "\u{feff}1\t1\t2\t1.5\r\n2\t3\t1\t-4E+2\r\n1\t1\t2\t0.25\r\n",
        "\n \t\n  1   1\t 2  1.50 \n0000000000000000000000002 3 1 -400.0\t\n1 1 2 0.25\n\n",
    ] {
        for content in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            let tensor = read::<f64>(&content, None).unwrap();
            assert_eq!(tensor.dims(), [2, 3, 2], "{text:?}");
            assert!(tensor.entries().eq(want), "{text:?}: {tensor:?}");
            // Dimensions that are given may be larger; the entries are the same.
            let tensor = read::<f64>(&content, Some([2, 4, 900])).unwrap();
            assert_eq!(tensor.dims(), [2, 4, 900]);
            assert!(tensor.entries().eq(want));
        }
    }
    assert_eq!(read::<f32>("# nothing\n", None).unwrap(), Coo3::from_entries([0; 3], []).unwrap());
    assert_eq!(read::<f32>("# nothing", Some([3, 0, 5])).unwrap().dims(), [3, 0, 5]);
    let largest = read::<f32>("4294967295 1 4294967295 1\n", None).unwrap();
    assert_eq!(largest.dims(), [4_294_967_295, 1, 4_294_967_295]);
}

#[test]
fn special_values_are_read() {
    let tensor = read::<f32>("1 1 1 nan\n1 1 2 -inf\n1 1 3 1e99\n1 1 4 -0\n1 1 5 Infinity\n", None).unwrap();
    let bits: Vec<_> = tensor.values().iter().map(|value| value.to_bits()).collect();
    let want = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, f32::INFINITY];
    assert_eq!(bits, want.map(f32::to_bits));
}

/// Checks that `content` is refused with this message, also behind gzip.
#[track_caller]
fn refused(content: &str, dims: Dims, message: &str) {
    for content in [content.as_bytes().to_vec(), gzip(content.as_bytes())] {
        assert_eq!(read::<f32>(&content, dims).unwrap_err().to_string(), message);
    }
}

#[test]
fn lines_with_other_counts_of_columns() {
    let expected = "4 columns (three indices and a value; only tensors of three modes are read)";
    for (line, count) in [
        ("1", 1),
        ("1 2.5", 2),
        ("1 1 1", 3),
        ("1 1 1 1 2.5", 5),
        ("1 1 1 2.5 # c", 6),
        ("%%MatrixMarket matrix coordinate real general", 5),
    ] {
        let message = |line| format!("line {line}, column 1: expected {expected}, found {count}");
        refused(&format!("{line}\n"), None, &message(1));
        refused(&format!("# c\n\n1 1 1 2\n{line}\n1 1 1 2\n"), None, &message(4));
        refused(&format!("1 1 1 2\n{line}"), Some([9; 3]), &message(2));
    }
}

#[test]
fn words() {
    let first = "the first index from 1 to 4294967295";
    for (line, message) in [
        ("0 1 1 2", format!("column 1: expected {first}, found `0`")),
        ("1 00 1 2", "column 3: expected the second index from 1 to 4294967295, found `00`".to_owned()),
        ("1 1 0 2", "column 5: expected the third index from 1 to 4294967295, found `0`".to_owned()),
        ("-1 1 1 2", format!("column 1: expected {first}, found `-1`")),
        ("1.0 1 1 2", format!("column 1: expected {first}, found `1.0`")),
        ("4294967296 1 1 2", format!("column 1: expected {first}, found `4294967296`")),
        ("4294967297 1 1 2", format!("column 1: expected {first}, found `4294967297`")),
        ("18446744073709551617 1 1 2", format!("column 1: expected {first}, found `18446744073709551617`")),
        ("1 1 1 x", "column 7: expected a value (a decimal number, inf or nan), found `x`".to_owned()),
        ("1 1 1 1,5", "column 7: expected a value (a decimal number, inf or nan), found `1,5`".to_owned()),
        (
            "1 1 1 1.0D+00",
            "column 7: expected a value (a decimal number, inf or nan), found `1.0D+00`".to_owned(),
        ),
        ("1 1 1 \0", "column 7: expected a value (a decimal number, inf or nan), found `\\x00`".to_owned()),
    ] {
        // Far from the end of the text and at it, which other code reads.
        refused(
            &format!("# c\n{line}\n1 1 1 1.5\n1 1 1 1.5\n1 1 1 1.5\n"),
            None,
            &format!("line 2, {message}"),
        );
        refused(line, None, &format!("line 1, {message}"));
    }
    let dims = Some([2, 3, 4]);
    refused("3 1 1 2\n", dims, "line 1, column 1: expected the first index from 1 to 2, found `3`");
    refused("2 4 1 2\n", dims, "line 1, column 3: expected the second index from 1 to 3, found `4`");
    refused("2 3 5 2\n", dims, "line 1, column 5: expected the third index from 1 to 4, found `5`");
    refused(
        "1 1 1 2\n",
        Some([1, 0, 1]),
        "line 1, column 3: expected no entry, since there is no room for the second index, found `1`",
    );
    let message =
        "mode 2 has 4294967296 indices, more than the 4294967295 that 32 bits can name; split the tensor";
    refused("1 1 1 2\n", Some([1, 1, 1 << 32]), message);
}

#[test]
fn files_without_text() {
    for (content, line) in [("", 1), ("\n \t\n", 3), ("\r\n", 2)] {
        let message =
            format!("line {line}, column 1: expected an entry or a comment, found the end of the file");
        assert_eq!(read::<f32>(content, None).unwrap_err().to_string(), message);
    }
}

#[test]
fn limits_hold() {
    let limits = Limits { max_rows: 0, max_cols: 0, max_nnz: 2, max_bytes: 40 };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let read = |content: &[u8]| read_tns_from::<f32>(content, None, &options);
    // There is nothing as long as a mode, so those limits do not matter.
    assert_eq!(read(b"1 1 900000000 1\n").unwrap().dims(), [1, 1, 900_000_000]);
    assert_eq!(
        read(b"1 1 1 1\n# c\n1 1 1 1\n1 1 1 1\n").unwrap_err().to_string(),
        "line 4: 3 entries are more than the limit of 2; if the file can be trusted, raise Limits::max_nnz"
    );
    let bomb = gzip(&b"# a comment\n".repeat(8 << 20));
    assert!(matches!(read(&bomb), Err(ReadError::Limit { field: "max_bytes", .. })));
}

#[test]
fn gzip_that_is_cut_off() {
    let text: String = (0..5000).map(|i| format!("{} {} {} 0.5\n", i % 997 + 1, i % 91 + 1, i + 1)).collect();
    let packed = gzip(text.as_bytes());
    assert_eq!(read::<f32>(&packed, None).unwrap().dims(), [997, 91, 5000]);
    for len in [3, 10, packed.len() / 2, packed.len() - 1] {
        assert!(matches!(read::<f32>(&packed[..len], None), Err(ReadError::Io(_))));
    }
}

#[test]
fn long_files_keep_their_order_and_name_the_first_fault() {
    let mut lines: Vec<String> =
        (0..200_000).map(|i| format!("{} {} {} {}", i % 1000 + 1, i % 77 + 1, i + 1, i % 13)).collect();
    let tensor = read::<f64>(lines.join("\n"), None).unwrap();
    let want = (0..200_000u32).map(|i| ([i % 1000, i % 77, i], f64::from(i % 13)));
    assert!(tensor.entries().eq(want));
    for (at, bad) in [(199_999, "1 1 1 last"), (150_000, "1 1 1"), (90_000, "1 0 1 1")] {
        lines[at] = bad.to_owned();
        let message = read::<f32>(lines.join("\n"), None).unwrap_err().to_string();
        assert!(message.starts_with(&format!("line {}, column", at + 1)), "{message}");
    }
}

#[test]
fn what_the_text_looks_like() {
    let entries = [([1, 2, 0], 0.1f32), ([0, 0, 1], -2.0), ([1, 2, 0], f32::INFINITY), ([0, 1, 0], f32::NAN)];
    let tensor = Coo3::from_entries([2, 3, 4], entries).unwrap();
    let want = "# Dims: 2 3 4 Entries: 4 (windrow)\n2 3 1 0.1\n1 1 2 -2\n2 3 1 inf\n1 2 1 NaN\n";
    let mut text = Vec::new();
    write_tns_to(&mut text, &tensor).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), want);
    for (name, packed) in [("a.tns", false), ("no-extension", false), ("A.TNS.GZ", true)] {
        let file = TempFile::new(name);
        write_tns(&file.0, &tensor).unwrap();
        let content = std::fs::read(&file.0).unwrap();
        assert_eq!(content.starts_with(&[0x1f, 0x8b]), packed);
        assert!(packed || content == want.as_bytes());
        let back = read_tns::<f32>(&file.0, Some([2, 3, 4]), &ReadOptions::default()).unwrap();
        assert_eq!((back.dims(), &back.values()[..3]), ([2, 3, 4], &tensor.values()[..3]));
        assert!((0..3).all(|mode| back.indices(mode) == tensor.indices(mode)));
        assert!(back.values()[3].is_nan());
    }
}

#[test]
fn errors_name_the_file() {
    let file = TempFile::new("missing/a.tns");
    let error = read_tns::<f32>(&file.0, None, &ReadOptions::default()).unwrap_err();
    assert!(matches!(error.cause(), ReadError::Io(_)));
    assert!(error.to_string().starts_with(&format!("{}: cannot read: ", file.0.display())), "{error}");
    let error = write_tns(&file.0, &Coo3::<f32>::from_entries([0; 3], []).unwrap()).unwrap_err();
    assert!(matches!(error.cause(), WriteError::Io(_)));
    assert!(error.to_string().starts_with(&format!("{}: cannot write: ", file.0.display())), "{error}");
}

#[test]
fn a_tensor_is_no_matrix() {
    for (text, line, modes) in
        [("1 1 1 1.5\n", 1, 3), ("# c\n\n1 1 1 4\n", 3, 3), ("1\t2\t3\t4\t-5e-3\n", 1, 4)]
    {
        for content in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            let message = sniff(&content).unwrap_err().to_string();
            let start =
                format!("unknown format: line {line} has {modes} indices and a value, like a FROSTT tensor");
            assert!(message.starts_with(&start), "{message}");
            let error = read_csr_from::<f32>(&content[..], &ReadOptions::default()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
    // What was an edge list is one still, also where it is wrong further on.
    for text in ["1 1 1\n", "1 1 1.5\n", "0 1 0.5 7\n", "1 1\n"] {
        assert_eq!(sniff(text.as_bytes()).unwrap(), Format::EdgeList, "{text:?}");
    }
    let file = TempFile::new("matrix.tns");
    let error = write_csr(&file.0, &Csr::<f32>::identity(2).unwrap(), &WriteOptions::default()).unwrap_err();
    assert!(matches!(error.cause(), WriteError::UnknownExtension), "{error}");
}

/// Small tensors whose values are any bits; NaN has the payload that text gives it.
fn tensors<V: Value>(values: impl Strategy<Value = V> + Clone) -> impl Strategy<Value = Coo3<V>> {
    let plain = move |value: V| if value.to_f64().is_nan() { V::from_f64(f64::NAN) } else { value };
    [1..=40usize, 1..=40usize, 1..=40usize].prop_flat_map(move |dims| {
        let index = dims.map(|dim| 0..u32::try_from(dim).unwrap());
        let entries = proptest::collection::vec((index, values.clone().prop_map(plain)), 0..60);
        entries.prop_map(move |entries| Coo3::from_entries(dims, entries).unwrap())
    })
}

fn round_trips<V: Value>(tensor: &Coo3<V>) {
    let mut text = Vec::new();
    write_tns_to(&mut text, tensor).unwrap();
    let implied = [0, 1, 2].map(|mode| tensor.indices(mode).iter().max().map_or(0, |&i| i as usize + 1));
    for content in [gzip(&text), text] {
        for dims in [None, Some(tensor.dims())] {
            let back = read::<V>(&content, dims).unwrap();
            assert_eq!(back.dims(), dims.unwrap_or(implied));
            assert!((0..3).all(|mode| back.indices(mode) == tensor.indices(mode)));
            assert_eq!(
                bytemuck::cast_slice::<V, u8>(back.values()),
                bytemuck::cast_slice::<V, u8>(tensor.values())
            );
        }
    }
}

proptest! {
    #[test]
    fn f64_tensors(tensor in tensors(any::<u64>().prop_map(f64::from_bits))) {
        round_trips(&tensor);
    }

    #[test]
    fn f32_tensors(tensor in tensors(any::<u32>().prop_map(f32::from_bits))) {
        round_trips(&tensor);
    }

    #[test]
    fn f16_tensors(tensor in tensors(any::<u16>().prop_map(f16::from_bits))) {
        round_trips(&tensor);
    }

    #[test]
    fn any_text_is_read_or_refused(
        content in "(#c\n)?((\
            [0-3]|4294967296|99999999999999999999|-1|x|#|nan|1e999|\u{feff}|[ .\t\r\n]\
            ){0,6}\n|1 2 3 4\n){0,8}",
        dims in proptest::option::of([0..5usize, 0..5usize, 0..5usize]),
    ) {
        if let Ok(tensor) = read::<f32>(&content, dims) {
            // What was read satisfies the invariants.
            let given = tensor.dims();
            let (indices, values) = tensor.into_parts();
            prop_assert!(Coo3::try_new(given, indices, values).is_ok());
            prop_assert!(dims.is_none_or(|dims| dims == given));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read::<f32>(&content, None);
        let _ = read::<f32>(gzip(&content), None);
    }

    #[test]
    fn any_damage_is_read_or_refused(at in 0usize..1000, byte in any::<u8>(), pack in any::<bool>()) {
        let text = b"# c\n1 1 2 1.5\n2 3 1 -4e2\n1 1 2 .25\n";
        let mut content = if pack { gzip(text) } else { text.to_vec() };
        let len = content.len();
        content[at % len] = byte;
        if let Ok(tensor) = read::<f32>(&content, None) {
            prop_assert!(tensor.nnz() <= 4);
        }
    }
}

#[test]
fn files_that_were_cut_off_are_refused() {
    let entries: Vec<_> = (0..12u32).map(|i| ([i % 2, i % 3, i], 0.5 + i as f32)).collect();
    let mut text = Vec::new();
    write_tns_to(&mut text, &Coo3::from_entries([2, 3, 12], entries).unwrap()).unwrap();
    assert_eq!(read::<f32>(&text, None).unwrap().nnz(), 12);
    let header = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in header..text.len() {
        let error = read::<f32>(&text[..end], None).unwrap_err().to_string();
        // Where a line ends in the middle, it may have too few columns, or a number too few digits.
        let told = error.contains("as line 1 says") || error.contains("column");
        assert!(told, "{end}: {error}");
    }
    let text = String::from_utf8(text).unwrap();
    let without_last = text.trim_end().rsplit_once('\n').unwrap().0;
    assert_eq!(
        read::<f32>(format!("\n{without_last}\n"), None).unwrap_err().to_string(),
        "line 14, column 1: expected 12 entries in all, as line 2 says, found the end of the file after 11 entries; \
         it was cut off, or edited: then correct that line"
    );
    let error = read::<f32>(text.trim_end(), None).unwrap_err().to_string();
    assert!(error.contains("after 12 entries, within a line"), "{error}");
    let error = read::<f32>(format!("{text}1 1 1 1\n"), None).unwrap_err().to_string();
    assert!(error.contains("after 13 entries;"), "{error}");
    // What others write of their files may count otherwise.
    let elsewhere = text.replace(" (windrow)", "").replace("Entries: 12", "Entries: 99");
    assert_eq!(read::<f32>(&elsewhere, None).unwrap().nnz(), 12);
}

//! Edge lists and `.smtx`, sniffing, the real files in `data/`, and progress.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::io_support::{check, gzip, read};
use windrow_formats::Csr;
use windrow_formats::io::{
    Format, Header, Limits, Progress, ReadOptions, Stage, read_csr_from, read_csr_with_report, sniff,
};

#[test]
fn edge_lists() {
    let want = [(0, 1, 1.0), (0, 3, 1.0), (2, 0, 1.0)];
    for text in [
        "# Nodes: 4 Edges: 3\n# FromNodeId\tToNodeId\n0\t1\n0\t3\n2\t0\n",
        "0 1\n2 0\n0 3",
        "0\t1\r\n0\t3\r\n# between\r\n2\t0\r\n",
        "  0   1 \n\n\t2\t0\n # c\n0 3\n\n",
        "\u{feff}0 1\n0 3\n2 0\n",
    ] {
        let report = check(text, (4, 4), &want);
        assert_eq!((report.header, report.format), (Header::EdgeList { weighted: false }, Format::EdgeList));
        assert_eq!((report.entries_read, report.pattern_values), (3, 3));
        check(gzip(text.as_bytes()), (4, 4), &want);
    }
    let report = check("# weighted\n1 0 -0.5\n0 1 2e3\n1 0 0.25\n", (2, 2), &[(0, 1, 2000.0), (1, 0, -0.25)]);
    assert_eq!(report.header, Header::EdgeList { weighted: true });
    assert_eq!((report.duplicates_summed, report.pattern_values), (1, 0));
    check("# no edges\n", (0, 0), &[]);
    check("7 7\n", (8, 8), &[(7, 7, 1.0)]);
}

#[test]
fn smtx() {
    let want = [(0, 1, 1.0), (2, 0, 1.0), (2, 3, 1.0)];
    for text in
        ["3, 4, 3\n0 1 1 3\n1 0 3\n", "3,4,3\r\n0 1 1 3 \r\n1 3 0 \r\n", " 3 , 4 , 3\n\n0\t1  1 3\n\n 1 0 3"]
    {
        let report = check(text, (3, 4), &want);
        assert_eq!((report.header, report.entries_read, report.pattern_values), (Header::Smtx, 3, 3));
        check(gzip(text.as_bytes()), (3, 4), &want);
    }
    check("0, 5, 0\n0\n\n", (0, 5), &[]);
    check("2, 0, 0\n0 0 0\n", (2, 0), &[]);
    // Lines of several pieces.
    let (rows, cols) = (300u32, 997u32);
    let mut text = format!("{rows}, {cols}, {}\n", rows * 700);
    (0..=rows).for_each(|row| text += &format!("{} ", row * 700));
    text.push('\n');
    let mut want = Vec::new();
    for row in 0..rows {
        for i in 0..700 {
            let col = (row * 31 + i) % cols;
            text += &format!("{col} ");
            want.push((row as usize, col, 1.0));
        }
    }
    want.sort_by_key(|&(row, col, _)| (row, col));
    assert!(text.len() > 3 << 18);
    check(text, (rows as usize, cols as usize), &want);
}

#[test]
fn sniffing() {
    for (content, format) in [
        (&b"%%MatrixMarket matrix coordinate real general"[..], Format::MatrixMarket),
        (b"\xef\xbb\xbf%%matrixmarket", Format::MatrixMarket),
        (b"\n  %%MatrixMarket matrix", Format::MatrixMarket),
        (b"0 1\n", Format::EdgeList),
        (b"#\n#\n\n12\t13\t1.5\n", Format::EdgeList),
        (b"# only\n", Format::EdgeList),
        (b"512, 1024, 7\n0 1\n", Format::Smtx),
        (b"512,1024,7", Format::Smtx),
    ] {
        assert_eq!(sniff(content).unwrap(), format);
        assert_eq!(sniff(&gzip(content)).unwrap(), format);
    }
    assert!(sniff(b"PK\x03\x04 no archive").is_err());
    assert_eq!("smtx".parse(), Ok(Format::Smtx));
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    let unknown = "csv".parse::<Format>().unwrap_err();
    assert!(unknown.contains("\"csv\"") && unknown.contains("matrix-market, edge-list"), "{unknown}");
}

#[test]
fn the_format_can_be_forced() {
    // Without commas this is taken for an edge list.
    let text = b"2 3 2\n0 1 2\n1 2\n";
    let options = ReadOptions { format: Some(Format::Smtx), ..ReadOptions::default() };
    let (csr, report) = read_csr_from::<f32>(&text[..], &options).unwrap();
    assert_eq!((csr.rows(), csr.cols(), csr.nnz(), report.format), (2, 3, 2, Format::Smtx));
    assert!(read::<f32>(text).is_err());
    let options = ReadOptions { format: Some(Format::MatrixMarket), ..ReadOptions::default() };
    let error = read_csr_from::<f32>(&text[..], &options).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 1: expected `%%MatrixMarket`, found `2`");
    let error = read_csr_from::<f32>(&b""[..], &options).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 1: expected `%%MatrixMarket`, found the end of the line");
    let options = ReadOptions { format: Some(Format::EdgeList), ..ReadOptions::default() };
    let error = read_csr_from::<f32>(&b"\n\n"[..], &options).unwrap_err().to_string();
    assert_eq!(error, "line 3, column 1: expected an edge or a comment, found the end of the file");
    let options = ReadOptions { format: Some(Format::ScipyNpz), ..ReadOptions::default() };
    let error = read_csr_from::<f32>(&text[..], &options).unwrap_err().to_string();
    assert!(error.starts_with("archive: expected an undamaged zip archive"), "{error}");
}

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data").join(name)
}

#[test]
fn real_matrices() {
    // Rows, columns, entries and empty rows as the collections that the files are from state them.
    for (name, header, size, nnz, empty_rows) in [
        ("ct2010.mtx.gz", "Matrix Market coordinate pattern symmetric", (67578, 67578), 336_352, 0),
        ("mbeacxc.mtx.gz", "Matrix Market coordinate real general", (496, 496), 49_920, 48),
        ("lyra_conv_to_gates.smtx.gz", "DLMC .smtx", (3072, 1024), 251_664, 308),
    ] {
        let (csr, report): (Csr<f32>, _) = read_csr_with_report(data(name), &ReadOptions::default()).unwrap();
        assert_eq!(((csr.rows(), csr.cols()), csr.nnz()), (size, nnz), "{name}");
        assert_eq!(csr.rows_iter().filter(|(cols, _)| cols.is_empty()).count(), empty_rows, "{name}");
        assert_eq!((report.header.to_string().as_str(), report.gzip), (header, true));
        assert_eq!(report.duplicates_summed, 0);
        assert_eq!(report.entries_read + report.mirrored, nnz as u64);
    }
}

#[test]
fn progress_rises_to_the_whole() {
    let calls: Mutex<Vec<Progress>> = Mutex::new(Vec::new());
    let progress = |progress: Progress| calls.lock().unwrap().push(progress);
    let options = ReadOptions { progress: Some(&progress), ..ReadOptions::default() };
    let path = std::env::temp_dir().join(format!("windrow-progress-{}.txt", std::process::id()));
    let text: String = (0..400_000).map(|i| format!("{} {}\n", i % 5000, i % 4999)).collect();
    std::fs::write(&path, &text).unwrap();
    let (csr, report): (Csr<f32>, _) = read_csr_with_report(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((report.entries_read, report.content_bytes), (400_000, text.len() as u64));

    assert!(format!("{options:?}").contains("Fn(Progress)"));
    let calls = calls.into_inner().unwrap();
    let of = |stage| calls.iter().filter(move |call| call.stage == stage).collect::<Vec<_>>();
    let reading = of(Stage::Reading);
    assert!(reading.len() >= 3, "{} calls for {} bytes", reading.len(), text.len());
    assert!(reading.is_sorted_by_key(|call| call.done_bytes));
    assert!(reading.iter().all(|call| call.total_bytes == Some(text.len() as u64)));
    assert_eq!(reading.last().unwrap().done_bytes, text.len() as u64);
    let assembling = of(Stage::Assembling);
    assert_eq!(assembling.first().unwrap().done_bytes, 0);
    assert_eq!(Some(assembling.last().unwrap().done_bytes), assembling[0].total_bytes);
    assert!(calls.is_sorted_by_key(|call| call.stage == Stage::Assembling));
    assert_eq!(csr.rows(), 5000);
}

#[test]
fn limits_are_those_that_are_documented() {
    let documented =
        Limits { max_rows: 1 << 28, max_cols: (1 << 32) - 1, max_nnz: 1 << 31, max_bytes: 1 << 34 };
    assert_eq!(Limits::default(), documented);
}

#[test]
fn edge_lists_that_were_written_here_are_whole() {
    let a = Csr::<f64>::identity(50).unwrap();
    let mut text = Vec::new();
    windrow_formats::io::write_edge_list(&mut text, &a).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(read::<f64>(&text).unwrap().1.entries_stated, Some(50));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for kept in [2, 3, 51] {
        let error = read::<f64>(lines[..kept].concat()).unwrap_err().to_string();
        let (line, edges) = (kept + 1, kept - 2);
        assert!(
            error.starts_with(&format!("line {line}, column 1: expected 50 edges of 50 nodes in all")),
            "{error}"
        );
        assert!(
            error.contains(&format!("as line 1 says, found the end of the file after {edges} edges")),
            "{error}"
        );
    }
    // A line more, and one whose number was cut.
    assert!(read::<f64>(format!("{text}1\t2\n")).is_err());
    assert!(read::<f64>(text.strip_suffix("9\n").unwrap()).is_err());
    // What is behind the comments does not count.
    assert!(read::<f64>("0 1\n# Nodes: 9 Edges: 9 (windrow)\n").is_ok());
}

#[test]
fn edge_lists_from_elsewhere_may_count_otherwise() {
    for (comment, stated) in [
        ("# Nodes: 4 Edges: 7", Some(7)),
        ("# Directed graph: web-Google.txt\n#Nodes 4\n# nodes:\t4\tedges:\t7", Some(7)),
        ("# Nodes: 4 Edges: 7 (windrow) and changed", Some(7)),
        ("# Nodes: four Edges: 7", None),
        ("# Edges: 7", None),
    ] {
        let report = check(format!("{comment}\n0 1\n0 3\n"), (4, 4), &[(0, 1, 1.0), (0, 3, 1.0)]);
        assert_eq!(report.entries_stated, stated, "{comment}");
        assert_eq!(report.to_string().ends_with(", 7 stated"), stated.is_some());
    }
}

#[test]
fn metis_graphs_are_named() {
    for text in ["3 3\n2 3\n1 3\n1 2\n", "% a triangle\n3 3\n2 3\n1 3\n1 2\n", "3 2 1\n2 7\n1 7 3 9\n2 9\n"] {
        let error = read::<f32>(text).unwrap_err().to_string();
        assert!(error.contains("METIS graph") && error.contains("ReadOptions::format"), "{error}");
    }
    let options = ReadOptions { format: Some(Format::EdgeList), ..ReadOptions::default() };
    assert_eq!(read_csr_from::<f32>(&b"3 3\n2 3\n1 3\n1 2\n"[..], &options).unwrap().0.nnz(), 4);
}

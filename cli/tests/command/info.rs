//! `windrow info`: what it tells of files, sound and broken.

use super::run::{Folder, command, data, windrow};

/// 4 × 5: row 0 has a duplicate, row 1 an explicit zero, row 2 is empty, row 3 is unsorted.
const SMALL: &str = "%%MatrixMarket matrix coordinate real general\n4 5 7\n\
    1 1 1.5\n1 1 2.5\n1 5 -1\n2 3 0\n4 5 1e30\n4 2 inf\n4 1 3\n";

#[test]
fn statistics_of_a_real_matrix() {
    let outcome = windrow(&["info", &data("ct2010.mtx.gz")]);
    outcome
        .succeeded()
        .says(&["format", "Matrix Market coordinate pattern symmetric with gzip"])
        .says(&["67,578 rows × 67,578 columns", "336,352 nonzeros", "density 0.0074 %"])
        .says(&["168,176 entries, 168,176 mirrored"])
        .says(&["row length", "min 1", "mean 4.98"])
        .says(&["long rows", "above 2 × the mean", "above 4 ×"])
        .says(&["empty rows", "0 (0.0 %)"])
        .says(&["column vectors", "1.09 nonzeros each", "% with a single one"])
        .says(&["tiles (8 × 8)", "nonzeros each"])
        .says(&["access ratio", "rows of B", "of X and Y"])
        .says(&["CSR", "RS-Tile"])
        .says(&["estimate", "a sparse product pays"])
        .says(&["f16", " 128 ", "tile-stream"]) // what auto takes there
        .says(&["f32", " 128 ", "row-split"]);
    assert!(outcome.stderr.is_empty(), "no progress bar where nobody looks: {:?}", outcome.stderr);
}

#[test]
fn the_same_as_an_object() {
    let object = windrow(&["info", "--json", &data("mbeacxc.mtx.gz")]).json("windrow.info/1");
    let structure = &object["structure"];
    assert_eq!((&structure["rows"], &structure["cols"]), (&496.into(), &496.into()));
    assert_eq!((&structure["nnz"], &structure["empty_rows"]), (&49_920.into(), &48.into()));
    assert_eq!(structure["row_length"]["max"], 484);
    let near = |value: &serde_json::Value, want: f64, what: &str| {
        let found = value.as_f64().unwrap();
        assert!((found - want).abs() < 0.005, "{what}: {found}");
    };
    near(&structure["nnz_per_tile"], 20.93, "nnz_per_tile");
    near(&structure["single_vector_share"], 0.361, "single_vector_share");
    near(&structure["row_length"]["mean"], 100.65, "mean");
    near(&structure["row_length"]["variation"], 1.26, "variation");
    near(&structure["access_ratio"]["spmm"], 20.93 / 8.0, "access ratio of spmm");
    // Two tiles of 8 × 8 are one of 8 × 16, or a half of one.
    let sddmm = structure["access_ratio"]["sddmm"].as_f64().unwrap();
    assert!(sddmm > 20.93 / 12.0 && sddmm < 2.0 * 20.93 / 12.0, "{sddmm}");
    let long = |name: &str| structure["row_length"][name].as_f64().unwrap();
    assert!(long("above_twice_mean") > long("above_four_means") && long("above_four_means") > 0.0);
    // 497 offsets of 8 bytes; columns and f32 values of 4.
    assert_eq!(object["bytes"]["csr"]["total"], 497 * 8 + 49_920 * 8);
    assert_eq!(object["bytes"]["csr"]["arrays"]["values"], 49_920 * 4);
    assert_eq!(object["source"]["format"], "matrix-market");
    assert!(object.get("spy").is_none());
    let bounds = object["estimate"]["bounds"].as_array().unwrap();
    assert_eq!(bounds.len(), 6);
    assert!(bounds.iter().all(|bound| bound["dense_us"].as_f64().unwrap() > 0.0));
}

#[test]
fn times_of_paths_are_predicted() {
    let file = data("ct2010.mtx.gz");
    windrow(&["info", &file, "--width", "16", "--inner", "16"])
        .succeeded()
        .says(&["spmm f32, columns 16: auto takes segment-group in f32"])
        .says(&["row-split in f32: ", " µs"])
        .says(&["spmm f16, columns 16: auto takes tile-stream in f16"])
        .says(&["sddmm f32, inner 16: auto takes groups in f32"])
        .says(&["dense: at least ", "times as long"]);
    let object = windrow(&["info", &file, "-n", "64", "-p", "tf32", "--json"]).json("windrow.info/1");
    let [product] = &object["predicted"].as_array().unwrap()[..] else { panic!("one product: {object}") };
    let candidates = product["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2, "row-split in f32, and the tile stream");
    assert_eq!(candidates[0]["algorithm"], product["algorithm"]);
    assert_eq!(candidates[0]["precision"], product["served_in"]);
    let us = |of: &serde_json::Value| of["predicted_us"].as_f64().unwrap();
    assert!(us(&candidates[0]) <= us(&candidates[1]) && product["dense_us"].as_f64().unwrap() > 0.0);
    windrow(&["info", &file, "-n", "64", "-p", "f64", "--device", "cpu"])
        .succeeded()
        .says(&["auto takes row-split in f64"])
        .says(&["not by predicted times"]);
    windrow(&["info", &file, "--width", "0"]).failed(2, &["--width"]);
}

#[test]
fn a_pattern_of_blocks() {
    let object = windrow(&["info", "--json", &data("lyra_conv_to_gates.smtx.gz")]).json("windrow.info/1");
    assert_eq!(object["source"]["format"], "smtx");
    assert_eq!(object["source"]["pattern_values"], 251_664);
    assert_eq!(object["structure"]["empty_rows"], 308);
    assert_eq!(object["structure"]["single_vector_share"], 0.0);
}

#[test]
fn what_reading_did_is_told() {
    let folder = Folder::new();
    let file = folder.file("small.mtx", SMALL);
    windrow(&["info", &file])
        .succeeded()
        .says(&["read", "7 entries, 1 duplicates summed; 1 rows sorted"])
        .says(&["values", "1 explicit zeros, kept; 1 NaN or infinite; 1 too large for f16"])
        .says(&["row length", "min 0", "max 3"])
        .says(&["empty rows", "1 (25.0 %)"]);
    let object = windrow(&["info", "--json", &file]).json("windrow.info/1");
    assert_eq!(object["structure"]["nnz"], 6);
    assert_eq!(object["source"]["duplicates_summed"], 1);
}

#[test]
fn matrices_without_rows_columns_or_entries() {
    let folder = Folder::new();
    for (size, rows, cols) in
        [("0 5 0", "0", "5"), ("5 0 0", "5", "0"), ("0 0 0", "0", "0"), ("3 3 0", "3", "3")]
    {
        let file =
            folder.file("empty.mtx", format!("%%MatrixMarket matrix coordinate real general\n{size}\n"));
        windrow(&["info", "--spy", &file])
            .succeeded()
            .says(&["size", &format!("{rows} rows × {cols} columns"), "0 nonzeros"])
            .says(&["estimate", "nothing to multiply"]);
    }
}

#[test]
fn a_picture_of_the_entries() {
    let folder = Folder::new();
    let lines: String = (1..=8).map(|i| format!("{i} {i}\n")).collect();
    let header = "%%MatrixMarket matrix coordinate pattern general\n8 8 8\n";
    let file = folder.file("diagonal.mtx", format!("{header}{lines}"));
    windrow(&["info", "--spy", &file])
        .succeeded()
        .says(&["│⠑⢄⠀⠀│"])
        .says(&["│⠀⠀⠑⢄│"])
        .says(&["one dot is 1.00 × 1.00 places"]);
    let outcome = windrow(&["info", "--spy-size", "20x6", &data("ct2010.mtx.gz")]);
    let framed: Vec<&str> = outcome.succeeded().stdout.lines().filter(|line| line.starts_with('│')).collect();
    assert_eq!(framed.len(), 6);
    // A square matrix in six lines of four dots takes twelve characters of two.
    assert!(framed.iter().all(|line| line.chars().count() == 12 + 2), "{framed:?}");
    let object = windrow(&["info", "--spy-size", "20x6", "--json", &file]).json("windrow.info/1");
    assert_eq!(object["spy"]["lines"].as_array().unwrap().len(), 2);
}

#[test]
fn standard_input_is_a_file_too() {
    use std::io::Write;
    let mut child = command(&["info", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    child.stdin.take().expect("it is piped").write_all(SMALL.as_bytes()).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("4 rows × 5 columns"));
    windrow(&["info", "-"]).failed(3, &["standard input: ", "it is empty"]);
}

//! `windrow spmm`, on the CPU.

use super::run::{Folder, data, windrow};

#[test]
fn a_verified_product() {
    let file = data("ct2010.mtx.gz");
    windrow(&["spmm", &file, "--width", "32", "--device", "cpu", "--verify", "--repeat", "2"])
        .succeeded()
        .says(&["67578 × 67578, 336352 entries"])
        .says(&["device", "cpu"])
        .says(&["time", "median", "min", "noise", "width 32"])
        .says(&["rates", "GFLOP/s", "GB/s gathered"])
        .says(&["planning"])
        .says(&["verify", "passed: 2,162,496 elements checked", "the worst, at row", "of its error bound"]);
}

#[test]
fn the_same_as_an_object() {
    let file = data("mbeacxc.mtx.gz");
    for (precision, value_bytes) in [("f16", 2.0), ("bf16", 2.0), ("f32", 4.0), ("tf32", 4.0), ("f64", 8.0)] {
        let object = windrow(&[
            "spmm",
            &file,
            "-n",
            "33",
            "--device",
            "cpu",
            "--precision",
            precision,
            "--verify",
            "--repeat",
            "2",
            "--seed",
            "7",
            "--json",
        ])
        .json("windrow.spmm/1");
        assert_eq!((&object["width"], &object["seed"]), (&33.into(), &7.into()));
        assert_eq!(object["plan"]["precision"], precision);
        assert_eq!(object["plan"]["nnz"], 49_920);
        assert_eq!(object["plan"]["device_kind"], "cpu");
        assert!(object["plan"]["device_bytes"].as_u64().unwrap() > 49_920 * 8);
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let time = &object["time"];
        assert!(number(&time["median_us"]) >= number(&time["min_us"]) && number(&time["min_us"]) > 0.0);
        assert!(number(&object["preprocessing_us"]) > 0.0);
        let rates = &object["rates"];
        assert_eq!(number(&rates["flop"]), 2.0 * 49_920.0 * 33.0);
        assert_eq!(number(&rates["gathered_bytes"]), 49_920.0 * 33.0 * value_bytes);
        let gflop_s = number(&rates["flop"]) / number(&time["median_us"]) / 1e3;
        assert!((number(&rates["gflop_s"]) / gflop_s - 1.0).abs() < 1e-9);
        let verification = &object["verification"];
        assert_eq!((&verification["checked"], &verification["failures"]), (&(496 * 33).into(), &0.into()));
        let worst = number(&verification["worst_ratio"]);
        assert!(worst > 0.0 && worst <= 1.0, "{worst}");
    }
    let object = windrow(&["spmm", &file, "-n", "8", "--device", "cpu", "--repeat", "1", "--json"]);
    assert!(object.json("windrow.spmm/1").get("verification").is_none(), "nothing was verified");
}

#[test]
fn odd_widths_and_odd_matrices() {
    let folder = Folder::new();
    let header = "%%MatrixMarket matrix coordinate real general\n";
    let one_full_row: String = (1..=40).map(|col| format!("3 {col} 0.5\n")).collect();
    let matrices = [
        folder.file("full-row.mtx", format!("{header}5 40 40\n{one_full_row}")),
        folder.file("no-rows.mtx", format!("{header}0 5 0\n")),
        folder.file("no-cols.mtx", format!("{header}5 0 0\n")),
        folder.file("no-entries.mtx", format!("{header}5 5 0\n")),
        folder.file("special.mtx", format!("{header}2 3 3\n1 1 nan\n2 2 0\n2 3 -inf\n")),
    ];
    for file in &matrices {
        for width in ["0", "1", "7", "130", "4097"] {
            for precision in ["f32", "tf32", "f16", "bf16", "f64"] {
                let arguments = [
                    "spmm",
                    file,
                    "--width",
                    width,
                    "--precision",
                    precision,
                    "--device",
                    "cpu",
                    "--repeat",
                    "1",
                    "--verify",
                ];
                windrow(&arguments).succeeded().says(&["verify", "passed"]);
            }
        }
    }
}

/// No rates of nothing, memory in the units of `info`, and whether values were rounded.
#[test]
fn what_is_told_can_be_read() {
    let folder = Folder::new();
    let file = folder
        .file("digits.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 0.123456789012\n");
    let run = |width| windrow(&["spmm", &file, "--width", width, "--device", "cpu", "--repeat", "1"]);
    run("0").succeeded().says(&["rates", "0 GFLOP/s, 0 GB/s gathered, 0 GB/s of operands"]);
    run("4")
        .succeeded()
        .says(&["device memory", "bytes (0.00 MiB)"])
        .says(&["values", "rounded if the file has more digits; -p f64 keeps them"]);
}

#[test]
fn limits_of_memory() {
    let file = data("mbeacxc.mtx.gz");
    let limited = |limit| {
        windrow(&["spmm", &file, "-n", "8", "--device", "cpu", "--repeat", "1", "--memory-limit", limit])
    };
    limited("1000").failed(6, &["1000", "largest array"]);
    limited("1GiB").succeeded();
    // 496 rows of more columns than any memory holds.
    windrow(&["spmm", &file, "--width", "1000000000000", "--device", "cpu"])
        .failed(6, &["B (496 × 1000000000000)", "use a smaller --width"]);
}

#[test]
fn what_the_device_cannot_do() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&["spmm", &file, "-n", "8", "--device", "cuda:99"]).failed(4, &["CUDA"]);
    windrow(&["spmm", &file, "-n", "8", "--device", "gpu"]).failed(2, &["\"gpu\" is no device", "cuda:N"]);
    windrow(&["spmm", &file, "-n", "8", "--precision", "f8"])
        .failed(2, &["\"f8\" is no precision", "f32, tf32, f16, bf16 and f64"]);
    windrow(&["spmm", &file, "-n", "8", "--algorithm", "magic"])
        .failed(2, &["\"magic\" is no algorithm", "row-split"]);
}

#[test]
fn options_as_one_value() {
    let (folder, file) = (Folder::new(), data("mbeacxc.mtx.gz"));
    let spmm = |more: &[&str]| {
        let arguments = ["spmm", &file, "-n", "8", "--device", "cpu", "--repeat", "1", "--json"];
        windrow(&[&arguments, more].concat())
    };
    let plan = |more: &[&str]| spmm(more).json("windrow.spmm/1")["plan"].clone();
    let text =
        r#"{"precision": "f16", "width": 3, "cpu_tasks": {"ranges_per_thread": 3, "tile_columns": 32}}"#;
    let kept = folder.file("options.json", text);
    for options in [text, &kept] {
        let found = plan(&["--options", options]);
        assert_eq!((&found["precision"], &found["width"]), (&"f16".into(), &8.into()));
        assert_eq!(found["cpu_tasks"]["ranges_per_thread"], 3);
        assert_eq!(plan(&["--options", options, "--precision", "bf16"])["precision"], "bf16");
        windrow(&["verify", &file, "--device", "cpu", "--widths", "2", "--options", options]).succeeded();
    }
    spmm(&["--options", r#"{"cpu_task": 3}"#]).failed(2, &["--options", "`cpu_task`", "`cpu_tasks`"]);
    spmm(&["--options", &folder.path("no.json")]).failed(3, &["--options", "no.json"]);
    spmm(&["--options", &folder.file("broken.json", "{\"width\":")]).failed(3, &["broken.json", "EOF"]);
    let rule = r#"{"partition": "all-tile"}"#;
    spmm(&["--options", rule]).failed(2, &["--algorithm hybrid"]);
    plan(&["--options", rule, "--algorithm", "hybrid", "--precision", "f16"]);
    spmm(&["--options", r#"{"memory_limit": 1000}"#]).failed(6, &["1000", "largest array"]);
}

//! `windrow verify`, on the CPU.

use super::run::{Folder, data, windrow};

#[test]
fn every_width_is_a_line() {
    let outcome = windrow(&["verify", &data("mbeacxc.mtx.gz"), "--device", "cpu", "--widths", "1,31,32"]);
    outcome.succeeded().says(&["21 passed, 0 failed, 0 could not run"]);
    for width in ["1", "31", "32"] {
        for (precision, output) in [
            ("f32", "f32"),
            ("tf32", "f32"),
            ("f16", "f32"),
            ("f16", "f16"),
            ("bf16", "f32"),
            ("bf16", "bf16"),
            ("f64", "f64"),
        ] {
            let lines = outcome.stdout.lines().filter(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.get(1..4) == Some(&[precision, output, width]) && words.last() == Some(&"passed")
            });
            assert_eq!(lines.count(), 1, "{precision} {output} {width} in\n{}", outcome.stdout);
        }
    }
}

#[test]
fn the_same_as_an_object() {
    let file = data("lyra_conv_to_gates.smtx.gz");
    let object =
        windrow(&["verify", &file, "--device", "cpu", "--widths", "7", "--json"]).json("windrow.verify/1");
    assert_eq!(
        (&object["rows"], &object["cols"], &object["nnz"]),
        (&3072.into(), &1024.into(), &251_664.into())
    );
    assert_eq!((&object["passed"], &object["failed"], &object["errors"]), (&7.into(), &0.into(), &0.into()));
    let cases = object["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 7);
    for case in cases {
        assert_eq!((&case["outcome"], &case["width"]), (&"passed".into(), &7.into()));
        assert_eq!((&case["checked"], &case["failures"]), (&(3072 * 7).into(), &0.into()));
        assert!(case["worst_ratio"].as_f64().unwrap() <= 1.0);
    }
}

#[test]
fn a_case_that_cannot_run_does_not_end_the_sweep() {
    let outcome =
        windrow(&["verify", &data("mbeacxc.mtx.gz"), "--device", "cpu", "--widths", "999999999999,4"]);
    outcome
        .failed(6, &["7 of 14 products could not run"])
        .says(&["999999999999", "error: B (496 × 999999999999)"])
        .says(&["7 passed, 0 failed, 7 could not run"]);
}

#[test]
fn nothing_to_check_is_not_hidden() {
    let folder = Folder::new();
    let file = folder.file("none.mtx", "%%MatrixMarket matrix coordinate real general\n0 5 0\n");
    windrow(&["verify", &file, "--device", "cpu", "--widths", "3"]).succeeded().says(&["passed, C is empty"]);
    windrow(&["verify", &data("mbeacxc.mtx.gz"), "--device", "cuda:99"]).failed(4, &["CUDA"]);
    windrow(&["verify", &file, "--widths", "3,x"]).failed(2, &["--widths"]);
}

#[test]
fn values_that_are_not_finite_are_told() {
    let folder = Folder::new();
    let text = "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 nan\n2 1 inf\n2 2 1\n";
    let file = folder.file("not-finite.mtx", text);
    let note = "note: 2 of 3 values are NaN or infinite\n";
    let verify = ["verify", &file, "--device", "cpu", "--widths", "3"];
    let spmm = ["spmm", &file, "-n", "3", "--device", "cpu", "--repeat", "1", "--verify", "--no-tuned"];
    let told = windrow(&verify);
    told.succeeded().says(&["7 passed, 0 failed"]);
    assert!(told.stderr.contains(note), "{told:?}");
    let told = windrow(&spmm);
    told.succeeded().says(&["what values without a finite value reach is only compared in not being finite"]);
    assert_eq!(told.stderr, note);
    assert_eq!(windrow(&[&spmm[..], &["--quiet"]].concat()).succeeded().stderr, "");
    for (command, schema) in [(&verify[..], "windrow.verify/1"), (&spmm[..], "windrow.spmm/1")] {
        assert_eq!(windrow(&[command, &["--json"]].concat()).json(schema)["non_finite"], 2);
    }
    let finite = folder.file("finite.mtx", text.replace("nan", "3").replace("inf", "4"));
    let told =
        windrow(&["spmm", &finite, "-n", "3", "--device", "cpu", "--repeat", "1", "--verify", "--no-tuned"]);
    assert!(!told.succeeded().stdout.contains("finite") && told.stderr.is_empty(), "{told:?}");
}

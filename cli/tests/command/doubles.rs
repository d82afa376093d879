//! Products in f64, on the CPU: a file's values reach the plan as they are.

use serde_json::Value;

use super::run::{Folder, windrow};

/// Values that are infinite in f32: with those a result is infinite or no number, and none is rounded.
fn beyond_f32(folder: &Folder) -> [String; 2] {
    let header = "%%MatrixMarket matrix coordinate real general\n";
    let entries = "1 1 1e300\n1 2 -3.7e299\n2 3 1.1e300\n2 1 7e298\n3 2 5.3e299\n";
    let tensor = "1 1 2 1.3e300\n2 3 1 -4.1e299\n2 3 2 5e299\n2 1 1 8.7e299\n";
    [folder.file("large.mtx", format!("{header}3 3 5\n{entries}")), folder.file("large.tns", tensor)]
}

/// The worst error over its bound of a right product, which is 0 of results that are all infinite.
#[track_caller]
fn worst(verification: &Value) -> f64 {
    assert_eq!(verification["failures"], 0, "{verification}");
    verification["worst_ratio"].as_f64().unwrap()
}

#[test]
fn values_of_a_file_are_not_rounded() {
    let folder = Folder::new();
    let [matrix, tensor] = beyond_f32(&folder);
    for words in [
        &["spmm", &matrix, "--width", "33"][..],
        &["sddmm", &matrix, "--inner", "9", "--form", "scale"],
        &["mttkrp", &tensor, "--width", "5"],
        &["ttm", &tensor, "--width", "5", "--mode", "1"],
    ] {
        let of = |precision: &str| {
            let options = ["-d", "cpu", "--verify", "--repeat", "1", "--json", "--precision", precision];
            windrow(&[words, &options].concat()).json(&format!("windrow.{}/1", words[0]))
        };
        let double = of("f64");
        assert_eq!(double["plan"]["precision"], "f64");
        let ratio = worst(&double["verification"]);
        assert!(ratio > 0.0 && ratio <= 1.0, "{}: {ratio}", words[0]);
        assert_eq!(worst(&of("f32")["verification"]), 0.0, "{}", words[0]);
    }
}

#[test]
fn verify_has_products_of_doubles() {
    let folder = Folder::new();
    let [matrix, _] = beyond_f32(&folder);
    let words = ["verify", &matrix, "--device", "cpu", "--widths", "7", "--json"];
    let object = windrow(&words).json("windrow.verify/1");
    let cases = object["cases"].as_array().unwrap();
    let rounded: Vec<_> = cases.iter().filter(|case| worst(case) > 0.0).collect();
    assert_eq!(rounded.len(), 1, "{object}");
    assert_eq!((&rounded[0]["precision"], &rounded[0]["output"]), (&"f64".into(), &"f64".into()));
}

#[test]
fn a_product_of_doubles_is_tuned() {
    let folder = Folder::new();
    let [matrix, _] = beyond_f32(&folder);
    let words = [
        "tune",
        &matrix,
        "-n",
        "4",
        "-d",
        "cpu",
        "--precision",
        "f64",
        "--budget",
        "200ms",
        "--dry-run",
        "--json",
    ];
    let object = windrow(&words).json("windrow.tune-product/1");
    assert_eq!((&object["precision"], &object["wrong"]), (&"f64".into(), &serde_json::json!([])));
    assert_eq!(object["default"]["path"], "row-split-f64+tasks:8:-");
}

#[test]
fn what_has_no_doubles_says_so() {
    let folder = Folder::new();
    let [matrix, _] = beyond_f32(&folder);
    let words = ["sddmm", &matrix, "-k", "8", "-d", "cpu", "--precision", "f64", "--algorithm", "tiles"];
    windrow(&words).failed(2, &["do not support precision f64"]);
    windrow(&["nm", "--pattern", "2:8", "--shape", "16x32x32", "--precision", "f64", "-d", "cpu"])
        .failed(2, &["f64"]);
}

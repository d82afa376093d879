//! `windrow mttkrp` and `windrow ttm`, on the CPU.

use super::run::{Folder, windrow};

/// Two slices of three by two, by coordinates.
const SMALL: &str = "# a tensor\n1 1 2 1.5\n2 3 1 -4\n2 3 2 0.5\n2 1 1 8\n";

#[test]
fn verified_products_of_a_tensor() {
    let folder = Folder::new();
    let file = folder.file("small.tns", SMALL);
    let options = ["--width", "5", "--device", "cpu", "--verify", "--repeat", "2"];
    for (mode, rows) in [("0", 2), ("1", 3), ("2", 2)] {
        let words = [&["mttkrp", &file, "--mode", mode][..], &options].concat();
        windrow(&words)
            .succeeded()
            .says(&["2 × 3 × 2, 4 entries", &format!("mode {mode}")])
            .says(&["time", "median", "width 5"])
            .says(&["rate", "GFLOP/s"])
            .says(&["verify", &format!("passed: {} elements checked", 5 * rows)]);
    }
    let words = [&["ttm", &file, "--mode", "2", "--precision", "f16"][..], &options].concat();
    windrow(&words).succeeded().says(&["3 fibers, mode 2"]).says(&["passed: 15 elements checked"]);
}

#[test]
fn products_as_objects() {
    let folder = Folder::new();
    let file = folder.file("small.tns", SMALL);
    for command in ["mttkrp", "ttm"] {
        let words = [command, &file, "-n", "3", "-d", "cpu", "--verify", "--repeat", "2", "--json"];
        let object = windrow(&words).json(&format!("windrow.{command}/1"));
        assert_eq!(
            (&object["nnz"], &object["width"], &object["plan"]["nnz"]),
            (&4.into(), &3.into(), &4.into())
        );
        assert_eq!(object["dims"], serde_json::json!([2, 3, 2]));
        assert_eq!(object["verification"]["failures"], 0);
    }
}

#[test]
fn what_cannot_be_multiplied_is_said() {
    let folder = Folder::new();
    let (file, bad) = (folder.file("small.tns", SMALL), folder.file("bad.tns", "1 1 0 2\n"));
    windrow(&["mttkrp", &file, "-n", "4", "-d", "cpu", "-p", "tf32"])
        .failed(2, &["use precision f32, f64 or f16"]);
    windrow(&["mttkrp", &file, "-n", "4", "--mode", "3"]).failed(2, &["--mode"]);
    windrow(&["ttm", &bad, "-n", "4", "-d", "cpu"]).failed(3, &["line 1, column 5"]);
    windrow(&["ttm", &file, "-n", "4", "-d", "cpu", "--max-nnz", "3"]).failed(6, &["3"]);
}

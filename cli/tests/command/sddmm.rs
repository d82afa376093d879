//! `windrow sddmm`, on the CPU.

use super::run::{data, windrow};

#[test]
fn a_verified_sampled_product() {
    let file = data("ct2010.mtx.gz");
    windrow(&[
        "sddmm", &file, "--inner", "20", "--device", "cpu", "--verify", "--repeat", "2", "--form", "scale",
    ])
    .succeeded()
    .says(&["67578 × 67578, 336352 entries, scale"])
    .says(&["algorithm", "entries in f32: the CPU has one algorithm"])
    .says(&["time", "median", "min", "noise", "inner dimension 20"])
    .says(&["rates", "GFLOP/s", "GB/s gathered"])
    .says(&["verify", "passed: 336,352 elements checked", "of its error bound"]);
}

#[test]
fn a_sampled_product_as_an_object() {
    let file = data("mbeacxc.mtx.gz");
    for precision in ["f16", "bf16", "f32", "tf32", "f64"] {
        let arguments =
            ["sddmm", &file, "-k", "33", "-d", "cpu", "-p", precision, "--verify", "--repeat", "2", "--json"];
        let object = windrow(&arguments).json("windrow.sddmm/1");
        assert_eq!((&object["inner"], &object["plan"]["nnz"]), (&33.into(), &49_920.into()));
        assert_eq!(object["plan"]["precision"], precision);
        assert_eq!(object["plan"]["form"], "mask");
        let verification = &object["verification"];
        assert_eq!((&verification["checked"], &verification["failures"]), (&49_920.into(), &0.into()));
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let gflop_s = 2.0 * 49_920.0 * 33.0 / number(&object["time"]["median_us"]) / 1e3;
        assert!((number(&object["gflop_s"]) / gflop_s - 1.0).abs() < 1e-9);
    }
}

#[test]
fn what_cannot_be_sampled_is_said() {
    let file = data("mbeacxc.mtx.gz");
    let tiles = ["sampled products by tiles do not support precision f32", "use tf32, bf16 or f16"];
    windrow(&["sddmm", &file, "-k", "8", "-d", "cpu", "--algorithm", "tiles"]).failed(2, &tiles);
    windrow(&["sddmm", &file, "-k", "8", "--form", "sum"])
        .failed(2, &["\"sum\" is no form", "mask and scale"]);
    let limited = ["sddmm", &file, "-k", "8", "-d", "cpu", "--memory-limit", "1KiB"];
    windrow(&limited).failed(6, &["the plan needs", "the limit is 1024"]);
}

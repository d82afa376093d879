//! `windrow attention`, on the CPU.

use super::run::{data, windrow};

#[test]
fn verified_attention_of_several_heads() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&[
        "attention",
        &file,
        "--heads",
        "3",
        "--dim",
        "8",
        "--device",
        "cpu",
        "--verify",
        "--gradients",
        "--repeat",
        "2",
    ])
    .succeeded()
    .says(&["heads", "3 of 8 columns, 8 of V, f32"])
    .says(&["algorithm", "rows: the CPU has one algorithm"])
    .says(&["time", "median", "min", "noise", "scale 0.35355338"])
    .says(&["rates", "GFLOP/s", "GB/s gathered"])
    .says(&["gradients", "median", "× the time of the result"])
    .says(&["verify", "passed: 11,904 elements checked", "of its error bound"]);
}

#[test]
fn attention_as_an_object() {
    let file = data("mbeacxc.mtx.gz");
    for (precision, layout) in [("f16", "columns"), ("bf16", "rows"), ("f32", "rows")] {
        let arguments = [
            "attention",
            &file,
            "--heads",
            "2",
            "-k",
            "5",
            "--value-dim",
            "7",
            "-d",
            "cpu",
            "-p",
            precision,
            "--layout",
            layout,
            "--scale",
            "-0.5",
            "--verify",
            "--repeat",
            "2",
            "--json",
        ];
        let object = windrow(&arguments).json("windrow.attention/1");
        let plan = &object["plan"];
        assert_eq!((&plan["nnz"], &plan["gathered"]), (&49_920.into(), &49_920.into()));
        assert_eq!(
            (&plan["options"]["precision"], &plan["options"]["layout"]),
            (&precision.into(), &layout.into())
        );
        assert_eq!(object["scale"], -0.5);
        let verification = &object["verification"];
        let checked = 2 * 496 * 7;
        assert_eq!((&verification["checked"], &verification["failures"]), (&checked.into(), &0.into()));
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let gflop_s = 2.0 * 49_920.0 * 24.0 / number(&object["time"]["median_us"]) / 1e3;
        assert!((number(&object["gflop_s"]) / gflop_s - 1.0).abs() < 1e-9);
    }
}

#[test]
fn attention_that_cannot_be_is_said() {
    let file = data("mbeacxc.mtx.gz");
    let cpu = |words: &[&str]| windrow(&[&["attention", &file, "-d", "cpu"], words].concat());
    cpu(&["-p", "f64"]).failed(2, &["attention by auto does not support precision f64", "use f32"]);
    cpu(&["--dim", "300"]).failed(2, &["300 columns of Q and K are not between 1 and 256"]);
    cpu(&["--heads", "0"]).failed(2, &["0 heads are not between 1 and 65535"]);
    cpu(&["--window-rows", "5"]).failed(2, &["windows of 5 rows", "4 and 8"]);
    cpu(&["--algorithm", "tiles"]).failed(2, &["\"tiles\" is no algorithm of attention"]);
    cpu(&["--memory-limit", "1KiB"]).failed(6, &["the plan needs", "the limit is 1024"]);
    cpu(&["--heads", "65535", "--dim", "256"]).failed(6, &["Q (", "use a smaller --dim or --heads"]);
}

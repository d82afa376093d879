//! `windrow nm`, on the CPU.

use windrow::io::{DenseTensor, write_tensors};

use super::run::{Folder, windrow};

/// A safetensors file with these tensors: name, rows, columns.
fn safetensors(folder: &Folder, name: &str, tensors: &[(&str, usize, usize)]) -> String {
    let values =
        |len: usize| (0..len).map(|i| f32::from(u8::try_from(i * 37 % 64).unwrap()) - 31.5).collect();
    let tensors: Vec<DenseTensor<f32>> = tensors
        .iter()
        .map(|&(name, rows, cols)| DenseTensor::new(name, rows, cols, values(rows * cols)).unwrap())
        .collect();
    let mut content = Vec::new();
    write_tensors(&mut content, &tensors).unwrap();
    folder.file(name, content)
}

#[test]
fn a_verified_product_with_made_up_weights() {
    windrow(&[
        "nm",
        "--pattern",
        "2:8",
        "--vector",
        "16",
        "--shape",
        "33x70x130",
        "-d",
        "cpu",
        "--verify",
        "--repeat",
        "2",
    ])
    .succeeded()
    .says(&["130 × 70, 2:8 in vectors of 16, 34 rows kept"])
    .says(&["algorithm", "f32: the CPU has one algorithm"])
    .says(&["weights", "made up, seed 1"])
    .says(&["pruning", "of the sum of squares kept"])
    .says(&["time", "median", "min", "noise", "33 rows"])
    .says(&["rates", "GFLOP/s of what is kept", "as if dense"])
    .says(&["verify", "passed: 2,310 elements checked", "of its error bound"]);
}

#[test]
fn a_product_as_an_object() {
    for (precision, layout, activation) in [
        ("f32", "row-major", "relu"),
        ("tf32", "k-major", "gelu"),
        ("f16", "k-major", "identity"),
        ("bf16", "row-major", "silu"),
    ] {
        let object = windrow(&[
            "nm",
            "--pattern",
            "1:4",
            "--vector",
            "8",
            "--shape",
            "17x40x64",
            "-d",
            "cpu",
            "-p",
            precision,
            "--layout",
            layout,
            "--activation",
            activation,
            "--bias",
            "--scale",
            "4",
            "--verify",
            "--repeat",
            "2",
            "--json",
        ])
        .json("windrow.nm/1");
        assert_eq!((&object["rows"], &object["plan"]["kept_rows"]), (&17.into(), &16.into()));
        assert_eq!(
            (&object["plan"]["precision"], &object["plan"]["layout"]),
            (&precision.into(), &layout.into())
        );
        let verification = &object["verification"];
        assert_eq!((&verification["checked"], &verification["failures"]), (&680.into(), &0.into()));
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let kept = 2.0 * 17.0 * 40.0 * 16.0 / number(&object["time"]["median_us"]) / 1e3;
        assert!((number(&object["gflop_s"]) / kept - 1.0).abs() < 1e-9);
        assert!((number(&object["dense_gflop_s"]) / kept - 4.0).abs() < 1e-9);
        assert!((0.25..1.0).contains(&number(&object["pruning"]["kept_squares"])));
    }
}

#[test]
fn weights_from_a_file_are_pruned_saved_and_read_again() {
    let folder = Folder::new();
    let file = safetensors(&folder, "model.safetensors", &[("up", 24, 10), ("down", 10, 24)]);
    let pruned = |name: &str| folder.path(name);
    for (name, arguments) in [
        ("a.safetensors", &["--tensor", "up", "--shape", "5x10x24"][..]),
        ("b.npz", &["--tensor", "down", "--transpose", "--shape", "5"]),
    ] {
        let saved = pruned(name);
        let fixed =
            ["nm", "--weights", &file, "--pattern", "2:4", "--vector", "4", "-d", "cpu", "--repeat", "1"];
        let outcome = windrow(&[&fixed[..], arguments, &["--save", &saved, "--verify"]].concat());
        outcome.succeeded().says(&["24 × 10, 2:4 in vectors of 4, 12 rows kept"]).says(&["saved", name]);
        let again = windrow(&[
            "nm", "--pruned", &saved, "--shape", "5x10x24", "-d", "cpu", "--verify", "--repeat", "1",
        ]);
        again
            .succeeded()
            .says(&["24 × 10, 2:4 in vectors of 4, 12 rows kept"])
            .says(&["verify", "passed: 50"]);
        assert!(!again.stdout.contains("pruning"), "{again:?}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let folder = Folder::new();
    let file = safetensors(&folder, "model.safetensors", &[("up", 24, 10), ("down", 10, 24)]);
    let nm = |arguments: &[&str]| windrow(&[&["nm", "-d", "cpu"], arguments].concat());
    nm(&["--shape", "4x4x4"]).failed(2, &["--pattern"]);
    nm(&["--shape", "4x4", "--pattern", "2:4"]).failed(2, &["--shape", "512x4096x4096"]);
    nm(&["--shape", "4", "--pattern", "2:4"]).failed(2, &["--shape M alone needs --weights or --pruned"]);
    nm(&["--shape", "4x4x4", "--pattern", "2-4"]).failed(2, &["--pattern", "2:8"]);
    nm(&["--shape", "4x4x4", "--pattern", "5:4"]).failed(2, &["there is no pattern 5:4 in vectors of 32"]);
    nm(&["--shape", "4x4x4", "--pattern", "2:4", "--vector", "0"]).failed(2, &["in vectors of 0"]);
    nm(&["--shape", "4x4x4", "--pattern", "2:4", "--algorithm", "tensor-cores"])
        .failed(2, &["by tensor-cores do not support precision f32"]);
    let dense = &["--shape", "4x4x4", "--pattern", "2:4", "--algorithm", "dense"];
    let missing = "a dense product needs cuBLAS: it multiplies on CUDA devices, and the plan is for the CPU";
    nm(dense).failed(2, &[missing]);
    nm(&["--shape", "4x4x4", "--pattern", "2:4", "--dense-fallback"])
        .succeeded()
        .says(&["no fallback", "the plan is for the CPU"]);
    nm(&["--shape", "4x4x4", "--pattern", "2:4", "--memory-limit", "8"])
        .failed(6, &["the plan needs", "the limit is 8"]);
    nm(&["--shape", "4x4x4", "--pattern", "2:4", "--save", &folder.path("a.bin")])
        .failed(2, &["a.bin: the name does not tell the format; end it in .safetensors or .npz"]);
    let of_file = |arguments: &[&str]| nm(&[&["--pattern", "2:4", "--weights", &file], arguments].concat());
    of_file(&["--shape", "4"]).failed(3, &["expected one tensor, found 2: `up`, `down`"]);
    of_file(&["--shape", "4", "--tensor", "gate"]).failed(3, &["a tensor `gate`, found none of that name"]);
    of_file(&["--shape", "4x24x10", "--tensor", "up"]).failed(
        2,
        &["tensor up: the weights are 24 × 10, --shape asks for 10 × 24; turn them round with --transpose"],
    );
    of_file(&["--shape", "4x24x11", "--tensor", "up"]).failed(2, &["give --shape M alone"]);
    of_file(&["--shape", "4", "--tensor", "up", "--max-nnz", "100"])
        .failed(6, &["240 entries are more than the limit of 100", "raise it with --max-nnz"]);
    nm(&["--shape", "4", "--pruned", &file])
        .failed(3, &["the format \"vector-nm\", found none, and `up`, `down`"]);
    nm(&["--shape", "4", "--pruned", &folder.path("none")]).failed(3, &["none: cannot read"]);
    nm(&["--shape", "4", "--pruned", &file, "--pattern", "2:4"]).failed(2, &["--pattern"]);
}

#[test]
fn products_too_large_for_memory_are_refused() {
    let arguments = ["nm", "--pattern", "1:2", "-d", "cpu", "--shape", "4x4000000000x4000000000"];
    windrow(&arguments).failed(6, &["the weights (4000000000 × 4000000000) need", "use a smaller --shape"]);
    let arguments = ["nm", "--pattern", "1:2", "-d", "cpu", "--shape", "4000000000000x64x64"];
    windrow(&arguments).failed(6, &["A (4000000000000 × 64) and C", "use a smaller --shape"]);
}

//! `windrow prune`, and weights in their own type.

mod hostile;
mod masks;

use std::path::Path;

use serde_json::Value;
use windrow::io::{self, Model, NmIndices, ReadOptions};
use windrow::{NmPattern, VectorNm, bf16, f16, prune_magnitude};

use super::run::{Folder, windrow};

/// A tensor of a file: name, type, shape, bytes.
type Raw<'a> = (&'a str, &'a str, &'a [usize], Vec<u8>);

/// A safetensors file with these tensors.
fn file(folder: &Folder, name: &str, tensors: &[Raw<'_>]) -> String {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (data.len(), data.len() + bytes.len());
        entries.push(format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{from},{to}]}}"
        ));
        data.extend_from_slice(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    let content = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    let path = folder.path(name);
    std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    folder.file(name, content)
}

/// Elements that differ, as bf16 holds them.
fn brains(len: usize) -> Vec<bf16> {
    (0..len).map(|at| bf16::from_f32((at * 37 % 64) as f32 - 31.5)).collect()
}

fn bytes(values: &[bf16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect()
}

/// A model of two files in a folder.
fn model(folder: &Folder) -> String {
    let up = brains(16 * 8);
    file(
        folder,
        "model/one.safetensors",
        &[
            ("layers.0.mlp.up.weight", "BF16", &[16, 8], bytes(&up)),
            ("layers.0.mlp.up.bias", "BF16", &[16], bytes(&up[..16])),
            ("layers.0.mlp.codes", "I32", &[2, 2], vec![9; 16]),
        ],
    );
    file(
        folder,
        "model/two.safetensors",
        &[
            ("layers.0.mlp.down.weight", "F16", &[1, 4], halves(&[1.0, -2.0, 3.0, 0.5])),
            ("layers.0.attn.q.weight", "BF16", &[8, 8], bytes(&up[..64])),
        ],
    );
    let index = r#"{"metadata": {}, "weight_map": {
        "layers.0.mlp.up.weight": "one.safetensors", "layers.0.mlp.up.bias": "one.safetensors",
        "layers.0.mlp.codes": "one.safetensors", "layers.0.mlp.down.weight": "two.safetensors",
        "layers.0.attn.q.weight": "two.safetensors"}}"#;
    folder.file("model/model.safetensors.index.json", index);
    folder.path("model")
}

#[test]
fn the_layers_of_a_model_are_pruned_and_multiplied() {
    let folder = Folder::new();
    let (model, out) = (model(&folder), folder.path("out"));
    let prune = ["prune", &model, &out, "--pattern", "2:4", "--vector", "1", "--layers", r"mlp\..*"];
    let outcome = windrow(&prune);
    outcome
        .succeeded()
        .says(&["layer", "shape", "type", "kept", "squares lost"])
        .says(&["layers.0.mlp.up.weight", "16 × 8", "bf16", "50.0 %"])
        .says(&["layers.0.mlp.up.bias", "16", "bf16", "left as it is: one dimension, not two"])
        .says(&["layers.0.mlp.codes", "2 × 2", "i32", "left as it is: type I32, not f16, bf16, f32 or f64"])
        // 1² + 0.5² of 1² + 2² + 3² + 0.5² are lost.
        .says(&["layers.0.mlp.down.weight", "1 × 4", "f16", "50.0 %", "8.8 %"])
        .says(&["model", "5 tensors in 2 files"])
        .says(&["pruned", "2 of 4 layers, 2:4 in vectors of 1"])
        .says(&["written", "out", "instead of"]);
    assert!(!outcome.stdout.contains("attn"), "{outcome:?}");
    assert_eq!(folder.names(), ["model", "out"]);
    // The same layers as the library prunes, in the type of the file, and the rest untouched.
    let (before, after) = (Model::open(&model).unwrap(), Model::open(&out).unwrap());
    let options = ReadOptions::default();
    let name = "layers.0.mlp.up.weight";
    let dense = before.read::<bf16>(name, &options).unwrap().transposed().unwrap();
    let expected = prune_magnitude(dense.values(), 8, 16, NmPattern::new(2, 4, 1).unwrap()).unwrap();
    assert_eq!(after.read_vector_nm::<bf16>(name, &options).unwrap(), expected);
    assert_eq!(after.tensor("layers.0.mlp.up.weight.values").unwrap().dtype(), "BF16");
    let same = |name: &str| {
        let [before, after] = [&before, &after].map(|model| model.read::<bf16>(name, &options).unwrap());
        assert_eq!(before, after, "{name}");
    };
    same("layers.0.mlp.up.bias");
    same("layers.0.attn.q.weight");
    assert_eq!(after.vector_nm().unwrap().len(), 2);
    // What was written is multiplied by, and saved again in its type.
    let saved = folder.path("again.safetensors");
    let nm = [
        "nm", "--pruned", &out, "--tensor", name, "--shape", "3x16x8", "-d", "cpu", "--verify", "--repeat",
        "1",
    ];
    windrow(&[&nm[..], &["--save", &saved]].concat())
        .succeeded()
        .says(&["8 × 16, 2:4 in vectors of 1, 4 rows kept"])
        .says(&["weights", "out, tensor layers.0.mlp.up.weight"])
        .says(&["verify", "passed: 48"]);
    assert_eq!(io::vector_nm_type(&saved, &options).unwrap(), windrow::ValueType::Bf16);
    assert_eq!(io::read_vector_nm::<bf16>(&saved, &options).unwrap(), expected);
    windrow(&["nm", "--pruned", &out, "--shape", "3", "-d", "cpu"])
        .failed(3, &["found 2: `layers.0.mlp.up.weight`, `layers.0.mlp.down.weight`; name the one to read"]);
    // What is packed stays so.
    let more = folder.path("more");
    windrow(&["prune", &out, &more, "--pattern", "1:4", "--layers", "weight"])
        .succeeded()
        .says(&["layers.0.mlp.up.weight", "16 × 8", "left as it is: it is 2:4 in vectors of 1 already"])
        .says(&["layers.0.attn.q.weight", "8 × 8", "25.0 %"])
        .says(&["pruned", "1 of 3 layers, 1:4 in vectors of 32"]);
    assert_eq!(Model::open(&more).unwrap().read_vector_nm::<bf16>(name, &options).unwrap(), expected);
    std::fs::remove_dir_all(more).unwrap();
    windrow(&["prune", &saved, "--dry-run", "--pattern", "2:4"])
        .failed(2, &["holds weights with N:M sparsity already", "windrow nm --pruned"]);
    // A folder with something in it is left alone.
    windrow(&prune).failed(3, &["out: cannot write: the folder is there and not empty"]);
}

#[test]
fn a_dry_run_writes_nothing_and_says_the_same() {
    let folder = Folder::new();
    let (model, out) = (model(&folder), folder.path("out"));
    let fixed = ["--pattern", "2:4", "--vector", "2", "--layers", "mlp", "--json"];
    let dry = windrow(&[&["prune", &model, "--dry-run"], &fixed[..]].concat()).json("windrow.prune/1");
    assert_eq!(folder.names(), ["model"]);
    let done = windrow(&[&["prune", &model, &out], &fixed[..]].concat()).json("windrow.prune/1");
    assert_eq!(dry["layers"], done["layers"]);
    assert_eq!((&dry["bytes_after"], &dry["output"]), (&Value::Null, &Value::Null));
    let sizes =
        ["one", "two"].map(|name| std::fs::metadata(format!("{out}/{name}.safetensors")).unwrap().len());
    assert_eq!(done["bytes_after"], sizes.iter().sum::<u64>());
    let layer = &done["layers"][3];
    assert_eq!(layer["name"], "layers.0.mlp.down.weight");
    assert_eq!((layer["kept"].as_f64(), layer["shape"].to_string()), (Some(0.5), "[1,4]".to_owned()));
    assert!((layer["lost_squares"].as_f64().unwrap() - 1.25 / 14.25).abs() < 1e-12);
    assert_eq!((&done["pruned"], &done["tensors"], &done["files"]), (&2.into(), &5.into(), &2.into()));
}

#[test]
fn one_file_becomes_one_file() {
    let folder = Folder::new();
    let weights = file(
        &folder,
        "w.safetensors",
        &[("w", "F16", &[4, 2], halves(&[1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]))],
    );
    let out = folder.file("out.safetensors", "what was there");
    windrow(&["prune", &weights, &out, "--pattern", "2:4", "--vector", "1", "--in-out"])
        .succeeded()
        .says(&["w", "4 × 2", "f16", "50.0 %"]);
    let found = io::read_vector_nm::<f16>(&out, &ReadOptions::default()).unwrap();
    let dense = [0.0, 8.0, 0.0, 7.0, 3.0, 0.0, 4.0, 0.0].map(f16::from_f32);
    assert_eq!(found.to_dense().unwrap(), dense);
    assert_eq!(folder.names(), ["out.safetensors", "w.safetensors"]);
    // Vectors of 32 columns, as nm has them: of both columns, rows 0 and 1 have the larger norm.
    windrow(&["prune", &weights, &out, "--pattern", "2:4", "--in-out"])
        .succeeded()
        .says(&["2:4 in vectors of 32"]);
    let found = io::read_vector_nm::<f16>(&out, &ReadOptions::default()).unwrap();
    assert_eq!((found.pattern().l(), found.indices()), (32, &[0, 1][..]));
    windrow(&["prune", &weights, &weights, "--pattern", "2:4"]).failed(2, &["is the input too"]);
    windrow(&["prune", &weights, "-", "--pattern", "2:4"]).failed(2, &["not to standard output"]);
}

#[test]
fn zeros_masks_and_bitmasks_are_taken_as_they_are() {
    let folder = Folder::new();
    let sparse = halves(&[0.0, 3.0, 0.0, 4.0, 5.0, 0.0, 6.0, 0.0]);
    let full = halves(&[1.0; 8]);
    let zeros = file(
        &folder,
        "z.safetensors",
        &[("a", "F16", &[2, 4], sparse.clone()), ("b", "F16", &[2, 4], full.clone())],
    );
    let out = folder.path("out.safetensors");
    let read = |name: &str| {
        let options = ReadOptions { tensor: Some(name), ..ReadOptions::default() };
        io::read_vector_nm::<f16>(&out, &options).unwrap().to_dense().unwrap()
    };
    let turned = [0.0, 5.0, 3.0, 0.0, 0.0, 6.0, 4.0, 0.0].map(f16::from_f32);
    windrow(&["prune", &zeros, &out, "--pattern", "2:4", "--zeros"])
        .succeeded()
        .says(&["a", "2 × 4", "f16", "50.0 %", "0.0 %"])
        .says(&["b", "left as it is: row 0, columns 0 to 3: 4 elements are not zero, the pattern keeps 2"])
        .says(&["pruned", "1 of 2 layers"]);
    assert_eq!(read("a"), turned);
    assert_eq!(Model::open(&out).unwrap().tensor("b").unwrap().dtype(), "F16");
    // The mask of `a` keeps other elements than magnitude would; `b` has none.
    let mask = vec![1, 1, 0, 0, 0, 0, 1, 1];
    let values = halves(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let tensors: [Raw<'_>; 3] = [
        ("a", "F16", &[2, 4], values.clone()),
        ("a.mask", "BOOL", &[2, 4], mask),
        ("b", "F16", &[2, 4], full),
    ];
    let masked = file(&folder, "m.safetensors", &tensors);
    windrow(&["prune", &masked, &out, "--pattern", "2:4", "--mask", ".mask"])
        .succeeded()
        .says(&["a", "50.0 %"])
        .says(&["b", "left as it is: no mask b.mask"]);
    assert_eq!(read("a"), [1.0, 0.0, 2.0, 0.0, 0.0, 7.0, 0.0, 8.0].map(f16::from_f32));
    let names: Vec<String> =
        Model::open(&out).unwrap().tensors().map(|tensor| tensor.name().to_owned()).collect();
    assert_eq!(names, ["a.values", "a.indices", "b"]);
    // The layout of compressed-tensors, columns 1 and 3, 0 and 2.
    let tensors: [Raw<'_>; 3] = [
        ("a.bitmask", "U8", &[2, 1], vec![0b1010, 0b0101]),
        ("a.compressed", "F16", &[2, 2], halves(&[3.0, 4.0, 5.0, 6.0])),
        ("a.shape", "I64", &[2, 1], [2i64, 4].iter().flat_map(|x| x.to_le_bytes()).collect()),
    ];
    let packed = file(&folder, "c.safetensors", &tensors);
    windrow(&["prune", &packed, &out, "--pattern", "2:4"])
        .succeeded()
        .says(&["a.weight", "2 × 4", "f16", "0.0 %"]);
    assert_eq!(read("a.weight"), turned);
    let names: Vec<String> =
        Model::open(&out).unwrap().tensors().map(|tensor| tensor.name().to_owned()).collect();
    assert_eq!(names, ["a.weight.values", "a.weight.indices"]);
    windrow(&["prune", &packed, &out, "--pattern", "1:4"])
        .failed(3, &["no layer could be pruned, so nothing was written"])
        .says(&["a.weight", "row 0, columns 0 to 3: 2 elements are not zero, the pattern keeps 1"])
        .says(&["written", "nothing"]);
    assert_eq!(read("a.weight"), turned, "what was there stays");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new();
    let (model, out) = (model(&folder), folder.path("out"));
    let prune = |arguments: &[&str]| windrow(&[&["prune", &model], arguments].concat());
    prune(&[&out, "--pattern", "2:4", "--layers", "conv"])
        .failed(2, &["--layers matches none of 5 tensors; some are called layers.0.mlp.up.weight, "]);
    prune(&[&out, "--pattern", "2:4", "--layers", "("]).failed(2, &["--layers: "]);
    prune(&[&out, "--pattern", "5:4"]).failed(2, &["--pattern, --vector: there is no pattern 5:4"]);
    prune(&[&out, "--pattern", "2:4", "--layers", "codes"]).failed(3, &["no layer could be pruned"]);
    prune(&["--pattern", "2:4"]).failed(2, &["<OUT>"]);
    prune(&[&out, "--pattern", "2:4", "--dry-run"]).failed(2, &["--dry-run"]);
    prune(&[&out, "--pattern", "2:4", "--max-nnz", "100"])
        .failed(6, &["128 entries are more than the limit of 100", "raise it with --max-nnz"]);
    windrow(&["prune", &folder.path("none"), &out, "--pattern", "2:4"]).failed(3, &["none: cannot read"]);
    std::fs::remove_file(folder.path("model/two.safetensors")).unwrap();
    prune(&[&out, "--pattern", "2:4"]).failed(3, &["the file `two.safetensors` beside it", "fetch it"]);
    assert_eq!(folder.names(), ["model"]);
}

#[test]
fn nm_saves_weights_in_their_own_type() {
    let folder = Folder::new();
    let dense = brains(8 * 4);
    let source = file(&folder, "w.safetensors", &[("w", "BF16", &[8, 4], bytes(&dense))]);
    let nm = |arguments: &[&str]| {
        windrow(&[&["nm", "--shape", "2", "-d", "cpu", "--repeat", "1"], arguments].concat()).succeeded();
    };
    let saved = folder.path("p.safetensors");
    nm(&["--weights", &source, "--pattern", "2:4", "--vector", "2", "--save", &saved]);
    let expected = prune_magnitude(&dense, 8, 4, NmPattern::new(2, 4, 2).unwrap()).unwrap();
    let options = ReadOptions::default();
    assert_eq!(io::vector_nm_type(&saved, &options).unwrap(), windrow::ValueType::Bf16);
    assert_eq!(io::read_vector_nm::<bf16>(&saved, &options).unwrap(), expected);
    let halves =
        VectorNm::from_dense(&[f16::ONE, f16::ZERO], 2, 1, NmPattern::new(1, 2, 1).unwrap()).unwrap();
    let (archive, again) = (folder.path("h.npz"), folder.path("h2.npz"));
    io::write_vector_nm(&archive, &halves, NmIndices::Auto).unwrap();
    nm(&["--pruned", &archive, "--save", &again]);
    assert_eq!(std::fs::read(&archive).unwrap(), std::fs::read(&again).unwrap());
}

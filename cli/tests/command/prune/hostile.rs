//! Models and outputs that a person would not have meant.

use serde_json::Value;
use windrow::io::{Model, ReadOptions};

use super::{Raw, file, halves, model};
use crate::run::{Folder, command, finish, windrow};

/// Promise, zero and not-a-number: what of NaN and infinity pruning a model drops, it tells.
#[test]
fn what_is_not_finite_is_told() {
    let folder = Folder::new();
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let kept = halves(&[1.0, nan, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    let dropped = halves(&[infinite, -infinite, nan, 1.0, 1.0, 2.0, 3.0, 4.0]);
    let tensors: [Raw<'_>; 5] = [
        ("kept", "F16", &[2, 4], kept.clone()),
        ("dropped", "F16", &[2, 4], dropped),
        ("good", "F16", &[2, 4], halves(&[1.0; 8])),
        ("masked", "F16", &[2, 4], kept),
        ("masked.mask", "BOOL", &[2, 4], vec![0, 0, 1, 1, 0, 0, 1, 1]),
    ];
    let (weights, out) = (file(&folder, "x.safetensors", &tensors), folder.path("y.safetensors"));
    let prune =
        ["prune", &weights, &out, "--pattern", "2:4", "--vector", "1", "--layers", "^(kept|dropped|good)$"];
    let outcome = windrow(&prune);
    outcome.succeeded().says(&["kept ", "50.0 %", " - ", "1 NaN or infinite, kept"]).says(&[
        "dropped ",
        "50.0 %",
        " - ",
        "3 NaN or infinite, 1 of them dropped",
    ]);
    let good = outcome.stdout.lines().find(|line| line.starts_with("good")).unwrap();
    assert!(good.ends_with("50.0 %        50.0 %"), "{good}");
    let masked = ["prune", &weights, &out, "--pattern", "2:4", "--layers", "^masked$", "--mask", ".mask"];
    windrow(&masked).succeeded().says(&["masked ", " - ", "1 NaN or infinite, 1 of them dropped"]);
    let object = windrow(&[&prune[..], &["--json"]].concat()).json("windrow.prune/1");
    let dropped = &object["layers"][1];
    assert_eq!((&dropped["non_finite"], &dropped["non_finite_kept"]), (&3.into(), &2.into()));
    assert_eq!((&dropped["lost_squares"], &dropped["kept"]), (&Value::Null, &0.5.into()));
}

#[test]
fn shares_are_right_where_squares_are_too_large_or_too_small() {
    let folder = Folder::new();
    let doubles = |scale: f64| [3.0, 4.0, 1.0, 2.0].iter().flat_map(|x| (x * scale).to_le_bytes()).collect();
    let tensors: [Raw<'_>; 3] = [
        ("large", "F64", &[1, 4], doubles(1e300)),
        ("small", "F64", &[1, 4], doubles(1e-300)),
        ("zero", "F64", &[1, 4], doubles(0.0)),
    ];
    let weights = file(&folder, "x.safetensors", &tensors);
    let object =
        windrow(&["prune", &weights, "--dry-run", "--pattern", "1:1", "--json"]).json("windrow.prune/1");
    for layer in object["layers"].as_array().unwrap() {
        assert_eq!((&layer["lost_squares"], &layer["kept"]), (&0.0.into(), &1.0.into()), "{layer}");
    }
    let zeros = ["nm", "--weights", &weights, "--tensor", "large", "--transpose", "--pattern", "1:4"];
    let object = windrow(&[&zeros[..], &["--shape", "2", "-d", "cpu", "--repeat", "1", "--json"]].concat());
    // All squares overflow and so are equal: the first is kept, 9 of 30, and as f32 it is infinite.
    let object = object.json("windrow.nm/1");
    assert!((object["pruning"]["kept_squares"].as_f64().unwrap() - 0.3).abs() < 1e-12, "{object}");
    assert_eq!((&object["pruning"]["non_finite"], &object["non_finite"]), (&0.into(), &1.into()));
}

#[test]
fn ragged_layers_are_pruned_and_multiplied() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..35u16).map(|at| f32::from(at * 23 % 35) - 17.0).collect();
    let tensors: [Raw<'_>; 5] = [
        ("odd", "F16", &[5, 7], halves(&values)),
        ("one", "F16", &[1, 1], halves(&[3.0])),
        ("none", "F16", &[0, 7], Vec::new()),
        ("codes", "I8", &[5, 7], vec![1; 35]),
        ("eighths", "F8_E4M3", &[5, 7], vec![1; 35]),
    ];
    let (weights, out) = (file(&folder, "x.safetensors", &tensors), folder.path("y.safetensors"));
    for vector in ["1", "3", "32"] {
        windrow(&["prune", &weights, &out, "--pattern", "2:4", "--vector", vector])
            .succeeded()
            // Two of four and two of three inputs; the one input of the other.
            .says(&["odd ", "5 × 7", "57.1 %"])
            .says(&["one ", "1 × 1", "100.0 %", "0.0 %"])
            .says(&["none ", "0 × 7", "left as it is: no elements"])
            .says(&["codes ", "i8", "left as it is: type I8, not f16"])
            .says(&["eighths ", "f8_e4m3", "left as it is: type F8_E4M3, not f16"])
            .says(&["pruned", "2 of 5 layers, 2:4 in vectors of "]);
        for (name, rows) in [("odd", "3 × 5 × 7"), ("one", "3 × 1 × 1")] {
            let shape = rows.replace(" × ", "x");
            let nm =
                ["nm", "--pruned", &out, "--tensor", name, "--shape", &shape, "-d", "cpu", "--repeat", "1"];
            windrow(&[&nm[..], &["--verify"]].concat()).succeeded().says(&["verify", "passed: "]);
        }
    }
}

/// Promise, files: no command that reads a model writes over one of its files.
#[test]
fn a_model_is_never_written_over() {
    let folder = Folder::new();
    let (model, out) = (model(&folder), folder.path("out"));
    let index = format!("{model}/model.safetensors.index.json");
    let content = || {
        ["one.safetensors", "two.safetensors", "model.safetensors.index.json"]
            .map(|name| std::fs::read(format!("{model}/{name}")).unwrap())
    };
    let before = content();
    let prune =
        |model: &str, out: &str| windrow(&["prune", model, out, "--pattern", "2:4", "--layers", "mlp"]);
    prune(&model, &model).failed(3, &["the folder is there and not empty, it has "]);
    prune(&index, &index).failed(3, &["something that is no folder has this name"]);
    prune(&model, &format!("{model}/one.safetensors")).failed(3, &["something that is no folder"]);
    let one = format!("{model}/one.safetensors");
    prune(&one, &one).failed(2, &["one.safetensors is the input too"]);
    prune(&one, &model).failed(2, &["model is a folder, and the model is one file; name a file to write"]);
    // Within its folder there is room for another.
    let inside = format!("{model}/pruned");
    prune(&model, &inside).succeeded().says(&["pruned", "2 of 4 layers"]);
    assert_eq!(Model::open(&inside).unwrap().tensors().count(), 7);
    assert_eq!(content(), before);
    // nm reads one tensor of a model, and writes none of its files.
    let tensor = "layers.0.mlp.down.weight";
    let nm = ["nm", "--tensor", tensor, "--shape", "2", "-d", "cpu", "--repeat", "1"];
    for weights in [&model, &index] {
        for target in [&one, &format!("{model}/two.safetensors"), &index] {
            for option in ["--save", "--out"] {
                let arguments = ["--weights", weights, "--transpose", "--pattern", "2:4", option, target];
                let outcome = windrow(&[&nm[..], &arguments].concat());
                assert_eq!(outcome.code, Some(2), "{outcome:?}");
                assert_eq!(content(), before);
            }
        }
    }
    let arguments = ["--weights", &model, "--transpose", "--pattern", "2:4", "--save", &one];
    windrow(&[&nm[..], &arguments].concat()).failed(2, &["one.safetensors is the input too"]);
    let packed = format!("{inside}/two.safetensors");
    let before = std::fs::read(&packed).unwrap();
    windrow(&[&nm[..], &["--pruned", &inside, "--save", &packed]].concat())
        .failed(2, &["two.safetensors is the input too"]);
    assert_eq!(std::fs::read(&packed).unwrap(), before);
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_work() {
    let folder = Folder::new();
    let model = model(&folder);
    let prune = |out: &str| windrow(&["prune", &model, out, "--pattern", "2:4", "--layers", "mlp"]);
    let file = folder.file("file", "what was there");
    prune(&file).failed(3, &["file: cannot write: something that is no folder has this name"]);
    prune(&format!("{file}/below")).failed(3, &["below: cannot write"]);
    prune(&folder.path("none/below")).failed(3, &["none/below: cannot write: no temporary file can be made"]);
    prune(&folder.path("none/..")).failed(3, &["no folder can have this name"]);
    #[cfg(target_os = "linux")]
    {
        let one = format!("{model}/one.safetensors");
        windrow(&["prune", &one, "/dev/full", "--pattern", "2:4"])
            .failed(3, &["/dev/full: cannot write: No space left"]);
        prune("/proc/none").failed(3, &["/proc/none: cannot write"]);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"what was there");
    assert_eq!(folder.names(), ["file", "model"]);
    // The folder that a shell is in stays where it is.
    let here = folder.path("here");
    std::fs::create_dir(&here).unwrap();
    let mut inside = command(&["prune", &model, ".", "--pattern", "2:4", "--layers", "mlp"]);
    finish(inside.current_dir(&here)).succeeded().says(&["written", "."]);
    assert_eq!(Model::open(&here).unwrap().vector_nm().unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(&here).unwrap().count(), 3);
}

#[test]
fn tables_bound_what_a_file_says() {
    let folder = Folder::new();
    let (long, control) = ("x".repeat(1 << 16), "a\\u001b[31m\\n");
    let many = [1; 1000];
    let tensors: [Raw<'_>; 3] = [
        (&long, "F16", &[2, 4], halves(&[1.0; 8])),
        (control, "F16", &[2, 4], halves(&[1.0; 8])),
        ("many", "F16", &many, halves(&[1.0])),
    ];
    let (weights, out) = (file(&folder, "x.safetensors", &tensors), folder.path("y.safetensors"));
    let outcome = windrow(&["prune", &weights, &out, "--pattern", "2:4"]);
    outcome.succeeded().says(&["a\\u{1b}[31m\\n", "50.0 %"]).says(&[
        "many",
        "1 × 1 × 1 × 1 × 1 × 1 × …",
        "left as it is: 1000 dimensions, not two",
    ]);
    assert!(outcome.stdout.len() < 2000 && !outcome.stdout.contains('\u{1b}'), "{outcome:?}");
    let read = |name: &str| Model::open(&out).unwrap().read_vector_nm::<f32>(name, &ReadOptions::default());
    assert_eq!((read(&long).unwrap().rows(), read("a\u{1b}[31m\n").unwrap().rows()), (4, 4));
    // A model without a tensor, and one without packed weights.
    let empty = file(&folder, "empty.safetensors", &[]);
    windrow(&["prune", &empty, "--dry-run", "--pattern", "2:4"]).failed(2, &["the model has no tensors"]);
    let folder = Folder::new();
    windrow(&["nm", "--pruned", &model(&folder), "--shape", "2", "-d", "cpu"]).failed(
        3,
        &["expected weights with N:M sparsity, found none; windrow prune makes them of dense tensors"],
    );
}

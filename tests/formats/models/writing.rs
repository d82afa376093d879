//! Models are written again with packed layers, whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use windrow_formats::io::{
    DenseTensor, Model, NmTensor, ReadOptions, Rewrite, WriteError, check_new_folder, read_vector_nm,
    read_vector_nm_from, vector_nm_type, write_model,
};
use windrow_formats::{NmPattern, Value, ValueType, VectorNm};

use super::{Folder, Raw, raw_file, sharded};

/// Prunes the two layers of [`sharded`], turned round.
fn rewrites(model: &Model) -> BTreeMap<String, Rewrite> {
    let weights = |name: &str, value_type| {
        let shape = model.tensor(name).unwrap().shape();
        let pattern = NmPattern::new(2, 4, 1).unwrap();
        let (rows, cols, name) = (shape[1], shape[0], name.to_owned());
        Rewrite::Weights(NmTensor { name, rows, cols, pattern, value_type, transposed: true })
    };
    BTreeMap::from([
        ("mlp.up.weight".to_owned(), weights("mlp.up.weight", ValueType::Bf16)),
        ("mlp.down.weight".to_owned(), weights("mlp.down.weight", ValueType::F16)),
        ("scale".to_owned(), Rewrite::Omit),
    ])
}

/// The last two of each four rows of the transposed tensor.
fn last_two<V: Value>(model: &Model, name: &str) -> VectorNm<V> {
    let dense: DenseTensor<V> = model.read(name, &ReadOptions::default()).unwrap();
    let dense = dense.transposed().unwrap();
    let (rows, cols) = (dense.rows(), dense.cols());
    let indices =
        (0..rows / 2).flat_map(|u| std::iter::repeat_n(if u % 2 == 0 { 2 } else { 3 }, cols)).collect();
    VectorNm::from_dense_at(dense.values(), (rows, cols), NmPattern::new(2, 4, 1).unwrap(), indices).unwrap()
}

fn written(model: &Model, out: &Path) -> Result<u64, WriteError> {
    write_model(
        model,
        out,
        &rewrites(model),
        |name, sink| match name {
            "mlp.up.weight" => sink.write(&last_two::<bf16>(model, name)),
            _ => sink.write(&last_two::<f16>(model, name)),
        },
        None,
    )
}

#[test]
fn a_model_is_written_again_with_packed_layers() {
    let folder = Folder::new("rewrite");
    let model = Model::open(sharded(&folder, "model")).unwrap();
    let out = folder.path("out");
    let bytes = written(&model, &out).unwrap();
    let again = Model::open(&out).unwrap();
    let names: Vec<&str> = again.tensors().map(|tensor| tensor.name()).collect();
    let packed = ["mlp.up.weight.values", "mlp.up.weight.indices", "mlp.up.bias"];
    assert_eq!(names, [&packed[..], &["mlp.down.weight.values", "mlp.down.weight.indices", "ids"]].concat());
    let size = |name: &str| std::fs::metadata(out.join(name)).unwrap().len();
    assert_eq!(bytes, size("a.safetensors") + size("b.safetensors"));
    // What was not pruned is the same to the byte, metadata included.
    let (old, new) =
        (std::fs::read(folder.path("model/a.safetensors")), std::fs::read(out.join("a.safetensors")));
    let (old, new) = (old.unwrap(), new.unwrap());
    let tensor = |file: &[u8], name: &str| {
        safetensors::SafeTensors::deserialize(file).unwrap().tensor(name).unwrap().data().to_vec()
    };
    assert_eq!(tensor(&new, "mlp.up.bias"), tensor(&old, "mlp.up.bias"));
    let (_, header) = safetensors::SafeTensors::read_metadata(&new).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("model.safetensors.index.json")).unwrap()).unwrap();
    let tensor_bytes: u64 = again.tensors().map(|tensor| tensor.bytes()).sum();
    assert_eq!(index["metadata"], serde_json::json!({"total_size": tensor_bytes, "by": "hand"}));
    assert_eq!(index["weight_map"]["mlp.down.weight.values"], "b.safetensors");
    // The weights are found by name, in the folder and in their file, in their own type.
    let named = |name| ReadOptions { tensor: Some(name), ..ReadOptions::default() };
    for path in [out.clone(), out.join("a.safetensors")] {
        let found = read_vector_nm::<bf16>(&path, &named("mlp.up.weight")).unwrap();
        assert_eq!(found, last_two::<bf16>(&model, "mlp.up.weight"));
        assert_eq!(vector_nm_type(&path, &named("mlp.up.weight")).unwrap(), ValueType::Bf16);
    }
    let content = std::fs::read(out.join("b.safetensors")).unwrap();
    for options in [named("mlp.down.weight"), ReadOptions::default()] {
        let found = read_vector_nm_from::<f16>(&content[..], &options).unwrap();
        assert_eq!(found, last_two::<f16>(&model, "mlp.down.weight"));
    }
    let described = again.vector_nm().unwrap();
    let expected: Vec<NmTensor> = ["mlp.up.weight", "mlp.down.weight"]
        .iter()
        .map(|name| match &rewrites(&model)[*name] {
            Rewrite::Weights(weights) => weights.clone(),
            Rewrite::Omit => unreachable!("it is pruned"),
        })
        .collect();
    assert_eq!(described, expected);
    let error = read_vector_nm::<f32>(&out, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("found 2: `mlp.up.weight`, `mlp.down.weight`; name the one to read"), "{error}");
    let error = read_vector_nm::<f32>(&out, &named("mlp")).unwrap_err().to_string();
    assert!(
        error.contains("weights `mlp` with N:M sparsity, found none of that name, but `mlp.up.weight`"),
        "{error}"
    );
    // One file becomes one file.
    let one = Model::open(folder.path("model/b.safetensors")).unwrap();
    let path = folder.file("one.safetensors", "what was there");
    let mut only = rewrites(&model);
    only.remove("mlp.up.weight");
    write_model(&one, &path, &only, |name, sink| sink.write(&last_two::<f16>(&one, name)), None).unwrap();
    let found = read_vector_nm::<f16>(&path, &ReadOptions::default()).unwrap();
    assert_eq!(found, last_two::<f16>(&one, "mlp.down.weight"));
}

#[test]
fn what_fails_leaves_nothing() {
    let folder = Folder::new("fails");
    let model = Model::open(sharded(&folder, "model")).unwrap();
    let out = folder.path("out");
    let all = rewrites(&model);
    let left = || {
        let mut names: Vec<String> = std::fs::read_dir(&folder.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let error = write_model(&model, &out, &all, |_, _| Ok(()), None).unwrap_err().to_string();
    assert!(error.contains("out: cannot write: no weights were given for `mlp.up.weight`"), "{error}");
    let wrong = |_: &str, sink: &mut windrow_formats::io::NmSink<'_>| {
        sink.write(&last_two::<f16>(&model, "mlp.up.weight"))
    };
    let error = write_model(&model, &out, &all, wrong, None).unwrap_err().to_string();
    assert!(error.contains("are not what was announced"), "{error}");
    let mut clash = BTreeMap::new();
    let Rewrite::Weights(mut taken) = all["mlp.up.weight"].clone() else { unreachable!("it is pruned") };
    taken.name = "x".to_owned();
    clash.insert("mlp.up.weight".to_owned(), Rewrite::Weights(taken.clone()));
    clash.insert("mlp.up.bias".to_owned(), Rewrite::Weights(taken));
    let error = write_model(&model, &out, &clash, |_, _| Ok(()), None).unwrap_err().to_string();
    assert!(error.contains("two tensors are called \"x.values\""), "{error}");
    assert_eq!(left(), ["model"], "no partial folder");
    // A folder that is not empty is left alone; an empty one gives way.
    folder.file("out/mine.txt", "mine");
    let error = written(&model, &out).unwrap_err().to_string();
    assert!(error.contains("out: cannot write: the folder is there and not empty"), "{error}");
    assert!(check_new_folder(&out).is_err() && check_new_folder(out.join("mine.txt")).is_err());
    assert!(check_new_folder(folder.path("none/below")).unwrap_err().to_string().contains("none/below"));
    std::fs::remove_file(out.join("mine.txt")).unwrap();
    check_new_folder(&out).unwrap();
    written(&model, &out).unwrap();
    assert_eq!(left(), ["model", "out"]);
    // A shard that shrinks while it is read.
    let shard = folder.path("model/b.safetensors");
    let content = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &content[..content.len() - 100]).unwrap();
    let error = model.read::<f16>("mlp.down.weight", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("b.safetensors: tensor `mlp.down.weight`: expected 64 bytes, found "), "{error}");
}

#[test]
fn descriptions_that_lie_are_refused() {
    let folder = Folder::new("descriptions");
    let good = r#"{"version":1,"rows":4,"cols":2,"N":1,"M":2,"L":2,"indices":"bytes","transposed":false}"#;
    let read = |text: &str| {
        let metadata = format!("{{\"vector-nm.w\":{}}}", serde_json::to_string(text).unwrap());
        let tensors: [Raw<'_>; 2] =
            [("w.values", "BF16", &[2, 2], vec![0; 8]), ("w.indices", "U8", &[2, 1], vec![0, 1])];
        let path = folder.file("w.safetensors", raw_file(&metadata, &tensors));
        let options = ReadOptions { tensor: Some("w"), ..ReadOptions::default() };
        let by_path = read_vector_nm::<bf16>(&path, &options).map_err(|error| error.cause().to_string());
        let content = std::fs::read(&path).unwrap();
        let in_memory =
            read_vector_nm_from::<bf16>(&content[..], &options).map_err(|error| error.to_string());
        assert_eq!(by_path, in_memory, "{text}");
        by_path.map(drop)
    };
    read(good).unwrap();
    for (from, to, why) in [
        ("\"version\":1", "\"version\":2", "version 2 of vector-nm is not supported"),
        ("\"rows\":4", "\"rows\":6", "tensor `w.values`: expected shape [3, 2]"),
        ("\"rows\":4", "\"rows\":-4", "JSON that describes weights, found invalid value"),
        ("\"rows\":4,", "", "missing field `rows`"),
        ("\"rows\":4", "\"rows\":99999999999", "rows are more than the limit"),
        ("\"N\":1", "\"N\":3", "there is no pattern 3:2"),
        ("\"L\":2", "\"L\":1", "tensor `w.indices`: expected shape [2, 2]"),
        ("bytes", "zip", "found `zip`"),
        ("bytes", "packed", "tensor `w.indices`: expected shape [1]"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = read(&good.replace(from, to)).unwrap_err();
        assert!(error.contains(why), "{to}: {error}");
    }
}

//! Models that are none, and those that are meant to do harm.

use std::collections::BTreeMap;

use half::f16;
use windrow_formats::io::{
    Model, NmTensor, ReadOptions, Rewrite, read_tensor, read_vector_nm, sniff, write_model,
};
use windrow_formats::{NmPattern, ValueType, VectorNm};

use super::{Folder, Raw, bytes_of, counting, raw_file, sharded};

#[test]
fn what_is_no_model_is_named_for_what_it_is() {
    let folder = Folder::new("foreign");
    let torch = {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        zip.start_file("archive/data.pkl", zip::write::SimpleFileOptions::default()).unwrap();
        zip.finish().unwrap().into_inner()
    };
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    for (name, content, what) in [
        ("model.gguf", &b"GGUF\x03\0\0\0"[..], "a GGUF file; take the model as safetensors"),
        ("pytorch_model.bin", &torch, "torch.save"),
        (
            "old.bin",
            b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P",
            "a pickle, as old versions of torch.save wrote",
        ),
        ("new.pt", b"\x80\x04\x95\0\0\0\0\0\0\0\0", "a pickle, as old versions of torch.save wrote"),
        ("model.safetensors", lfs, "a pointer of Git LFS; fetch the file itself with git lfs pull"),
    ] {
        let path = folder.file(name, content);
        let options = ReadOptions::default();
        for error in [
            Model::open(&path).unwrap_err(),
            read_tensor::<f32>(&path, None, &options).unwrap_err(),
            read_vector_nm::<f32>(&path, &options).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains(name) && error.contains(what), "{error}");
        }
        let error = sniff(content).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let index = br#"{"metadata":{},"weight_map":{"a":"pytorch_model-1.bin"}}"#;
    let error = Model::open(folder.file("pytorch_model.bin.index.json", index)).unwrap_err().to_string();
    assert!(error.contains("found `pytorch_model-1.bin` for tensor `a`, a file of torch.save"), "{error}");
    let error = sniff(index).unwrap_err().to_string();
    assert!(error.contains("it is JSON; if it is the index of a model, name one of the files"), "{error}");
    // An index that is not called one, and a file of tensors that is.
    let error = Model::open(folder.file("index.txt", index)).unwrap_err().to_string();
    assert!(error.contains("open it by its name, which ends in .json"), "{error}");
    let error = Model::open(folder.file("tensors.json", raw_file("", &[]))).unwrap_err().to_string();
    assert!(error.contains("expected JSON with an object weight_map"), "{error}");
    for (name, what) in [
        ("pytorch_model.bin", "a file of torch.save by its name"),
        ("model-Q4.GGUF", "a GGUF file"),
        ("pytorch_model.bin.index.json", "an index of files of torch.save"),
        ("tf_model.h5", "an HDF5 file by its name"),
    ] {
        let folder = Folder::new("foreign-folder");
        folder.file("config.json", "{}");
        folder.file(name, "");
        let error = Model::open(folder.path("")).unwrap_err().to_string();
        assert!(error.contains("or a file *.safetensors, found ") && error.contains(what), "{error}");
        assert!(error.contains(&format!("`{name}`")), "{error}");
    }
}

#[test]
fn an_index_of_files_that_are_none_is_refused() {
    let folder = Folder::new("shards");
    folder.file("good.safetensors", raw_file("", &[("a", "U8", &[1], vec![1])]));
    let index = |map: &str| {
        let path = folder.file("model.safetensors.index.json", format!("{{\"weight_map\":{{{map}}}}}"));
        Model::open(path).map_err(|error| error.to_string())
    };
    let refused = |map: &str, why: &str| {
        let error = index(map).unwrap_err();
        assert!(error.contains(why), "{map}: {error}");
    };
    assert_eq!(index(r#""a":"good.safetensors""#).unwrap().files(), 1);
    assert_eq!(index("").unwrap().tensors().count(), 0);
    // An index is no file of tensors, whatever names it.
    refused(r#""a":"model.safetensors.index.json""#, "a file beside the index, name.safetensors");
    let nested = r#"{"weight_map":{"a":"good.safetensors"}}"#;
    folder.file("nested.safetensors", nested);
    refused(
        r#""a":"nested.safetensors""#,
        "nested.safetensors: content: expected a safetensors file, found JSON",
    );
    std::fs::create_dir(folder.path("folder.safetensors")).unwrap();
    refused(r#""a":"folder.safetensors""#, "expected a file, found something else of that name");
    folder.file("empty.safetensors", "");
    refused(
        r#""a":"empty.safetensors""#,
        "empty.safetensors: content: expected a safetensors file, found 0 bytes",
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;

        symlink("good.safetensors", folder.path("link.safetensors")).unwrap();
        assert_eq!(index(r#""a":"link.safetensors""#).unwrap().files(), 1);
        // One file by two names has each tensor twice.
        let both = r#""a":"good.safetensors","b":"link.safetensors""#;
        refused(both, "tensor `a`: expected it in one file, found it in `good.safetensors` and in `link");
        symlink("loop.safetensors", folder.path("loop.safetensors")).unwrap();
        refused(r#""a":"loop.safetensors""#, "no such file; fetch it");
        // Nobody writes to the pipe: it must not be waited for.
        let pipe = folder.path("pipe.safetensors");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("every unix has mkfifo");
        assert!(made.success());
        refused(r#""a":"pipe.safetensors""#, "expected a file, found something else of that name");
    }
}

/// Packs a tensor of f16 that is `rows × cols`, out × in, as 2:4.
fn pack(model: &Model, name: &str) -> VectorNm<f16> {
    let dense = model.read::<f16>(name, &ReadOptions::default()).unwrap().transposed().unwrap();
    let (rows, cols) = (dense.rows(), dense.cols());
    let indices =
        (0..rows / 2).flat_map(|u| std::iter::repeat_n(u8::try_from(u % 2).unwrap(), cols)).collect();
    VectorNm::from_dense_at(dense.values(), (rows, cols), NmPattern::new(2, 4, 1).unwrap(), indices).unwrap()
}

fn packed(model: &Model, name: &str) -> Rewrite {
    let shape = model.tensor(name).unwrap().shape();
    Rewrite::Weights(NmTensor {
        name: name.to_owned(),
        rows: shape[1],
        cols: shape[0],
        pattern: NmPattern::new(2, 4, 1).unwrap(),
        value_type: ValueType::F16,
        transposed: true,
    })
}

#[test]
fn ten_thousand_tensors_are_no_more_than_that() {
    const COUNT: usize = 10_000;
    let folder = Folder::new("many");
    let names: Vec<String> = (0..COUNT).map(|at| format!("layers.{at}.experts.{}.weight", at % 7)).collect();
    let bytes = bytes_of(&counting::<f16>(8));
    let tensors: Vec<Raw<'_>> =
        names.iter().map(|name| (name.as_str(), "F16", &[2, 4][..], bytes.clone())).collect();
    let model = Model::open(folder.file("many.safetensors", raw_file("", &tensors))).unwrap();
    assert_eq!(model.tensors().count(), COUNT);
    let every_other = names.iter().step_by(2);
    let rewrites: BTreeMap<String, Rewrite> =
        every_other.map(|name| (name.clone(), packed(&model, name))).collect();
    let out = folder.path("packed.safetensors");
    write_model(&model, &out, &rewrites, |name, sink| sink.write(&pack(&model, name)), None).unwrap();
    let again = Model::open(&out).unwrap();
    assert_eq!((again.tensors().count(), again.vector_nm().unwrap().len()), (COUNT / 2 * 3, COUNT / 2));
    assert_eq!(again.bytes(), std::fs::metadata(&out).unwrap().len());
    for name in [&names[0], &names[COUNT - 2]] {
        let found = again.read_vector_nm::<f16>(name, &ReadOptions::default()).unwrap();
        assert_eq!(found, pack(&model, name));
    }
    let left = again.read::<f16>(&names[COUNT - 1], &ReadOptions::default()).unwrap();
    assert_eq!(left.values(), counting::<f16>(8));
}

#[test]
fn tensors_of_every_type_and_shape_are_copied() {
    let folder = Folder::new("copied");
    // Bits of an element; one and a half bytes hold two of some.
    let types = [
        ("BOOL", 8),
        ("F4", 4),
        ("F6_E2M3", 6),
        ("F6_E3M2", 6),
        ("U8", 8),
        ("I8", 8),
        ("F8_E5M2", 8),
        ("F8_E4M3", 8),
        ("F8_E8M0", 8),
        ("F8_E4M3FNUZ", 8),
        ("F8_E5M2FNUZ", 8),
        ("I16", 16),
        ("U16", 16),
        ("F16", 16),
        ("BF16", 16),
        ("I32", 32),
        ("U32", 32),
        ("F32", 32),
        ("C64", 64),
        ("F64", 64),
        ("I64", 64),
        ("U64", 64),
    ];
    let bytes = |len: usize| (0..len).map(|at| u8::try_from(at * 37 % 251).unwrap()).collect::<Vec<u8>>();
    let mut tensors: Vec<Raw<'_>> =
        types.iter().map(|&(name, bits)| (name, name, &[3, 4][..], bytes(12 * bits / 8))).collect();
    tensors.push(("none", "F16", &[0, 4], Vec::new()));
    tensors.push(("none either", "I8", &[4, 0], Vec::new()));
    tensors.push(("scalar", "F32", &[], bytes(4)));
    tensors.push(("three", "U8", &[2, 2, 2], bytes(8)));
    tensors.push(("w", "F16", &[2, 4], bytes_of(&counting::<f16>(8))));
    tensors.push(("last of none", "F64", &[0], Vec::new()));
    let file = raw_file(r#"{"by":"hand","empty":""}"#, &tensors);
    let model = Model::open(folder.file("x.safetensors", file)).unwrap();
    assert_eq!(model.tensors().count(), tensors.len());
    let out = folder.path("y.safetensors");
    let rewrites = BTreeMap::from([("w".to_owned(), packed(&model, "w"))]);
    write_model(&model, &out, &rewrites, |name, sink| sink.write(&pack(&model, name)), None).unwrap();
    let written = std::fs::read(&out).unwrap();
    let again = safetensors::SafeTensors::deserialize(&written).unwrap();
    for (name, dtype, shape, bytes) in tensors.iter().filter(|(name, ..)| *name != "w") {
        let found = again.tensor(name).unwrap();
        assert_eq!((found.dtype().to_string().as_str(), found.shape()), (*dtype, *shape), "{name}");
        assert_eq!(found.data(), bytes, "{name}");
    }
    let again = Model::open(&out).unwrap();
    assert_eq!(again.metadata().take(2).collect::<Vec<_>>(), [("by", "hand"), ("empty", "")]);
    // Nothing but numbers is read as numbers.
    for (name, why) in [
        ("F8_E4M3", "tensor `F8_E4M3`: the type F8_E4M3 is not supported"),
        ("I8", "the type I8 is not supported"),
        ("three", "tensor `three`: expected one dimension or two, found shape [2, 2, 2]"),
        ("scalar", "expected one dimension or two, found shape []"),
    ] {
        let error = model.read::<f32>(name, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(model.read::<f32>("none", &ReadOptions::default()).unwrap().values().is_empty());
}

#[test]
fn names_are_whole_but_bounded_and_command_no_terminal() {
    let folder = Folder::new("names");
    let usual = "model.language_model.layers.31.block_sparse_moe.experts.7.down_proj.weight";
    let (long, control) = ("x".repeat(100_000), "a\\u001b[31m\\n");
    let tensors: [Raw<'_>; 3] =
        [(usual, "U8", &[1], vec![1]), (&long, "U8", &[1], vec![1]), (control, "U8", &[1], vec![1])];
    let model = Model::open(folder.file("x.safetensors", raw_file("", &tensors))).unwrap();
    let error = model.read::<f32>("y", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains(usual) && error.len() < 1000, "{error}");
    assert!(!error.contains(['\u{1b}', '\n']), "{error}");
    let error = model.read::<f32>("a\u{1b}[31m\n", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("tensor `a\\u{1b}[31m\\n`: the type U8 is not supported"), "{error}");
}

#[test]
fn files_that_go_or_come_while_a_model_is_written_are_noticed() {
    let folder = Folder::new("changing");
    let names = || {
        let entry =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder.path("")).unwrap().map(entry).collect();
        names.sort();
        names
    };
    let model = Model::open(sharded(&folder, "model")).unwrap();
    let (out, none) = (folder.path("out"), BTreeMap::new());
    let rewrites = BTreeMap::from([("mlp.down.weight".to_owned(), packed(&model, "mlp.down.weight"))]);
    let unknown = BTreeMap::from([("up".to_owned(), Rewrite::Omit)]);
    let error = write_model(&model, &out, &unknown, |_, _| Ok(()), None).unwrap_err().to_string();
    assert!(error.contains("out: cannot write: the model has no tensor `up`"), "{error}");
    // Somebody else writes into the empty folder.
    std::fs::create_dir(&out).unwrap();
    let mine = out.join("b.safetensors");
    let error = write_model(
        &model,
        &out,
        &rewrites,
        |name, sink| {
            std::fs::write(&mine, "mine").unwrap();
            sink.write(&pack(&model, name))
        },
        None,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the folder has got a b.safetensors since; name another folder"), "{error}");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1, "no part of the model");
    assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
    std::fs::remove_file(&mine).unwrap();
    // An empty folder that is there stays the same one.
    #[cfg(unix)]
    {
        let link = folder.path("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        write_model(&model, &link, &rewrites, |name, sink| sink.write(&pack(&model, name)), None).unwrap();
        assert!(link.is_symlink());
        assert_eq!(Model::open(&out).unwrap().tensors().count(), 6);
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3, "two files and an index");
        std::fs::remove_file(link).unwrap();
    }
    let _ = std::fs::remove_dir_all(&out);
    // A folder within that of the model is another one.
    write_model(&model, folder.path("model/out"), &none, |_, _| Ok(()), None).unwrap();
    assert_eq!(Model::open(folder.path("model/out")).unwrap().tensors().count(), 5);
    assert_eq!(Model::open(folder.path("model")).unwrap().tensors().count(), 5);
    // A file that is cut off, and one that is gone.
    let shard = folder.path("model/b.safetensors");
    let content = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &content[..content.len() - 10]).unwrap();
    let error = write_model(&model, &out, &none, |_, _| Ok(()), None).unwrap_err().to_string();
    assert!(error.contains("b.safetensors: tensor `ids`: expected 24 bytes, found 18"), "{error}");
    std::fs::remove_file(&shard).unwrap();
    let error = write_model(&model, &out, &none, |_, _| Ok(()), None).unwrap_err().to_string();
    assert!(error.contains("b.safetensors: cannot read"), "{error}");
    assert_eq!(names(), ["model"]);
}

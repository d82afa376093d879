//! Models are found, and compared with their index.

use windrow_formats::ValueType;
use windrow_formats::io::{DenseTensor, Limits, Model, ModelIndex, ReadOptions, read_tensor, write_tensors};

use super::{Folder, raw_file, sharded};

#[test]
fn a_model_is_a_folder_an_index_or_a_file() {
    let folder = Folder::new("open");
    let model = sharded(&folder, "model");
    let index = model.join("model.safetensors.index.json");
    for path in [&model, &index] {
        let model = Model::open(path).unwrap();
        let names: Vec<&str> = model.tensors().map(|tensor| tensor.name()).collect();
        assert_eq!(names, ["mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "ids", "scale"]);
        assert!(model.is_folder() && model.files() == 2);
        let down = model.tensor("mlp.down.weight").unwrap();
        assert_eq!((down.shape(), down.dtype().as_str(), down.bytes()), (&[8, 4][..], "F16", 64));
        assert_eq!(down.value_type(), Some(ValueType::F16));
        assert_eq!(model.tensor("scale").unwrap().value_type(), None);
        assert!(model.tensor("up").is_none());
        let up = read_tensor::<f32>(path, Some("mlp.up.weight"), &ReadOptions::default()).unwrap();
        assert_eq!((up.rows(), up.cols(), up.values()[31]), (4, 8, 32.0));
    }
    let one = Model::open(model.join("a.safetensors")).unwrap();
    assert!(!one.is_folder() && one.tensors().count() == 2);
    // A folder with one file needs no index; one with two does.
    let lone = folder.file("lone/weights.safetensors", raw_file("", &[("a", "U8", &[1], vec![1])]));
    assert!(Model::open(lone.parent().unwrap()).unwrap().is_folder());
    folder.file("lone/more.safetensors", raw_file("", &[("b", "U8", &[1], vec![1])]));
    let error = Model::open(lone.parent().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("found 2: `more.safetensors`, `weights.safetensors`; name the one to read"),
        "{error}"
    );
    std::fs::create_dir(folder.path("empty")).unwrap();
    let error = Model::open(folder.path("empty")).unwrap_err().to_string();
    assert!(
        error.contains("expected model.safetensors.index.json or a file *.safetensors, found neither"),
        "{error}"
    );
    let error = Model::open(folder.path("none")).unwrap_err().to_string();
    assert!(error.contains("none: cannot read"), "{error}");
    let other = folder.file("gguf.safetensors", b"GGUF and more");
    let error = Model::open(other).unwrap_err().to_string();
    assert!(error.contains("a GGUF file"), "{error}");
}

#[test]
fn an_index_that_is_none_is_refused() {
    for (text, why) in [
        ("", "found ``"),
        (r#"[{"a":"x.safetensors"},null]"#, "found `[{"),
        ("{", "EOF while parsing"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map":[]}"#, "expected an object"),
        (r#"{"weight_map":{"a":1}}"#, "expected a string"),
        (r#"{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}"#, "`a` is there twice"),
        (r#"{"weight_map":{},"weight_map":{}}"#, "duplicate field `weight_map`"),
        (r#"{"weight_map":{}} x"#, "trailing characters"),
        (r#"{"weight_map":{"a":"../x.safetensors"}}"#, "found `../x.safetensors` for tensor `a`"),
        (r#"{"weight_map":{"a":"/etc/x.safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":"sub/x.safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":"..\\x.safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":"C:x.safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":"x\u0000.safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":".."}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":".safetensors"}}"#, "a file beside the index"),
        (r#"{"weight_map":{"a":"x.bin"}}"#, "a file beside the index, name.safetensors"),
        (r#"{"weight_map":{"a":""}}"#, "a file beside the index"),
    ] {
        let error = ModelIndex::read_from(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("index of a model: expected ") && error.contains(why), "{text}: {error}");
    }
    let endless = std::io::Read::chain(&b"{\"weight_map\":"[..], std::io::repeat(b' '));
    let error = ModelIndex::read_from(endless).unwrap_err().to_string();
    assert!(error.contains("more than 67108864 bytes"), "{error}");
    let deep = "[".repeat(1 << 20);
    assert!(ModelIndex::read_from(format!("{{\"metadata\":{{\"a\":{deep}").as_bytes()).is_err());
}

#[test]
fn an_index_that_the_files_contradict_is_refused() {
    let folder = Folder::new("contradict");
    let check = |case: &str, from: &str, to: &str, parts: &[&str]| {
        let model = sharded(&folder, case);
        let index = model.join("model.safetensors.index.json");
        let text = std::fs::read_to_string(&index).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&index, text.replacen(from, to, 1)).unwrap();
        let error = Model::open(&model).unwrap_err().to_string();
        assert!(error.contains("model.safetensors.index.json: "), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{case}: {error}"));
    };
    let missing =
        ["the file `c.safetensors` beside it, which it names for 1 tensors, the first `ids`", "fetch it"];
    check("missing", r#""ids":"b.s"#, r#""ids":"c.s"#, &missing);
    let elsewhere =
        ["tensor `ids`: expected it in `a.safetensors`, as the index says", "found it in `b.safetensors`"];
    check("elsewhere", r#""ids":"b.s"#, r#""ids":"a.s"#, &elsewhere);
    let nowhere = ["tensor `more`: expected it in `b.safetensors`", "none of that name in any file"];
    check("nowhere", r#""ids":"b.s"#, r#""more":"b.safetensors","ids":"b.s"#, &nowhere);
    let unnamed = ["tensor `ids`: expected a file in the index", "add it to weight_map"];
    check("unnamed", r#""ids":"b.safetensors","#, "", &unnamed);
    let model = sharded(&folder, "twice");
    let again = raw_file("", &[("ids", "I64", &[1], vec![0; 8]), ("z", "U8", &[1], vec![0])]);
    folder.file("twice/c.safetensors", again);
    let index = model.join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).unwrap().replace(r#""ids""#, r#""z":"c.safetensors","ids""#);
    std::fs::write(&index, text).unwrap();
    let error = Model::open(&model).unwrap_err().to_string();
    assert!(
        error.contains("tensor `ids`: expected it in one file, found it in `b.safetensors` and in `c"),
        "{error}"
    );
}

#[test]
fn headers_that_lie_are_refused() {
    let folder = Folder::new("headers");
    let entry = |name: &str, shape: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let file = |entries: &[String], bytes: usize| {
        let header = format!("{{{}}}", entries.join(","));
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes]].concat()
    };
    let refused = |content: Vec<u8>, why: &str| {
        let path = folder.file("x.safetensors", content);
        let error = Model::open(path).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    };
    let (a, b) = (entry("a", "[2]", 0, 8), entry("b", "[1]", 8, 12));
    folder.file("x.safetensors", file(&[a.clone(), b.clone()], 12));
    assert_eq!(Model::open(folder.path("x.safetensors")).unwrap().tensors().count(), 2);
    refused(file(&[a.clone(), b.clone()], 11), "tensor `b` at bytes 8 to 12 of 11; the file was cut off");
    refused(file(&[a.clone(), b.clone()], 13), "1 bytes behind the last tensor");
    refused(file(&[a.clone(), a.clone()], 8), "`a` is there twice");
    refused(file(&[a.clone(), entry("b", "[1]", 4, 8)], 8), "tensor `b` at byte 4, where byte 8 is the next");
    refused(
        file(&[a.clone(), entry("b", "[1]", 12, 16)], 16),
        "tensor `b` at byte 12, where byte 8 is the next",
    );
    refused(file(&[entry("a", "[3]", 0, 8)], 8), "bytes 0 to 8 for tensor `a`, which is F32 of shape [3]");
    refused(file(&[entry("a", "[2]", 8, 0)], 8), "bytes 8 to 0 for tensor `a`");
    refused(file(&[entry("a", "[4294967296,4294967296]", 0, 8)], 8), "of shape [4294967296, 4294967296]");
    refused(file(&[entry("a", "[0]", u64::MAX, u64::MAX)], 0), "the file was cut off");
    refused(file(&[entry("a", "[-1]", 0, 8)], 8), "invalid value");
    refused(file(&[a.replace("F32", "F33")], 8), "unknown variant `F33`");
    refused(
        [&(1u64 << 40).to_le_bytes()[..], b"{}"].concat(),
        "one of 1099511627776 bytes, more than 100000000",
    );
    refused([&9u64.to_le_bytes()[..], b"{}"].concat(), "2 of 9 bytes");
    refused(b"\x02\0\0\0\0\0\0".to_vec(), "expected a safetensors file");
}

#[test]
fn tensors_of_a_file_are_read_one_at_a_time() {
    let folder = Folder::new("limits");
    let mut file = Vec::new();
    let big = DenseTensor::new("big", 100, 100, vec![1.0f32; 10_000]).unwrap();
    let small = DenseTensor::new("small", 2, 2, vec![1.0f32; 4]).unwrap();
    write_tensors(&mut file, &[big, small.clone()]).unwrap();
    let path = folder.file("x.safetensors", file);
    let limits = Limits { max_bytes: 1000, ..Default::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    assert_eq!(read_tensor::<f32>(&path, Some("small"), &options).unwrap(), small);
    let error = read_tensor::<f32>(&path, Some("big"), &options).unwrap_err().to_string();
    assert!(error.contains("40000 bytes (decompressed) are more than the limit of 1000"), "{error}");
}

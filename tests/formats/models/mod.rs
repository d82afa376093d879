//! Models: several files with an index, weights saved in their own type, and what is refused.

mod hostile;
mod import;
mod reading;
mod types;
mod writing;

use std::path::PathBuf;

use half::{bf16, f16};
use windrow_formats::Value;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("windrow-models-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tensor of a file: name, type, shape, bytes.
type Raw<'a> = (&'a str, &'a str, &'a [usize], Vec<u8>);

/// A safetensors file with these tensors, written without any code that is tested here.
fn raw_file(metadata: &str, tensors: &[Raw<'_>]) -> Vec<u8> {
    let (mut at, mut data) = (0, Vec::new());
    let mut entries: Vec<String> = Vec::new();
    if !metadata.is_empty() {
        entries.push(format!("\"__metadata__\":{metadata}"));
    }
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes.len();
        entries.push(format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}"
        ));
        at = end;
        data.extend_from_slice(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn bytes_of<V: Value>(values: &[V]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// Elements 1, 2, 3, … of a type.
fn counting<V: Value>(len: usize) -> Vec<V> {
    (0..len).map(|at| V::from_f64(at as f64 + 1.0)).collect()
}

/// A model of two files, of three types.
fn sharded(folder: &Folder, name: &str) -> PathBuf {
    let one = raw_file(
        r#"{"format":"pt"}"#,
        &[
            ("mlp.up.weight", "BF16", &[4, 8], bytes_of(&counting::<bf16>(32))),
            ("mlp.up.bias", "BF16", &[4], bytes_of(&counting::<bf16>(4))),
        ],
    );
    let two = raw_file(
        "",
        &[
            ("mlp.down.weight", "F16", &[8, 4], bytes_of(&counting::<f16>(32))),
            ("ids", "I64", &[3], vec![7; 24]),
            ("scale", "F8_E4M3", &[2, 2], vec![1, 2, 3, 4]),
        ],
    );
    folder.file(&format!("{name}/a.safetensors"), one);
    folder.file(&format!("{name}/b.safetensors"), two);
    let index = r#"{"metadata":{"total_size":999,"by":"hand"},"weight_map":{"mlp.up.weight":"a.safetensors","mlp.up.bias":"a.safetensors","mlp.down.weight":"b.safetensors","ids":"b.safetensors","scale":"b.safetensors"}}"#;
    folder.file(&format!("{name}/model.safetensors.index.json"), index);
    folder.path(name)
}

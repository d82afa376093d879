//! The index of a model in several files: which tensor is in which.

use std::collections::BTreeMap;
use std::io::Read;

use serde::Deserialize;

use super::super::ReadError;
use super::super::foreign;
use super::super::line::{excerpt, name_of};
use super::super::safetensors::Unique;
use super::super::source::read_to_end;
use crate::memory::try_with_room;

/// How messages call it.
const PLACE: &str = "index of a model";
/// Most bytes of an index that are read: one of a hundred thousand tensors has a sixth of it.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes that are kept for each byte of an index, at most.
const KEPT_PER_BYTE: usize = 8;
/// How the files of a model end.
pub(in super::super) const EXTENSION: &str = ".safetensors";

/// The file that holds each tensor of a model, as `model.safetensors.index.json` has it: an object `weight_map` of
/// names of tensors with names of files, and whatever else the writer kept in an object `metadata`.
///
/// Invariant: every file is a plain name that ends in `.safetensors`, so that none is in another folder than the index;
/// no tensor is named twice.
///
/// # Examples
/// ```
/// use windrow_formats::io::ModelIndex;
///
/// let text = br#"{"metadata": {"total_size": 8}, "weight_map": {"up.weight": "model-00001-of-00001.safetensors"}}"#;
/// let index = ModelIndex::read_from(&text[..])?;
/// assert_eq!(index.file_of("up.weight"), Some("model-00001-of-00001.safetensors"));
/// let outside = br#"{"weight_map": {"up.weight": "../other.safetensors"}}"#;
/// let error = ModelIndex::read_from(&outside[..]).unwrap_err().to_string();
/// assert!(error.contains("a file beside the index"), "{error}");
/// # Ok::<(), windrow_formats::io::ReadError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelIndex {
    files: BTreeMap<String, String>,
    metadata: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Parsed {
    weight_map: Unique<String>,
    #[serde(default)]
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

impl ModelIndex {
    /// Reads the index that `reader` returns, at most 64 MiB.
    ///
    /// # Errors
    /// - [`ReadError::Io`] if reading fails;
    /// - [`ReadError::Archive`] if it is no JSON, has no `weight_map`, names a tensor twice, or a file that is not
    ///   beside it;
    /// - [`ReadError::Matrix`] if there is not enough memory.
    pub fn read_from(reader: impl Read) -> Result<Self, ReadError> {
        let damaged = |found: String| ReadError::archive(PLACE, "JSON with an object weight_map", found);
        let mut text = Vec::new();
        let read = read_to_end(reader.take(MAX_BYTES + 1), &mut text)? as u64;
        if read > MAX_BYTES {
            return Err(damaged(format!("more than {MAX_BYTES} bytes")));
        }
        // What parses it ends the process without memory.
        try_with_room::<u8>(text.len().saturating_mul(KEPT_PER_BYTE), "the index of a model")?;
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(damaged(excerpt(&text)));
        }
        let parsed: Parsed = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        for (tensor, file) in &parsed.weight_map.0 {
            if !is_beside(file) {
                let what = foreign::by_name(file).map_or_else(String::new, |what| format!(", {what}"));
                let found = format!("{} for tensor {}{what}", name_of(file), name_of(tensor));
                return Err(ReadError::archive(PLACE, "a file beside the index, name.safetensors", found));
            }
        }
        Ok(Self {
            files: parsed.weight_map.0.into_iter().collect(),
            metadata: parsed.metadata.unwrap_or_default(),
        })
    }

    /// The name of the file that holds `tensor`.
    pub fn file_of(&self, tensor: &str) -> Option<&str> {
        self.files.get(tensor).map(String::as_str)
    }

    /// Names of tensors and of their files, in the order of the former.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        self.files.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str()))
    }

    /// What the writer kept beside the names.
    pub(in super::super) fn metadata(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.metadata
    }
}

/// Whether it names a file of weights in the folder of the index, on every system.
fn is_beside(file: &str) -> bool {
    let is_plain = |c: char| !matches!(c, '/' | '\\' | ':') && !c.is_control();
    file.len() > EXTENSION.len() && file.ends_with(EXTENSION) && file.chars().all(is_plain)
}

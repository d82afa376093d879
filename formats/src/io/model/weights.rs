//! Weights with N:M sparsity among the tensors of a model.
//!
//! The weights called NAME are the tensors `NAME.values` (w × n, in their own type) and `NAME.indices` (U8, w × q, or
//! packed in one dimension), with `vector-nm.NAME` in the metadata of the file, JSON text:
//! `{"version":1,"rows":k,"cols":n,"N":…,"M":…,"L":…,"indices":"bytes" or "packed","transposed":…}`. `transposed` says
//! that the dense tensor was n × k.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::line::{excerpt, name_of};
use super::super::safetensors::{Tensor, Tensors};
use super::super::vector_nm::{IndexForm, Sizes, VERSION, unknown_version};
use super::super::{Limits, ReadError, ReadOptions};
use super::{Model, files};
use crate::{NmPattern, Value, ValueType, VectorNm};

/// What the metadata of weights are called by, in front of their name.
pub(in super::super) const METADATA_PREFIX: &str = "vector-nm.";
/// What the tensor of values ends in.
const VALUES: &str = ".values";
/// What the tensor of indices ends in.
const INDICES: &str = ".indices";

/// What the metadata of a file say of weights.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct Entry {
    pub(in super::super) version: u64,
    pub(in super::super) rows: u64,
    pub(in super::super) cols: u64,
    #[serde(rename = "N")]
    pub(in super::super) n: u64,
    #[serde(rename = "M")]
    pub(in super::super) m: u64,
    #[serde(rename = "L")]
    pub(in super::super) l: u64,
    pub(in super::super) indices: String,
    pub(in super::super) transposed: bool,
}

impl Entry {
    fn parse(name: &str, text: &str) -> Result<Self, ReadError> {
        let key = format!("{METADATA_PREFIX}{name}");
        let parsed: Self = serde_json::from_str(text).map_err(|error| {
            let place = format!("safetensors metadata {}", name_of(&key));
            ReadError::archive(place, "JSON that describes weights", error.to_string())
        })?;
        if parsed.version != VERSION {
            return Err(unknown_version("safetensors metadata", parsed.version));
        }
        Ok(parsed)
    }

    fn sizes(&self, limits: &Limits) -> Result<(Sizes, IndexForm), ReadError> {
        let place = "safetensors metadata";
        let sizes = Sizes::checked(place, [self.rows, self.cols], [self.n, self.m, self.l], limits)?;
        let form = match &*self.indices {
            "bytes" => IndexForm::Bytes,
            "packed" => IndexForm::Packed,
            other => {
                let found = excerpt(other.as_bytes());
                return Err(ReadError::archive(place, "\"bytes\" or \"packed\" as \"indices\"", found));
            }
        };
        Ok((sizes, form))
    }
}

/// Weights that a [`Model`] has in packed form, as its metadata describe them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NmTensor {
    /// The name of the tensor that they were.
    pub name: String,
    /// `k`: rows of the weights.
    pub rows: usize,
    /// `n`: columns of the weights.
    pub cols: usize,
    /// `N`, `M` and `L`.
    pub pattern: NmPattern,
    /// Type of the values.
    pub value_type: ValueType,
    /// Whether the dense tensor was n × k, as PyTorch's `Linear` keeps it (out × in).
    pub transposed: bool,
}

impl NmTensor {
    /// The tensors that hold them: values, and indices.
    pub fn tensors(&self) -> [String; 2] {
        [VALUES, INDICES].map(|end| format!("{}{end}", self.name))
    }
}

impl Model {
    /// The packed weights of the model, in the order of files, and of metadata in each.
    ///
    /// # Errors
    /// [`ReadError::InFile`] around [`ReadError::Archive`], [`ReadError::Unsupported`] or [`ReadError::Matrix`] if a
    /// description is none, or has no tensors.
    pub fn vector_nm(&self) -> Result<Vec<NmTensor>, ReadError> {
        let mut found = Vec::new();
        for shard in self.shards() {
            for (key, text) in &shard.header.metadata {
                let Some(name) = key.strip_prefix(METADATA_PREFIX) else { continue };
                let described = self.described(name, text).map_err(|error| error.in_file(&shard.path));
                found.push(described?);
            }
        }
        Ok(found)
    }

    fn described(&self, name: &str, text: &str) -> Result<NmTensor, ReadError> {
        let entry = Entry::parse(name, text)?;
        let (Sizes { rows, cols, pattern }, _) = entry.sizes(&Limits::default())?;
        let values = format!("{name}{VALUES}");
        let value_type = self.tensor(&values).and_then(super::ModelTensor::value_type);
        let missing = || {
            let expected = format!("a tensor {} of numbers", name_of(&values));
            ReadError::archive("safetensors file", expected, "none")
        };
        let value_type = value_type.ok_or_else(missing)?;
        let transposed = entry.transposed;
        Ok(NmTensor { name: name.to_owned(), rows, cols, pattern, value_type, transposed })
    }

    /// Reads the weights that are called `name`; of the other tensors none is read.
    ///
    /// # Errors
    /// As [`read_vector_nm`](super::super::read_vector_nm).
    pub fn read_vector_nm<V: Value>(
        &self,
        name: &str,
        options: &ReadOptions<'_>,
    ) -> Result<VectorNm<V>, ReadError> {
        let key = format!("{METADATA_PREFIX}{name}");
        let texts = self.shards().iter().flat_map(|shard| &shard.header.metadata);
        let Some((_, text)) = texts.into_iter().find(|(found, _)| *found == key) else {
            return Err(none_of_that_name(name, &self.names()));
        };
        let (sizes, form) = Entry::parse(name, text)?.sizes(&options.limits)?;
        let values = self.with_tensor(&format!("{name}{VALUES}"), options, |values| {
            values.check_shape(&[sizes.kept_rows(), sizes.cols], "kept rows and columns")?;
            values.values()
        })?;
        let indices = self.with_tensor(&format!("{name}{INDICES}"), options, |indices| {
            indices.check_shape(&sizes.index_shape(form), "one index for each kept row and vector")?;
            indices.bytes()
        })?;
        sizes.assemble(values, indices, form)
    }

    /// Names of the packed weights.
    fn names(&self) -> Vec<String> {
        let keys = self.shards().iter().flat_map(|shard| &shard.header.metadata);
        keys.filter_map(|(key, _)| key.strip_prefix(METADATA_PREFIX)).map(str::to_owned).collect()
    }

    /// The name of the only packed weights.
    pub(in super::super) fn only_vector_nm(&self) -> Result<String, ReadError> {
        match &self.names()[..] {
            [name] => Ok(name.clone()),
            [] => Err(ReadError::archive("model", "weights with N:M sparsity", NONE)),
            names => {
                let found = format!("{}: {}; name the one to read", names.len(), files::listed(names));
                Err(ReadError::archive("model", "weights with N:M sparsity", found))
            }
        }
    }
}

/// What is found where there are no packed weights.
const NONE: &str = "none; windrow prune makes them of dense tensors";

fn none_of_that_name(name: &str, names: &[String]) -> ReadError {
    let expected = format!("weights {} with N:M sparsity", name_of(name));
    let found = match names {
        [] => NONE.to_owned(),
        names => format!("none of that name, but {}", files::listed(names)),
    };
    ReadError::archive("safetensors metadata", expected, found)
}

/// Reads the weights that are called `name` from the tensors of one file in memory.
pub(in super::super) fn of_file<V: Value>(
    tensors: &Tensors<'_>,
    name: &str,
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    let Some(text) = tensors.entry(&format!("{METADATA_PREFIX}{name}")) else {
        return Err(none_of_that_name(name, &tensors.entries_with(METADATA_PREFIX)));
    };
    let (sizes, form) = Entry::parse(name, text)?.sizes(&options.limits)?;
    let values: Tensor<'_> = tensors.tensor(&format!("{name}{VALUES}"))?;
    values.check_shape(&[sizes.kept_rows(), sizes.cols], "kept rows and columns")?;
    let indices = tensors.tensor(&format!("{name}{INDICES}"))?;
    indices.check_shape(&sizes.index_shape(form), "one index for each kept row and vector")?;
    sizes.assemble(values.values()?, indices.bytes()?, form)
}

/// The type of the values that [`read_vector_nm`](super::super::read_vector_nm) would read, so that they can be read as
/// they are: [`with_value_type!`](crate::with_value_type) makes a type of it.
///
/// Values in a NumPy archive that are of none of the four types count as `f32`.
///
/// # Errors
/// Those of [`read_vector_nm`](super::super::read_vector_nm).
pub fn vector_nm_type(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<ValueType, ReadError> {
    let path = path.as_ref();
    let mut beginning = Vec::new();
    if !Model::is_folder_or_index(path) {
        let opened =
            File::open(path).and_then(|file| file.take(super::BEGINNING).read_to_end(&mut beginning));
        opened.map_err(|error| ReadError::from(error).in_file(path))?;
        if beginning.starts_with(super::super::sniff::ZIP_MAGIC) {
            return super::super::npz::vector_nm_type(path, options).map_err(|error| error.in_file(path));
        }
    }
    let model = Model::open(path)?;
    let values = match options.tensor {
        Some(name) => format!("{name}{VALUES}"),
        None if model.tensor("values").is_some() => "values".to_owned(),
        None => format!("{}{VALUES}", model.only_vector_nm().map_err(|error| error.in_file(path))?),
    };
    let found = model.tensor(&values).and_then(super::ModelTensor::value_type);
    found.ok_or_else(|| {
        let expected = format!("a tensor {} of f16, bf16, f32 or f64", name_of(&values));
        ReadError::archive("safetensors file", expected, "none").in_file(path)
    })
}

//! Reads safetensors files: dense tensors by name, and vector-wise N:M weights.
//!
//! The crate `safetensors` takes the header apart and sees to it that every tensor lies in the file, has the bytes that
//! its shape and type ask for, and overlaps no other. Shapes, types and metadata are checked here.

mod dense;
mod sparse;
mod vector_nm;

pub use dense::{DenseTensor, read_tensor, read_tensor_from};
pub(super) use sparse::read as read_sparse;
pub(super) use vector_nm::read as read_vector_nm;

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, Metadata, TensorView};

use super::ReadError;
use super::line::excerpt;
use crate::Value;
use crate::memory::{index, try_copy, try_par_collect, try_with_room};

/// Names that a message lists, at most.
const LISTED: usize = 8;
/// Where the header begins, behind its length.
const HEADER_AT: usize = 8;

/// Whether the content is a safetensors file: a header in JSON behind its length.
pub(super) fn is_safetensors(content: &[u8]) -> bool {
    content.get(HEADER_AT) == Some(&b'{')
}

/// What other files of weights begin with, what they are, and what to do about it.
const OTHERS: [(&[u8], &str); 6] = [
    (b"GGUF", "a GGUF file; export the model as safetensors"),
    (
        b"PK\x03\x04",
        "a zip archive, as torch.save and numpy.savez write; in Python, safetensors.torch.save_file writes tensors",
    ),
    (
        b"\x80\x02",
        "a pickle, as old versions of torch.save wrote; in Python, safetensors.torch.save_file writes tensors",
    ),
    (b"\x93NUMPY", "one NumPy array; in Python, safetensors.numpy.save_file writes arrays"),
    (b"\x89HDF\r\n", "an HDF5 file; in Python, safetensors.numpy.save_file writes arrays"),
    (b"\x1f\x8b", "gzip; decompress it first"),
];

/// What content is that does not begin as a safetensors file does.
fn something_else(content: &[u8]) -> String {
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| content.starts_with(magic)) {
        return (*what).to_owned();
    }
    let text = content.trim_ascii_start();
    if text.starts_with(b"{") {
        return "JSON text; an index names the files of a model: read one of those".to_owned();
    }
    let beginning = &content[..content.len().min(16)];
    format!("{} bytes that begin with {}", content.len(), excerpt(beginning))
}

/// Bytes that a header takes as it is kept and while it is read, at most; the crate that reads it ends the process
/// without them.
fn bytes_of_header(content: &[u8]) -> u64 {
    /// For each byte of the header: a tensor with a short name takes some 600 bytes for 55.
    const KEPT: u64 = 16;
    /// The longest header that is read.
    const LONGEST: u64 = 100_000_000;
    let len = content.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    KEPT * len.min(LONGEST).min(content.len() as u64)
}

/// Names of tensors, for messages.
fn listed(names: &[String]) -> String {
    let mut listed: Vec<String> = names.iter().take(LISTED).map(|name| excerpt(name.as_bytes())).collect();
    if names.len() > LISTED {
        listed.push(format!("{} more", names.len() - LISTED));
    }
    if listed.is_empty() { "no tensor".to_owned() } else { listed.join(", ") }
}

/// The error of elements that are no numbers here.
fn unsupported(place: String, dtype: Dtype) -> ReadError {
    let what = format!("the type {dtype}");
    ReadError::Unsupported {
        place,
        what,
        remedy: "save it as f32, f16, bf16 or f64; in Python, tensor.float()",
    }
}

/// Whether content that may be anything begins as a safetensors file does: text has no zeros.
pub(super) fn begins(content: &[u8]) -> bool {
    is_safetensors(content) && content[4..HEADER_AT] == [0; 4]
}

/// A file of tensors.
struct Tensors<'a> {
    metadata: Metadata,
    tensors: safetensors::SafeTensors<'a>,
}

impl<'a> Tensors<'a> {
    fn parse(content: &'a [u8]) -> Result<Self, ReadError> {
        if !is_safetensors(content) {
            return Err(ReadError::archive("content", "a safetensors file", something_else(content)));
        }
        let damaged = |error: safetensors::SafeTensorError| {
            ReadError::archive("safetensors header", "a valid one", error.to_string())
        };
        try_with_room::<u8>(index(bytes_of_header(content)), "the header of a safetensors file")?;
        let (_, metadata) = safetensors::SafeTensors::read_metadata(content).map_err(damaged)?;
        let tensors = safetensors::SafeTensors::deserialize(content).map_err(damaged)?;
        Ok(Self { metadata, tensors })
    }

    /// The names, in the order of the tensors in the file, for messages.
    fn listed(&self) -> String {
        listed(&self.metadata.offset_keys())
    }

    /// What the metadata has for `key`.
    fn entry(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    fn tensor(&self, name: &str) -> Result<Tensor<'a>, ReadError> {
        match self.tensors.tensor(name) {
            Ok(view) => Ok(Tensor { name: name.to_owned(), view }),
            Err(_) => {
                let found = format!("none of that name, but {}", self.listed());
                Err(ReadError::archive(
                    "safetensors file",
                    format!("a tensor {}", excerpt(name.as_bytes())),
                    found,
                ))
            }
        }
    }

    /// The tensor, if there is only one.
    fn only(&self) -> Result<Tensor<'a>, ReadError> {
        match &self.metadata.offset_keys()[..] {
            [name] => self.tensor(name),
            names => {
                let found = format!("{}: {}; name the one to read", names.len(), self.listed());
                Err(ReadError::archive("safetensors file", "one tensor", found))
            }
        }
    }
}

/// A tensor whose bytes are there.
struct Tensor<'a> {
    name: String,
    view: TensorView<'a>,
}

/// Elements of one type as they lie in the file, each mapped by the same expression.
macro_rules! map_elements {
    ($data:expr, $type:ty, |$x:ident| $map:expr) => {
        try_par_collect(
            $data.par_chunks_exact(size_of::<$type>()).map(|bytes| {
                // A chunk has the length of the type, so the conversion cannot fail; zeros if it did.
                let $x = <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
                $map
            }),
            "elements of a tensor",
        )?
    };
}

impl Tensor<'_> {
    /// How messages call it.
    fn place(&self) -> String {
        format!("tensor {}", excerpt(self.name.as_bytes()))
    }

    fn error(&self, expected: impl Into<String>, found: impl Into<String>) -> ReadError {
        ReadError::archive(self.place(), expected, found)
    }

    fn shape(&self) -> &[usize] {
        self.view.shape()
    }

    /// An error unless the tensor has this shape; `why` says where it comes from.
    fn check_shape(&self, shape: &[usize], why: &str) -> Result<(), ReadError> {
        if self.shape() == shape {
            return Ok(());
        }
        Err(self.error(format!("shape {shape:?}, {why}"), format!("shape {:?}", self.shape())))
    }

    /// The elements, if they are bytes.
    fn bytes(&self) -> Result<Vec<u8>, ReadError> {
        match self.view.dtype() {
            Dtype::U8 => Ok(try_copy(self.view.data(), "indices")?),
            other => Err(self.error("elements of type U8", format!("{other}"))),
        }
    }

    /// The elements as values, rounded where `V` is narrower.
    fn values<V: Value>(&self) -> Result<Vec<V>, ReadError> {
        let data = self.view.data();
        Ok(match self.view.dtype() {
            Dtype::F32 => map_elements!(data, f32, |x| V::from_f32(x)),
            Dtype::F16 => map_elements!(data, f16, |x| V::from_f32(x.to_f32())),
            Dtype::BF16 => map_elements!(data, bf16, |x| V::from_f32(x.to_f32())),
            Dtype::F64 => map_elements!(data, f64, |x| V::from_f64(x)),
            other => return Err(unsupported(self.place(), other)),
        })
    }
}

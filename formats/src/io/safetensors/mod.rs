//! Reads safetensors files: dense tensors by name, and vector-wise N:M weights.
//!
//! Every tensor lies in the file, has the bytes that its shape and type ask for, and overlaps no other: the header is
//! taken apart here, so that one of a large file can be read alone. The types are those of the crate `safetensors`.

mod dense;
mod header;
mod sparse;
mod vector_nm;

pub use dense::{DenseTensor, read_tensor, read_tensor_from, tensor_type};
pub(super) use header::{Entry as HeaderEntry, Header, MAX_HEADER_BYTES, Unique, read as read_header};
pub(super) use sparse::read as read_sparse;
pub(super) use vector_nm::read as read_vector_nm;

use std::fmt;

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

use super::line::name_of;
use super::{ReadError, ReadOptions, foreign};
use crate::memory::{index, try_copy, try_par_collect, try_zeroed};
use crate::{OutOfMemory, Value, ValueType};

/// Names that a message lists, at most.
const LISTED: usize = 8;
/// Where the header begins, behind its length.
const HEADER_AT: usize = 8;

/// Bytes that are kept for each byte of a header, at most: a tensor with a short name takes some 600 bytes for 55.
const KEPT_PER_BYTE: u64 = 16;

/// Whether the content is a safetensors file: a header in JSON behind its length.
pub(super) fn is_safetensors(content: &[u8]) -> bool {
    content.get(HEADER_AT) == Some(&b'{')
}

/// Names of tensors, for messages.
pub(super) fn listed(names: &[String]) -> String {
    let mut listed: Vec<String> = names.iter().take(LISTED).map(|name| name_of(name)).collect();
    if names.len() > LISTED {
        listed.push(format!("{} more", names.len() - LISTED));
    }
    if listed.is_empty() { "no tensor".to_owned() } else { listed.join(", ") }
}

/// The error of elements that are no numbers here.
fn unsupported(place: String, dtype: impl fmt::Display) -> ReadError {
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

/// An error unless the content begins as a safetensors file does.
pub(super) fn check_beginning(content: &[u8]) -> Result<(), ReadError> {
    if is_safetensors(content) {
        return Ok(());
    }
    Err(ReadError::archive("content", "a safetensors file", foreign::described(content)))
}

/// A file of tensors in memory.
pub(super) struct Tensors<'a> {
    header: Header,
    content: &'a [u8],
}

impl<'a> Tensors<'a> {
    fn parse(content: &'a [u8]) -> Result<Self, ReadError> {
        check_beginning(content)?;
        Ok(Self { header: header::read(&mut &*content, content.len() as u64)?, content })
    }

    /// The names, in the order of the tensors in the file.
    fn names(&self) -> Vec<String> {
        self.header.tensors.iter().map(|tensor| tensor.name.clone()).collect()
    }

    /// What the metadata has for `key`.
    pub(super) fn entry(&self, key: &str) -> Option<&str> {
        let found = self.header.metadata.iter().find(|(found, _)| found == key);
        found.map(|(_, text)| text.as_str())
    }

    /// What follows `prefix` in the keys of metadata that begin with it.
    pub(super) fn entries_with(&self, prefix: &str) -> Vec<String> {
        let keys = self.header.metadata.iter().filter_map(|(key, _)| key.strip_prefix(prefix));
        keys.map(str::to_owned).collect()
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Tensor<'a>, ReadError> {
        let Some(entry) = self.header.tensors.iter().find(|tensor| tensor.name == name) else {
            let found = format!("none of that name, but {}", listed(&self.names()));
            let expected = format!("a tensor {}", name_of(name));
            return Err(ReadError::archive("safetensors file", expected, found));
        };
        // The header was compared with the length of the content.
        Tensor::of(entry, &self.content[index(entry.place.start)..index(entry.place.end)])
    }

    /// The tensor, if there is only one.
    fn only(&self) -> Result<Tensor<'a>, ReadError> {
        match &self.names()[..] {
            [name] => self.tensor(name),
            names => {
                let found = format!("{}: {}; name the one to read", names.len(), listed(names));
                Err(ReadError::archive("safetensors file", "one tensor", found))
            }
        }
    }
}

/// A tensor whose bytes are there.
pub(super) struct Tensor<'a> {
    name: String,
    view: TensorView<'a>,
}

/// The type of [`Value`] that elements of a file have, if they have one of them.
pub(super) fn value_type(dtype: Dtype) -> Option<ValueType> {
    match dtype {
        Dtype::F16 => Some(ValueType::F16),
        Dtype::BF16 => Some(ValueType::Bf16),
        Dtype::F32 => Some(ValueType::F32),
        Dtype::F64 => Some(ValueType::F64),
        _ => None,
    }
}

/// Little-endian elements with all their bits, also those of a NaN, which conversions may change.
fn as_they_are<V: Value>(data: &[u8]) -> Result<Vec<V>, OutOfMemory> {
    let mut values = try_zeroed::<V>(data.len() / size_of::<V>(), "elements of a tensor")?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    // The tensor has as many bytes as its shape and type ask for.
    bytes.copy_from_slice(data);
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size_of::<V>()).for_each(<[u8]>::reverse);
    }
    Ok(values)
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

impl<'a> Tensor<'a> {
    /// The tensor that `entry` describes, whose bytes are `data`.
    pub(super) fn of(entry: &HeaderEntry, data: &'a [u8]) -> Result<Self, ReadError> {
        let view = TensorView::new(entry.dtype, entry.shape.clone(), data);
        let view = view.map_err(|error| header::damaged(error.to_string()))?;
        Ok(Self { name: entry.name.clone(), view })
    }
}

impl Tensor<'_> {
    /// How messages call it.
    fn place(&self) -> String {
        format!("tensor {}", name_of(&self.name))
    }

    pub(super) fn error(&self, expected: impl Into<String>, found: impl Into<String>) -> ReadError {
        ReadError::archive(self.place(), expected, found)
    }

    fn shape(&self) -> &[usize] {
        self.view.shape()
    }

    /// An error unless the tensor has this shape; `why` says where it comes from.
    pub(super) fn check_shape(&self, shape: &[usize], why: &str) -> Result<(), ReadError> {
        if self.shape() == shape {
            return Ok(());
        }
        Err(self.error(format!("shape {shape:?}, {why}"), format!("shape {:?}", self.shape())))
    }

    /// As a dense matrix, if it has one dimension or two.
    pub(super) fn into_dense<V: Value>(self, options: &ReadOptions<'_>) -> Result<DenseTensor<V>, ReadError> {
        let (rows, cols) = match *self.shape() {
            [len] => (1, len),
            [rows, cols] => (rows, cols),
            _ => return Err(self.error("one dimension or two", format!("shape {:?}", self.shape()))),
        };
        let place = self.place();
        options.limits.check_shape(&place, rows as u64, cols as u64)?;
        options.limits.check_nnz(&place, (rows as u64).saturating_mul(cols as u64))?;
        let values = self.values()?;
        Ok(DenseTensor::new(self.name, rows, cols, values)?)
    }

    /// Two extents as numbers of type I64, in one dimension or below each other.
    pub(super) fn extents(&self) -> Option<[usize; 2]> {
        let (first, rest) = self.view.data().split_first_chunk::<8>()?;
        let second = <&[u8; 8]>::try_from(rest).ok()?;
        let number = |bytes: &[u8; 8]| usize::try_from(i64::from_le_bytes(*bytes)).ok();
        (self.view.dtype() == Dtype::I64).then_some([number(first)?, number(second)?])
    }

    /// The elements as truth values, if each is 0 or 1.
    pub(super) fn mask(&self) -> Result<Vec<bool>, ReadError> {
        let numbers: Vec<f32> = match self.view.dtype() {
            Dtype::BOOL | Dtype::U8 | Dtype::I8 => map_elements!(self.view.data(), u8, |x| f32::from(x)),
            _ => self.values()?,
        };
        if let Some(at) = numbers.iter().position(|&x| x != 0.0 && x != 1.0) {
            let place = match *self.shape() {
                [_, cols] if cols > 0 => format!("in row {}, column {}", at / cols, at % cols),
                _ => format!("at position {at}"),
            };
            return Err(self.error("elements 0 and 1", format!("{} {place}", numbers[at])));
        }
        Ok(try_par_collect(numbers.par_iter().map(|&x| x != 0.0), "a mask")?)
    }

    /// The elements, if they are bytes.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, ReadError> {
        match self.view.dtype() {
            Dtype::U8 => Ok(try_copy(self.view.data(), "indices")?),
            other => Err(self.error("elements of type U8", format!("{other}"))),
        }
    }

    /// The elements as values: bit for bit where `V` is their type, rounded where it is narrower.
    pub(super) fn values<V: Value>(&self) -> Result<Vec<V>, ReadError> {
        let data = self.view.data();
        if value_type(self.view.dtype()) == Some(ValueType::of::<V>()) {
            return Ok(as_they_are(data)?);
        }
        Ok(match self.view.dtype() {
            Dtype::F32 => map_elements!(data, f32, |x| V::from_f32(x)),
            Dtype::F16 => map_elements!(data, f16, |x| V::from_f32(x.to_f32())),
            Dtype::BF16 => map_elements!(data, bf16, |x| V::from_f32(x.to_f32())),
            Dtype::F64 => map_elements!(data, f64, |x| V::from_f64(x)),
            other => return Err(unsupported(self.place(), other)),
        })
    }
}

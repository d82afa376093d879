//! The header of a safetensors file, read without what is behind it, and checked.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::super::ReadError;
use super::super::line::name_of;
use super::super::source::read_to_end;
use super::{HEADER_AT, KEPT_PER_BYTE};
use crate::memory::{index, try_with_room};

/// Most bytes of a header that are read or written: as many as the crate `safetensors` takes, and with it Python.
pub(in super::super) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// What metadata are called in a header, beside the tensors.
const METADATA: &str = "__metadata__";

/// The error of a header that breaks the rules.
pub(super) fn damaged(found: String) -> ReadError {
    ReadError::archive("safetensors header", "a valid one", found)
}

/// The text of the header.
pub(super) fn text(reader: &mut dyn Read) -> Result<Vec<u8>, ReadError> {
    let mut length = [0; HEADER_AT];
    reader.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(damaged(format!("one of {length} bytes, more than {MAX_HEADER_BYTES}")));
    }
    let mut text = Vec::new();
    let read = read_to_end(reader.take(length), &mut text)? as u64;
    if read < length {
        return Err(damaged(format!("{read} of {length} bytes")));
    }
    Ok(text)
}

/// What a file says of itself and of its tensors.
#[derive(Debug)]
pub(in super::super) struct Header {
    /// Texts by name, in the order of the file.
    pub(in super::super) metadata: Vec<(String, String)>,
    /// In the order in which their bytes lie, with nothing between them.
    pub(in super::super) tensors: Vec<Entry>,
}

/// What a header says of a tensor.
#[derive(Debug)]
pub(in super::super) struct Entry {
    pub(in super::super) name: String,
    pub(in super::super) dtype: Dtype,
    pub(in super::super) shape: Vec<usize>,
    /// Where its bytes lie in the file.
    pub(in super::super) place: Range<u64>,
}

/// Reads the header of a file of so many bytes.
///
/// Every tensor then lies in the file and has the bytes that its shape and type ask for; they follow each other
/// without a gap, up to the end of the file; no two have one name.
pub(in super::super) fn read(reader: &mut dyn Read, file_bytes: u64) -> Result<Header, ReadError> {
    let text = text(reader)?;
    // What parses it ends the process without memory.
    try_with_room::<u8>(index(KEPT_PER_BYTE * text.len() as u64), "the header of a safetensors file")?;
    let parsed: Parsed = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let first = (HEADER_AT + text.len()) as u64;
    let mut tensors = Vec::with_capacity(parsed.tensors.len());
    for (name, Tensor { dtype, shape, data_offsets: [start, end] }) in parsed.tensors {
        let elements = shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size as u64));
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize() as u64));
        let bytes = bits.filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8);
        if bytes.is_none() || end.checked_sub(start) != bytes {
            let name = name_of(&name);
            return Err(damaged(format!(
                "bytes {start} to {end} for tensor {name}, which is {dtype} of shape {shape:?}"
            )));
        }
        let within = |offset: u64| offset.checked_add(first).filter(|&at| at <= file_bytes);
        let (Some(start), Some(end)) = (within(start), within(end)) else {
            let name = name_of(&name);
            return Err(damaged(format!(
                "tensor {name} at bytes {start} to {end} of {}; the file was cut off",
                file_bytes.saturating_sub(first)
            )));
        };
        tensors.push(Entry { name, dtype, shape, place: start..end });
    }
    tensors.sort_by_key(|tensor| (tensor.place.start, tensor.place.end));
    let mut next = first;
    for tensor in &tensors {
        if tensor.place.start != next {
            let name = name_of(&tensor.name);
            let offset = tensor.place.start - first;
            return Err(damaged(format!(
                "tensor {name} at byte {offset}, where byte {} is the next",
                next - first
            )));
        }
        next = tensor.place.end;
    }
    if next != file_bytes {
        return Err(damaged(format!("{} bytes behind the last tensor", file_bytes.saturating_sub(next))));
    }
    Ok(Header { metadata: parsed.metadata, tensors })
}

/// A header as it is written.
struct Parsed {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, Tensor)>,
}

#[derive(Deserialize)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Parsed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let (mut metadata, mut tensors, mut names) = (None, Vec::new(), HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(twice(&name));
                    }
                    if name == METADATA {
                        metadata = Some(map.next_value::<Unique<String>>()?.0);
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Parsed { metadata: metadata.unwrap_or_default(), tensors })
            }
        }
        from.deserialize_map(Members)
    }
}

/// The members of an object in the order of the text, each name only once: parsers commonly take the last of two.
pub(in super::super) struct Unique<T>(pub(in super::super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Unique<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<T>, A::Error> {
                let (mut members, mut names) = (Vec::new(), HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(twice(&name));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Unique(members))
            }
        }
        from.deserialize_map(Members(PhantomData))
    }
}

fn twice<E: Error>(name: &str) -> E {
    E::custom(format!("{} is there twice", name_of(name)))
}

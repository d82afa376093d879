//! A dense tensor with zeros, such as a pruned layer, as compressed rows: read row by row, what is not zero kept.

use std::io::Read;

use safetensors::tensor::{Dtype, Metadata};

use super::super::elements::{Decoder, skip};
use super::super::line::name_of;
use super::super::report::{Header, ReadReport};
use super::super::{Loaded, ReadError, ReadOptions};
use super::{header, listed, unsupported};
use crate::memory::{make_room, narrow, try_zeroed};
use crate::{Csr, Value};

const FILE: &str = "safetensors file";

/// Reads the tensor that `options` name, or the only one, from content that begins as a safetensors file does.
pub(in super::super) fn read<V: Value>(
    mut reader: Box<dyn Read + Send + '_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let metadata = metadata(&mut reader)?;
    let names = metadata.offset_keys();
    let name = match (options.tensor, &names[..]) {
        (Some(name), _) => name,
        (None, [name]) => name,
        (None, _) => {
            let found = format!("{}: {}; name the one to read", names.len(), listed(&names));
            return Err(ReadError::archive(FILE, "one tensor", found));
        }
    };
    let place = format!("tensor {}", name_of(name));
    let Some(info) = metadata.info(name) else {
        let found = format!("none of that name, but {}", listed(&names));
        return Err(ReadError::archive(FILE, format!("a {place}"), found));
    };
    let (rows, cols) = match info.shape[..] {
        [cols] => (1, cols),
        [rows, cols] => (rows, cols),
        _ => {
            let found = format!("shape {:?}", info.shape);
            return Err(ReadError::archive(place, "one dimension or two", found));
        }
    };
    options.limits.check_shape(&place, rows as u64, cols as u64)?;
    let decoder = match info.dtype {
        Dtype::F16 => Decoder::F16,
        Dtype::BF16 => Decoder::BF16,
        Dtype::F32 => Decoder::F32,
        Dtype::F64 => Decoder::F64,
        _ => None,
    };
    let Some(decoder) = decoder else { return Err(unsupported(place, info.dtype)) };
    let (elements, (start, end)) = (rows as u64 * cols as u64, info.data_offsets);
    let needed = elements.saturating_mul(decoder.bytes as u64);
    if end.checked_sub(start).map(|bytes| bytes as u64) != Some(needed) {
        let expected = format!("{needed} bytes for shape {:?}", info.shape);
        return Err(ReadError::archive(place, expected, format!("bytes {start} to {end}")));
    }
    if needed > options.limits.max_bytes {
        return Err(options.limits.too_many_bytes(needed));
    }
    let ends_early = |found: u64| ReadError::archive(&*place, format!("{needed} bytes"), format!("{found}"));
    if skip(&mut reader, start as u64)? < start as u64 {
        return Err(ends_early(0));
    }

    let mut kept = Kept::<V>::new(rows, cols)?;
    let found = decoder.read(&mut reader, elements, |numbers, _| {
        kept.take(numbers)?;
        options.limits.check_nnz(&place, kept.values.len() as u64)
    })?;
    if found < needed {
        return Err(ends_early(found));
    }
    let mut report = ReadReport::new(Header::Safetensors { tensor: name.to_owned(), element: decoder.name });
    report.content_bytes = needed;
    report.entries_read = elements;
    report.zeros_dropped = elements - kept.values.len() as u64;
    let Kept { offsets, columns, values, .. } = kept;
    Ok(Loaded { csr: Csr::try_from_parts(rows, cols, offsets, columns, values)?, report })
}

/// What the header says.
fn metadata(reader: &mut dyn Read) -> Result<Metadata, ReadError> {
    serde_json::from_slice(&header::text(reader)?).map_err(|error| header::damaged(error.to_string()))
}

/// Rows that are being read.
struct Kept<V> {
    cols: usize,
    /// Where the next element lies.
    row: usize,
    col: usize,
    offsets: Vec<u64>,
    columns: Vec<u32>,
    values: Vec<V>,
}

impl<V: Value> Kept<V> {
    fn new(rows: usize, cols: usize) -> Result<Self, ReadError> {
        let offsets = try_zeroed(rows + 1, "row_offsets")?;
        Ok(Self { cols, row: 0, col: 0, offsets, columns: Vec::new(), values: Vec::new() })
    }

    /// Keeps what is not zero in the file, also if it is zero as `V`.
    fn take(&mut self, numbers: &mut dyn Iterator<Item = f64>) -> Result<(), ReadError> {
        for x in numbers {
            if x != 0.0 {
                make_room(&mut self.columns, 1, "col_indices")?;
                make_room(&mut self.values, 1, "values")?;
                self.columns.push(narrow(self.col));
                self.values.push(V::from_f64(x));
            }
            self.col += 1;
            if self.col == self.cols {
                self.col = 0;
                self.row += 1;
                self.offsets[self.row] = self.values.len() as u64;
            }
        }
        Ok(())
    }
}

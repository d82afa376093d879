//! What `scipy.sparse.save_npz` writes: arrays `format`, `shape`, `data`, and `indptr` and `indices` (CSR, CSC)
//! or `row` and `col`, in later versions `coords` (COO).

use std::io::{Read, Seek};

use super::super::line::excerpt;
use super::super::report::{Header, ReadReport, Storage};
use super::super::{Loaded, ReadError, ReadOptions};
use super::archive::Archive;
use super::array::Array;
use crate::memory::{index, try_with_room};
use crate::{Coo, Csr, Value};

const REMEDY: &str = "in Python, scipy.sparse.save_npz(path, a.tocsr()) writes it as CSR";

/// Reads the matrix in `archive`.
pub(super) fn read<V: Value, R: Read + Seek>(
    archive: &mut Archive<R>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let format = archive.array("format")?;
    let text = format.text()?;
    let storage = match text.as_str() {
        "csr" => Storage::Csr,
        "csc" => Storage::Csc,
        "coo" => Storage::Coo,
        "bsr" | "dia" | "dok" | "lil" => {
            let what = format!("the storage {text}");
            return Err(ReadError::Unsupported { place: "format.npy".to_owned(), what, remedy: REMEDY });
        }
        _ => return Err(format.error("csr, csc or coo", excerpt(text.as_bytes()))),
    };
    let [rows, cols] = archive.array("shape")?.numbers("sizes", "two sizes, rows and columns")?;
    let (rows, cols) = options.limits.check_shape("shape.npy", rows, cols)?;
    let data = archive.array("data")?;
    options.limits.check_nnz("data.npy", data.len())?;
    data.check_len(data.len(), "in one dimension")?;
    let values: Vec<V> = data.values()?;

    let csr = match storage {
        Storage::Csr => {
            let (offsets, indices, values) = compressed(archive, (rows, "row"), (cols, "column"), values)?;
            Csr::try_from_parts(rows as usize, cols as usize, offsets, indices, values)?
        }
        Storage::Csc => {
            let (offsets, indices, values) = compressed(archive, (cols, "column"), (rows, "row"), values)?;
            let columns = (0..cols).zip(offsets.windows(2));
            let columns = columns.flat_map(|(col, ends)| (ends[0]..ends[1]).map(move |_| col));
            let mut col_indices = try_with_room(indices.len(), "col_indices")?;
            col_indices.extend(columns);
            Csr::try_from_coo(&Coo::try_new(rows as usize, cols as usize, indices, col_indices, values)?)?
        }
        Storage::Coo => {
            let (row, col) = match archive.optional("coords")? {
                Some(coords) => coords.halves()?,
                None => (archive.array("row")?, archive.array("col")?),
            };
            let (row, col) =
                (indices(&row, "row", rows, values.len())?, indices(&col, "column", cols, values.len())?);
            Csr::try_from_coo(&Coo::try_new(rows as usize, cols as usize, row, col, values)?)?
        }
    };
    let mut report = ReadReport::new(Header::ScipyNpz { storage, dtype: data.dtype() });
    report.entries_read = csr.nnz() as u64 + csr.canonicalised().summed_duplicates;
    Ok(Loaded { csr, report })
}

fn indices(array: &Array, what: &str, bound: u32, entries: usize) -> Result<Vec<u32>, ReadError> {
    array.check_len(entries as u64, "one for each of data.npy")?;
    array.indices(&format!("{what} indices"), bound)
}

/// Offsets, indices and values of compressed lines.
type Compressed<V> = (Vec<u64>, Vec<u32>, Vec<V>);

/// The arrays of a matrix compressed along `major` lines, rows or columns: their number and what they are.
fn compressed<V: Value, R: Read + Seek>(
    archive: &mut Archive<R>,
    major: (u32, &str),
    minor: (u32, &str),
    mut values: Vec<V>,
) -> Result<Compressed<V>, ReadError> {
    let indptr = archive.array("indptr")?;
    indptr.check_len(u64::from(major.0) + 1, &format!("one more than there are {}s", major.1))?;
    let offsets = indptr.unsigned("offsets", values.len() as u64)?;
    if offsets[0] != 0 {
        return Err(indptr.error("0 as the first offset", format!("{}", offsets[0])));
    }
    if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        let expected = format!("an offset of at least {}, where {} {at} starts", offsets[at], major.1);
        return Err(indptr.error(expected, format!("{} at position {}", offsets[at + 1], at + 1)));
    }
    let mut minor_indices = indices(&archive.array("indices")?, minor.1, minor.0, values.len())?;
    // SciPy allows room behind the last entry, which is no part of the matrix.
    let nnz = index(offsets[offsets.len() - 1]);
    values.truncate(nnz);
    minor_indices.truncate(nnz);
    Ok((offsets, minor_indices, values))
}

//! Writes archives that `scipy.sparse.load_npz` reads.

use std::io::{self, Write};

use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, ZipWriter};

use super::super::{WriteError, npy};
use super::{Told, room_for_deflate};
use crate::memory::try_with_room;
use crate::{Csr, Value};

/// Elements turned into bytes together.
const CHUNK: usize = 1 << 14;
/// Bytes from which on a member needs the 64-bit form of its sizes; below 2^32 by a margin for its header.
const LARGE_BYTES: u64 = 1 << 31;

/// Writes `csr` as `scipy.sparse.save_npz` writes a CSR matrix, compressed; `scipy.sparse.load_npz` reads it.
///
/// Values are `<f8` if they are `f64`, else `<f4`, which holds the 16-bit types exactly (SciPy knows neither of
/// them). Indices are `<i4` where they fit, else `<i8`.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_scipy_npz<V: Value>(mut writer: impl Write + Send, csr: &Csr<V>) -> Result<(), WriteError> {
    scipy(&mut writer, csr, &Told::new(csr, None))
}

pub(super) fn scipy<V: Value>(
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
) -> Result<(), WriteError> {
    let mut members = Members::new(writer);
    let largest = csr.nnz().max(csr.rows()).max(csr.cols());
    if i32::try_from(largest).is_ok() {
        // The largest was looked at, so nothing saturates.
        let narrow = |x: i64| i32::try_from(x).unwrap_or(i32::MAX).to_le_bytes();
        members.numbers("indices", "<i4", csr.col_indices(), |&col| narrow(i64::from(col)))?;
        members.numbers("indptr", "<i4", csr.row_offsets(), |&offset| narrow(signed(offset)))?;
    } else {
        members.numbers("indices", "<i8", csr.col_indices(), |&col| i64::from(col).to_le_bytes())?;
        members.numbers("indptr", "<i8", csr.row_offsets(), |&offset| signed(offset).to_le_bytes())?;
    }
    members.start("format", "|S3", &[], 3)?;
    members.zip.write_all(b"csr")?;
    let shape = [csr.rows() as u64, csr.cols() as u64];
    members.numbers("shape", "<i8", &shape, |&size| signed(size).to_le_bytes())?;
    if size_of::<V>() == size_of::<f64>() {
        members.numbers("data", "<f8", csr.values(), |value| value.to_f64().to_le_bytes())?;
    } else {
        members.numbers("data", "<f4", csr.values(), |value| value.to_f32().to_le_bytes())?;
    }
    members.zip.finish().map_err(io::Error::from)?;
    told.entries(csr.nnz());
    Ok(())
}

/// Sizes and offsets of matrices in memory are far below 2^63.
fn signed(x: u64) -> i64 {
    i64::try_from(x).unwrap_or(i64::MAX)
}

/// The arrays of an archive that is being written.
pub(super) struct Members<W: Write> {
    pub(super) zip: ZipWriter<StreamWriter<FailsOnce<W>>>,
}

/// A writer whose error is told once; what comes after it is left out.
///
/// A `ZipWriter` that is dropped writes the end of the archive, and complains on standard error if that fails too.
pub(super) struct FailsOnce<W> {
    writer: W,
    failed: bool,
}

impl<W: Write> Write for FailsOnce<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Ok(bytes.len());
        }
        let written = self.writer.write(bytes);
        self.failed = written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed { Ok(()) } else { self.writer.flush() }
    }
}

impl<W: Write> Members<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { zip: ZipWriter::new_stream(FailsOnce { writer, failed: false }) }
    }

    /// Starts a member and writes the array's header.
    pub(super) fn start(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[u64],
        bytes: u64,
    ) -> Result<(), WriteError> {
        room_for_deflate()?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .large_file(bytes >= LARGE_BYTES);
        self.zip.start_file(format!("{name}.npy"), options).map_err(io::Error::from)?;
        self.zip.write_all(&npy::header(dtype, shape))?;
        Ok(())
    }

    /// Writes a one-dimensional array of numbers.
    fn numbers<T, const N: usize>(
        &mut self,
        name: &str,
        dtype: &str,
        numbers: &[T],
        bytes: impl Fn(&T) -> [u8; N],
    ) -> Result<(), WriteError> {
        self.array(name, dtype, (&[numbers.len() as u64], numbers), bytes)
    }

    /// Writes an array of numbers that has this shape, in C order.
    pub(super) fn array<T, const N: usize>(
        &mut self,
        name: &str,
        dtype: &str,
        (shape, numbers): (&[u64], &[T]),
        bytes: impl Fn(&T) -> [u8; N],
    ) -> Result<(), WriteError> {
        self.start(name, dtype, shape, numbers.len() as u64 * N as u64)?;
        let mut buffer = try_with_room(CHUNK * N, "elements to write")?;
        for chunk in numbers.chunks(CHUNK) {
            buffer.clear();
            chunk.iter().for_each(|number| buffer.extend_from_slice(&bytes(number)));
            self.zip.write_all(&buffer)?;
        }
        Ok(())
    }
}

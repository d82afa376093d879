//! Dense matrices, as NumPy's `.npy` or as an array in Matrix Market format.

use std::io::Write;
use std::path::Path;

use super::super::WriteError;
use super::super::npy::header;
use super::text::{LONGEST_VALUE, PIECE_ENTRIES, TEXT, push_value};
use super::{compressed, replacement};
use crate::memory::try_with_room;
use crate::{FormatError, Value};

/// Which of the names of a type has the order of bytes of this machine.
const BYTE_ORDER: usize = if cfg!(target_endian = "big") { 1 } else { 0 };

/// How a dense matrix is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseFormat {
    /// `.npy`: an array of two dimensions, in C's order. NumPy has no bf16, which is written as f32.
    Npy,
    /// `.mtx` or `.mm`: `array real general`, column after column.
    MatrixMarket,
}

impl DenseFormat {
    /// What the name of a file tells, and whether it asks for gzip.
    ///
    /// # Errors
    /// [`WriteError::UnknownDenseExtension`].
    pub fn of_name(path: impl AsRef<Path>) -> Result<(Self, bool), WriteError> {
        let path = path.as_ref();
        let extension =
            |path: &Path| path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
        let gzip = extension(path).as_deref() == Some("gz");
        let stem = if gzip { path.with_extension("") } else { path.to_owned() };
        match extension(&stem).as_deref() {
            Some("npy") => Ok((Self::Npy, gzip)),
            Some("mtx" | "mm") => Ok((Self::MatrixMarket, gzip)),
            _ => Err(WriteError::UnknownDenseExtension),
        }
    }
}

/// Writes the `rows × cols` matrix of `values`, row after row, to the file at `path`, which is replaced if there is
/// one. Its name tells the format: `.npy` or `.mtx`, each also with `.gz` behind it.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::UnknownDenseExtension`] or any of [`write_dense_to`].
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let path = std::env::temp_dir().join(format!("windrow-write-dense-{}.npy", std::process::id()));
/// io::write_dense(&path, (2, 3), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let back = io::read_dense::<f32>(&path, &io::ReadOptions::default())?;
/// assert_eq!((back.rows(), back.cols(), back.values()[3]), (2, 3, 4.0));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_dense<V: Value>(
    path: impl AsRef<Path>,
    shape: (usize, usize),
    values: &[V],
) -> Result<(), WriteError> {
    let path = path.as_ref();
    let write = || {
        let (format, gzip) = DenseFormat::of_name(path)?;
        replacement::replace(path, |file| {
            compressed(file, gzip, |writer| write_dense_to(writer, format, shape, values))
        })
    };
    write().map_err(|error| error.in_file(path))
}

/// Writes the `shape.0 × shape.1` matrix of `values`, row after row, to `writer`.
///
/// # Errors
/// - [`WriteError::Matrix`] unless there are as many values as the shape says;
/// - [`WriteError::Io`], [`WriteError::OutOfMemory`].
pub fn write_dense_to<V: Value>(
    mut writer: impl Write + Send,
    format: DenseFormat,
    (rows, cols): (usize, usize),
    values: &[V],
) -> Result<(), WriteError> {
    let (found, expected) = (values.len(), rows.saturating_mul(cols));
    if found != expected {
        let (array, why) = ("the matrix", "one for each row and column");
        return Err(WriteError::Matrix(FormatError::LengthMismatch { array, found, expected, why }));
    }
    match format {
        DenseFormat::Npy => npy(&mut writer, (rows, cols), values),
        DenseFormat::MatrixMarket => matrix_market(&mut writer, (rows, cols), values),
    }
}

fn npy<V: Value>(
    writer: &mut dyn Write,
    (rows, cols): (usize, usize),
    values: &[V],
) -> Result<(), WriteError> {
    // In the order of bytes that memory has.
    let element = [["<f2", "<f4", "<f8"], [">f2", ">f4", ">f8"]][BYTE_ORDER];
    let element = match (V::NAME, size_of::<V>()) {
        ("f16", _) => element[0],
        (_, 8) => element[2],
        _ => element[1],
    };
    writer.write_all(&header(element, &[rows as u64, cols as u64]))?;
    for piece in values.chunks(PIECE_ENTRIES) {
        if V::NAME == "bf16" {
            let mut wide = try_with_room(piece.len(), "elements to write")?;
            wide.extend(piece.iter().map(|value| value.to_f32()));
            writer.write_all(bytemuck::cast_slice(&wide))?;
        } else {
            writer.write_all(bytemuck::cast_slice(piece))?;
        }
    }
    Ok(())
}

fn matrix_market<V: Value>(
    writer: &mut dyn Write,
    (rows, cols): (usize, usize),
    values: &[V],
) -> Result<(), WriteError> {
    write!(writer, "%%MatrixMarket matrix array real general\n{rows} {cols}\n")?;
    let mut text = try_with_room(PIECE_ENTRIES * LONGEST_VALUE, TEXT)?;
    for column in 0..cols {
        for rows in (0..rows).step_by(PIECE_ENTRIES).map(|first| first..rows.min(first + PIECE_ENTRIES)) {
            text.clear();
            for row in rows {
                push_value(&mut text, values[row * cols + column]);
                text.push(b'\n');
            }
            writer.write_all(&text)?;
        }
    }
    Ok(())
}

//! Tensors of three modes, in the format of the FROSTT collection.

use std::io::Write;
use std::path::Path;

use rayon::prelude::*;

use super::super::WriteError;
use super::super::edge_list::OWN_MARK;
use super::text::{LONGEST_INDEX, LONGEST_VALUE, PIECE_ENTRIES, TEXT, push_integer, push_value};
use super::{by_name, create};
use crate::memory::try_with_room;
use crate::{Coo3, OutOfMemory, Value};

/// Writes `tensor` to the file at `path` as FROSTT `.tns` text, behind gzip if the name ends in `.gz`.
///
/// [`read_tns`](super::super::read_tns) reads it. What it makes of the file is the same list, bit by bit but for the
/// payloads of NaN, if it is told the dimensions: the format does not hold them, and without them a reader takes the
/// largest index of each mode.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::{Coo3, io};
///
/// let path = std::env::temp_dir().join(format!("windrow-doc-{}.tns.gz", std::process::id()));
/// let tensor = Coo3::from_entries([2, 3, 9], [([0, 0, 1], 1.5f32), ([1, 2, 0], -4.0)])?;
/// io::write_tns(&path, &tensor)?;
/// assert_eq!(io::read_tns(&path, Some([2, 3, 9]), &io::ReadOptions::default())?, tensor);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_tns<V: Value>(path: impl AsRef<Path>, tensor: &Coo3<V>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let (_, gzip) = by_name(path);
    create(path, gzip, |writer| lines(writer, tensor)).map_err(|error| error.in_file(path))
}

/// Writes `tensor` as FROSTT `.tns` text: a comment with the dimensions and the number of entries, then `i j k value`
/// in each line, indices from 1.
///
/// Values are spelled with the fewest digits that read back as the same value.
///
/// # Errors
/// [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::{Coo3, io};
///
/// let mut text = Vec::new();
/// io::write_tns_to(&mut text, &Coo3::from_entries([2, 3, 2], [([1, 2, 0], 0.5f32)])?)?;
/// assert_eq!(text, b"# Dims: 2 3 2 Entries: 1 (windrow)\n2 3 1 0.5\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_tns_to<V: Value>(mut writer: impl Write, tensor: &Coo3<V>) -> Result<(), WriteError> {
    lines(&mut writer, tensor)
}

fn lines<V: Value>(writer: &mut (impl Write + ?Sized), tensor: &Coo3<V>) -> Result<(), WriteError> {
    let [i, j, k] = tensor.dims();
    let nnz = tensor.nnz();
    writeln!(writer, "# Dims: {i} {j} {k} Entries: {nnz} {OWN_MARK}")?;
    let indices = [0, 1, 2].map(|mode| tensor.indices(mode));
    let format = |start: usize| {
        let mut text = try_with_room(PIECE_ENTRIES * (3 * LONGEST_INDEX + LONGEST_VALUE), TEXT)?;
        for entry in start..(start + PIECE_ENTRIES).min(nnz) {
            for of_mode in indices {
                push_integer(&mut text, u64::from(of_mode[entry]) + 1);
                text.push(b' ');
            }
            push_value(&mut text, tensor.values()[entry]);
            text.push(b'\n');
        }
        Ok(text)
    };
    // A few pieces for each thread are in memory at a time.
    let group_entries = 4 * rayon::current_num_threads() * PIECE_ENTRIES;
    for first in (0..nnz).step_by(group_entries) {
        let starts = (first..nnz.min(first + group_entries)).into_par_iter().step_by(PIECE_ENTRIES);
        let texts = starts.map(format).collect::<Result<Vec<_>, OutOfMemory>>()?;
        for text in &texts {
            writer.write_all(text)?;
        }
    }
    Ok(())
}

//! Writes orders of rows as text, the old row of each new one.

use std::io::Write;
use std::path::Path;

use super::super::WriteError;
use super::super::permutation::{MAGIC, VERSION};
use super::text::{LONGEST_INDEX, TEXT, push_integer};
use super::{by_name, create};
use crate::Permutation;
use crate::memory::try_with_room;

/// Rows that are spelled into one buffer before it is written.
const PIECE_ROWS: usize = 1 << 14;

/// Writes `permutation` to the file at `path` as text, behind gzip if the name ends in `.gz`.
///
/// The first line is `# windrow-permutation 1 <rows>`, the second a comment that explains the others: the old
/// row of each new one, from 0, one a line. [`read_permutation`](super::super::read_permutation) reads it.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::{Permutation, io};
///
/// let path = std::env::temp_dir().join(format!("windrow-doc-{}.order.gz", std::process::id()));
/// let order = Permutation::try_from_new_to_old(vec![2, 0, 1])?;
/// io::write_permutation(&path, &order)?;
/// assert_eq!(io::read_permutation(&path)?, order);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_permutation(path: impl AsRef<Path>, permutation: &Permutation) -> Result<(), WriteError> {
    let path = path.as_ref();
    let (_, gzip) = by_name(path);
    create(path, gzip, |writer| lines(writer, permutation)).map_err(|error| error.in_file(path))
}

/// Writes `permutation` to `writer`, as [`write_permutation`] does.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_permutation_to(
    mut writer: impl Write + Send,
    permutation: &Permutation,
) -> Result<(), WriteError> {
    lines(&mut writer, permutation)
}

fn lines(writer: &mut (dyn Write + Send), permutation: &Permutation) -> Result<(), WriteError> {
    writeln!(writer, "# {MAGIC} {VERSION} {}", permutation.len())?;
    writeln!(writer, "# old row of each new one, from 0")?;
    let mut text = try_with_room(PIECE_ROWS * LONGEST_INDEX, TEXT)?;
    for rows in permutation.new_to_old().chunks(PIECE_ROWS) {
        text.clear();
        for &row in rows {
            push_integer(&mut text, u64::from(row));
            text.push(b'\n');
        }
        writer.write_all(&text)?;
    }
    Ok(())
}

//! Text formats: pieces are formatted by all threads and written in order.

use std::io::Write;

use rayon::prelude::*;

use super::super::edge_list::OWN_MARK;
use super::super::{Format, WriteError};
use super::Told;
use crate::memory::{index, try_with_room};
use crate::{Csr, OutOfMemory, Value};

/// Entries formatted in one piece by one thread.
pub(super) const PIECE_ENTRIES: usize = 1 << 13;
/// The longest spelling of a number of 32 bits, and of a value, with what stands behind it.
pub(super) const LONGEST_INDEX: usize = 11;
pub(super) const LONGEST_VALUE: usize = 26;
/// What text that is not written yet is, in errors.
pub(super) const TEXT: &str = "lines to write";
/// The longest spelling of an offset, and a space.
const LONGEST_OFFSET: usize = 21;

/// Writes `csr` in Matrix Market format: coordinate, general, real, or pattern if every value is 1.
///
/// Values are spelled with the fewest digits that read back as the same value.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_matrix_market<V: Value>(mut writer: impl Write + Send, csr: &Csr<V>) -> Result<(), WriteError> {
    matrix_market(&mut writer, csr, &Told::new(csr, None))
}

/// Writes `csr` as an edge list, ids from 0, with values unless all are 1.
///
/// The first line is a comment with the numbers of nodes and edges, by which a reader knows whether it has them all.
///
/// # Errors
/// - [`WriteError::NotRepresentable`] unless the matrix is square and has an entry in its last row or column:
///   a reader takes the largest id for the last row;
/// - [`WriteError::Io`].
pub fn write_edge_list<V: Value>(mut writer: impl Write + Send, csr: &Csr<V>) -> Result<(), WriteError> {
    check_edge_list(csr)?;
    edge_list(&mut writer, csr, &Told::new(csr, None))
}

/// Writes the pattern of `csr` as `.smtx`, which holds no values.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_smtx<V: Value>(mut writer: impl Write + Send, csr: &Csr<V>) -> Result<(), WriteError> {
    smtx(&mut writer, csr, &Told::new(csr, None))
}

pub(super) fn matrix_market<V: Value>(
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
) -> Result<(), WriteError> {
    let pattern = is_pattern(csr);
    let field = if pattern { "pattern" } else { "real" };
    writeln!(writer, "%%MatrixMarket matrix coordinate {field} general")?;
    writeln!(writer, "{} {} {}", csr.rows(), csr.cols(), csr.nnz())?;
    entries(writer, csr, told, |line, row, col, value| {
        push_integer(line, row + 1);
        line.push(b' ');
        push_integer(line, col + 1);
        if !pattern {
            line.push(b' ');
            push_value(line, value);
        }
    })
}

/// Whether a reader would get the right size.
pub(super) fn check_edge_list<V: Value>(csr: &Csr<V>) -> Result<(), WriteError> {
    let largest_row = csr.row_offsets().windows(2).rposition(|ends| ends[0] < ends[1]);
    let largest_col = csr.col_indices().par_iter().max().map(|&col| col as usize);
    let implied = largest_row.max(largest_col).map_or(0, |id| id + 1);
    let (rows, cols) = (csr.rows(), csr.cols());
    if rows == implied && cols == implied {
        return Ok(());
    }
    Err(WriteError::NotRepresentable {
        format: Format::EdgeList,
        why: format!("it would be read as {implied} × {implied}, by the largest id, but is {rows} × {cols}"),
        remedy: "write Matrix Market or a .npz, which keep the size",
    })
}

pub(super) fn edge_list<V: Value>(
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
) -> Result<(), WriteError> {
    let pattern = is_pattern(csr);
    writeln!(writer, "# Nodes: {} Edges: {} {OWN_MARK}", csr.rows(), csr.nnz())?;
    writeln!(writer, "# FromNodeId\tToNodeId{}", if pattern { "" } else { "\tValue" })?;
    entries(writer, csr, told, |line, row, col, value| {
        push_integer(line, row);
        line.push(b'\t');
        push_integer(line, col);
        if !pattern {
            line.push(b'\t');
            push_value(line, value);
        }
    })
}

pub(super) fn smtx<V: Value>(
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
) -> Result<(), WriteError> {
    writeln!(writer, "{}, {}, {}", csr.rows(), csr.cols(), csr.nnz())?;
    let mut text = try_with_room(PIECE_ENTRIES * LONGEST_OFFSET, TEXT)?;
    for offsets in csr.row_offsets().chunks(PIECE_ENTRIES) {
        text.clear();
        for &offset in offsets {
            push_integer(&mut text, offset);
            text.push(b' ');
        }
        writer.write_all(&text)?;
    }
    writer.write_all(b"\n")?;
    for (number, cols) in csr.col_indices().chunks(PIECE_ENTRIES).enumerate() {
        text.clear();
        for &col in cols {
            push_integer(&mut text, u64::from(col));
            text.push(b' ');
        }
        writer.write_all(&text)?;
        told.entries(number * PIECE_ENTRIES + cols.len());
    }
    writer.write_all(b"\n")?;
    Ok(())
}

/// Whether every value is 1, so that a reader makes them up right.
fn is_pattern<V: Value>(csr: &Csr<V>) -> bool {
    csr.nnz() > 0 && csr.values().par_iter().all(|&value| value == V::ONE)
}

/// Writes a line for each entry, as `push` makes it of row, column and value.
fn entries<V: Value>(
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
    push: impl Fn(&mut Vec<u8>, u64, u64, V) + Sync,
) -> Result<(), WriteError> {
    let nnz = csr.nnz();
    // A few pieces for each thread are in memory at a time.
    let group_entries = 4 * rayon::current_num_threads() * PIECE_ENTRIES;
    for first in (0..nnz).step_by(group_entries) {
        let end = nnz.min(first + group_entries);
        let format = |start: usize| {
            let mut text = try_with_room(PIECE_ENTRIES * (2 * LONGEST_INDEX + LONGEST_VALUE), TEXT)?;
            let range = start..(start + PIECE_ENTRIES).min(nnz);
            // The last row that starts at or before the piece.
            let mut row = csr.row_offsets().partition_point(|&offset| index(offset) <= start) - 1;
            for entry in range {
                while index(csr.row_offsets()[row + 1]) <= entry {
                    row += 1;
                }
                push(&mut text, row as u64, u64::from(csr.col_indices()[entry]), csr.values()[entry]);
                text.push(b'\n');
            }
            Ok(text)
        };
        let starts = (first..end).into_par_iter().step_by(PIECE_ENTRIES);
        let texts = starts.map(format).collect::<Result<Vec<_>, OutOfMemory>>()?;
        for text in &texts {
            writer.write_all(text)?;
        }
        told.entries(end);
    }
    Ok(())
}

pub(super) fn push_integer(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        start -= 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

/// Spells `value` so that reading it as `f64` and rounding to `V` gives it back.
pub(super) fn push_value<V: Value>(text: &mut Vec<u8>, value: V) {
    let exact = value.to_f64();
    let mut spelled = format!("{exact:?}");
    if size_of::<V>() < size_of::<f64>() {
        // Fewer digits do for a narrower type, but rounding twice may go wrong by a unit: tried out.
        let short = format!("{:?}", value.to_f32());
        let back: V = short.parse().map_or(V::ZERO, V::from_f64);
        if bytemuck::bytes_of(&back) == bytemuck::bytes_of(&value) {
            spelled = short;
        }
    }
    text.extend_from_slice(spelled.strip_suffix(".0").unwrap_or(&spelled).as_bytes());
}

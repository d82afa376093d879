//! Every value, column by column; of symmetric matrices the lower triangle.

use rayon::prelude::*;

use super::super::blocks::TextSource;
use super::super::entries::{Buckets, Entry, Grouped, assemble};
use super::super::line::{Fault, Line};
use super::super::number::scan_f64;
use super::super::records::{Records, parse_records};
use super::super::report::{Field, Symmetry};
use super::super::scan::line_end;
use super::super::{Loaded, ReadError, ReadOptions};
use super::header::MatrixHeader;
use crate::memory::{index, make_room, try_collect, try_copy, try_par_collect_ok, try_with_room};
use crate::{OutOfMemory, Value};

struct Values(Field);

impl Records for Values {
    type Block = Vec<f64>;
    type Closed = Vec<f64>;
    const COMMENT: u8 = b'%';

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Vec<f64>) -> Option<usize> {
        if self.0 == Field::Integer {
            return None;
        }
        let (value, at) = scan_f64(text, at)?;
        let next = line_end(text, at)?;
        block.push(value);
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Vec<f64>) -> Result<(), Fault> {
        let value = if self.0 == Field::Integer { line.integer()? } else { line.real()? };
        line.end()?;
        block.push(value);
        Ok(())
    }

    fn make_room(&self, block: &mut Vec<f64>, bytes: usize) -> Result<(), OutOfMemory> {
        // The shortest line is `0` and its end.
        make_room(block, bytes / 2 + 1, "entries")
    }

    fn close(&self, block: &mut Vec<f64>) -> Result<Vec<f64>, OutOfMemory> {
        let closed = try_copy(block, "entries")?;
        block.clear();
        Ok(closed)
    }
}

pub(super) fn read<V: Value>(
    header: MatrixHeader,
    source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let records = parse_records(source, &Values(header.field), header.entries, |line| header.too_many(line))?;
    if records.count < header.entries {
        return Err(header.too_few(records.count, records.lines));
    }
    let mut report = header.report();
    report.content_bytes = records.end.bytes;
    report.entries_read = records.count;

    let buckets = Buckets::new(header.rows, header.entries);
    let starts = records.blocks.iter().scan(0, |next, block| {
        let start = *next;
        *next += block.len() as u64;
        Some(start)
    });
    let mut starts_of_blocks: Vec<u64> = try_with_room(records.blocks.len(), "blocks of text")?;
    starts_of_blocks.extend(starts);
    let blocks = records.blocks.into_par_iter().zip(starts_of_blocks);
    let blocks = blocks.map(|(values, start)| place(&header, buckets, start, &values));
    let blocks = try_par_collect_ok(blocks, "blocks of text")?;
    let nonzeros: u64 = blocks.iter().map(|(_, nonzeros)| nonzeros).sum();
    let stored: u64 = blocks.iter().map(|(entries, _)| entries.len() as u64).sum();
    options.limits.check_nnz("entries, mirrored ones included", stored)?;
    report.zeros_dropped = report.entries_read - nonzeros;
    report.mirrored = stored - nonzeros;
    let blocks = try_collect(blocks.into_iter().map(|(entries, _)| entries), "blocks of text")?;
    let csr = assemble(buckets, header.cols, blocks, options)?;
    Ok(Loaded { csr, report })
}

/// All values that the file lists, in pieces.
pub(super) fn values(header: &MatrixHeader, source: TextSource<'_>) -> Result<Vec<Vec<f64>>, ReadError> {
    let records = parse_records(source, &Values(header.field), header.entries, |line| header.too_many(line))?;
    match records.count < header.entries {
        true => Err(header.too_few(records.count, records.lines)),
        false => Ok(records.blocks),
    }
}

/// Entries in their buckets, and how many of them the file names.
type Placed<V> = (Grouped<(u32, u32, V)>, u64);

/// Entries for the nonzeros among `values`, which are the values from number `start` on; and how many
/// nonzeros there are.
fn place<V: Value>(
    header: &MatrixHeader,
    buckets: Buckets,
    start: u64,
    values: &[f64],
) -> Result<Placed<V>, OutOfMemory> {
    let nonzeros = values.iter().filter(|&&value| value != 0.0).count();
    let each = if header.symmetry == Symmetry::General { 1 } else { 2 };
    let mut entries: Vec<(u32, u32, V)> = try_with_room(each * nonzeros, "entries")?;
    if values.is_empty() {
        return Ok((Grouped::new(&entries, buckets)?, 0));
    }
    let (mut row, mut col) = position(header, start);
    for &value in values {
        if value != 0.0 {
            entries.push(Entry::<V>::new(row, col, value));
            if header.symmetry != Symmetry::General && row != col {
                let skew = header.symmetry == Symmetry::SkewSymmetric;
                entries.push(Entry::<V>::new(col, row, if skew { -value } else { value }));
            }
        }
        row += 1;
        if row == header.rows {
            col += 1;
            row = first_row(header, col);
        }
    }
    Ok((Grouped::new(&entries, buckets)?, nonzeros as u64))
}

/// The first row that column `col` lists.
fn first_row(header: &MatrixHeader, col: u32) -> u32 {
    match header.symmetry {
        Symmetry::General => 0,
        Symmetry::Symmetric => col,
        Symmetry::SkewSymmetric => col + 1,
    }
}

/// Row and column of value number `number`.
fn position(header: &MatrixHeader, number: u64) -> (u32, u32) {
    let rows = u128::from(header.rows);
    // Values listed before column `col`.
    let before = |col: u32| {
        let col = u128::from(col);
        match header.symmetry {
            Symmetry::General => col * rows,
            Symmetry::Symmetric => col * (2 * rows + 1 - col) / 2,
            Symmetry::SkewSymmetric => col * (2 * rows - 1 - col) / 2,
        }
    };
    let (mut low, mut high) = (0, header.cols);
    // The last column that starts at or before the number.
    while high - low > 1 {
        let middle = low.midpoint(high);
        if before(middle) <= u128::from(number) { low = middle } else { high = middle }
    }
    let within = index(number - u64::try_from(before(low)).unwrap_or(number));
    (first_row(header, low) + u32::try_from(within).unwrap_or(0), low)
}

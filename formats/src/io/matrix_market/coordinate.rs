//! One entry a line: row, column, value.

use std::cmp::Ordering;
use std::marker::PhantomData;

use super::super::blocks::TextSource;
use super::super::entries::{Buckets, Entry, Grouped, assemble};
use super::super::line::{Fault, Line};
use super::super::number::{scan_f64, scan_index};
use super::super::records::{AllRecords, Records, parse_records};
use super::super::report::{Field, Symmetry};
use super::super::scan::{blank, line_end};
use super::super::{Loaded, ReadError, ReadOptions};
use super::header::MatrixHeader;
use crate::memory::{make_room, try_collect};
use crate::{OutOfMemory, Value};

/// Entries of one block, mirrored ones included, while it is read.
struct Block<E> {
    entries: Vec<E>,
    triangle: Triangle,
}

impl<E> Default for Block<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), triangle: Triangle::default() }
    }
}

/// Where the records of a block are; records count from 0.
#[derive(Default)]
struct Triangle {
    records: u64,
    first_below: Option<u64>,
    first_above: Option<u64>,
}

/// Entries of one block once it is read.
struct Closed<E> {
    entries: Grouped<E>,
    triangle: Triangle,
}

impl<E> Default for Closed<E> {
    fn default() -> Self {
        Self { entries: Grouped::default(), triangle: Triangle::default() }
    }
}

pub(super) fn read<V: Value>(
    header: MatrixHeader,
    source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    match header.field {
        Field::Pattern => read_entries::<V, (u32, u32)>(header, source, options),
        Field::Real | Field::Integer => read_entries::<V, (u32, u32, V)>(header, source, options),
    }
}

fn read_entries<V: Value, E: Entry<V>>(
    header: MatrixHeader,
    source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let buckets = Buckets::new(header.rows, header.entries);
    let grammar = Coordinates::<V, E> { header, buckets, entry: PhantomData };
    let records = parse_records(source, &grammar, header.entries, |line| header.too_many(line))?;
    if records.count < header.entries {
        return Err(header.too_few(records.count, records.lines));
    }
    check_triangle(&records)?;

    let stored: u64 = records.blocks.iter().map(|block| block.entries.len() as u64).sum();
    options.limits.check_nnz("entries, mirrored ones included", stored)?;
    let mut report = header.report();
    report.content_bytes = records.end.bytes;
    report.entries_read = records.count;
    report.mirrored = stored - records.count;
    if header.field == Field::Pattern {
        report.pattern_values = stored;
    }
    let blocks = try_collect(records.blocks.into_iter().map(|block| block.entries), "blocks of text")?;
    let csr = assemble(buckets, header.cols, blocks, options)?;
    Ok(Loaded { csr, report })
}

/// A symmetric file holds one triangle; in one that holds both, which entries stand for two is anyone's guess.
fn check_triangle<E>(records: &AllRecords<Closed<E>>) -> Result<(), ReadError> {
    let first = |of: fn(&Triangle) -> Option<u64>| {
        let mut blocks = records.blocks.iter().enumerate();
        blocks.find_map(|(number, block)| Some(records.line_in_block(number, of(&block.triangle)?)))
    };
    let (Some(below), Some(above)) =
        (first(|records| records.first_below), first(|records| records.first_above))
    else {
        return Ok(());
    };
    let (kept, wrong, earlier, later) = match below.cmp(&above) {
        Ordering::Less => ("below", "above", below, above),
        _ => ("above", "below", above, below),
    };
    let expected = format!("an entry on or {kept} the diagonal, like that in line {earlier}");
    let found = format!("one {wrong} it; a symmetric file holds one triangle, else write `general`");
    Err(Fault::new(1, expected, found).at_line(later))
}

struct Coordinates<V, E> {
    header: MatrixHeader,
    buckets: Buckets,
    entry: PhantomData<fn(V) -> E>,
}

impl<V: Value, E: Entry<V>> Coordinates<V, E> {
    /// Adds the entry at `(row, col)`, from 0, and its mirror image.
    #[inline]
    fn push(&self, row: u32, col: u32, value: f64, block: &mut Block<E>) {
        block.entries.push(E::new(row, col, value));
        let symmetry = self.header.symmetry;
        if symmetry != Symmetry::General && row != col {
            let Triangle { records, first_below, first_above } = &mut block.triangle;
            if row > col { first_below } else { first_above }.get_or_insert(*records);
            let value = if symmetry == Symmetry::SkewSymmetric { -value } else { value };
            block.entries.push(E::new(col, row, value));
        }
        block.triangle.records += 1;
    }
}

impl<V: Value, E: Entry<V>> Records for Coordinates<V, E> {
    type Block = Block<E>;
    type Closed = Closed<E>;
    const COMMENT: u8 = b'%';

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Block<E>) -> Option<usize> {
        let MatrixHeader { field, symmetry, rows, cols, .. } = self.header;
        let (row, at) = scan_index(text, at)?;
        let (col, at) = scan_index(text, blank(text, at)?)?;
        let (value, at) = match field {
            Field::Pattern => (1.0, at),
            Field::Real => scan_f64(text, blank(text, at)?)?,
            // Few integers have a point or an exponent, which would be wrong: those are left to `careful`.
            Field::Integer => {
                let start = blank(text, at)?;
                let (value, end) = scan_f64(text, start)?;
                (value, text[start..end].iter().all(|&byte| byte <= b'9' && byte != b'.').then_some(end)?)
            }
        };
        let next = line_end(text, at)?;
        // From 1 in the file; 0 wraps around and is out of range too.
        let (row, col) = (row.wrapping_sub(1), col.wrapping_sub(1));
        if row >= u64::from(rows) || col >= u64::from(cols) {
            return None;
        }
        if symmetry == Symmetry::SkewSymmetric && row == col {
            return None;
        }
        self.push(u32::try_from(row).ok()?, u32::try_from(col).ok()?, value, block);
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Block<E>) -> Result<(), Fault> {
        let MatrixHeader { field, symmetry, rows, cols, .. } = self.header;
        let row = line.unsigned("a row", 1..=u64::from(rows))?;
        let mut second = line.clone();
        let col = line.unsigned("a column", 1..=u64::from(cols))?;
        if symmetry == Symmetry::SkewSymmetric && row == col {
            let token = second.expect(String::new)?;
            return Err(token.fault(
                "a column that is not the row, since the diagonal of a skew-symmetric matrix is zero",
            ));
        }
        let value = match field {
            Field::Pattern => 1.0,
            Field::Real => line.real()?,
            Field::Integer => line.integer()?,
        };
        line.end()?;
        let index = |number: u64| u32::try_from(number - 1).unwrap_or(u32::MAX);
        self.push(index(row), index(col), value, block);
        Ok(())
    }

    fn make_room(&self, block: &mut Block<E>, bytes: usize) -> Result<(), OutOfMemory> {
        // The shortest line is `1 1` and its end.
        let each = if self.header.symmetry == Symmetry::General { 1 } else { 2 };
        make_room(&mut block.entries, each * (bytes / 4 + 1), "entries")
    }

    fn close(&self, block: &mut Block<E>) -> Result<Closed<E>, OutOfMemory> {
        let entries = Grouped::new(&block.entries, self.buckets)?;
        block.entries.clear();
        Ok(Closed { entries, triangle: std::mem::take(&mut block.triangle) })
    }
}

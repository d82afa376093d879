//! Reads edge lists in the manner of the SNAP collection (Leskovec, Krevl, "SNAP Datasets", 2014): `#`
//! comments, then `from to` or `from to value` in each line, ids from 0. The matrix is square with one row
//! more than the largest id.

use std::marker::PhantomData;

use rayon::prelude::*;

use super::blocks::TextSource;
use super::entries::{Buckets, Entries, assemble};
use super::line::{Fault, Line};
use super::number::{scan_f64, scan_index};
use super::records::{Records, parse_records};
use super::report::{Header, ReadReport};
use super::scan::{blank, line_end};
use super::{Loaded, ReadError, ReadOptions};
use crate::Value;

/// The largest id: the matrix has one row more, at most 2^32 − 1.
const LARGEST_ID: u64 = u32::MAX as u64 - 1;

struct Edges<V> {
    weighted: bool,
    value: PhantomData<fn(V)>,
}

impl<V: Value> Edges<V> {
    #[inline]
    fn push(&self, (from, to): (u32, u32), value: f64, block: &mut Entries<V>) {
        block.rows.push(from);
        block.cols.push(to);
        if self.weighted {
            block.values.push(V::from_f64(value));
        }
    }
}

impl<V: Value> Records for Edges<V> {
    type Block = Entries<V>;
    type Closed = Entries<V>;
    const COMMENT: u8 = b'#';

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Entries<V>) -> Option<usize> {
        let (from, at) = scan_index(text, at)?;
        let (to, at) = scan_index(text, blank(text, at)?)?;
        let (value, at) = if self.weighted { scan_f64(text, blank(text, at)?)? } else { (1.0, at) };
        let next = line_end(text, at)?;
        let id = |number: u64| u32::try_from(number).ok().filter(|_| number <= LARGEST_ID);
        self.push((id(from)?, id(to)?), value, block);
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Entries<V>) -> Result<(), Fault> {
        let mut id = |what| line.unsigned(what, 0..=LARGEST_ID);
        let edge = (id("an id")?, id("a second id")?);
        let value = if self.weighted { line.real()? } else { 1.0 };
        line.end()?;
        let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.push((id(edge.0), id(edge.1)), value, block);
        Ok(())
    }

    fn close(&self, block: &mut Entries<V>) -> Entries<V> {
        let closed = block.clone();
        block.clear();
        closed
    }
}

/// Whether the first edge has a value.
fn is_weighted(source: &mut TextSource<'_>) -> Result<bool, ReadError> {
    let mut commented = false;
    while let Some(text) = source.peek_line()? {
        let mut line = Line::new(text);
        match line.token() {
            Some(token) if token.bytes[0] != Edges::<f32>::COMMENT => {
                return Ok(line.token().is_some() && line.token().is_some());
            }
            token => commented |= token.is_some(),
        }
        source.take_line()?;
    }
    if commented {
        return Ok(false);
    }
    Err(Fault::new(1, "an edge or a comment", "the end of the file").at_line(source.lines_taken() + 1))
}

/// Reads the matrix in `source`.
pub(super) fn read<V: Value>(
    mut source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let limits = options.limits;
    let weighted = is_weighted(&mut source)?;
    let too_many = |line| {
        let place = format!("line {line}");
        let nnz = limits.max_nnz.saturating_add(1);
        limits.check_nnz(&place, nnz).err().unwrap_or_else(|| limits.too_many_bytes(nnz))
    };
    let grammar = Edges { weighted, value: PhantomData };
    let records = parse_records(source, &grammar, limits.max_nnz, too_many)?;

    let mut report = ReadReport::new(Header::EdgeList { weighted });
    report.content_bytes = records.bytes;
    report.entries_read = records.count;
    if !weighted {
        report.pattern_values = records.count;
    }
    let blocks = records.blocks;
    let largest =
        blocks.par_iter().flat_map_iter(|block| block.rows.iter().chain(&block.cols).copied()).max();
    let size = largest.map_or(0, |id| u64::from(id) + 1);
    let (rows, cols) = limits.check_shape("largest id plus one", size, size)?;
    let buckets = Buckets::new(rows, records.count);
    let blocks = blocks.into_par_iter().map(|block| block.grouped(buckets)).collect();
    let csr = assemble(buckets, cols, blocks, options)?;
    Ok(Loaded { csr, report })
}

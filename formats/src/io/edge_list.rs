//! Reads edge lists in the manner of the SNAP collection (Leskovec, Krevl, "SNAP Datasets", 2014): `#`
//! comments, then `from to` or `from to value` in each line, ids from 0. The matrix is square with one row
//! more than the largest id.
//!
//! SNAP states the numbers of nodes and edges in a comment. Not every file means the lines that it has, so a difference
//! is reported only; in a file that was written here it is an error, since the file is not whole.

use std::marker::PhantomData;

use rayon::prelude::*;

use super::blocks::{End, TextSource};
use super::entries::{Buckets, Entry, Grouped, assemble};
use super::line::{Fault, Line};
use super::number::{parse_unsigned, scan_f64, scan_index};
use super::records::{Records, parse_records};
use super::report::{Header, ReadReport};
use super::scan::{blank, line_end};
use super::{Loaded, ReadError, ReadOptions};
use crate::memory::{make_room, try_copy, try_par_collect_ok};
use crate::{OutOfMemory, Value};

/// What comment lines start with.
const COMMENT: u8 = b'#';
/// The last word of the comment with the numbers, in files that are written here.
pub(super) const OWN_MARK: &str = "(windrow)";
/// The largest id: the matrix has one row more, at most 2^32 − 1.
const LARGEST_ID: u64 = u32::MAX as u64 - 1;

struct Edges<V, E> {
    weighted: bool,
    stated: Option<Stated>,
    entry: PhantomData<fn(V) -> E>,
}

impl<V: Value, E: Entry<V>> Records for Edges<V, E> {
    type Block = Vec<E>;
    type Closed = Vec<E>;
    const COMMENT: u8 = COMMENT;

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Vec<E>) -> Option<usize> {
        let (from, at) = scan_index(text, at)?;
        let (to, at) = scan_index(text, blank(text, at)?)?;
        let (value, at) = if self.weighted { scan_f64(text, blank(text, at)?)? } else { (1.0, at) };
        let next = line_end(text, at)?;
        let id = |number: u64| u32::try_from(number).ok().filter(|_| number <= LARGEST_ID);
        block.push(E::new(id(from)?, id(to)?, value));
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Vec<E>) -> Result<(), Fault> {
        let mut id = |what| line.unsigned(what, 0..=LARGEST_ID);
        let edge = (id("an id")?, id("a second id")?);
        let value = if self.weighted { line.real()? } else { 1.0 };
        line.end()?;
        let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        block.push(E::new(id(edge.0), id(edge.1), value));
        Ok(())
    }

    fn make_room(&self, block: &mut Vec<E>, bytes: usize) -> Result<(), OutOfMemory> {
        // The shortest line is `0 0` and its end.
        make_room(block, bytes / 4 + 1, "entries")
    }

    fn close(&self, block: &mut Vec<E>) -> Result<Vec<E>, OutOfMemory> {
        let closed = try_copy(block, "entries")?;
        block.clear();
        Ok(closed)
    }
}

/// What a comment says of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stated {
    line: u64,
    nodes: u64,
    edges: u64,
    /// It says that the file was written here.
    own: bool,
}

impl Stated {
    /// Of a comment such as `# Nodes: 4 Edges: 3`.
    fn parse(text: &[u8], line: u64) -> Option<Self> {
        let mut words = Line::new(text);
        let words: Vec<&[u8]> = std::iter::from_fn(|| words.token()).map(|word| word.bytes).collect();
        let number = |name: &[u8]| {
            let at = words.iter().position(|word| word.eq_ignore_ascii_case(name))?;
            parse_unsigned(words.get(at + 1)?)
        };
        let own = words.last() == Some(&OWN_MARK.as_bytes());
        Some(Self { line, nodes: number(b"Nodes:")?, edges: number(b"Edges:")?, own })
    }

    /// An error if a file that was written here has not all that it says.
    fn check(&self, edges: u64, nodes: u64, (lines, end): (u64, End)) -> Result<(), ReadError> {
        // A number whose last digits are missing is a number too.
        let is_whole = (edges, nodes) == (self.edges, self.nodes) && !end.within_line;
        if !self.own || is_whole {
            return Ok(());
        }
        let expected =
            format!("{} edges of {} nodes in all, as line {} says", self.edges, self.nodes, self.line);
        let within = if end.within_line { ", within a line" } else { "" };
        let found = format!(
            "the end of the file after {edges} edges of {nodes} nodes{within}; it was cut off, or edited: then correct \
             that line"
        );
        Err(Fault::new(1, expected, found).at_line(lines + 1))
    }
}

/// Whether the first edge has a value, and what comments before it say.
fn look_ahead(source: &mut TextSource<'_>) -> Result<(bool, Option<Stated>), ReadError> {
    let (mut commented, mut stated) = (false, None);
    loop {
        let number = source.lines_taken() + 1;
        let Some(text) = source.peek_line()? else { break };
        let mut line = Line::new(text);
        match line.token() {
            Some(token) if token.bytes[0] != COMMENT => {
                return Ok((line.token().is_some() && line.token().is_some(), stated));
            }
            token => commented |= token.is_some(),
        }
        stated = stated.or_else(|| Stated::parse(text, number));
        source.take_line()?;
    }
    if commented {
        return Ok((false, stated));
    }
    Err(Fault::new(1, "an edge or a comment", "the end of the file").at_line(source.lines_taken() + 1))
}

/// Reads the matrix in `source`.
pub(super) fn read<V: Value>(
    mut source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let (weighted, stated) = look_ahead(&mut source)?;
    if weighted {
        let grammar = Edges::<V, (u32, u32, V)> { weighted, stated, entry: PhantomData };
        return read_edges(grammar, source, options);
    }
    let grammar = Edges::<V, (u32, u32)> { weighted, stated, entry: PhantomData };
    let mut loaded = read_edges(grammar, source, options)?;
    loaded.report.pattern_values = loaded.report.entries_read;
    Ok(loaded)
}

fn read_edges<V: Value, E: Entry<V>>(
    grammar: Edges<V, E>,
    source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let limits = options.limits;
    let too_many = |line| {
        let place = format!("line {line}");
        let nnz = limits.max_nnz.saturating_add(1);
        limits.check_nnz(&place, nnz).err().unwrap_or_else(|| limits.too_many_bytes(nnz))
    };
    let records = parse_records(source, &grammar, limits.max_nnz, too_many)?;
    let mut report = ReadReport::new(Header::EdgeList { weighted: grammar.weighted });
    report.content_bytes = records.end.bytes;
    report.entries_read = records.count;
    report.entries_stated = grammar.stated.map(|stated| stated.edges);

    let ids = |block: &Vec<E>| block.iter().map(|entry| entry.row().max(entry.col())).max();
    let largest = records.blocks.par_iter().filter_map(ids).max();
    let size = largest.map_or(0, |id| u64::from(id) + 1);
    if let Some(stated) = grammar.stated {
        stated.check(records.count, size, (records.lines, records.end))?;
    }
    let (rows, cols) = limits.check_shape("largest id plus one", size, size)?;
    let buckets = Buckets::new(rows, records.count);
    // Each list is dropped as soon as it is sorted.
    let grouped = |block: Vec<E>| Grouped::new(&block, buckets);
    let blocks = try_par_collect_ok(records.blocks.into_par_iter().map(grouped), "blocks of text")?;
    let csr = assemble(buckets, cols, blocks, options)?;
    Ok(Loaded { csr, report })
}

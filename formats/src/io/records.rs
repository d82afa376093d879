//! The loop over the lines of a text, one record a line.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ReadError;
use super::blocks::{End, Parsed, TextSource, parse_blocks};
use super::line::{Fault, Line};
use crate::OutOfMemory;
use crate::memory::{make_room, try_with_room};

/// A grammar with one record a line.
pub(super) trait Records: Sync {
    /// The records of a block while it is read. Kept from block to block, so that its memory is.
    type Block: Default;
    /// The records of a block once it is read.
    type Closed: Default + Send;

    /// Takes the record at `at` if it is in the plain shape: no blanks but one between words. Returns the
    /// position behind the line's end, or declines and changes nothing.
    fn plain(&self, text: &[u8], at: usize, block: &mut Self::Block) -> Option<usize>;

    /// Takes the record of any line that is neither blank nor a comment.
    fn careful(&self, line: Line<'_>, block: &mut Self::Block) -> Result<(), Fault>;

    /// What comment lines start with.
    const COMMENT: u8;

    /// Makes room in `block`, which is empty, for the records of a text of `bytes` bytes: taking one then needs none.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn make_room(&self, block: &mut Self::Block, bytes: usize) -> Result<(), OutOfMemory>;

    /// Called when all lines of a block are read; leaves `block` empty.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn close(&self, block: &mut Self::Block) -> Result<Self::Closed, OutOfMemory>;
}

/// Consecutive lines of a block that hold no record.
struct Gap {
    /// How many records come before it.
    records: u64,
    lines: u64,
}

/// The records of a block, and where they are.
#[derive(Default)]
pub(super) struct BlockRecords<B> {
    pub(super) block: B,
    pub(super) count: u64,
    gaps: Vec<Gap>,
}

impl<B> BlockRecords<B> {
    /// Line of record `record` in the block, both from 0.
    fn line_of(&self, record: u64) -> u64 {
        let before = self.gaps.iter().take_while(|gap| gap.records <= record);
        record + before.map(|gap| gap.lines).sum::<u64>()
    }
}

fn parse_block<R: Records>(
    records: &R,
    text: &[u8],
    block: &mut R::Block,
) -> Result<Parsed<BlockRecords<R::Closed>>, OutOfMemory> {
    records.make_room(block, text.len())?;
    let (mut count, mut gaps) = (0, Vec::<Gap>::new());
    let (mut at, mut lines, mut fault) = (0, 0, None);
    while at < text.len() {
        if let Some(next) = records.plain(text, at, block) {
            (at, lines, count) = (next, lines + 1, count + 1);
            continue;
        }
        let rest = &text[at..];
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |newline| newline + 1);
        let line = Line::new(&rest[..end]);
        match line.clone().token() {
            Some(token) if token.bytes[0] != R::COMMENT => {
                if let Err(found) = records.careful(line, block) {
                    fault = Some((lines, found));
                    break;
                }
                count += 1;
            }
            _ => match gaps.last_mut() {
                Some(gap) if gap.records == count => gap.lines += 1,
                _ => {
                    make_room(&mut gaps, 1, "places of comments")?;
                    gaps.push(Gap { records: count, lines: 1 });
                }
            },
        }
        (at, lines) = (at + end, lines + 1);
    }
    let content = BlockRecords { block: records.close(block)?, count, gaps };
    Ok(Parsed { content, lines, fault })
}

/// All records of a text.
pub(super) struct AllRecords<B> {
    pub(super) blocks: Vec<B>,
    /// Lines of each block before which it starts, and where its records are.
    places: Vec<(u64, BlockRecords<()>)>,
    /// Records of all blocks together.
    pub(super) count: u64,
    /// Lines of the whole text.
    pub(super) lines: u64,
    /// Where the text ends.
    pub(super) end: End,
}

impl<B> AllRecords<B> {
    /// Line of record `record` of block `block`, from 1; records count from 0 in the block.
    pub(super) fn line_in_block(&self, block: usize, record: u64) -> u64 {
        let (lines_before, places) = &self.places[block];
        lines_before + places.line_of(record) + 1
    }

    /// Line of record `record` of the text, from 1; records count from 0.
    fn line_of(&self, mut record: u64) -> u64 {
        for (lines_before, places) in &self.places {
            if record < places.count {
                return lines_before + places.line_of(record) + 1;
            }
            record -= places.count;
        }
        self.lines
    }
}

/// Parses the rest of `source`; `most` is the number of records after which it may stop.
///
/// The result holds more than `most` records if and only if the text does, up to its first fault;
/// `too_many` then makes the error from the line of the first record too many.
pub(super) fn parse_records<R: Records>(
    source: TextSource<'_>,
    records: &R,
    most: u64,
    too_many: impl Fn(u64) -> ReadError,
) -> Result<AllRecords<R::Closed>, ReadError> {
    let mut lines = source.lines_taken();
    let total = AtomicU64::new(0);
    let (parsed, end) = parse_blocks(source, |text, block: &mut R::Block| {
        let parsed = parse_block(records, text, block)?;
        let before = total.fetch_add(parsed.content.count, Ordering::Relaxed);
        let enough = before + parsed.content.count > most;
        Ok((parsed, if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }))
    })?;
    let blocks = try_with_room(parsed.len(), "blocks of text")?;
    let places = try_with_room(parsed.len(), "blocks of text")?;
    let mut all = AllRecords { blocks, places, count: 0, lines: 0, end };
    let mut first_fault = None;
    for Parsed { content: BlockRecords { block, count, gaps }, lines: block_lines, fault } in parsed {
        all.blocks.push(block);
        all.places.push((lines, BlockRecords { block: (), count, gaps }));
        all.count += count;
        if let Some((line, fault)) = fault {
            first_fault = Some(fault.at_line(lines + line + 1));
            break;
        }
        lines += block_lines;
    }
    all.lines = lines;
    if all.count > most {
        return Err(too_many(all.line_of(most)));
    }
    match first_fault {
        Some(fault) => Err(fault),
        None => Ok(all),
    }
}

//! Text in blocks of whole lines: one thread at a time reads, all parse.
//!
//! A block is cut off the stream under a lock, which costs a copy, or decompression; then it is parsed
//! outside of the lock by the thread that took it. So no more text than a few blocks is ever in memory, gzip
//! is decompressed while other threads parse, and blocks fit the cache of the core that parses them.

use std::io::Read;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::line::Fault;
use super::source::read_to_end;
use super::{Limits, ReadError};
use crate::OutOfMemory;
use crate::memory::{make_room, try_collect, try_copy, try_push, try_with_room};

/// Size of a block, and with it of the longest line.
pub(super) const BLOCK_BYTES: usize = 1 << 19;

/// A stream of text that is taken line by line first, then block by block.
pub(super) struct TextSource<'a> {
    reader: Box<dyn Read + Send + 'a>,
    limits: Limits,
    /// Read but not taken yet: `pending[start..]`.
    pending: Vec<u8>,
    start: usize,
    at_end: bool,
    bytes_read: u64,
    lines_taken: u64,
    /// The last line had no end of its own.
    unended: bool,
}

impl<'a> TextSource<'a> {
    pub(super) fn new(reader: Box<dyn Read + Send + 'a>, limits: Limits) -> Self {
        Self {
            reader,
            limits,
            pending: Vec::new(),
            start: 0,
            at_end: false,
            bytes_read: 0,
            lines_taken: 0,
            unended: false,
        }
    }

    /// Lines taken by [`Self::take_line`], which is the number of the line that comes next, less one.
    pub(super) fn lines_taken(&self) -> u64 {
        self.lines_taken
    }

    /// Appends what the reader has to `buffer` until it holds `BLOCK_BYTES` or the reader has no more.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        while buffer.len() < BLOCK_BYTES && !self.at_end {
            let wanted = (BLOCK_BYTES - buffer.len()) as u64;
            let allowed = self.limits.max_bytes.saturating_add(1) - self.bytes_read;
            let read = read_to_end((&mut self.reader).take(wanted.min(allowed)), buffer)?;
            self.bytes_read += read as u64;
            if self.bytes_read > self.limits.max_bytes {
                return Err(self.limits.too_many_bytes(self.bytes_read));
            }
            self.at_end = (read as u64) < wanted;
        }
        Ok(())
    }

    /// The next line with its end, without taking it; `None` at the end of the text.
    pub(super) fn peek_line(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let mut end = end_of_line(&self.pending[self.start..]);
        if end.is_none() && !self.at_end {
            let mut buffer = std::mem::take(&mut self.pending);
            buffer.drain(..self.start);
            self.fill(&mut buffer)?;
            (self.pending, self.start) = (buffer, 0);
            end = end_of_line(&self.pending);
        }
        let rest = &self.pending[self.start..];
        match end {
            Some(end) => Ok(Some(&rest[..end])),
            None if self.at_end => Ok((!rest.is_empty()).then_some(rest)),
            None => Err(line_too_long().at_line(self.lines_taken + 1)),
        }
    }

    /// Takes the line that [`Self::peek_line`] shows.
    pub(super) fn take_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let line = self.peek_line()?.map(|line| try_copy(line, "a line")).transpose()?;
        if let Some(line) = &line {
            self.start += line.len();
            self.lines_taken += 1;
        }
        Ok(line)
    }

    /// Makes `block` the next whole lines; `false` at the end of the text.
    ///
    /// The last line gets an end if it has none, so that every line of a block has one.
    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<Result<bool, Fault>, ReadError> {
        block.clear();
        make_room(block, self.pending.len() - self.start, "a block of text")?;
        block.extend_from_slice(&self.pending[self.start..]);
        self.pending.clear();
        self.start = 0;
        self.fill(block)?;
        match block.iter().rposition(|&byte| byte == b'\n') {
            _ if self.at_end && block.last().is_some_and(|&byte| byte != b'\n') => {
                self.unended = true;
                block.push(b'\n');
            }
            Some(last) => {
                let rest = &block[last + 1..];
                make_room(&mut self.pending, rest.len(), "a block of text")?;
                self.pending.extend_from_slice(rest);
                block.truncate(last + 1);
            }
            None if block.is_empty() => return Ok(Ok(false)),
            None => return Ok(Err(line_too_long())),
        }
        Ok(Ok(true))
    }
}

fn line_too_long() -> Fault {
    Fault::new(BLOCK_BYTES, format!("lines shorter than {BLOCK_BYTES} bytes"), "no end of the line")
}

/// Position behind the first newline.
fn end_of_line(text: &[u8]) -> Option<usize> {
    text.iter().position(|&byte| byte == b'\n').map(|at| at + 1)
}

/// What was read of a block, or of all.
pub(super) struct Parsed<T> {
    /// What the lines say.
    pub(super) content: T,
    /// Lines in the block.
    pub(super) lines: u64,
    /// Line of the first fault in the block, from 0, and the fault.
    pub(super) fault: Option<(u64, Fault)>,
}

/// Where a text ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Bytes of the whole text.
    pub(super) bytes: u64,
    /// The last line has no end of its own.
    pub(super) within_line: bool,
}

/// Parses all blocks of `source`, in parallel; returns the results in order, and where the text ends.
///
/// `parse` gets a block, and something that its thread keeps from block to block, and says whether to go on: after
/// `Break` and after a fault no further blocks are taken. Those before it in the text are always parsed, so the first
/// fault in the text is among the results.
///
/// # Errors
/// What reading says, and [`OutOfMemory`] of `parse`. Faults are left in the results for the caller, who knows what
/// the blocks mean.
pub(super) fn parse_blocks<T: Default + Send, K: Default>(
    source: TextSource<'_>,
    parse: impl Fn(&[u8], &mut K) -> Result<(Parsed<T>, ControlFlow<()>), OutOfMemory> + Sync,
) -> Result<(Vec<Parsed<T>>, End), ReadError> {
    let stop = AtomicBool::new(false);
    let input = Mutex::new((source, 0usize));
    let results = Mutex::new(Vec::new());
    let error = Mutex::new(None);
    let fail = |found: ReadError| {
        stop.store(true, Ordering::Relaxed);
        *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    };
    let work = || {
        let mut block = match try_with_room(BLOCK_BYTES + 1, "a block of text") {
            Ok(block) => block,
            Err(error) => return fail(error.into()),
        };
        let mut kept = K::default();
        loop {
            let (number, taken) = {
                let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (source, next) = &mut *input;
                let taken = source.next_block(&mut block);
                if !matches!(taken, Ok(Ok(true))) {
                    stop.store(true, Ordering::Relaxed);
                }
                *next += 1;
                (*next, taken)
            };
            let parsed = match taken {
                Ok(Ok(true)) => parse(&block, &mut kept).map_err(ReadError::from),
                Ok(Ok(false)) => return,
                Ok(Err(fault)) => Ok((
                    Parsed { content: T::default(), lines: 0, fault: Some((0, fault)) },
                    ControlFlow::Break(()),
                )),
                Err(error) => Err(error),
            };
            let (parsed, flow) = match parsed {
                Ok(parsed) => parsed,
                Err(error) => return fail(error),
            };
            if flow.is_break() || parsed.fault.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = try_push(&mut results, (number, parsed), "blocks of text") {
                drop(results);
                return fail(error.into());
            }
        }
    };
    rayon::scope(|scope| {
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(|_| work());
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|&(number, _)| number);
    let results = try_collect(results.into_iter().map(|(_, parsed)| parsed), "blocks of text")?;
    // A fault in the text that was read comes before whatever made reading fail.
    let faulty = results.iter().any(|parsed| parsed.fault.is_some());
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) if !faulty => Err(error),
        _ => {
            let (source, _) = input.into_inner().unwrap_or_else(PoisonError::into_inner);
            Ok((results, End { bytes: source.bytes_read, within_line: source.unended }))
        }
    }
}

//! Reads `.smtx`, the format of the Deep Learning Matrix Collection (Gale, Zaharia, Young, Elsen, "Sparse GPU
//! Kernels for Deep Learning", SC 2020): a line `rows, cols, entries`, a line of row offsets and a line of
//! column indices, all from 0. There are no values; every entry is 1.

use std::io::Read;

use rayon::prelude::*;

use super::line::{Fault, Line, excerpt, is_blank};
use super::number::{parse_unsigned, scan_index};
use super::report::{Header, ReadReport};
use super::source::read_all;
use super::{Loaded, ReadError, ReadOptions, Stage};
use crate::memory::{index, try_filled, try_par_collect_ok, try_with_room};
use crate::{Csr, OutOfMemory, Value};

/// Bytes of a line that are parsed in one piece by one thread.
const PIECE_BYTES: usize = 1 << 18;

/// Reads the matrix in `reader`.
pub(super) fn read<V: Value>(
    reader: Box<dyn Read + Send + '_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let text = read_all(reader, &options.limits)?;
    let mut lines = Lines { rest: &text, number: 0 };
    let Some(first) = lines.next_filled() else {
        let fault = Fault::new(1, "rows, columns and entries", "the end of the file");
        return Err(fault.at_line(lines.number + 1));
    };
    let number = first.number;
    let at_first = |fault: Fault| fault.at_line(number);
    let mut words = Line::with_commas(first.text);
    let most = u64::from(u32::MAX);
    let rows = words.unsigned("the number of rows", 0..=most).map_err(at_first)?;
    let cols = words.unsigned("the number of columns", 0..=most).map_err(at_first)?;
    let nnz = words.unsigned("the number of entries", 0..=u64::MAX - 1).map_err(at_first)?;
    words.end().map_err(at_first)?;
    let place = format!("line {number}");
    options.limits.check_shape(&place, rows, cols)?;
    options.limits.check_nnz(&place, nnz)?;

    let promise = |count: u64, what: &str| format!("{count} {what}, as line {number} says");
    let offsets = lines.next_filled().unwrap_or(NumberedLine { text: b"", number: lines.number + 1 });
    let offsets_expected = promise(rows + 1, "row offsets, one more than rows");
    let row_offsets =
        numbers(&offsets, rows + 1, &offsets_expected, |number| (number <= nnz).then_some(number))
            .map_err(|wrong| wrong.fault(&format!("an offset from 0 to {nnz}"), &offsets))?;
    check_offsets(&row_offsets, nnz, &offsets)?;

    let columns = lines.next_filled().unwrap_or(NumberedLine { text: b"", number: lines.number + 1 });
    let columns_expected = promise(nnz, "column indices");
    let column = |number: u64| u32::try_from(number).ok().filter(|_| number < cols);
    let col_indices = numbers(&columns, nnz, &columns_expected, column)
        .map_err(|wrong| wrong.fault(&format!("a column below {cols}"), &columns))?;
    if let Some(extra) = lines.next_filled() {
        let column = extra.text.iter().take_while(|&&byte| is_blank(byte)).count() + 1;
        return Err(Fault::new(column, "the end of the file", excerpt(extra.text)).at_line(extra.number));
    }

    options.tell(Stage::Assembling, 0, None);
    let values = try_filled(col_indices.len(), V::ONE, "values")?;
    let csr = Csr::try_from_parts(index(rows), index(cols), row_offsets, col_indices, values)?;
    let mut report = ReadReport::new(Header::Smtx);
    report.content_bytes = text.len() as u64;
    report.entries_read = nnz;
    report.pattern_values = nnz;
    Ok(Loaded { csr, report })
}

struct NumberedLine<'a> {
    text: &'a [u8],
    /// Number of the line, from 1.
    number: u64,
}

struct Lines<'a> {
    rest: &'a [u8],
    number: u64,
}

impl<'a> Lines<'a> {
    /// The next line that is not blank, without its end.
    fn next_filled(&mut self) -> Option<NumberedLine<'a>> {
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|&byte| byte == b'\n').map_or(self.rest.len(), |at| at + 1);
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest;
            self.number += 1;
            let text = super::line::without_end(line);
            if !text.iter().all(|&byte| is_blank(byte)) {
                return Some(NumberedLine { text, number: self.number });
            }
        }
        None
    }
}

/// The word that is wrong in a line of numbers.
enum Wrong {
    /// The word at this position is not what it should be.
    Word(usize),
    /// There are too few or too many words: expected, found, column.
    Count(String, String, usize),
    /// There is no memory for the numbers.
    Memory(OutOfMemory),
}

impl From<OutOfMemory> for Wrong {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

impl Wrong {
    fn fault(self, expected: &str, line: &NumberedLine<'_>) -> ReadError {
        let fault = match self {
            Self::Word(at) => {
                let word = &line.text[at..];
                let len = word.iter().position(|&byte| is_blank(byte)).unwrap_or(word.len());
                Fault::new(at + 1, expected, excerpt(&word[..len]))
            }
            Self::Count(expected, found, column) => Fault::new(column, expected, found),
            Self::Memory(error) => return error.into(),
        };
        fault.at_line(line.number)
    }
}

/// The `count` numbers of a line, each made by `accept`, which returns `None` for a number out of range.
fn numbers<T: Send>(
    line: &NumberedLine<'_>,
    count: u64,
    expected: &str,
    accept: impl Fn(u64) -> Option<T> + Sync,
) -> Result<Vec<T>, Wrong> {
    let pieces = pieces(line.text)?.into_par_iter();
    let parsed = pieces.map(|(start, end)| piece(line.text, start, end, &accept));
    let parsed = try_par_collect_ok(parsed, "the numbers of a line")?;
    let len = parsed.iter().map(|(numbers, _)| numbers.len()).sum();
    let mut all: Vec<T> = try_with_room(len, "the numbers of a line")?;
    for (numbers, wrong) in parsed {
        all.extend(numbers);
        if let Some(at) = wrong {
            return Err(Wrong::Word(at));
        }
    }
    let found = all.len() as u64;
    if found == count {
        return Ok(all);
    }
    let found = if found < count { format!("the end of the line after {found}") } else { format!("{found}") };
    Err(Wrong::Count(expected.to_owned(), found, line.text.len() + 1))
}

/// Cuts a line between words into pieces of about `PIECE_BYTES`.
fn pieces(text: &[u8]) -> Result<Vec<(usize, usize)>, OutOfMemory> {
    let mut pieces = try_with_room(text.len() / PIECE_BYTES + 1, "the numbers of a line")?;
    let mut start = 0;
    while start < text.len() {
        let wanted = (start + PIECE_BYTES).min(text.len());
        let end = text[wanted..].iter().position(|&byte| is_blank(byte)).map_or(text.len(), |at| wanted + at);
        pieces.push((start, end));
        start = end;
    }
    Ok(pieces)
}

/// The numbers in `text[start..end]`, and the position of the first word that is wrong.
fn piece<T>(
    text: &[u8],
    start: usize,
    end: usize,
    accept: impl Fn(u64) -> Option<T>,
) -> Result<(Vec<T>, Option<usize>), OutOfMemory> {
    // The shortest number is one digit and a blank.
    let mut numbers = try_with_room((end - start) / 2 + 1, "the numbers of a line")?;
    let mut at = start;
    loop {
        at += text[at..end].iter().take_while(|&&byte| is_blank(byte)).count();
        if at == end {
            return Ok((numbers, None));
        }
        let scanned = scan_index(text, at).filter(|&(_, next)| next == end || is_blank(text[next]));
        let (number, next) = match scanned {
            Some((number, next)) => (Some(number), next),
            None => {
                let word = &text[at..end];
                let len = word.iter().position(|&byte| is_blank(byte)).unwrap_or(word.len());
                (parse_unsigned(&word[..len]), at + len)
            }
        };
        match number.and_then(&accept) {
            Some(number) => numbers.push(number),
            None => return Ok((numbers, Some(at))),
        }
        at = next;
    }
}

/// Offsets rise from 0 to `nnz`.
fn check_offsets(offsets: &[u64], nnz: u64, line: &NumberedLine<'_>) -> Result<(), ReadError> {
    // Called after all words were read, so the word with a given number exists.
    let at_word = |number: usize, expected: String| {
        let mut words = Line::new(line.text);
        let token = (0..=number).map_while(|_| words.token()).last();
        let fault = match token {
            Some(token) => token.fault(expected),
            None => Fault::new(1, expected, "the end of the line"),
        };
        fault.at_line(line.number)
    };
    if let Some(&first) = offsets.first().filter(|&&first| first != 0) {
        return Err(at_word(0, format!("0 as the first of {} offsets, not {first}", offsets.len())));
    }
    if let Some(row) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        let expected = format!("an offset of at least {}, where row {row} starts", offsets[row]);
        return Err(at_word(row + 1, expected));
    }
    match offsets.last() {
        Some(&last) if last != nnz => Err(at_word(offsets.len() - 1, format!("{nnz} as the last offset"))),
        _ => Ok(()),
    }
}

//! One line of text, taken apart with care: what the scanners decline, and every error message.

use super::ReadError;
use super::number::{is_integer, parse_f64, parse_unsigned};

/// What is wrong with a line; the line's number is known elsewhere.
#[derive(Debug)]
pub(super) struct Fault {
    /// Column in bytes, from 1.
    column: usize,
    expected: String,
    found: String,
}

impl Fault {
    pub(super) fn new(column: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { column, expected: expected.into(), found: found.into() }
    }

    /// The error for line `line`, counted from 1.
    pub(super) fn at_line(self, line: u64) -> ReadError {
        ReadError::Malformed { line, column: self.column as u64, expected: self.expected, found: self.found }
    }
}

/// Longest excerpt of a file in a message, in bytes.
const EXCERPT: usize = 40;

/// `bytes` as they can be shown in a message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let (head, tail) = bytes.split_at(bytes.len().min(EXCERPT));
    format!("`{}{}`", head.escape_ascii(), if tail.is_empty() { "" } else { "…" })
}

/// Longest part of a tensor's name in a message, in bytes: layers of one model often differ at the end alone.
const NAME: usize = 100;

/// The name of a tensor or of a file as it can be shown in a message.
pub(super) fn name_of(name: &str) -> String {
    let shown = &name[..name.floor_char_boundary(NAME)];
    format!("`{}{}`", shown.escape_debug(), if shown.len() < name.len() { "…" } else { "" })
}

/// Whether `byte` separates numbers of a line.
#[inline]
pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// `line` without the end-of-line bytes behind it.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A word of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) bytes: &'a [u8],
    /// Column of its first byte, from 1.
    pub(super) column: usize,
}

impl Token<'_> {
    pub(super) fn fault(&self, expected: impl Into<String>) -> Fault {
        Fault::new(self.column, expected, excerpt(self.bytes))
    }
}

/// The words of a line, from left to right.
#[derive(Debug, Clone)]
pub(super) struct Line<'a> {
    text: &'a [u8],
    at: usize,
    separator: fn(u8) -> bool,
}

impl<'a> Line<'a> {
    /// `text` is a line, with or without its end.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text: without_end(text), at: 0, separator: is_blank }
    }

    /// A line whose words may also be separated by commas.
    pub(super) fn with_commas(text: &'a [u8]) -> Self {
        Self { separator: |byte| is_blank(byte) || byte == b',', ..Self::new(text) }
    }

    /// The next word, if there is one.
    pub(super) fn token(&mut self) -> Option<Token<'a>> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.iter().position(|&byte| !(self.separator)(byte))?;
        let word = &self.text[start..];
        let len = word.iter().position(|&byte| (self.separator)(byte)).unwrap_or(word.len());
        self.at = start + len;
        Some(Token { bytes: &word[..len], column: start + 1 })
    }

    /// The next word; `expected` says what it should be.
    pub(super) fn expect(&mut self, expected: impl Fn() -> String) -> Result<Token<'a>, Fault> {
        let end = self.text.len() + 1;
        self.token().ok_or_else(|| Fault::new(end, expected(), "the end of the line"))
    }

    /// The next word as an integer in `range`.
    pub(super) fn unsigned(
        &mut self,
        what: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Fault> {
        let expected = || {
            if range.is_empty() {
                return format!("no entry, since there is no room for {what}");
            }
            format!("{what} from {} to {}", range.start(), range.end())
        };
        let token = self.expect(expected)?;
        let number = parse_unsigned(token.bytes).filter(|number| range.contains(number));
        number.ok_or_else(|| token.fault(expected()))
    }

    /// The next word as a decimal number.
    pub(super) fn real(&mut self) -> Result<f64, Fault> {
        let expected = || "a value (a decimal number, inf or nan)".to_owned();
        let token = self.expect(expected)?;
        parse_f64(token.bytes).ok_or_else(|| token.fault(expected()))
    }

    /// The next word as an integer value; one beyond 2^53 is rounded to the nearest `f64`.
    pub(super) fn integer(&mut self) -> Result<f64, Fault> {
        let expected = || "an integer value, as the header says".to_owned();
        let token = self.expect(expected)?;
        parse_f64(token.bytes).filter(|_| is_integer(token.bytes)).ok_or_else(|| token.fault(expected()))
    }

    /// Nothing but blanks may follow.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.token() {
            Some(token) => Err(token.fault("the end of the line")),
            None => Ok(()),
        }
    }
}

//! The header of a safetensors file, to be written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;

use super::super::WriteError;
use super::super::safetensors::MAX_HEADER_BYTES;

/// What the length of a safetensors header is a multiple of, so that values are aligned.
const HEADER_ALIGNMENT: usize = 8;
/// What metadata are called in a header, beside the tensors.
const METADATA: &str = "__metadata__";

/// The header of a safetensors file. Made here and not by the crate, which would need the whole file in memory and
/// writes metadata in an order that changes from run to run.
pub(super) struct Header {
    text: String,
    offset: usize,
    /// Those that are taken.
    names: BTreeSet<String>,
}

impl Header {
    pub(super) fn new(metadata: &[(&str, String)]) -> Self {
        let mut text = "{".to_owned();
        if !metadata.is_empty() {
            let entries: Vec<String> =
                metadata.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
            text = format!("{{{}:{{{}}}", quoted(METADATA), entries.join(","));
        }
        Self { text, offset: 0, names: BTreeSet::new() }
    }

    /// The next tensor, whose bytes follow those of the one before. Refuses names that would make a file that nobody
    /// can read.
    pub(super) fn tensor(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[usize],
        bytes: usize,
    ) -> Result<(), WriteError> {
        let invalid = |why: String| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why).into());
        if name == METADATA {
            return invalid(format!(
                "no tensor can be called {name:?}, where safetensors files keep metadata"
            ));
        }
        if !self.names.insert(name.to_owned()) {
            return invalid(format!("two tensors are called {name:?}"));
        }
        let (begin, end) = (self.offset, self.offset + bytes);
        let comma = if self.text.len() > 1 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(
            self.text,
            "{comma}{}:{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{begin},{end}]}}",
            quoted(name)
        );
        self.offset = end;
        Ok(())
    }

    /// Bytes of all tensors.
    pub(super) fn tensor_bytes(&self) -> u64 {
        self.offset as u64
    }

    /// Writes the header, unless it is longer than readers take; returns how many bytes it has.
    pub(super) fn write(mut self, writer: &mut (impl Write + ?Sized)) -> Result<u64, WriteError> {
        self.text.push('}');
        while !self.text.len().is_multiple_of(HEADER_ALIGNMENT) {
            self.text.push(' ');
        }
        let length = self.text.len() as u64;
        if length > MAX_HEADER_BYTES {
            let why = format!(
                "{} tensors need a header of {length} bytes, of which readers take {MAX_HEADER_BYTES}; put them \
                 into several files",
                self.names.len()
            );
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why).into());
        }
        writer.write_all(&length.to_le_bytes())?;
        writer.write_all(self.text.as_bytes())?;
        Ok(size_of_val(&length) as u64 + length)
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_reader_takes_is_not_written() {
        let mut header = Header::new(&[]);
        header.tensor(&"x".repeat(100_000_000), "U8", &[1], 1).unwrap();
        let mut file = Vec::new();
        let error = header.write(&mut file).unwrap_err().to_string();
        assert!(error.contains("of which readers take 100000000; put them into several files"), "{error}");
        assert_eq!(file, b"");
    }
}

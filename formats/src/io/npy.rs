//! Headers of NumPy's `.npy` arrays, format versions 1.0 to 3.0 (`numpy.lib.format`): read strictly, and written as
//! NumPy writes them.
//!
//! ```text
//! \x93NUMPY  major minor  length (2 bytes in version 1, else 4, little-endian)
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   spaces   \n
//! ```
//!
//! The dictionary is a Python literal. Only what NumPy puts there is taken: those three keys, once each, and for an
//! array of plain numbers a string, a bool and a tuple of sizes.

use super::line::excerpt;
use super::number::parse_unsigned;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is looked at. NumPy's own are shorter unless there are record types.
const MAX_HEADER_BYTES: usize = 1 << 12;
/// Most dimensions of an array in NumPy 2.
const MAX_DIMENSIONS: usize = 64;
/// The elements start at a multiple of this.
const ALIGNMENT: usize = 64;

/// What the elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `b`: one byte, 0 or 1.
    Bool,
    /// `i`: a signed integer.
    Int,
    /// `u`: an unsigned integer.
    Uint,
    /// `f`: a floating-point number.
    Float,
    /// `c`: a complex number, which matrices here do not hold.
    Complex,
    /// `S` and, of old, `a`: the size is the number of bytes.
    Bytes,
    /// `U`: the size is the number of characters, 4 bytes each.
    Unicode,
}

/// The type of the elements, like `<f8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ElementType {
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    /// The number in the name.
    pub(super) size: u64,
    name: String,
}

impl ElementType {
    /// NumPy's name of the type, as it is in the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of an element.
    pub(super) fn bytes(&self) -> u64 {
        if self.kind == Kind::Unicode { self.size.saturating_mul(4) } else { self.size }
    }

    fn parse(name: &[u8]) -> Result<Self, String> {
        let unknown = || format!("the element type {}", excerpt(name));
        let &[order, kind, ref size @ ..] = name else { return Err(unknown()) };
        let big_endian = match order {
            b'<' | b'|' => false,
            b'>' => true,
            _ => return Err(unknown()),
        };
        let kind = match kind {
            b'b' => Kind::Bool,
            b'i' => Kind::Int,
            b'u' => Kind::Uint,
            b'f' => Kind::Float,
            b'c' => Kind::Complex,
            b'S' | b'a' => Kind::Bytes,
            b'U' => Kind::Unicode,
            b'O' => return Err("one of Python objects, which are not unpickled".to_owned()),
            _ => return Err(unknown()),
        };
        let size = parse_unsigned(size).ok_or_else(unknown)?;
        // `|` says that there is no order of bytes, which only single bytes can do without.
        if order == b'|' && size > 1 && kind != Kind::Bytes {
            return Err(unknown());
        }
        Ok(Self { kind, big_endian, size, name: String::from_utf8_lossy(name).into_owned() })
    }
}

/// What the header of an array says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) element: ElementType,
    /// Whether the first index varies fastest.
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<u64>,
}

impl Header {
    /// The header at the start of `file`, and where the elements begin. The error says what was found instead.
    pub(super) fn parse(file: &[u8]) -> Result<(Self, usize), String> {
        let (start, length) = text_range(file)?;
        let text = file.get(start..start + length).ok_or_else(|| {
            format!("a header that ends early, after {} of {length} bytes", file.len().saturating_sub(start))
        })?;
        Ok((Literal { text, at: 0 }.header()?, start + length))
    }

    /// Bytes of all elements; `None` if no file holds so many.
    pub(super) fn data_bytes(&self) -> Option<u64> {
        let bytes = |size: u64, &dimension: &u64| size.checked_mul(dimension);
        // Sizes are multiplied without the zeros, too: who declares 2^60 rows of nothing lies.
        let declared = self.shape.iter().filter(|&&dimension| dimension != 0);
        let declared = declared.clone().try_fold(self.element.bytes().max(1), bytes)?;
        if declared > 1 << 60 {
            return None;
        }
        self.shape.iter().try_fold(self.element.bytes(), bytes)
    }
}

/// Where the text of the header starts, and how long it is.
fn text_range(file: &[u8]) -> Result<(usize, usize), String> {
    let Some(rest) = file.strip_prefix(MAGIC) else {
        return Err(format!(
            "{} where \\x93NUMPY begins a header",
            excerpt(&file[..file.len().min(MAGIC.len())])
        ));
    };
    let (start, length) = match *rest {
        [1, 0, a, b, ..] => (10, u32::from(u16::from_le_bytes([a, b]))),
        [2 | 3, 0, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d])),
        [1..=3, 0, ..] | [] | [_] => {
            return Err(format!("a header that ends early, after {} bytes", file.len()));
        }
        [major, minor, ..] => {
            return Err(format!("version {major}.{minor}, which is no header of a known version"));
        }
    };
    match usize::try_from(length).ok().filter(|&length| length <= MAX_HEADER_BYTES) {
        Some(length) => Ok((start, length)),
        None => Err(format!("a header of {length} bytes, more than the {MAX_HEADER_BYTES} that any needs")),
    }
}

/// A Python literal that is being read.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    fn header(&mut self) -> Result<Header, String> {
        let (mut element, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while self.peek() != Some(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let twice = match key {
                b"descr" => element.replace(self.element()?).is_some(),
                b"fortran_order" => fortran_order.replace(self.bool()?).is_some(),
                b"shape" => shape.replace(self.shape()?).is_some(),
                _ => return Err(format!("a header with the key {}", excerpt(key))),
            };
            if twice {
                return Err(format!("a header with {} twice", excerpt(key)));
            }
            if self.peek() != Some(b'}') {
                self.expect(b',')?;
            }
        }
        self.expect(b'}')?;
        if self.peek().is_some() {
            return Err(self.unexpected("nothing more"));
        }
        let without = |key: &str| format!("a header without '{key}'");
        Ok(Header {
            element: element.ok_or_else(|| without("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| without("fortran_order"))?,
            shape: shape.ok_or_else(|| without("shape"))?,
        })
    }

    fn element(&mut self) -> Result<ElementType, String> {
        match self.peek() {
            Some(b'[' | b'(') => Err("one of records or sub-arrays".to_owned()),
            _ => ElementType::parse(self.string()?),
        }
    }

    fn bool(&mut self) -> Result<bool, String> {
        self.peek();
        for (word, value) in [(&b"False"[..], false), (b"True", true)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, String> {
        let mut shape = Vec::new();
        let mut separated = false;
        self.expect(b'(')?;
        while self.peek() != Some(b')') {
            if shape.len() == MAX_DIMENSIONS {
                return Err(format!("a shape of more than {MAX_DIMENSIONS} dimensions"));
            }
            shape.push(self.dimension()?);
            separated = self.peek() == Some(b',');
            if separated {
                self.at += 1;
            } else if self.peek() != Some(b')') {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        self.expect(b')')?;
        // `(3)` is a number in Python.
        if shape.len() == 1 && !separated {
            return Err("a shape that is a number, no tuple".to_owned());
        }
        Ok(shape)
    }

    fn dimension(&mut self) -> Result<u64, String> {
        if self.peek() == Some(b'-') {
            return Err(format!("the negative dimension {}", excerpt(&self.text[self.at..])));
        }
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(self.unexpected("a dimension"));
        }
        self.at += digits;
        // Python 2 marks long integers.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        parse_unsigned(&rest[..digits]).ok_or_else(|| self.unexpected("a dimension"))
    }

    /// What stands between two equal quotes, without escapes.
    fn string(&mut self) -> Result<&'a [u8], String> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return Err(self.unexpected("a string")) };
        let rest = &self.text[self.at + 1..];
        match rest.iter().position(|&byte| byte == quote) {
            Some(end) if !rest[..end].contains(&b'\\') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            _ => Err(self.unexpected("a string without escapes")),
        }
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let blanks = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.at += blanks;
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("`{}`", char::from(byte))))
    }

    fn unexpected(&self, wanted: &str) -> String {
        format!("{} at byte {} of its header instead of {wanted}", excerpt(&self.text[self.at..]), self.at)
    }
}

/// The header of an array in C order, in version 1.0, padded as NumPy pads it.
///
/// `shape` has at most [`MAX_DIMENSIONS`] sizes, so that the length fits 2 bytes.
pub(super) fn header(element: &str, shape: &[u64]) -> Vec<u8> {
    debug_assert!(shape.len() <= MAX_DIMENSIONS, "{} dimensions", shape.len());
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = sizes.join(", ");
    let text = format!("{{'descr': '{element}', 'fortran_order': False, 'shape': ({shape}{comma}), }}");
    let start = MAGIC.len() + 4;
    let end = (start + text.len() + 1).next_multiple_of(ALIGNMENT);
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(u16::try_from(end - start).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(end - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [MAGIC, &[version, 0], length, text.as_bytes()].concat()
    }

    fn parse(text: &str) -> Result<Header, String> {
        Header::parse(&file(1, text)).map(|(header, _)| header)
    }

    #[test]
    fn headers_are_those_of_numpy() {
        // numpy.save of numpy.zeros(3) and of numpy.zeros((2, 3), '<i4').
        let mut want =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }".to_vec();
        want.resize(127, b' ');
        want.push(b'\n');
        assert_eq!(header("<f8", &[3]), want);
        let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(&header("<i4", &[2, 3])[10..10 + text.len()], text.as_bytes());
        assert!(header("|S3", &[]).windows(13).any(|part| part == b"'shape': (), "));
    }

    #[test]
    fn what_python_allows_is_read() {
        let (want, start) = Header::parse(&header("<f4", &[5, 7])).unwrap();
        assert_eq!((start, want.shape.as_slice(), want.fortran_order), (128, &[5, 7][..], false));
        for text in [
            r#"{"shape":(5,7),"descr":"<f4","fortran_order":False}"#,
            "{'descr': '<f4', 'fortran_order': False, 'shape': (5L, 7L), }\n",
            " {\n'shape' : ( 5 , 7 , ) , 'fortran_order' : False , 'descr' : '<f4' } \n \n",
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&want), "{text}");
            for version in [2, 3] {
                let (header, start) = Header::parse(&file(version, text)).unwrap();
                assert_eq!((&header, start), (&want, 12 + text.len()));
            }
        }
        assert!(parse("{'descr': '>u2', 'fortran_order': True, 'shape': ()}").unwrap().fortran_order);
    }

    #[test]
    fn every_element_type() {
        use Kind::{Bool, Bytes, Complex, Float, Int, Uint, Unicode};
        for (name, kind, big_endian, bytes) in [
            ("|b1", Bool, false, 1),
            ("|i1", Int, false, 1),
            ("<i8", Int, false, 8),
            (">u4", Uint, true, 4),
            ("<f2", Float, false, 2),
            ("<f16", Float, false, 16),
            (">c16", Complex, true, 16),
            ("|S3", Bytes, false, 3),
            ("<U3", Unicode, false, 12),
        ] {
            let element = ElementType::parse(name.as_bytes()).unwrap();
            assert_eq!(
                (element.kind, element.big_endian, element.bytes()),
                (kind, big_endian, bytes),
                "{name}"
            );
            assert_eq!(element.name(), name);
        }
        for name in ["", "f8", "=f8", "<f", "<f8 ", "<V8", "<M8[ns]", "|i4", "<f-8", "<ff"] {
            let error = ElementType::parse(name.as_bytes()).unwrap_err();
            assert_eq!(error, format!("the element type `{name}`"));
        }
        assert!(ElementType::parse(b"|O").unwrap_err().contains("not unpickled"));
    }

    #[test]
    fn anything_else_is_refused_with_its_place() {
        let fields = "'descr': '<f8', 'fortran_order': False";
        for (text, part) in [
            (String::new(), "`` at byte 0 of its header instead of `{`"),
            (format!("{{{fields}}}"), "without 'shape'"),
            ("{'shape': (1,)}".to_owned(), "without 'descr'"),
            ("{'descr': '<f8', 'shape': (1,)}".to_owned(), "without 'fortran_order'"),
            (format!("{{{fields}, 'shape': (1,), 'shape': (2,)}}"), "`shape` twice"),
            (format!("{{{fields}, 'shape': (1,), 'more': 1}}"), "the key `more`"),
            (
                format!("{{{fields}, 'shape': (1,)}} x"),
                "`x` at byte 56 of its header instead of nothing more",
            ),
            (format!("{{{fields}, 'shape': (1)}}"), "no tuple"),
            (format!("{{{fields}, 'shape': (1 2)}}"), "instead of `,` or `)`"),
            (format!("{{{fields}, 'shape': (1,,)}}"), "instead of a dimension"),
            (format!("{{{fields}, 'shape': (-3,)}}"), "the negative dimension `-3,)}`"),
            (format!("{{{fields}, 'shape': 3}}"), "instead of `(`"),
            (format!("{{{fields}, 'shape': ({})}}", "1,".repeat(65)), "more than 64 dimensions"),
            (format!("{{{fields} 'shape': (1,)}}"), "instead of `,`"),
            ("{'descr': 'a\\'b', 'fortran_order': False, 'shape': (1,)}".to_owned(), "without escapes"),
            ("{'descr': '<f8".to_owned(), "without escapes"),
            ("{'fortran_order': 0}".to_owned(), "instead of True or False"),
            ("{'descr': [('a', '<f8')]}".to_owned(), "records"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error:?} does not say {part:?}");
        }
        let whole = header("<f8", &[3]);
        for len in 0..whole.len() {
            assert!(Header::parse(&whole[..len]).is_err(), "{len} bytes were enough");
        }
        for version in [[0, 0], [1, 1], [4, 0], [255, 255]] {
            let mut other = whole.clone();
            other[6..8].copy_from_slice(&version);
            assert!(Header::parse(&other).unwrap_err().contains("no header of a known version"));
        }
    }

    #[test]
    fn sizes_do_not_overflow() {
        let bytes = |shape: &str| {
            let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}");
            parse(&text).unwrap().data_bytes()
        };
        assert_eq!((bytes("()"), bytes("(3,)"), bytes("(3, 0)")), (Some(8), Some(24), Some(0)));
        assert_eq!(bytes("(1000000000000,)"), Some(8_000_000_000_000));
        for shape in
            ["(4611686018427387904, 8)", "(99999999999999999999999999999,)", "(4611686018427387904, 0)"]
        {
            assert_eq!(bytes(shape), None, "{shape}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            shape in proptest::collection::vec(0u64..1 << 40, 0..6),
            element in proptest::sample::select(vec!["<f2", "<f4", "<f8", "<i4", "<i8", "|u1", "|b1", "|S12"]),
        ) {
            let bytes = header(element, &shape);
            prop_assert_eq!(bytes.len() % ALIGNMENT, 0);
            let (header, start) = Header::parse(&bytes).unwrap();
            prop_assert_eq!(start, bytes.len());
            prop_assert_eq!(header.element.name(), element);
            prop_assert_eq!((header.shape, header.fortran_order), (shape, false));
        }

        #[test]
        fn arbitrary_headers_do_no_harm(text in "[-{}()\\[\\],:' \"0-9LTruFalsedcpho_<>|f\\\\\\n]{0,80}", version in 0u8..5) {
            let read = Header::parse(&file(version.max(1), &text));
            prop_assert!(read.is_ok() || !read.unwrap_err().is_empty());
        }

        #[test]
        fn a_changed_byte_is_read_or_refused(at in 0usize..128, byte in any::<u8>()) {
            let mut bytes = header("<f8", &[3, 4]);
            bytes[at] = byte;
            match Header::parse(&bytes) {
                Ok((header, start)) => prop_assert!(start <= bytes.len() && header.shape.len() <= MAX_DIMENSIONS),
                Err(found) => prop_assert!(found.len() < 300, "{}", found),
            }
        }
    }
}

//! One array: NumPy's header and the bytes behind it.

use half::f16;
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, TypeStr};

use super::super::ReadError;
use crate::Value;

/// Longest header that is looked at. NumPy's own are shorter unless there are record types.
const MAX_HEADER_BYTES: usize = 1 << 12;
/// Most opening brackets in a header: one for the dictionary, one for the shape, and room.
const MAX_BRACKETS: usize = 8;
/// Bytes before the text of a header: magic, version and, in the longer form, four bytes of length.
const PREAMBLE_BYTES: usize = 12;

/// An array of numbers, bools or characters.
pub(super) struct Array {
    /// Name of the file in the archive, for messages.
    member: String,
    dtype: TypeStr,
    shape: Vec<u64>,
    order: Order,
    bytes: Vec<u8>,
    /// Where the elements start in `bytes`.
    start: usize,
}

/// Elements of one type as they lie in the file, each mapped by the same expression.
macro_rules! map_elements {
    ($array:expr, $type:ty, |$x:ident| $map:expr) => {{
        let data = $array.data().chunks_exact(size_of::<$type>());
        // A chunk has the length of the type, so the conversion cannot fail; zeros if it did.
        if $array.dtype.endianness() == Endianness::Big {
            data.map(|bytes| {
                let $x = <$type>::from_be_bytes(bytes.try_into().unwrap_or_default());
                $map
            })
            .collect::<Vec<_>>()
        } else {
            data.map(|bytes| {
                let $x = <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
                $map
            })
            .collect::<Vec<_>>()
        }
    }};
}

impl Array {
    /// The array in `bytes`, the content of the file `member`.
    pub(super) fn parse(member: String, bytes: Vec<u8>) -> Result<Self, ReadError> {
        let damaged = |found: String| ReadError::archive(&*member, "a NumPy array", found);
        check_header(&bytes).map_err(|found| damaged(found.to_owned()))?;
        let mut rest = &bytes[..];
        let header = NpyHeader::from_reader(&mut rest).map_err(|error| damaged(error.to_string()))?;
        let start = bytes.len() - rest.len();
        let DType::Plain(dtype) = header.dtype() else {
            return Err(damaged("one of records or sub-arrays".to_owned()));
        };
        let Some(size) = dtype.num_bytes() else {
            return Err(damaged("one of Python objects, which are not unpickled".to_owned()));
        };
        // No overflow: the header was checked.
        let needed = header.len().saturating_mul(size as u64);
        if needed != rest.len() as u64 {
            let expected = format!("{needed} bytes for shape {:?} of {dtype}", header.shape());
            return Err(ReadError::archive(&*member, expected, format!("{} bytes", rest.len())));
        }
        Ok(Self { shape: header.shape().to_vec(), order: header.order(), dtype, start, bytes, member })
    }

    fn data(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// NumPy's name of the element type, for example `<f8`.
    pub(super) fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// Number of elements, which are really there.
    pub(super) fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    pub(super) fn error(&self, expected: impl Into<String>, found: impl Into<String>) -> ReadError {
        ReadError::archive(&*self.member, expected, found)
    }

    /// An error unless the array has one dimension and `len` elements; `why` says why so many.
    pub(super) fn check_len(&self, len: u64, why: &str) -> Result<(), ReadError> {
        if self.shape == [len] {
            return Ok(());
        }
        Err(self.error(format!("{len} elements, {why}"), format!("shape {:?}", self.shape)))
    }

    /// An error unless the array has this shape, in C order; `why` says where it comes from.
    pub(super) fn check_shape(&self, shape: &[usize], why: &str) -> Result<(), ReadError> {
        if !self.shape.iter().copied().eq(shape.iter().map(|&size| size as u64)) {
            return Err(self.error(format!("shape {shape:?}, {why}"), format!("shape {:?}", self.shape)));
        }
        if self.order != Order::C && shape.len() > 1 {
            return Err(self.error("elements in C order", "Fortran order"));
        }
        Ok(())
    }

    /// The array as two rows of equal length, if it has that shape, in C order.
    pub(super) fn halves(mut self) -> Result<(Self, Self), ReadError> {
        let &[2, len] = &self.shape[..] else {
            return Err(self.error("two rows", format!("shape {:?}", self.shape)));
        };
        if self.order != Order::C {
            return Err(self.error("elements in C order", "Fortran order"));
        }
        let middle = self.start + self.data().len() / 2;
        let bytes = self.bytes.split_off(middle);
        self.shape = vec![len];
        let (member, shape, dtype) = (self.member.clone(), self.shape.clone(), self.dtype.clone());
        let second = Self { member, dtype, shape, order: Order::C, bytes, start: 0 };
        Ok((self, second))
    }

    /// The text of an array of one string.
    pub(super) fn text(&self) -> Result<String, ReadError> {
        if self.len() != 1 {
            return Err(self.error("one string", format!("shape {:?}", self.shape)));
        }
        let text: String = match self.dtype.type_char() {
            TypeChar::ByteStr => self.data().iter().map(|&byte| char::from(byte)).collect(),
            TypeChar::UnicodeStr => {
                let codes = map_elements!(self, u32, |code| code);
                codes
                    .into_iter()
                    .map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect()
            }
            _ => return Err(self.error("a string", format!("type {}", self.dtype))),
        };
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// The elements as integers from 0 to `most`; `what` says what they are. The caller knows how many there may be.
    pub(super) fn unsigned(&self, what: &str, most: u64) -> Result<Vec<u64>, ReadError> {
        // 2^64 − 1 stands for a number out of range; `most` is always less.
        let narrow = |x: Option<u64>| x.filter(|&x| x <= most).unwrap_or(u64::MAX);
        let numbers = match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Int, 1) => map_elements!(self, i8, |x| narrow(u64::try_from(x).ok())),
            (TypeChar::Int, 2) => map_elements!(self, i16, |x| narrow(u64::try_from(x).ok())),
            (TypeChar::Int, 4) => map_elements!(self, i32, |x| narrow(u64::try_from(x).ok())),
            (TypeChar::Int, 8) => map_elements!(self, i64, |x| narrow(u64::try_from(x).ok())),
            (TypeChar::Uint, 1) => map_elements!(self, u8, |x| narrow(Some(x.into()))),
            (TypeChar::Uint, 2) => map_elements!(self, u16, |x| narrow(Some(x.into()))),
            (TypeChar::Uint, 4) => map_elements!(self, u32, |x| narrow(Some(x.into()))),
            (TypeChar::Uint, 8) => map_elements!(self, u64, |x| narrow(Some(x))),
            _ => return Err(self.error(format!("integers ({what})"), format!("type {}", self.dtype))),
        };
        match numbers.iter().position(|&x| x == u64::MAX) {
            Some(position) => {
                let found = format!("{} at position {position}", self.integer_at(position));
                Err(self.error(format!("{what} from 0 to {most}"), found))
            }
            None => Ok(numbers),
        }
    }

    /// The `N` elements as integers below 2³²; `what` says what they are, `expected` how many.
    ///
    /// How many there are is looked at before any is taken: an array of single bytes, as long as the limits allow,
    /// would become eight times as long.
    pub(super) fn numbers<const N: usize>(&self, what: &str, expected: &str) -> Result<[u64; N], ReadError> {
        let wrong = || self.error(expected, format!("shape {:?}", self.shape));
        if self.len() != N as u64 {
            return Err(wrong());
        }
        self.unsigned(what, u64::from(u32::MAX))?.try_into().map_err(|_| wrong())
    }

    /// The elements as bytes; `what` says what they are.
    pub(super) fn octets(&self, what: &str) -> Result<Vec<u8>, ReadError> {
        match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Uint, 1) => Ok(self.data().to_vec()),
            _ => Err(self.error(format!("bytes of type |u1 ({what})"), format!("type {}", self.dtype))),
        }
    }

    /// The elements as indices below `bound`, which is at most 2^32 − 1.
    pub(super) fn indices(&self, what: &str, bound: u32) -> Result<Vec<u32>, ReadError> {
        if bound == 0 {
            return match self.len() {
                0 => Ok(Vec::new()),
                len => Err(self.error(format!("no {what}, since the matrix has none"), format!("{len}"))),
            };
        }
        let narrow = |x: Option<u32>| x.filter(|&x| x < bound).unwrap_or(u32::MAX);
        let indices = match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Int, 4) => map_elements!(self, i32, |x| narrow(u32::try_from(x).ok())),
            (TypeChar::Int, 8) => map_elements!(self, i64, |x| narrow(u32::try_from(x).ok())),
            _ => {
                let wide = self.unsigned(what, u64::from(bound - 1))?;
                wide.into_iter().map(|x| narrow(u32::try_from(x).ok())).collect()
            }
        };
        match indices.iter().position(|&x| x == u32::MAX) {
            Some(position) => {
                let found = format!("{} at position {position}", self.integer_at(position));
                Err(self.error(format!("{what} from 0 to {}", bound - 1), found))
            }
            None => Ok(indices),
        }
    }

    /// The integer at `position`, for messages.
    fn integer_at(&self, position: usize) -> i128 {
        let size = self.dtype.num_bytes().unwrap_or(1).max(1);
        let mut bytes = self.data().chunks_exact(size).nth(position).unwrap_or_default().to_vec();
        if self.dtype.endianness() != Endianness::Big {
            bytes.reverse();
        }
        let negative =
            self.dtype.type_char() == TypeChar::Int && bytes.first().is_some_and(|&byte| byte > 127);
        bytes.iter().fold(if negative { -1 } else { 0 }, |number, &byte| number << 8 | i128::from(byte))
    }

    /// The elements as values. Integers beyond 2^53 are rounded to the nearest `f64` on the way.
    pub(super) fn values<V: Value>(&self) -> Result<Vec<V>, ReadError> {
        Ok(match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Bool, 1) => map_elements!(self, u8, |x| if x == 0 { V::ZERO } else { V::ONE }),
            (TypeChar::Float, 2) => map_elements!(self, f16, |x| V::from_f32(x.to_f32())),
            (TypeChar::Float, 4) => map_elements!(self, f32, |x| V::from_f32(x)),
            (TypeChar::Float, 8) => map_elements!(self, f64, |x| V::from_f64(x)),
            (TypeChar::Int, 1) => map_elements!(self, i8, |x| V::from_f64(x.into())),
            (TypeChar::Int, 2) => map_elements!(self, i16, |x| V::from_f64(x.into())),
            (TypeChar::Int, 4) => map_elements!(self, i32, |x| V::from_f64(x.into())),
            (TypeChar::Int, 8) => map_elements!(self, i64, |x| V::from_f64(x as f64)),
            (TypeChar::Uint, 1) => map_elements!(self, u8, |x| V::from_f64(x.into())),
            (TypeChar::Uint, 2) => map_elements!(self, u16, |x| V::from_f64(x.into())),
            (TypeChar::Uint, 4) => map_elements!(self, u32, |x| V::from_f64(x.into())),
            (TypeChar::Uint, 8) => map_elements!(self, u64, |x| V::from_f64(x as f64)),
            (TypeChar::Complex, _) => {
                return Err(ReadError::Unsupported {
                    place: self.member.clone(),
                    what: format!("the complex type {}", self.dtype),
                    remedy: "in Python, save a.real and a.imag as two matrices",
                });
            }
            _ => return Err(self.error("values of 1 to 8 bytes", format!("type {}", self.dtype))),
        })
    }
}

/// Refuses headers that cost the parser more than any real one: long, deeply nested, or with a shape whose
/// size overflows.
fn check_header(bytes: &[u8]) -> Result<(), &'static str> {
    let length = |range: std::ops::Range<usize>| {
        let bytes = bytes.get(range)?;
        Some(bytes.iter().rev().fold(0usize, |length, &byte| length << 8 | usize::from(byte)))
    };
    let text = match bytes.get(6) {
        Some(1) => length(8..10).map(|length| (10, length)),
        Some(2 | 3) => length(8..PREAMBLE_BYTES).map(|length| (PREAMBLE_BYTES, length)),
        _ => return Err("no header of a known version"),
    };
    let text = text.filter(|&(_, length)| length <= MAX_HEADER_BYTES);
    let (start, length) = text.ok_or("a header of more bytes than any needs")?;
    let text = bytes.get(start..start + length).ok_or("a header that ends early")?;
    if text.iter().filter(|byte| b"([{".contains(byte)).count() > MAX_BRACKETS {
        return Err("a header with too many brackets");
    }
    // All numbers in the header, the element size among them, so the product bounds the size in bytes.
    let mut size = 1u64;
    for number in text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        let number = super::super::number::parse_unsigned(number).unwrap_or(u64::MAX);
        size = size.saturating_mul(number.max(1));
    }
    if size > 1 << 60 { Err("a shape of more elements than any file holds") } else { Ok(()) }
}

//! One array: NumPy's header and the bytes behind it.

use half::f16;

use super::super::ReadError;
use super::super::npy::{ElementType, Header, Kind};
use crate::memory::{try_collect, try_copy};
use crate::{Value, ValueType};

/// An array of numbers, bools or characters.
pub(super) struct Array {
    /// Name of the file in the archive, for messages.
    member: String,
    dtype: ElementType,
    shape: Vec<u64>,
    fortran_order: bool,
    bytes: Vec<u8>,
    /// Where the elements start in `bytes`.
    start: usize,
}

/// Characters of the longest text that messages quote; those with a meaning are shorter.
const LONGEST_TEXT: usize = 400;

/// Elements of one type as they lie in the file, each mapped by the same expression.
macro_rules! map_elements {
    ($array:expr, $type:ty, |$x:ident| $map:expr) => {{
        let data = $array.data().chunks_exact(size_of::<$type>());
        // A chunk has the length of the type, so the conversion cannot fail; zeros if it did.
        if $array.dtype.big_endian {
            let numbers = data.map(|bytes| {
                let $x = <$type>::from_be_bytes(bytes.try_into().unwrap_or_default());
                $map
            });
            try_collect(numbers, "an array")?
        } else {
            let numbers = data.map(|bytes| {
                let $x = <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
                $map
            });
            try_collect(numbers, "an array")?
        }
    }};
}

impl Array {
    /// The array in `bytes`, the content of the file `member`.
    pub(super) fn parse(member: String, bytes: Vec<u8>) -> Result<Self, ReadError> {
        let damaged = |found: String| ReadError::archive(&*member, "a NumPy array", found);
        let (header, start) = Header::parse(&bytes).map_err(damaged)?;
        let data_bytes = header.data_bytes();
        let Header { element: dtype, fortran_order, shape } = header;
        let found = bytes.len() - start;
        match data_bytes {
            None => Err(damaged(format!("a shape of more elements than any file holds: {shape:?}"))),
            Some(needed) if needed != found as u64 => {
                let expected = format!("{needed} bytes for shape {shape:?} of {}", dtype.name());
                Err(ReadError::archive(&*member, expected, format!("{found} bytes")))
            }
            Some(_) => Ok(Self { dtype, shape, fortran_order, start, bytes, member }),
        }
    }

    fn data(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// NumPy's name of the element type, for example `<f8`.
    pub(super) fn dtype(&self) -> String {
        self.dtype.name().to_owned()
    }

    /// The type of [`Value`] that the elements have, if they have one of them.
    pub(super) fn value_type(&self) -> Option<ValueType> {
        match (self.dtype.kind, self.dtype.size) {
            (Kind::Float, 2) => Some(ValueType::F16),
            (Kind::Float, 4) => Some(ValueType::F32),
            (Kind::Float, 8) => Some(ValueType::F64),
            _ => None,
        }
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
        if self.fortran_order && shape.len() > 1 {
            return Err(self.error("elements in C order", "Fortran order"));
        }
        Ok(())
    }

    /// The array as two rows of equal length, if it has that shape, in C order.
    pub(super) fn halves(mut self) -> Result<(Self, Self), ReadError> {
        let &[2, len] = &self.shape[..] else {
            return Err(self.error("two rows", format!("shape {:?}", self.shape)));
        };
        if self.fortran_order {
            return Err(self.error("elements in C order", "Fortran order"));
        }
        let middle = self.start + self.data().len() / 2;
        let bytes = try_copy(&self.bytes[middle..], "an array")?;
        self.bytes.truncate(middle);
        self.shape = vec![len];
        let (member, shape, dtype) = (self.member.clone(), self.shape.clone(), self.dtype.clone());
        let second = Self { member, dtype, shape, fortran_order: false, bytes, start: 0 };
        Ok((self, second))
    }

    /// The text of an array of one string, of which no more than [`LONGEST_TEXT`] characters are looked at.
    pub(super) fn text(&self) -> Result<String, ReadError> {
        if self.len() != 1 {
            return Err(self.error("one string", format!("shape {:?}", self.shape)));
        }
        // NumPy fills strings with zeros to the length of the type.
        let codes: Vec<u32> = match self.dtype.kind {
            Kind::Bytes => try_collect(self.data().iter().map(|&byte| byte.into()), "a string")?,
            Kind::Unicode => map_elements!(self, u32, |code| code),
            _ => return Err(self.error("a string", format!("type {}", self.dtype.name()))),
        };
        let len = codes.iter().rposition(|&code| code != 0).map_or(0, |last| last + 1);
        let text = codes[..len.min(LONGEST_TEXT)].iter();
        Ok(text.map(|&code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    }

    /// The elements as integers from 0 to `most`; `what` says what they are. The caller knows how many there may be.
    pub(super) fn unsigned(&self, what: &str, most: u64) -> Result<Vec<u64>, ReadError> {
        // 2^64 − 1 stands for a number out of range; `most` is always less.
        let narrow = |x: Option<u64>| x.filter(|&x| x <= most).unwrap_or(u64::MAX);
        let numbers = match (self.dtype.kind, self.dtype.size) {
            (Kind::Int, 1) => map_elements!(self, i8, |x| narrow(u64::try_from(x).ok())),
            (Kind::Int, 2) => map_elements!(self, i16, |x| narrow(u64::try_from(x).ok())),
            (Kind::Int, 4) => map_elements!(self, i32, |x| narrow(u64::try_from(x).ok())),
            (Kind::Int, 8) => map_elements!(self, i64, |x| narrow(u64::try_from(x).ok())),
            (Kind::Uint, 1) => map_elements!(self, u8, |x| narrow(Some(x.into()))),
            (Kind::Uint, 2) => map_elements!(self, u16, |x| narrow(Some(x.into()))),
            (Kind::Uint, 4) => map_elements!(self, u32, |x| narrow(Some(x.into()))),
            (Kind::Uint, 8) => map_elements!(self, u64, |x| narrow(Some(x))),
            _ => return Err(self.error(format!("integers ({what})"), format!("type {}", self.dtype.name()))),
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
        // One number may stand alone, or in as many brackets as there are.
        if self.len() != N as u64 || (N > 1 && self.shape.len() != 1) {
            return Err(wrong());
        }
        self.unsigned(what, u64::from(u32::MAX))?.try_into().map_err(|_| wrong())
    }

    /// The elements as bytes; `what` says what they are.
    pub(super) fn octets(&self, what: &str) -> Result<Vec<u8>, ReadError> {
        match (self.dtype.kind, self.dtype.size) {
            (Kind::Uint, 1) => Ok(try_copy(self.data(), "an array")?),
            _ => {
                Err(self.error(format!("bytes of type |u1 ({what})"), format!("type {}", self.dtype.name())))
            }
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
        let indices = match (self.dtype.kind, self.dtype.size) {
            (Kind::Int, 4) => map_elements!(self, i32, |x| narrow(u32::try_from(x).ok())),
            (Kind::Int, 8) => map_elements!(self, i64, |x| narrow(u32::try_from(x).ok())),
            _ => {
                let wide = self.unsigned(what, u64::from(bound - 1))?;
                try_collect(wide.into_iter().map(|x| narrow(u32::try_from(x).ok())), "an array")?
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
        let size = usize::try_from(self.dtype.bytes()).unwrap_or(1).max(1);
        let mut bytes = self.data().chunks_exact(size).nth(position).unwrap_or_default().to_vec();
        if !self.dtype.big_endian {
            bytes.reverse();
        }
        let negative = self.dtype.kind == Kind::Int && bytes.first().is_some_and(|&byte| byte > 127);
        bytes.iter().fold(if negative { -1 } else { 0 }, |number, &byte| number << 8 | i128::from(byte))
    }

    /// The elements as values. Integers beyond 2^53 are rounded to the nearest `f64` on the way.
    pub(super) fn values<V: Value>(&self) -> Result<Vec<V>, ReadError> {
        Ok(match (self.dtype.kind, self.dtype.size) {
            (Kind::Bool, 1) => map_elements!(self, u8, |x| if x == 0 { V::ZERO } else { V::ONE }),
            (Kind::Float, 2) => map_elements!(self, f16, |x| V::from_f32(x.to_f32())),
            (Kind::Float, 4) => map_elements!(self, f32, |x| V::from_f32(x)),
            (Kind::Float, 8) => map_elements!(self, f64, |x| V::from_f64(x)),
            (Kind::Int, 1) => map_elements!(self, i8, |x| V::from_f64(x.into())),
            (Kind::Int, 2) => map_elements!(self, i16, |x| V::from_f64(x.into())),
            (Kind::Int, 4) => map_elements!(self, i32, |x| V::from_f64(x.into())),
            (Kind::Int, 8) => map_elements!(self, i64, |x| V::from_f64(x as f64)),
            (Kind::Uint, 1) => map_elements!(self, u8, |x| V::from_f64(x.into())),
            (Kind::Uint, 2) => map_elements!(self, u16, |x| V::from_f64(x.into())),
            (Kind::Uint, 4) => map_elements!(self, u32, |x| V::from_f64(x.into())),
            (Kind::Uint, 8) => map_elements!(self, u64, |x| V::from_f64(x as f64)),
            (Kind::Complex, _) => {
                return Err(ReadError::Unsupported {
                    place: self.member.clone(),
                    what: format!("the complex type {}", self.dtype.name()),
                    remedy: "in Python, save a.real and a.imag as two matrices",
                });
            }
            _ => return Err(self.error("values of 1 to 8 bytes", format!("type {}", self.dtype.name()))),
        })
    }
}

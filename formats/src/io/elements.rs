//! Elements of arrays as they lie in a file, piece by piece: no more of the file is in memory than a piece.

use std::io::{self, Read};

use half::{bf16, f16};

use super::ReadError;
use super::npy::{ElementType, Kind};
use crate::memory::try_zeroed;

/// Bytes of a piece, about.
const PIECE_BYTES: usize = 1 << 20;

/// How the bytes of an element become its number.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    /// Bytes of an element.
    pub(super) bytes: usize,
    /// What a person calls the type.
    pub(super) name: &'static str,
    number: fn(&[u8]) -> f64,
}

/// The decoder of a type that has `from_le_bytes` and `from_be_bytes`.
macro_rules! decoder {
    ($type:ty, $big_endian:expr, |$x:ident| $number:expr) => {{
        // A chunk has the length of the type, so the conversion cannot fail; zeros if it did.
        let number: fn(&[u8]) -> f64 = match $big_endian {
            true => |bytes| {
                let $x = <$type>::from_be_bytes(bytes.try_into().unwrap_or_default());
                $number
            },
            false => |bytes| {
                let $x = <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
                $number
            },
        };
        Some(Decoder { bytes: size_of::<$type>(), name: stringify!($type), number })
    }};
}

impl Decoder {
    pub(super) const F16: Option<Self> = decoder!(f16, false, |x| x.to_f64());
    pub(super) const BF16: Option<Self> = decoder!(bf16, false, |x| x.to_f64());
    pub(super) const F32: Option<Self> = decoder!(f32, false, |x| f64::from(x));
    pub(super) const F64: Option<Self> = decoder!(f64, false, |x| x);

    /// Of NumPy's types; integers beyond 2⁵³ are rounded.
    pub(super) fn of_numpy(element: &ElementType) -> Option<Self> {
        let big = element.big_endian;
        match (element.kind, element.size) {
            (Kind::Bool, 1) => decoder!(u8, big, |x| f64::from(u8::from(x != 0))),
            (Kind::Float, 2) => decoder!(f16, big, |x| x.to_f64()),
            (Kind::Float, 4) => decoder!(f32, big, |x| f64::from(x)),
            (Kind::Float, 8) => decoder!(f64, big, |x| x),
            (Kind::Int, 1) => decoder!(i8, big, |x| f64::from(x)),
            (Kind::Int, 2) => decoder!(i16, big, |x| f64::from(x)),
            (Kind::Int, 4) => decoder!(i32, big, |x| f64::from(x)),
            (Kind::Int, 8) => decoder!(i64, big, |x| x as f64),
            (Kind::Uint, 1) => decoder!(u8, big, |x| f64::from(x)),
            (Kind::Uint, 2) => decoder!(u16, big, |x| f64::from(x)),
            (Kind::Uint, 4) => decoder!(u32, big, |x| f64::from(x)),
            (Kind::Uint, 8) => decoder!(u64, big, |x| x as f64),
            _ => None,
        }
    }

    /// Hands the numbers of `count` elements to `take`, piece by piece. Returns how many bytes there were, which are
    /// fewer than all where the content ends early.
    pub(super) fn read(
        self,
        reader: &mut dyn Read,
        count: u64,
        mut take: impl FnMut(&mut dyn Iterator<Item = f64>, usize) -> Result<(), ReadError>,
    ) -> Result<u64, ReadError> {
        let most = PIECE_BYTES / self.bytes;
        let (mut rest, mut done) = (count, 0);
        let mut piece =
            try_zeroed::<u8>(most.min(usize::try_from(count).unwrap_or(most)) * self.bytes, "a piece")?;
        while rest > 0 {
            let elements = usize::try_from(rest).map_or(most, |rest| rest.min(most));
            let wanted = &mut piece[..elements * self.bytes];
            let found = read_whole(reader, wanted)?;
            done += found as u64;
            let whole = &wanted[..found - found % self.bytes];
            take(&mut whole.chunks_exact(self.bytes).map(self.number), whole.len() / self.bytes)?;
            if found < wanted.len() {
                break;
            }
            rest -= elements as u64;
        }
        Ok(done)
    }
}

/// Fills `buffer` as far as the content goes.
fn read_whole(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Leaves out the next `bytes`; how many there were.
pub(super) fn skip(reader: &mut dyn Read, bytes: u64) -> io::Result<u64> {
    io::copy(&mut reader.take(bytes), &mut io::sink())
}

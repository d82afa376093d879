//! Operands and sums of the matrix products that a warpgroup, four warps, performs asynchronously on compute
//! capability 9.0.

use bytemuck::{Pod, Zeroable};

/// Threads of a warpgroup: four successive warps, the first of them a multiple of four.
pub const WARPGROUP: u32 = 128;

/// A type of 16 bits whose products are one instruction for each of the two that there are.
pub trait HalfElement {
    /// Whether it is bf16, the upper half of an f32, and not f16, IEEE binary16.
    const BF16: bool;
}

/// How rows of 16-byte pieces are mixed in shared memory, so that eight rows are read from different banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swizzle {
    /// Not at all: a *core matrix* of 8 rows of 16 bytes is 128 successive bytes.
    None,
    /// In 8 rows of 128 bytes: bits 4 to 6 of a byte's address are exclusive-or'ed with bits 7 to 9. A pattern begins
    /// at a multiple of 1024 bytes.
    Bytes128,
}

impl Swizzle {
    /// As a matrix descriptor has it.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Bytes128 => 1,
        }
    }

    /// Where a byte lies that would be at `address` if nothing were mixed.
    #[must_use]
    pub const fn apply(self, address: u32) -> u32 {
        match self {
            Self::None => address,
            Self::Bytes128 => address ^ (address >> 7 & 7) << 4,
        }
    }
}

/// How an operand of a warpgroup's product lies in shared memory: `rows` of `A`, or columns of `B`, whose elements
/// along the inner dimension follow one another. Byte `b` of row `r` is at [`offset`](Self::offset) from where the
/// operand begins.
///
/// Of a *transposed* `B` it is the columns that follow one another, 64 of them in 128 bytes, one inner element after
/// the other: byte `b` of the columns of an inner element is at [`transposed_offset`](Self::transposed_offset). It is
/// mixed in [128 bytes](Swizzle::Bytes128).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperandLayout {
    /// Bytes from one core matrix to the next along the inner dimension, a multiple of 16. With
    /// [`Swizzle::Bytes128`] pieces of 16 bytes follow one another instead. Transposed: bytes from 64 columns to the
    /// next 64.
    pub inner_bytes: u32,
    /// Bytes from eight rows to the next eight, a multiple of 16. Transposed: from eight inner elements to the next.
    pub rows_bytes: u32,
    /// How pieces are mixed.
    pub swizzle: Swizzle,
}

impl OperandLayout {
    /// The upper bits of a matrix descriptor; the address is added to it.
    #[must_use]
    pub const fn descriptor(self) -> u64 {
        let (inner, rows) = ((self.inner_bytes / 16) & 0x3fff, (self.rows_bytes / 16) & 0x3fff);
        (inner as u64) << 16 | (rows as u64) << 32 | (self.swizzle.code() as u64) << 62
    }

    /// Where byte `byte` of row `row` would be, in bytes from the operand's first, before pieces are mixed.
    #[must_use]
    pub const fn offset(self, row: u32, byte: u32) -> u32 {
        let within = match self.swizzle {
            Swizzle::None => byte / 16 * self.inner_bytes + row % 8 * 16 + byte % 16,
            Swizzle::Bytes128 => row % 8 * 128 + byte,
        };
        row / 8 * self.rows_bytes + within
    }

    /// Where byte `byte` of the columns of inner element `inner` would be in a transposed operand, in bytes from the
    /// operand's first, before pieces are mixed.
    #[must_use]
    pub const fn transposed_offset(self, inner: u32, byte: u32) -> u32 {
        inner / 8 * self.rows_bytes + byte / 128 * self.inner_bytes + inner % 8 * 128 + byte % 128
    }
}

/// An operand of a warpgroup's product: the byte of shared memory at which it begins, a multiple of 16, and how it
/// lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedOperand {
    /// Its first byte, as an offset into the block's dynamic shared memory.
    pub at: u32,
    /// How it lies from there on.
    pub layout: OperandLayout,
}

/// The sums of a warpgroup's products, 64 rows of `2·R` columns, `R` registers a thread, whose places
/// [`fragment::warpgroup_sum`](crate::fragment::warpgroup_sum) tells.
///
/// Products write them while the thread goes on, so nobody may look at them until
/// [`warpgroup_finish`](crate::Simt::warpgroup_finish) gives them out: a value of this type cannot be read.
///
/// ```compile_fail
/// let sums = windrow_simt::WarpgroupSums::<32>::zeros();
/// let first = sums.0[0];
/// ```
#[derive(Debug)]
pub struct WarpgroupSums<const R: usize>(pub(crate) [f32; R]);

impl<const R: usize> WarpgroupSums<R> {
    /// Nothing added up yet.
    #[inline(always)]
    #[must_use]
    pub const fn zeros() -> Self {
        const { assert!(matches!(R, 32 | 64 | 88 | 96 | 128), "there is an instruction for twice as many columns") }
        // A loop that fills an array would keep it in memory on the GPU; this is known to be zeros at once.
        // SAFETY: zero bytes are the number 0.
        unsafe { core::mem::zeroed() }
    }

    /// Columns of the sums.
    #[expect(clippy::cast_possible_truncation, reason = "256 at most")]
    pub const COLUMNS: u32 = 2 * R as u32;
}

/// Whether each thread can have so many registers.
#[cfg_attr(
    not(any(target_arch = "nvptx64", feature = "emulator")),
    allow(dead_code, reason = "there is nobody to ask for them")
)]
pub(crate) const fn valid_registers(count: u32) -> bool {
    count.is_multiple_of(8) && 24 <= count && count <= 256
}

/// A matrix in global memory of which [boxes](crate::Simt::copy_bulk_box) are copied, as the copy engine is told of it:
/// 128 bytes that the driver writes, or [`emulated`](Self::emulated). Where a kernel uses one, it is the first field of
/// its params, which begin at a multiple of 64 bytes.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct TensorMap(pub [u64; 16]);

/// What a [`TensorMap`] says: a row-major matrix of 16-bit elements, and the boxes of it that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxedMatrix {
    /// Address of the first element, a multiple of 16.
    pub address: u64,
    /// Columns of the matrix.
    pub columns: u32,
    /// Rows of the matrix.
    pub rows: u32,
    /// Bytes from one row to the next, a multiple of 16.
    pub row_bytes: u64,
    /// Rows of a box, at most 256. It has [`BOX_COLUMNS`](Self::BOX_COLUMNS) columns.
    pub box_rows: u32,
}

impl BoxedMatrix {
    /// Columns of a box: 128 bytes, the width of [`Swizzle::Bytes128`], in which they arrive.
    pub const BOX_COLUMNS: u32 = 64;

    /// Bytes of a box in shared memory.
    #[must_use]
    pub const fn box_bytes(&self) -> u32 {
        128 * self.box_rows
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl TensorMap {
    /// What begins an emulated map: no driver writes it.
    const MARK: u64 = u64::from_le_bytes(*b"windrow\0");

    /// The map for the emulator.
    #[must_use]
    pub fn emulated(matrix: &BoxedMatrix) -> Self {
        let BoxedMatrix { address, columns, rows, row_bytes, box_rows } = *matrix;
        let mut words = [0; 16];
        words[..5].copy_from_slice(&[
            Self::MARK,
            address,
            u64::from(columns) | u64::from(rows) << 32,
            row_bytes,
            u64::from(box_rows),
        ]);
        Self(words)
    }

    /// What an emulated map says; none of one that a driver made.
    #[must_use]
    pub fn matrix(&self) -> Option<BoxedMatrix> {
        let [Self::MARK, address, extents, row_bytes, box_rows, ..] = self.0 else { return None };
        let [low, high] = [extents, extents >> 32].map(|half| u32::try_from(half & u64::from(u32::MAX)).ok());
        Some(BoxedMatrix {
            address,
            columns: low?,
            rows: high?,
            row_bytes,
            box_rows: u32::try_from(box_rows).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_their_parts_in_place() {
        let plain = OperandLayout { inner_bytes: 128, rows_bytes: 256, swizzle: Swizzle::None };
        assert_eq!(plain.descriptor(), 8 << 16 | 16 << 32);
        let mixed = OperandLayout { inner_bytes: 16, rows_bytes: 1024, swizzle: Swizzle::Bytes128 };
        assert_eq!(mixed.descriptor(), 1 << 16 | 64 << 32 | 1 << 62);
    }

    /// Each piece of 16 bytes is somewhere, and no two in one place; eight rows of a piece are in all 32 banks.
    #[test]
    fn pieces_are_placed_once() {
        for layout in [
            OperandLayout { inner_bytes: 128, rows_bytes: 256, swizzle: Swizzle::None },
            OperandLayout { inner_bytes: 16, rows_bytes: 1024, swizzle: Swizzle::Bytes128 },
        ] {
            let bytes = if layout.swizzle == Swizzle::None { 32 } else { 128 };
            let at = |row, piece: u32| layout.swizzle.apply(layout.offset(row, piece * 16));
            let mut places: Vec<u32> =
                (0..64).flat_map(|row| (0..bytes / 16).map(move |piece| at(row, piece))).collect();
            places.sort_unstable();
            assert!(places.iter().copied().eq((0..64 * bytes).step_by(16)));
            for piece in 0..bytes / 16 {
                let mut banks: Vec<u32> = (0..8).map(|row| at(row, piece) / 16 % 8).collect();
                banks.sort_unstable();
                assert_eq!(banks, (0..8).collect::<Vec<_>>());
            }
        }
    }

    /// The same of a transposed operand of 192 columns, of which eight inner elements of a piece are in all banks.
    #[test]
    fn transposed_pieces_are_placed_once() {
        let layout = OperandLayout { inner_bytes: 1024, rows_bytes: 3072, swizzle: Swizzle::Bytes128 };
        let at = |inner, piece: u32| layout.swizzle.apply(layout.transposed_offset(inner, piece * 16));
        let mut places: Vec<u32> =
            (0..64).flat_map(|inner| (0..24).map(move |piece| at(inner, piece))).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq((0..64 * 384).step_by(16)));
        for piece in 0..24 {
            let mut banks: Vec<u32> = (0..8).map(|inner| at(inner, piece) / 16 % 8).collect();
            banks.sort_unstable();
            assert_eq!(banks, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_emulated_map_says_what_it_was_told() {
        let matrix =
            BoxedMatrix { address: 1 << 40, columns: 77, rows: 1 << 31, row_bytes: 160, box_rows: 256 };
        assert_eq!(TensorMap::emulated(&matrix).matrix(), Some(matrix));
        assert_eq!(TensorMap([0; 16]).matrix(), None);
    }
}

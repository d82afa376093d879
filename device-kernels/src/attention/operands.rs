//! What the kernels of attention have beside the matrix: dense operands of several heads, a bias, dropped weights.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::output::OutputType;

/// An operand with a matrix for each head: element `column` of row `row` of head `h` is the one at
/// `h · head + row · ld + column`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct HeadMatrix {
    /// The first element, cast to words.
    pub first: GlobalPtr<u32>,
    /// Elements from one head to the next.
    pub head: u64,
    /// Elements from one row to the next.
    pub ld: u32,
    /// Columns of each head.
    pub columns: u32,
}

impl HeadMatrix {
    /// Where head `head` has element `column` of row `row`, in elements from the first.
    #[inline(always)]
    #[must_use]
    pub const fn at(&self, head: u32, row: u32, column: u32) -> u64 {
        head as u64 * self.head + row as u64 * self.ld as u64 + column as u64
    }

    /// Reads the element at a place, of the type that [`OutputType::code`] says.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`]; there is such an element.
    #[inline(always)]
    pub(super) unsafe fn load<S: Simt>(&self, s: &S, code: u32, at: u64) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            if code == OutputType::Sums.code() {
                s.load_readonly(self.first.cast().at_wide(at))
            } else {
                let bits = s.load_readonly(self.first.cast::<u16>().at_wide(at));
                if code == OutputType::F16.code() {
                    s.f16_to_f32(bits)
                } else {
                    f32::from_bits(u32::from(bits) << 16)
                }
            }
        }
    }

    /// The one number of a row, of f32.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`]; there is such a row, and elements are of f32.
    #[inline(always)]
    pub(super) unsafe fn number<S: Simt>(&self, s: &S, head: u32, row: u32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_readonly(self.first.cast().at_wide(self.at(head, row, 0))) }
    }

    /// Writes the element at a place, of the type that [`OutputType::code`] says.
    ///
    /// # Safety
    /// There is such an element, and no other thread touches it.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simt>(&self, s: &S, code: u32, at: u64, value: f32) {
        // SAFETY: the caller's promise.
        unsafe { OutputType::store_as(s, code, self.first, at, value) }
    }
}

impl HeadMatrix {
    /// Writes four successive elements of a row, of the type that [`OutputType::code`] says: at once, where they lie at
    /// a multiple of their size.
    ///
    /// # Safety
    /// There are such elements, and no other thread touches them.
    #[inline(always)]
    pub(super) unsafe fn store_quad<S: Simt>(&self, s: &S, code: u32, at: u64, quad: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { OutputType::store_quad_as(s, code, self.first, at, quad) }
    }

    /// Writes four successive elements of a row by one store.
    ///
    /// # Safety
    /// As for [`store_quad`](Self::store_quad); they lie at a multiple of their size.
    #[inline(always)]
    pub(super) unsafe fn store_at_once<S: Simt>(&self, s: &S, code: u32, at: u64, quad: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { OutputType::store_at_once_as(s, code, self.first, at, quad) }
    }
}

/// The heads of a walk: where they lie beside each other, several are walked at once, each by some of the lanes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct WalkHeads {
    /// Logarithm of their number. Operands then have the columns of all of them.
    pub count_log2: u32,
    /// Logarithm of the columns of each; at least that of what a lane has, and of no matter for a single one.
    pub columns_log2: u32,
}

impl WalkHeads {
    /// A walk for each head.
    pub const ONE: Self = Self { count_log2: 0, columns_log2: 31 };

    /// The first head of a walk.
    #[inline(always)]
    pub(super) const fn first(self, walk: u32) -> u32 {
        walk << self.count_log2
    }

    /// Which of the walk's heads a column is of; behind the last head, that.
    #[inline(always)]
    pub(super) const fn of_column(self, column: u32) -> u32 {
        let (head, last) = (column >> self.columns_log2, (1 << self.count_log2) - 1);
        if head < last { head } else { last }
    }

    /// Whether a column is the first of a head.
    #[inline(always)]
    pub(super) const fn begins(self, column: u32) -> bool {
        let is_there = column >> self.columns_log2 >> self.count_log2 == 0;
        is_there && column & ((1 << self.columns_log2) - 1) == 0
    }
}

/// What is added to the scores of entries.
///
/// # Obligations
/// `values` is null, or has a number for each entry in the order of the matrix, `head` numbers from a head to the next:
/// 0 where all heads have the same.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct EntryBias {
    /// The numbers, or null for none.
    pub values: GlobalPtr<f32>,
    /// Numbers from one head to the next.
    pub head: u64,
}

impl EntryBias {
    /// Where a head has the number of an entry.
    #[inline(always)]
    pub(super) const fn at(&self, head: u32, position: u32) -> u64 {
        head as u64 * self.head + position as u64
    }

    /// What is added to the score of an entry.
    ///
    /// # Safety
    /// The obligations; there is such an entry.
    #[inline(always)]
    pub(super) unsafe fn of<S: Simt>(&self, s: &S, head: u32, position: u32) -> f32 {
        if self.values == GlobalPtr::NULL {
            return 0.0;
        }
        // SAFETY: the caller's promise.
        unsafe { s.load_readonly(self.values.at_wide(self.at(head, position))) }
    }
}

/// Weights that are dropped in training: a hash of head, row and column decides which, so that forward and backward
/// passes agree on it, in whatever order they walk.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct DroppedWeights {
    /// Of 2³², how often a weight is dropped.
    pub below: u32,
    /// Factor of the weights that are not.
    pub keep_scale: f32,
    /// Which weights are dropped.
    pub seed: u32,
}

impl DroppedWeights {
    /// What becomes of a number that belongs to a weight: 0, or what makes up for those that are dropped.
    #[inline(always)]
    #[must_use]
    pub fn kept(&self, head: u32, row: u32, column: u32, number: f32) -> f32 {
        if self.below == 0 {
            number
        } else if dropout_bits([self.seed, head, row, column]) < self.below {
            0.0
        } else {
            number * self.keep_scale
        }
    }
}

/// 32 bits that look random, of four numbers: each is mixed in by a multiplication and a shift (the rounds of
/// `MurmurHash3`, whose avalanche is complete after the last).
#[inline(always)]
const fn dropout_bits(words: [u32; 4]) -> u32 {
    let mut hash: u32 = 0x9747_b28c;
    let mut i = 0;
    while i < words.len() {
        hash ^= words[i].wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        i += 1;
    }
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

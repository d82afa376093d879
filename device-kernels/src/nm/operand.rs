//! What the element type decides: the shape of the MMA, how picked slots become its A operand, and which lane holds
//! what.

use windrow_simt::Simt;

use crate::element::{Bf16, Element, F16, Tf32};

/// An element type that [`NmTensorCores`](super::NmTensorCores) multiplies.
///
/// The A operand is 16 rows of `C` × `DEPTH` picked slots, the B operand `DEPTH` kept rows × 8 columns.
pub trait NmOperand: Element<Sum = f32> {
    /// Kept rows of an MMA.
    const DEPTH: u32;
    /// Bytes of an element.
    const BYTES: u32 = Self::DTYPE.bytes();
    /// Elements of a word.
    const PER_WORD: u32 = 4 / Self::BYTES;
    /// MMAs' worth of rows of `C` that one load brings.
    const SPAN: usize;
    /// Lanes that read shared memory together have the picks of so many successive kept rows of a step: these slots
    /// should differ modulo it.
    const PHASE: u32;
    /// Bytes that are left free behind a slot, so that slots that differ modulo `PHASE` lie in different banks.
    const SKEW: u32;
    /// Where a lane reads from.
    type Address: Copy;
    /// What a load brings.
    type Rows: Copy;

    /// In a step's picks: where kept row `kept < DEPTH` is.
    fn place(kept: u32) -> u32;
    /// In a step's picks: the first that the lane reads.
    fn lane_pick(lane: u32) -> u32;
    /// The lane's picks in shared memory, two halves of a word.
    ///
    /// # Safety
    /// As for [`Simt::load_shared`].
    unsafe fn picks<S: Simt>(s: &S, from: u32) -> u32;
    /// In a slot: where the lane begins to read.
    fn lane_offset(lane: u32) -> u32;
    /// Where the lane reads, given where it would in slot 0.
    fn address(slot_zero: u32, picks: u32, pitch: u32) -> Self::Address;
    /// Operands `SPAN · load ..` of the tile.
    ///
    /// # Safety
    /// A collective of the full warp, and a load from shared memory.
    unsafe fn load<S: Simt>(s: &S, from: Self::Address, load: u32) -> Self::Rows;
    /// Operand `i < SPAN` of a load.
    fn operand(rows: &Self::Rows, i: usize) -> [u32; 4];
    /// `acc + a·b`.
    ///
    /// # Safety
    /// A collective of the full warp.
    unsafe fn mma<S: Simt>(s: &S, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4];
    /// Which row of the tile half `half < 2` of the lane's sums of MMA `tile` is.
    fn row(lane: u32, tile: u32, half: u32) -> u32;
    /// Lane, register and element of a word that hold kept row `kept < DEPTH` and column `column < 8` of the B operand.
    fn weight_at(kept: u32, column: u32) -> (u32, u32, u32);
}

/// What f16 and bf16 share, given their `mma.m16n8k16`.
macro_rules! sixteen_bits {
    ($element:ty, $mma:ident) => {
        impl NmOperand for $element {
            const DEPTH: u32 = 16;
            const SPAN: usize = 1;
            const PHASE: u32 = 8;
            const SKEW: u32 = 16;
            type Address = u32;
            type Rows = [u32; 4];

            #[inline(always)]
            fn place(kept: u32) -> u32 {
                kept
            }
            /// Lane `l` names row `l % 8` of matrix `l / 8`: matrices 0 and 1 are kept rows 0 to 7 of rows 0 to 7 and 8
            /// to 15 of `C`, matrices 2 and 3 kept rows 8 to 15.
            #[inline(always)]
            fn lane_pick(lane: u32) -> u32 {
                lane % 8 + lane / 16 * 8
            }
            #[inline(always)]
            unsafe fn picks<S: Simt>(s: &S, from: u32) -> u32 {
                // SAFETY: the caller's `from` is a pick in shared memory, written before a barrier.
                u32::from(unsafe { s.load_shared::<u16>(from) })
            }
            #[inline(always)]
            fn lane_offset(lane: u32) -> u32 {
                lane / 8 % 2 * 16
            }
            #[inline(always)]
            fn address(slot_zero: u32, picks: u32, pitch: u32) -> u32 {
                slot_zero + picks * pitch
            }
            #[inline(always)]
            unsafe fn load<S: Simt>(s: &S, from: u32, load: u32) -> [u32; 4] {
                // SAFETY: the full warp is here, and `from` lies in a slot of the slab, which was written before a
                // barrier.
                unsafe { s.load_matrix_x4_trans(from + load * 32) }
            }
            #[inline(always)]
            fn operand(rows: &[u32; 4], _: usize) -> [u32; 4] {
                *rows
            }
            #[inline(always)]
            unsafe fn mma<S: Simt>(s: &S, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
                // SAFETY: the caller promises that the full warp is here.
                unsafe { s.$mma(a, b, acc) }
            }
            /// The row of `fragment::c_f32`: tiles of 16 rows follow each other.
            #[inline(always)]
            fn row(lane: u32, tile: u32, half: u32) -> u32 {
                16 * tile + lane / 4 + 8 * half
            }
            /// The lane, register and half of `fragment::b_16bit`.
            #[inline(always)]
            fn weight_at(kept: u32, column: u32) -> (u32, u32, u32) {
                (column * 4 + kept % 8 / 2, kept / 8, kept % 2)
            }
        }
    };
}

sixteen_bits!(F16, mma_m16n8k16_f16);
sixteen_bits!(Bf16, mma_m16n8k16_bf16);

/// Which row of `C` a row of the MMA is, is free: a lane reads four successive elements of a slot, which are its
/// registers of two MMAs. Elements are rounded before they come here ([`NmStage`](super::NmStage)): in the loop that
/// costs three instructions each, more than the MMAs.
impl NmOperand for Tf32 {
    const DEPTH: u32 = 8;
    const SPAN: usize = 2;
    const PHASE: u32 = 4;
    const SKEW: u32 = 32;
    type Address = [u32; 2];
    type Rows = [[u32; 4]; 2];

    /// Those of a lane, `q` and `q + 4`, side by side.
    #[inline(always)]
    fn place(kept: u32) -> u32 {
        kept % 4 * 2 + kept / 4
    }
    #[inline(always)]
    fn lane_pick(lane: u32) -> u32 {
        lane % 4 * 2
    }
    #[inline(always)]
    unsafe fn picks<S: Simt>(s: &S, from: u32) -> u32 {
        // SAFETY: the caller's promise; a lane's first pick has an even number.
        unsafe { s.load_shared(from) }
    }
    #[inline(always)]
    fn lane_offset(lane: u32) -> u32 {
        lane / 4 * 16
    }
    #[inline(always)]
    fn address(slot_zero: u32, picks: u32, pitch: u32) -> [u32; 2] {
        [slot_zero + (picks & 0xffff) * pitch, slot_zero + (picks >> 16) * pitch]
    }
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, from: [u32; 2], load: u32) -> [[u32; 4]; 2] {
        // SAFETY: the caller's `from` lies in slots of the slab, which were written before a barrier.
        from.map(|at| unsafe { s.load_shared(at + load * 128) })
    }
    #[inline(always)]
    fn operand([low, high]: &[[u32; 4]; 2], i: usize) -> [u32; 4] {
        [low[2 * i], low[2 * i + 1], high[2 * i], high[2 * i + 1]]
    }
    #[inline(always)]
    unsafe fn mma<S: Simt>(s: &S, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller promises that the full warp is here.
        unsafe { s.mma_m16n8k8_tf32(a, b, acc) }
    }
    #[inline(always)]
    fn row(lane: u32, tile: u32, half: u32) -> u32 {
        tile / 2 * 32 + lane / 4 * 4 + tile % 2 * 2 + half
    }
    /// The lane and register of `fragment::b_tf32`.
    #[inline(always)]
    fn weight_at(kept: u32, column: u32) -> (u32, u32, u32) {
        (column * 4 + kept % 4, kept / 4, 0)
    }
}

//! What every way of bringing activations to shared memory has to do.

use bytemuck::Pod;
use windrow_simt::{SharedOperand, Simt, WarpgroupSums};

use super::{StageWeights, WarpgroupWork};

/// How activations come to shared memory, and how they lie there.
pub trait Activations {
    /// Arguments of the kernel.
    type Params: Pod;
    /// Whether each tile of columns of `C` picks rows of its own.
    const PICKS: bool;
    /// Bytes of the list of a stage's rows in shared memory, which come with another stage; a multiple of 16.
    const ORDER_BYTES: u32;

    /// What there is to do.
    fn work(params: &Self::Params) -> &WarpgroupWork;

    /// Where the operand of a stage from inner element `inner` on is, of `rows` rows of `C`, if the stage begins at
    /// `slab`.
    fn operand(slab: u32, inner: u32, rows: u32) -> SharedOperand;

    /// A product with that operand, as it lies.
    ///
    /// # Safety
    /// That of [`Simt::warpgroup_mma_sparse`].
    unsafe fn multiply<S: Simt, W: StageWeights, const PRODUCT: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
        metadata: u32,
    );

    /// What a thread that multiplies does behind the barrier that tells it of a step: there copies by threads are
    /// fenced off. By those who started them, who have less time, products took as long or longer.
    ///
    /// # Safety
    /// Part of the protocol; every thread of the warpgroup calls it.
    unsafe fn before_products<S: Simt>(s: &S);

    /// What the warpgroup that brings does: leaves registers to the others, then starts the copies of all items of its
    /// block, those of a step when the one that was there before is read, and waits for them. It comes to as many
    /// barriers as the others.
    ///
    /// # Safety
    /// The obligations of the params; every thread of the warpgroup is here.
    unsafe fn feed<S: Simt, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
        s: &S,
        params: &Self::Params,
    );
}

/// A step's place in shared memory, and how often that was used before.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) round: u32,
}

impl Slot {
    pub(super) const FIRST: Self = Self { number: 0, round: 0 };

    #[inline(always)]
    pub(super) const fn next<const SLOTS: u32>(self) -> Self {
        if self.number + 1 == SLOTS {
            Self { number: 0, round: self.round + 1 }
        } else {
            Self { number: self.number + 1, ..self }
        }
    }
}

//! The gradient of the values: for each entry the sum over the columns of what its value does to the result.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{AGGREGATE_WARPS, AggregateParams, MessageCode};
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::row_softmax::butterfly;
use crate::unroll::each;
use crate::variant::Variant;
use crate::ways::{Groups, RowWalk};

/// One instance: how rows are read, lanes that share an entry.
///
/// ```text
/// dA[i, j] = Σ_c dout[i, c] · (X[j, c] of a product, 1 of a sum) / mean     c: where the entry won
/// ```
pub struct AggregateSlopes<G, const LANES: u32>(PhantomData<G>);

impl<G: Gather, const LANES: u32> AggregateSlopes<G, LANES> {
    /// Columns that the lanes of an entry read together.
    const WIDTH: u32 = LANES * G::WIDTH;
    const VALID: () = assert!(LANES.is_power_of_two() && LANES <= WARP, "an entry is read inside of a warp");
}

impl<G: Gather<Element: Element<Sum = f32>>, const LANES: u32> Kernel for AggregateSlopes<G, LANES> {
    type Params = AggregateParams;
    const FILE: &'static str = "aggregate/slopes";
    const VARIANT: Variant =
        Variant::AggregateSlopes { dtype: G::Element::DTYPE, vectors: G::VECTORS, width: Self::WIDTH };
    const BLOCK_THREADS: u32 = AGGREGATE_WARPS * WARP;
    const UNITS_PER_BLOCK: u32 = AGGREGATE_WARPS * (WARP / LANES);

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AggregateParams) {
        const { Self::VALID }
        let block = s.block_idx();
        // SAFETY: the obligations of the params; a warp stays together, whichever rows its lanes have.
        unsafe {
            let mut walk = if block < p.piece_count {
                let [row, begin, end, _] = s.load_readonly(p.pieces.at(block));
                RowWalk::of_block(s, Groups::pairs(LANES), [row, begin, end], AGGREGATE_WARPS)
            } else {
                let warp = (block - p.piece_count) * AGGREGATE_WARPS + s.warp();
                let Some(walk) = RowWalk::of_warp(s, Groups::pairs(LANES), p.lists(), warp) else { return };
                walk
            };
            let mean = p.mean_of(s, walk.row);
            while walk.goes_on() {
                let positions = walk.positions(s);
                each::<2>(|i| {
                    let slope = Self::slope(s, p, &walk, positions[i]) * mean;
                    if positions[i] < walk.end && s.lane().is_multiple_of(LANES) {
                        s.store(p.out.cast::<f32>().at(positions[i]), slope);
                    }
                });
                walk.step();
            }
        }
    }
}

impl<G: Gather<Element: Element<Sum = f32>>, const LANES: u32> AggregateSlopes<G, LANES> {
    /// The sum over the columns for one entry, 0 if there is no such entry.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn slope<S: Simt>(s: &S, p: &AggregateParams, walk: &RowWalk, position: u32) -> f32 {
        let mut sum = 0.0;
        let multiplies = p.message == MessageCode::Mul as u32;
        // SAFETY: the caller's promise; columns are a multiple of what a lane reads.
        unsafe {
            if position < walk.end {
                let of_x = u64::from(s.load_readonly(p.entries.at(position))) * u64::from(p.ldx);
                let of_gradient = u64::from(walk.row) * u64::from(p.ldg);
                let of_winners = u64::from(walk.row) * u64::from(p.columns);
                let mut column = s.lane() % LANES * G::WIDTH;
                while column < p.columns {
                    let gradient = G::elements(s, G::fetch(s, p.gradient, of_gradient + u64::from(column)));
                    let x = match multiplies {
                        true => G::elements(s, G::fetch(s, p.x, of_x + u64::from(column))),
                        false => [1.0; 8],
                    };
                    each::<8>(|e| {
                        if (e as u32) < G::WIDTH {
                            let at = of_winners + u64::from(column) + e as u64;
                            let won = p.winners == GlobalPtr::NULL
                                || s.load_readonly(p.winners.at_wide(at)) == position;
                            if won {
                                sum = s.fma(gradient[e], x[e], sum);
                            }
                        }
                    });
                    column += Self::WIDTH;
                }
            }
            butterfly::<S, LANES>(s, sum, |a, b| a + b)
        }
    }
}

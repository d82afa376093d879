//! Rows whose sums are not finite, added up once more.

use windrow_simt::{HalfElement, Simt, WARP};

use super::AttentionWindows;
use crate::attention::place::Place;
use crate::attention::tiles::element;
use crate::attention::{AttentionParams, WindowForm};
use crate::element::Element;
use crate::row_softmax::butterfly;

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize>
    AttentionWindows<E, W, CHUNKS>
{
    /// Adds up the rows of a window once more, each by itself and entry after entry, so that none sees what is not its
    /// own: where a pair that is no entry has weight zero, and an element of `V` that is not finite made a NaN of it.
    /// Replaces the sums in shared memory. Slow, and as short as can be.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here, and has shared what its entries add up to.
    #[inline(always)]
    pub(super) unsafe fn repair<S: Simt>(s: &S, p: &AttentionParams, place: &Place) {
        let mut of_window = 0;
        while of_window < W::ROWS {
            let row = (place.window * W::ROWS + of_window).min(p.rows - 1);
            // SAFETY: the caller's promise; a sum in shared memory is this lane's, and entries are the same for all.
            unsafe {
                let softmax = Self::SHARES.state(s, [s.warp(), of_window, 0]);
                Self::each_sum(s, of_window, |_, _| 0.0);
                let extent = if W::SHARED { [0; 2] } else { Self::row_extent(s, p, place, of_window) };
                place.each_entry(|at| {
                    let entry = s.load_readonly(p.entries.at(at));
                    let present = if W::SHARED {
                        W::rows_of(entry) >> of_window & 1 == 1
                    } else {
                        extent[0] <= at && at < extent[1]
                    };
                    if present {
                        let column = W::column(entry);
                        let mut product = 0.0;
                        let mut of_row = s.lane();
                        while of_row < p.q.columns {
                            let of_query = element::<S, E>(s, &p.q, [place.head, row, of_row]);
                            let of_key = element::<S, E>(s, &p.k, [place.head, column, of_row]);
                            product = s.fma(of_query, of_key, product);
                            of_row += WARP;
                        }
                        let product = butterfly::<S, WARP>(s, product, |a, b| a + b);
                        let bias = if W::SHARED { 0.0 } else { p.bias.of(s, place.head, at) };
                        let weight = softmax.weigh(s, product * p.scale + bias);
                        let weight = p.dropped.kept(place.head, row, column, weight);
                        Self::each_sum(s, of_window, |sum, of_row| {
                            if of_row >= p.v.columns {
                                return sum;
                            }
                            s.fma(weight, element::<S, E>(s, &p.v, [place.head, column, of_row]), sum)
                        });
                    }
                });
                if place.whole {
                    Self::each_sum(s, of_window, |sum, _| sum * softmax.inverse());
                }
            }
            of_window += 1;
        }
    }

    /// Replaces the lane's sums of a row in shared memory, given each and its column.
    ///
    /// # Safety
    /// Sums of the row are this warp's, and are read by no other lane meanwhile.
    #[inline(always)]
    unsafe fn each_sum<S: Simt>(s: &S, of_window: u32, replace: impl Fn(f32, u32) -> f32) {
        let mut column = s.lane();
        while column < Self::WIDTH {
            let at = Self::SHARES.sum_at(s.warp(), of_window, column);
            // SAFETY: the caller's promise.
            unsafe { s.store_shared(at, replace(s.load_shared(at), column)) };
            column += WARP;
        }
    }
}

//! Rows of gradients whose sums are not finite, added up once more.

use windrow_simt::{HalfElement, Simt, WARP};

use super::{AttentionGradientWindows, Pair, ROWS, Windows};
use crate::attention::place::Place;
use crate::attention::tiles::element;
use crate::attention::{AttentionGradientParams, GradientPass, WindowForm};
use crate::element::Element;
use crate::row_softmax::butterfly;
use crate::unroll::each;

impl<E, P, const CHUNKS: usize> AttentionGradientWindows<E, P, CHUNKS>
where
    E: Element<Sum = f32, Bits = u16> + HalfElement,
    P: GradientPass,
{
    /// Adds up the rows of a window once more, each by itself and entry after entry, so that none sees what is not its
    /// own: where a pair that is no entry has slope zero, and what is gathered for it made a NaN of that. Replaces the
    /// sums in shared memory. Slow, and as short as can be.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here, and has shared what its entries add up to.
    #[inline(always)]
    pub(super) unsafe fn repair<S: Simt>(s: &S, p: &AttentionGradientParams, place: &Place) {
        let mut of_window = 0;
        while of_window < ROWS {
            let own = (place.window * ROWS + of_window).min(p.rows - 1);
            // SAFETY: the caller's promise; a sum in shared memory is this lane's, and entries are the same for all.
            unsafe {
                each::<2>(|result| Self::each_sum(s, (result, of_window), |_, _| 0.0));
                place.each_entry(|at| {
                    let entry = s.load_readonly(p.entries.at(at));
                    if Windows::rows_of(entry) >> of_window & 1 == 1 {
                        Self::add_entry(s, p, place.head, [of_window, own, Windows::column(entry)]);
                    }
                });
            }
            of_window += 1;
        }
    }

    /// Adds one entry to the sums of a row of the window.
    ///
    /// # Safety
    /// As for [`repair`](Self::repair); there is such an entry.
    #[inline(always)]
    unsafe fn add_entry<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        head: u32,
        [of_window, own, other]: [u32; 3],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let product = |i: usize| {
                let (mut product, mut column) = (0.0, s.lane());
                while column < p.own[i].columns {
                    let of_own = element::<S, E>(s, &p.own[i], [head, own, column]);
                    let of_other = element::<S, E>(s, &p.gathered[i], [head, other, column]);
                    product = s.fma(of_own, of_other, product);
                    column += WARP;
                }
                butterfly::<S, WARP>(s, product, |a, b| a + b)
            };
            let (score, response) = (product(0), product(1));
            let terms = if P::OVER_COLUMNS {
                s.load_readonly(p.terms.at_wide(p.row_at(head, other)))
            } else {
                s.load_shared(Self::terms_at(s.warp(), of_window))
            };
            let entry = if P::OVER_COLUMNS { [other, own] } else { [own, other] };
            let numbers = Self::slope(s, p, head, Pair { score, response, terms, entry });
            each::<2>(|result| {
                Self::each_sum(s, (result, of_window), |sum, column| {
                    if column >= p.gathered[result].columns {
                        return sum;
                    }
                    let of_other = element::<S, E>(s, &p.gathered[result], [head, other, column]);
                    s.fma(numbers[result], of_other, sum)
                });
            });
        }
    }

    /// Replaces the lane's sums of a gradient's row in shared memory, given each and its column, if the pass has that
    /// gradient.
    ///
    /// # Safety
    /// Sums of the row are this warp's, and are read by no other lane meanwhile.
    #[inline(always)]
    unsafe fn each_sum<S: Simt>(s: &S, (result, of_window): (usize, u32), replace: impl Fn(f32, u32) -> f32) {
        let mut column = s.lane();
        while (result as u32) < Self::RESULTS && column < Self::WIDTH {
            let at = Self::sum_at(s.warp(), result as u32, of_window, column);
            // SAFETY: the caller's promise.
            unsafe { s.store_shared(at, replace(s.load_shared(at), column)) };
            column += WARP;
        }
    }
}

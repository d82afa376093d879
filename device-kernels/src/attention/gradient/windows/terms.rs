//! What scores of a window's rows become weights and slopes by.

use windrow_simt::{HalfElement, Simt};

use super::{AttentionGradientWindows, ROWS};
use crate::attention::gradient::row_terms;
use crate::attention::place::Place;
use crate::attention::tiles::pair_of;
use crate::attention::{AttentionGradientParams, GradientPass, HeadMatrix};
use crate::element::Element;
use crate::output::OutputType;
use crate::unroll::{each, each4};

impl<E, P, const CHUNKS: usize> AttentionGradientWindows<E, P, CHUNKS>
where
    E: Element<Sum = f32, Bits = u16> + HalfElement,
    P: GradientPass,
{
    /// Makes what scores of the window's rows become weights and slopes by, and keeps it in shared memory and for the
    /// pass over columns.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    pub(super) unsafe fn keep_terms<S: Simt>(s: &S, p: &AttentionGradientParams, place: &Place) {
        let (group, quad) = (s.lane() / 4, s.lane() % 4);
        let row = place.window * ROWS + group;
        let read = row.min(p.rows - 1);
        // A branch for all elements, not for each.
        let (f16, bf16) = (OutputType::F16.code(), OutputType::Bf16.code());
        let from = [place.head, read, quad];
        // SAFETY: the caller's promise.
        let mut term = unsafe {
            if p.out_type == f16 {
                Self::term(s, [&p.own[1], &p.out], (f16, from))
            } else if p.out_type == bf16 {
                Self::term(s, [&p.own[1], &p.out], (bf16, from))
            } else {
                Self::term(s, [&p.own[1], &p.out], (OutputType::Sums.code(), from))
            }
        };
        // SAFETY: the caller's promise; one lane has the row.
        unsafe {
            each::<2>(|i| term += f32::from_bits(s.shuffle_xor(term.to_bits(), 1 << i)));
            let [max, sum] = s.load_readonly(p.states.at_wide(p.row_at(place.head, read)));
            let terms = row_terms([max, sum], term);
            if quad == 0 {
                s.store_shared(Self::terms_at(s.warp(), group), terms);
                let begins = place.whole
                    || (s.warp() == 0 && place.begin == s.load_readonly(p.offsets.at(place.window)));
                if begins && row < p.rows {
                    s.store(p.terms.at_wide(p.row_at(place.head, row)), terms);
                }
            }
        }
    }

    /// A lane's part of the product of a row of the result and of its gradient.
    ///
    /// # Safety
    /// The obligations of the params; there is such a row, of elements of the type `code`.
    #[inline(always)]
    unsafe fn term<S: Simt>(
        s: &S,
        [gradient, out]: [&HeadMatrix; 2],
        (code, [head, row, quad]): (u32, [u32; 3]),
    ) -> f32 {
        let (mut term, mut first) = (0.0, 2 * quad);
        while first < out.columns {
            // All of a chunk's loads are on their way before the first is needed.
            let (mut of_gradient, mut of_result) = ([0; 4], [[0.0; 2]; 4]);
            each4(|eight| {
                let column = first + 8 * eight as u32;
                if column < out.columns {
                    // SAFETY: the caller's promise; columns are a multiple of eight.
                    unsafe {
                        of_gradient[eight] = Self::pair(s, gradient, [head, row, column]);
                        each::<2>(|i| {
                            let at = out.at(head, row, column + i as u32);
                            of_result[eight][i] = out.load(s, code, at);
                        });
                    }
                }
            });
            each4(|eight| {
                let of_gradient = pair_of::<S, E>(s, of_gradient[eight]);
                each::<2>(|i| term = s.fma(of_gradient[i], of_result[eight][i], term));
            });
            first += 32;
        }
        term
    }

    /// Two elements of a row, from an even column on.
    ///
    /// # Safety
    /// The obligations of the params; there are such elements.
    #[inline(always)]
    pub(super) unsafe fn pair<S: Simt>(s: &S, of: &HeadMatrix, [head, row, column]: [u32; 3]) -> u32 {
        let at = of.first.cast::<u16>().at_wide(of.at(head, row, column));
        // SAFETY: the caller's promise; rows are aligned to more than that.
        unsafe { s.load_readonly(at.cast::<u32>()) }
    }
}

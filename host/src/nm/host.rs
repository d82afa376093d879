//! Products with N:M weights on the CPU.

use std::marker::PhantomData;

use windrow_formats::{OutOfMemory, VectorNm};

use super::options::ActivationLayout;
use crate::activation::Activation;
use crate::cpu::{GatheredWeights, Panels};
use crate::dense::{DenseMut, DenseRef};
use crate::element::Element;
use crate::options::Precision;
use crate::plan::{ArraySize, push};

/// Weights as the CPU multiplies them.
pub(super) struct HostNm {
    weights: GatheredWeights,
    precision: Precision,
    layout: ActivationLayout,
}

/// What is done with a sum before it is stored: `act(α·sum + β·c + bias)`, and times `c` if it is gated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish<'a> {
    /// That of the run times that of the plan.
    pub(super) alpha: f32,
    pub(super) beta: f32,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Activation,
    pub(super) gated: bool,
}

/// The rows of `C`, parts of which several threads write.
struct Rows<'a, C> {
    data: *mut C,
    ld: usize,
    borrow: PhantomData<&'a mut [C]>,
}

// SAFETY: each thread writes parts of rows that no other touches; who calls `part` answers for it.
unsafe impl<C: Send> Sync for Rows<'_, C> {}

impl<C> Rows<'_, C> {
    /// Elements `column .. column + len` of a row.
    ///
    /// # Safety
    /// They are elements of the matrix, and nobody else has a reference to one of them.
    #[expect(clippy::mut_from_ref, reason = "disjoint parts are handed out, as the caller promises")]
    unsafe fn part(&self, row: usize, column: usize, len: usize) -> &mut [C] {
        // SAFETY: the caller names elements of the matrix to which nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.ld + column), len) }
    }
}

impl HostNm {
    /// `values` are those of the weights, rounded to the precision.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: &[f32],
        precision: Precision,
        layout: ActivationLayout,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self { weights: GatheredWeights::new(weights, values)?, precision, layout })
    }

    /// What a plan for `weights` will allocate.
    pub(super) fn sizes<V>(weights: &VectorNm<V>) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        for (name, bytes) in ["source_rows", "values"].into_iter().zip(GatheredWeights::bytes(weights)) {
            push(&mut sizes, name, bytes);
        }
        sizes
    }

    /// `C ← act(α·A·W + β·C + bias) [⊙ C]` on the threads of the current rayon pool, for operands of checked shapes.
    /// The same bits in every run, whatever the number of threads.
    pub(super) fn run<E: Element, C: Element>(
        &self,
        epilogue: Finish<'_>,
        a: DenseRef<'_, E>,
        c: DenseMut<'_, C>,
    ) -> Result<(), OutOfMemory> {
        let Finish { alpha, beta, bias, activation, gated } = epilogue;
        let panels = Panels::new(a, self.layout == ActivationLayout::KMajor, self.precision)?;
        let (m, n, ld) = (c.rows(), c.cols(), c.ld());
        let rows = Rows { data: c.into_data().as_mut_ptr(), ld, borrow: PhantomData };
        self.weights.multiply(&panels, |row, column, sums| {
            assert!(row < m && column + sums.len() <= n);
            // SAFETY: a part of a row of C, as just checked, which the view holds; `multiply` gives each element of
            // the product to one call, and the view is borrowed for itself.
            let to = unsafe { rows.part(row, column, sums.len()) };
            sums.iter_mut().for_each(|x| *x *= alpha);
            if beta != 0.0 {
                sums.iter_mut().zip(&*to).for_each(|(x, old)| *x += beta * old.to_f32());
            }
            if let Some(bias) = bias {
                sums.iter_mut().zip(&bias[column..]).for_each(|(x, bias)| *x += bias);
            }
            activation.apply_to(sums);
            if gated {
                sums.iter_mut().zip(&*to).for_each(|(x, old)| *x *= old.to_f32());
            }
            to.iter_mut().zip(&*sums).for_each(|(to, &x)| *to = C::from_f32(x));
        });
        Ok(())
    }
}

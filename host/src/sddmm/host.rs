//! Sampled products on the CPU.

use windrow_formats::memory::{try_collect, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Pattern, Value};

use super::options::SddmmForm;
use crate::cpu::{self, each_chunk};
use crate::dense::DenseRef;
use crate::element::{Element, Real};
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{ArraySize, push};
use crate::tf32;

/// Sums that are taken side by side: enough for the vector units of any machine.
const LANES: usize = 16;
/// Elements that a thread converts at a time, about.
const CONVERTED_TOGETHER: usize = 1 << 14;

/// A pattern as the CPU walks it, shared with the matrix that it was given with.
pub(super) struct HostSddmm<S> {
    pattern: Pattern,
    scale: Option<Vec<S>>,
    precision: Precision,
}

impl<S: Real> HostSddmm<S> {
    pub(super) fn new<V: Value>(
        a: &Csr<V>,
        precision: Precision,
        form: SddmmForm,
    ) -> Result<Self, OutOfMemory> {
        let scale = match form {
            SddmmForm::Mask => None,
            SddmmForm::Scale => Some(scale_of(a.values())?),
        };
        Ok(Self { pattern: a.pattern().clone(), scale, precision })
    }

    /// What a plan for `a` holds, before there is one.
    pub(super) fn sizes<V>(a: &Csr<V>, form: SddmmForm) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "row_offsets", 8 * wide(a.row_offsets().len()));
        push(&mut sizes, "col_indices", 4 * wide(a.nnz()));
        let values = if form == SddmmForm::Scale { a.nnz() } else { 0 };
        push(&mut sizes, "values", wide(size_of::<S>()) * wide(values));
        sizes
    }

    pub(super) fn replace_values(&mut self, values: Vec<S>) {
        if let Some(scale) = &mut self.scale {
            *scale = values;
        }
    }

    /// `out ← α·(X·Yᵀ) ⊙ A`, on the threads of the current rayon pool. The same bits in every run, whatever the number
    /// of threads.
    pub(super) fn run<T: Element<Sum = S>, O: Element<Sum = S>>(
        &self,
        alpha: S,
        x: DenseRef<'_, T>,
        y: DenseRef<'_, T>,
        out: &mut [O],
    ) -> Result<(), OutOfMemory> {
        // Rounded and widened once, not once for each entry.
        let (x, y) = (widened::<T, S>(x, self.precision)?, widened::<T, S>(y, self.precision)?);
        let col_indices = self.pattern.col_indices();
        cpu::each_row(self.pattern.row_offsets(), out, |row, entries, out| {
            let x = x.row(row);
            for (entry, out) in entries.zip(out) {
                let sum = alpha * dot(x, y.row(col_indices[entry] as usize));
                let scaled = self.scale.as_ref().map_or(sum, |scale| sum * scale[entry]);
                *out = O::from_f64(scaled.to_f64());
            }
        });
        Ok(())
    }
}

/// Rows of numbers, side by side.
struct Rows<S> {
    data: Vec<S>,
    cols: usize,
}

impl<S> Rows<S> {
    fn row(&self, r: usize) -> &[S] {
        &self.data[r * self.cols..][..self.cols]
    }
}

/// The elements as they are multiplied.
fn widened<T: Element, S: Real>(
    matrix: DenseRef<'_, T>,
    precision: Precision,
) -> Result<Rows<S>, OutOfMemory> {
    let cols = matrix.cols();
    let mut data = try_zeroed::<S>(matrix.rows() * cols, "a factor as it is multiplied")?;
    let together = CONVERTED_TOGETHER.div_ceil(cols.max(1));
    each_chunk(&mut data, together * cols, &|at, rows| {
        for (r, row) in (at * together..).zip(rows.chunks_exact_mut(cols)) {
            for (to, element) in row.iter_mut().zip(matrix.row(r)) {
                *to = S::from_f64(tf32::as_multiplied(precision, element.to_f64()));
            }
        }
    });
    Ok(Rows { data, cols })
}

/// `Σ x·y`, summed in [`LANES`] lanes and then pairwise.
fn dot<S: Real>(x: &[S], y: &[S]) -> S {
    let mut sums = [S::ZERO; LANES];
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (x_chunks.remainder(), y_chunks.remainder());
    for (x, y) in x_chunks.zip(y_chunks) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum = *sum + *x * *y;
        }
    }
    for ((sum, x), y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = *sum + *x * *y;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] = sums[i] + sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// Values as products are scaled by them.
pub(super) fn scale_of<V: Value, S: Real>(values: &[V]) -> Result<Vec<S>, OutOfMemory> {
    try_collect(values.iter().map(|value| S::from_f64(value.to_f64())), "values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_that_of_the_matrix() {
        let a = Csr::<f32>::identity(3).unwrap();
        let host = HostSddmm::<f32>::new(&a, Precision::F32, SddmmForm::Mask).unwrap();
        assert!(host.pattern.is_shared_with(a.pattern()));
    }
}

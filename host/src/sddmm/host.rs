//! Sampled products on the CPU.

use rayon::prelude::*;
use windrow_formats::{Csr, Pattern, Value};

use super::options::SddmmForm;
use crate::cpu;
use crate::dense::DenseRef;
use crate::matrix::Element;
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{ArraySize, push};
use crate::tf32;

/// Sums that are taken side by side: enough for the vector units of any machine.
const LANES: usize = 16;

/// A pattern as the CPU walks it, shared with the matrix that it was given with.
pub(super) struct HostSddmm {
    pattern: Pattern,
    scale: Option<Vec<f32>>,
    precision: Precision,
}

impl HostSddmm {
    pub(super) fn new<V: Value>(a: &Csr<V>, precision: Precision, form: SddmmForm) -> Self {
        Self {
            pattern: a.pattern().clone(),
            scale: (form == SddmmForm::Scale).then(|| scale_of(a.values())),
            precision,
        }
    }

    pub(super) fn sizes(&self) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "row_offsets", 8 * wide(self.pattern.row_offsets().len()));
        push(&mut sizes, "col_indices", 4 * wide(self.pattern.col_indices().len()));
        push(&mut sizes, "values", 4 * wide(self.scale.as_ref().map_or(0, Vec::len)));
        sizes
    }

    pub(super) fn replace_values(&mut self, values: Vec<f32>) {
        if let Some(scale) = &mut self.scale {
            *scale = values;
        }
    }

    /// `out ← α·(X·Yᵀ) ⊙ A`, on the threads of the current rayon pool. The same bits in every run, whatever the number
    /// of threads.
    pub(super) fn run<T: Element>(
        &self,
        alpha: f32,
        x: DenseRef<'_, T>,
        y: DenseRef<'_, T>,
        out: &mut [f32],
    ) {
        // Rounded and widened once, not once for each entry.
        let (x, y) = (widened(x, self.precision), widened(y, self.precision));
        let col_indices = self.pattern.col_indices();
        cpu::each_row(self.pattern.row_offsets(), out, |row, entries, out| {
            let x = x.row(row);
            for (entry, out) in entries.zip(out) {
                let sum = alpha * dot(x, y.row(col_indices[entry] as usize));
                *out = self.scale.as_ref().map_or(sum, |scale| sum * scale[entry]);
            }
        });
    }
}

/// Rows of f32, side by side.
struct Rows {
    data: Vec<f32>,
    cols: usize,
}

impl Rows {
    fn row(&self, r: usize) -> &[f32] {
        &self.data[r * self.cols..][..self.cols]
    }
}

/// The elements as they are multiplied.
fn widened<T: Element>(matrix: DenseRef<'_, T>, precision: Precision) -> Rows {
    let cols = matrix.cols();
    let as_multiplied = |element: &T| tf32::as_multiplied(precision, element.to_f32());
    let data = (0..matrix.rows())
        .into_par_iter()
        .flat_map_iter(|r| matrix.row(r).iter().map(as_multiplied))
        .collect();
    Rows { data, cols }
}

/// `Σ x·y`, summed in [`LANES`] lanes and then pairwise.
fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (x_chunks.remainder(), y_chunks.remainder());
    for (x, y) in x_chunks.zip(y_chunks) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum += x * y;
        }
    }
    for ((sum, x), y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
        *sum += x * y;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// Values as products are scaled by them.
pub(super) fn scale_of<V: Value>(values: &[V]) -> Vec<f32> {
    values.iter().map(|value| value.to_f32()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_that_of_the_matrix() {
        let a = Csr::<f32>::identity(3).unwrap();
        let host = HostSddmm::new(&a, Precision::F32, SddmmForm::Mask);
        assert!(host.pattern.is_shared_with(a.pattern()));
    }
}

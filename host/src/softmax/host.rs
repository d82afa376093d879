//! Softmax over rows on the CPU.

use windrow_formats::memory::try_copy;
use windrow_formats::{OutOfMemory, Value};

use crate::cpu;

/// The extents of rows.
pub(super) struct HostRows {
    row_offsets: Vec<u64>,
}

impl HostRows {
    pub(super) fn new(row_offsets: &[u64]) -> Result<Self, OutOfMemory> {
        Ok(Self { row_offsets: try_copy(row_offsets, "row_offsets")? })
    }

    /// `out ← softmax(scale·scores)`, each row by itself.
    pub(super) fn forward(&self, scale: f32, scores: &[f32], out: &mut [f32]) {
        cpu::each_row(&self.row_offsets, out, |_, entries, out| {
            out.copy_from_slice(&scores[entries]);
            softmax(scale, out);
        });
    }

    /// `values ← softmax(scale·values)`, each row by itself.
    pub(super) fn forward_in_place(&self, scale: f32, values: &mut [f32]) {
        cpu::each_row(&self.row_offsets, values, |_, _, values| softmax(scale, values));
    }

    /// `out ← scale · p · (g − Σ p·g)`.
    pub(super) fn backward(&self, scale: f32, probabilities: &[f32], gradient: &[f32], out: &mut [f32]) {
        cpu::each_row(&self.row_offsets, out, |_, entries, out| {
            let (p, g) = (&probabilities[entries.clone()], &gradient[entries]);
            let terms = p.iter().zip(g).map(|(&p, &g)| f64::from(p) * f64::from(g));
            let mean = f32::from_f64(terms.sum());
            for ((out, &p), &g) in out.iter_mut().zip(p).zip(g) {
                *out = scale * p * (g - mean);
            }
        });
    }
}

/// Softmax of one row. The sum is taken in f64, so that a long row loses nothing.
fn softmax(scale: f32, row: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    for value in row.iter_mut() {
        *value *= scale;
        max = max.max(*value);
    }
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - max).exp();
        sum += f64::from(*value);
    }
    let inverse = f32::from_f64(1.0 / sum);
    for value in row.iter_mut() {
        *value *= inverse;
    }
}

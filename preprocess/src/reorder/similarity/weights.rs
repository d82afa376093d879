//! Weighted Jaccard similarity of rows.

use std::sync::atomic::{AtomicU32, Ordering};

use windrow_formats::memory::try_collect;

use super::super::pattern::{Pattern, chunks, map_chunks, narrow};
use super::super::watch::{Stopped, Watch};

/// Weights are multiples of 2⁻²⁴, so that sums do not depend on their order.
const ONE: f64 = (1 << 24) as f64;
/// A row this many times as long as another is searched, not merged.
const SEARCH_RATIO: usize = 16;

/// Degree and weight `w_j = d_j^(−α)` of each column.
pub(in super::super) struct Weights {
    degrees: Vec<u32>,
    weights: Vec<u32>,
}

impl Weights {
    /// `alpha` is taken as 0 if it is not a number, and as the nearer end of `0 ..= 4` if outside.
    pub(in super::super) fn of(
        pattern: &Pattern<'_>,
        alpha: f64,
        watch: &dyn Watch,
    ) -> Result<Self, Stopped> {
        let counts = try_collect((0..pattern.cols()).map(|_| AtomicU32::new(0)), "degrees of columns")?;
        let ranges = chunks(pattern.rows() as usize, |r| pattern.row_len(narrow(r)) as u64)?;
        watch.begin("column weights", ranges.len() as u64);
        map_chunks(&ranges, watch, |rows| {
            for r in rows {
                for &column in pattern.row(narrow(r)) {
                    counts[column as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })?;
        let degrees = try_collect(counts.into_iter().map(AtomicU32::into_inner), "degrees of columns")?;
        let alpha = if alpha.is_nan() { 0.0 } else { alpha.clamp(0.0, 4.0) };
        let weights = degrees.iter().map(|&degree| weight(degree, alpha));
        let weights = try_collect(weights, "weights of columns")?;
        Ok(Self { degrees, weights })
    }

    pub(super) fn degree(&self, column: u32) -> u32 {
        self.degrees[column as usize]
    }

    pub(super) fn weight(&self, column: u32) -> u32 {
        self.weights[column as usize]
    }

    /// `Σ w_j` over the columns of a row.
    pub(super) fn sum(&self, row: &[u32]) -> u64 {
        row.iter().map(|&column| u64::from(self.weight(column))).sum()
    }

    /// `Σ w_j` over the columns that two rows share.
    pub(super) fn shared(&self, a: &[u32], b: &[u32]) -> u64 {
        let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
        let mut sum = 0;
        if long.len() / SEARCH_RATIO > short.len() {
            let mut rest = long;
            for &column in short {
                rest = &rest[rest.partition_point(|&other| other < column)..];
                if rest.first() == Some(&column) {
                    sum += u64::from(self.weight(column));
                }
            }
            return sum;
        }
        let (mut i, mut j) = (0, 0);
        while i < short.len() && j < long.len() {
            let (x, y) = (short[i], long[j]);
            if x == y {
                sum += u64::from(self.weight(x));
            }
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
        sum
    }

    /// `Σ_{j ∈ a ∩ b} w_j / Σ_{j ∈ a ∪ b} w_j`; 0 if both are empty.
    pub(in super::super) fn similarity(&self, a: &[u32], b: &[u32]) -> f32 {
        jaccard(self.shared(a, b), self.sum(a), self.sum(b))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number, at most 2²⁴")]
fn weight(degree: u32, alpha: f64) -> u32 {
    (ONE * f64::from(degree.max(1)).powf(-alpha)).round().max(1.0) as u32
}

/// The similarity of rows of weights `a` and `b` that share `shared`.
#[expect(clippy::cast_possible_truncation, reason = "32 bits are plenty for a ratio")]
pub(super) fn jaccard(shared: u64, a: u64, b: u64) -> f32 {
    let union = a + b - shared;
    if union == 0 { 0.0 } else { (shared as f64 / union as f64) as f32 }
}

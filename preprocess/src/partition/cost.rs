//! What a product costs on a device.

use serde::{Deserialize, Serialize};
use windrow_formats::WINDOW_ROWS;

use super::Density;

/// Bytes of an element of `C`.
const OUT_BYTES: f64 = 4.0;

/// What a device was measured to do, to predict the time of a product.
///
/// ```text
/// time(path) = factor · √(stream² + gather²) + launch
///
/// rows    stream = (C of its rows + A, and B if there are no tiles) / stream_rate
///         gather = (entries · (W + S · entry_overhead) + rows · row_overhead) / gather_rate
/// tiles   stream = (C of its rows + A + B) / stream_rate
///         gather = (columns · W + steps · S · step_overhead) / gather_rate
/// ```
///
/// with `W` the bytes of a row of `B`, read in `S = ⌈W / slice_bytes⌉` slices. The two addends are the traffic of
/// the memory and of the L2 cache. They overlap, but not wholly: measured times lie between the larger of the two and
/// their sum. Rows without entries are written with the tiles, if there are any: eight of them are a window of one
/// step without columns, which is counted with the other steps.
///
/// Every field may be replaced by what was measured on the device at hand; rates must be positive.
///
/// # Examples
/// ```
/// use windrow_preprocess::partition::CostModel;
///
/// let measured = CostModel { gather_rate: 6.1e12, stream_rate: 3.0e12, ..CostModel::h200() };
/// assert!(measured.row_factor > measured.tile_factor);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostModel {
    /// Bytes per second at which rows of `B` are gathered from the L2 cache.
    pub gather_rate: f64,
    /// Bytes per second that a copy moves.
    pub stream_rate: f64,
    /// What the CUDA-core path takes of its bound.
    pub row_factor: f64,
    /// What the Tensor Core path takes of its bound.
    pub tile_factor: f64,
    /// Seconds that one more launch adds to a product.
    pub launch_seconds: f64,
    /// Bytes of a row of `B` that a kernel covers in one pass over `A`.
    pub slice_bytes: u32,
    /// Work beside the gather of each residual entry and slice, in bytes of a gather.
    pub entry_overhead_bytes: f64,
    /// Bytes of a step of tiles, read for each slice.
    pub step_overhead_bytes: f64,
    /// Work beside the gather of each residual row, in bytes of a gather.
    pub row_overhead_bytes: f64,
}

impl CostModel {
    /// The quantities of an NVIDIA H200, for f16.
    ///
    /// Microseconds at n = 128, predicted and measured:
    ///
    /// | matrix | all in the residual | all in tiles |
    /// | --- | --- | --- |
    /// | uniform200k | 144, 138 | 124, 113 |
    /// | roadlike500k | 150, 146 | 129, 126 |
    /// | DD | 111, 103 | 82, 80 |
    /// | `NCI8_balanced` | 214, 207 | 176, 182 |
    /// | fem100k | 191, 114 | 65, 53 |
    /// | Cornell5 | 67, 56 | 56, 42 |
    /// | pubmed | 9, 16 | 8, 7 |
    ///
    /// So it overestimates where neighbours find columns in the L1 cache (fem100k, Cornell5), and does not know the
    /// second launch of rows that are cut (pubmed).
    pub const fn h200() -> Self {
        Self {
            gather_rate: 8.7e12,
            stream_rate: 4.3e12,
            row_factor: 1.3,
            tile_factor: 1.05,
            launch_seconds: 2.5e-6,
            slice_bytes: 256,
            entry_overhead_bytes: 16.0,
            step_overhead_bytes: 368.0,
            row_overhead_bytes: 64.0,
        }
    }

    /// Predicted seconds of the product `shape` if its matrix is divided as `density` says.
    pub fn seconds(&self, density: &Density, shape: ProductShape) -> f64 {
        let [rows, tiles] = self.path_seconds(density, shape);
        rows + tiles
    }

    /// Predicted seconds of the two paths: CUDA cores, and Tensor Cores. 0 for a path without work.
    pub fn path_seconds(&self, density: &Density, shape: ProductShape) -> [f64; 2] {
        let (k, n) = (shape.cols as f64, shape.width as f64);
        let row_bytes = n * shape.element_bytes as f64;
        let slices = (row_bytes / f64::from(self.slice_bytes.max(1))).ceil();
        let out = |rows: f64| rows * n * OUT_BYTES;
        let residual = (density.residual_rows as f64, density.residual_entries as f64);
        let has_tiles = density.steps > 0;
        let all = shape.rows as f64;
        // Windows count as full, so that this is short where they are not: the last, or any by column vectors.
        let both = density.rows_in_both;
        let with_entries =
            (density.residual_rows + WINDOW_ROWS as u64 * density.windows).saturating_sub(both);
        let empty_windows = (shape.rows as u64).saturating_sub(with_entries).div_ceil(WINDOW_ROWS as u64);
        // Rows in both parts are written by the tiles, read by the CUDA cores and written again.
        let (row_rows, tile_rows) = match has_tiles {
            true => (residual.0 + both as f64, all - residual.0 + both as f64),
            false => (all, 0.0),
        };
        let bound = |stream: f64, gather: f64| (stream / self.stream_rate).hypot(gather / self.gather_rate);
        let mut seconds = [0.0; 2];
        if density.residual_rows > 0 {
            let a = residual.1 * (4.0 + shape.element_bytes as f64);
            let b = if has_tiles { 0.0 } else { k * row_bytes };
            let gather = residual.1 * (row_bytes + slices * self.entry_overhead_bytes)
                + residual.0 * self.row_overhead_bytes;
            seconds[0] = self.row_factor * bound(out(row_rows) + a + b, gather) + self.launch_seconds;
        }
        if has_tiles {
            let a = (density.steps + empty_windows) as f64 * self.step_overhead_bytes;
            let gather = density.columns as f64 * row_bytes + slices * a;
            seconds[1] =
                self.tile_factor * bound(out(tile_rows) + a + k * row_bytes, gather) + self.launch_seconds;
        }
        seconds
    }
}

impl Default for CostModel {
    /// [`CostModel::h200`], the one GPU that was measured.
    fn default() -> Self {
        Self::h200()
    }
}

/// The sizes of a product `C[m×n] = A[m×k] · B[k×n]`, `C` in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductShape {
    /// `m`, rows of `A`.
    pub rows: usize,
    /// `k`, columns of `A`.
    pub cols: usize,
    /// `n`, columns of `B`.
    pub width: usize,
    /// Bytes of an element of `B`.
    pub element_bytes: usize,
}

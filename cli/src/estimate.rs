//! Whether a sparse product will pay: lower bounds from the structure alone, no device needed.
//!
//! A sparse product takes at least
//!
//! ```text
//! max( (bytes(A) + bytes(B) + bytes(C)) / copy,  gathered bytes / gather rate )
//! ```
//!
//! where a CUDA-core kernel gathers a row of `B` for each entry, and a Tensor Core kernel one for each column vector
//! (pads of tiles are not read), at a rate that depends on the size of `B` and of its rows. The bound of a precision
//! is that of the kernel that `auto` takes for it: tiles in f16, row-split in f32. A dense product takes at least its
//! floating-point operations at the rate that a dense library reaches, and its bytes at the rate of a copy. The
//! arithmetic of the sparse product never limits.

use serde::Serialize;
use windrow::{Precision, Structure};
use windrow_bench::measure::{DeviceRates, GatherRates};

use crate::failure::Result;

/// Widths that are estimated.
pub(crate) const WIDTHS: [usize; 3] = [32, 128, 512];

/// Sparse pays if the dense bound is above the sparse one by this factor: kernels reach half of the sparse bound
/// or better, dense libraries come closer to theirs.
const PAYS: f64 = 2.0;

/// What a GPU does in a second.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Gpu {
    pub(crate) name: &'static str,
    /// Bytes copied, read and written together, and bytes gathered.
    rates: DeviceRates,
    /// Floating-point operations of a large dense product.
    dense_f16: f64,
    dense_tf32: f64,
    dense_f32: f64,
    dense_f64: f64,
    /// Time that any launch takes, in microseconds.
    launch_us: f64,
}

/// Rows of `B`, in bytes, and sizes of `B` for which an H200's gather rate was measured, and that rate in TB/s.
const GATHER_ROW_BYTES: [f64; 4] = [64.0, 128.0, 256.0, 512.0];
const GATHER: [(f64, [f64; 4]); 8] = [
    (4e6, [8.1, 9.6, 9.7, 10.3]),
    (16e6, [7.8, 8.7, 8.9, 9.3]),
    (32e6, [6.3, 8.3, 8.5, 9.0]),
    (48e6, [5.0, 8.1, 8.4, 8.9]),
    (64e6, [4.2, 6.7, 6.9, 7.4]),
    (96e6, [3.5, 5.8, 5.9, 6.2]),
    (192e6, [3.0, 5.1, 5.1, 5.4]),
    (512e6, [2.7, 4.5, 4.6, 4.8]),
];

impl Gpu {
    /// An H200: measured memory rates; dense rates of about 70 % of the vendor's peak.
    pub(crate) fn h200() -> Result<Self> {
        let sizes = GATHER.iter().map(|line| line.0).collect();
        let rates = GATHER.iter().flat_map(|line| line.1).map(|rate| rate * 1e12).collect();
        let gather = GatherRates::try_new(sizes, GATHER_ROW_BYTES.to_vec(), rates)?;
        Ok(Self {
            name: "NVIDIA H200",
            rates: DeviceRates { copy: 4.3e12, gather },
            dense_f16: 7.0e14,
            dense_tf32: 3.5e14,
            dense_f32: 5.0e13,
            dense_f64: 4.7e13,
            launch_us: 3.0,
        })
    }
}

impl Gpu {
    /// Least microseconds of `C = A·B` with a dense `A` of this size.
    pub(crate) fn dense_us(&self, of: &Structure, width: usize, precision: Precision) -> f64 {
        let (rows, cols, n) = (of.rows as f64, of.cols as f64, width as f64);
        let bytes = f64::from(precision.bytes());
        let moved = (rows * cols + cols * n) * bytes + rows * n * bytes.max(4.0);
        self.dense_bound_us(2.0 * rows * cols * n, moved, precision)
    }

    /// Least microseconds of all elements of `X·Yᵀ`.
    pub(crate) fn dense_sampled_us(&self, of: &Structure, inner: usize, precision: Precision) -> f64 {
        let (rows, cols, k) = (of.rows as f64, of.cols as f64, inner as f64);
        let bytes = f64::from(precision.bytes());
        let moved = (rows + cols) * k * bytes + rows * cols * bytes.max(4.0);
        self.dense_bound_us(2.0 * rows * cols * k, moved, precision)
    }

    fn dense_bound_us(&self, operations: f64, moved: f64, precision: Precision) -> f64 {
        let rate = match precision {
            Precision::F16 | Precision::Bf16 => self.dense_f16,
            Precision::Tf32 => self.dense_tf32,
            Precision::F32 => self.dense_f32,
            Precision::F64 => self.dense_f64,
        };
        (operations / rate).max(moved / self.rates.copy) * 1e6 + self.launch_us
    }
}

/// Least bytes that a gather moves, one sector of the cache.
const SECTOR_BYTES: f64 = 32.0;

/// Device bytes of a tile with dense values in f16: half of a step of `128·2 + 128` bytes.
const DENSE_TILE_BYTES: f64 = (128.0 * 2.0 + 128.0) / 2.0;
/// Device bytes of a tile with packed values, beside these.
const PACKED_TILE_BYTES: f64 = 132.0 / 2.0;

/// Bounds for one width and precision, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Bound {
    pub(crate) width: usize,
    pub(crate) precision: Precision,
    /// By CUDA cores, a gather for each entry.
    pub(crate) row_split_us: f64,
    /// By Tensor Cores, a gather for each column vector; f16 only.
    pub(crate) tile_stream_us: Option<f64>,
    /// As a dense product.
    pub(crate) dense_us: f64,
}

impl Bound {
    /// The bound of the kernel that `auto` takes.
    pub(crate) fn sparse_us(&self) -> f64 {
        self.tile_stream_us.unwrap_or(self.row_split_us)
    }

    /// How much longer the dense product takes.
    pub(crate) fn ratio(&self) -> f64 {
        self.dense_us / self.sparse_us()
    }
}

/// What the bounds say about a sparse product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// No entries, or no rows or columns.
    NothingToMultiply,
    /// Sparse wins at every width and precision looked at.
    Pays,
    /// Sparse wins at some of them, or not by enough to be sure.
    Depends,
    /// Dense wins at every one.
    DoesNotPay,
}

/// Bounds and what follows from them.
#[derive(Debug, Serialize)]
pub(crate) struct Estimate {
    pub(crate) verdict: Verdict,
    pub(crate) gpu: Gpu,
    pub(crate) bounds: Vec<Bound>,
}

impl Estimate {
    /// Bounds for a matrix of this structure.
    pub(crate) fn of(structure: &Structure) -> Result<Self> {
        let gpu = Gpu::h200()?;
        let precisions = [Precision::F16, Precision::F32];
        let bounds: Vec<Bound> = precisions
            .into_iter()
            .flat_map(|precision| WIDTHS.map(|width| bound(structure, width, precision, &gpu)))
            .collect();
        let verdict = if structure.nnz == 0 {
            Verdict::NothingToMultiply
        } else if bounds.iter().all(|bound| bound.ratio() >= PAYS) {
            Verdict::Pays
        } else if bounds.iter().all(|bound| bound.ratio() < 1.0) {
            Verdict::DoesNotPay
        } else {
            Verdict::Depends
        };
        Ok(Self { verdict, gpu, bounds })
    }
}

fn bound(structure: &Structure, width: usize, precision: Precision, gpu: &Gpu) -> Bound {
    let value_bytes = f64::from(precision.bytes());
    let (rows, cols, nnz) = (structure.rows as f64, structure.cols as f64, structure.nnz as f64);
    let n = width as f64;
    let b_bytes = cols * n * value_bytes;
    let operand_bytes = b_bytes + rows * n * 4.0;
    let row_bytes = n * value_bytes;
    let rates = gpu.rates.for_product(structure.cols, row_bytes);
    let time = |a_bytes: f64, gathers: f64| {
        let stream = (a_bytes + operand_bytes) / rates.copy;
        let gather = gathers * row_bytes.max(SECTOR_BYTES) / rates.gather;
        stream.max(gather) * 1e6 + gpu.launch_us
    };
    let row_split_us = time(nnz * (4.0 + value_bytes) + 16.0 * rows, nnz);
    let tiles = structure.tiles as f64;
    let tile_bytes =
        f64::min(tiles * DENSE_TILE_BYTES, tiles * PACKED_TILE_BYTES + structure.nnz as f64 * value_bytes);
    let tile_stream_us =
        (precision == Precision::F16).then(|| time(tile_bytes, structure.column_vectors as f64));
    let dense_rate = if precision == Precision::F16 { gpu.dense_f16 } else { gpu.dense_f32 };
    let arithmetic = 2.0 * rows * cols * n / dense_rate;
    let stream = (rows * cols * value_bytes + operand_bytes) / rates.copy;
    let dense_us = arithmetic.max(stream) * 1e6 + gpu.launch_us;
    Bound { width, precision, row_split_us, tile_stream_us, dense_us }
}

#[cfg(test)]
mod tests {
    use windrow::Csr;

    use super::*;

    /// `rows` rows with an entry every `step` columns.
    fn every(rows: usize, cols: usize, step: usize) -> Structure {
        let row: Vec<u32> = (0..u32::try_from(cols).unwrap()).step_by(step).collect();
        let offsets = (0..=rows).map(|r| (r * row.len()) as u64).collect();
        let columns = row.iter().copied().cycle().take(rows * row.len()).collect::<Vec<_>>();
        let values = vec![1.0f32; columns.len()];
        Structure::of(&Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap())
    }

    #[test]
    fn sparse_pays_where_little_is_stored() {
        assert_eq!(Estimate::of(&every(20_000, 20_000, 4000)).unwrap().verdict, Verdict::Pays);
        assert_eq!(Estimate::of(&every(1024, 1024, 1)).unwrap().verdict, Verdict::DoesNotPay);
        assert_eq!(Estimate::of(&every(0, 10, 1)).unwrap().verdict, Verdict::NothingToMultiply);
        // Two launches of nothing much: neither wins.
        assert_eq!(Estimate::of(&every(8, 8, 4)).unwrap().verdict, Verdict::Depends);
    }

    #[test]
    fn bounds_are_the_formula() {
        // 100 000 gathers of 256 bytes from 25.6 MB at 8.5 TB/s, and the launch.
        let structure = every(10_000, 100_000, 10_000);
        let at = bound(&structure, 128, Precision::F16, &Gpu::h200().unwrap());
        let operands = 100_000.0 * 256.0 + 10_000.0 * 512.0;
        let stream = (100_000.0 * 6.0 + 160_000.0 + operands) / 4.3e6;
        approx::assert_relative_eq!(at.row_split_us, stream + 3.0, max_relative = 1e-12);
        let arithmetic = 2.0 * 1e9 * 128.0 / 7e8;
        let dense = f64::max(arithmetic, (2e9 + operands) / 4.3e6) + 3.0;
        approx::assert_relative_eq!(at.dense_us, dense, max_relative = 1e-10);
    }

    #[test]
    fn gathers_limit_where_rows_are_long() {
        // Two million gathers of 256 bytes from 16 MB, at 8.9 TB/s or what narrower slices reach.
        let at = bound(&every(32_000, 62_500, 1000), 128, Precision::F16, &Gpu::h200().unwrap());
        let gather_us = 32_000.0 * 63.0 * 256.0 / 8.9e6;
        approx::assert_relative_eq!(at.row_split_us - 3.0, gather_us, max_relative = 0.05);
    }

    #[test]
    fn tiles_gather_once_for_a_vector_and_not_for_pads() {
        let gpu = Gpu::h200().unwrap();
        let full = bound(&every(8000, 8000, 50), 512, Precision::F16, &gpu);
        assert!(full.tile_stream_us.unwrap() < full.row_split_us);
        assert_eq!(full.sparse_us(), full.tile_stream_us.unwrap());
        let strict = bound(&every(80, 80, 5), 512, Precision::F32, &gpu);
        assert_eq!((strict.tile_stream_us, strict.sparse_us()), (None, strict.row_split_us));
        // 200 columns fill 25 tiles, 193 leave seven columns of the last one empty.
        let gathering = |columns: usize| {
            let structure = every(8000, 10 * columns, 10);
            assert_eq!((structure.column_vectors, structure.tiles), (1000 * columns as u64, 25_000));
            bound(&structure, 512, Precision::F16, &gpu).tile_stream_us.unwrap() - gpu.launch_us
        };
        let ratio = gathering(193) / gathering(200);
        assert!((ratio - 193.0 / 200.0).abs() < 1e-6, "{ratio}");
    }
}

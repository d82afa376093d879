//! What a dense product by a library costs, and what it can finish: pure arithmetic.

use windrow_kernels::output::OutputType;

use super::PANEL;
use crate::activation::Activation;
use crate::costs::NmDenseCosts;
use crate::nm::model::{Capacity, Instance, Program, Sizes};
use crate::nm::operands::Operands;
use crate::nm::options::ActivationLayout;
use crate::nm::staging::ReadAs;
use crate::num::real;
use crate::options::Precision;

/// Name of the library's function.
pub(super) const FUNCTION: &str = "cublasGemmEx";
/// Bytes that the library works with, on GPUs of compute capability 9.0 or later and on others: as its documentation
/// recommends, and twice that.
const SCRATCH_BYTES: [u64; 2] = [32 << 20, 8 << 20];
/// Rows and columns of the tiles of `C` that a product is thought to be made of.
const TILES: [[u32; 2]; 6] = [[256, 128], [128, 256], [128, 128], [128, 64], [64, 128], [64, 64]];
/// Into how many parts `k` is divided at most, as a power of two.
const MOST_PARTS_LOG2: u32 = 3;
/// Columns that rows of weights are padded to a multiple of, so that runs of them are as long as vectors mostly are.
const PADDING: u32 = 64;

/// A dense product of weights of a size.
#[derive(Debug, Clone, Copy)]
pub(in crate::nm) struct Choice {
    pub(super) precision: Precision,
    /// How activations lie, and are read.
    pub(super) layout: ActivationLayout,
    /// Rows of the weights.
    pub(super) inner: u32,
    /// Columns of a panel: all, padded, if they are few enough for one.
    pub(super) panel: u32,
    scratch_bytes: u64,
}

impl Choice {
    pub(in crate::nm) fn new(
        precision: Precision,
        layout: ActivationLayout,
        sizes: Sizes,
        capacity: Capacity,
    ) -> Self {
        let panel = sizes.n.next_multiple_of(PADDING).clamp(PADDING, PANEL);
        let [recent, older] = SCRATCH_BYTES;
        let scratch_bytes = if capacity.sm >= 90 { recent } else { older };
        Self { precision, layout, inner: sizes.inner, panel, scratch_bytes }
    }

    pub(in crate::nm) fn read_as(&self) -> ReadAs {
        match self.layout {
            ActivationLayout::RowMajor => ReadAs::RowMajor,
            ActivationLayout::KMajor => ReadAs::KMajor,
        }
    }
}

/// Whether the library writes this type, with operands of that precision.
fn writes(precision: Precision, output: OutputType) -> bool {
    match output {
        OutputType::Sums => true,
        OutputType::F16 => precision == Precision::F16,
        OutputType::Bf16 => precision == Precision::Bf16,
    }
}

impl Instance for Choice {
    fn program(&self) -> Program {
        Program::Library { function: FUNCTION }
    }

    /// The library has factors of the product and of what `C` held; 0 times the product is nothing to it, whatever that
    /// is, and so is one without rows of weights.
    fn finishes(&self, run: Option<&Operands>) -> bool {
        run.is_some_and(|run| {
            let is_plain = run.bias == 0 && run.activation == Activation::Identity && !run.gated;
            is_plain && run.alpha != 0.0 && self.inner > 0 && writes(self.precision, run.output)
        })
    }

    fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    fn stages(&self, _: Sizes) -> usize {
        1
    }

    /// The library divides products itself.
    fn most_parts_log2(&self) -> u32 {
        0
    }

    fn cost(&self, sizes: Sizes, capacity: Capacity, _: u32) -> f64 {
        dense_ns(self.precision, sizes, capacity)
    }
}

/// Nanoseconds of a dense product: whole rounds of tiles or their parts, of whichever size is quickest, unless bringing
/// the operands from memory takes longer.
fn dense_ns(precision: Precision, sizes: Sizes, capacity: Capacity) -> f64 {
    let costs = &capacity.dense;
    let times = TILES.iter().flat_map(|&tile| {
        (0..=MOST_PARTS_LOG2).map(move |log2| {
            let parts = 1u64 << log2;
            let [rows, columns] = tile;
            let tiles = u64::from(sizes.m.div_ceil(rows)) * u64::from(sizes.n.div_ceil(columns));
            let rounds = (tiles * parts).div_ceil(u64::from(capacity.multiprocessors).max(1));
            let depth = real(u64::from(sizes.inner).div_ceil(parts));
            let area = f64::from(rows) * f64::from(columns);
            let row = costs.row_ns + 2.0 * area / flop_per_ns(precision, costs);
            real(rounds) * depth * row + capacity.combine_ns(sizes, log2)
        })
    });
    let [m, n, k] = [sizes.m, sizes.n, sizes.inner].map(f64::from);
    let bytes = (m * k + k * n + m * n) * f64::from(precision.bytes());
    let work = times.fold(f64::INFINITY, f64::min) + costs.launch_ns;
    work.max(bytes / costs.memory_bytes_per_ns).max(costs.least_ns)
}

/// Operations of a multiprocessor in a nanosecond.
fn flop_per_ns(precision: Precision, costs: &NmDenseCosts) -> f64 {
    match precision {
        Precision::F16 | Precision::Bf16 => costs.half_flop_per_ns,
        Precision::Tf32 => costs.tf32_flop_per_ns,
        Precision::F32 | Precision::F64 => costs.f32_flop_per_ns,
    }
}

#[cfg(test)]
mod tests {
    use windrow_formats::NmPattern;

    use super::*;
    use crate::costs::DeviceCosts;

    const H200: Capacity = Capacity::new(132, 227 * 1024, 90, &DeviceCosts::H200);

    fn us(precision: Precision, (m, n, inner): (u32, u32, u32)) -> f64 {
        let sizes = Sizes { m, n, inner, pattern: NmPattern::new(2, 4, 1).unwrap() };
        dense_ns(precision, sizes, H200) / 1e3
    }

    /// Microseconds of cuBLAS on an H200, operands warm.
    #[test]
    fn the_model_is_near_to_what_was_measured() {
        for (precision, within, measured) in [
            (
                Precision::F16,
                0.25,
                &[
                    ((1, 4096, 4096), 9.5),
                    ((128, 4096, 4096), 15.1),
                    ((256, 4096, 4096), 18.0),
                    ((512, 512, 512), 8.3),
                    ((512, 2048, 2048), 10.0),
                    ((512, 4096, 4096), 32.1),
                    ((1024, 4096, 4096), 48.3),
                    ((1024, 11_008, 4096), 133.0),
                    ((1024, 4096, 11_008), 122.0),
                    ((2048, 4096, 4096), 93.8),
                    ((4096, 4096, 4096), 179.0),
                    ((4096, 11_008, 4096), 513.0),
                    ((4096, 4096, 11_008), 489.0),
                    ((4096, 12_288, 4096), 557.0),
                    ((8192, 8192, 8192), 1688.0),
                ][..],
            ),
            (
                Precision::Tf32,
                0.25,
                &[
                    ((1024, 2048, 2048), 30.1),
                    ((1024, 4096, 4096), 100.3),
                    ((1024, 4096, 11_008), 236.7),
                    ((2048, 4096, 4096), 174.4),
                    ((4096, 4096, 4096), 345.4),
                    ((4096, 12_288, 4096), 1319.2),
                ],
            ),
            (
                Precision::F32,
                0.125,
                &[
                    ((256, 4096, 4096), 180.5),
                    ((512, 2048, 2048), 97.2),
                    ((1024, 4096, 4096), 669.8),
                    ((1024, 11_008, 4096), 1859.6),
                    ((4096, 4096, 4096), 2681.3),
                    ((4096, 12_288, 4096), 8050.8),
                ],
            ),
        ] {
            for &(shape, took) in measured {
                let ratio = us(precision, shape) / took;
                assert!((1.0 - within..=1.0 + within).contains(&ratio), "{precision} {shape:?}: {ratio:.2}");
            }
        }
        assert_eq!(us(Precision::Bf16, (512, 4096, 4096)), us(Precision::F16, (512, 4096, 4096)));
    }

    #[test]
    fn what_the_library_finishes() {
        let sizes = Sizes { m: 4, n: 70_000, inner: 8, pattern: NmPattern::new(2, 4, 1).unwrap() };
        let choice = Choice::new(Precision::F16, ActivationLayout::KMajor, sizes, H200);
        assert_eq!((choice.panel, choice.scratch_bytes()), (PANEL, 32 << 20));
        assert_eq!(Choice::new(Precision::F16, choice.layout, Sizes { n: 130, ..sizes }, H200).panel, 192);
        let plain = Operands {
            a: 0,
            lda: 8,
            layout: choice.layout,
            reads_vectors: true,
            c: 0,
            ldc: 8,
            output: OutputType::Sums,
            m: 4,
            alpha: 2.0,
            beta: 1.0,
            bias: 0,
            activation: Activation::Identity,
            gated: false,
        };
        let finishes = |run: Operands| choice.finishes(Some(&run));
        assert!(finishes(plain) && finishes(Operands { output: OutputType::F16, ..plain }));
        for other in [
            Operands { output: OutputType::Bf16, ..plain },
            Operands { alpha: 0.0, ..plain },
            Operands { bias: 256, ..plain },
            Operands { activation: Activation::Relu, ..plain },
            Operands { gated: true, ..plain },
        ] {
            assert!(!finishes(other), "{other:?}");
        }
        assert!(!choice.finishes(None) && !Choice { inner: 0, ..choice }.finishes(Some(&plain)));
    }
}

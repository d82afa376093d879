//! Products with N:M weights as dense ones, by a library that is loaded at run time: weights are laid out with zeros
//! where nothing is kept.

mod choice;
#[cfg(all(test, feature = "emulator"))]
mod tests;

use std::sync::Arc;

use windrow_formats::memory::{try_collect, try_filled};
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::NOT_KEPT;

pub(super) use choice::Choice;

use super::algorithm::Weights;
use super::launch::Launch;
use super::model::Instance;
use super::options::{ActivationLayout, NmAlgorithm, NmPacking};
use super::placing::{Arrange, DeviceValues, GivenBits, LaidOut, Placed, Placement, strip};
use super::report::NmReport;
use super::staging::ReadAs;
use crate::cpu::each_chunk;
use crate::device::{DenseLibrary, DenseProduct, DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::{index, narrow};

/// Most columns of a panel, for which there is one call each: what puts values in their places counts them in 16 bits.
const PANEL: u32 = 1 << 15;

/// Weights laid out densely: panels of columns, each with all rows one after another.
pub(super) struct Layout {
    choice: Choice,
    library: Arc<dyn DenseLibrary>,
    /// (panels, rows, columns of a panel)
    weights: LaidOut,
}

impl Layout {
    /// Lays out the weights' values.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        choice: Choice,
        library: Arc<dyn DenseLibrary>,
    ) -> Result<Self, OutOfMemory> {
        let panels = Panels { weights, columns: index(u64::from(choice.panel)) };
        let weights = LaidOut::new(values, &panels)?;
        Ok(Self { choice, library, weights })
    }
}

/// The order of weights in panels of columns.
struct Panels<'a, V> {
    weights: &'a VectorNm<V>,
    /// Columns of a panel.
    columns: usize,
}

impl<V: Sync> Panels<'_, V> {
    /// Rows of all panels.
    fn rows(&self) -> usize {
        self.weights.cols().div_ceil(self.columns.max(1)) * self.weights.rows()
    }

    /// Visits what is kept in the row of a panel: columns of the panel, and the kept row.
    fn each(&self, at: usize, mut visit: impl FnMut(std::ops::Range<usize>, usize)) {
        let (panel, row) = (at / self.weights.rows(), at % self.weights.rows());
        let first = panel * self.columns;
        let end = (first + self.columns).min(self.weights.cols());
        let mut begin = first;
        while begin < end {
            let vector = begin / self.weights.pattern().l();
            let behind = self.weights.vector_columns(vector).end.min(end);
            let mut of_group = self.weights.kept_of_group(row / self.weights.pattern().m());
            if let Some(kept) = of_group.find(|&kept| self.weights.source_row(kept, vector) == row) {
                visit(begin - first..behind - first, kept);
            }
            begin = behind;
        }
    }
}

impl<V: Sync> Arrange for Panels<'_, V> {
    /// Each in its place.
    fn arrange<T: Copy + Default + Send + Sync>(&self, given: &[T]) -> Result<Vec<T>, OutOfMemory> {
        let len = self.rows() * self.columns;
        let mut values = try_filled(len, T::default(), "weights laid out densely")?;
        each_chunk(&mut values, self.columns, &|at, of_row: &mut [T]| {
            let first = at / self.weights.rows() * self.columns;
            self.each(at, |columns, kept| {
                let from = &given[kept * self.weights.cols() + first..];
                of_row[columns.clone()].copy_from_slice(&from[columns]);
            });
        });
        Ok(values)
    }

    /// Which kept value is where.
    fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let strip = strip(self.weights, self.columns);
        let strips = self.columns / strip;
        let mut kept = try_filled(self.rows() * strips, NOT_KEPT, "kept rows")?;
        each_chunk(&mut kept, strips, &|at, of_row: &mut [u32]| {
            self.each(at, |columns, row| {
                of_row[columns.start / strip..columns.end.div_ceil(strip)].fill(narrow(row))
            });
        });
        Ok(Placement {
            given,
            kept,
            places: try_collect((0..self.columns).map(narrow), "places of weights")?,
            others: Vec::new(),
            chunks: self.rows(),
            chunks_per_group: self.weights.rows(),
            group_columns: self.columns,
            strips,
            strip,
            depth: 1,
            before: 0,
            after: 0,
            tail: 0,
            dtype,
        })
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        NmAlgorithm::Dense
    }

    fn read_as(&self) -> ReadAs {
        self.choice.read_as()
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        self.weights.arrays()
    }

    fn upload(&self, Runner { device, .. }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let (weights, placed) = self.weights.upload(device)?;
        Ok(Box::new(DenseNm { choice: self.choice, library: Arc::clone(&self.library), weights, placed }))
    }

    /// All rows at once.
    fn stage(&self) -> [u32; 2] {
        [self.choice.inner; 2]
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        report.packing = NmPacking::Plain;
        "a dense product reads all columns of A".clone_into(&mut report.packing_reason);
    }
}

/// The weights in device memory.
struct DenseNm {
    choice: Choice,
    library: Arc<dyn DenseLibrary>,
    weights: DeviceBuffer<u8>,
    placed: Option<Placed>,
}

impl DenseNm {
    /// Queues the product of a panel whose first column is here.
    ///
    /// # Safety
    /// As for [`Weights::launch`].
    unsafe fn multiply(&self, queue: &dyn Queue, run: &Launch, first: u32) -> Result<(), DeviceError> {
        let Choice { precision, layout, inner, panel, .. } = self.choice;
        let weights_before = u64::from(first) * u64::from(inner) * u64::from(precision.bytes());
        let product = DenseProduct {
            m: run.output.m,
            n: (run.output.n - first).min(panel),
            k: inner,
            precision,
            a: run.a.a.address(),
            lda: run.a.ld,
            a_transposed: layout == ActivationLayout::KMajor,
            b: self.weights.address() + weights_before,
            ldb: panel,
            c: run.output.c.address() + u64::from(first) * u64::from(run.element.bytes(4)),
            ldc: run.output.ldc,
            output: run.element,
            alpha: run.output.alpha.get(),
            beta: run.output.beta.get(),
            scratch: run.scratch,
        };
        // SAFETY: the weights have all rows of all panels, of this precision; the rest is the caller's promise.
        unsafe { self.library.multiply(queue, &product) }
    }
}

impl Weights for DenseNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.weights))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![("weights", self.weights.to_vec()?)])
    }

    fn loads_when_run(&self) -> bool {
        true
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        if self.choice.inner == 0 {
            let bytes = 4 * u64::from(run.output.m) * u64::from(run.output.ldc);
            // SAFETY: without rows of weights sums go to a workspace, which has so many.
            return unsafe { queue.zero(run.output.c.address(), bytes) };
        }
        let columns = run.output.n;
        let mut firsts = (0..columns).step_by(index(u64::from(self.choice.panel)));
        // SAFETY: the caller's promise. Sums in a workspace have columns up to a multiple of four, and so have panels.
        firsts.try_for_each(|first| unsafe { self.multiply(queue, run, first) })
    }
}

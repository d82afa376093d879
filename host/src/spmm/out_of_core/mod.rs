//! Products whose operands are in host memory, through a device that does not hold them: out of core.

mod arrange;
mod blocks;
mod build;
mod engine;
mod host_side;
mod report;
#[cfg(all(test, feature = "emulator"))]
mod tests;

use std::fmt;

use windrow_formats::Value;

pub use report::OutOfCoreReport;

use super::fit::{Fit, narrow_width};
use super::plan::SpmmPlan;
use crate::dense::{DenseMut, MatRef};
use crate::device::{Device, Machine};
use crate::element::{Element, kernel_factor, output_type};
use crate::error::{PlanError, SpmmError};
use crate::options::Precision;
use crate::plan::{factor, operand};
use crate::with_element;
use engine::{Engine, Product};
use host_side::{DenseSink, DenseSource, Sink};
use windrow_kernels::output::OutputType;

/// A plan for products `C[m×n] ← α·A[m×k]·B[k×n] + β·C` with all three matrices in host memory, which may be larger
/// than the memory of the device: out of core.
///
/// Made by [`SpmmBuilder::build_out_of_core`](crate::SpmmBuilder::build_out_of_core). `A` is cut into blocks of rows,
/// as many of which stay on the device as there is room for; `B` into slices of columns. For each slice the other
/// blocks come to the device one after another, are multiplied, and their rows of `C` go back, while the next block
/// comes and the one before goes. So a product takes about as long as the slowest of the three: the bus up, the bus
/// down, and the multiplication. The [report](Self::report) says how many bytes go which way, and what is predicted.
///
/// # Precision
/// As for [`SpmmPlan`]: each block is a plan of its own, and each row of `C` is one block's. Widths of slices may
/// change the order of a sum, and with it the last bits. A `C` of bf16 is rounded on the host.
///
/// # Page-locked memory
/// Rows of `B` and `C` go by way of page-locked memory, to which and from which all threads of rayon's pool copy. Where
/// the operands themselves lie in page-locked memory, in a [`PinnedBuffer`](crate::PinnedBuffer), in PyTorch's
/// (`pin_memory`) or from `cudaHostAlloc`, and have the element types that the device takes, nothing is copied on the
/// host.
///
/// # Examples
/// ```
/// use windrow::{Csr, Dense, DenseRef, Device, Spmm};
///
/// let device = Device::best()?;
/// let a = Csr::<f32>::identity(1000)?;
/// let mut plan = Spmm::builder(&a).width(64).memory_limit(1 << 20).build_out_of_core(&device)?;
/// let b = vec![1.0f32; 1000 * 64];
/// let mut c = Dense::zeros(1000, 64)?;
/// plan.run_host(2.0, DenseRef::packed(&b, 1000, 64)?, 0.0, c.view_mut())?;
/// assert!(c.data().iter().all(|&x: &f32| x == 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OutOfCoreSpmm {
    device: Device,
    body: Body,
    report: OutOfCoreReport,
}

enum Body {
    Cpu(Box<SpmmPlan>),
    Gpu(Box<Engine>),
}

impl OutOfCoreSpmm {
    /// What the plan is, and what goes which way.
    #[must_use]
    pub fn report(&self) -> &OutOfCoreReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// `C ← α·A·B + β·C` for matrices in host memory, of any element types, as
    /// [`SpmmPlan::run_host`]. Returns when `C` is there. Elements of `C` between its columns and its leading dimension
    /// are not touched.
    ///
    /// # Errors
    /// - [`SpmmError::InnerDim`], [`PlanError::OutputShape`] if the sizes do not fit; [`PlanError::Strides`] if `B`
    ///   cannot be read;
    /// - [`PlanError::TooLarge`], [`PlanError::Device`]. What `C` holds then is of no use.
    pub fn run_host<'b, B: Element, C: Element<Sum = B::Sum>>(
        &mut self,
        alpha: B::Sum,
        b: impl TryInto<MatRef<'b, B>, Error: Into<PlanError>>,
        beta: B::Sum,
        c: DenseMut<'_, C>,
    ) -> Result<(), SpmmError> {
        let b = operand(b)?;
        let OutOfCoreReport { rows, cols, precision, .. } = self.report;
        let fit = Fit { device: &self.device, precision, rows, cols };
        fit.check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))?;
        let engine = match &mut self.body {
            Body::Cpu(plan) => return plan.run_host(alpha, b, beta, c),
            Body::Gpu(engine) => engine,
        };
        narrow_width(b.cols())?;
        let Some(machine) = self.device.machine() else { return Ok(()) };
        with_element!(precision, E => run::<E, B, C>(engine, machine, (alpha, b), (beta, c)))
    }
}

/// Runs with operands that fit, for a plan of element type `E`.
fn run<E: Element, B: Element, C: Element<Sum = B::Sum>>(
    engine: &mut Engine,
    machine: &dyn Machine,
    (alpha, b): (B::Sum, MatRef<'_, B>),
    (beta, c): (B::Sum, DenseMut<'_, C>),
) -> Result<(), SpmmError> {
    let (width, source) = (b.cols(), DenseSource::<B, E>::new(machine, b)?);
    let reads_c = beta != <B::Sum as Value>::ZERO;
    // A bf16 result would take a stage on the device; sums of another type than the plan's there are none.
    let narrow = C::PRECISION == Precision::F16 && E::PRECISION != Precision::F64;
    let as_it_is = narrow || C::PRECISION == <E::Sum as Element>::PRECISION;
    let mut sink = DenseSink::<C, E::Sum>::new(machine, c, as_it_is)?;
    let (c_type, c_bytes) = match as_it_is {
        true => (output_type::<C>(), size_of::<C>()),
        false => (OutputType::Sums, size_of::<E::Sum>()),
    };
    let [alpha, beta] = [alpha, beta].map(|x| kernel_factor(factor::<B::Sum, E::Sum>(x)));
    let sink: &mut dyn Sink = &mut sink;
    let c_bytes = c_bytes as u64;
    let mut product = Product { source: &source, sink, alpha, beta, reads_c, c_type, c_bytes, width };
    Ok(engine.run(&mut product)?)
}

impl fmt::Debug for OutOfCoreSpmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfCoreReport { rows, cols, nnz, precision, algorithm, .. } = &self.report;
        write!(
            f,
            "OutOfCoreSpmm({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, on {})",
            self.device
        )
    }
}

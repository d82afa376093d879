//! A product that is ready to run.

use std::fmt;

use windrow_formats::Value;
use windrow_kernels::csr::CsrRecord;

use super::fit::Fit;
use super::gpu::GpuPlan;
use super::report::SpmmReport;
use crate::device::{Device, DeviceBuffer};
use crate::element::{BySum, Element};
use crate::error::SpmmError;
use crate::matrix::DeviceMatrix;
use crate::options::Precision;
use crate::parallelism::GroupLaunch;
use crate::plan::{StageClock, check_device, check_element};

/// What to do about a plan that needs more memory than it may take.
pub(crate) const MEMORY_REMEDY: &str = "raise the limit, lower the width, or choose algorithm row-split";

/// A sparse matrix laid out for products `C[m×n] ← α·A[m×k]·B[k×n] + β·C` on one device.
///
/// Made by [`Spmm::builder`](super::Spmm::builder); runs any number of times, with any width.
///
/// # Precision
/// Values and `B` are rounded to the plan's [`Precision`]; products are summed in f32 and rounded once if `C` is
/// f16 or bf16; a plan of precision f64 sums in f64, and has `u = 2⁻⁵³`. With `u = 2⁻²⁴` (`2⁻²³` where tiles take
/// part), `len` the entries of a row and `γ(t) = t·u / (1 − t·u)`, an element is off by at most
/// `γ(len + 2)·(|α|·Σ|a·b| + |β·c|)`. The order of summation is fixed: running a plan twice, on operands of the same
/// width and alignment, gives the same bits, unless the plan is [`Determinism::Fast`](crate::Determinism::Fast).
///
/// # Not-a-number
/// With β = 0, `C` is not read: what it held does not matter. Rows of `B` that a row of `A` has no entry for do not
/// reach it, whatever they hold.
///
/// # Threads
/// A plan may be run from several threads; the products are done one after the other.
pub struct SpmmPlan {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) nnz: usize,
    pub(super) width: usize,
    pub(super) precision: Precision,
    pub(super) device: Device,
    pub(super) body: Body,
    /// Which of the new values each entry takes, if they come in another order.
    pub(super) value_order: Option<Vec<u32>>,
    pub(super) memory_limit: Option<u64>,
    /// Whether the values were given last by the device, which has counted those that overflowed.
    pub(super) overflow_on_device: bool,
    /// What became of the values that the plan was made with, where nobody has waited for that.
    pub(super) unread: Option<DeviceBuffer<CsrRecord>>,
    pub(super) report: SpmmReport,
}

/// Where the matrix is.
pub(super) enum Body {
    /// Rows for the CPU, in a [`CpuCsr`](crate::cpu::CpuCsr).
    Cpu(BySum),
    Gpu(Box<GpuPlan>),
}

impl SpmmPlan {
    /// What the plan is, what it holds and what it cost to make.
    #[must_use]
    pub fn report(&self) -> &SpmmReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of the values and of `B`.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// `(m, k)`: rows and columns of `A`.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Number of entries of `A`.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Counts what was done before the plan was begun among its stages.
    pub(crate) fn add_stages_before(&mut self, clock: StageClock) {
        self.report.stages.splice(0..0, clock.stages);
    }

    /// The arrays that [`internal::device_arrays`](crate::internal::device_arrays) returns.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
        match &self.body {
            Body::Cpu(_) => Ok(Vec::new()),
            Body::Gpu(plan) => Ok(plan.read_arrays()?),
        }
    }

    /// Does what [`internal::set_group_launch`](crate::internal::set_group_launch) promises.
    pub(crate) fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<bool, SpmmError> {
        let Body::Gpu(plan) = &mut self.body else { return Ok(false) };
        let Some(described) = plan.set_group_launch(launch)? else { return Ok(false) };
        self.report.parallelism = Some(described);
        Ok(true)
    }

    /// What operands must fit.
    pub(super) fn fit(&self) -> Fit<'_> {
        let Self { rows, cols, precision, .. } = *self;
        Fit { device: &self.device, precision, rows, cols }
    }

    /// Device and type of `B`.
    pub(super) fn check_operand<B: Element>(
        &self,
        operand: &'static str,
        b: &DeviceMatrix<B>,
    ) -> Result<(), SpmmError> {
        check_device(operand, b.device(), &self.device)?;
        Ok(check_element::<B>(operand, self.precision)?)
    }

    /// Shapes of `B` and `C`.
    pub(super) fn check_product<B: Value, C: Value>(
        &self,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
    ) -> Result<(), SpmmError> {
        self.fit().check_shapes((b.rows(), b.cols()), (c.rows(), c.cols()))
    }
}

impl fmt::Debug for SpmmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, precision, .. } = self;
        let algorithm = self.report.algorithm;
        write!(f, "SpmmPlan({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, on {})", self.device)
    }
}

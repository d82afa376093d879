//! A plan of products with N:M weights on a machine that runs kernels.

use windrow_formats::VectorNm;
use windrow_kernels::output::OutputType;

use super::kernels::Kernels;
use super::making::Making;
use super::model::{Capacity, Sizes};
use super::operands::Operands;
use super::options::{ActivationLayout, NmOptions};
use super::placing::{DeviceValues, GivenBits};
use super::report::NmReport;
use crate::activation::Activation;
use crate::costs::DeviceCosts;
use crate::device::{DeviceKind, Runner};
use crate::error::{DeviceError, NmError, PlanError};
use crate::num::{index, narrow};
use crate::plan::{Budget, On, StageClock, check_index};

/// Rows of `A` and `C` that kernels can count, and some to spare for tiles that reach beyond.
pub(super) const MAX_ROWS: u64 = 1 << 31;
/// Rows and columns of weights: the slow axis of a grid has 65,535 blocks, of 32 columns or more.
const MAX_WEIGHTS: u64 = 65_535 * 32;

/// What a plan is made of.
pub(super) struct Wanted<'a, V> {
    pub(super) weights: &'a VectorNm<V>,
    pub(super) values: GivenBits<'a>,
    pub(super) options: &'a NmOptions,
    pub(super) costs: &'a DeviceCosts,
}

/// The parts of a plan in device memory.
pub(super) struct GpuNm {
    kernels: Kernels,
    cols: u32,
}

impl GpuNm {
    /// Chooses, lays out and uploads, and notes in the report what was chosen and what it takes.
    ///
    /// # Errors
    /// [`NmError::NoKernel`] for a kernel that there is not for these weights,
    /// [`NmError::NoTensorCores`] if Tensor Cores were asked for and have none, [`NmError::NoLibrary`] if a dense
    /// product was and its library is not there; [`PlanError::TooLarge`],
    /// [`PlanError::MemoryLimit`], [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn build<V: Sync>(
        Wanted { weights, values, options, costs }: Wanted<'_, V>,
        runner: Runner<'_>,
        report: &mut NmReport,
        clock: &mut StageClock,
    ) -> Result<Self, NmError> {
        let of_weights =
            |what, found| check_index(what, found, MAX_WEIGHTS, "divide the weights, or use the CPU");
        let sizes = Sizes {
            m: narrow(options.rows.clamp(1, index(MAX_ROWS))),
            n: of_weights("columns of the weights", weights.cols())?,
            inner: of_weights("rows of the weights", weights.rows())?,
            pattern: weights.pattern(),
        };
        let capacity = capacity(runner, costs);
        let making = Making { weights, values, options, runner, sizes, capacity, report, clock };
        Ok(Self { kernels: making.kernels()?, cols: sizes.n })
    }

    /// Queues `C ← act(α·A·W + β·C + bias)`.
    ///
    /// # Errors
    /// Those of [`Kernels::run`].
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `a` is m × k, or k × m as its layout
    /// says, with at most [`MAX_ROWS`] rows m, all readable to the end of the 16 bytes that their last element is in if
    /// it says so; `c` is m × n with all rows writable up to n, and `bias`, if it is not 0, n f32; nothing else touches
    /// `c` meanwhile, nothing writes `a` or the bias. Where one of them is windrow's memory, `on` says that it shares
    /// memory.
    pub(super) unsafe fn run(
        &self,
        on: &On<'_>,
        operands: Operands,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        // SAFETY: the operands are live and of these shapes, by the caller's promise; the plan checked its own arrays.
        unsafe { self.kernels.run(on, &operands, operands.output_for(self.cols), budget) }
    }
}

impl GpuNm {
    /// Puts new values in the places of the old; whether the plan has what that takes.
    ///
    /// # Errors
    /// [`DeviceError`].
    ///
    /// # Safety
    /// As for [`Kernels::replace`].
    pub(super) unsafe fn replace(&mut self, on: &On<'_>, values: DeviceValues) -> Result<bool, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.kernels.replace(on, values) }
    }

    /// Finite values given last that are infinite; none if they came from the host.
    pub(super) fn overflowed(&self) -> Result<Option<u64>, DeviceError> {
        self.kernels.overflowed()
    }

    /// Name and content of the weights' arrays.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        self.kernels.read_arrays()
    }

    /// Makes and compiles what runs of `m` rows of activations in this layout need on a stream.
    ///
    /// # Errors
    /// Those of [`Kernels::prepare`].
    pub(super) fn prepare(
        &self,
        on: &On<'_>,
        (m, layout): (u32, ActivationLayout),
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        if m == 0 || self.cols == 0 {
            return Ok(());
        }
        let expected = Operands {
            m,
            a: 0,
            lda: m.next_multiple_of(8), // 16 bytes in any precision
            layout,
            reads_vectors: true,
            c: 0,
            ldc: self.cols,
            output: OutputType::default(),
            alpha: 1.0,
            beta: 0.0,
            bias: 0,
            activation: Activation::Identity,
            gated: false,
        };
        self.kernels.prepare(on, &expected, budget)
    }
}

/// What the model takes a machine for.
fn capacity(Runner { device, machine }: Runner<'_>, costs: &DeviceCosts) -> Capacity {
    // Shared memory of a block: 163 KiB on 8.0, 227 KiB on 9.0 and 10.0, 99 KiB on those for desktops. The emulator has
    // what any of them has, so that it runs every instance.
    let (kib, sm) = match (device.kind(), device.compute_capability()) {
        (DeviceKind::Emulator, _) => (227, 90),
        (_, Some((major, minor))) => {
            let kib = match (major, minor) {
                (9 | 10, _) => 227,
                (8, 0) => 163,
                _ => 99,
            };
            (kib, 10 * major + minor)
        }
        (_, None) => (99, 80),
    };
    Capacity::new(machine.multiprocessors(), kib * 1024, sm, costs)
}

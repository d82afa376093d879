//! The kernels of a plan: an instance, the weights that were laid out for it, and what its runs share.

use std::sync::atomic::{AtomicU64, Ordering};

use windrow_kernels::output::Output;

use super::algorithm::{Layout, Weights};
use super::launch::Launch;
use super::model::{Capacity, Sizes};
use super::operands::Operands;
use super::parts::Shared;
use super::placing::DeviceValues;
use super::staging::{Bringing, Staging};
use super::workspace::{Need, Workspace};
use crate::device::{Device, Queue, Runner};
use crate::error::{DeviceError, PlanError};
use crate::plan::{Budget, OfStream, On, PREPARE, PerStream, WORKSPACE_REMEDY};

/// How activations come to an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    pub(super) bringing: Bringing,
    /// Bytes that runs may take beyond those of the plan, if its memory is limited.
    pub(super) spare: Option<u64>,
}

/// An instance with its weights in device memory, and what runs share.
pub(super) struct Kernels {
    weights: Box<dyn Weights>,
    /// Those that the plan was made for, and into how many parts their product is best divided, as a power of two: most
    /// runs are of these, and need not ask the model.
    sizes: Sizes,
    parts_log2: u32,
    capacity: Capacity,
    shared: Shared,
    device: Device,
    /// What the runs of the plan's own size need, which every stream's workspace has room for.
    need: Need,
    spaces: PerStream<Workspace>,
    /// Bytes of workspaces of other streams than the device's own.
    extra: AtomicU64,
}

impl Kernels {
    /// Puts new values in the places of the old, in the order of a stream; whether the plan has what that takes.
    ///
    /// # Errors
    /// [`DeviceError`].
    ///
    /// # Safety
    /// `values` are live memory until the work is done, one for each kept row and column, which nothing writes
    /// meanwhile.
    pub(super) unsafe fn replace(&mut self, on: &On<'_>, values: DeviceValues) -> Result<bool, DeviceError> {
        let Some((placed, weights)) = self.weights.placed() else { return Ok(false) };
        // SAFETY: the caller's promise; the places are those of this layout.
        self.spaces.write(on, [placed.entry()?], || unsafe { placed.place(on.queue, values, weights) })?;
        Ok(true)
    }

    /// Finite values given last that are infinite; none if they came from the host.
    pub(super) fn overflowed(&self) -> Result<Option<u64>, DeviceError> {
        self.weights.placed().map(|(placed, _)| placed.overflowed()).transpose()
    }

    /// Name and content of the weights' arrays.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        self.weights.read_arrays()
    }

    /// Uploads weights, and reserves what runs share.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(
        runner: Runner<'_>,
        laid: &dyn Layout,
        sizes: Sizes,
        capacity: Capacity,
        Staged { bringing, spare }: Staged,
    ) -> Result<Self, DeviceError> {
        let parts_log2 = laid.instance().parts_log2(sizes, capacity);
        let partial = Shared::partial_elements(sizes, parts_log2);
        let need = Need { staged: bringing.bytes(sizes.m).div_ceil(4), partial };
        let own = Workspace::new(runner.device, need)?;
        let shared = Shared::new(Staging::new(bringing)?, partial, spare.map(|bytes| bytes / 4))?;
        let weights = laid.upload(runner)?;
        let (device, spaces, extra) = (runner.device.clone(), PerStream::new(own), AtomicU64::new(0));
        Ok(Self { weights, sizes, parts_log2, capacity, shared, device, need, spaces, extra })
    }

    /// Entry points that a run of as many rows as the plan was made for launches, if its activations are packed.
    pub(super) fn entries(&self) -> Vec<&'static str> {
        self.shared.expected(self.sizes.m, self.weights.instance().entry(), self.parts_log2)
    }

    /// Into how many parts, a power of two, a product of these sizes is divided.
    fn parts_log2(&self, sizes: Sizes) -> u32 {
        let best = match sizes.m == self.sizes.m {
            true => self.parts_log2,
            false => self.weights.instance().parts_log2(sizes, self.capacity),
        };
        self.shared.affordable(sizes, best)
    }

    /// Queues `C ← act(α·A·W + β·C + bias)`; `output` is the operands' side of `C`.
    ///
    /// # Errors
    /// - [`PlanError::TooLarge`] for activations of 64 GiB, or rows of 4 GiB of k-major ones;
    /// - [`PlanError::MemoryLimit`] if there is no room for the stream's workspace;
    /// - [`DeviceError::Captured`] for what cannot be part of a graph; those of the device.
    ///
    /// # Safety
    /// As for [`GpuNm::run`](super::gpu::GpuNm::run).
    pub(super) unsafe fn run(
        &self,
        on: &On<'_>,
        operands: &Operands,
        output: Output,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        let sizes = Sizes { m: operands.m, ..self.sizes };
        if sizes.m == 0 || sizes.n == 0 {
            return Ok(());
        }
        let parts_log2 = self.parts_log2(sizes);
        let need = self.shared.need(operands, sizes, parts_log2)?;
        let complete =
            |space: &mut OfStream<Workspace>, captured: bool| match (captured, space.held.has(need)) {
                (true, false) => {
                    Err(DeviceError::Captured { what: "the making of a workspace", remedy: PREPARE }.into())
                }
                (true, true) => {
                    let kernel = self.weights.instance().entry();
                    Ok(on.check_loaded(self.shared.entries(operands, kernel, parts_log2))?)
                }
                (false, true) => Ok(()),
                (false, false) => self.enlarge(on, space, need),
            };
        // SAFETY: the caller's promise; the workspace has what the product needs, and is lent for this run.
        let queue = |queue: &dyn Queue, space: &mut Workspace| unsafe {
            self.queue_run(queue, (operands, output), parts_log2, space)
        };
        self.spaces.run(on, |left| self.make_space(left, budget), complete, queue)
    }

    /// Makes and compiles what runs of `m` rows need on a stream, and waits until it is there. Activations that are
    /// k-major are expected to be aligned.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(super) fn prepare(
        &self,
        on: &On<'_>,
        expected: &Operands,
        budget: Budget<'_>,
    ) -> Result<(), PlanError> {
        let sizes = Sizes { m: expected.m, ..self.sizes };
        let parts_log2 = self.parts_log2(sizes);
        let need = self.shared.need(expected, sizes, parts_log2)?;
        let complete = |space: &mut OfStream<Workspace>| {
            let kernel = self.weights.instance().entry();
            for reads_vectors in [false, true] {
                let operands = Operands { reads_vectors, ..*expected };
                for entry in self.shared.entries(&operands, kernel, parts_log2) {
                    on.machine.load(entry)?;
                }
            }
            if space.held.has(need) { Ok(()) } else { self.enlarge(on, space, need) }
        };
        self.spaces.prepare(on, |left| self.make_space(left, budget), complete)
    }

    /// Makes a stream's workspace large enough, and counts it.
    fn enlarge(&self, on: &On<'_>, space: &mut OfStream<Workspace>, need: Need) -> Result<(), PlanError> {
        let before = space.held.bytes();
        let reserved = space.held.reserve(need);
        space.was_written(); // memory comes in the order of the own stream
        if !on.is_own {
            self.extra.fetch_sub(before, Ordering::Relaxed);
            self.extra.fetch_add(space.held.bytes(), Ordering::Relaxed);
        }
        Ok(reserved?)
    }

    /// A workspace for another stream, after those of streams that are gone.
    fn make_space(
        &self,
        left: &mut dyn Iterator<Item = Workspace>,
        budget: Budget<'_>,
    ) -> Result<Workspace, PlanError> {
        for over in left {
            self.extra.fetch_sub(over.bytes(), Ordering::Relaxed);
        }
        budget.check(&self.extra, &self.need.sizes(), WORKSPACE_REMEDY)?;
        let space = Workspace::new(&self.device, self.need)?;
        self.extra.fetch_add(space.bytes(), Ordering::Relaxed);
        Ok(space)
    }

    /// Queues all launches of a run that has rows and columns.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with a workspace that has what it needs; no other run uses that until all of this one
    /// is queued.
    unsafe fn queue_run(
        &self,
        queue: &dyn Queue,
        (operands, output): (&Operands, Output),
        parts_log2: u32,
        space: &Workspace,
    ) -> Result<(), DeviceError> {
        // SAFETY: activations are the caller's promise. Brought ones are aligned and readable up to their leading
        // dimension; what the plan owns is freed after the machine's work, and the lock keeps other runs off what they
        // share.
        unsafe {
            let a = self.shared.bring(queue, operands, space)?;
            let (of_kernel, part_elements) = Shared::output(output, parts_log2, space);
            let launch = Launch { a, output: of_kernel, part_elements, parts_log2 };
            self.weights.launch(queue, &launch)?;
            self.shared.combine(queue, output, (part_elements, parts_log2), space)
        }
    }
}

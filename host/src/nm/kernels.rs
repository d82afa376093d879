//! The kernels of a plan: an instance, the weights that were laid out for it, and what its runs share.

use std::sync::atomic::{AtomicU64, Ordering};

use windrow_kernels::output::{Output, OutputType};

use super::algorithm::{Layout, Weights};
use super::launch::Launch;
use super::model::{Capacity, Instance, Sizes, Sums};
use super::operands::Operands;
use super::parts::Shared;
use super::placing::DeviceValues;
use super::staging::{Bringing, Staging};
use super::workspace::{Need, Workspace};
use crate::activation::Activation;
use crate::device::{Device, DeviceBuffer, Queue, Runner};
use crate::error::{DeviceError, PlanError};
use crate::num::index;
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
    bringing: Bringing,
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
        let instance = laid.instance();
        let parts_log2 = instance.parts_log2(sizes, capacity);
        let partial = Shared::partial_elements(sizes, Sums::of(parts_log2, instance.finishes(None)));
        let staged = bringing.bytes(sizes.m).div_ceil(4);
        let need = Need { staged, partial, scratch: instance.scratch_bytes() };
        let own = Workspace::new(runner.device, need)?;
        let shared = Shared::new(Staging::new(bringing)?, partial, spare.map(|bytes| bytes / 4))?;
        let weights = laid.upload(runner)?;
        let (device, spaces, extra) = (runner.device.clone(), PerStream::new(own), AtomicU64::new(0));
        Ok(Self { weights, sizes, parts_log2, capacity, bringing, shared, device, need, spaces, extra })
    }

    fn instance(&self) -> &dyn Instance {
        self.weights.instance()
    }

    /// Entry points that a run of as many rows as the plan was made for launches, if its activations are packed and
    /// nothing but the product goes to a `C` of f32.
    pub(super) fn entries(&self) -> Vec<&'static str> {
        let sums = Sums::of(self.parts_log2, true);
        self.shared.expected(self.sizes.m, self.instance().program().entry(), sums)
    }

    /// Where the sums of a product of these sizes go: in as many parts as are best, if there is memory, and finished if
    /// the program does what the operands of the run ask, or what any may ask if there are none.
    fn sums(&self, sizes: Sizes, run: Option<&Operands>) -> Sums {
        let best = match sizes.m == self.sizes.m {
            true => self.parts_log2,
            false => self.instance().parts_log2(sizes, self.capacity),
        };
        Sums::of(self.shared.affordable(sizes, best), self.instance().finishes(run))
    }

    /// The memory of a run.
    ///
    /// # Errors
    /// Those of [`Shared::need`].
    fn need(&self, operands: &Operands, sizes: Sizes, sums: Sums) -> Result<Need, PlanError> {
        let scratch = self.instance().scratch_bytes();
        Ok(Need { scratch, ..self.shared.need(operands, sizes, sums)? })
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
        let sums = self.sums(sizes, Some(operands));
        let need = self.need(operands, sizes, sums)?;
        let complete =
            |space: &mut OfStream<Workspace>, captured: bool| match (captured, space.held.has(need)) {
                (true, false) => {
                    Err(DeviceError::Captured { what: "the making of a workspace", remedy: PREPARE }.into())
                }
                (true, true) => {
                    let kernel = self.instance().program().entry();
                    Ok(on.check_loaded(self.shared.entries(operands, kernel, sums))?)
                }
                (false, true) => Ok(()),
                (false, false) => self.enlarge(on, space, need),
            };
        // SAFETY: the caller's promise; the workspace has what the product needs, and is lent for this run.
        let queue = |queue: &dyn Queue, space: &mut Workspace| unsafe {
            self.queue_run(queue, (operands, output), sums, space)
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
        let sums = self.sums(sizes, None);
        let need = self.need(expected, sizes, sums)?;
        let complete = |space: &mut OfStream<Workspace>| {
            let kernel = self.instance().program().entry();
            for reads_vectors in [false, true] {
                let operands = Operands { reads_vectors, ..*expected };
                for entry in self.shared.entries(&operands, kernel, sums) {
                    on.machine.load(entry)?;
                }
            }
            if space.held.has(need) { Ok(()) } else { self.enlarge(on, space, need) }
        };
        self.spaces.prepare(on, |left| self.make_space(left, budget), complete)?;
        if self.weights.loads_when_run() { self.rehearse(on, expected, budget) } else { Ok(()) }
    }

    /// Runs a product of zeros, so that what a library loads for one of this size is there; none where memory for it is
    /// short.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    fn rehearse(&self, on: &On<'_>, expected: &Operands, budget: Budget<'_>) -> Result<(), PlanError> {
        let (m, n, bringing) = (expected.m, self.sizes.n, self.bringing);
        let made = || {
            let (lda, rows) = bringing.shape(m);
            let a_bytes = u64::from(lda) * u64::from(rows) * u64::from(bringing.precision.bytes());
            let a = DeviceBuffer::<u8>::zeroed(&self.device, index(a_bytes), "A of a rehearsal")?;
            let c_elements = u64::from(m) * u64::from(n);
            let c = DeviceBuffer::<f32>::alloc(&self.device, index(c_elements), "C of a rehearsal")?;
            Ok::<_, DeviceError>((lda, a, c))
        };
        let (lda, a, c) = match made().map_err(PlanError::from) {
            Err(error) if error.lacks_room() => return Ok(()),
            made => made?,
        };
        let on = On { shares: true, ..*on };
        let plain = Operands { a: a.address(), lda, c: c.address(), ldc: n, ..*expected };
        // Finished by the program in any type, and by another launch.
        let outputs = [OutputType::Sums, OutputType::F16, OutputType::Bf16];
        let fused = Operands { activation: Activation::Relu, ..plain };
        for operands in outputs.map(|output| Operands { output, ..plain }).into_iter().chain([fused]) {
            // SAFETY: the operands have these shapes, and are freed after the work.
            unsafe { self.run(&on, &operands, operands.output_for(n), budget)? };
        }
        Ok(on.queue.synchronize()?)
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
        sums: Sums,
        space: &Workspace,
    ) -> Result<(), DeviceError> {
        // SAFETY: activations are the caller's promise. Brought ones are aligned and readable up to their leading
        // dimension; what the plan owns is freed after the machine's work, and the lock keeps other runs off what they
        // share.
        unsafe {
            let a = self.shared.bring(queue, operands, space)?;
            let (of_program, part_elements) = Shared::output(output, sums, space);
            let (parts_log2, scratch) = (sums.parts_log2(), space.scratch());
            let element = if sums == Sums::Finished { operands.output } else { OutputType::Sums };
            let launch = Launch { a, output: of_program, element, part_elements, parts_log2, scratch };
            self.weights.launch(queue, &launch)?;
            self.shared.finish(queue, output, (part_elements, sums), space)
        }
    }
}

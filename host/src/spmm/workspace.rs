//! Workspaces of streams in a caller's memory.

use std::sync::atomic::Ordering;

use super::plan::{Body, SpmmPlan};
use crate::device::Stream;
use crate::error::SpmmError;
use crate::plan::{On, check_device};
use crate::view::DeviceSliceMut;

impl SpmmPlan {
    /// Bytes of device memory that windrow holds for the plan now: those of the report, and what runs have made since
    /// on other streams and for other results. It grows with streams and kinds of results, not with runs.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        let made_since = match &self.body {
            Body::Cpu(_) => 0,
            Body::Gpu(plan) => plan.extra.load(Ordering::Relaxed),
        };
        self.report.device_bytes + made_since
    }

    /// Bytes of scratch memory that runs on one stream use, for [`set_workspace`](Self::set_workspace): those with a
    /// bias, an activation or a `C` of bf16 if `staged`, else those without. They do not depend on the width of a run;
    /// 0 where none is needed, as on the CPU.
    #[must_use]
    pub fn workspace_bytes(&self, staged: bool) -> u64 {
        match &self.body {
            Body::Cpu(_) => 0,
            Body::Gpu(plan) => plan.workspace_bytes(staged),
        }
    }

    /// Has runs on a stream use this memory as their workspace, in the place of windrow's, which is freed: for programs
    /// whose memory one allocator is to own. It is set to zero in the order of the stream. With as many bytes as
    /// [staged](Self::workspace_bytes) runs use there is a stage in it, too; windrow then has a list of 16 bytes for
    /// each row of `C`, and else makes the stage itself when one is needed.
    ///
    /// What the report says of memory stays; so does what is checked against the plan's limit. Where the plan needs no
    /// workspace the memory is not used.
    ///
    /// # Errors
    /// - [`PlanError::Workspace`](crate::PlanError::Workspace) for fewer bytes than [`workspace_bytes(false)`], or an
    ///   address that is no multiple of 256;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for memory or a stream of another device;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Spmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(1).build(&device)?;
    /// let stream = Stream::new(&device)?;
    /// let mut scratch = DeviceBuffer::<u8>::alloc_zeroed(&device, plan.workspace_bytes(false).try_into()?)?;
    /// // SAFETY: it is used for nothing else, and dropped after the plan.
    /// unsafe { plan.set_workspace(&stream, &mut scratch)? };
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [1.0, 2.0]);
    /// drop(plan);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// Until the plan is dropped, or has been given another workspace for the stream, and the work that was queued
    /// before, launches of graphs included, is done: the memory is allocated, and nothing else uses it.
    ///
    /// [`workspace_bytes(false)`]: Self::workspace_bytes
    pub unsafe fn set_workspace<'a>(
        &self,
        on: &Stream,
        memory: impl Into<DeviceSliceMut<'a, u8>>,
    ) -> Result<(), SpmmError> {
        let memory = memory.into();
        check_device("the stream", on.device(), &self.device)?;
        check_device("the workspace", memory.device(), &self.device)?;
        match &self.body {
            Body::Cpu(_) => Ok(()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, memory.as_slice().is_owned())?;
                // SAFETY: the caller's promise.
                unsafe { plan.set_workspace(&on, &memory)? };
                Ok(())
            }
        }
    }
}

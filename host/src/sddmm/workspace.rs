//! What runs on a stream need before they come: kernels, and workspaces in a caller's memory.

use super::plan::{Body, SddmmPlan};
use crate::device::Stream;
use crate::element::{Element, is_narrow};
use crate::error::SddmmError;
use crate::plan::{MAX_INDEX, On, check_device, check_index};
use crate::view::DeviceSliceMut;

impl SddmmPlan {
    /// Makes and compiles what runs of this inner dimension on a stream, with results of elements `O`, would else make
    /// when they first come: for runs that are to be captured into a graph, or timed. Waits until the plan's values and
    /// what was made are there. Nothing is left to do on the CPU.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`PlanError::TooLarge`](crate::PlanError::TooLarge) for an inner dimension of about 2³² or more;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured already.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Sddmm, Stream, f16};
    ///
    /// let device = Device::best()?;
    /// let plan = Sddmm::builder(&Csr::<f32>::identity(2)?).inner(64).build(&device)?;
    /// plan.prepare_on::<f16>(&Stream::new(&device)?, 64)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_on<O: Element>(&self, on: &Stream, inner: usize) -> Result<(), SddmmError> {
        check_device("the stream", on.device(), &self.device)?;
        match &self.body {
            Body::Cpu(_) => Ok(()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, false)?;
                let remedy = "add up products of parts of the columns";
                let inner = check_index("columns of X and Y", inner, MAX_INDEX, remedy)?;
                let narrow = is_narrow::<O>().then_some(O::PRECISION);
                Ok(plan.prepare(&on, inner, narrow, &self.report.arrays)?)
            }
        }
    }

    /// Bytes of scratch memory that runs on one stream use whose results are of 16 bits, for
    /// [`set_workspace`](Self::set_workspace): an f32 for each entry. Others use none, and nor does the CPU.
    #[must_use]
    pub fn workspace_bytes(&self) -> u64 {
        match &self.body {
            Body::Cpu(_) => 0,
            Body::Gpu(plan) => plan.workspace_bytes(),
        }
    }

    /// Has runs on a stream use this memory as their workspace, in the place of windrow's, which is freed: for programs
    /// whose memory one allocator is to own.
    ///
    /// # Errors
    /// - [`PlanError::Workspace`](crate::PlanError::Workspace) for fewer bytes than
    ///   [`workspace_bytes`](Self::workspace_bytes), or an address that is no multiple of 256;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for memory or a stream of another device;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) if the stream is captured.
    ///
    /// # Safety
    /// As for [`SpmmPlan::set_workspace`](crate::SpmmPlan::set_workspace).
    pub unsafe fn set_workspace<'a>(
        &self,
        on: &Stream,
        memory: impl Into<DeviceSliceMut<'a, u8>>,
    ) -> Result<(), SddmmError> {
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

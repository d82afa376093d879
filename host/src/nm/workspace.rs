//! Memory that the runs of a plan on one stream share.

use bytemuck::Pod;
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, wide};
use crate::plan::{ArraySize, push};

/// What a run needs: words of activations that are brought, f32 of partial sums, and bytes that a library works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) staged: u64,
    pub(super) partial: u64,
    pub(super) scratch: u64,
}

impl Need {
    /// Names and bytes of the arrays.
    pub(super) fn sizes(self) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "staged_a", self.staged.saturating_mul(4));
        push(&mut sizes, "partial", self.partial.saturating_mul(4));
        push(&mut sizes, "library", self.scratch);
        sizes
    }
}

/// Device memory that grows with what runs need, and stays.
///
/// Whoever queues work that uses it holds a lock until all of that work is queued: a stream's work is ordered, so no
/// run sees what another leaves. Memory is freed after the work that uses it.
pub(super) struct Workspace {
    device: Device,
    staged: DeviceBuffer<u32>,
    partial: DeviceBuffer<f32>,
    scratch: DeviceBuffer<u8>,
}

impl Workspace {
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn new(device: &Device, need: Need) -> Result<Self, DeviceError> {
        Ok(Self {
            device: device.clone(),
            staged: DeviceBuffer::alloc(device, index(need.staged), STAGED)?,
            partial: DeviceBuffer::alloc(device, index(need.partial), PARTIAL)?,
            scratch: DeviceBuffer::alloc(device, index(need.scratch), SCRATCH)?,
        })
    }

    /// Whether it has what a run needs.
    pub(super) fn has(&self, need: Need) -> bool {
        need.staged <= wide(self.staged.len())
            && need.partial <= wide(self.partial.len())
            && need.scratch <= wide(self.scratch.len())
    }

    /// Makes it large enough; what it held is gone.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn reserve(&mut self, need: Need) -> Result<(), DeviceError> {
        grow(&self.device, &mut self.staged, need.staged, STAGED)?;
        grow(&self.device, &mut self.partial, need.partial, PARTIAL)?;
        grow(&self.device, &mut self.scratch, need.scratch, SCRATCH)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.staged.bytes() + self.partial.bytes() + self.scratch.bytes()
    }

    /// Activations that were brought.
    pub(super) fn staged(&self) -> GlobalPtr<u32> {
        self.staged.pointer()
    }

    /// Sums of the parts of a product.
    pub(super) fn partial(&self) -> GlobalPtr<f32> {
        self.partial.pointer()
    }

    /// Address and bytes of what a library works with.
    pub(super) fn scratch(&self) -> (u64, u64) {
        (self.scratch.address(), self.scratch.bytes())
    }
}

const STAGED: &str = "staged activations";
const PARTIAL: &str = "partial sums";
const SCRATCH: &str = "the workspace of a library";

fn grow<T: Pod>(
    device: &Device,
    buffer: &mut DeviceBuffer<T>,
    len: u64,
    name: &'static str,
) -> Result<(), DeviceError> {
    if wide(buffer.len()) < len {
        *buffer = DeviceBuffer::alloc(device, 0, name)?; // both may not fit
        *buffer = DeviceBuffer::alloc(device, index(len), name)?;
    }
    Ok(())
}

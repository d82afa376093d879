//! Memory of a workspace: windrow's, or a caller's.

use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::view::DeviceSliceMut;

/// What a caller's memory begins at a multiple of, in bytes, and each part of it.
const ALIGN: u64 = 256;

/// A part of a workspace.
pub(crate) enum WorkspaceMemory {
    Owned(DeviceBuffer<u8>),
    /// A caller's, who promised that it lives and is used by nothing else.
    Lent {
        address: u64,
        bytes: u64,
    },
}

impl WorkspaceMemory {
    /// windrow's memory, all zero.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(crate) fn zeroed(device: &Device, bytes: usize, what: &'static str) -> Result<Self, DeviceError> {
        DeviceBuffer::zeroed(device, bytes, what).map(Self::Owned)
    }

    /// windrow's memory, of any content.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(crate) fn alloc(device: &Device, bytes: usize, what: &'static str) -> Result<Self, DeviceError> {
        DeviceBuffer::alloc(device, bytes, what).map(Self::Owned)
    }

    pub(crate) fn pointer(&self) -> GlobalPtr<u32> {
        match self {
            Self::Owned(buffer) => buffer.pointer().cast(),
            Self::Lent { address, .. } => GlobalPtr::from_address(*address),
        }
    }

    /// Bytes that windrow allocated.
    pub(crate) fn owned_bytes(&self) -> u64 {
        match self {
            Self::Owned(buffer) => buffer.bytes(),
            Self::Lent { .. } => 0,
        }
    }

    /// Sets all bytes to zero, in the order of a queue of its device.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn clear_in(&self, queue: &dyn Queue) -> Result<(), DeviceError> {
        match self {
            Self::Owned(buffer) => buffer.clear_in(queue),
            Self::Lent { bytes: 0, .. } => Ok(()),
            // SAFETY: who lent it promised that it lives and is used by nothing else.
            Self::Lent { address, bytes } => unsafe { queue.zero(*address, *bytes) },
        }
    }

    /// The bytes, for tests.
    #[cfg(all(test, feature = "emulator"))]
    pub(crate) fn to_vec(&self) -> Result<Vec<u8>, DeviceError> {
        match self {
            Self::Owned(buffer) => buffer.to_vec(),
            Self::Lent { .. } => Ok(Vec::new()),
        }
    }
}

/// The workspace that a stream which is gone has left, or a new one.
///
/// # Errors
/// Those of `make`.
pub(crate) fn taken_over<S>(
    left: &mut dyn Iterator<Item = Option<S>>,
    make: impl FnOnce() -> Result<Option<S>, DeviceError>,
) -> Result<Option<S>, PlanError> {
    match left.flatten().next() {
        Some(over) => Ok(Some(over)),
        None => Ok(make()?),
    }
}

/// A caller's memory for a workspace, part after part.
pub(crate) struct LentMemory {
    at: u64,
    end: u64,
}

/// Bytes of a workspace of parts with so many bytes.
pub(crate) fn workspace_bytes(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().map(|bytes| bytes.next_multiple_of(ALIGN)).sum()
}

impl LentMemory {
    /// `memory` for a workspace that has `needed` bytes at least.
    ///
    /// # Errors
    /// [`PlanError::Workspace`] for memory that is too small, or begins at an odd place.
    ///
    /// # Safety
    /// The memory lives, and nothing else uses it, until what is made of it is dropped and the work with it is done.
    pub(crate) unsafe fn new(memory: &DeviceSliceMut<'_, u8>, needed: u64) -> Result<Self, PlanError> {
        let (address, found) = (memory.address(), wide(memory.len()));
        if needed > 0 && !address.is_multiple_of(ALIGN) || found < needed {
            return Err(PlanError::Workspace { address, found, needed, align: ALIGN });
        }
        Ok(Self { at: address, end: address + found })
    }

    /// The next part, if there is room for it.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<WorkspaceMemory> {
        let address = self.at;
        let end = address.checked_add(bytes.next_multiple_of(ALIGN)).filter(|&end| end <= self.end)?;
        self.at = end;
        Some(WorkspaceMemory::Lent { address, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_at_multiples() {
        assert_eq!((workspace_bytes([1, 256, 0, 257]), workspace_bytes([])), (1024, 0));
        let device = Device::cpu();
        let mut buffer = DeviceBuffer::<u8>::alloc_zeroed(&device, 1300).unwrap();
        let skip = buffer.address().next_multiple_of(256) - buffer.address();
        let _ = &mut buffer;
        // SAFETY: within the buffer, which is not touched.
        let memory = |at: u64, len| unsafe {
            DeviceSliceMut::<u8>::from_raw(&device, buffer.address() + at, len).unwrap()
        };
        // SAFETY: as above.
        let lent = |memory: &DeviceSliceMut<'_, u8>, needed| unsafe { LentMemory::new(memory, needed) };
        let mut parts = lent(&memory(skip, 1024), 700).unwrap();
        let mut next =
            |bytes| parts.take(bytes).map(|part| part.pointer().address() - buffer.address() - skip);
        assert_eq!(
            [next(1), next(257), next(0), next(257), next(256), next(1)],
            [Some(0), Some(256), Some(768), None, Some(768), None]
        );
        let refused = |memory: &DeviceSliceMut<'_, u8>, needed| lent(memory, needed).map(|_| ()).unwrap_err();
        let error = refused(&memory(skip, 699), 700);
        let address = buffer.address() + skip;
        assert_eq!(error, PlanError::Workspace { address, found: 699, needed: 700, align: 256 });
        assert!(error.to_string().contains("has 699 bytes"), "{error}");
        assert!(matches!(refused(&memory(skip + 16, 900), 700), PlanError::Workspace { found: 900, .. }));
    }
}

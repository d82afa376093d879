//! Where the arrays of a layout go.

use std::cell::RefCell;
use std::sync::Arc;

use bytemuck::Pod;

use super::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, wide};

/// Where arrays begin in a block, in bytes: as allocations do on a GPU.
const ALIGN: u64 = 256;

/// Memory for the arrays of a layout.
#[derive(Clone, Copy)]
pub(crate) enum ArrayMemory<'a> {
    /// An allocation for each, filled at once.
    Own(&'a Device),
    /// One after another in a block that is filled later.
    Block(&'a BlockLayout),
}

impl ArrayMemory<'_> {
    pub(crate) fn device(&self) -> &Device {
        match self {
            Self::Own(device) => device,
            Self::Block(layout) => layout.block.device(),
        }
    }

    /// An array of these elements, with a name for the error and for the emulator's reports.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], also for a block that is full; [`DeviceError::Driver`].
    pub(crate) fn array<T: Pod>(
        &self,
        elements: &[T],
        what: &'static str,
    ) -> Result<DeviceBuffer<T>, DeviceError> {
        match self {
            Self::Own(device) => DeviceBuffer::named(device, elements, what),
            Self::Block(layout) => layout.array(elements, what),
        }
    }
}

/// Arrays in a block of device memory, whose bytes are on the host until somebody copies them.
pub(crate) struct BlockLayout {
    block: Arc<DeviceBuffer<u8>>,
    /// What belongs at the beginning of the block.
    content: RefCell<Vec<u8>>,
}

impl BlockLayout {
    pub(crate) fn new(block: &Arc<DeviceBuffer<u8>>) -> Self {
        Self { block: Arc::clone(block), content: RefCell::default() }
    }

    /// Bytes of a block for arrays of so many, each of which a layout may pad a little.
    pub(crate) fn bytes(arrays: impl IntoIterator<Item = u64>) -> u64 {
        arrays.into_iter().map(|bytes| (bytes + ALIGN).next_multiple_of(ALIGN)).sum()
    }

    fn array<T: Pod>(&self, elements: &[T], what: &'static str) -> Result<DeviceBuffer<T>, DeviceError> {
        let mut content = self.content.borrow_mut();
        let (bytes, at): (&[u8], _) =
            (bytemuck::cast_slice(elements), wide(content.len()).next_multiple_of(ALIGN));
        let end = at + wide(bytes.len());
        if end > self.block.bytes() {
            let free = Some(self.block.bytes() - wide(content.len()));
            return Err(self.block.device().out_of_memory(what, wide(bytes.len()), free));
        }
        let more = index(end) - content.len();
        content.try_reserve(more).map_err(|_| windrow_formats::OutOfMemory { what, bytes: end })?;
        content.resize(index(at), 0);
        content.extend_from_slice(bytes);
        Ok(DeviceBuffer::part(&self.block, at, elements.len()))
    }

    /// What belongs at the beginning of the block.
    pub(crate) fn into_content(self) -> Vec<u8> {
        self.content.into_inner()
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use super::*;
    use crate::EmulatorSchedule;

    #[test]
    fn arrays_lie_one_after_another() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let block = Arc::new(DeviceBuffer::alloc(&device, 600, "a block").unwrap());
        let layout = BlockLayout::new(&block);
        let memory = ArrayMemory::Block(&layout);
        let first = memory.array(&[1u16, 2, 3], "first").unwrap();
        let second = memory.array(&[7u32; 60], "second").unwrap();
        let error = memory.array(&[0u8; 89], "third").unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { what: "third", asked: 89, .. }), "{error}");
        let third = memory.array(&[5u8; 88], "third").unwrap();
        assert_eq!(BlockLayout::bytes([6, 240, 88]), 512 + 512 + 512);
        let content = layout.into_content();
        // SAFETY: the block's own memory.
        unsafe { device.machine().unwrap().upload(block.address(), &content).unwrap() };
        assert_eq!(first.to_vec().unwrap(), [1, 2, 3]);
        assert_eq!(second.to_vec().unwrap(), [7; 60]);
        assert_eq!(third.to_vec().unwrap(), [5; 88]);
    }
}

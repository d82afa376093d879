//! Host memory that a GPU copies from and to by itself.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use windrow_formats::memory::try_zeroed;

use super::{Device, HostAddress};
use crate::error::DeviceError;

/// `len` elements of host memory that is page-locked (pinned) for a GPU: its copies reach them at the full rate of the
/// bus, beside other work, without a detour through other memory. Behaves as a slice.
///
/// Page-locking takes more time than other allocations, and memory that is locked cannot be paged out: it is for
/// operands that are used often, such as those of an [`OutOfCoreSpmm`](crate::OutOfCoreSpmm). On the CPU it is ordinary
/// memory.
///
/// # Examples
/// ```
/// use windrow::{Device, PinnedBuffer};
///
/// let mut numbers = PinnedBuffer::<f32>::zeroed(&Device::best()?, 3)?;
/// numbers[1] = 2.0;
/// assert_eq!(numbers[..], [0.0, 2.0, 0.0]);
/// # Ok::<(), windrow::DeviceError>(())
/// ```
pub struct PinnedBuffer<T: Pod> {
    device: Device,
    len: usize,
    storage: Storage<T>,
}

enum Storage<T> {
    Ordinary(Vec<T>),
    Pinned(NonNull<u8>, PhantomData<T>),
}

// SAFETY: the memory belongs to this value alone.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: as above; it changes through `&mut` alone.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`] if there is not as much that can be locked, [`DeviceError::Driver`].
    pub fn zeroed(device: &Device, len: usize) -> Result<Self, DeviceError> {
        const { assert!(align_of::<T>() <= 64, "memory of devices is aligned to 64 bytes") };
        let storage = match (device.machine(), len.saturating_mul(size_of::<T>())) {
            (Some(machine), bytes @ 1..) => Storage::Pinned(machine.alloc_pinned(bytes)?, PhantomData),
            _ => Storage::Ordinary(try_zeroed(len, "a buffer")?),
        };
        Ok(Self { device: device.clone(), len, storage })
    }

    /// A copy of `elements`.
    ///
    /// # Errors
    /// Those of [`zeroed`](Self::zeroed).
    pub fn from_slice(device: &Device, elements: &[T]) -> Result<Self, DeviceError> {
        let mut buffer = Self::zeroed(device, elements.len())?;
        buffer.copy_from_slice(elements);
        Ok(buffer)
    }

    /// Where the elements are, for copies that outlast the borrow.
    pub(crate) fn address(&mut self) -> HostAddress {
        HostAddress(self.as_mut_ptr().cast())
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.storage {
            Storage::Ordinary(elements) => elements,
            // SAFETY: `len` elements of any bytes, which were zero first, aligned to 64 bytes, borrowed with `self`.
            Storage::Pinned(memory, _) => unsafe {
                std::slice::from_raw_parts(memory.as_ptr().cast(), self.len)
            },
        }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.storage {
            Storage::Ordinary(elements) => elements,
            // SAFETY: as above.
            Storage::Pinned(memory, _) => unsafe {
                std::slice::from_raw_parts_mut(memory.as_ptr().cast(), self.len)
            },
        }
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if let (Storage::Pinned(memory, _), Some(machine)) = (&self.storage, self.device.machine()) {
            // SAFETY: allocated by this machine in `zeroed`, freed only here; whoever asks for copies waits for them
            // before the buffer goes.
            unsafe { machine.free_pinned(*memory, self.len * size_of::<T>()) };
        }
    }
}

impl<T: Pod> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("device", &self.device).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(device: &Device, is_pinned: bool) {
        let mut buffer = PinnedBuffer::from_slice(device, &[1u16, 2, 3]).unwrap();
        buffer[1] = 7;
        assert_eq!(buffer[..], [1, 7, 3]);
        let pinned = |address| device.machine().is_some_and(|machine| machine.is_pinned(address).unwrap());
        assert_eq!(pinned(buffer.as_ptr().cast()), is_pinned);
        let ordinary = [0u8; 64];
        assert!(!pinned(ordinary.as_ptr()));
        assert!(PinnedBuffer::<f64>::zeroed(device, 0).unwrap().is_empty());
        assert!(PinnedBuffer::<f64>::zeroed(device, 1000).unwrap().iter().all(|&x| x == 0.0));
        let most = usize::MAX / 16;
        assert!(PinnedBuffer::<u64>::zeroed(device, most).is_err());
    }

    #[test]
    fn buffers_are_slices() {
        round_trip(&Device::cpu(), false);
        #[cfg(feature = "emulator")]
        round_trip(&Device::emulator(crate::EmulatorSchedule::InOrder), true);
        if let Ok(device) = Device::cuda(0) {
            round_trip(&device, true);
        }
    }
}

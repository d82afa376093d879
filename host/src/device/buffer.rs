//! Memory of a device.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use windrow_formats::memory::{try_copy, try_zeroed};
use windrow_simt::GlobalPtr;

use super::{Device, DeviceKind, Queue};
use crate::error::DeviceError;
use crate::num::{index, wide};

/// `len` elements in the memory of a [`Device`], freed when dropped.
///
/// On the CPU this is ordinary memory, aligned to 64 bytes; on a GPU it is aligned to 256.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceBuffer};
///
/// let device = Device::cpu();
/// let mut buffer = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
/// buffer.copy_from_slice(&[4.0, 5.0, 6.0])?;
/// assert_eq!(buffer.to_vec()?, [4.0, 5.0, 6.0]);
/// # Ok::<(), windrow::DeviceError>(())
/// ```
pub struct DeviceBuffer<T: Pod> {
    device: Device,
    len: usize,
    storage: Storage,
    element: PhantomData<T>,
}

enum Storage {
    /// Nothing: a buffer of length 0 has no memory and a null address.
    Empty,
    Host(Vec<Line>),
    Device(u64),
    /// A part of what several buffers share.
    Part {
        address: u64,
        _block: Arc<DeviceBuffer<u8>>,
    },
}

/// One allocation for several buffers: each of its own would cost about what a small kernel does. It is freed with the
/// last of them.
///
/// On the emulator the buffers are allocations of their own, so that it sees an access beyond the end of one.
pub(crate) struct SharedBlock {
    block: Option<Arc<DeviceBuffer<u8>>>,
    used: u64,
}

impl SharedBlock {
    /// Where a part begins: as allocations do on a GPU.
    const ALIGN: u64 = 256;

    /// Room for buffers of so many bytes.
    pub(crate) fn new(
        device: &Device,
        parts: impl IntoIterator<Item = u64>,
        what: &'static str,
    ) -> Result<Self, DeviceError> {
        let bytes = parts.into_iter().map(|bytes| bytes.next_multiple_of(Self::ALIGN)).sum();
        let block = match device.kind() {
            DeviceKind::Cuda => Some(Arc::new(DeviceBuffer::alloc(device, index(bytes), what)?)),
            _ => None,
        };
        Ok(Self { block, used: 0 })
    }

    /// The next buffer, of `len` elements that must be written before they are read.
    pub(crate) fn part<T: Pod>(
        &mut self,
        device: &Device,
        len: usize,
        what: &'static str,
    ) -> Result<DeviceBuffer<T>, DeviceError> {
        let bytes = wide(len).saturating_mul(wide(size_of::<T>()));
        match &self.block {
            Some(block) if bytes > 0 && bytes <= block.bytes() - self.used => {
                let part = DeviceBuffer::part(block, self.used, len);
                self.used = (self.used + bytes).next_multiple_of(Self::ALIGN).min(block.bytes());
                Ok(part)
            }
            _ => DeviceBuffer::alloc(device, len, what),
        }
    }
}

/// A cache line of host memory, so that elements of any type are aligned.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Line([u8; 64]);

impl<T: Pod> DeviceBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub fn alloc_zeroed(device: &Device, len: usize) -> Result<Self, DeviceError> {
        Self::zeroed(device, len, "a buffer")
    }

    /// [`alloc_zeroed`](Self::alloc_zeroed), with a name for the error and for the emulator's reports.
    pub(crate) fn zeroed(device: &Device, len: usize, what: &'static str) -> Result<Self, DeviceError> {
        let buffer = Self::alloc(device, len, what)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// A copy of `elements`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub fn from_slice(device: &Device, elements: &[T]) -> Result<Self, DeviceError> {
        Self::of_caller(device, elements, "a buffer")
    }

    /// [`from_slice`](Self::from_slice), with a name for the error and for the emulator's reports.
    pub(crate) fn of_caller(
        device: &Device,
        elements: &[T],
        what: &'static str,
    ) -> Result<Self, DeviceError> {
        let mut buffer = Self::alloc(device, elements.len(), what)?;
        buffer.copy_from_slice(elements)?;
        Ok(buffer)
    }

    /// A copy of `elements`, which are in memory of windrow's own or a matrix's, with a name for the error and for the
    /// emulator's reports. Nobody waits for the copy: what the device does later comes after it.
    pub(crate) fn named(device: &Device, elements: &[T], what: &'static str) -> Result<Self, DeviceError> {
        let mut buffer = Self::alloc(device, elements.len(), what)?;
        match (&buffer.storage, device.machine()) {
            // SAFETY: the allocation is this buffer's own and has as many bytes; no vector is page-locked.
            (Storage::Device(address) | Storage::Part { address, .. }, Some(machine)) => unsafe {
                machine.queue_upload(*address, bytemuck::cast_slice(elements))?;
            },
            _ => buffer.copy_from_slice(elements)?,
        }
        Ok(buffer)
    }

    /// `len` elements of a block, from the byte `at` on, which is a multiple of their alignment.
    pub(super) fn part(block: &Arc<DeviceBuffer<u8>>, at: u64, len: usize) -> Self {
        debug_assert!(at + wide(len) * wide(size_of::<T>()) <= block.bytes(), "a part lies in its block");
        let storage = Storage::Part { address: block.address() + at, _block: Arc::clone(block) };
        Self { device: block.device.clone(), len, storage, element: PhantomData }
    }

    /// `len` elements that must be written before they are read. Host memory is zero.
    pub(crate) fn alloc(device: &Device, len: usize, what: &'static str) -> Result<Self, DeviceError> {
        let bytes = wide(len).saturating_mul(wide(size_of::<T>()));
        let storage = match device.machine() {
            _ if bytes == 0 => Storage::Empty,
            Some(machine) => Storage::Device(machine.alloc(bytes, what)?),
            None => {
                let lines = bytemuck::try_zeroed_slice_box(index(bytes.div_ceil(wide(size_of::<Line>()))));
                let lines = lines.map_err(|()| device.out_of_memory(what, bytes, None))?;
                Storage::Host(lines.into_vec())
            }
        };
        Ok(Self { device: device.clone(), len, storage, element: PhantomData })
    }

    /// Sets every element of a new buffer to zero bytes.
    fn clear(&self) -> Result<(), DeviceError> {
        // Fresh host memory is zero.
        self.device.machine().map_or(Ok(()), |machine| self.clear_in(&**machine.own()))
    }

    /// Sets every element to zero bytes, in the order of a queue of the buffer's device.
    pub(crate) fn clear_in(&self, queue: &dyn Queue) -> Result<(), DeviceError> {
        match &self.storage {
            // SAFETY: the allocation is this buffer's own and has `bytes` bytes.
            Storage::Device(address) | Storage::Part { address, .. } => unsafe {
                queue.zero(*address, self.bytes())
            },
            Storage::Empty | Storage::Host(_) => Ok(()),
        }
    }

    /// Device and elements; none of a device that has memory of its own.
    pub(crate) fn parts_mut(&mut self) -> (&Device, Option<&mut [T]>) {
        let elements: Option<&mut [T]> = match &mut self.storage {
            _ if self.device.machine().is_some() => None,
            Storage::Host(lines) => Some(&mut bytemuck::cast_slice_mut(lines)[..self.len]),
            Storage::Empty | Storage::Device(_) | Storage::Part { .. } => Some(&mut []),
        };
        (&self.device, elements)
    }

    /// Leaves out what is behind the first `len` elements. Their memory stays.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The device whose memory this is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of elements, not bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the elements in bytes, without what an allocator adds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        wide(self.len) * wide(size_of::<T>())
    }

    /// Address in the device's address space: a `CUdeviceptr` on a GPU, an ordinary address on the CPU, 0 for
    /// an empty buffer. For handing the memory to other libraries; see [`interop`](crate::interop).
    #[must_use]
    pub fn address(&self) -> u64 {
        match &self.storage {
            Storage::Empty => 0,
            Storage::Host(lines) => wide(lines.as_ptr().addr()),
            Storage::Device(address) | Storage::Part { address, .. } => *address,
        }
    }

    /// The address as kernels take it.
    pub(crate) fn pointer(&self) -> GlobalPtr<T> {
        GlobalPtr::from_address(self.address())
    }

    /// Overwrites all elements. On a GPU the copy comes after all work asked for before, and is done when
    /// this returns.
    ///
    /// # Errors
    /// - [`DeviceError::CopyLength`] unless `elements` is as long as the buffer;
    /// - [`DeviceError::Driver`].
    pub fn copy_from_slice(&mut self, elements: &[T]) -> Result<(), DeviceError> {
        if elements.len() != self.len {
            return Err(DeviceError::CopyLength { buffer: self.len, slice: elements.len() });
        }
        if let (Storage::Device(address) | Storage::Part { address, .. }, Some(machine)) =
            (&self.storage, self.device.machine())
        {
            // SAFETY: the allocation is this buffer's own; the lengths were compared.
            return unsafe { machine.upload(*address, bytemuck::cast_slice(elements)) };
        }
        if let Some(host) = self.host_mut() {
            host.copy_from_slice(elements);
        }
        Ok(())
    }

    /// Copies all elements to the host, after all work asked for before.
    ///
    /// # Errors
    /// - [`DeviceError::CopyLength`] unless `to` is as long as the buffer;
    /// - [`DeviceError::Driver`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer};
    ///
    /// let buffer = DeviceBuffer::from_slice(&Device::best()?, &[1.0f32, 2.0])?;
    /// let mut numbers = [0.0; 2];
    /// buffer.copy_to_slice(&mut numbers)?;
    /// assert_eq!(numbers, [1.0, 2.0]);
    /// # Ok::<(), windrow::DeviceError>(())
    /// ```
    pub fn copy_to_slice(&self, to: &mut [T]) -> Result<(), DeviceError> {
        if to.len() != self.len {
            return Err(DeviceError::CopyLength { buffer: self.len, slice: to.len() });
        }
        if let (Storage::Device(address) | Storage::Part { address, .. }, Some(machine)) =
            (&self.storage, self.device.machine())
        {
            // SAFETY: the allocation is this buffer's own; the lengths were compared.
            return unsafe { machine.download(*address, bytemuck::cast_slice_mut(to)) };
        }
        if let Some(host) = self.host() {
            to.copy_from_slice(host);
        }
        Ok(())
    }

    /// The elements, after all work asked for before.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`], [`DeviceError::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let what = "a copy of a buffer";
        if let Storage::Device(_) | Storage::Part { .. } = &self.storage {
            let mut elements = try_zeroed::<T>(self.len, what)?;
            self.copy_to_slice(&mut elements)?;
            return Ok(elements);
        }
        match self.host() {
            Some(elements) => Ok(try_copy(elements, what)?),
            // Elements without bytes.
            None => Ok(try_zeroed(self.len, what)?),
        }
    }

    /// The elements, if they are in host memory.
    pub(crate) fn host(&self) -> Option<&[T]> {
        match &self.storage {
            Storage::Empty => (self.len == 0).then_some(&[]),
            Storage::Host(lines) => Some(&bytemuck::cast_slice(lines)[..self.len]),
            Storage::Device(_) | Storage::Part { .. } => None,
        }
    }

    /// The elements, if they are in host memory.
    pub(crate) fn host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.storage {
            Storage::Empty => (self.len == 0).then_some(&mut []),
            Storage::Host(lines) => Some(&mut bytemuck::cast_slice_mut(lines)[..self.len]),
            Storage::Device(_) | Storage::Part { .. } => None,
        }
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if let (Storage::Device(address), Some(machine)) = (&self.storage, self.device.machine()) {
            // SAFETY: allocated by this machine in `alloc`, freed only here.
            unsafe { machine.free(*address) };
        }
    }
}

impl<T: Pod> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("device", &self.device)
            .field("len", &self.len)
            .field("address", &format_args!("{:#x}", self.address()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(device: &Device) {
        let mut buffer = DeviceBuffer::from_slice(device, &[1u16, 2, 3]).unwrap();
        assert_eq!((buffer.len(), buffer.bytes()), (3, 6));
        assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
        buffer.copy_from_slice(&[4, 5, 6]).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [4, 5, 6]);
        assert_eq!(buffer.copy_from_slice(&[0; 4]), Err(DeviceError::CopyLength { buffer: 3, slice: 4 }));
        let mut copy = [0; 3];
        buffer.copy_to_slice(&mut copy).unwrap();
        assert_eq!(copy, [4, 5, 6]);
        let short = buffer.copy_to_slice(&mut copy[..2]);
        assert_eq!(short, Err(DeviceError::CopyLength { buffer: 3, slice: 2 }));
        assert_eq!(
            DeviceBuffer::<[f64; 2]>::alloc_zeroed(device, 2).unwrap().to_vec().unwrap(),
            [[0.0; 2]; 2]
        );
        // More than the buffers that a GPU's large uploads go through, and no multiple of one.
        let large: Vec<u32> = (0..(6 << 20) + 77).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
        let mut buffer = DeviceBuffer::from_slice(device, &large).unwrap();
        assert!(buffer.to_vec().unwrap() == large);
        let reversed: Vec<u32> = large.into_iter().rev().collect();
        buffer.copy_from_slice(&reversed).unwrap();
        assert!(buffer.to_vec().unwrap() == reversed);
        let mut empty = DeviceBuffer::<u32>::alloc_zeroed(device, 0).unwrap();
        empty.copy_from_slice(&[]).unwrap();
        assert_eq!((empty.address(), empty.to_vec().unwrap()), (0, vec![]));
        let mut nothing = DeviceBuffer::from_slice(device, &[(), ()]).unwrap();
        nothing.copy_from_slice(&[(), ()]).unwrap();
        assert_eq!((nothing.len(), nothing.bytes(), nothing.to_vec().unwrap().len()), (2, 0, 2));
        assert!(nothing.copy_from_slice(&[()]).is_err());
    }

    #[test]
    fn what_goes_in_comes_out() {
        round_trip(&Device::cpu());
        #[cfg(feature = "emulator")]
        round_trip(&Device::emulator(crate::EmulatorSchedule::InOrder));
        if let Ok(device) = Device::cuda(0) {
            round_trip(&device);
        }
    }

    #[test]
    fn an_impossible_allocation_is_an_error_with_numbers() {
        let error = DeviceBuffer::<u64>::alloc_zeroed(&Device::cpu(), usize::MAX / 16).unwrap_err();
        assert!(
            matches!(error, DeviceError::OutOfMemory { asked, .. } if asked == (usize::MAX / 16) as u64 * 8)
        );
    }
}

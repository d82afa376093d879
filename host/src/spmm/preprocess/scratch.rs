//! Device memory and launches for the time in which a plan is made.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use bytemuck::Pod;
use windrow_formats::memory::try_zeroed;
use windrow_kernels::Variant;
use windrow_kernels::scan::{ADDED_BLOCKS, SCAN_BLOCK, ScanParams};
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer, DeviceKind, Machine, Queue};
use crate::error::DeviceError;
use crate::num::{index, wide};
use crate::plan::{Unplaced, start};

/// Where each array of a block of memory begins: as allocations do on a GPU.
const ALIGNMENT: u64 = 256;

/// Arrays that live until the plan is made, and launches over them.
///
/// On a GPU they are parts of one allocation, because each of its own would cost about what the kernels do. On the
/// emulator they are allocations of their own, so that it sees an access beyond the end of one.
pub(crate) struct Scratch {
    device: Device,
    block: DeviceBuffer<u8>,
    used: Cell<u64>,
    others: RefCell<Vec<DeviceBuffer<u8>>>,
    values: Cell<Option<GlobalPtr<u32>>>,
    /// Another than the device's own, if launches are queued there.
    queue: Option<Arc<dyn Queue>>,
}

impl Scratch {
    /// Room for `bytes` in all. More may be asked for, at the price of an allocation.
    pub(crate) fn new(device: &Device, bytes: u64) -> Result<Self, DeviceError> {
        let bytes = if device.kind() == DeviceKind::Emulator { 0 } else { bytes };
        let block = DeviceBuffer::alloc(device, index(bytes), "preprocessing")?;
        Ok(Self {
            device: device.clone(),
            block,
            used: Cell::new(0),
            others: RefCell::default(),
            values: Cell::new(None),
            queue: None,
        })
    }

    /// With values that are on the device already, one for each entry, as kernels take them; launches are queued in
    /// `queue`.
    pub(super) fn holding(
        device: &Device,
        queue: &Arc<dyn Queue>,
        values: GlobalPtr<u32>,
    ) -> Result<Self, DeviceError> {
        let scratch = Self::new(device, 0)?;
        scratch.values.set(Some(values));
        Ok(Self { queue: Some(Arc::clone(queue)), ..scratch })
    }

    /// Values that are on the device already, one for each entry and rounded.
    pub(in crate::spmm) fn hold_values(&self, values: GlobalPtr<u32>) {
        self.values.set(Some(values));
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    fn machine(&self) -> Result<&dyn Machine, DeviceError> {
        self.device.machine().ok_or(DeviceError::NoDriver) // not reached: the CPU has no kernels to prepare for
    }

    /// `len` elements that must be written before they are read.
    pub(crate) fn array<T: Pod>(&self, len: usize, what: &'static str) -> Result<GlobalPtr<T>, DeviceError> {
        let bytes = wide(len) * wide(size_of::<T>());
        let begin = self.used.get().next_multiple_of(ALIGNMENT);
        if begin + bytes <= self.block.bytes() {
            self.used.set(begin + bytes);
            return Ok(GlobalPtr::from_address(self.block.address() + begin));
        }
        let buffer = DeviceBuffer::<u8>::alloc(&self.device, index(bytes), what)?;
        let pointer = buffer.pointer().cast();
        self.others.borrow_mut().push(buffer);
        Ok(pointer)
    }

    /// A copy of `elements`.
    pub(in crate::spmm) fn array_from<T: Pod>(
        &self,
        elements: &[T],
        what: &'static str,
    ) -> Result<GlobalPtr<T>, DeviceError> {
        let array = self.array::<T>(elements.len(), what)?;
        // SAFETY: the array was made for these elements, which are in a vector: not page-locked.
        unsafe { self.write(array, elements)? };
        Ok(array)
    }

    /// Writes elements from the host to an array.
    ///
    /// # Safety
    /// It has room for them, in live memory of the device; they are in memory that is not page-locked.
    pub(crate) unsafe fn write<T: Pod>(&self, to: GlobalPtr<T>, elements: &[T]) -> Result<(), DeviceError> {
        if elements.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.machine()?.queue_upload(to.address(), bytemuck::cast_slice(elements)) }
    }

    /// The values of a matrix, uploaded once: every call of one scratch memory is for the same.
    pub(super) fn values(&self, values: Unplaced<'_>) -> Result<GlobalPtr<u32>, DeviceError> {
        if let Some(uploaded) = self.values.get() {
            return Ok(uploaded);
        }
        let uploaded = self.array_from(values.bytes, "values")?.cast();
        self.values.set(Some(uploaded));
        Ok(uploaded)
    }

    /// The first `len` elements of an array, after the work queued before.
    ///
    /// # Safety
    /// There are so many, in live memory of the device.
    pub(crate) unsafe fn read<T: Pod>(&self, from: GlobalPtr<T>, len: usize) -> Result<Vec<T>, DeviceError> {
        let mut elements = try_zeroed(len, "what a kernel of preprocessing found")?;
        if len > 0 {
            // SAFETY: the caller has so many elements at `from`, in live memory of the device.
            unsafe { self.machine()?.download(from.address(), bytemuck::cast_slice_mut(&mut elements))? };
        }
        Ok(elements)
    }

    /// Starts the entry of a kernel over `units` threads, steps or elements, as its division counts them.
    ///
    /// # Safety
    /// `params` keeps the obligations that its documentation lists; its arrays live as long as the scratch memory, or
    /// are freed after the machine's work.
    pub(crate) unsafe fn launch<P: Pod>(
        &self,
        variant: Variant,
        units: u64,
        params: &P,
    ) -> Result<(), DeviceError> {
        let entry = windrow_kernels::entry(variant)
            .ok_or(DeviceError::MissingEntry { name: "a kernel of preprocessing" })?;
        // SAFETY: the caller promises that the params are the entry's and keep its obligations.
        unsafe { start(self.queue()?, entry, units, 1, params) }
    }

    /// Where launches are queued.
    pub(super) fn queue(&self) -> Result<&dyn Queue, DeviceError> {
        let queue = self.queue.as_ref().map_or_else(|| self.machine().map(Machine::own), Ok)?;
        Ok(&**queue)
    }

    /// `output[i] = Σ_{j < i} x[j]` for `i ≤ len`, where `x` is the input, or 1 for each element that is not 0 if
    /// they are `flags`.
    ///
    /// # Safety
    /// `input` has `len` elements and `output` one more, fewer than 2³² less two blocks; neither sum exceeds 32 bits.
    pub(crate) unsafe fn scan(
        &self,
        input: GlobalPtr<u32>,
        len: u32,
        flags: bool,
        output: GlobalPtr<u32>,
    ) -> Result<(), DeviceError> {
        let units = u64::from(len) + 1;
        let blocks = units.div_ceil(u64::from(SCAN_BLOCK));
        let sums = self.array::<u32>(index(blocks), "sums of a scan")?;
        let (flags, scanned) = (u32::from(flags), u32::from(blocks > u64::from(ADDED_BLOCKS)));
        let mut params = ScanParams { input, output, sums, len, flags, scanned, reserved: 0 };
        // SAFETY: the caller's promise; there is a sum for each block.
        unsafe {
            self.launch(Variant::Scan, units, &params)?;
            if scanned != 0 {
                params.sums = self.array::<u32>(index(blocks + 1), "sums of a scan")?;
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX); // fewer than there are elements
                self.scan(sums, blocks, false, params.sums)?;
            }
            if blocks > 1 {
                self.launch(Variant::ScanAdd, units, &params)?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scratch({} bytes)", self.used.get())
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use super::*;
    use crate::EmulatorSchedule;

    fn check(device: &Device, input: &[u32], flags: bool) {
        let scratch = Scratch::new(device, 64).unwrap();
        let len = u32::try_from(input.len()).unwrap();
        let (from, to) = (
            scratch.array_from(input, "input").unwrap(),
            scratch.array::<u32>(input.len() + 1, "output").unwrap(),
        );
        // SAFETY: arrays of these lengths.
        let got = unsafe {
            scratch.scan(from, len, flags, to).unwrap();
            scratch.read(to, input.len() + 1).unwrap()
        };
        let mut sum = 0;
        for (i, &got) in got.iter().enumerate() {
            assert_eq!(got, sum, "element {i} of {len} on {device}");
            sum += input.get(i).map_or(0, |&x| if flags { x.min(1) } else { x });
        }
    }

    #[test]
    fn scans_of_any_length() {
        let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
        devices.extend(Device::cuda(0));
        for device in devices {
            for len in [0, 1, 7, 8, 9, 31, 255, 2046, 2047, 2048, 2049, 4096, 6145, 20_000] {
                let input: Vec<u32> = (0..len).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 29).collect();
                check(&device, &input, false);
                check(&device, &input, true);
            }
        }
    }

    #[test]
    fn more_blocks_than_add_their_totals_up() {
        let device = Device::cuda(0).unwrap_or_else(|_| Device::emulator(EmulatorSchedule::InOrder));
        let len = SCAN_BLOCK * (ADDED_BLOCKS + 1) + 3;
        if device.kind() == DeviceKind::Cuda {
            check(&device, &vec![3; len as usize], false);
        }
    }
}

//! Memory of a GPU that is kept when it is freed, for what is allocated next, and given back in the order of a stream:
//! nobody waits for an allocation or its end.

use std::ptr::null_mut;

use cudarc::driver::{DriverError, result, sys};

use crate::num::index;

/// Of a GPU's memory one part in so many is kept at most.
const KEPT_SHARE: u64 = 64;

/// Where windrow's memory on one GPU comes from: a pool of its own, or single allocations where the driver has no
/// pools.
pub(super) struct Pool(Option<sys::CUmemoryPool>);

// SAFETY: a pool may be used from any thread; the driver serialises calls.
unsafe impl Send for Pool {}
// SAFETY: as above; the handle does not change.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of a device, whose context is current.
    pub(super) fn create(device: sys::CUdevice, memory_total: u64) -> Self {
        Self(Self::make(device, memory_total).ok())
    }

    fn make(device: sys::CUdevice, memory_total: u64) -> Result<sys::CUmemoryPool, DriverError> {
        // SAFETY: a struct of numbers, enums with a variant of number 0, and pointers that may be null.
        let mut of_device: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        of_device.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        of_device.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        of_device.location.id = device;
        let mut pool = null_mut();
        let mut kept = memory_total / KEPT_SHARE;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the struct and the places live to the end of the calls; the attribute is a number of 64 bits.
        unsafe {
            sys::cuMemPoolCreate(&raw mut pool, &raw const of_device).result()?;
            sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut kept).cast()).result()?;
        }
        Ok(pool)
    }

    /// Memory that what comes later in the stream may use.
    ///
    /// # Safety
    /// The context is current, and the stream is one of it.
    pub(super) unsafe fn alloc(&self, bytes: u64, stream: sys::CUstream) -> Result<u64, DriverError> {
        let Some(pool) = self.0 else {
            // SAFETY: the caller's promise.
            return unsafe { result::malloc_sync(index(bytes)) };
        };
        let mut address = 0;
        // SAFETY: the caller's promise; the pool lives as long as `self`.
        unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, index(bytes), pool, stream).result()? };
        Ok(address)
    }

    /// Gives memory back, after what comes before in the stream.
    ///
    /// # Safety
    /// As for [`alloc`](Self::alloc), which returned the address; nothing else uses the memory any more.
    pub(super) unsafe fn free(&self, address: u64, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.0 {
                Some(_) => sys::cuMemFreeAsync(address, stream).result(),
                None => result::free_sync(address),
            }
        }
    }

    /// Whether memory is given back in the order of a stream, not at once.
    pub(super) fn is_ordered(&self) -> bool {
        self.0.is_some()
    }

    /// Bytes that are kept and not in use.
    pub(super) fn idle(&self) -> u64 {
        use sys::CUmemPool_attribute as Attribute;
        let Some(pool) = self.0 else { return 0 };
        let told = |which| {
            let mut bytes = 0_u64;
            // SAFETY: the pool lives as long as `self`; the attributes are numbers of 64 bits.
            let code = unsafe { sys::cuMemPoolGetAttribute(pool, which, (&raw mut bytes).cast()) };
            code.result().map_or(0, |()| bytes)
        };
        let reserved = told(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        reserved.saturating_sub(told(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    }

    /// Gives everything back that is kept. The context is current.
    pub(super) fn destroy(&mut self) {
        if let Some(pool) = self.0.take() {
            // SAFETY: made by `make`, destroyed only here. Memory of it that is in use lives on.
            let _ = unsafe { sys::cuMemPoolDestroy(pool) };
        }
    }
}

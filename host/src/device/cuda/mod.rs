//! NVIDIA GPUs, through the driver alone.
//!
//! The driver library is loaded at run time; without one, everything here is an error value. Each GPU has its
//! primary context, one stream, in which all work of the device is ordered, a second one that forks off it and joins it
//! again, and the modules of kernels that it has used so far.

mod event;
mod fork;
mod kernels;
mod module;
mod probe;
mod staging;

use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::{DriverError, result, sys};
use windrow_kernels::Entry;

pub(in crate::device) use event::CudaEvent;
pub(super) use probe::{count, driver_version};

use super::event::{Event, EventKind};
use super::machine::{Description, Machine, Prepared};
use super::{DeviceKind, KernelModule};
use crate::error::DeviceError;
use crate::num::{index, wide};
use fork::SideStream;
use kernels::{Function, Kernels};
use probe::{Called, failed, unsigned};
use staging::Staging;

/// The lowest compute capability that the PTX is written for.
const NEEDS_CAPABILITY: (u32, u32) = (8, 0);

/// One GPU: context, stream and kernels.
struct CudaMachine {
    name: String,
    memory_total: u64,
    multiprocessors: u32,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    side: Option<SideStream>,
    /// Made by the first large upload.
    staging: Mutex<Option<Staging>>,
    kernels: Kernels,
    /// The error that lost the device, once there was one. The driver says the same to most calls after it, but not to
    /// all, and what those return would be of no use.
    lost: OnceLock<DeviceError>,
}

// SAFETY: the driver's handles may be used from any thread; every method makes the context current on the
// thread that it runs on before it uses one.
unsafe impl Send for CudaMachine {}
// SAFETY: as above; the driver serialises calls on one context, and what is changed after `open` is behind locks.
unsafe impl Sync for CudaMachine {}

/// Opens GPU `index`: its context and its streams. Kernels are compiled when they are first used.
pub(super) fn open(index: u32) -> Result<(Description, Box<dyn Machine>), DeviceError> {
    probe::start().map_err(|error| match error {
        DeviceError::NoSuchDevice { count, .. } => DeviceError::NoSuchDevice { index, count },
        other => other,
    })?;
    let count = count()?;
    if index >= count {
        return Err(DeviceError::NoSuchDevice { index, count });
    }
    let driver = driver_version()?.ok_or(DeviceError::NoDriver)?;
    let ordinal = i32::try_from(index).unwrap_or(i32::MAX);
    let device = result::device::get(ordinal).called("cuDeviceGet")?;
    let name = result::device::get_name(device).called("cuDeviceGetName")?;
    let attribute = |which| {
        // SAFETY: `device` came from `device::get`.
        unsafe { result::device::get_attribute(device, which) }.called("cuDeviceGetAttribute").map(unsigned)
    };
    use sys::CUdevice_attribute as Attribute;
    let capability = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    if capability < NEEDS_CAPABILITY {
        return Err(DeviceError::ComputeCapability {
            device: name,
            has: capability,
            needs: NEEDS_CAPABILITY,
        });
    }
    // SAFETY: as for the attributes.
    let memory_total = wide(unsafe { result::device::total_mem(device) }.called("cuDeviceTotalMem")?);
    let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    // What some drivers do not tell of some GPUs nothing depends on but the choice of kernels.
    let told = |which| attribute(which).ok().filter(|&value| value > 0).map(f64::from);
    let clock_khz = told(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    let memory_khz = told(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    let bus_bits = told(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    let description = Description {
        kind: DeviceKind::Cuda,
        name: name.clone(),
        selector: format!("cuda:{index}"),
        compute_capability: Some(capability),
        multiprocessors,
        clock_hz: clock_khz.map(|khz| khz * 1e3),
        // Twice a cycle.
        memory_rate: memory_khz.zip(bus_bits).map(|(khz, bits)| 2e3 * khz * bits / 8.0),
        l2_bytes: Some(u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?)),
        memory_total: Some(memory_total),
        driver_version: Some(driver),
    };
    let kernels = Kernels::of_gpu(capability, driver)?;
    // SAFETY: as for the attributes. Released when the machine is dropped.
    let context = unsafe { result::primary_ctx::retain(device) }.called("cuDevicePrimaryCtxRetain")?;
    let stream = std::ptr::null_mut();
    let mut machine = CudaMachine {
        name,
        memory_total,
        multiprocessors,
        device,
        context,
        stream,
        side: None,
        staging: Mutex::new(None),
        kernels,
        lost: OnceLock::new(),
    };
    machine.bind()?;
    machine.stream =
        result::stream::create(result::stream::StreamKind::NonBlocking).called("cuStreamCreate")?;
    machine.side = Some(SideStream::create()?);
    Ok((description, Box::new(machine)))
}

impl CudaMachine {
    /// Makes the context current on this thread: the driver's calls refer to it silently.
    fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { result::ctx::set_current(self.context) }.called("cuCtxSetCurrent")
    }

    /// Does something with the context current, unless the device is lost.
    fn with_context<T>(&self, work: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let outcome = self.bind().and_then(|()| work());
        if let Err(error @ DeviceError::Lost { .. }) = &outcome {
            let _ = self.lost.set(error.clone()); // or another thread was first
        }
        outcome
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`; the context is current.
        unsafe { result::stream::synchronize(self.stream) }.called("cuStreamSynchronize")
    }

    fn side(&self) -> Result<&SideStream, DeviceError> {
        self.side.as_ref().ok_or_else(|| {
            let (operation, remedy) = ("run two kernels beside each other", "a device that was opened");
            DeviceError::NotAvailable { device: self.name.clone(), operation, remedy }
        })
    }

    /// Starts a kernel in one of the two streams. The context is current.
    fn launch_in(&self, stream: sys::CUstream, prepared: &Prepared) -> Result<(), DeviceError> {
        let entry = prepared.entry();
        let Function { handle: function, overlaps_launches } = self.kernels.function(entry)?;
        let [x, y] = prepared.grid();
        let mut argument = prepared.params().as_ptr().cast_mut().cast::<c_void>();
        if !overlaps_launches {
            // SAFETY: the function takes one struct by value, of `params_bytes` bytes, which `Prepared` holds
            // aligned; the driver copies it before it returns and does not write to it. Grid and block are the
            // entry's own, and what the kernel does with the pointers was promised to `Prepared::new`.
            let code = unsafe {
                let block = (prepared.block_threads(), 1, 1);
                let arguments = std::slice::from_mut(&mut argument);
                result::launch_kernel(function, (x, y, 1), block, entry.shared_bytes, stream, arguments)
            };
            return code.called("cuLaunchKernel");
        }
        // Saves the microsecond or two for which the GPU is idle between two launches.
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: 1,
            blockDimX: prepared.block_threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: entry.shared_bytes,
            hStream: stream,
            attrs: &raw mut overlap,
            numAttrs: 1,
        };
        // SAFETY: as above; every entry of the module waits for the launch before it before it touches memory, so
        // the order of the stream holds.
        let code = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function, &raw mut argument, std::ptr::null_mut())
        };
        code.result().called("cuLaunchKernelEx")
    }

    /// The error for an allocation of `asked` bytes, with what is free now.
    fn out_of_memory(&self, what: &'static str, asked: u64) -> Result<DeviceError, DeviceError> {
        let free = self.memory_free()?.unwrap_or(0);
        let (total, device) = (self.memory_total, self.name.clone());
        Ok(DeviceError::OutOfMemory { what, asked, free, total, device })
    }
}

/// The buffers for large uploads, if there is pinned memory for them and they may be filled. The context is current.
fn make_once(staging: &mut Option<Staging>) -> Option<&mut Staging> {
    if staging.is_none() {
        *staging = Staging::new().ok();
    }
    staging.as_mut().filter(|staging| staging.is_usable())
}

impl Machine for CudaMachine {
    fn alloc(&self, bytes: u64, what: &'static str) -> Result<u64, DeviceError> {
        self.with_context(|| {
            if bytes > self.memory_total {
                return Err(self.out_of_memory(what, bytes)?); // no need to ask the driver
            }
            // SAFETY: the context is current; the memory is freed by `free`.
            match unsafe { result::malloc_sync(index(bytes)) } {
                Ok(address) => Ok(address),
                Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                    Err(self.out_of_memory(what, bytes)?)
                }
                Err(error) => Err(failed("cuMemAlloc", error)),
            }
        })
    }

    unsafe fn free(&self, address: u64) {
        // Errors have nobody to go to: after one that broke the context, its memory is gone anyway.
        // Work beside that was never joined, for the launch between failed, may use the memory too.
        let waited = |side: &SideStream| side.wait().is_ok();
        if self.bind().is_ok() && self.wait().is_ok() && self.side.as_ref().is_none_or(waited) {
            // SAFETY: the caller's promise; the waits above ended all work that could use the memory.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.with_context(|| {
            // SAFETY: the caller's promise; the context is current.
            unsafe { result::memset_d8_async(address, 0, index(bytes), self.stream) }
                .called("cuMemsetD8Async")
        })
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.with_context(|| {
            if from.len() >= staging::LEAST_BYTES
                && let Ok(mut staging) = self.staging.try_lock()
                && let Some(staging) = make_once(&mut staging)
            {
                // SAFETY: the caller's promise; `bind` makes the stream's context current, and this is the stream of
                // every call.
                unsafe { staging.upload(self.stream, &|| self.bind(), to, from)? };
                return self.wait();
            }
            // SAFETY: the caller's promise; `from` lives until the wait below is over.
            unsafe { result::memcpy_htod_async(to, from, self.stream) }.called("cuMemcpyHtoDAsync")?;
            self.wait()
        })
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.with_context(|| {
            // SAFETY: the caller's promise; `to` lives until the wait below is over.
            unsafe { result::memcpy_dtoh_async(to, from, self.stream) }.called("cuMemcpyDtoHAsync")?;
            self.wait()
        })
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.with_context(|| self.launch_in(self.stream, prepared))
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.with_context(|| self.side()?.fork(self.stream))
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.with_context(|| self.launch_in(self.side()?.stream(), prepared))
    }

    fn join(&self) -> Result<(), DeviceError> {
        self.with_context(|| self.side()?.join(self.stream))
    }

    fn resident_blocks(&self, entry: &'static Entry) -> Result<u32, DeviceError> {
        self.with_context(|| {
            let function = self.kernels.function(entry)?.handle;
            let threads = i32::try_from(entry.block_threads).unwrap_or(i32::MAX);
            let shared = entry.shared_bytes as usize;
            // SAFETY: the function is of a module that is loaded as long as `self` lives.
            unsafe { result::occupancy::max_active_block_per_multiprocessor(function, threads, shared) }
                .called("cuOccupancyMaxActiveBlocksPerMultiprocessor")
                .map(unsigned)
        })
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.with_context(|| self.wait())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        self.with_context(|| {
            CudaEvent::record(self.context, self.device, self.stream)
                .map(|event| Event(EventKind::Cuda(event)))
        })
    }

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        self.with_context(|| result::mem_get_info().called("cuMemGetInfo").map(|(free, _)| Some(wide(free))))
    }

    fn kernel_modules(&self) -> Vec<KernelModule> {
        self.kernels.loaded()
    }

    fn load_kernels(&self) -> Result<(), DeviceError> {
        self.with_context(|| self.kernels.load_all())
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        self.with_context(|| Ok(Some((self.context.expose_provenance(), self.stream.expose_provenance()))))
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        // Errors have nobody to go to; what cannot be freed dies with the process.
        if self.bind().is_ok() {
            drop(self.side.take()); // waits for its work
            if !self.stream.is_null() {
                let _ = self.wait();
                // SAFETY: created by `open`, destroyed only here.
                let _ = unsafe { result::stream::destroy(self.stream) };
            }
            let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(staging) = staging {
                staging.release();
            }
            self.kernels.unload();
        }
        // SAFETY: retained by `open`, released only here.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

//! NVIDIA GPUs, through the driver alone.
//!
//! The driver library is loaded at run time; without one, everything here is an error value. Each GPU has its
//! primary context, one stream, in which all work of the device is ordered, a second one that forks off it and joins it
//! again, and the modules of kernels that it has used so far.

mod cublas;
mod event;
mod fence;
mod fork;
mod gpu;
mod kernels;
mod memory;
mod module;
#[cfg(feature = "dist")]
mod nccl;
mod pool;
mod probe;
mod queue;
mod staging;
mod tensor_map;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use cudarc::driver::{DriverError, result, sys};
use windrow_kernels::Entry;
use windrow_simt::{BoxedMatrix, TensorMap};

pub(in crate::device) use event::CudaEvent;
pub(crate) use fence::CudaFence;
pub(super) use probe::{count, driver_version};

use super::dense_library::DenseLibrary;
#[cfg(feature = "dist")]
use super::link::{Link, LinkId};
use super::machine::{Description, Lies, Machine};
use super::queue::{Queue, Urgency};
use super::{DeviceKind, KernelModule};
use crate::error::DeviceError;
use crate::num::wide;
use cublas::CuBlas;
use gpu::Gpu;
use kernels::Kernels;
use pool::Pool;
use probe::{Called, failed, unsigned};
use queue::CudaQueue;
use staging::Staging;

/// The lowest compute capability that the PTX is written for.
const NEEDS_CAPABILITY: (u32, u32) = (8, 0);

/// One GPU: its context and kernels, and its own queue.
struct CudaMachine {
    gpu: Arc<Gpu>,
    memory_total: u64,
    multiprocessors: u32,
    pool: Pool,
    lane: Arc<CudaQueue>,
    /// The same, as others see it.
    own: Arc<dyn Queue>,
    others: Mutex<Others>,
    /// Made by the first large upload.
    staging: Mutex<Option<Staging>>,
    /// Loaded by the first plan that asks for it; else why it could not be.
    cublas: OnceLock<Result<Arc<CuBlas>, String>>,
}

/// The queues beside the own one, whose marks memory is freed behind.
#[derive(Default)]
struct Others {
    /// Streams of somebody else's, kept without handles, too: whoever brings one again finds what plans have for it,
    /// and the mark outlives the stream.
    borrowed: Vec<Arc<CudaQueue>>,
    created: Vec<Weak<CudaQueue>>,
}

impl Others {
    fn all(&self) -> Vec<Arc<CudaQueue>> {
        let created = self.created.iter().filter_map(Weak::upgrade);
        self.borrowed.iter().map(Arc::clone).chain(created).collect()
    }
}

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
    let gpu = Arc::new(Gpu::open(name, device, kernels)?);
    let lane = Arc::new(gpu.with_context(|| CudaQueue::create(&gpu, Urgency::Usual))?);
    let own: Arc<dyn Queue> = Arc::<CudaQueue>::clone(&lane);
    let (others, staging) = (Mutex::default(), Mutex::new(None));
    let pool = gpu.with_context(|| Ok(Pool::create(device, memory_total)))?;
    let cublas = OnceLock::new();
    let machine =
        CudaMachine { gpu, memory_total, multiprocessors, pool, lane, own, others, staging, cublas };
    Ok((description, Box::new(machine)))
}

impl CudaMachine {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies from the host. When it returns, `from` may still be read, if it is page-locked. The context is current.
    ///
    /// # Safety
    /// The destination lies inside one live allocation of this machine.
    unsafe fn copy_up(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        if from.len() >= staging::LEAST_BYTES
            && let Ok(mut staging) = self.staging.try_lock()
            && let Some(staging) = make_once(&mut staging)
        {
            // SAFETY: the caller's promise; `bind` makes the stream's context current, and this is the stream of every
            // call.
            return unsafe { staging.upload(self.lane.stream(), &|| self.gpu.bind(), to, from) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_as_it_is(to, from) }
    }

    /// The driver's copy, which may read `from` later, if that is page-locked. The context is current.
    ///
    /// # Safety
    /// As for [`copy_up`](Self::copy_up).
    unsafe fn copy_as_it_is(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_htod_async(to, from, self.lane.stream()) }.called("cuMemcpyHtoDAsync")
    }

    /// The error for an allocation of `asked` bytes, with what is free now.
    fn out_of_memory(&self, what: &'static str, asked: u64) -> Result<DeviceError, DeviceError> {
        let free = self.memory_free()?.unwrap_or(0);
        let (total, device) = (self.memory_total, self.gpu.name.clone());
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
        self.gpu.with_context(|| {
            if bytes > self.memory_total {
                return Err(self.out_of_memory(what, bytes)?); // no need to ask the driver
            }
            // SAFETY: the context is current, and the stream is one of it; the memory is freed by `free`.
            match unsafe { self.pool.alloc(bytes, self.lane.stream()) } {
                Ok(address) => Ok(address),
                Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                    Err(self.out_of_memory(what, bytes)?)
                }
                Err(error) => Err(failed("cuMemAllocFromPoolAsync", error)),
            }
        })
    }

    unsafe fn free(&self, address: u64) {
        // Errors have nobody to go to: after one that broke the context, its memory is gone anyway.
        let others = self.others().all(); // not waited for under the lock
        let ordered = || match self.pool.is_ordered() {
            // The pool has the memory behind all work that could use it; nobody waits on the host.
            true => {
                self.lane.join_all()?;
                others.iter().try_for_each(|other| other.hold_for_mark(&self.lane))
            }
            false => {
                self.lane.settle()?;
                others.iter().try_for_each(|other| other.wait_for_mark())
            }
        };
        if self.gpu.bind().is_ok() && ordered().is_ok() {
            // SAFETY: the caller's promise; all work that could use the memory comes before in the stream, or is done.
            let _ = unsafe { self.pool.free(address, self.lane.stream()) };
        }
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.gpu.with_context(|| {
            // The copy engine takes page-locked memory as it is.
            let as_it_is = from.len() >= staging::LEAST_BYTES && memory::is_pinned(from.as_ptr())?;
            // SAFETY: the caller's promise; `from` lives until the wait is over.
            unsafe { if as_it_is { self.copy_as_it_is(to, from) } else { self.copy_up(to, from) }? };
            self.lane.wait()
        })
    }

    unsafe fn queue_upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise. The driver copies from ordinary memory to memory of its own before it returns;
        // staging does.
        self.gpu.with_context(|| unsafe { self.copy_up(to, from) })
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.gpu.with_context(|| {
            // SAFETY: the caller's promise; `to` lives until the wait below is over.
            unsafe { result::memcpy_dtoh_async(to, from, self.lane.stream()) }.called("cuMemcpyDtoHAsync")?;
            self.lane.wait()
        })
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError> {
        self.gpu.with_context(|| memory::alloc_pinned(bytes))
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>, _bytes: usize) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the caller's promise.
            unsafe { memory::free_pinned(address) }
        }
    }

    fn is_pinned(&self, address: *const u8) -> Result<bool, DeviceError> {
        self.gpu.with_context(|| memory::is_pinned(address))
    }

    fn own(&self) -> &Arc<dyn Queue> {
        &self.own
    }

    fn create(&self, urgency: Urgency) -> Result<Arc<dyn Queue>, DeviceError> {
        self.gpu.with_context(|| -> Result<Arc<dyn Queue>, DeviceError> {
            let queue = Arc::new(CudaQueue::create(&self.gpu, urgency)?);
            let mut others = self.others();
            others.created.retain(|other| other.strong_count() > 0);
            others.created.push(Arc::downgrade(&queue));
            Ok(queue)
        })
    }

    unsafe fn borrow(&self, raw: usize) -> Result<Arc<dyn Queue>, DeviceError> {
        self.gpu.with_context(|| -> Result<Arc<dyn Queue>, DeviceError> {
            let number = CudaQueue::number(&self.gpu, raw)?;
            if number == self.lane.stream().addr() {
                return Ok(Arc::clone(&self.own));
            }
            let mut others = self.others();
            if let Some(known) = others.borrowed.iter().find(|other| other.is_borrowed(number)) {
                known.take_over()?;
                return Ok(Arc::<CudaQueue>::clone(known));
            }
            // SAFETY: the caller's promise.
            let queue = Arc::new(unsafe { CudaQueue::borrow(&self.gpu, number)? });
            others.borrowed.push(Arc::clone(&queue));
            Ok(queue)
        })
    }

    fn memory_at(&self, address: u64) -> Result<Lies, DeviceError> {
        self.gpu.with_context(|| memory::find(address, self.gpu.device))
    }

    fn has(&self, entry: &'static Entry) -> bool {
        self.gpu.kernels.has(entry)
    }

    fn tensor_map(&self, matrix: &BoxedMatrix) -> Result<TensorMap, DeviceError> {
        self.gpu.with_context(|| tensor_map::encode(matrix))
    }

    fn is_loaded(&self, entry: &'static Entry) -> bool {
        self.gpu.kernels.is_loaded(entry)
    }

    fn load(&self, entry: &'static Entry) -> Result<(), DeviceError> {
        self.gpu.with_context(|| self.gpu.kernels.function(entry).map(|_| ()))
    }

    fn resident_blocks(&self, entry: &'static Entry) -> Result<u32, DeviceError> {
        self.gpu.with_context(|| {
            let function = self.gpu.kernels.function(entry)?.handle;
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

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        self.gpu.with_context(|| {
            let (free, _) = result::mem_get_info().called("cuMemGetInfo")?;
            Ok(Some(wide(free) + self.pool.idle()))
        })
    }

    fn kernel_modules(&self) -> Vec<KernelModule> {
        self.gpu.kernels.loaded()
    }

    fn load_kernels(&self) -> Result<(), DeviceError> {
        self.gpu.with_context(|| self.gpu.kernels.load_all())
    }

    fn dense_library(&self) -> Result<Arc<dyn DenseLibrary>, String> {
        let load = || {
            self.gpu.bind().map_err(|error| error.to_string())?;
            CuBlas::load(&self.gpu).map(Arc::new)
        };
        let loaded = self.cublas.get_or_init(load).clone()?;
        Ok(loaded)
    }

    #[cfg(feature = "dist")]
    fn uuid(&self) -> Option<String> {
        let uuid = result::device::get_uuid(self.gpu.device).ok()?;
        Some(uuid.bytes.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect())
    }

    #[cfg(feature = "dist")]
    fn link_name(&self) -> Result<String, String> {
        nccl::name()
    }

    #[cfg(feature = "dist")]
    fn new_link_id(&self) -> Result<LinkId, DeviceError> {
        nccl::new_id()
    }

    #[cfg(feature = "dist")]
    fn join(&self, id: LinkId, ranks: usize, rank: usize) -> Result<Box<dyn Link>, DeviceError> {
        let link = self.gpu.with_context(|| nccl::Nccl::join(&self.gpu, id, ranks, rank))?;
        Ok(Box::new(link))
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        self.gpu.with_context(|| {
            Ok(Some((self.gpu.context.expose_provenance(), self.lane.stream().expose_provenance())))
        })
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        // Errors have nobody to go to; what cannot be freed dies with the process. Queue and context are given up by
        // the last who has them.
        if self.gpu.bind().is_ok() {
            let _ = self.lane.wait();
            let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(staging) = staging {
                staging.release();
            }
            self.pool.destroy();
        }
    }
}

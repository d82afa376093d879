//! Messages between GPUs by NCCL, which is loaded at run time where it is.
//!
//! The functions are looked up here: cudarc looks for `libnccl.so` alone, and most installations have no file but
//! `libnccl.so.2`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libloading::Library;

use super::gpu::Gpu;
use crate::device::link::{Link, LinkId, Message};
use crate::device::queue::Queue;
use crate::error::DeviceError;
use crate::num::index;

/// `ncclComm_t`, the library's handle.
type Comm = *mut c_void;
/// `ncclResult_t`, which newer versions add values to.
type Status = c_int;
/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId(LinkId);

const SUCCESS: Status = 0;
/// `ncclUint8`, for elements of any type.
const BYTES: c_int = 1;
/// The first version with messages from one rank to another.
const NEEDS: c_int = 2_700;

/// The library's functions that are called here.
struct Functions {
    version: c_int,
    get_error_string: unsafe extern "C" fn(Status) -> *const c_char,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    comm_init_rank: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> Status,
    comm_get_async_error: unsafe extern "C" fn(Comm, *mut Status) -> Status,
    comm_destroy: unsafe extern "C" fn(Comm) -> Status,
    comm_abort: unsafe extern "C" fn(Comm) -> Status,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, *mut c_void) -> Status,
    recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> Status,
    /// Never unloaded: the functions are its.
    _library: Library,
}

impl Functions {
    /// The library's, loaded once.
    fn get() -> Result<&'static Self, String> {
        static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
        FUNCTIONS.get_or_init(Self::load).as_ref().map_err(String::clone)
    }

    fn load() -> Result<Self, String> {
        // SAFETY: the library's initialisers are meant for this.
        let found =
            ["libnccl.so.2", "libnccl.so"].into_iter().find_map(|name| unsafe { Library::new(name).ok() });
        let library = found.ok_or(
            "no libnccl.so.2 could be loaded; install NCCL, or name its folder in LD_LIBRARY_PATH (PyTorch has one in \
             nvidia/nccl/lib beside its own)",
        )?;
        let mut version: c_int = 0;
        // SAFETY: the types are those of the library's header, the same since version 2.7.
        unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int) -> Status = symbol(&library, "ncclGetVersion")?;
            get_version(&raw mut version);
            if version < NEEDS {
                let found = version_name(version);
                return Err(format!("its libnccl.so.2 is version {found}; install 2.7 or a later one"));
            }
            Ok(Self {
                version,
                get_error_string: symbol(&library, "ncclGetErrorString")?,
                get_unique_id: symbol(&library, "ncclGetUniqueId")?,
                comm_init_rank: symbol(&library, "ncclCommInitRank")?,
                comm_get_async_error: symbol(&library, "ncclCommGetAsyncError")?,
                comm_destroy: symbol(&library, "ncclCommDestroy")?,
                comm_abort: symbol(&library, "ncclCommAbort")?,
                group_start: symbol(&library, "ncclGroupStart")?,
                group_end: symbol(&library, "ncclGroupEnd")?,
                send: symbol(&library, "ncclSend")?,
                recv: symbol(&library, "ncclRecv")?,
                _library: library,
            })
        }
    }

    /// A call's status as an error.
    fn called(&self, call: &'static str, status: Status) -> Result<(), DeviceError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: takes any status; the text is the library's, and ends with a zero.
        let text = unsafe {
            let text = (self.get_error_string)(status);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(DeviceError::Library { call, status: format!("{text} (status {status})") })
    }
}

/// A function of the library.
///
/// # Safety
/// `F` is its type.
unsafe fn symbol<F: Copy>(library: &Library, name: &'static str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name) };
    found.map(|symbol| *symbol).map_err(|_| format!("its libnccl.so.2 has no function {name}"))
}

/// 22803 is 2.28.3; before 2.9 there was another way to count.
fn version_name(version: c_int) -> String {
    let major = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

/// Its name and version.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn name() -> Result<String, String> {
    Functions::get().map(|functions| format!("NCCL {}", version_name(functions.version)))
}

/// What a new group is joined by.
///
/// # Errors
/// [`DeviceError::Library`].
pub(super) fn new_id() -> Result<LinkId, DeviceError> {
    let functions = functions()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: the pointer is to a live id.
    let status = unsafe { (functions.get_unique_id)(&raw mut id) };
    functions.called("ncclGetUniqueId", status)?;
    Ok(id.0)
}

fn functions() -> Result<&'static Functions, DeviceError> {
    Functions::get().map_err(|status| DeviceError::Library { call: "loading NCCL", status })
}

/// A GPU's end of a group.
pub(super) struct Nccl {
    gpu: Arc<Gpu>,
    functions: &'static Functions,
    /// None when it was aborted. Locked during calls: one thread at a time may use it.
    comm: Mutex<Option<Handle>>,
}

struct Handle(Comm);

// SAFETY: a communicator may be used from any thread, by one at a time: the lock is for that.
unsafe impl Send for Handle {}

impl Nccl {
    /// Joins a group as one of its ranks; waits until all of them have. The GPU's context is current.
    ///
    /// # Errors
    /// [`DeviceError::Library`].
    pub(super) fn join(gpu: &Arc<Gpu>, id: LinkId, ranks: usize, rank: usize) -> Result<Self, DeviceError> {
        let functions = functions()?;
        let mut comm: Comm = ptr::null_mut();
        // SAFETY: the pointer is to a live handle; a context is current.
        let status =
            unsafe { (functions.comm_init_rank)(&raw mut comm, number(ranks), UniqueId(id), number(rank)) };
        functions.called("ncclCommInitRank", status)?;
        Ok(Self { gpu: Arc::clone(gpu), functions, comm: Mutex::new(Some(Handle(comm))) })
    }

    /// Does something with the communicator, with the GPU's context current.
    fn with<T>(&self, work: impl FnOnce(Comm) -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        let comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner);
        let aborted = || DeviceError::Library { call: "NCCL", status: "the group was aborted".to_owned() };
        let comm = comm.as_ref().ok_or_else(aborted)?.0;
        self.gpu.with_context(|| work(comm))
    }
}

fn number(x: usize) -> c_int {
    c_int::try_from(x).unwrap_or(c_int::MAX)
}

impl Link for Nccl {
    unsafe fn exchange(
        &self,
        queue: &dyn Queue,
        sends: &[Message],
        receives: &[Message],
    ) -> Result<(), DeviceError> {
        let Some(stream) = queue.raw() else {
            let (operation, remedy) = ("run NCCL on it", "a stream of the plan's GPU");
            return Err(DeviceError::NotAvailable { device: self.gpu.name.clone(), operation, remedy });
        };
        let stream: *mut c_void = ptr::with_exposed_provenance_mut(stream);
        let pointer = |address: u64| ptr::with_exposed_provenance_mut::<c_void>(index(address));
        let functions = self.functions;
        self.with(|comm| {
            // SAFETY: communicator and stream are live and of this GPU; the memory is the caller's promise. What is
            // begun is ended, also behind an error.
            unsafe {
                functions.called("ncclGroupStart", (functions.group_start)())?;
                let sent = sends.iter().try_for_each(|&Message { rank, address, bytes }| {
                    let from = pointer(address).cast_const();
                    let status = (functions.send)(from, index(bytes), BYTES, number(rank), comm, stream);
                    functions.called("ncclSend", status)
                });
                let received = receives.iter().try_for_each(|&Message { rank, address, bytes }| {
                    let to = pointer(address);
                    let status = (functions.recv)(to, index(bytes), BYTES, number(rank), comm, stream);
                    functions.called("ncclRecv", status)
                });
                let ended = functions.called("ncclGroupEnd", (functions.group_end)());
                sent.and(received).and(ended)
            }
        })
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.with(|comm| {
            let mut status = SUCCESS;
            // SAFETY: the communicator is live; the pointer is to a live status.
            let asked = unsafe { (self.functions.comm_get_async_error)(comm, &raw mut status) };
            self.functions.called("ncclCommGetAsyncError", asked)?;
            self.functions.called("NCCL", status)
        })
    }

    fn abort(&self) {
        let comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(Handle(comm)), Ok(())) = (comm, self.gpu.bind()) {
            // SAFETY: taken out, so that nobody uses it again. An error has nobody to go to.
            let _ = unsafe { (self.functions.comm_abort)(comm) };
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let comm = self.comm.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(Handle(comm)), Ok(())) = (comm, self.gpu.bind()) {
            // SAFETY: made by `join`, given up only here. An error has nobody to go to.
            let _ = unsafe { (self.functions.comm_destroy)(comm) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_as_the_library_names_them() {
        assert_eq!(version_name(22_803), "2.28.3");
        assert_eq!(version_name(2_708), "2.7.8");
    }

    #[test]
    fn looking_for_the_library_never_panics() {
        // Whether it is there or not.
        match name() {
            Ok(name) => {
                assert!(name.starts_with("NCCL 2."), "{name}");
                assert_ne!(new_id().unwrap(), [0; 128]);
            }
            Err(reason) => assert!(reason.contains("libnccl.so.2") && reason.contains("install"), "{reason}"),
        }
    }
}

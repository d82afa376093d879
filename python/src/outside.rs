//! Work of the library without the interpreter: other Python threads go on meanwhile.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Class, Fault, Outcome};

/// Whether this process was forked off one that had the library loaded. The threads of rayon's pool and what the driver
/// knows stayed there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process is such a child.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Called in the child after a fork.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Shows tests what becomes of a panic.
#[pyfunction]
pub(crate) fn panic_on_purpose(py: Python<'_>) -> PyResult<()> {
    outside(py, || -> Outcome<()> { panic!("on purpose") })
}

/// Does `work` without the interpreter's lock. A panic is an exception like any other.
pub(crate) fn outside<T: Send, E: Into<Fault> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    Ok(py.detach(|| detached(work))?)
}

/// Does `work` on this thread, which does not hold the interpreter's lock.
pub(crate) fn detached<T: Send, E: Into<Fault> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Outcome<T> {
    let work = || caught(|| work().map_err(Into::into));
    if is_forked() { pool()?.install(work) } else { work() }
}

/// Threads for a child: its parent's are not in it, and whoever waited for them would wait for ever.
fn pool() -> Outcome<&'static ThreadPool> {
    static POOLS: Mutex<Vec<(u32, &'static ThreadPool)>> = Mutex::new(Vec::new());
    let (process, mut pools) = (std::process::id(), POOLS.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(&(_, pool)) = pools.iter().find(|(of, _)| *of == process) {
        return Ok(pool);
    }
    let pool = ThreadPoolBuilder::new().build();
    let pool =
        pool.map_err(|error| Fault::new(Class::Device, format!("no threads can be started: {error}")))?;
    let pool: &'static ThreadPool = Box::leak(Box::new(pool));
    pools.push((process, pool));
    Ok(pool)
}

fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Fault::new(Class::Internal, told(&*panic))))
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("windrow has made a mistake, please report it: {}", text.unwrap_or("a panic without a text"))
}

/// Something of a device, which a child that was forked leaves to its parent.
pub(crate) struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    pub(crate) fn new(of_device: T) -> Self {
        Self(ManuallyDrop::new(of_device))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// A plan that many threads run, and one at a time changes.
pub(crate) struct Shared<T>(RwLock<Kept<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(plan: T) -> Self {
        Self(RwLock::new(Kept::new(plan)))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Kept<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Kept<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

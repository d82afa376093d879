//! Orders of rows, with somebody who watches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::reorder::{Options, Reordering, Stopped, Watch, reorder as find};

use crate::any::each;
use crate::csr::{AnyCsr, as_csr, order_array};
use crate::error::{Class, Fault};
use crate::options::read_options;
use crate::outside::{detached, outside};

/// How often Python hears of the progress, and is asked whether somebody wants the end.
const EVERY: Duration = Duration::from_millis(50);

/// What the threads that work tell the one that called.
#[derive(Default)]
struct Progress {
    stage: Mutex<(&'static str, u64)>,
    done: AtomicU64,
    cancelled: AtomicBool,
    finished: Mutex<bool>,
    changed: Condvar,
}

impl Watch for Progress {
    fn begin(&self, stage: &'static str, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = (stage, total);
    }

    fn step(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Progress {
    /// Waits a moment, or until the work is done; whether it is.
    fn wait(&self) -> bool {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(finished, EVERY, |finished| !*finished);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn finish(&self) {
        *self.finished.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Tells Python how far the work is: Ctrl-C, or an exception of the callback, ends it.
    fn tell(&self, callback: Option<&Py<PyAny>>) -> PyResult<()> {
        Python::attach(|py| {
            py.check_signals()?;
            let Some(callback) = callback else { return Ok(()) };
            let (stage, total) = *self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            let done = self.done.load(Ordering::Relaxed).min(total);
            callback.call1(py, (stage, done, total)).map(drop)
        })
    }
}

/// An order of the rows of a matrix that brings rows with shared columns together, and what came of it: an object with
/// `order`, an array (new row `i` is row `order[i]`), `quality`, a dict of the locality before and after, `stages`,
/// pairs of a name and seconds, and `kept_original`.
///
/// `method` is "similarity", "minhash", "rcm", "community", "degree" or "identity". `progress(stage, done, total)` is
/// called about every 50 ms on this thread; what it raises, or Ctrl-C, ends the work and is raised here.
///
/// >>> A = windrow.Csr(([1.0] * 4, [0, 1, 0, 1], [0, 1, 2, 3, 4]), shape=(4, 2))
/// >>> sorted(int(row) for row in windrow.reorder(A, "degree").order)
/// [0, 1, 2, 3]
#[pyfunction]
#[pyo3(signature = (a, method = "similarity", *, progress = None, **similarity))]
pub(crate) fn reorder<'py>(
    py: Python<'py>,
    a: &Bound<'py, PyAny>,
    method: &str,
    progress: Option<Py<PyAny>>,
    similarity: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let given = PyDict::new(py);
    given.set_item("method", method)?;
    given.set_item("similarity", similarity)?;
    let (options, matrix): (Options, _) = (read_options(&given)?, as_csr(a)?.get().on_host(py)?);
    let watched = Progress::default();
    let (found, told) = outside(py, || {
        std::thread::scope(|scope| {
            let work = || {
                let found =
                    detached(|| each!(AnyCsr, &matrix, a => Ok::<_, Fault>(find(a, &options, &watched))));
                watched.finish();
                found
            };
            let worker = scope.spawn(work);
            let mut told = Ok(());
            while !watched.wait() {
                if told.is_ok() {
                    told = watched.tell(progress.as_ref());
                    watched.cancelled.store(told.is_err(), Ordering::Relaxed);
                }
            }
            let found =
                worker.join().unwrap_or_else(|_| Err(Fault::new(Class::Internal, "a thread panicked")));
            Ok::<_, Fault>((found, told))
        })
    })?;
    told?;
    // The last of it, for a bar that ends full.
    watched.tell(progress.as_ref())?;
    let found = found?.map_err(|stopped| match stopped {
        Stopped::OutOfMemory(error) => Fault::from(error),
        cancelled => Fault::new(Class::Internal, cancelled.to_string()),
    })?;
    described(py, &found)
}

fn described<'py>(py: Python<'py>, found: &Reordering) -> PyResult<Bound<'py, PyAny>> {
    let order = order_array(py, &found.permutation)?;
    let quality = PyDict::new(py);
    for (when, locality) in [("before", found.quality.before), ("after", found.quality.after)] {
        let of = PyDict::new(py);
        of.set_item("column_vectors", locality.column_vectors)?;
        of.set_item("column_vectors_16", locality.column_vectors_16)?;
        of.set_item("block_columns", locality.block_columns)?;
        of.set_item("entries_per_vector", locality.entries_per_vector)?;
        of.set_item("dissimilarity", locality.dissimilarity)?;
        quality.set_item(when, of)?;
    }
    let stages: Vec<(&str, f64)> = found.stages.iter().map(|stage| (stage.name, stage.seconds)).collect();
    let made = py.import("windrow._report")?.getattr("Reordering")?;
    made.call1((order, quality, stages, found.kept_original))
}

//! What becomes of work when memory runs out: an error that says so, or a result, and never the end of the process.
//!
//! The allocator of this program refuses, once it is armed, the n-th request of [`LARGE`] bytes or more and all such
//! that follow. Smaller ones, of which the standard library, other crates' buffers, threads and messages are made, it
//! always grants: sizes that follow from the user's data are what can run out. Every piece of work is done again for
//! each n until none is refused.

mod formats;
mod nm;
mod plans;
mod training;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windrow::reorder::{Method, Options, reorder};
use windrow::synthetic::{seeded_tensor, seeded_values};
use windrow::{Coo, Csr, DenseRef, Device, DeviceMatrix, Mttkrp, Precision, Sddmm, SddmmForm, Spmm, Ttm};

/// The least size of a request that may be refused.
const LARGE: usize = 16 << 10;

struct Refusing;

/// Large requests that are still granted; none is refused while this is the largest number.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a request of `size` bytes is granted.
fn granted(size: usize) -> bool {
    if size < LARGE || LEFT.load(Ordering::Relaxed) == u64::MAX {
        return true;
    }
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(1)));
    let granted = left.is_ok_and(|left| left > 0);
    REFUSED.fetch_or(!granted, Ordering::Relaxed);
    granted
}

// SAFETY: what is granted is the system's; a null pointer is what the contract asks for otherwise.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if granted(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if granted(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // One that shrinks is always granted, as systems do.
        match size <= layout.size() || granted(size) {
            // SAFETY: the caller's promise.
            true => unsafe { System.realloc(at, layout, size) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, and all that is granted is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Held by a test from its first line on: requests of another would be counted, and refused.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` with less and less refused, until nothing is. At least `least` requests are large.
#[track_caller]
fn each_refusal<T, E: Debug>(what: &str, least: u64, work: impl Fn() -> Result<T, E>) {
    // What is made once, as pools of threads are, is made before.
    drop(work().expect("there is memory enough"));
    let (mut errors, mut without) = (0, 0);
    for large in 0.. {
        REFUSED.store(false, Ordering::Relaxed);
        LEFT.store(large, Ordering::Relaxed);
        let outcome = work().map(drop);
        LEFT.store(u64::MAX, Ordering::Relaxed);
        let refused = REFUSED.load(Ordering::Relaxed);
        match outcome {
            // Some can be done without, as copies of the matrix for another algorithm are.
            Ok(()) if refused => without += 1,
            Ok(()) => {
                assert!(large >= least, "{what}: only {large} large requests");
                eprintln!("{what}: {large} large requests, {errors} errors, {without} results without one");
                return;
            }
            Err(error) => {
                let error = format!("{error:?}");
                assert!(refused && error.contains("OutOfMemory"), "{what}, the request {large}: {error}");
                errors += 1;
            }
        }
    }
}

/// A plan that was laid out, and refused by the limit before it was uploaded.
fn laid_out<P, E: Debug>(built: Result<P, E>) -> Result<(), E> {
    match built {
        Err(error) if format!("{error:?}").contains("MemoryLimit") => Ok(()),
        built => built.map(drop),
    }
}

/// A square matrix of 5,000 rows, some of them long, out of order in the list that it is made from.
fn matrix() -> Csr<f32> {
    let rows: Vec<u32> =
        (0..30_000u32).map(|i| i.wrapping_mul(2_654_435_761) % 5_000 / (1 + i % 3)).collect();
    let cols: Vec<u32> = (0..30_000u32).map(|i| i.wrapping_mul(40_503) % 5_000).collect();
    let values = seeded_values(rows.len(), 1).unwrap();
    Csr::try_from_coo(&Coo::try_new(5_000, 5_000, rows, cols, values).unwrap()).unwrap()
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn products_of_matrices() {
    let _alone = alone();
    let (device, a) = (Device::cpu(), matrix());
    let b: Vec<f64> = seeded_values(a.cols() * 3, 2).unwrap();
    for precision in Precision::ALL {
        each_refusal(&format!("SpMM in {precision}"), 3, || {
            let mut plan = Spmm::builder(&a).width(3).precision(precision).build(&device)?;
            plan.replace_values(a.values())?;
            plan.run(&b)
        });
        each_refusal(&format!("SDDMM in {precision}"), 4, || {
            let builder = Sddmm::builder(&a).inner(3).precision(precision).form(SddmmForm::Scale);
            let mut plan = builder.build(&device)?;
            plan.replace_values(a.values())?;
            plan.run(&b, &b)
        });
    }
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn products_of_tensors() {
    let _alone = alone();
    let device = Device::cpu();
    let tensor = seeded_tensor::<f32>([3_000, 40, 2_500], 9_000, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let b: Vec<f64> = seeded_values(40 * 2, 2).unwrap();
    let c: Vec<f64> = seeded_values(2_500 * 2, 3).unwrap();
    for precision in [Precision::F32, Precision::F16, Precision::F64] {
        each_refusal(&format!("MTTKRP in {precision}"), 4, || {
            Mttkrp::builder(&tensor).width(2).precision(precision).build(&device)?.run(&b, &c)
        });
        each_refusal(&format!("TTM in {precision}"), 4, || {
            Ttm::builder(&tensor).width(2).precision(precision).build(&device)?.run(&c)
        });
    }
}

/// A column-major `B`, which the CPU transposes.
#[test]
fn products_with_columns() {
    let _alone = alone();
    let (device, a) = (Device::cpu(), matrix());
    let b = seeded_values::<f32>(3 * a.cols(), 2).unwrap();
    let b = DeviceMatrix::upload(&device, DenseRef::packed(&b, 3, a.cols()).unwrap()).unwrap();
    each_refusal("SpMM of columns", 2, || {
        let mut c = DeviceMatrix::<f32>::zeros(&device, a.rows(), 3)?;
        Spmm::builder(&a).width(3).build(&device)?.run_column_major_into(1.0, &b, 0.0, &mut c)
    });
}

/// What a limit refuses is refused before anything large is asked for.
#[test]
fn limits_come_before_allocations() {
    let _alone = alone();
    let (device, a) = (Device::cpu(), matrix());
    let tensor = seeded_tensor::<f32>([3_000, 40, 2_500], 9_000, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let without_memory = |build: &dyn Fn() -> Result<(), windrow::Error>| {
        // The pool of threads is made before.
        rayon::join(|| (), || ());
        LEFT.store(0, Ordering::Relaxed);
        let built = build();
        LEFT.store(u64::MAX, Ordering::Relaxed);
        let error = format!("{built:?}");
        assert!(error.contains("MemoryLimit { needed: "), "{error}");
    };
    without_memory(&|| Ok(Spmm::builder(&a).memory_limit(9).build(&device).map(drop)?));
    let scaled = Sddmm::builder(&a).form(SddmmForm::Scale);
    without_memory(&|| Ok(scaled.clone().memory_limit(9).build(&device).map(drop)?));
    without_memory(&|| Ok(Mttkrp::builder(&tensor).memory_limit(9).build(&device).map(drop)?));
    without_memory(&|| Ok(Ttm::builder(&tensor).memory_limit(9).build(&device).map(drop)?));
}

#[test]
fn orders_of_rows() {
    let _alone = alone();
    let square = matrix();
    let coo = square.to_coo().unwrap();
    let (rows, cols, values) = coo.into_parts();
    let oblong = Csr::try_from_coo(&Coo::try_new(5_000, 6_000, rows, cols, values).unwrap()).unwrap();
    for a in [&square, &oblong] {
        for method in Method::ALL {
            let options = Options { method, ..Options::default() };
            each_refusal(&format!("{method} of {} columns", a.cols()), 4, || reorder(a, &options, &()));
        }
    }
}

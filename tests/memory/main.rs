//! What becomes of work when memory runs out: an error that says so, or a result, and never the end of the process.
//!
//! The allocator of this program refuses, once it is armed, the n-th request of [`LARGE`] bytes or more and all such
//! that follow. Smaller ones, of which the standard library, other crates' buffers, threads and messages are made, it
//! always grants: sizes that follow from the user's data are what can run out. Every piece of work is done again for
//! each n until none is refused.

mod nm;
mod training;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windrow::memory::try_collect;
use windrow::reorder::{Method, Options, reorder};
use windrow::synthetic::{Synthetic, seeded_tensor, seeded_values, seeded_weights};
use windrow::{
    Algorithm, Coo, Coo3, Csr, DenseRef, Determinism, Device, DeviceMatrix, EmulatorSchedule, Epilogue,
    Mttkrp, NmPattern, NmSpmm, Permutation, Precision, Preprocessing, RowDivision, Sddmm, SddmmAlgorithm,
    SddmmForm, Spmm, Structure, Ttm, io,
};
use windrow_formats::{RowAssignment, RsTile, SampledTiles};

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
                println!("{what}: {large} large requests, {errors} errors, {without} results without one");
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

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("windrow-memory-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn matrices() {
    let _alone = alone();
    let a = matrix();
    each_refusal("from a list", 4, || a.to_coo()?.to_csr());
    each_refusal("transposed", 4, || a.transpose());
    each_refusal("the order of the transposed", 2, || a.transpose_order());
    each_refusal("rows in another order", 4, || {
        let order = try_collect((0..5_000).rev(), "an order")?;
        a.permute_rows(&Permutation::try_from_new_to_old(order)?)
    });
    each_refusal("tiles", 6, || RsTile::from_csr(&a, &RowAssignment::all_tile(5_000)?));
    let every = || (0..20_000u32).map(|row| ([row, 0, row % 7], 1.0f32));
    each_refusal("a tensor from entries", 6, || Coo3::from_entries([20_000, 1, 7], every()));
    each_refusal("tiles of sampled products", 4, || SampledTiles::from_csr(&a));
    each_refusal("dense tiles of sampled products", 6, || SampledTiles::with_dense_tiles(&a, 3));
    each_refusal("a synthetic matrix", 20, || Synthetic::Pruned4096.generate::<f32>(1));
    each_refusal("structure", 0, || Ok::<_, ()>(Structure::of(&a)));
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn readers() {
    let _alone = alone();
    let folder = Folder::new("readers");
    let a = matrix();
    // No archive and nothing compressed: the crate that inflates ends the process if it has no memory for its window.
    for name in ["a.mtx", "a.smtx", "a.txt"] {
        let path = folder.0.join(name);
        io::write_csr(&path, &a, &io::WriteOptions::default()).unwrap();
        each_refusal(name, 5, || io::read_csr::<f32>(&path));
    }
    let symmetric = (1..4_000).map(|i| format!("{} {} 0.5\n", i + 1, i)).collect::<String>();
    let dense = (0..10_000).map(|i| format!("{}\n", i % 3)).collect::<String>();
    let tensor = (1..4_000).map(|i| format!("{} {} {} 0.5\n", 1 + i % 7, i, 1 + i % 900)).collect::<String>();
    for (name, text) in [
        (
            "symmetric.mtx",
            format!("%%MatrixMarket matrix coordinate real symmetric\n4000 4000 3999\n{symmetric}"),
        ),
        ("dense.mtx", format!("%%MatrixMarket matrix array real general\n100 100\n{dense}")),
    ] {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        each_refusal(name, 5, || io::read_csr::<f32>(&path));
    }
    let path = folder.0.join("a.order");
    io::write_permutation(&path, &Permutation::identity(30_000).unwrap()).unwrap();
    each_refusal("an order", 4, || io::read_permutation(&path));
    // A line as long as the file, behind a comment.
    let line = format!("# one\n{}", "1 ".repeat(40_000));
    each_refusal("sniffed", 0, || Ok::<_, ()>(drop(io::sniff(line.as_bytes()))));
    let path = folder.0.join("a.tns");
    std::fs::write(&path, tensor).unwrap();
    each_refusal("a.tns", 5, || {
        let coo = io::read_tns::<f32>(&path, None, &io::ReadOptions::default())?;
        Ok::<_, io::ReadError>(coo.to_csf([1, 0, 2])?)
    });
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn writers() {
    let _alone = alone();
    let a = matrix();
    // No archive and nothing compressed, as above.
    for format in [io::Format::MatrixMarket, io::Format::Smtx, io::Format::EdgeList] {
        let options = io::WriteOptions { format: Some(format), ..io::WriteOptions::default() };
        let square = Csr::try_from_parts(
            30_000,
            30_000,
            (0..=30_000).collect(),
            (0..30_000).collect(),
            vec![2.5f32; 30_000],
        );
        let a = if format == io::Format::EdgeList { square.unwrap() } else { a.clone() };
        each_refusal(&format!("{format:?}"), 1, || io::write_csr_to(std::io::sink(), &a, &options));
    }
    let order = Permutation::identity(30_000).unwrap();
    each_refusal("an order", 1, || io::write_permutation_to(std::io::sink(), &order));
    each_refusal("the inverse of an order", 2, || order.try_inverse());
    let tensor = seeded_tensor::<f32>([3_000, 40, 2_500], 9_000, 1).unwrap();
    each_refusal("a tensor", 1, || io::write_tns_to(std::io::sink(), &tensor));
    let tensor = tensor.to_csf([0, 1, 2]).unwrap();
    each_refusal("other values of a tensor", 4, || {
        tensor.with_values(try_collect(tensor.values().iter().copied(), "values")?)
    });
}

/// Layouts for a GPU, laid out on the host: plans up to where their memory is counted, then whole ones.
///
/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn plans_for_gpus() {
    let _alone = alone();
    // Rows of 100 entries, all of which are cut.
    let columns = (0..2_000).flat_map(|row| (0..100).map(move |at| 50 * at + row % 50)).collect();
    let offsets = (0..=2_000).map(|row| 100 * row).collect();
    let a = Csr::try_from_parts(2_000, 5_000, offsets, columns, vec![1.0f32; 200_000]).unwrap();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let order = Permutation::try_from_new_to_old((0..2_000).rev().collect()).unwrap();
    for (algorithm, least) in [
        (Algorithm::RowSplit, 2),
        (Algorithm::SegmentGroup, 4),
        (Algorithm::MergePath, 1),
        (Algorithm::MatricizedRows, 2),
        (Algorithm::TileStream, 4),
        (Algorithm::Hybrid, 4),
    ] {
        for determinism in [Determinism::RunToRun, Determinism::Fast] {
            let division = RowDivision { piece_entries: Some(2), ..RowDivision::default() };
            let builder = Spmm::builder(&a).width(3).algorithm(algorithm).determinism(determinism);
            let builder = builder.row_division(division).memory_limit(1);
            let builder = match algorithm {
                Algorithm::SegmentGroup => builder.parallelism("{<2 nnz, 1 col>, 8}".parse().unwrap()),
                Algorithm::TileStream | Algorithm::Hybrid | Algorithm::MatricizedRows => {
                    builder.precision(Precision::F16)
                }
                _ => builder,
            };
            each_refusal(&format!("{algorithm:?}"), least, || laid_out(builder.build(&device)));
            each_refusal(&format!("{algorithm:?}, uploaded"), least, || {
                // Its own: an emulator lists what was ever freed.
                let device = Device::emulator(EmulatorSchedule::InOrder);
                let builder = builder.clone().memory_limit(u64::MAX).preprocessing(Preprocessing::Cpu);
                builder.values_from_device().build(&device)?.replace_values(a.values())
            });
            if matches!(algorithm, Algorithm::RowSplit | Algorithm::TileStream | Algorithm::Hybrid) {
                each_refusal("in another order", 2, || {
                    laid_out(builder.clone().order(&order).build(&device))
                });
            }
        }
    }
    let sddmm = Sddmm::builder(&a).inner(3).algorithm(SddmmAlgorithm::Entries).memory_limit(1);
    each_refusal("entries", 2, || laid_out(sddmm.build(&device)));
    // Of the columns that a window of rows has, 50 are in all of them, enough for four tiles, and others in one.
    let column = |row: u32, at: u32| 50 * at + if at % 2 == 0 { 0 } else { row % 50 };
    let columns = (0..2_000).flat_map(|row| (0..100).map(move |at| column(row, at))).collect();
    let shared =
        Csr::try_from_parts(2_000, 5_000, a.row_offsets().to_vec(), columns, a.values().to_vec()).unwrap();
    for (algorithm, precision, least) in [
        (SddmmAlgorithm::Entries, Precision::F32, 2),
        (SddmmAlgorithm::Groups, Precision::F32, 1),
        (SddmmAlgorithm::Tiles, Precision::F16, 4),
        (SddmmAlgorithm::Hybrid, Precision::Bf16, 8),
    ] {
        let builder = Sddmm::builder(&shared).inner(3).algorithm(algorithm).precision(precision);
        let builder = builder.tile_threshold(20);
        each_refusal(&format!("SDDMM by {algorithm}"), least, || {
            laid_out(builder.clone().memory_limit(1).build(&device))
        });
        each_refusal(&format!("SDDMM by {algorithm}, uploaded"), least, || {
            builder.clone().form(SddmmForm::Scale).build(&Device::emulator(EmulatorSchedule::InOrder))
        });
    }
    let tensor = seeded_tensor::<f32>([3_000, 40, 2_500], 9_000, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let (mttkrp, ttm) = (Mttkrp::builder(&tensor).width(2), Ttm::builder(&tensor).width(2));
    each_refusal("MTTKRP", 4, || laid_out(mttkrp.clone().memory_limit(1).build(&device)));
    each_refusal("TTM", 2, || laid_out(ttm.clone().memory_limit(1).build(&device)));
    let own = || Device::emulator(EmulatorSchedule::InOrder);
    each_refusal("MTTKRP, uploaded", 4, || mttkrp.build(&own()));
    each_refusal("TTM, uploaded", 2, || ttm.build(&own()));
}

/// Rows of a result that are longer than what may be refused.
#[test]
fn verification() {
    let _alone = alone();
    let (device, n) = (Device::cpu(), 1_100);
    let a = Csr::<f32>::identity(300).unwrap();
    let ones = vec![1.0f32; 300 * n];
    let upload = || DeviceMatrix::upload(&device, DenseRef::packed(&ones, 300, n).unwrap()).unwrap();
    let (b, c) = (upload(), upload());
    let plan = Spmm::builder(&a).width(n).build(&device).unwrap();
    each_refusal("SpMM", 0, || plan.verify(&a, &b, &c).map(|found| assert!(found.passed())));
    let tensor = seeded_tensor::<f32>([300, 300, 300], 900, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    let plan = Mttkrp::builder(&tensor).width(n).build(&device).unwrap();
    let mut y = upload();
    plan.run_into(1.0, [&b, &c], 0.0, &mut y).unwrap();
    each_refusal("MTTKRP", 2, || plan.verify(&tensor, [&b, &c], &y).map(|found| assert!(found.passed())));
    let weights = seeded_weights::<f32>((64, n), NmPattern::new(2, 8, 4).unwrap(), 1).unwrap();
    let plan = NmSpmm::builder(&weights).build(&device).unwrap();
    let a = DeviceMatrix::upload(&device, DenseRef::packed(&ones[..300 * 64], 300, 64).unwrap()).unwrap();
    let run = Epilogue::default();
    plan.run_into(&run, &a, &mut y).unwrap();
    each_refusal("N:M", 4, || plan.verify(&weights, &run, &a, &y).map(|found| assert!(found.passed())));
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

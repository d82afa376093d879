//! What is remembered, saved and read back.

use std::fs;

use windrow_preprocess::reorder;

use super::*;
use crate::options::{Algorithm, CpuTasks, RowDivision};
use crate::parallelism::GroupLaunch;
use crate::spmm::Spmm;

fn matrix(lengths: &[u64]) -> Csr<f32> {
    let offsets = std::iter::once(0).chain(lengths.iter().scan(0, |sum, len| {
        *sum += len;
        Some(*sum)
    }));
    let columns: Vec<u32> = lengths.iter().flat_map(|&len| 0..crate::num::narrow(index(len))).collect();
    let values = vec![1.0; columns.len()];
    Csr::try_from_parts(lengths.len(), 20, offsets.collect(), columns, values).unwrap()
}

fn key(lengths: &[u64], width: usize) -> ProductKey {
    ProductKey::new(&matrix(lengths), &SpmmOptions { width, ..SpmmOptions::DEFAULT })
}

fn of(algorithm: Algorithm) -> SpmmOptions {
    SpmmOptions { algorithm, ..SpmmOptions::DEFAULT }
}

fn options() -> SpmmOptions {
    let launch = GroupLaunch { block_threads: 64, tile_columns: Some(8), workers_log2: -1 };
    SpmmOptions {
        parallelism: Some("{<1/4 row, 4 col>, 4}".parse().unwrap()),
        group_launch: Some(launch),
        reorder: Some(reorder::Options::default()),
        cpu_tasks: Some(CpuTasks { ranges_per_thread: 4, tile_columns: Some(32) }),
        row_division: RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() },
        ..of(Algorithm::SegmentGroup)
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("windrow-tuned-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn keys_tell_structures_apart_and_not_orders_of_rows() {
    let base = key(&[0, 1, 2, 3, 9], 4);
    assert_eq!(base.row_lengths, [1, 1, 2, 0, 1]);
    assert_eq!(base, key(&[9, 3, 0, 2, 1], 4));
    for other in [key(&[0, 1, 2, 4, 8], 4), key(&[0, 1, 2, 3, 9], 5), key(&[0, 1, 2, 3, 9, 0], 4)] {
        assert_ne!(base, other);
    }
    let product = SpmmOptions { width: 4, ..options() };
    let of = |options| ProductKey::new(&matrix(&[0, 1, 2, 3, 9]), &options);
    assert_eq!(base, of(product), "the way is not part of the product");
    assert_ne!(base, of(SpmmOptions { precision: Precision::F16, ..product }));
    assert_ne!(base, of(SpmmOptions { determinism: Determinism::Fast, ..product }));
}

#[test]
fn ways_come_back_as_they_were_saved() {
    let path = folder("round-trip").join("deep").join("tuned.json");
    assert!(Tuned::read(&path).unwrap().is_none());
    let mut tuned = Tuned::of(&Device::cpu());
    tuned.remember(key(&[1, 2], 4), of(Algorithm::TileStream), 2.0, 3.0).unwrap();
    // What is not the way is the key's, or left to the plan.
    let told = SpmmOptions { width: 5, precision: Precision::F16, memory_limit: Some(9), ..options() };
    tuned.remember(key(&[1, 2], 4), told, 1.5, 3.0).unwrap();
    tuned.remember(key(&[1, 2], 8), of(Algorithm::RowSplit), 1.0, 2.0).unwrap();
    tuned.save(&path).unwrap();
    let read = Tuned::read(&path).unwrap().unwrap();
    assert_eq!(read, tuned);
    let found = read.get(&key(&[1, 2], 4)).unwrap();
    let expected = SpmmOptions { width: 4, ..options() };
    assert_eq!((found.options, found.us, found.default_us), (expected, 1.5, 3.0));
    assert!(read.get(&key(&[1, 3], 4)).is_none());
    assert!(tuned.forget(&key(&[1, 2], 4)) && !tuned.forget(&key(&[1, 2], 4)));
    fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
}

#[test]
fn what_holds_no_choices_is_refused_with_the_reason() {
    let path = folder("malformed").join("tuned.json");
    let mut tuned = Tuned::of(&Device::cpu());
    tuned.remember(key(&[1, 2], 4), options(), 1.5, 3.0).unwrap();
    let good = serde_json::to_string(&tuned).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (text, reason) in [
        ("{".to_owned(), "EOF"),
        ("{}".to_owned(), "no schema"),
        ("{\"schema\":1,\"all else\":3}".to_owned(), "schema 1 where 2 is expected"),
        (good.replace("segment-group", "segment-grope"), "segment-grope"),
        (good.replace("1/4 row", "1/5 row"), "1/5"),
        (good.replace("\"block_threads\":64", "\"block_threads\":65"), "a multiple of 32"),
        (good.replace("default_us", "usual_us"), "unknown field"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Tuned::read(&path).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("tune again"), "{error}");
    }
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn what_could_not_be_read_back_is_not_remembered() {
    let mut tuned = Tuned::of(&Device::cpu());
    tuned.remember(key(&[1, 2], 4), options(), 1.5, 3.0).unwrap();
    let launch = GroupLaunch { block_threads: 65, tile_columns: None, workers_log2: 0 };
    let unfit = SpmmOptions { group_launch: Some(launch), ..options() };
    for (options, us, default_us, reason) in [
        (options(), f64::NAN, 3.0, "NaN µs"),
        (options(), 1.5, f64::INFINITY, "the default took inf"),
        (unfit, 1.5, 3.0, "a multiple of 32"),
    ] {
        let error = tuned.remember(key(&[1, 2], 4), options, us, default_us).unwrap_err();
        assert!(matches!(&error, TunedError::Unfit { reason: found } if found.contains(reason)), "{error}");
    }
    assert_eq!(tuned.get(&key(&[1, 2], 4)).unwrap().us, 1.5);
    let text = serde_json::to_string(&tuned).unwrap().replace("\"schema\":2", "\"schema\":3");
    let other: Tuned = serde_json::from_str(&text).unwrap();
    let path = folder("unfit").join("tuned.json");
    assert!(matches!(other.save(&path), Err(TunedError::Unfit { .. })));
    assert!(!path.exists());
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn threads_save_one_path() {
    let path = folder("threads-save").join("tuned.json");
    let mut tuned = Tuned::of(&Device::cpu());
    tuned.remember(key(&[1, 2], 4), options(), 1.5, 3.0).unwrap();
    tuned.save(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    tuned.save(&path).unwrap();
                    assert_eq!(Tuned::read(&path).unwrap().as_ref(), Some(&tuned));
                }
            });
        }
    });
    // The file and its lock, no temporary ones.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn threads_update_one_path_and_nothing_is_lost() {
    let (path, device) = (folder("threads-update").join("tuned.json"), Device::cpu());
    let remember = |width| {
        let change = |tuned: &mut Tuned| tuned.remember(key(&[1, 2], width), options(), 1.5, 3.0);
        Tuned::update(&path, &device, change).unwrap();
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || (0..5).for_each(|number| remember(5 * thread + number)));
        }
    });
    let tuned = Tuned::read(&path).unwrap().unwrap();
    assert!((0..40).all(|width| tuned.get(&key(&[1, 2], width)).is_some()));
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn an_update_writes_what_changed() {
    let (path, device) = (folder("update").join("tuned.json"), Device::cpu());
    let forget = |tuned: &mut Tuned| {
        tuned.forget(&key(&[1, 2], 4));
        Ok(())
    };
    Tuned::update(&path, &device, forget).unwrap();
    assert!(!path.exists());
    let remember = |us| move |tuned: &mut Tuned| tuned.remember(key(&[1, 2], 4), options(), us, 3.0);
    Tuned::update(&path, &device, remember(1.5)).unwrap();
    assert!(matches!(Tuned::update(&path, &device, remember(f64::NAN)), Err(TunedError::Unfit { .. })));
    assert_eq!(Tuned::read(&path).unwrap().unwrap().get(&key(&[1, 2], 4)).unwrap().us, 1.5);
    // What is broken is moved aside, even if there is nothing to be remembered instead.
    fs::write(&path, "{").unwrap();
    Tuned::update(&path, &device, forget).unwrap();
    assert_eq!(Tuned::read(&path).unwrap(), Some(Tuned::of(&device)));
    assert_eq!(fs::read_to_string(path.with_extension("json.broken")).unwrap(), "{");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn no_more_is_read_than_could_be_meant() {
    let path = folder("large").join("tuned.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Tuned::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("larger than the 16777216 bytes that are read"), "{error}");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn a_choice_of_which_no_plan_can_be_made_is_left_out() {
    let (device, a) = (Device::cpu(), matrix(&[1, 2]));
    let mut tuned = Tuned::of(&device);
    let tiles = SpmmOptions { width: 4, ..of(Algorithm::TileStream) };
    tuned.remember(ProductKey::new(&a, &tiles), tiles, 1.5, 3.0).unwrap();
    let plan = Spmm::builder(&a).width(4).tuned(&tuned).build(&device).unwrap();
    let report = plan.report();
    assert!(!report.tuned && report.algorithm == Algorithm::RowSplit);
    assert!(report.tuned_refused.as_ref().unwrap().contains("precision f32"), "{:?}", report.tuned_refused);
}

#[cfg(feature = "emulator")]
#[test]
fn auto_takes_a_choice_for_the_same_structure_on_the_same_device() {
    let device = Device::emulator(windrow_simt::emulator::Schedule::InOrder);
    let (a, other) = (matrix(&[1, 2, 3, 9]), matrix(&[1, 2, 3, 8]));
    let mut tuned = Tuned::of(&device);
    let remembered = SpmmOptions { width: 16, reorder: None, cpu_tasks: None, ..options() };
    tuned.remember(ProductKey::new(&a, &remembered), remembered, 1.0, 2.0).unwrap();
    let plan = |a, width| Spmm::builder(a).width(width).tuned(&tuned);
    let built = plan(&a, 16).build(&device).unwrap();
    let report = built.report();
    assert_eq!((report.requested, report.algorithm), (Algorithm::Auto, Algorithm::SegmentGroup));
    assert_eq!(report.parallelism.as_deref(), Some("{<1/4 row, 4 col>, 4}, <4, 64, 8, 1/2>"));
    assert!(report.tuned && report.reason.starts_with("tuned: 1.0 µs"), "{}", report.reason);
    let told = |autotune| plan(&a, 16).autotune(autotune).build(&device).unwrap().report().reason.clone();
    assert_eq!(told(true), told(false) + "; not timed again");
    let b = vec![1.0; 20 * 16];
    assert_eq!(built.run(&b).unwrap()[..17], [[1.0; 16].as_slice(), &[2.0]].concat());
    let not_taken = [
        plan(&other, 16).build(&device),
        plan(&a, 17).build(&device),
        plan(&a, 16).determinism(Determinism::Fast).build(&device),
        plan(&a, 16).precision(Precision::F16).build(&device),
        plan(&a, 16).algorithm(Algorithm::RowSplit).build(&device),
        plan(&a, 16).build(&Device::cpu()),
    ];
    for built in not_taken {
        assert!(!built.unwrap().report().tuned);
    }
}

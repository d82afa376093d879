//! Names of paths, and the plans that they stand for.

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::reorder::{self, Method};
use windrow::{Determinism, Preprocessing, TileValues};

use super::short::{FORMS, ORDERS, PIPELINES};
use super::*;

#[test]
fn names_round_trip() {
    let all: Vec<SweepPath> = SweepPath::all().collect();
    assert!(SweepPath::DEFAULT.iter().all(|path| all.contains(path)));
    for known in ["row-split-tf32", "auto-f64", "row-split-f64", "short-rows-f64", "segment-group-f64"] {
        assert!(all.iter().any(|path| path.to_string() == known), "{known}");
    }
    for path in all {
        assert_eq!(path.to_string().parse::<SweepPath>().unwrap(), path);
    }
    for text in ["", "row-split", "tile-stream-f32", "hybrid-f32", "hybrid-f64", "auto-f8", "+fast"] {
        let error = text.parse::<SweepPath>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{text:?} is no path")) && error.contains("auto-f16"), "{error}");
    }
}

#[test]
fn options_round_trip_in_any_order() {
    let path: SweepPath = "hybrid-bf16+window-each+fast+rcm".parse().unwrap();
    let method = Method::ReverseCuthillMckee;
    let options = SpmmOptions {
        algorithm: Algorithm::Hybrid,
        precision: Precision::Bf16,
        reorder: Some(reorder::Options { method, ..reorder::Options::default() }),
        determinism: Determinism::Fast,
        window_each: true,
        ..SpmmOptions::DEFAULT
    };
    assert_eq!(path, SweepPath::from(options));
    assert_eq!(path.to_string(), "hybrid-bf16+rcm+fast+window-each");
    assert_eq!(path.to_string().parse::<SweepPath>().unwrap(), path);
    for (method, name) in ORDERS {
        let path: SweepPath = format!("auto-f16+{name}").parse().unwrap();
        assert_eq!(path.options.reorder.map(|options| options.method), Some(method));
        assert_eq!(path.to_string(), format!("auto-f16+{name}"));
    }
    assert_eq!("auto-f16".parse::<SweepPath>().unwrap().options.reorder, None);
    for (form, name) in FORMS {
        let path: SweepPath = format!("auto-f16+{name}+fast").parse().unwrap();
        assert_eq!((path.options.tile_values, path.to_string()), (form, format!("auto-f16+fast+{name}")));
        assert_eq!(path.to_string().parse::<SweepPath>().unwrap(), path);
    }
    for pipeline in PIPELINES {
        let path: SweepPath = format!("tile-stream-f16+{pipeline}+bitmap").parse().unwrap();
        assert_eq!(path.options.tile_pipeline, pipeline);
        assert_eq!(path.to_string(), format!("tile-stream-f16+bitmap+{pipeline}"));
    }
    for (text, threshold, written) in [
        ("vectors", VectorThreshold::LIBRA, "vectors"),
        ("vectors:3/8", VectorThreshold::LIBRA, "vectors"),
        ("vectors:0.5+fast", VectorThreshold::ALL[3], "fast+vectors:4/8"),
        ("vectors+multi-stream", VectorThreshold::LIBRA, "multi-stream+vectors"),
        ("thresholds+vectors", VectorThreshold::LIBRA, "thresholds+vectors"),
    ] {
        let path: SweepPath = format!("hybrid-tf32+{text}").parse().unwrap();
        let rule = Some(PartitionRule::ColumnVectors { threshold });
        assert_eq!((path.options.partition, path.to_string()), (rule, format!("hybrid-tf32+{written}")));
        assert_eq!(path.to_string().parse::<SweepPath>().unwrap(), path);
    }
}

#[test]
fn points_and_launches_round_trip() {
    let path: SweepPath = "matricized-rows-f16+column-major".parse().unwrap();
    assert!(path.column_major && path.to_string().parse::<SweepPath>().unwrap() == path);
    for text in [
        "row-split-f32+tasks:8:-",
        "row-split-f32+rows:whole:-:-",
        "row-split-f16+fast+rows:64:32:1",
        "row-split-f16+rows:-:64:0",
        "auto-f16+fast+tasks:2:64",
        "segment-group-f16+point:1/8row:4col:8",
        "segment-group-f32+fast+point:8nnz:2col:32+launch:256:-:1/4",
        "segment-group-f32+launch:256:8:1",
        "segment-group-f32+launch:128:-:1",
    ] {
        assert_eq!(text.parse::<SweepPath>().unwrap().to_string(), text);
    }
    let path: SweepPath = "segment-group-f32+point:1row:1/2col:2".parse().unwrap();
    assert_eq!(path.options.parallelism.unwrap().to_string(), "{<1 row, 1/2 col>, 2}");
}

/// An option needs no name of its own.
#[test]
fn other_options_have_the_names_of_their_fields() {
    let similarity = reorder::SimilarityOptions { alpha: 2.0, ..reorder::SimilarityOptions::default() };
    let all = SpmmOptions {
        memory_limit: Some(1 << 40),
        preprocessing: Preprocessing::Gpu,
        values_from_device: true,
        workers: Some(40),
        determinism: Determinism::Fast,
        partition: Some(PartitionRule::ShortRows { max_entries: 4 }),
        reorder: Some(reorder::Options { similarity, ..reorder::Options::default() }),
        ..SweepPath::new(Algorithm::Hybrid, Precision::F16).options
    };
    let path = SweepPath::from(all);
    let text = path.to_string();
    assert_eq!(text.parse::<SweepPath>().unwrap(), path, "{text}");
    let (before, after) = ("hybrid-f16+fast+memory_limit=1099511627776+", "+preprocessing=gpu+reorder={");
    assert!(text.starts_with(before) && text.contains(after) && text.ends_with("+workers=40"), "{text}");
    assert!(text.contains(r#"+partition={"short-rows":{"max_entries":4}}+"#), "{text}");
    // A field whose value has a short name is written by that.
    let path: SweepPath = r#"auto-f32+determinism=fast+reorder={"method":"degree"}"#.parse().unwrap();
    assert_eq!(path.to_string(), "auto-f32+degree+fast");
    // The width is the product's.
    let wide = SpmmOptions { width: 7, ..SpmmOptions::DEFAULT };
    assert_eq!(SweepPath::from(wide), SweepPath::new(Algorithm::Auto, Precision::F32));
    let csr = Csr::<f32>::identity(2).unwrap();
    assert_eq!(SweepPath::from(wide).builder(&csr, 3, None).current_options().width, 3);
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for (text, why) in [
        ("auto-f16+", "options are"),
        ("auto-f16+similarity", "options are"),
        ("auto-f16+fast+fast", "twice"),
        ("tile-stream-f16+window-each+window-each", "twice"),
        ("auto-f16+rcm+reorder", "one order"),
        ("row-split-f32+window-each", "windows"),
        ("auto-f16+window-each", "windows"),
        ("auto-f16+dense+packed", "one form"),
        ("auto-f16+two-stages+registers", "one pipeline"),
        ("short-rows-f16+registers", "no tiles"),
        ("hybrid-f16+packed+packed", "one form"),
        ("row-split-f16+packed", "no tiles"),
        ("short-rows-f16+dense", "no tiles"),
        ("hybrid-f16+vectors+vectors:1/8", "twice"),
        ("hybrid-f16+vectors:0", "1/8 to 8/8"),
        ("hybrid-f16+vectorsx", "options are"),
        ("tile-stream-f16+vectors", "only hybrid"),
        ("tile-stream-f16+sequential", "two parts"),
        ("hybrid-f16+sequential+multi-stream", "one schedule"),
        ("row-split-f32+point:1row:1col:1", "only segment-group"),
        ("segment-group-f32+point:1row:1col:2", "and legal"),
        ("row-split-f32+rows:64:32", "divisions of rows are"),
        ("row-split-f32+rows:64:-:-+rows:64:-:-", "twice"),
        ("auto-f32+rows:64:-:-", "only row-split"),
        ("row-split-f32+tasks:8", "tasks are"),
        ("row-split-f32+tasks:8:-+tasks:8:-", "twice"),
        ("row-split-f16+column-major", "only matricized-rows"),
        ("matricized-rows-f16+column-major+column-major", "twice"),
        ("auto-f32+width=3", "width is no option of a path"),
        ("auto-f32+algorithm=hybrid", "algorithm is no option of a path"),
        ("auto-f32+warps=3", "unknown field `warps`, expected one of"),
        ("auto-f32+workers=many", "invalid type"),
        ("auto-f32+workers=3+workers=4", "twice"),
        ("auto-f32+fast+determinism=fast", "twice"),
        ("segment-group-f32+launch:256:8", "launches are"),
        ("segment-group-f32+launch:256:8:1+launch:256:8:1", "twice"),
    ] {
        let error = text.parse::<SweepPath>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{text:?} is no path")) && error.contains(why), "{error}");
    }
}

#[test]
fn the_plan_is_what_the_path_says() {
    let csr = Csr::<f32>::identity(20).unwrap();
    let order = Permutation::try_from_new_to_old((0..20).rev().collect()).unwrap();
    let device = windrow::Device::emulator(windrow::EmulatorSchedule::InOrder);
    let path: SweepPath = "tile-stream-f16+degree+fast+dense".parse().unwrap();
    let plan = path.builder(&csr, 16, Some(&order)).build(&device).unwrap();
    let report = plan.report();
    assert_eq!((report.algorithm, report.precision), (Algorithm::TileStream, Precision::F16));
    assert_eq!((report.determinism, report.order.as_str()), (Determinism::Fast, "given"));
    assert_eq!((report.width, report.tile_values), (16, TileValues::Dense));
    let block = Csr::from_dense(4, 4, &[1.0; 16]).unwrap();
    let path: SweepPath = "hybrid-f16+vectors:4/8".parse().unwrap();
    assert_eq!(path.builder(&block, 16, None).build(&device).unwrap().report().tile_share, 1.0);
    let path: SweepPath = "hybrid-f16+vectors:5/8".parse().unwrap();
    assert_eq!(path.builder(&block, 16, None).build(&device).unwrap().report().tile_share, 0.0);
}

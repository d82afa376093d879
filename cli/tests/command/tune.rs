//! `windrow tune`, and how commands find what it kept.

use super::run::{Folder, Outcome, command, data, finish, windrow};

/// Runs with `folder` as the cache.
#[track_caller]
fn with_cache(folder: &Folder, arguments: &[&str]) -> Outcome {
    finish(command(arguments).env("WINDROW_CACHE_DIR", folder.path("cache")))
}

#[test]
fn the_cpu_has_no_thresholds() {
    windrow(&["tune", "--device", "cpu"]).failed(4, &["the CPU has no thresholds", "--device cuda:0"]);
    windrow(&["tune", "--device", "cuda:99"]).failed(4, &["CUDA"]);
}

#[test]
fn help_says_where_choices_are_kept() {
    windrow(&["tune", "--help"]).succeeded().says(&["WINDROW_CACHE_DIR"]).says(&["--dry-run"]);
}

#[test]
fn a_matrix_needs_a_width_and_a_time_a_unit() {
    let file = data("mbeacxc.mtx.gz");
    windrow(&["tune", &file, "--device", "cpu"]).failed(2, &["--width"]);
    windrow(&["tune", "--width", "4", "--device", "cpu"]).failed(2, &["FILE"]);
    windrow(&["tune", &file, "--width", "4", "--budget", "30"]).failed(2, &["write it as 30s"]);
    windrow(&["tune", "no-such-file", "--width", "4", "--device", "cpu"]).failed(3, &["no-such-file"]);
}

#[test]
fn ways_of_the_cpu_are_tried_and_the_quickest_is_kept() {
    let folder = Folder::new();
    // Small enough that a loaded machine tries several in the time.
    let file = data("mbeacxc.mtx.gz");
    let tune = ["tune", &file, "--width", "64", "--budget", "2s", "--device", "cpu"];
    let object = with_cache(&folder, &[&tune[..], &["--json"]].concat()).json("windrow.tune-product/1");
    assert!(object["tried"].as_u64().unwrap() >= 3, "{object}");
    assert_eq!((&object["wrong"], &object["failed"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(object["default"]["path"], "row-split-f32+tasks:8:-");
    assert!(object["seconds"].as_f64().unwrap() < 20.0);
    // What was timed can be asked for.
    let options = &object["default"]["options"];
    assert_eq!((&options["width"], &options["cpu_tasks"]["ranges_per_thread"]), (&64.into(), &8.into()));
    let asked = ["spmm", &file, "-n", "64", "--device", "cpu", "--repeat", "1", "--options"];
    windrow(&[&asked[..], &[&options.to_string()]].concat()).succeeded().says(&["tasks", "8 ranges"]);
    let speed_up = object["speed_up"].as_f64().unwrap();
    // Whether anything is quicker is up to the machine; what follows from it is not.
    let multiplied =
        with_cache(&folder, &["spmm", &file, "-n", "64", "--device", "cpu", "--repeat", "1", "--json"]);
    let plan = &multiplied.json("windrow.spmm/1")["plan"];
    assert_eq!(plan["tuned"], speed_up > 1.0);
    assert_eq!(object["winner"].is_null(), speed_up <= 1.0);
    assert_eq!(object["kept"].is_null(), speed_up <= 1.0);
    if speed_up > 1.0 {
        let winner = object["winner"]["path"].as_str().unwrap();
        let ranges = plan["cpu_tasks"]["ranges_per_thread"].as_u64().unwrap();
        assert!(winner.contains(&format!("+tasks:{ranges}:")), "{winner}");
    }
    with_cache(&folder, &[&tune[..], &["--dry-run"]].concat())
        .succeeded()
        .says(&["default", "row-split-f32+tasks:8:-"])
        .says(&["candidates tried", "given up early"]);
}

#[test]
fn products_take_what_is_remembered_unless_told() {
    let folder = Folder::new();
    let file =
        folder.file("eye.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 1\n2 2 1\n3 3 1\n");
    let spmm = ["spmm", &file, "--width", "4", "--device", "cpu", "--repeat", "1", "--verify"];
    let tuned = ["tune", &file, "--width", "4", "--budget", "50ms", "--device", "cpu", "--json"];
    let model = with_cache(&folder, &[&tuned[..], &["--dry-run"]].concat()).json("windrow.tune-product/1");
    let model = model["model"].as_str().unwrap();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name = format!("tuned-{}.json", model.chars().map(plain).collect::<String>());
    std::fs::create_dir_all(folder.path("cache")).unwrap();
    let keep = |schema: u32| {
        let tuned = serde_json::json!({
            "schema": schema,
            "device": model,
            "products": [{
                "key": {
                    "rows": 3, "cols": 3, "nnz": 3, "longest_row": 1, "row_lengths": [0, 3], "width": 4,
                    "precision": "f32", "determinism": "run-to-run",
                },
                "options": {
                    "algorithm": "row-split",
                    "cpu_tasks": { "ranges_per_thread": 2, "tile_columns": 32 },
                },
                "us": 1.5,
                "default_us": 2.5,
            }],
        });
        std::fs::write(folder.path(&format!("cache/{name}")), tuned.to_string()).unwrap();
    };
    keep(2);
    with_cache(&folder, &spmm)
        .succeeded()
        .says(&["algorithm", "tuned: 1.5 µs where the default took 2.5"])
        .says(&["tasks", "2 ranges of rows a thread, 32 columns at a time"]);
    for others in [&["--no-tuned"][..], &["--precision", "f16"], &["--determinism", "fast"]] {
        with_cache(&folder, &[&spmm[..], others].concat()).succeeded().says(&["tasks", "8 ranges"]);
    }
    keep(1);
    with_cache(&folder, &spmm).failed(3, &["schema 1 where 2 is expected", "tune again"]);
    with_cache(&folder, &[&spmm[..], &["--no-tuned"]].concat()).succeeded();
}

//! `windrow tune`, and how commands find what it kept.

use serde_json::Value;

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
    windrow(&["tune", "--help"]).succeeded().says(&["Libra's equation 8"]);
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
    let old = with_cache(&folder, &spmm);
    old.succeeded().says(&["tasks", "8 ranges"]);
    assert!(
        old.stderr.contains("schema 1 where 2 is expected") && old.stderr.contains("tune again"),
        "{old:?}"
    );
    let without = with_cache(&folder, &[&spmm[..], &["--no-tuned"]].concat());
    assert_eq!(without.succeeded().stderr, "");
}

/// A folder with a small matrix, and the name under which choices for the CPU are kept in its cache.
fn small_matrix() -> (Folder, String, String) {
    let folder = Folder::new();
    let file =
        folder.file("eye.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 1\n2 2 1\n3 3 1\n");
    std::fs::create_dir_all(folder.path("cache")).unwrap();
    let tune = ["tune", &file, "--width", "1", "--budget", "1ms", "--device", "cpu", "--json", "--dry-run"];
    let object = with_cache(&folder, &tune).json("windrow.tune-product/1");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name = format!("-{}.json", object["model"].as_str().unwrap().chars().map(plain).collect::<String>());
    let model = object["model"].as_str().unwrap().to_owned();
    (folder, model, name)
}

/// The file of choices with one for each width, all by `algorithm`, in times that nobody measures.
fn choices(model: &str, widths: &[u32], algorithm: &str) -> Value {
    let product = |width: &u32| {
        serde_json::json!({
            "key": {
                "rows": 3, "cols": 3, "nnz": 3, "longest_row": 1, "row_lengths": [0, 3], "width": width,
                "precision": "f32", "determinism": "run-to-run",
            },
            "options": { "algorithm": algorithm, "cpu_tasks": { "ranges_per_thread": 2, "tile_columns": 32 } },
            "us": 1.5e9,
            "default_us": 2.5e9,
        })
    };
    serde_json::json!({
        "schema": 2, "device": model, "products": widths.iter().map(product).collect::<Vec<_>>(),
    })
}

#[test]
fn commands_that_tune_at_once_lose_nothing() {
    let (folder, model, name) = small_matrix();
    let (file, path) = (folder.path("eye.mtx"), folder.path(&format!("cache/tuned{name}")));
    std::fs::write(&path, choices(&model, &[7, 8, 9, 99], "row-split").to_string()).unwrap();
    std::thread::scope(|scope| {
        for width in ["7", "8", "9"] {
            let (folder, file) = (&folder, &file);
            scope.spawn(move || {
                let tune = ["tune", file, "--width", width, "--budget", "300ms", "--device", "cpu"];
                with_cache(folder, &tune).succeeded();
            });
        }
    });
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let product = |width: u32| {
        kept["products"].as_array().unwrap().iter().find(|product| product["key"]["width"] == width)
    };
    assert_eq!(product(99).unwrap()["us"], 1.5e9, "{kept}");
    // Whether one was found is up to the machine, but it is not the old one.
    for width in [7, 8, 9] {
        assert!(product(width).is_none_or(|product| product["us"] != 1.5e9), "{kept}");
    }
}

#[test]
fn broken_caches_stop_no_product_and_are_mended() {
    let (folder, model, name) = small_matrix();
    let (file, path) = (folder.path("eye.mtx"), folder.path(&format!("cache/tuned{name}")));
    let good = choices(&model, &[4], "row-split").to_string();
    let spmm = ["spmm", &file, "--width", "4", "--device", "cpu", "--repeat", "1"];
    let broken = folder.path(&format!("cache/tuned{name}.broken"));
    let mut kinds: Vec<(&str, Vec<u8>)> = vec![
        ("EOF", good[..good.len() / 2].into()),
        ("schema 7 where 2 is expected", good.replace("\"schema\":2", "\"schema\":7").into()),
        ("UTF-8", vec![b'"', 0xff, 0xfe, b'"']),
        ("recursion limit", "[".repeat(1 << 20).into()),
        ("no-such-way", good.replace("row-split", "no-such-way").into()),
        ("no regular file", Vec::new()),
    ];
    if cfg!(unix) {
        kinds.push(("no regular file", b"a pipe".into()));
    }
    for (reason, content) in kinds {
        let _ = std::fs::remove_file(&path);
        match content.as_slice() {
            b"" => std::fs::create_dir(&path).unwrap(),
            b"a pipe" => {
                assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            }
            text => std::fs::write(&path, text).unwrap(),
        }
        let product = with_cache(&folder, &spmm);
        product.succeeded().says(&["tasks", "8 ranges"]);
        assert!(product.stderr.contains(reason) && product.stderr.contains(&path), "{reason}: {product:?}");
        assert_eq!(with_cache(&folder, &[&spmm[..], &["--no-tuned"]].concat()).succeeded().stderr, "");
        let tune = ["tune", &file, "--width", "4", "--budget", "1ms", "--device", "cpu"];
        with_cache(&folder, &tune).succeeded();
        let mended: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(mended["schema"], 2, "{reason}");
        assert_eq!(with_cache(&folder, &spmm).succeeded().stderr, "", "{reason}");
        let aside = std::fs::symlink_metadata(&broken).unwrap();
        if aside.is_dir() { std::fs::remove_dir(&broken) } else { std::fs::remove_file(&broken) }.unwrap();
    }
    // The CPU has no thresholds, so its profile is of no interest.
    std::fs::write(folder.path(&format!("cache/profile{name}")), "{").unwrap();
    assert_eq!(with_cache(&folder, &spmm).succeeded().stderr, "");
}

#[test]
fn a_choice_that_cannot_be_planned_is_left_out_with_a_note() {
    let (folder, model, name) = small_matrix();
    let (file, path) = (folder.path("eye.mtx"), folder.path(&format!("cache/tuned{name}")));
    std::fs::write(&path, choices(&model, &[4], "tile-stream").to_string()).unwrap();
    let spmm = ["spmm", &file, "--width", "4", "--device", "cpu", "--repeat", "1"];
    let product = with_cache(&folder, &spmm);
    product.succeeded().says(&["tasks", "8 ranges"]);
    for part in ["note: ", &path, "precision f32", "--no-tuned"] {
        assert!(product.stderr.contains(part), "no {part} in {product:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_found_out_before_the_search() {
    let (folder, ..) = small_matrix();
    let file = folder.path("eye.mtx");
    // Even before the matrix is looked for.
    let tune = ["tune", "no-such-file", "--width", "4", "--device", "cpu"];
    finish(command(&tune).env("WINDROW_CACHE_DIR", &file))
        .failed(3, &["tuned choices", "cannot be written", &file]);
    let spmm = ["spmm", &file, "--width", "4", "--device", "cpu", "--repeat", "1"];
    let product = finish(command(&spmm).env("WINDROW_CACHE_DIR", &file));
    assert!(product.code == Some(0) && product.stderr.starts_with("note: "), "{product:?}");
}

#[test]
fn what_was_found_is_printed_even_if_it_cannot_be_kept() {
    let (folder, _, name) = small_matrix();
    let (file, path) = (folder.path("eye.mtx"), folder.path(&format!("cache/tuned{name}")));
    // Folders that are not empty stay where they are, and no file takes their place.
    for folder in [path.clone(), format!("{path}.broken")] {
        std::fs::create_dir_all(format!("{folder}/within")).unwrap();
    }
    let tune = ["tune", &file, "--width", "4", "--budget", "1ms", "--device", "cpu"];
    let tuned = with_cache(&folder, &tune);
    tuned.failed(3, &["tuned choices", "cannot be written", &path]).says(&["candidates tried"]);
}

#[test]
fn what_is_tried_is_told_if_asked_for() {
    let (folder, ..) = small_matrix();
    let file = folder.path("eye.mtx");
    let tune = ["tune", &file, "--width", "4", "--budget", "150ms", "--device", "cpu", "--dry-run"];
    let told = with_cache(&folder, &[&tune[..], &["--verbose", "--json"]].concat());
    let object = told.json("windrow.tune-product/1");
    let lines: Vec<&str> = told.stderr.lines().collect();
    assert_eq!(lines.len() as u64, object["tried"].as_u64().unwrap(), "{told:?}");
    assert!(
        lines.iter().all(|line| line.starts_with("tuning, ") && line.contains(" of at most 150 ms: ")),
        "{told:?}"
    );
    assert!(lines[0].ends_with(object["default"]["path"].as_str().unwrap()), "{told:?}");
    // Standard error is no terminal here.
    assert_eq!(with_cache(&folder, &tune).succeeded().stderr, "");
    assert_eq!(with_cache(&folder, &[&tune[..], &["--verbose", "--quiet"]].concat()).succeeded().stderr, "");
}

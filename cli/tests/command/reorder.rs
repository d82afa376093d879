//! `windrow reorder`, and orders given to `spmm` and `verify`, on the CPU.

use windrow::{Csr, Permutation, io};

use super::run::{Folder, data, windrow};

/// Rows of `kinds` kinds in turn, so that 8 rows together have the columns of all: `rows` rows of 4 entries.
fn turns(rows: usize, kinds: usize) -> String {
    let mut text =
        format!("%%MatrixMarket matrix coordinate real general\n{rows} {} {}\n", 4 * kinds, 4 * rows);
    for row in 0..rows {
        for col in 0..4 {
            text += &format!("{} {} {}.5\n", row + 1, 4 * (row % kinds) + col + 1, row % 7);
        }
    }
    text
}

/// The lines of an order but for comments.
fn rows_in(path: &str) -> Vec<usize> {
    let text = std::fs::read_to_string(path).expect("the order was written");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.parse().expect("a number")).collect()
}

#[test]
fn from_a_shuffled_matrix_to_a_verified_product() {
    let folder = Folder::new();
    let [made, matrix, order, sorted] =
        ["molbatch300k.npz", "shuffled.npz", "a.order.gz", "sorted.npz"].map(|name| folder.path(name));
    windrow(&["gen", "molbatch300k", &made]).succeeded();
    let a = io::read_csr::<f32>(&made).unwrap();
    let rows = u32::try_from(a.rows()).unwrap();
    // 7919 is a prime that does not divide the number of rows, and no product exceeds 32 bits.
    let shuffle = Permutation::try_from_new_to_old((0..rows).map(|row| 7919 * row % rows).collect()).unwrap();
    let write = |path: &str, a: &Csr<f32>| io::write_csr(path, a, &io::WriteOptions::default()).unwrap();
    write(&matrix, &a.permute_rows(&shuffle).unwrap());

    let found = windrow(&["reorder", &matrix, &order, "--json"]).json("windrow.reorder/1");
    let vectors = |which: &str| found[which]["column_vectors"].as_u64().unwrap();
    assert!(3 * vectors("after") < 2 * vectors("before"), "{found}");
    assert_eq!(found["kept_original"], false);
    assert_eq!(found["bytes"].as_u64().unwrap(), std::fs::metadata(&order).unwrap().len());
    // The order in the file is the one that the report is about.
    let a = io::read_csr::<f32>(&matrix).unwrap();
    let a = a.permute_rows(&io::read_permutation(&order).unwrap()).unwrap();
    write(&sorted, &a);
    for (file, which) in [(&matrix, "before"), (&sorted, "after")] {
        let info = windrow(&["info", file, "--json"]).json("windrow.info/1");
        assert_eq!(info["structure"]["column_vectors"], found[which]["column_vectors"], "{which}");
    }

    for arguments in [
        &["spmm", &matrix, "-n", "16", "--device", "cpu", "--repeat", "1", "--verify", "--reorder", &order][..],
        &["verify", &matrix, "--device", "cpu", "--widths", "3", "--reorder", &order],
    ] {
        let outcome = windrow(arguments);
        outcome.succeeded().says(&["passed"]);
        assert!(outcome.stderr.contains("on the CPU, rows are worked on in their own order"), "{outcome:?}");
    }
}

#[test]
fn every_method_writes_every_row_once() {
    let folder = Folder::new();
    let matrix = folder.file("turns.mtx", turns(64, 4));
    for method in ["identity", "degree", "rcm", "community", "similarity"] {
        let order = folder.path(&format!("{method}.order"));
        windrow(&["reorder", &matrix, &order, "--method", method])
            .succeeded()
            .says(&["matrix", "64 × 16, 256 entries"])
            .says(&["method", method])
            .says(&["column vectors", "128"])
            .says(&["nonzeros per column vector", "2.000"])
            .says(&["dissimilarity of neighbours", "1.0000"])
            .says(&["time"])
            .says(&["locality after"])
            .says(&["order", &order]);
        let mut rows = rows_in(&order);
        if method == "identity" {
            assert_eq!(rows, (0..64).collect::<Vec<_>>());
        }
        rows.sort_unstable();
        assert_eq!(rows, (0..64).collect::<Vec<_>>(), "{method}");
    }
    // The default finds the kinds.
    let order = folder.path("default.order");
    windrow(&["reorder", &matrix, &order]).succeeded().says(&["column vectors", "128", "32"]);
    assert!(rows_in(&order).chunks(8).all(|window| window.iter().all(|row| row % 4 == window[0] % 4)));
    assert_eq!(std::fs::read(&order).unwrap(), std::fs::read(folder.path("similarity.order")).unwrap());
}

#[test]
fn the_same_as_an_object() {
    let folder = Folder::new();
    let (matrix, order) = (folder.file("turns.mtx", turns(64, 4)), folder.path("turns.order"));
    let outcome = windrow(&[
        "reorder",
        &matrix,
        &order,
        "--alpha",
        "0",
        "--candidates",
        "40",
        "--no-two-opt",
        "--json",
    ]);
    let object = outcome.json("windrow.reorder/1");
    assert_eq!((&object["file"], &object["output"]), (&matrix.as_str().into(), &order.as_str().into()));
    assert_eq!((&object["rows"], &object["cols"], &object["nnz"]), (&64.into(), &16.into(), &256.into()));
    assert_eq!((&object["method"], &object["alpha"]), (&"similarity".into(), &0.0.into()));
    let similarity = &object["similarity"];
    assert_eq!((&similarity["two_opt"], &similarity["forest"]), (&false.into(), &true.into()));
    assert_eq!(similarity["candidates"], 40);
    assert!(similarity["neighbours"].is_u64() && similarity["representatives"].is_u64());
    for (which, vectors, each) in [("before", 128, 2.0), ("after", 32, 8.0)] {
        assert_eq!(object[which]["column_vectors"], vectors);
        assert_eq!(object[which]["nnz_per_vector"], each);
    }
    assert_eq!(object["before"]["dissimilarity"], 1.0);
    assert!(object["after"]["dissimilarity"].as_f64().unwrap() < 0.1);
    assert_eq!(object["kept_original"], false);
    let stages = object["stages"].as_array().unwrap();
    assert!(stages.iter().any(|stage| stage["name"] == "spanning forest"), "{stages:?}");
    assert!(stages.iter().all(|stage| stage["name"] != "2-opt"), "{stages:?}");
    let sum: f64 = stages.iter().map(|stage| stage["us"].as_f64().unwrap()).sum();
    assert!(sum > 0.0 && (object["reorder_us"].as_f64().unwrap() / sum - 1.0).abs() < 1e-9);

    let degree = windrow(&["reorder", &matrix, &order, "--method", "degree", "--json"]);
    assert!(degree.json("windrow.reorder/1").get("similarity").is_none());
    // Rows that are alike already: nothing better is to be had.
    let sorted = folder.file("sorted.mtx", turns(64, 1));
    let kept = windrow(&["reorder", &sorted, &order, "--json"]).json("windrow.reorder/1");
    assert_eq!(kept["before"]["column_vectors"], kept["after"]["column_vectors"]);
}

#[test]
fn what_was_there_is_replaced() {
    let folder = Folder::new();
    let matrix = folder.file("turns.mtx", turns(16, 2));
    let order = folder.file("turns.order", "another file, and a longer one\n".repeat(100));
    windrow(&["reorder", &matrix, &order]).succeeded();
    assert_eq!(rows_in(&order).len(), 16);
    assert_eq!(folder.names(), ["turns.mtx", "turns.order"]);
    // What fails leaves what was there.
    let before = std::fs::read(&order).unwrap();
    let broken = folder.file("broken.mtx", "%%MatrixMarket matrix coordinate real general\n3 3\n");
    windrow(&["reorder", &broken, &order]).failed(3, &["broken.mtx", "line 2"]);
    assert_eq!(std::fs::read(&order).unwrap(), before);
    windrow(&["reorder", &matrix, &matrix]).failed(2, &["is the input too"]);
    windrow(&["reorder", &matrix, &folder.path("no/folder/a")]).failed(3, &["cannot write", "no/folder/a"]);
    windrow(&["reorder", &matrix, &folder.path("")]).failed(3, &["cannot write"]);
    assert_eq!(folder.names(), ["broken.mtx", "turns.mtx", "turns.order"]);
}

#[test]
fn matrices_without_rows_columns_or_entries() {
    let folder = Folder::new();
    for (size, rows) in [("0 5 0", 0), ("5 0 0", 5), ("5 5 0", 5)] {
        let text = format!("%%MatrixMarket matrix coordinate real general\n{size}\n");
        let (matrix, order) = (folder.file("empty.mtx", text), folder.path("empty.order"));
        for method in ["identity", "degree", "rcm", "community", "similarity"] {
            windrow(&["reorder", &matrix, &order, "--method", method])
                .succeeded()
                .says(&["column vectors", "0"]);
            assert_eq!(rows_in(&order).len(), rows, "{size}, {method}");
        }
    }
}

#[test]
fn options_that_make_no_sense() {
    let folder = Folder::new();
    let (matrix, order) = (folder.file("turns.mtx", turns(16, 2)), folder.path("turns.order"));
    let with = |more: &[&str]| windrow(&[&["reorder", &matrix, &order], more].concat());
    with(&["--method", "metis"])
        .failed(2, &["\"metis\"", "identity, degree, rcm, community, minhash, similarity"]);
    with(&["--method", "rcm", "--neighbours", "4"])
        .failed(2, &["--neighbours", "--method similarity", "rcm"]);
    with(&["--neighbours", "65"]).failed(2, &["--neighbours", "64"]);
    with(&["--alpha", "nan"]).failed(2, &["--alpha", "0 to 4"]);
    assert_eq!(folder.names(), ["turns.mtx"]);
}

#[test]
fn orders_that_do_not_fit() {
    let folder = Folder::new();
    let matrix = data("mbeacxc.mtx.gz");
    let spmm = |order: &str| {
        windrow(&["spmm", &matrix, "-n", "8", "--device", "cpu", "--repeat", "1", "--reorder", order])
    };
    let short = folder.file("short.order", "# windrow-permutation 1 3\n2\n0\n1\n");
    spmm(&short).failed(3, &["short.order", "an order of 3 rows", "the matrix has 496", "windrow reorder"]);
    windrow(&["verify", &matrix, "--device", "cpu", "--widths", "2", "--reorder", &short])
        .failed(3, &["an order of 3 rows"]);
    let twice = folder.file("twice.order", "# windrow-permutation 1 3\n2\n0\n2\n");
    spmm(&twice).failed(3, &["twice.order", "line 4", "line 2"]);
    let cut = folder.file("cut.order", "# windrow-permutation 1 3\n2\n");
    spmm(&cut).failed(3, &["cut.order", "line 3"]);
    spmm(&matrix).failed(3, &["mbeacxc.mtx.gz", "line 1", "windrow-permutation"]);
    spmm(&folder.path("missing.order")).failed(3, &["missing.order", "cannot read"]);
    spmm("metis")
        .failed(2, &["\"metis\"", "identity, degree, rcm, community, minhash, similarity", "no file"]);
}

#[test]
fn how_a_plan_is_made() {
    let matrix = data("mbeacxc.mtx.gz");
    let spmm = |more: &[&str]| {
        let arguments = ["spmm", &matrix, "-n", "8", "--device", "cpu", "--repeat", "1", "--json"];
        windrow(&[&arguments, more].concat())
    };
    let plan = |more: &[&str]| spmm(more).json("windrow.spmm/1")["plan"].clone();
    let usual = plan(&[]);
    assert_eq!((&usual["determinism"], &usual["order"]), (&"run-to-run".into(), &"its own".into()));
    assert!(usual.get("predicted_us").is_none(), "nothing is predicted on the CPU: {usual}");
    assert_eq!(plan(&["--determinism", "fast"])["determinism"], "fast");
    // The CPU leaves rows as they are, and says so.
    assert_eq!(plan(&["--reorder", "rcm"])["order"], "its own");
    plan(&["--precision", "f16", "--algorithm", "hybrid", "--partition", "overlap:4"]);
    spmm(&["--partition", "tile"]).failed(2, &["--partition", "--algorithm hybrid"]);
    spmm(&["--algorithm", "tile-stream", "--partition", "auto"]).failed(2, &["--algorithm hybrid"]);
    spmm(&["--algorithm", "hybrid", "--partition", "half"])
        .failed(2, &["\"half\"", "short:N", "printed:N,M"]);
    assert_eq!(usual["tile_values"], "auto");
    plan(&["--precision", "f16", "--algorithm", "tile-stream", "--tile-values", "packed"]);
    spmm(&["--tile-values", "sparse"]).failed(2, &["\"sparse\"", "auto, dense, packed and bitmap"]);
    spmm(&["--determinism", "maybe"]).failed(2, &["\"maybe\"", "run-to-run and fast"]);
    let verify = windrow(&[
        "verify",
        &matrix,
        "--device",
        "cpu",
        "--widths",
        "2",
        "--determinism",
        "fast",
        "--partition",
        "short:2",
        "--json",
    ]);
    let verify = verify.json("windrow.verify/1");
    assert_eq!((&verify["determinism"], &verify["order"]), (&"fast".into(), &"its own".into()));
}

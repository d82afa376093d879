//! `windrow gen`: what it writes, by name and by seed.

use super::run::{Folder, windrow};

#[test]
fn the_list_has_eight() {
    let outcome = windrow(&["gen", "--list"]);
    for name in [
        "rmat17",
        "uniform200k",
        "fem100k",
        "molbatch300k",
        "powerlaw100k",
        "pruned4096_90",
        "roadlike500k",
        "community60k",
    ] {
        outcome.succeeded().says(&[name]);
    }
    let object = windrow(&["gen", "--list", "--json"]).json("windrow.gen/1");
    assert_eq!(object["matrices"].as_array().unwrap().len(), 8);
}

#[test]
fn a_matrix_is_the_same_every_time() {
    let folder = Folder::new();
    let (first, again, other) = (folder.path("a.npz"), folder.path("b.npz"), folder.path("c.npz"));
    let object = windrow(&["gen", "community60k", &first, "--json"]).json("windrow.gen/1");
    assert_eq!((&object["name"], &object["seed"]), (&"community60k".into(), &1.into()));
    assert_eq!((&object["rows"], &object["format"]), (&60_000.into(), &"scipy-npz".into()));
    windrow(&["gen", "community60k", &again, "--seed", "1"]).succeeded().says(&["60,000 × 60,000"]);
    windrow(&["gen", "community60k", &other, "--seed", "2"]).succeeded();
    let bytes = |path: &str| std::fs::read(path).unwrap();
    assert_eq!(bytes(&first), bytes(&again));
    assert_ne!(bytes(&first), bytes(&other), "another seed gives other values");
    let info = windrow(&["info", &first, "--json"]).json("windrow.info/1");
    assert_eq!(info["structure"]["nnz"], object["nnz"]);
}

#[test]
fn names_that_do_not_exist() {
    let folder = Folder::new();
    windrow(&["gen", "rmat18", &folder.path("a.mtx")]).failed(2, &["rmat18", "rmat17", "community60k"]);
    windrow(&["gen", "rmat17"]).failed(2, &["<OUTPUT>"]);
    windrow(&["gen"]).failed(2, &["<NAME>"]);
    windrow(&["gen", "fem100k", &folder.path("a.xyz")]).failed(2, &["a.xyz", "--to"]);
}

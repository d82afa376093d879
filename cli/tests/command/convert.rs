//! `windrow convert`: what is written reads back as the same matrix.

use super::run::{Folder, data, windrow};

#[test]
fn every_format_and_back() {
    let folder = Folder::new();
    let original = folder.path("original.mtx");
    windrow(&["convert", &data("mbeacxc.mtx.gz"), &original])
        .succeeded()
        .says(&["496 × 496, 49,920 entries, matrix-market"]);
    let text = std::fs::read_to_string(&original).unwrap();
    assert!(text.starts_with("%%MatrixMarket matrix coordinate real general\n"));
    for name in ["a.npz", "b.mtx.gz", "c.mm"] {
        let (between, back) = (folder.path(name), folder.path("back.mtx"));
        windrow(&["convert", &original, &between]).succeeded();
        windrow(&["convert", &between, &back]).succeeded();
        assert_eq!(std::fs::read_to_string(&back).unwrap(), text, "through {name}");
    }
}

#[test]
fn an_edge_list_of_a_symmetric_matrix() {
    let folder = Folder::new();
    let text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 2\n2 1 0.1\n3 2 -7e-3\n";
    let (file, edges) = (folder.file("symmetric.mtx", text), folder.path("edges.txt"));
    let outcome = windrow(&["convert", &file, &edges, "--json"]);
    assert!(outcome.stderr.contains("2 entries of the other"), "{outcome:?}");
    let object = outcome.json("windrow.convert/1");
    assert_eq!((&object["nnz"], &object["mirrored"]), (&5.into(), &2.into()));
    assert_eq!((&object["format"], &object["gzip"]), (&"edge-list".into(), &false.into()));
    let back = folder.path("back.mtx");
    windrow(&["convert", &edges, &back, "--quiet"]).succeeded();
    let text = std::fs::read_to_string(back).unwrap();
    assert!(
        text.contains("\n2 1 0.1\n") && text.contains("\n2 3 -0.007\n"),
        "values are kept as f64: {text}"
    );
}

#[test]
fn lost_values_are_told() {
    let folder = Folder::new();
    let file = folder.file("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 1 3\n");
    let outcome = windrow(&["convert", &file, &folder.path("a.smtx.gz")]);
    outcome.succeeded().says(&["smtx with gzip"]);
    assert!(outcome.stderr.contains("note: 1 values other than 1 were left out"), "{outcome:?}");
    let quiet = windrow(&["convert", "-q", &file, &folder.path("b.smtx")]);
    assert!(quiet.succeeded().stderr.is_empty(), "{quiet:?}");
}

#[test]
fn names_and_formats_that_do_not_do() {
    let folder = Folder::new();
    let file = data("lyra_conv_to_gates.smtx.gz");
    windrow(&["convert", &file, &folder.path("out.bin")]).failed(2, &["out.bin", ".mtx", "--to"]);
    assert!(!std::path::Path::new(&folder.path("out.bin")).exists());
    windrow(&["convert", &file, &folder.path("out.bin"), "--to", "smtx"]).succeeded();
    windrow(&["info", &folder.path("out.bin")]).succeeded().says(&["3,072 rows × 1,024 columns"]);
    windrow(&["convert", &file, &folder.path("out.npz"), "--to", "tc-gnn-npz"]).failed(3, &["no writer"]);
    windrow(&["convert", &file, &folder.path("no/folder/out.mtx")])
        .failed(3, &["cannot write", "no/folder/out.mtx"]);
    let copy = folder.path("copy.mtx");
    windrow(&["convert", &file, &copy]).succeeded();
    windrow(&["convert", &copy, &copy]).failed(2, &["is the input too"]);
    windrow(&["info", &copy]).succeeded();
}

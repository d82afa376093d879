//! `windrow spy`: pictures of matrices.

use super::run::{Folder, data, windrow};

/// 64 rows of four entries, of four kinds in turn: 8 rows have the columns of all kinds.
fn turns() -> String {
    let mut text = "%%MatrixMarket matrix coordinate pattern general\n64 16 256\n".to_owned();
    for row in 0..64 {
        for col in 0..4 {
            text += &format!("{} {}\n", row + 1, 4 * (row % 4) + col + 1);
        }
    }
    text
}

#[test]
fn a_picture_before_and_after() {
    let folder = Folder::new();
    let (matrix, picture) = (folder.file("turns.mtx", turns()), folder.path("turns.svg"));
    let drawn = windrow(&["spy", &matrix, "--out", &picture, "--order", "similarity", "--json"]);
    let drawn = drawn.json("windrow.spy/1");
    assert_eq!(drawn["cells"], serde_json::json!([64, 16]));
    let [before, after] = drawn["panels"].as_array().unwrap().as_slice() else { panic!("{drawn}") };
    assert_eq!((&before["order"], &before["nnz_per_vector"]), (&"its own".into(), &2.0.into()));
    assert_eq!((&after["order"], &after["nnz_per_vector"]), (&"similarity".into(), &8.0.into()));
    let text = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(drawn["bytes"], text.len());
    assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{text}");
    for part in ["order of rows: its own", "2.00 entries a column vector", "8.00 entries a column vector"] {
        assert_eq!(text.matches(part).count(), 1, "{part}");
    }
    assert_eq!(text.matches("<path").count(), 2, "a cell has one entry or none: a shade for each panel");
    // Rows of one kind lie together: strokes four cells wide, as before, but 64 in another arrangement.
    let strokes: Vec<&str> = text.lines().filter(|line| line.starts_with("<path")).collect();
    assert_eq!(strokes.iter().map(|path| path.matches("h4").count()).collect::<Vec<_>>(), [64, 64]);
    assert_ne!(strokes[0], strokes[1]);
}

#[test]
fn a_picture_of_a_real_matrix_is_small() {
    let folder = Folder::new();
    let (order, picture) = (folder.path("a.order"), folder.path("a.svg"));
    windrow(&["reorder", &data("mbeacxc.mtx.gz"), &order]).succeeded();
    windrow(&["spy", &data("mbeacxc.mtx.gz"), "-o", &picture, "--order", &order])
        .succeeded()
        .says(&["a.svg: 2 panel(s) of 96 × 96 cells of 5.17 × 5.17 places"]);
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(text.len() < 60_000, "{} bytes", text.len());
    assert!(text.contains("496 rows, 496 columns") && text.contains("2.80 entries a column vector"));
}

#[test]
fn columns_follow_on_request() {
    let folder = Folder::new();
    // A ring of 16 whose vertices are numbered in strides of five.
    let mut text = "%%MatrixMarket matrix coordinate pattern general\n16 16 32\n".to_owned();
    for at in 0..16 {
        text += &format!("{} {}\n", at + 1, (at + 5) % 16 + 1);
        text += &format!("{} {}\n", at + 1, (at + 11) % 16 + 1);
    }
    let (matrix, picture) = (folder.file("ring.mtx", text), folder.path("ring.svg"));
    let order: String = (0..16).map(|at| format!("{}\n", at * 5 % 16)).collect();
    let order = folder.file("ring.order", format!("# windrow-permutation 1 16\n{order}"));
    let drawn = windrow(&["spy", &matrix, "-o", &picture, "--order", &order, "--symmetric", "--json"]);
    // Windows of 8 rows share columns by the order of the rows alone.
    let vectors = |at: usize| drawn.json("windrow.spy/1")["panels"][at]["column_vectors"].as_u64().unwrap();
    assert_eq!((vectors(0), vectors(1)), (28, 20));
    let text = std::fs::read_to_string(&picture).unwrap();
    // Beside the diagonal, but for where the ring closes: rows 0 and 1 have columns 1 and 15, 0 and 2.
    assert!(text.contains("d=\"M1 0.5h1m13 0h1m-16 1h1m1 0h1"), "{text}");
    windrow(&["spy", &matrix, "-o", &picture, "--symmetric"]).failed(2, &["--order"]);
    let wide = folder.file("turns.mtx", turns());
    windrow(&["spy", &wide, "-o", &picture, "--order", "degree", "--symmetric"])
        .failed(2, &["square", "64 rows and 16 columns"]);
}

#[test]
fn the_picture_of_the_readme_is_what_its_command_draws() {
    let folder = Folder::new();
    let picture = folder.path("ct2010.svg");
    let matrix = data("ct2010.mtx.gz");
    windrow(&["spy", &matrix, "--out", &picture, "--order", "similarity", "--symmetric", "--cells", "128"])
        .succeeded();
    let committed =
        std::fs::read_to_string(data("../docs/ct2010.svg")).expect("the picture is in the repository");
    assert!(std::fs::read_to_string(&picture).unwrap() == committed, "draw docs/ct2010.svg anew");
}

#[test]
fn what_cannot_be_drawn_says_why() {
    let folder = Folder::new();
    let matrix = folder.file("turns.mtx", turns());
    let order = folder.file("short.order", "# windrow-permutation 1 2\n1\n0\n");
    let picture = folder.path("a.svg");
    windrow(&["spy", &matrix, "-o", &picture, "--order", &order])
        .failed(3, &["an order of 2 rows", "has 64"]);
    assert!(!std::path::Path::new(&picture).exists());
    windrow(&["spy", &matrix, "-o", &matrix]).failed(2, &["is the input too"]);
    windrow(&["spy", &matrix]).failed(2, &["--out"]);
    windrow(&["spy", &matrix, "-o", &picture, "--cells", "0"]).failed(2, &["--cells"]);
    windrow(&["spy", &matrix, "-o", &picture, "--order", "alphabet"]).failed(2, &["alphabet"]);
    windrow(&["spy", &matrix, "-o", &folder.path("none/a.svg")]).failed(3, &["cannot write"]);
}

#[test]
fn an_empty_matrix_has_a_frame() {
    let folder = Folder::new();
    let matrix = folder.file("empty.mtx", "%%MatrixMarket matrix coordinate real general\n0 5 0\n");
    let picture = folder.path("empty.svg");
    windrow(&["spy", &matrix, "-o", &picture, "--order", "degree"])
        .succeeded()
        .says(&["2 panel(s) of 0 × 0"]);
    assert!(std::fs::read_to_string(&picture).unwrap().contains("<rect"));
}

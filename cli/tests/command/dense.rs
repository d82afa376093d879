//! Dense operands from files and results to files: every product compared with one that is computed here.

use std::fs::File;
use std::process::Stdio;

use windrow::io::{self, DenseTensor, ReadOptions, write_tensors};
use windrow::{Value, bf16, f16};

use super::run::{Folder, Outcome, command, finish, windrow};

/// A of 3 × 4, which the tests multiply by.
const SPARSE: &str =
    "%%MatrixMarket matrix coordinate real general\n3 4 4\n1 1 1.5\n1 4 -2\n2 2 3\n3 3 0.5\n";
const DENSE_A: [[f64; 4]; 3] = [[1.5, 0.0, 0.0, -2.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0]];

/// A `.npy` file as NumPy writes it.
fn npy(element: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{element}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let padded = format!("{text:<117}\n");
    bytes.extend(u16::try_from(padded.len()).unwrap().to_le_bytes());
    bytes.extend(padded.as_bytes());
    bytes.extend(data);
    bytes
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Whole numbers, so that sums are exact in every type.
fn made_up(rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|i| ((i * 7 + 3) % 11) as f64 - 5.0).collect()
}

fn product(a: &[&[f64]], b: &[f64], n: usize) -> Vec<f64> {
    let element = |row: &[f64], j: usize| row.iter().enumerate().map(|(k, x)| x * b[k * n + j]).sum();
    a.iter().flat_map(|row| (0..n).map(move |j| element(row, j))).collect()
}

fn expected(b: &[f64], n: usize) -> Vec<f64> {
    product(&DENSE_A.each_ref().map(|row| &row[..]), b, n)
}

/// The dense matrix in a file, row after row.
#[track_caller]
fn read(path: &str) -> (usize, usize, Vec<f64>) {
    let array = io::read_dense::<f64>(path, &ReadOptions::default()).unwrap();
    let (rows, cols) = (array.rows(), array.cols());
    let at = |r: usize, c: usize| if array.is_column_major() { c * rows + r } else { r * cols + c };
    let places = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
    (rows, cols, places.map(|(r, c)| array.values()[at(r, c)]).collect())
}

#[track_caller]
fn cpu(arguments: &[&str]) -> Outcome {
    windrow(&[arguments, &["--device", "cpu", "--repeat", "1"]].concat())
}

#[test]
fn spmm_multiplies_what_is_in_the_files() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let b = made_up(4, 3);
    let columns: Vec<f64> =
        (0..3).flat_map(|c| (0..4).map(move |r| (r, c))).map(|(r, c)| b[r * 3 + c]).collect();
    let text = columns
        .iter()
        .fold("%%MatrixMarket matrix array real general\n4 3\n".to_owned(), |text, x| format!("{text}{x}\n"));
    let halves: Vec<u8> = b.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect();
    let singles: Vec<u8> = b.iter().flat_map(|&x| <f32 as Value>::from_f64(x).to_be_bytes()).collect();
    let whole: Vec<u8> =
        b.iter().flat_map(|&x| x.to_string().parse::<i64>().unwrap().to_le_bytes()).collect();
    let files = [
        folder.file("c_order.npy", npy("<f8", false, "(4, 3)", &f64s(&b))),
        folder.file("fortran.npy", npy("<f8", true, "(4, 3)", &f64s(&columns))),
        folder.file("half.npy", npy("<f2", false, "(4, 3)", &halves)),
        folder.file("big_endian.npy", npy(">f4", false, "(4, 3)", &singles)),
        folder.file("integers.npy", npy("<i8", false, "(4, 3)", &whole)),
        folder.file("b.mtx", text),
    ];
    for file in &files {
        for out in ["c.npy", "c.mtx", "c.npy.gz"].map(|name| folder.path(name)) {
            cpu(&["spmm", &a, "--b", file, "--out", &out, "--verify"])
                .succeeded()
                .says(&["C", "3 × 3 of f32"]);
            assert_eq!(read(&out), (3, 3, expected(&b, 3)), "{file} {out}");
        }
    }
    for precision in ["f64", "f16", "bf16", "tf32"] {
        let out = folder.path("again.npy");
        cpu(&["spmm", &a, "--b", &files[1], "-o", &out, "-p", precision]).succeeded();
        assert_eq!(read(&out).2, expected(&b, 3), "{precision}");
    }
    // An array of one dimension is a column.
    let vector = folder.file("vector.npy", npy("<f8", false, "(4,)", &f64s(&b[..4])));
    let out = folder.path("vector_c.npy");
    let json = cpu(&["spmm", &a, "--b", &vector, "--out", &out, "--json"]).json("windrow.spmm/1");
    assert_eq!(
        (json["width"].as_u64(), json["b"].as_str(), json["out"]["output"].as_str()),
        (Some(1), Some(&*vector), Some(&*out))
    );
    assert_eq!(read(&out), (3, 1, expected(&b[..4], 1)));
    assert!(!folder.names().iter().any(|name| name.starts_with(".windrow")));
}

#[test]
fn rounding_is_told() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let b = folder.file("b.npy", npy("<f8", false, "(4, 1)", &f64s(&[70_000.0, 1.0, 2.0, 3.0])));
    let f32 = cpu(&["spmm", &a, "--b", &b]);
    assert!(f32.succeeded().stderr.contains("is taken from f64 to f32"), "{f32:?}");
    let f16 = cpu(&["spmm", &a, "--b", &b, "-p", "f16"]);
    assert!(f16.succeeded().stderr.contains("note: 1 elements of"), "{f16:?}");
    assert!(f16.stderr.contains("beyond f16 and become infinite"), "{f16:?}");
    let f64 = cpu(&["spmm", &a, "--b", &b, "-p", "f64"]);
    assert!(!f64.succeeded().stderr.contains("note"), "{f64:?}");
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_before_anything_is_written() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let b = folder.file("b.npy", npy("<f8", false, "(3, 2)", &f64s(&made_up(3, 2))));
    let out = folder.path("c.npy");
    let shape = ["B is 3 × 2 but must be 4 × 2", "a row for each column of A"];
    cpu(&["spmm", &a, "--b", &b, "--out", &out]).failed(2, &shape);
    windrow(&["verify", &a, "--b", &b, "-d", "cpu"]).failed(2, &shape);
    cpu(&["spmm", &a, "--b", &b, "--width", "5"]).failed(2, &["--width is 5, but B has 2"]);
    cpu(&["spmm", &a]).failed(2, &["--width"]);
    cpu(&["spmm", &a, "--b", "-"]).failed(2, &["name a file, not -"]);
    cpu(&["spmm", &a, "--width", "2", "--out", &folder.path("c.bin")]).failed(2, &[".npy or .mtx"]);
    cpu(&["spmm", &a, "--width", "2", "--out", "-", "--json"]).failed(2, &["--json and the file"]);
    for (name, content, code, parts) in [
        ("cube.npy", npy("<f8", false, "(2, 2, 2)", &[0; 64]), 3, ["one dimension or two", "[2, 2, 2]"]),
        ("complex.npy", npy("<c8", false, "(4, 1)", &[0; 32]), 3, ["element type <c8", "a.real"]),
        ("short.npy", npy("<f8", false, "(4, 1)", &[0; 31]), 3, ["32 bytes for shape [4, 1]", "31 bytes"]),
        ("long.npy", npy("<f8", false, "(4, 1)", &[0; 33]), 3, ["32 bytes", "more"]),
        ("lie.npy", npy("<f8", false, "(4, 1000000000000)", &[0; 32]), 6, ["1000000000000", "--max"]),
        ("sparse.mtx", SPARSE.into(), 3, ["a sparse matrix where a dense one is read", "as an array"]),
        ("prose.txt", b"Dear reader".to_vec(), 3, ["a NumPy array (.npy)", "Dear reader"]),
    ] {
        let file = folder.file(name, content);
        cpu(&["spmm", &a, "--b", &file, "--out", &out]).failed(code, &parts);
    }
    assert!(!folder.names().contains(&"c.npy".to_owned()));
}

#[cfg(unix)]
#[test]
fn an_operand_is_never_written_over_and_a_dash_is_standard_output() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let b = folder.file("b.npy", npy("<f8", false, "(4, 2)", &f64s(&made_up(4, 2))));
    let (hard, soft) = (folder.path("hard.npy"), folder.path("soft.npy"));
    std::fs::hard_link(&b, &hard).unwrap();
    std::os::unix::fs::symlink("b.npy", &soft).unwrap();
    let before = std::fs::read(&b).unwrap();
    for out in [&b, &hard, &soft] {
        cpu(&["spmm", &a, "--b", &b, "--out", out]).failed(2, &["is the input too"]);
    }
    cpu(&["sddmm", &a, "--y", &b, "--out", &hard]).failed(2, &["is the input too"]);
    assert_eq!(std::fs::read(&b).unwrap(), before);
    let (out, standard) = (folder.path("c.npy"), folder.path("stdout"));
    cpu(&["spmm", &a, "--b", &b, "--out", &out]).succeeded();
    let mut run = command(&["spmm", &a, "--b", &b, "--out", "-", "-d", "cpu"]);
    let outcome = finish(run.stdout(File::create(&standard).unwrap()).stderr(Stdio::piped()));
    assert!(outcome.succeeded().stderr.contains("standard output: 3 × 2 of f32"), "{outcome:?}");
    assert_eq!(std::fs::read(standard).unwrap(), std::fs::read(out).unwrap());
}

#[test]
fn sddmm_has_two_operands_and_a_sparse_result() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let (x, y) = (made_up(3, 2), made_up(4, 2));
    let x_file = folder.file("x.npy", npy("<f8", false, "(3, 2)", &f64s(&x)));
    let y_file = folder.file("y.npy", npy("<f8", false, "(4, 2)", &f64s(&y)));
    for name in ["out.mtx", "out.npz"] {
        let out = folder.path(name);
        let run = ["sddmm", &a, "--x", &x_file, "--y", &y_file, "--out", &out, "--form", "scale", "--verify"];
        cpu(&run).succeeded().says(&["result", "3 × 4"]);
        let got = io::read_csr::<f64>(&out).unwrap();
        assert_eq!((got.row_offsets(), got.col_indices()), (&[0, 2, 3, 4][..], &[0, 3, 1, 2][..]));
        let want = [(0, 0), (0, 3), (1, 1), (2, 2)]
            .map(|(i, j)| DENSE_A[i][j] * (x[2 * i] * y[2 * j] + x[2 * i + 1] * y[2 * j + 1]));
        assert_eq!(got.values(), want);
    }
    // One of both may be made up.
    cpu(&["sddmm", &a, "--x", &x_file, "--verify"]).succeeded();
    cpu(&["sddmm", &a, "--x", &y_file, "-k", "2"]).failed(2, &["X is 4 × 2 but must be 3 × 2"]);
    cpu(&["sddmm", &a, "--x", &x_file, "-k", "3"]).failed(2, &["--inner is 3, but X has 2"]);
}

#[test]
fn verify_checks_with_the_operand_and_writes_the_product() {
    let folder = Folder::new();
    let a = folder.file("a.mtx", SPARSE);
    let b = made_up(4, 3);
    let file = folder.file("b.npy", npy("<f8", false, "(4, 3)", &f64s(&b)));
    let out = folder.path("c.npy");
    windrow(&["verify", &a, "--b", &file, "--out", &out, "-d", "cpu"]).succeeded().says(&["0 failed"]);
    assert_eq!(read(&out), (3, 3, expected(&b, 3)));
    windrow(&["verify", &a, "--out", &out, "-d", "cpu"]).failed(2, &["--b"]);
}

#[test]
fn tensors_take_their_factors_from_files() {
    let folder = Folder::new();
    // A[0,1,0] = 2, A[1,0,1] = 3; indices from 1 in the file.
    let a = folder.file("a.tns", "1 2 1 2\n2 1 2 3\n");
    let (b, c) = (made_up(2, 2), made_up(2, 2).into_iter().rev().collect::<Vec<_>>());
    let b_file = folder.file("b.npy", npy("<f8", false, "(2, 2)", &f64s(&b)));
    let c_file = folder.file("c.npy", npy("<f8", false, "(2, 2)", &f64s(&c)));
    let out = folder.path("y.npy");
    cpu(&["mttkrp", &a, "--b", &b_file, "--c", &c_file, "--out", &out, "--verify"]).succeeded();
    let want = [2.0 * b[2] * c[0], 2.0 * b[3] * c[1], 3.0 * b[0] * c[2], 3.0 * b[1] * c[3]];
    assert_eq!(read(&out), (2, 2, want.to_vec()));
    cpu(&["ttm", &a, "--b", &b_file, "--out", &out, "--verify"]).succeeded();
    let fibers = read(&out);
    // Along mode 0, the fibers are (0, 1) and (1, 0): of the indices of the other modes.
    let mut rows: Vec<_> = fibers.2.chunks(2).map(<[f64]>::to_vec).collect();
    rows.sort_by(f64_order);
    let mut want = vec![vec![2.0 * b[0], 2.0 * b[1]], vec![3.0 * b[2], 3.0 * b[3]]];
    want.sort_by(f64_order);
    assert_eq!(((fibers.0, fibers.1), rows), ((2, 2), want));
    let wide = folder.file("wide.npy", npy("<f8", false, "(3, 2)", &f64s(&made_up(3, 2))));
    cpu(&["mttkrp", &a, "--b", &wide]).failed(2, &["B is 3 × 2 but must be 2 × 2"]);
    cpu(&["mttkrp", &a, "--b", &b_file, "-n", "7"]).failed(2, &["--width is 7, but B has 2"]);
}

fn f64_order(a: &Vec<f64>, b: &Vec<f64>) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap()
}

#[test]
fn nm_takes_activations_and_writes_the_layer() {
    let folder = Folder::new();
    // Columns of 2:4: rows 1 and 3 are larger in each group of four.
    let weights: Vec<f32> = (0..8u8).map(|r| if r % 2 == 1 { f32::from(r) } else { 0.0 }).collect();
    let mut content = Vec::new();
    write_tensors(&mut content, &[DenseTensor::new("w", 8, 1, weights.clone()).unwrap()]).unwrap();
    let weights_file = folder.file("w.safetensors", content);
    let a = made_up(3, 8);
    let a_file = folder.file("a.npy", npy("<f8", false, "(3, 8)", &f64s(&a)));
    let w: Vec<f64> = weights.iter().map(|&x| f64::from(x)).collect();
    let want = product(&a.chunks(8).collect::<Vec<_>>(), &w, 1);
    let out = folder.path("c.npy");
    let base = ["nm", "--pattern", "2:4", "--vector", "1", "--weights", &weights_file, "--a", &a_file];
    for layout in ["row-major", "k-major"] {
        cpu(&[&base[..], &["--out", &out, "--verify", "--layout", layout]].concat()).succeeded();
        assert_eq!(read(&out), (3, 1, want.clone()), "{layout}");
    }
    cpu(&[&base[..], &["--shape", "4"]].concat()).failed(2, &["M of --shape is 4, but A has 3"]);
    let narrow = folder.file("narrow.npy", npy("<f8", false, "(3, 7)", &f64s(&made_up(3, 7))));
    let run = ["nm", "--pattern", "2:4", "--weights", &weights_file, "--a", &narrow];
    cpu(&run).failed(2, &["A is 3 × 7 but must be 3 × 8", "a column for each row of W"]);
}

#[test]
fn pruned_tensors_are_matrices() {
    let folder = Folder::new();
    let dense: Vec<bf16> = DENSE_A.iter().flatten().map(|&x| bf16::from_f64(x)).collect();
    let other = DenseTensor::new("bias", 1, 2, vec![bf16::ONE; 2]).unwrap();
    let mut content = Vec::new();
    write_tensors(&mut content, &[DenseTensor::new("fc.weight", 3, 4, dense).unwrap(), other]).unwrap();
    let file = folder.file("model.safetensors", &content);
    windrow(&["info", &file]).failed(3, &["one tensor", "`fc.weight`", "`bias`"]);
    windrow(&["info", &file, "--tensor", "fc"]).failed(3, &["none of that name", "`fc.weight`"]);
    let info = windrow(&["info", &file, "--tensor", "fc.weight"]);
    info.succeeded().says(&["safetensors tensor fc.weight of"]).says(&["3 rows × 4 columns", "4 nonzeros"]);
    let b = made_up(4, 3);
    let b_file = folder.file("b.npy", npy("<f8", false, "(4, 3)", &f64s(&b)));
    let out = folder.path("c.npy");
    cpu(&["spmm", &file, "--tensor", "fc.weight", "--b", &b_file, "--out", &out]).succeeded();
    assert_eq!(read(&out), (3, 3, expected(&b, 3)));
    let matrix = folder.path("a.mtx");
    windrow(&["convert", &file, &matrix, "--tensor", "fc.weight"]).succeeded();
    assert_eq!(io::read_csr::<f64>(&matrix).unwrap().nnz(), 4);
    windrow(&["info", &matrix, "--tensor", "fc.weight"]).failed(3, &["only safetensors have names"]);
    windrow(&["info", &file, "--tensor", "fc.weight", "--max-nnz", "3"]).failed(6, &["--max-nnz"]);
    // What is behind the tensor does not matter.
    let cut = folder.file("cut.safetensors", &content[..content.len() - 3]);
    windrow(&["info", &cut, "--tensor", "fc.weight"]).succeeded();
    let cut = folder.file("cut.safetensors", &content[..content.len() - 6]);
    windrow(&["info", &cut, "--tensor", "fc.weight"]).failed(3, &["expected 24 bytes, found 22"]);
}

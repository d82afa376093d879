//! Matrices, tensors and files of them.

use std::path::PathBuf;

use windrow::memory::try_collect;
use windrow::synthetic::{Synthetic, seeded_tensor};
use windrow::{Coo3, Csr, Permutation, Structure, io};
use windrow_formats::{RowAssignment, RsTile, SampledTiles};

use super::{alone, each_refusal, matrix};

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
    each_refusal("sniffed", 0, || {
        drop(io::sniff(line.as_bytes()));
        Ok::<_, ()>(())
    });
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

//! Masks that others made.

use windrow::f16;
use windrow::io::{self, Model, ReadOptions};

use super::{Raw, file, halves};
use crate::run::{Folder, windrow};

/// What a file has as packed weights of this name.
fn read(path: &str, name: &str) -> Vec<f16> {
    let options = ReadOptions { tensor: Some(name), ..ReadOptions::default() };
    io::read_vector_nm::<f16>(path, &options).unwrap().to_dense().unwrap()
}

const WEIGHTS: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const MASK: [f32; 8] = [1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0];
/// What the mask keeps of the weights, turned round.
const KEPT: [f32; 8] = [1.0, 0.0, 2.0, 6.0, 0.0, 7.0, 0.0, 0.0];

#[test]
fn masks_of_torch_and_of_another_file_are_imported() {
    let folder = Folder::new();
    let (weights, mask) = (halves(&WEIGHTS), halves(&MASK));
    let kept = KEPT.map(f16::from_f32);
    // As torch.nn.utils.prune has them: the weights become what they are called without it.
    let tensors: [Raw<'_>; 3] = [
        ("fc.weight_orig", "F16", &[2, 4], weights.clone()),
        ("fc.weight_mask", "F16", &[2, 4], mask.clone()),
        ("fc.bias", "F16", &[2], halves(&[1.0, 2.0])),
    ];
    let (torch, out) = (file(&folder, "torch.safetensors", &tensors), folder.path("out.safetensors"));
    for layers in ["weight$", "_orig$"] {
        windrow(&["prune", &torch, &out, "--pattern", "2:4", "--mask", "_mask", "--layers", layers])
            .succeeded()
            .says(&["fc.weight ", "2 × 4", "f16", "50.0 %"])
            .says(&["pruned", "1 of 1 layer, 2:4 in vectors of 1"]);
        assert_eq!(read(&out, "fc.weight"), kept);
        let model = Model::open(&out).unwrap();
        let names: Vec<&str> = model.tensors().map(|tensor| tensor.name()).collect();
        assert_eq!(names, ["fc.weight.values", "fc.weight.indices", "fc.bias"]);
    }
    // In another file, by the same name, or with an end of their own.
    let dense = file(&folder, "dense.safetensors", &[("fc.weight", "F16", &[2, 4], weights)]);
    let bytes = MASK.map(|kept| u8::from(kept > 0.0)).to_vec();
    let masks: [Raw<'_>; 2] =
        [("fc.weight", "BOOL", &[2, 4], bytes.clone()), ("fc.weight.keep", "U8", &[2, 4], bytes)];
    let masks = file(&folder, "masks.safetensors", &masks);
    let before = std::fs::read(&masks).unwrap();
    for end in [&[][..], &["--mask", ".keep"]] {
        let fixed = ["prune", &dense, &out, "--pattern", "2:4", "--mask-file", &masks];
        windrow(&[&fixed[..], end].concat()).succeeded().says(&["fc.weight ", "50.0 %"]);
        assert_eq!(read(&out, "fc.weight"), kept);
    }
    windrow(&["prune", &dense, &masks, "--pattern", "2:4", "--mask-file", &masks])
        .failed(2, &["masks.safetensors is the input too"]);
    assert_eq!(std::fs::read(&masks).unwrap(), before);
    windrow(&["prune", &dense, &out, "--pattern", "2:4", "--mask-file", &folder.path("none")])
        .failed(3, &["none: cannot read"]);
    windrow(&["prune", &dense, &out, "--pattern", "2:4", "--mask-file", &masks, "--zeros"])
        .failed(2, &["--zeros"]);
}

/// Promise, faults: a layer or a mask that has not the pattern is named by row and column of its tensor, and stays.
#[test]
fn what_has_not_the_pattern_is_named_by_row_and_column() {
    let folder = Folder::new();
    let mut bits = vec![0u8; 3 * 12];
    for (row, cols) in [(0, &[0, 1, 9][..]), (1, &[4, 5]), (2, &[4, 8, 9, 11])] {
        cols.iter().for_each(|&col| bits[row * 12 + col] = 1);
    }
    let values: Vec<f32> = (0..36u8).map(|at| f32::from(at + 1)).collect();
    let zeros: Vec<f32> = values.iter().zip(&bits).map(|(x, &kept)| x * f32::from(kept)).collect();
    let mut two = bits.clone();
    two[2 * 12 + 7] = 2;
    let tensors: [Raw<'_>; 9] = [
        ("m", "F16", &[3, 12], halves(&values)),
        ("m.mask", "U8", &[3, 12], bits.clone()),
        ("z", "F16", &[3, 12], halves(&zeros)),
        ("turned", "F16", &[12, 3], halves(&values)),
        ("turned.mask", "U8", &[12, 3], bits),
        ("other", "F16", &[3, 12], halves(&values)),
        ("other.mask", "U8", &[12, 3], vec![1; 36]),
        ("two", "F16", &[3, 12], halves(&values)),
        ("two.keep", "U8", &[3, 12], two),
    ];
    let model = file(&folder, "x.safetensors", &tensors);
    let dry = |arguments: &[&str]| {
        windrow(&[&["prune", &model, "--dry-run", "--pattern", "2:4"], arguments].concat())
    };
    dry(&["--mask", ".mask", "--layers", "^m$"])
        .failed(3, &["no layer could be pruned"])
        .says(&["m ", "left as it is: row 2, columns 8 to 11: the mask keeps 3, the pattern 2"]);
    // Row 0 keeps columns 0 and 1, row 2 column 4, row 1 columns 4 and 5: within the pattern for each, not for all.
    dry(&["--mask", ".mask", "--layers", "^m$", "--vector", "32"]).says(&[
        "left as it is: rows 0 to 2, columns 8 to 11: 3 columns are kept by the mask, the pattern keeps 2 for all of \
         them; with --vector 1 each row has its own",
    ]);
    dry(&["--zeros", "--layers", "^z$"])
        .says(&["z ", "left as it is: row 2, columns 8 to 11: 3 elements are not zero, the pattern keeps 2"]);
    dry(&["--zeros", "--layers", "^z$", "--vector", "3"])
        .says(&["left as it is: rows 0 to 2, columns 8 to 11: 3 columns have elements that are not zero"]);
    // In × out, groups run down the rows: 36 elements in rows of 3, of which 32, 33 and 35 are in the last four.
    dry(&["--mask", ".mask", "--layers", "turned", "--in-out", "--vector", "3"]).says(&[
        "left as it is: rows 8 to 11, columns 0 to 2: 3 rows are kept by the mask",
        "each column has its own",
    ]);
    dry(&["--mask", ".mask", "--layers", "other"]).says(&["left as it is: its mask has shape 12 × 3"]);
    dry(&["--mask", ".mask", "--layers", "^z$"]).says(&["left as it is: no mask z.mask"]);
    dry(&["--mask", ".keep", "--layers", "two"])
        .failed(3, &["tensor `two.keep`: expected elements 0 and 1, found 2 in row 2, column 7"]);
    dry(&["--mask", ""]).failed(2, &["--mask: the end of the names of masks is missing"]);
}

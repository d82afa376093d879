//! Masks, and layers in the layout of compressed-tensors.

use std::path::PathBuf;

use half::{bf16, f16};
use windrow_formats::io::{Model, ReadOptions};
use windrow_formats::{NmPattern, VectorNm};

use super::{Folder, Raw, bytes_of, counting, raw_file};

/// A model whose layer is in compressed-tensors' 2:4 layout: rows × columns, with these bits and kept values.
fn bitmask(folder: &Folder, cols: usize, bits: Vec<u8>, kept: &[f16], extents: [i64; 2]) -> PathBuf {
    let rows = kept.len() / (cols / 2);
    let tensors: [Raw<'_>; 3] = [
        ("up.shape", "I64", &[2, 1], extents.iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("up.compressed", "F16", &[rows, cols / 2], bytes_of(kept)),
        ("up.bitmask", "U8", &[rows, cols.div_ceil(8)], bits),
    ];
    folder.file("bitmask.safetensors", raw_file("", &tensors))
}

#[test]
fn compressed_tensors_layout_is_read() {
    let folder = Folder::new("bitmask");
    // Row 0 keeps columns 0, 3, 5, 6, 8, 9, row 1 columns 1, 2, 4, 7, 10, 11: the lowest bit is the first column.
    let bits = vec![0b0110_1001, 0b0011, 0b1001_0110, 0b1100];
    let kept = counting::<f16>(12);
    let model = Model::open(bitmask(&folder, 12, bits.clone(), &kept, [2, 12])).unwrap();
    let [weights] = &model.bitmask_weights()[..] else { panic!("one layer") };
    assert_eq!(weights.name(), "up.weight");
    let dense = model.read_bitmask::<f32>(weights, &ReadOptions::default()).unwrap();
    let expected = [
        [1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 4.0, 0.0, 5.0, 6.0, 0.0, 0.0],
        [0.0, 7.0, 8.0, 0.0, 9.0, 0.0, 0.0, 10.0, 0.0, 0.0, 11.0, 12.0],
    ];
    assert_eq!((dense.rows(), dense.cols(), dense.values()), (2, 12, expected.as_flattened()));
    let refused = |bits: Vec<u8>, extents, why: &str| {
        let model = Model::open(bitmask(&folder, 12, bits, &kept, extents)).unwrap();
        let weights = &model.bitmask_weights()[0];
        let error = model.read_bitmask::<f32>(weights, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    };
    let with = |at: usize, byte: u8| {
        let mut bits = bits.clone();
        bits[at] = byte;
        bits
    };
    refused(with(0, 0b0111_1001), [2, 12], "two of four bits set, found 3 in row 0, columns from 4");
    refused(with(2, 0b1001_0100), [2, 12], "found 1 in row 1, columns from 0");
    refused(with(1, 0b1_0011), [2, 12], "bits beyond column 12 in row 0");
    refused(bits.clone(), [2, 10], "columns that are a multiple of 4, found 10");
    refused(bits.clone(), [2, -12], "two numbers of type I64");
    refused(bits.clone(), [3, 12], "tensor `up.bitmask`: expected shape [3, 2]");
}

#[test]
fn masks_are_of_zeros_and_ones() {
    let folder = Folder::new("masks");
    let mask = [1u8, 0, 1, 1];
    let tensors: [Raw<'_>; 4] = [
        ("bool", "BOOL", &[2, 2], mask.to_vec()),
        ("bytes", "U8", &[2, 2], mask.to_vec()),
        ("halves", "F16", &[2, 2], bytes_of(&mask.map(|x| f16::from_f32(f32::from(x))))),
        ("two", "U8", &[2, 2], vec![1, 0, 2, 1]),
    ];
    let model = Model::open(folder.file("m.safetensors", raw_file("", &tensors))).unwrap();
    for name in ["bool", "bytes", "halves"] {
        assert_eq!(model.read_mask(name, &ReadOptions::default()).unwrap(), [true, false, true, true]);
    }
    let error = model.read_mask("two", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("tensor `two`: expected elements 0 and 1, found 2 in row 1, column 0"), "{error}");
    // What the mask drops inside of a vector that is kept is zero.
    let pattern = NmPattern::new(1, 2, 2).unwrap();
    let weights =
        VectorNm::from_mask(&[1.0f32, 2.0, 3.0, 4.0], &[false, false, true, false], (2, 2), pattern).unwrap();
    assert_eq!(weights.to_dense().unwrap(), [0.0, 0.0, 3.0, 0.0]);
    assert_eq!(weights.indices(), [1]);
    let error = VectorNm::from_mask(&[1.0f32; 4], &[true, false, false, true], (2, 2), pattern)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("group 0 (rows 0..2) has 2 rows with entries in columns 0..2"), "{error}");
    assert!(VectorNm::from_mask(&[1.0f32; 4], &[true; 3], (2, 2), pattern).is_err());
}

/// What compressed-tensors 0.11.0 itself made of a 3 × 12 tensor `up.weight` with three zeros in a row of four and of
/// `up.bias`, saved by safetensors 0.8.0; its own reader gave `DENSE` back.
fn of_compressed_tensors() -> Vec<u8> {
    const HEADER: &str = concat!(
        r#"{"up.shape":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]},"#,
        r#""up.bias":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"#,
        r#""up.compressed":{"dtype":"BF16","shape":[3,6],"data_offsets":[22,58]},"#,
        r#""up.bitmask":{"dtype":"U8","shape":[3,2],"data_offsets":[58,64]}}   "#
    );
    const DATA: [u8; 64] = [
        0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb1,
        0x3f, 0x22, 0x40, 0xd2, 0x3e, 0xc3, 0xbf, 0xce, 0xbf, 0x7b, 0xbf, 0xce, 0xbf, 0x36, 0xbf, 0x47, 0xbf,
        0xd8, 0x3f, 0xef, 0x3e, 0x00, 0x00, 0x4c, 0x3e, 0x4c, 0x3e, 0xf4, 0xbe, 0xf1, 0xbf, 0x02, 0x40, 0x17,
        0x40, 0xca, 0x3f, 0x1a, 0x40, 0x98, 0x3f, 0xc9, 0x05, 0xca, 0x09, 0x55, 0x09,
    ];
    [&(HEADER.len() as u64).to_le_bytes()[..], HEADER.as_bytes(), &DATA].concat()
}

#[test]
fn a_file_that_compressed_tensors_wrote_is_read() {
    const DENSE: [[u16; 12]; 3] = [
        [0xbfc3, 0, 0, 0xbfce, 0, 0, 0xbf7b, 0xbfce, 0xbf36, 0, 0xbf47, 0],
        [0, 0x3fd8, 0, 0x3eef, 0, 0, 0, 0x3e4c, 0x3e4c, 0, 0, 0xbef4],
        [0xbff1, 0, 0x4002, 0, 0x4017, 0, 0x3fca, 0, 0x401a, 0, 0, 0x3f98],
    ];
    let folder = Folder::new("genuine");
    let model = Model::open(folder.file("genuine.safetensors", of_compressed_tensors())).unwrap();
    let [weights] = &model.bitmask_weights()[..] else { panic!("one layer") };
    let dense = model.read_bitmask::<bf16>(weights, &ReadOptions::default()).unwrap();
    assert_eq!((dense.name(), dense.rows(), dense.cols()), ("up.weight", 3, 12));
    assert_eq!(
        dense.values(),
        DENSE.as_flattened().iter().map(|&bits| bf16::from_bits(bits)).collect::<Vec<_>>()
    );
    assert!(
        VectorNm::from_dense(dense.transposed().unwrap().values(), 12, 3, NmPattern::new(2, 4, 1).unwrap())
            .is_ok()
    );
}

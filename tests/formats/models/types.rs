//! Weights are saved in the type that they have, with all their bits.

use half::{bf16, f16};
use windrow_formats::io::{
    NmIndices, ReadOptions, read_vector_nm, read_vector_nm_from, tensor_type, vector_nm_type,
    write_vector_nm, write_vector_nm_safetensors,
};
use windrow_formats::{NmPattern, Value, ValueType, VectorNm};

use super::{Folder, sharded};

/// Weights whose values are these bits, all of a type: every NaN, infinity and zero among them.
fn with_bits<V: Value>(bits: &[u8]) -> VectorNm<V> {
    let values: Vec<V> = bytemuck::pod_collect_to_vec(bits);
    let cols = values.len() / 2;
    let places = VectorNm::try_from_indices(4, cols, NmPattern::new(2, 4, 1).unwrap(), {
        let first = (0..cols).map(|at| u8::try_from(at % 3).unwrap());
        first.clone().chain(first.map(|at| at + 1)).collect()
    });
    places.unwrap().with_values(values).unwrap()
}

fn keeps_bits<V: Value>(dtype: &str, bits: &[u8]) {
    let weights = with_bits::<V>(bits);
    let mut file = Vec::new();
    write_vector_nm_safetensors(&mut file, &weights, NmIndices::Auto).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("values").unwrap().dtype().to_string(), dtype);
    assert_eq!(tensors.tensor("values").unwrap().data(), bits);
    let found = read_vector_nm_from::<V>(&file[..], &ReadOptions::default()).unwrap();
    assert_eq!(bytemuck::cast_slice::<V, u8>(found.values()), bits, "{dtype}");
    assert_eq!(found.indices(), weights.indices());
}

#[test]
fn every_bit_of_every_16_bit_value_comes_back() {
    let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    keeps_bits::<f16>("F16", &bits);
    keeps_bits::<bf16>("BF16", &bits);
    let singles =
        [0x7F80_0001u32, 0xFFC0_1234, 0x7FA0_0000, 0x8000_0000, 1, 0x7F7F_FFFF].map(u32::to_le_bytes);
    keeps_bits::<f32>("F32", singles.as_flattened());
    let doubles = [0x7FF0_0000_0000_0001u64, 0xFFF8_0000_0000_1234, 1 << 63, 1].map(u64::to_le_bytes);
    keeps_bits::<f64>("F64", doubles.as_flattened());
}

#[test]
fn the_type_of_a_file_is_known() {
    let folder = Folder::new("types");
    let pattern = NmPattern::new(1, 2, 1).unwrap();
    let halves = VectorNm::from_dense(&[f16::ONE, f16::ZERO], 2, 1, pattern).unwrap();
    for (name, indices) in [("a.safetensors", NmIndices::Bytes), ("a.npz", NmIndices::Bytes)] {
        let path = folder.path(name);
        write_vector_nm(&path, &halves, indices).unwrap();
        assert_eq!(vector_nm_type(&path, &ReadOptions::default()).unwrap(), ValueType::F16);
        let brain = VectorNm::from_dense(&[bf16::ONE, bf16::ZERO], 2, 1, pattern).unwrap();
        write_vector_nm(&path, &brain, indices).unwrap();
        // NumPy has no bf16: it is kept exactly, in f32.
        let kept = if name.ends_with("npz") { ValueType::F32 } else { ValueType::Bf16 };
        assert_eq!(vector_nm_type(&path, &ReadOptions::default()).unwrap(), kept);
        assert_eq!(read_vector_nm::<bf16>(&path, &ReadOptions::default()).unwrap(), brain);
    }
    let model = sharded(&folder, "model");
    assert_eq!(tensor_type(&model, Some("mlp.up.weight")).unwrap(), ValueType::Bf16);
    let error = tensor_type(&model, Some("ids")).unwrap_err().to_string();
    assert!(error.contains("tensor `ids`: the type I64 is not supported"), "{error}");
    let error = tensor_type(&model, None).unwrap_err().to_string();
    assert!(error.contains("expected one tensor, found 5: `mlp.up.weight`"), "{error}");
}

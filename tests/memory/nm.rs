//! Weights with N:M sparsity: made, laid out for a GPU, multiplied, read and written.

use std::collections::BTreeMap;

use windrow::io::{self, DenseTensor, Model, NmIndices, NmTensor, ReadOptions, Rewrite};
use windrow::memory::try_copy;
use windrow::synthetic::{seeded_values, seeded_weights};
use windrow::{
    Device, EmulatorSchedule, NmAlgorithm, NmPacking, NmPattern, NmSpmm, Precision, VectorNm, prune_magnitude,
};

use super::{alone, each_refusal, laid_out};

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn weights_are_made() {
    let _alone = alone();
    // A group has 8 rows of 4,096 vectors.
    let (k, n, pattern) = (32, 4_096, NmPattern::new(2, 8, 1).unwrap());
    let weights = seeded_weights::<f32>((k, n), pattern, 1).unwrap();
    let dense = weights.to_dense().unwrap();
    each_refusal("to a dense matrix", 1, || weights.to_dense());
    each_refusal("from a dense matrix", 6, || VectorNm::from_dense(&dense, k, n, pattern));
    each_refusal("from chosen vectors", 2, || {
        VectorNm::from_dense_at(&dense, (k, n), pattern, try_copy(weights.indices(), "indices")?)
    });
    each_refusal("pruned", 3, || prune_magnitude(&dense, k, n, pattern));
    each_refusal("with other values", 2, || weights.with_values(try_copy(weights.values(), "values")?));
    let weights = seeded_weights::<f32>((8 * k, n), pattern, 1).unwrap();
    each_refusal("packed indices", 1, || weights.packed_indices());
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn plans_on_the_cpu_run_and_are_saved() {
    let _alone = alone();
    let device = Device::cpu();
    let weights = seeded_weights::<f32>((256, 128), NmPattern::new(2, 8, 4).unwrap(), 1).unwrap();
    let a: Vec<f32> = seeded_values(256 * 40, 2).unwrap();
    for precision in [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16] {
        each_refusal(&format!("N:M in {precision}"), 4, || {
            NmSpmm::builder(&weights).precision(precision).build(&device)?.run(&a)
        });
    }
    // Many columns, few rows: chunks of columns are listed.
    let weights = seeded_weights::<f32>((2, 200_000), NmPattern::new(1, 2, 8).unwrap(), 1).unwrap();
    let a = [1.0f32; 8];
    each_refusal("N:M with many columns", 5, || NmSpmm::builder(&weights).build(&device)?.run(&a));
    let weights = seeded_weights::<f32>((4_096, 128), NmPattern::new(2, 8, 1).unwrap(), 1).unwrap();
    for indices in [NmIndices::Bytes, NmIndices::Packed] {
        let mut file = Vec::new();
        io::write_vector_nm_safetensors(&mut file, &weights, indices).unwrap();
        each_refusal("weights written", 1, || {
            io::write_vector_nm_safetensors(std::io::sink(), &weights, indices)
        });
        each_refusal("weights read", 4, || {
            io::read_vector_nm_from::<f32>(&file[..], &ReadOptions::default())
        });
    }
}

/// Layouts for both kinds of cores, up to where their memory is counted, then uploaded.
///
/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn plans_for_gpus() {
    let _alone = alone();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let weights = seeded_weights::<f32>((2_048, 512), NmPattern::new(2, 8, 32).unwrap(), 1).unwrap();
    let packings = [NmPacking::Packed, NmPacking::Plain];
    for (algorithm, precision, packings, least) in [
        (NmAlgorithm::CudaCores, Precision::F32, &packings[..], 5),
        (NmAlgorithm::CudaCores, Precision::F16, &packings[..1], 6),
        (NmAlgorithm::TensorCores, Precision::Tf32, &packings[..1], 6),
        (NmAlgorithm::TensorCores, Precision::F16, &packings[..1], 6),
        (NmAlgorithm::TensorCores, Precision::Bf16, &packings[..1], 6),
    ] {
        for &packing in packings {
            let builder = NmSpmm::builder(&weights).rows(8).algorithm(algorithm).precision(precision);
            let builder = builder.packing(packing);
            let what = format!("N:M by {algorithm} in {precision}, {packing}");
            each_refusal(&what, least, || laid_out(builder.clone().memory_limit(1).build(&device)));
            each_refusal(&format!("{what}, uploaded"), least, || {
                builder.build(&Device::emulator(EmulatorSchedule::InOrder))
            });
        }
    }
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn models_are_read() {
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("windrow-memory-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, out) = (folder.join("model.safetensors"), folder.join("out.safetensors"));
    let (rows, cols, pattern) = (256, 128, NmPattern::new(2, 8, 4).unwrap());
    // Headers are small: what parses them is asked for memory beforehand, and cannot fail on the way.
    let mask = DenseTensor::new("w.mask", rows, cols, vec![1.0; rows * cols]).unwrap();
    let dense = DenseTensor::new("w", rows, cols, seeded_values::<f32>(rows * cols, 1).unwrap()).unwrap();
    let mut file = Vec::new();
    io::write_tensors(&mut file, &[dense.clone(), mask]).unwrap();
    std::fs::write(&path, file).unwrap();
    let (model, options) = (Model::open(&path).unwrap(), ReadOptions::default());
    each_refusal("a tensor of a model", 2, || model.read::<f32>("w", &options));
    each_refusal("a tensor of a model, rounded", 2, || model.read::<windrow::f16>("w", &options));
    each_refusal("a mask", 3, || model.read_mask("w.mask", &options));
    let mask = vec![true; rows * cols];
    each_refusal("a transpose", 1, || dense.transposed());
    let whole = NmPattern::new(8, 8, 4).unwrap();
    each_refusal("by a mask", 3, || VectorNm::from_mask(dense.values(), &mask, (rows, cols), whole));
    let weights = prune_magnitude(dense.values(), rows, cols, pattern).unwrap();
    let value_type = windrow::ValueType::F32;
    let packed = NmTensor { name: "w".to_owned(), rows, cols, pattern, value_type, transposed: false };
    let rewrites = BTreeMap::from([("w".to_owned(), Rewrite::Weights(packed))]);
    // Buffers of files have a fixed size, and are not asked for in a way that can fail.
    io::write_model(&model, &out, &rewrites, |_, sink| sink.write(&weights), None).unwrap();
    let again = Model::open(&out).unwrap();
    each_refusal("weights of a model", 2, || again.read_vector_nm::<f32>("w", &options));
    std::fs::remove_dir_all(folder).unwrap();
}

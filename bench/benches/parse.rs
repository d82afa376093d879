//! Reading Matrix Market files. Throughput is in bytes of the file, decompressed unless the name says otherwise.

mod common;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use windrow::io::{ReadOptions, read_csr_from, write_matrix_market};
use windrow::synthetic::Synthetic;

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    group.sample_size(10);
    let packed = std::fs::read(common::data_folder().join("ct2010.mtx.gz"))
        .expect("ct2010.mtx.gz; name the folder in WINDROW_DATA");
    let mut files = vec![("ct2010.mtx.gz", packed)];
    for (name, kind) in
        [("molbatch300k.mtx", Synthetic::Molbatch300k), ("pruned4096_90.mtx", Synthetic::Pruned4096)]
    {
        let csr = kind.generate::<f32>(1).expect("memory for a test matrix");
        let mut text = Vec::new();
        write_matrix_market(&mut text, &csr).expect("memory for its text");
        let (back, _) = read_csr_from::<f32>(&text[..], &ReadOptions::default()).expect("what was written");
        assert_eq!(back, csr, "{name} is read back as it was written");
        files.push((name, text));
    }
    for (name, bytes) in &files {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(*name, |bencher| {
            bencher.iter(|| read_csr_from::<f32>(&bytes[..], &ReadOptions::default()).expect("a matrix"));
        });
    }
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);

//! Reading Matrix Market files. Throughput is in bytes of the file, decompressed unless the name says otherwise.

use criterion::Throughput;
use windrow::io::{ReadOptions, read_csr_from, write_matrix_market};
use windrow::synthetic::Synthetic;

use crate::cases::Bench;
use crate::matrices::data_folder;

pub(crate) fn suite(bench: &mut Bench) {
    let mut files = vec![("ct2010.mtx.gz", None)];
    if !bench.is_quick {
        files.push(("molbatch300k.mtx", Some(Synthetic::Molbatch300k)));
        files.push(("pruned4096_90.mtx", Some(Synthetic::Pruned4096)));
    }
    let mut group = bench.criterion.benchmark_group("parse");
    group.sample_size(10);
    for (name, kind) in files {
        // The sizes have to be known before a case is run, so these are made even if a filter leaves them out.
        let bytes = kind.map_or_else(|| packed(name), |kind| text_of(name, kind));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| read_csr_from::<f32>(&bytes[..], &ReadOptions::default()).expect("a matrix"));
        });
    }
    group.finish();
}

fn packed(file: &str) -> Vec<u8> {
    let path = data_folder().join(file);
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; name the folder in WINDROW_DATA", path.display()))
}

/// A made-up matrix as text that is read back as the same.
fn text_of(name: &str, kind: Synthetic) -> Vec<u8> {
    let csr = kind.generate::<f32>(1).expect("memory for a test matrix");
    let mut text = Vec::new();
    write_matrix_market(&mut text, &csr).expect("memory for its text");
    let (back, _) = read_csr_from::<f32>(&text[..], &ReadOptions::default()).expect("what was written");
    assert_eq!(back, csr, "{name} is read back as it was written");
    text
}

//! Attention over the entries of `A` and its gradients, 64 columns a head. Throughput is in entries of `A`.

use criterion::BenchmarkId;
use windrow::synthetic::Synthetic;
use windrow_bench::measure::AttendedPath;

use crate::cases::{Bench, Work};
use crate::matrices::matrices;

const COLUMNS: usize = 64;

pub(crate) fn suite(bench: &mut Bench) {
    let columns = if bench.is_quick { 8 } else { COLUMNS };
    for (name, a) in matrices(bench, &[Synthetic::Rmat17]) {
        let device = bench.device.clone();
        let mut group = bench.group(format!("attention/{name}"), a.nnz());
        for path in AttendedPath::standard() {
            group.case(BenchmarkId::new(path.to_string(), columns), || -> Work {
                let mut attended = path.prepare(&a, columns, &device, 1).expect("a plan and its operands");
                attended.run().expect("a run");
                attended.verify(&a).unwrap_or_else(|error| panic!("{path}, {columns} columns: {error}"));
                Box::new(move || attended.run().expect("the same run"))
            });
        }
    }
}

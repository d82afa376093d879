//! Sparse-dense products. Throughput is in entries of `A`.

use std::hint::black_box;

use criterion::BenchmarkId;
use windrow::synthetic::Synthetic;
use windrow::{Algorithm, Csr, Device, Element, Precision, Value, with_element};
use windrow_bench::measure::{SweepPath, poisoned_matrix, random_matrix};

use crate::cases::{Bench, Work};
use crate::matrices::matrices;
use crate::spmm_sprs;

const WIDTHS: [usize; 2] = [32, 128];
/// Of a vector, and of few columns.
const NARROW: [usize; 4] = [1, 2, 4, 8];

pub(crate) fn suite(bench: &mut Bench) {
    let synthetic = match bench.has_kernels() {
        true => [Synthetic::Fem100k, Synthetic::Rmat17],
        false => [Synthetic::Pruned4096, Synthetic::Molbatch300k],
    };
    for (name, a) in matrices(bench, &synthetic) {
        let (here, elsewhere): (Vec<_>, Vec<_>) = paths(bench)
            .into_iter()
            .partition(|(path, _)| bench.has_kernels() || path.options.algorithm == Algorithm::Auto);
        for (path, widths) in elsewhere {
            widths.iter().for_each(|width| bench.skip(format!("spmm/{name}/{path}/{width}")));
        }
        let (device, has_peer, is_quick) = (bench.device.clone(), !bench.has_kernels(), bench.is_quick);
        let mut group = bench.group(format!("spmm/{name}"), a.nnz());
        for (path, widths) in here {
            for &width in widths {
                group.case(BenchmarkId::new(path.to_string(), width), || product(&device, &a, width, path));
            }
        }
        if has_peer {
            spmm_sprs::cases(&mut group, &a, if is_quick { &WIDTHS[..1] } else { &WIDTHS });
        }
    }
}

/// Ways to the product, each with its widths.
fn paths(bench: &Bench) -> Vec<(SweepPath, &'static [usize])> {
    let narrow: &[usize] = if bench.is_quick { &NARROW[2..3] } else { &NARROW };
    let wide: &[usize] = if bench.is_quick { &WIDTHS[..1] } else { &WIDTHS };
    let auto = Precision::ALL.map(|precision| SweepPath::new(Algorithm::Auto, precision));
    let asked = [(Algorithm::MatricizedRows, Precision::F16), (Algorithm::RowPanels, Precision::F32)]
        .map(|(algorithm, precision)| SweepPath::new(algorithm, precision));
    let others = SweepPath::DEFAULT.into_iter().filter(|path| path.options.algorithm != Algorithm::Auto);
    let mut paths: Vec<_> = auto.into_iter().chain(others).chain(asked).map(|path| (path, wide)).collect();
    let narrow_paths =
        [Algorithm::Auto, Algorithm::RowSplit].map(|algorithm| SweepPath::new(algorithm, Precision::F32));
    paths.extend(narrow_paths.map(|path| (path, narrow)));
    paths
}

/// A verified product, ready to be repeated.
pub(crate) fn product(device: &Device, a: &Csr<f32>, width: usize, path: SweepPath) -> Work {
    with_element!(path.options.precision, T => product_as::<T>(device, a, width, path))
}

fn product_as<T: Element>(device: &Device, a: &Csr<f32>, width: usize, path: SweepPath) -> Work {
    let plan = path.builder(a, width, None).build(device).expect("a plan");
    let b = random_matrix::<T>(device, a.cols(), width, 1).expect("memory for B");
    let (alpha, beta) = (T::Sum::ONE, T::Sum::ZERO);
    let mut c = poisoned_matrix::<T::Sum>(device, a.rows(), width).expect("memory for C");
    plan.run_into(alpha, &b, beta, &mut c).expect("a product");
    let found = plan.verify(a, &b, &c).expect("operands of the plan");
    assert!(found.passed(), "{path}, width {width}: {found}");
    Box::new(move || plan.run_into(alpha, &b, beta, black_box(&mut c)).expect("the same product"))
}

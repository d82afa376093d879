//! Orders of the rows, and the stages of the similarity order.

use windrow::reorder::{Method, Options, SimilarityOptions};
use windrow::{Algorithm, Precision};

use super::bench::{Bench, speed_up};
use super::facts::{AblationFacts, ReorderFacts};
use crate::measure::SweepPath;
use crate::measure::orders::{FoundOrder, OrderTask, find_orders};
use crate::suites::matrices::Matrices;

/// The orders, the matrix's own first.
pub(super) fn variants() -> [(&'static str, Options); 8] {
    let method = |method| Options { method, ..Options::default() };
    let stages = |two_opt, isolated| Options {
        method: Method::Similarity,
        similarity: SimilarityOptions { two_opt, isolated, ..SimilarityOptions::as_in_paper() },
    };
    [
        ("identity", method(Method::Identity)),
        ("forest", stages(false, false)),
        ("forest, two-opt", stages(true, false)),
        ("forest, two-opt, isolated", stages(true, true)),
        ("similarity", method(Method::Similarity)),
        ("rcm", method(Method::ReverseCuthillMckee)),
        ("community", method(Method::Community)),
        ("degree", method(Method::Degree)),
    ]
}

/// The orders of each of so many matrices, by its number; none of one that could not be read.
pub(super) fn find_all(matrices: &Matrices, count: usize, progress: fn(&str)) -> Vec<Vec<FoundOrder>> {
    let (mut owners, mut tasks) = (Vec::new(), Vec::new());
    for (at, matrix) in matrices.readable() {
        owners.push(at);
        tasks.extend(variants().map(|(_, options)| OrderTask { csr: &matrix.csr, options }));
    }
    let names = variants().map(|(name, _)| name);
    let found = find_orders(&tasks, |task, order| {
        let (name, entries) = (names[task % names.len()], tasks[task].csr.nnz());
        progress(&format!(
            "{name}: {entries} entries in {:.1} s on {} threads",
            order.seconds, order.threads
        ));
    });
    let mut orders = vec![Vec::new(); count];
    for (owner, found) in owners.into_iter().zip(found.chunks(names.len())) {
        orders[owner] = found.to_vec();
    }
    orders
}

pub(super) fn facts(bench: &mut Bench<'_>, at: usize, order: &FoundOrder) -> AblationFacts {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let (name, options) = variants()[at];
    let own = match bench.shared.own.clone() {
        Some(own) => own,
        None => {
            let own = bench.measure(path, None, None);
            bench.shared.own.insert(own).clone()
        }
    };
    let as_it_is = options.method == Method::Identity || order.found.kept_original;
    let product = match as_it_is {
        true => own.clone(),
        false => bench.measure(path, Some(order.permutation()), None),
    };
    let earned = own.as_ref().and_then(|own| Some(own.us()? - product.as_ref()?.us()?));
    let quality = &order.found.quality;
    AblationFacts::Reorder(ReorderFacts {
        order: name.to_owned(),
        seconds: order.seconds,
        threads: order.threads,
        stages: order.found.stages.iter().map(|stage| (stage.name.to_owned(), stage.seconds)).collect(),
        kept_original: order.found.kept_original,
        entries_per_vector_before: quality.before.entries_per_vector,
        entries_per_vector_after: quality.after.entries_per_vector,
        speed_up: speed_up(product.as_ref(), own.as_ref()),
        break_even: earned.filter(|us| *us > 0.0).map(|us| (order.seconds * 1e6 / us).ceil()),
        product,
    })
}

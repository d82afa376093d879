//! Orders of the rows, and the stages of the similarity order.

use windrow::reorder::{Method, Options, SimilarityOptions};
use windrow::{Algorithm, Precision};

use super::record::{AblationFacts, ReorderFacts};
use super::{Bench, speed_up};
use crate::error::BenchError;
use crate::orders::{FoundOrder, OrderTask, find_orders};
use crate::sweep::{Matrix, SweepPath};

/// The orders, the matrix's own first.
fn variants() -> [(&'static str, Options); 8] {
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

/// The orders of each matrix that could be read; none if they are not wanted.
pub(super) fn find_all(
    matrices: &[Result<Matrix, BenchError>],
    wanted: bool,
    progress: fn(&str),
) -> Vec<Vec<FoundOrder>> {
    if !wanted {
        return Vec::new();
    }
    let tasks: Vec<OrderTask<'_>> = matrices
        .iter()
        .flatten()
        .flat_map(|Matrix { csr, .. }| variants().map(|(_, options)| OrderTask { csr, options }))
        .collect();
    let names = variants().map(|(name, _)| name);
    let found = find_orders(&tasks, |task, order| {
        let (name, entries) = (names[task % names.len()], tasks[task].csr.nnz());
        progress(&format!(
            "{name}: {entries} entries in {:.1} s on {} threads",
            order.seconds, order.threads
        ));
    });
    found.chunks(names.len()).map(<[FoundOrder]>::to_vec).collect()
}

pub(super) fn facts(bench: &mut Bench<'_>, orders: &[FoundOrder]) -> Result<Vec<AblationFacts>, BenchError> {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let own = bench.measure(path, None, None);
    let mut facts = Vec::new();
    for ((name, options), order) in variants().into_iter().zip(orders) {
        let as_it_is = options.method == Method::Identity || order.found.kept_original;
        let product = match as_it_is {
            true => own.clone(),
            false => bench.measure(path, Some(order.permutation()), None),
        };
        let earned = own.as_ref().and_then(|own| Some(own.us()? - product.as_ref()?.us()?));
        let quality = &order.found.quality;
        facts.push(AblationFacts::Reorder(ReorderFacts {
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
        }));
    }
    Ok(facts)
}

//! What orders of the rows do to plans and products, and when they pay.

use windrow::SpmmOptions;

use super::{PlansFacts, PlansRecord};
use crate::measure::SweepPath;
use crate::suites::markdown::{Grid, number};

/// A plan, by what tells whether another differs in the order of its rows alone.
struct Ordered<'a> {
    facts: &'a PlansFacts,
    without_order: SweepPath,
    is_reordered: bool,
}

/// Plans in an order that was asked for, beside the one in the matrix's own, where that was measured too; nothing if
/// there are none.
pub(super) fn table(records: &[PlansRecord]) -> String {
    let ordered = |record: &'_ PlansRecord| {
        let path: SweepPath = record.facts.path.parse().ok()?;
        let options = SpmmOptions { reorder: None, ..path.options };
        let without_order = SweepPath { options, ..path };
        Some((without_order, path.options.reorder.is_some()))
    };
    let plans: Vec<Ordered<'_>> = records
        .iter()
        .filter_map(|record| {
            let (without_order, is_reordered) = ordered(record)?;
            Some(Ordered { facts: &record.facts, without_order, is_reordered })
        })
        .collect();
    let mut grid = Grid::new([
        "matrix",
        "n",
        "path",
        "order",
        "entries a vector",
        "in its own order",
        "order µs",
        "product µs",
        "in its own order",
        "pays after products",
    ]);
    let mut rows = 0;
    for plan in plans.iter().filter(|plan| plan.is_reordered) {
        let facts = plan.facts;
        let own = plans.iter().find(|own| {
            let same = own.facts.matrix.name == facts.matrix.name && own.facts.width == facts.width;
            same && !own.is_reordered && own.without_order == plan.without_order
        });
        let (Some(found), Some(own)) = (&facts.plan, own.and_then(|own| own.facts.plan.as_ref())) else {
            continue;
        };
        let per_vector =
            |vectors: u64| Some(facts.matrix.nnz? as f64 / vectors as f64).filter(|_| vectors > 0);
        let order_us: f64 =
            found.stages.iter().filter(|(name, _)| name.starts_with("reorder")).map(|(_, us)| us).sum();
        let saved = own.product_us - found.product_us;
        let pays = (saved > 0.0).then(|| (found.plan_us - own.plan_us).max(0.0) / saved);
        rows += 1;
        grid.row([
            facts.matrix.name.clone(),
            facts.width.to_string(),
            facts.path.clone(),
            found.order.clone(),
            number(per_vector(found.column_vectors), 3),
            number(per_vector(own.column_vectors), 3),
            number(Some(order_us), 0),
            number(Some(found.product_us), 1),
            number(Some(own.product_us), 1),
            pays.map_or_else(|| "never".to_owned(), |products| format!("{products:.0}")),
        ]);
    }
    if rows == 0 { String::new() } else { format!("\n## Orders of rows\n\n{grid}\n") }
}

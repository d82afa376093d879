//! Plans of matrices on the device as tables.

use std::collections::BTreeMap;

use super::{PlansFacts, PlansRecord, orders};
use crate::suites::markdown::{Grid, mean_of, number};

/// Records as a table in Markdown: a line for each matrix, width and path, and figures of each path.
pub(super) fn summarise(records: &[PlansRecord]) -> String {
    let failed = records.iter().filter(|record| record.error.is_some()).count();
    let mut text =
        format!("# Plans of matrices on the device\n\n{} lines, {failed} of them errors.\n", records.len());
    for record in records {
        if let Some(error) = &record.error {
            let PlansFacts { matrix, width, path, .. } = &record.facts;
            text += &format!("- {} at {width}, {path}: {error}\n", matrix.name);
        }
    }
    let mut grid = Grid::new([
        "matrix",
        "n",
        "path",
        "algorithm",
        "entries",
        "plan µs",
        "product µs",
        "plan in products",
        "first µs",
        "cuSPARSE first µs",
        "ratio",
        "queue µs",
        "stages, µs",
    ]);
    let mut paths: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for record in records {
        let PlansFacts { matrix, width, path, plan: Some(plan), cusparse, .. } = &record.facts else {
            continue;
        };
        let stages = plan.stages.iter().map(|(name, us)| format!("{name} {us:.0}")).collect::<Vec<_>>();
        let theirs = cusparse.as_ref().map(|first| first.first_us);
        let ratio = theirs.map(|theirs| theirs / plan.first_us);
        let (products, ratios) = paths.entry(path).or_default();
        products.push(plan.plan_in_products);
        ratios.extend(ratio);
        grid.row([
            matrix.name.clone(),
            width.to_string(),
            path.clone(),
            plan.algorithm.clone(),
            matrix.nnz.map_or_else(String::new, |nnz| nnz.to_string()),
            number(Some(plan.plan_us), 0),
            number(Some(plan.product_us), 1),
            number(Some(plan.plan_in_products), 1),
            number(Some(plan.first_us), 0),
            number(theirs, 0),
            number(ratio, 2),
            number(Some(plan.queue_us), 1),
            stages.join(", "),
        ]);
    }
    text += &format!("\n{grid}\n{}", orders::table(records));
    for (path, (mut products, ratios)) in paths {
        products.sort_by(f64::total_cmp);
        let (middle, most) = (products[products.len() / 2], products[products.len() - 1]);
        text += &format!("- {path}: a plan takes {middle:.1} products in the median, {most:.1} at most\n");
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            text += &mean_of(&format!("{path}: first product of cuSPARSE over this one"), &ratios);
            text += &format!("- {path}: {least:.2} at least\n");
        }
    }
    text + &without_plans(records)
}

/// Products without a plan beside the first ones of plans and of cuSPARSE; nothing where none was measured.
fn without_plans(records: &[PlansRecord]) -> String {
    let mut grid = Grid::new([
        "matrix",
        "n",
        "beside the plan of",
        "first without µs",
        "first with µs",
        "cuSPARSE first µs",
        "ratio",
        "product without µs",
        "product with µs",
    ]);
    let mut ratios = Vec::new();
    let mut is_empty = true;
    for record in records {
        let PlansFacts { matrix, width, path, plan: Some(plan), cusparse, .. } = &record.facts else {
            continue;
        };
        let Some(without) = &plan.without else { continue };
        let theirs = cusparse.as_ref().map(|first| first.first_us);
        let ratio = theirs.map(|theirs| theirs / without.first_us);
        is_empty = false;
        ratios.extend(ratio);
        grid.row([
            matrix.name.clone(),
            width.to_string(),
            path.clone(),
            number(Some(without.first_us), 0),
            number(Some(plan.first_us), 0),
            number(theirs, 0),
            number(ratio, 2),
            number(Some(without.product_us), 1),
            number(Some(plan.product_us), 1),
        ]);
    }
    if is_empty {
        return String::new();
    }
    let mut text = format!("\n## Without a plan\n\n{grid}\n");
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    if least.is_finite() {
        text += &mean_of("first product of cuSPARSE over this one", &ratios);
        text += &format!("- {least:.2} at least\n");
    }
    text
}

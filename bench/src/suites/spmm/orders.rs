//! The orders that paths ask for, found before anything is measured.

use std::collections::HashMap;

use windrow::reorder::Method;

use crate::measure::SweepPath;
use crate::measure::orders::{FoundOrder, OrderTask, find_orders};
use crate::suites::matrices::Matrices;

/// Orders by matrix and method.
pub(super) struct Orders(HashMap<(usize, Method), FoundOrder>);

impl Orders {
    /// Finds each order that a path names, for every matrix that could be read.
    pub(super) fn find(matrices: &Matrices, paths: &[SweepPath], progress: fn(&str)) -> Self {
        let (mut names, mut tasks) = (Vec::new(), Vec::new());
        for (at, matrix) in matrices.readable() {
            for options in paths.iter().filter_map(SweepPath::reordering) {
                let name = (at, options.method);
                if !names.contains(&name) {
                    names.push(name);
                    tasks.push(OrderTask { csr: &matrix.csr, options });
                }
            }
        }
        let found = find_orders(&tasks, |task, order| {
            progress(&format!(
                "{} order of {} entries in {:.1} s on {} threads",
                names[task].1,
                tasks[task].csr.nnz(),
                order.seconds,
                order.threads
            ));
        });
        Self(names.into_iter().zip(found).collect())
    }

    /// The order of a matrix by a method.
    pub(super) fn get(&self, matrix: usize, method: Method) -> Option<&FoundOrder> {
        self.0.get(&(matrix, method))
    }
}

//! The orders that paths ask for, found before anything is measured.

use windrow::reorder::Options;

use crate::measure::SweepPath;
use crate::measure::orders::{FoundOrder, OrderTask, find_orders};
use crate::suites::matrices::Matrices;

/// Orders, each with the matrix and what was asked for.
pub(super) struct Orders(Vec<((usize, Options), FoundOrder)>);

impl Orders {
    /// Finds each order that a path names, for every matrix that could be read.
    pub(super) fn find(matrices: &Matrices, paths: &[SweepPath], progress: fn(&str)) -> Self {
        let (mut names, mut tasks) = (Vec::new(), Vec::new());
        for (at, matrix) in matrices.readable() {
            for options in paths.iter().filter_map(|path| path.options.reorder) {
                let name = (at, options);
                if !names.contains(&name) {
                    names.push(name);
                    tasks.push(OrderTask { csr: &matrix.csr, options });
                }
            }
        }
        let found = find_orders(&tasks, |task, order| {
            progress(&format!(
                "{} order of {} entries in {:.1} s on {} threads",
                names[task].1.method,
                tasks[task].csr.nnz(),
                order.seconds,
                order.threads
            ));
        });
        Self(names.into_iter().zip(found).collect())
    }

    /// The order of a matrix that options ask for.
    pub(super) fn get(&self, matrix: usize, options: &Options) -> Option<&FoundOrder> {
        self.0.iter().find(|((of, wanted), _)| *of == matrix && wanted == options).map(|(_, found)| found)
    }
}

//! Orders of rows, found before anything is measured, several matrices at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use windrow::reorder::{Options, Reordering, reorder};
use windrow::{Csr, Permutation};

/// Threads that work on one order.
const THREADS: usize = 4;

/// An order to find.
#[derive(Clone)]
pub(crate) struct OrderTask<'a> {
    pub(crate) csr: &'a Csr<f32>,
    pub(crate) options: Options,
}

/// An order, and what it took.
#[derive(Debug, Clone)]
pub(crate) struct FoundOrder {
    /// The order and its locality.
    pub(crate) found: Reordering,
    /// Wall time, on so many threads of its own.
    pub(crate) seconds: f64,
    /// Threads that found it.
    pub(crate) threads: usize,
}

impl FoundOrder {
    pub(crate) fn permutation(&self) -> &Permutation {
        &self.found.permutation
    }
}

/// Finds all orders, in as many pools of four threads as the machine has room for, so that a time is that of one
/// order. The largest matrices come first; `progress` is told the number of each task as it is done.
pub(crate) fn find_orders(
    tasks: &[OrderTask<'_>],
    mut progress: impl FnMut(usize, &FoundOrder),
) -> Vec<FoundOrder> {
    let cores = rayon::current_num_threads();
    let (workers, threads) = ((cores / THREADS).max(1), cores.clamp(1, THREADS));
    let mut waiting: Vec<usize> = (0..tasks.len()).collect();
    waiting.sort_by_key(|&task| std::cmp::Reverse(tasks[task].csr.nnz()));
    let waiting = Mutex::new(VecDeque::from(waiting));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut orders: Vec<Option<FoundOrder>> = vec![None; tasks.len()];
    std::thread::scope(|scope| {
        let (done, results) = mpsc::channel();
        for _ in 0..workers {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok();
                while let Some(task) = next() {
                    let work = || find(&tasks[task]);
                    // Without a pool of its own, it is found on the program's.
                    let order = pool.as_ref().map_or_else(work, |pool| pool.install(work));
                    if done.send((task, order)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        for (task, order) in results {
            progress(task, &order);
            orders[task] = Some(order);
        }
    });
    orders.into_iter().flatten().collect()
}

fn find(task: &OrderTask<'_>) -> FoundOrder {
    let started = Instant::now();
    let Ok(found) = reorder(task.csr, &task.options, &()) else { unreachable!("nobody cancels") };
    FoundOrder { found, seconds: started.elapsed().as_secs_f64(), threads: rayon::current_num_threads() }
}

#[cfg(test)]
mod tests {
    use windrow::reorder::Method;

    use super::*;

    #[test]
    fn orders_come_back_in_the_order_of_their_tasks() {
        let sizes = [3usize, 50, 8, 20];
        let matrices: Vec<Csr<f32>> = sizes.iter().map(|&rows| Csr::identity(rows).unwrap()).collect();
        let options = Options { method: Method::Degree, ..Options::default() };
        let tasks: Vec<OrderTask<'_>> = matrices.iter().map(|csr| OrderTask { csr, options }).collect();
        let mut seen = Vec::new();
        let orders = find_orders(&tasks, |task, _| seen.push(task));
        let lengths: Vec<usize> = orders.iter().map(|order| order.permutation().len()).collect();
        assert_eq!(lengths, sizes);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        assert!(orders.iter().all(|order| order.threads >= 1 && order.seconds >= 0.0));
        assert!(find_orders(&[], |_, _| ()).is_empty());
    }
}

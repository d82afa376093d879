//! Work dealt out to threads, as a `dyn` function.
//!
//! What rayon compiles for one closure takes several KB of a program, and a function that is generic over the elements
//! of its operands has a closure for each of their combinations. A call by address costs nothing beside a task.

use std::ops::Range;

use rayon::prelude::*;

/// Calls `task` with each number below `tasks`, on the threads of the current rayon pool.
pub(crate) fn each_task(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    match tasks {
        1 => task(0),
        _ => (0..tasks).into_par_iter().with_max_len(1).for_each(task),
    }
}

/// Calls `work` with each range and what is its own, on the threads of the current rayon pool.
pub(crate) fn each_range<T: Send>(
    tasks: Vec<(Range<usize>, &mut [T])>,
    work: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
) {
    tasks.into_par_iter().with_max_len(1).for_each(|(range, own)| work(range, own));
}

/// Calls `work` with `chunk` elements after the other, the last time perhaps with fewer, and the number of the call, on
/// the threads of the current rayon pool.
pub(crate) fn each_chunk<T: Send>(elements: &mut [T], chunk: usize, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
    elements.par_chunks_mut(chunk.max(1)).enumerate().for_each(|(at, elements)| work(at, elements));
}

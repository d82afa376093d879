//! Orders rows by length, the longest first.

use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{Csr, OutOfMemory, Value};

use super::pattern::{Pattern, narrow};
use super::watch::{Stopped, Watch, tick};

/// The rows in descending order of their lengths; rows of one length keep their order.
///
/// The simplest order that changes anything: windows become even, since neighbours are equally long, but
/// whether neighbours share columns is left to chance.
///
/// # Cost
/// One parallel sort of 8 bytes a row.
pub(super) fn order<V: Value>(csr: &Csr<V>, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let pattern = Pattern::of(csr);
    watch.begin("degree", 1);
    tick(watch, 0)?;
    let order = ascending(pattern.rows(), |r| u32::MAX - narrow(pattern.row_len(r)))?;
    tick(watch, 1)?;
    Ok(order)
}

/// `0 .. len` in ascending order of their keys; those of one key keep their order.
pub(super) fn ascending(len: u32, key: impl Fn(u32) -> u32 + Sync + Send) -> Result<Vec<u32>, OutOfMemory> {
    let keys = (0..len).into_par_iter().map(|i| u64::from(key(i)) << 32 | u64::from(i));
    let mut keyed: Vec<u64> = try_par_collect(keys, "keys of rows")?;
    keyed.par_sort_unstable();
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the number, the upper its key")]
    try_par_collect(keyed.into_par_iter().map(|keyed| keyed as u32), "an order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_length_keep_their_order() {
        let a = Csr::try_from_parts(
            6,
            3,
            vec![0, 1, 3, 3, 6, 8, 9],
            vec![2, 0, 1, 0, 1, 2, 1, 2, 0],
            vec![1f32; 9],
        );
        assert_eq!(order(&a.unwrap(), &()).unwrap(), [3, 1, 4, 0, 5, 2]);
    }
}

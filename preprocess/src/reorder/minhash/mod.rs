//! Windows made by pairing rows that share columns, found by min-wise hashing.
//!
//! ```text
//! rows with entries    8 of these make a window: pairs, pairs of pairs, and pairs of those, in three levels
//!   lists              the columns of each that any other has; of a long one a sample by a hash of the column
//!   candidates         sorted by the column of least hash, so that with probability |A ∩ B| / |A ∪ B| two that
//!                      share columns have the same: each looks at the 4 before and behind it, and remembers the
//!                      4 most similar of 8 sorts, each by another hash, the first sort being their own order
//!   pairs              who are each other's best are paired, six times; what is left once more from the candidates
//!                      on, and what is left then in its own order
//!   unions             a pair's columns, or a sample of them
//! ```
//!
//! Min-wise hashing is A. Broder's (On the resemblance and containment of documents, 1997), that rows of a sparse
//! matrix are grouped by it that of P. Jiang, C. Hong and G. Agrawal (A novel data transformation and execution
//! strategy for accelerating sparse matrix multiplication on GPUs, 2020); pairing level by level is ours. Every
//! step is the same work for each row, pair or list, none longer than [`MinHash::LIST`] columns, in integers alone:
//! the kernels that do this on a GPU give the same order.

mod clusters;
mod pairing;

use windrow_formats::WINDOW_ROWS;
use windrow_formats::memory::{try_filled, try_with_room};

use super::pattern::{Pattern, narrow};
use super::watch::{Stopped, Watch};
use clusters::Clusters;
use pairing::{NONE, partners};

/// The numbers of [`Method::MinHash`](super::Method::MinHash).
#[derive(Debug)]
#[non_exhaustive]
pub struct MinHash;

impl MinHash {
    /// Levels, each of which doubles the rows of a group.
    pub const LEVELS: u32 = WINDOW_ROWS.ilog2();
    /// How often candidates are collected and paired in a level.
    pub const PHASES: u32 = 2;
    /// Orders in which candidates are met: their own, and by hash.
    pub const ROUNDS: u32 = 8;
    /// How far before and behind it a group looks in each of them.
    pub const REACH: usize = 4;
    /// Candidates that a group remembers.
    pub const KEPT: usize = 4;
    /// How often those that are each other's best are paired.
    pub const HANDS: u32 = 6;
    /// Columns of a list at most; of more, as many as have a hash that begins with enough zeros.
    pub const LIST: usize = 128;
    /// Columns that are counted one by one, at least; of more, and more than four times the entries, several share a
    /// count.
    pub const LEAST_COUNTERS: usize = 1 << 20;

    /// Counters of columns, for a matrix of so many and so many entries.
    pub fn counters(cols: usize, nnz: usize) -> usize {
        cols.min(nnz.saturating_mul(4).max(Self::LEAST_COUNTERS))
    }

    /// What the columns of a round are hashed with, beside their numbers.
    pub fn seed(level: u32, phase: u32, round: u32) -> u32 {
        hash((1 + (level * Self::PHASES + phase) * Self::ROUNDS + round).wrapping_mul(0x9e37_79b9))
    }
}

/// A bijection of 32-bit numbers that looks random: `lowbias32` of C. Wellons, Prospecting for hash functions, 2018.
const fn hash(x: u32) -> u32 {
    let x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    let x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

/// The new order of the rows: position `i` takes row `order[i]`.
///
/// Windows are in the order of their first rows, what does not fill one behind them, rows without entries last.
///
/// # Cost
/// Linear in rows and entries, but for sorting numbers of rows; parallel. Memory for about 100 bytes a row and 8 an
/// entry.
pub(super) fn order(pattern: &Pattern<'_>, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let rows = pattern.rows();
    let mut filled = try_with_room(rows as usize, "rows with entries")?;
    filled.extend((0..rows).filter(|&r| pattern.row_len(r) > 0));
    let count = filled.len();
    let mut order = try_filled(rows as usize, 0, "an order")?;
    let empty = (0..rows).filter(|&r| pattern.row_len(r) == 0);
    order[count..].iter_mut().zip(empty).for_each(|(place, r)| *place = r);

    let mut clusters = Clusters::of_rows(pattern, filled, watch)?;
    for level in 0..MinHash::LEVELS {
        let partners = partners(&clusters, level, watch)?;
        let mut pairs = try_with_room(partners.len() / 2, "pairs")?;
        for (i, &partner) in (0..).zip(&partners) {
            match partner {
                // One at most, if their number is odd: bit `level` of the rows' number is set.
                NONE => {
                    let members = clusters.members(i);
                    order[count & !(2 * members.len() - 1)..][..members.len()].copy_from_slice(members);
                }
                _ if i < partner => pairs.push([i, partner]),
                _ => {}
            }
        }
        clusters = clusters.united(&pairs, level + 1 < MinHash::LEVELS, watch)?;
    }
    debug_assert_eq!(clusters.len(), narrow(count / WINDOW_ROWS));
    for (window, place) in (0..clusters.len()).zip(order.chunks_exact_mut(WINDOW_ROWS)) {
        place.copy_from_slice(clusters.members(window));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_formats::Csr;

    fn order_of(rows: &[&[u32]]) -> Vec<u32> {
        let columns: Vec<u32> = rows.concat();
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |sum, row| {
            *sum += row.len() as u64;
            Some(*sum)
        }));
        let ones = vec![1f32; columns.len()];
        let a = Csr::try_from_parts(rows.len(), 1 << 20, offsets, columns, ones).unwrap();
        order(&Pattern::of(&a), &()).unwrap()
    }

    #[test]
    fn rows_of_a_kind_come_together_and_what_fills_no_window_last() {
        // 11 rows of one kind among 11 of another, and one without entries.
        let (one, other, empty): (&[u32], &[u32], &[u32]) = (&[1, 7], &[2, 7, 9], &[]);
        let mut rows: Vec<&[u32]> = (0..22).map(|r| if r % 2 == 0 { one } else { other }).collect();
        rows.insert(5, empty);
        let order = order_of(&rows);
        let kinds = |range: std::ops::Range<usize>| {
            let mut kinds: Vec<&[u32]> = order[range].iter().map(|&r| rows[r as usize]).collect();
            kinds.dedup();
            kinds
        };
        assert_eq!((kinds(0..8), kinds(8..16)), (vec![one], vec![other]));
        assert_eq!(order[22], 5, "the row without entries");
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..23).collect::<Vec<_>>());
    }

    #[test]
    fn long_rows_are_compared_by_samples() {
        // Sixteen rows of 2000 columns, of two kinds that share a tenth.
        let one: Vec<u32> = (0..2000).collect();
        let other: Vec<u32> = (1800..3800).collect();
        let rows: Vec<&[u32]> = (0..16).map(|r| if r % 3 == 0 { &one[..] } else { &other }).collect();
        let order = order_of(&rows);
        // Six and ten: one window of ten has eight of a kind.
        assert!(order.chunks(8).any(|window| window.iter().all(|r| r % 3 != 0)), "{order:?}");
    }

    #[test]
    fn the_hash_is_a_bijection_and_counters_are_bounded() {
        let mut values: Vec<u32> = (0..100_000).map(hash).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), 100_000);
        assert_eq!(MinHash::counters(u32::MAX as usize, 5), 1 << 20);
        assert_eq!(MinHash::counters(77, 5), 77);
        assert_eq!(MinHash::counters(1 << 30, 1 << 20), 1 << 22);
    }
}

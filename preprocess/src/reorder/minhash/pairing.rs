//! Who is paired with whom.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use windrow_formats::memory::{try_collect, try_copy, try_filled, try_par_collect, try_par_collect_ok};

use super::super::pattern::{index, narrow};
use super::super::watch::{Stopped, Watch, go_on, tick};
use super::clusters::{CHUNK, Clusters, common};
use super::{MinHash, hash};

/// A cluster without a partner.
pub(super) const NONE: u32 = u32::MAX;

/// The most similar clusters, as [`value`]s, the greatest first; 0 where there is none.
type Candidates = [u64; MinHash::KEPT];

/// How much a pair is worth: its similarity, and of equal ones the more the closer they are. No two pairs of one
/// cluster are worth the same, and a pair is worth the same to both.
fn value(similarity: u32, a: u32, b: u32) -> u64 {
    u64::from(similarity) << 32 | u64::from(!(a ^ b))
}

/// Whom a cluster makes a pair with that is worth so much.
fn other(value: u64, own: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let low = value as u32;
    !low ^ own
}

/// The partner of each cluster; none of the last that is left if their number is odd.
pub(super) fn partners(clusters: &Clusters, level: u32, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let name = ["pairs of rows", "pairs of pairs", "windows"][level as usize];
    watch.begin(name, u64::from(MinHash::PHASES * (MinHash::ROUNDS + MinHash::HANDS)));
    let mut partners = try_filled(clusters.len() as usize, NONE, "partners")?;
    let mut left: Vec<u32> = try_collect(0..clusters.len(), "clusters left")?;
    for phase in 0..MinHash::PHASES {
        if left.len() < 2 {
            break;
        }
        let mut candidates = try_filled(clusters.len() as usize, Candidates::default(), "candidates")?;
        let mut sequence = try_copy(&left, "a sequence")?;
        for round in 0..MinHash::ROUNDS {
            if round > 0 {
                sequence = sorted(clusters, &sequence, MinHash::seed(level, phase, round), watch)?;
            }
            let better = (0..sequence.len()).into_par_iter().map(|at| {
                if at % CHUNK == 0 {
                    go_on(watch)?;
                }
                Ok::<_, Stopped>(with_beside(clusters, &sequence, at, candidates[sequence[at] as usize]))
            });
            let better = try_par_collect_ok(better, "candidates")?;
            sequence.iter().zip(better).for_each(|(&i, better)| candidates[i as usize] = better);
            tick(watch, 1)?;
        }
        for _ in 0..MinHash::HANDS {
            shake(&candidates, &left, &mut partners)?;
            left.retain(|&i| partners[i as usize] == NONE);
            tick(watch, 1)?;
        }
    }
    for pair in left.chunks_exact(2) {
        (partners[pair[0] as usize], partners[pair[1] as usize]) = (pair[1], pair[0]);
    }
    Ok(partners)
}

/// A sequence sorted by the column of least hash; those with the same one keep their order.
fn sorted(clusters: &Clusters, sequence: &[u32], seed: u32, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    go_on(watch)?;
    let key = |(at, &i): (usize, &u32)| {
        let least = clusters.list(i).iter().copied().min_by_key(|&column| hash(column ^ seed));
        u64::from(least.unwrap_or(u32::MAX)) << 32 | at as u64
    };
    let mut keyed = try_par_collect(sequence.par_iter().enumerate().map(key), "keys of clusters")?;
    go_on(watch)?;
    keyed.par_sort_unstable();
    let at = |keyed: u64| index(keyed & u64::from(u32::MAX));
    Ok(try_par_collect(keyed.into_par_iter().map(|keyed| sequence[at(keyed)]), "a sequence")?)
}

/// The candidates of the cluster at a place of a sequence, and those beside it, as far as they are among the best.
fn with_beside(clusters: &Clusters, sequence: &[u32], at: usize, before: Candidates) -> Candidates {
    let own = sequence[at];
    let list = clusters.list(own);
    let mut best = before;
    let beside = at.saturating_sub(MinHash::REACH)..sequence.len().min(at + MinHash::REACH + 1);
    for &beside in &sequence[beside] {
        let is_known = before.iter().any(|&value| value != 0 && other(value, own) == beside);
        if beside == own || is_known {
            continue;
        }
        let other_list = clusters.list(beside);
        // Not even if one has all that the other has would it be among the best.
        let most = clusters.similarity(own, beside, narrow(list.len().min(other_list.len())));
        if most == 0 || value(most, own, beside) < best[MinHash::KEPT - 1] {
            continue;
        }
        let similarity = clusters.similarity(own, beside, common(list, other_list));
        if similarity > 0 {
            insert(&mut best, value(similarity, own, beside));
        }
    }
    best
}

/// Puts a value among the best, if it is.
fn insert(best: &mut Candidates, mut value: u64) {
    for kept in best {
        (*kept, value) = ((*kept).max(value), (*kept).min(value));
    }
}

/// Pairs those of `left` that are each other's best candidate, or would be if both were known to both.
fn shake(candidates: &[Candidates], left: &[u32], partners: &mut [u32]) -> Result<(), Stopped> {
    let best = try_collect((0..partners.len()).map(|_| AtomicU64::new(0)), "best of each")?;
    left.par_iter().for_each(|&i| {
        let is_left = |&&value: &&u64| value != 0 && partners[other(value, i) as usize] == NONE;
        if let Some(&value) = candidates[i as usize].iter().find(is_left) {
            best[i as usize].fetch_max(value, Ordering::Relaxed);
            best[other(value, i) as usize].fetch_max(value, Ordering::Relaxed);
        }
    });
    for &i in left {
        let value = best[i as usize].load(Ordering::Relaxed);
        if value != 0 && best[other(value, i) as usize].load(Ordering::Relaxed) == value {
            partners[i as usize] = other(value, i);
        }
    }
    Ok(())
}

//! With whom a cluster might be paired.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::lists::similarity;
use super::{List, Lists, NO_PARTNER, THREADS, common, element, hash, item};
use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;

/// How far before and behind it a cluster looks in a sequence.
pub const REACH: u32 = 4;
/// Clusters that it remembers.
pub const CANDIDATES: usize = 4;
/// Threads of a cluster, one for each that is near.
const NEAR: u32 = 2 * REACH;

/// Arguments of [`ClusterKeys`].
///
/// # Obligations
/// `sequence` has `count` clusters of `lists`, or is null for all in their order; `keys` has an element for each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ClusterKeysParams {
    /// Columns of the clusters.
    pub lists: Lists,
    /// The clusters, each once.
    pub sequence: GlobalPtr<u32>,
    /// The key of each cluster.
    pub keys: GlobalPtr<u32>,
    /// How many clusters there are.
    pub count: u32,
    /// What columns are hashed with.
    pub seed: u32,
    /// Key of a cluster without columns: above all columns.
    pub without: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The column of least hash of each cluster. A thread for each.
pub struct ClusterKeys;

impl Kernel for ClusterKeys {
    type Params = ClusterKeysParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::ClusterKeys;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ClusterKeysParams) {
        let at = item(s);
        if at >= p.count {
            return;
        }
        // SAFETY: the obligations of the params.
        unsafe {
            let list = List::load(s, &p.lists, element(s, p.sequence, at));
            let (mut least, mut key) = (u32::MAX, p.without);
            let mut i = list.begin;
            while i < list.end {
                let column = s.load_readonly(p.lists.columns.at(i));
                let hash = hash(column ^ p.seed);
                // The greatest hash is a column's, too.
                if hash < least || i == list.begin {
                    (least, key) = (hash, column);
                }
                i += 1;
            }
            s.store(p.keys.at(at), key);
        }
    }
}

/// Arguments of [`CollectCandidates`].
///
/// # Obligations
/// - `sequence` has `count` clusters of `lists`, each once, or is null for all in their order;
/// - `candidates` has two elements for each cluster, which earlier launches wrote unless `first` is not 0; `partners`
///   has one for each, or is null.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CollectCandidatesParams {
    /// Columns of the clusters.
    pub lists: Lists,
    /// The clusters, in an order in which those that share columns may be near each other.
    pub sequence: GlobalPtr<u32>,
    /// What the four best candidates of each are worth, the greatest first, 0 for none.
    pub candidates: GlobalPtr<[u64; 2]>,
    /// Unless null, set to none.
    pub partners: GlobalPtr<u32>,
    /// How many clusters there are.
    pub count: u32,
    /// Unless 0, no candidates are known yet.
    pub first: u32,
}

/// Compares each cluster with those near it in a sequence and remembers the most similar. Eight threads for each.
///
/// What a pair is worth is in the upper half its similarity, in the lower how close the two numbers are: for one
/// cluster no two others are worth the same, and a pair is worth the same to both.
pub struct CollectCandidates;

/// What a pair is worth.
#[inline(always)]
fn value(similarity: u32, a: u32, b: u32) -> u64 {
    u64::from(similarity) << 32 | u64::from(!(a ^ b))
}

/// With whom a pair is worth so much.
#[inline(always)]
pub(super) fn other(value: u64, own: u32) -> u32 {
    !(value as u32) ^ own
}

impl Kernel for CollectCandidates {
    type Params = CollectCandidatesParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::CollectCandidates;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS / NEAR;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CollectCandidatesParams) {
        let at = s.block_idx() * (THREADS / NEAR) + s.thread_idx() / NEAR;
        let near = s.thread_idx() % NEAR;
        let exists = at < p.count;
        // SAFETY: the obligations of the params; all lanes reach the collectives.
        unsafe {
            let own = if exists { element(s, p.sequence, at) } else { 0 };
            let known = if exists && p.first == 0 { load(s, p, own) } else { [0; CANDIDATES] };
            let found = if exists { compare(s, p, (at, near), own, known) } else { 0 };
            // The best of what the eight have found.
            let mut best = known;
            let group = s.lane() - near;
            each::<{ NEAR as usize }>(|i| {
                let low = s.shuffle(found as u32, group + i as u32);
                let high = s.shuffle((found >> 32) as u32, group + i as u32);
                insert(&mut best, u64::from(high) << 32 | u64::from(low));
            });
            s.sync_warp(); // WAR: candidates read by eight lanes -> written by one
            if exists && near == 0 {
                let to = p.candidates.at_wide(2 * u64::from(own));
                s.store(to, [best[0], best[1]]);
                s.store(to.at(1), [best[2], best[3]]);
                if p.partners != GlobalPtr::NULL {
                    s.store(p.partners.at(own), NO_PARTNER);
                }
            }
        }
    }
}

/// The candidates of a cluster.
///
/// # Safety
/// They are this cluster's threads' in this launch.
#[inline(always)]
unsafe fn load<S: Simt>(s: &S, p: &CollectCandidatesParams, own: u32) -> [u64; CANDIDATES] {
    let from = p.candidates.at_wide(2 * u64::from(own));
    // SAFETY: the caller's promise; they are stored behind a barrier, by the first of the cluster's threads.
    let ([first, second], [third, fourth]) = unsafe { (s.load(from), s.load(from.at(1))) };
    [first, second, third, fourth]
}

/// What the cluster with a cluster near it is worth; 0 if it is known, cannot be among the best, or shares nothing.
///
/// # Safety
/// The obligations of the params; `at < count`.
#[inline(always)]
unsafe fn compare<S: Simt>(
    s: &S,
    p: &CollectCandidatesParams,
    (at, near): (u32, u32),
    own: u32,
    known: [u64; CANDIDATES],
) -> u64 {
    // Before the first it wraps, and is beyond the last.
    let place = (at + near + u32::from(near >= REACH)).wrapping_sub(REACH);
    if place >= p.count {
        return 0;
    }
    // SAFETY: the caller's promise; the place is in the sequence.
    unsafe {
        let beside = element(s, p.sequence, place);
        let mut is_known = false;
        each::<CANDIDATES>(|i| is_known |= known[i] != 0 && other(known[i], own) == beside);
        if is_known {
            return 0;
        }
        let (a, b) = (List::load(s, &p.lists, own), List::load(s, &p.lists, beside));
        // Not even if one has all that the other has would it be among the best.
        let most = similarity(a, b, if a.len() < b.len() { a.len() } else { b.len() });
        if most == 0 || value(most, own, beside) < known[CANDIDATES - 1] {
            return 0;
        }
        let similarity = similarity(a, b, common(s, p.lists.columns, a, b));
        if similarity == 0 { 0 } else { value(similarity, own, beside) }
    }
}

/// Puts a value among the best, if it is.
#[inline(always)]
fn insert(best: &mut [u64; CANDIDATES], value: u64) {
    let mut value = value;
    each::<CANDIDATES>(|i| {
        let kept = best[i];
        let is_better = value > kept;
        best[i] = if is_better { value } else { kept };
        value = if is_better { kept } else { value };
    });
}

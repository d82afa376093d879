//! Who is paired with whom.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::candidates::{CANDIDATES, other};
use super::{NO_PARTNER, THREADS, element, item};
use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`Propose`] and [`Match`], which comes after it with the same.
///
/// # Obligations
/// - `left` has `count` clusters, each once, or is null for all in their order; candidates, and who they are with, are
///   among these;
/// - `candidates`: what [`CollectCandidates`](super::CollectCandidates) made; `partners`, `best`, `next_best` and
///   `is_left` have an element for each cluster; where a cluster of `left` is concerned, `best` is 0 at first.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ProposeParams {
    /// The clusters, each once.
    pub left: GlobalPtr<u32>,
    /// The candidates of each cluster.
    pub candidates: GlobalPtr<[u64; 2]>,
    /// The partner of each cluster.
    pub partners: GlobalPtr<u32>,
    /// The greatest worth that was proposed to each, and by each.
    pub best: GlobalPtr<u64>,
    /// Set to 0, for the next time.
    pub next_best: GlobalPtr<u64>,
    /// Whether each has no partner yet.
    pub is_left: GlobalPtr<u32>,
    /// How many clusters there are.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Each cluster without a partner proposes to its best candidate without one. A thread for each.
pub struct Propose;

impl Kernel for Propose {
    type Params = ProposeParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::Propose;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ProposeParams) {
        let at = item(s);
        if at >= p.count {
            return;
        }
        // SAFETY: the obligations of the params; maxima are atomic.
        unsafe {
            let own = element(s, p.left, at);
            if s.load_readonly(p.partners.at(own)) != NO_PARTNER {
                return;
            }
            let from = p.candidates.at_wide(2 * u64::from(own));
            let ([first, second], [third, fourth]) = (s.load_readonly(from), s.load_readonly(from.at(1)));
            let candidates = [first, second, third, fourth];
            let mut best = 0;
            each::<CANDIDATES>(|i| {
                let value = candidates[i];
                if best == 0 && value != 0 && s.load_readonly(p.partners.at(other(value, own))) == NO_PARTNER
                {
                    best = value;
                }
            });
            if best != 0 {
                s.reduce_max_u64(p.best.at(own), best);
                s.reduce_max_u64(p.best.at(other(best, own)), best);
            }
        }
    }
}

/// Pairs the clusters to both of which the same pair is the best. A thread for each cluster.
pub struct Match;

impl Kernel for Match {
    type Params = ProposeParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::Match;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ProposeParams) {
        let at = item(s);
        if at >= p.count {
            return;
        }
        // SAFETY: the obligations of the params; a thread writes what is its cluster's.
        unsafe {
            let own = element(s, p.left, at);
            s.store(p.next_best.at(own), 0_u64);
            let mut partner: u32 = s.load(p.partners.at(own));
            if partner == NO_PARTNER {
                let best = s.load_readonly(p.best.at(own));
                if best != 0 && s.load_readonly(p.best.at(other(best, own))) == best {
                    partner = other(best, own);
                    s.store(p.partners.at(own), partner);
                }
            }
            s.store(p.is_left.at(own), u32::from(partner == NO_PARTNER));
        }
    }
}

/// Arguments of [`ListLeft`] and [`PairLeft`].
///
/// # Obligations
/// `ranks[i]`, for `i ≤ clusters`, is the number of clusters before `i` that have no partner; `left` has room for all
/// of them; `partners` has an element for each cluster. [`PairLeft`] comes after [`ListLeft`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListLeftParams {
    /// Clusters without a partner before each.
    pub ranks: GlobalPtr<u32>,
    /// The clusters without a partner.
    pub left: GlobalPtr<u32>,
    /// The partner of each cluster.
    pub partners: GlobalPtr<u32>,
    /// How many clusters there are.
    pub clusters: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Lists the clusters that have no partner. A thread for each cluster.
pub struct ListLeft;

impl Kernel for ListLeft {
    type Params = ListLeftParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::ListLeft;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListLeftParams) {
        let cluster = item(s);
        if cluster >= p.clusters {
            return;
        }
        // SAFETY: the obligations of the params; ranks differ.
        unsafe {
            let rank = s.load_readonly(p.ranks.at(cluster));
            if s.load_readonly(p.ranks.at(cluster + 1)) > rank {
                s.store(p.left.at(rank), cluster);
            }
        }
    }
}

/// Pairs the clusters that have no partner in their order; one stays alone if their number is odd. A thread for each
/// two clusters.
pub struct PairLeft;

impl Kernel for PairLeft {
    type Params = ListLeftParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::PairLeft;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListLeftParams) {
        let first = 2 * item(s);
        if first >= p.clusters {
            return;
        }
        // SAFETY: the obligations of the params; each cluster is in the list once.
        unsafe {
            if first + 1 < s.load_readonly(p.ranks.at(p.clusters)) {
                let (a, b) = (s.load_readonly(p.left.at(first)), s.load_readonly(p.left.at(first + 1)));
                s.store(p.partners.at(a), b);
                s.store(p.partners.at(b), a);
            }
        }
    }
}

/// Arguments of [`MarkPairs`] and [`ListPairs`].
///
/// # Obligations
/// - `partners[partners[i]] = i` but for one `i` at most, which has none; `members` has `each` elements for each of the
///   `clusters`;
/// - for [`MarkPairs`], `is_first` has an element for each, and `tail` room for `each`;
/// - for [`ListPairs`], `ranks` are the exclusive sums of what that kernel wrote, `pairs` has `ranks[clusters]`
///   elements, and `pair_members` has `2·each` for each of these.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListPairsParams {
    /// Partner of each cluster.
    pub partners: GlobalPtr<u32>,
    /// Whether each is the first of its pair.
    pub is_first: GlobalPtr<u32>,
    /// Pairs before each cluster.
    pub ranks: GlobalPtr<u32>,
    /// The rows of each cluster.
    pub members: GlobalPtr<u32>,
    /// Where the rows of the one that has no partner go.
    pub tail: GlobalPtr<u32>,
    /// The two of each pair.
    pub pairs: GlobalPtr<[u32; 2]>,
    /// The rows of each pair.
    pub pair_members: GlobalPtr<u32>,
    /// How many clusters there are.
    pub clusters: u32,
    /// How many rows a cluster has.
    pub each: u32,
}

/// Marks the first of each pair, and puts the rows of the one without a partner aside. A thread for each cluster.
pub struct MarkPairs;

impl Kernel for MarkPairs {
    type Params = ListPairsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::MarkPairs;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListPairsParams) {
        let cluster = item(s);
        if cluster >= p.clusters {
            return;
        }
        // SAFETY: the obligations of the params; one cluster at most has no partner.
        unsafe {
            let partner = s.load_readonly(p.partners.at(cluster));
            s.store(p.is_first.at(cluster), u32::from(partner != NO_PARTNER && cluster < partner));
            if partner == NO_PARTNER {
                copy_members(s, p, cluster, p.tail);
            }
        }
    }
}

/// The pairs, in the order of their firsts, and their rows. A thread for each cluster.
pub struct ListPairs;

impl Kernel for ListPairs {
    type Params = ListPairsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::ListPairs;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListPairsParams) {
        let cluster = item(s);
        if cluster >= p.clusters {
            return;
        }
        // SAFETY: the obligations of the params; ranks differ, and pairs have places of their own.
        unsafe {
            let rank = s.load_readonly(p.ranks.at(cluster));
            if s.load_readonly(p.ranks.at(cluster + 1)) > rank {
                let partner = s.load_readonly(p.partners.at(cluster));
                s.store(p.pairs.at(rank), [cluster, partner]);
                let to = p.pair_members.at_wide(2 * u64::from(p.each) * u64::from(rank));
                copy_members(s, p, cluster, to);
                copy_members(s, p, partner, to.at(p.each));
            }
        }
    }
}

/// Copies the rows of a cluster.
///
/// # Safety
/// There is such a cluster, and room for its rows.
#[inline(always)]
unsafe fn copy_members<S: Simt>(s: &S, p: &ListPairsParams, cluster: u32, to: GlobalPtr<u32>) {
    let from = p.members.at_wide(u64::from(p.each) * u64::from(cluster));
    let mut i = 0;
    while i < p.each {
        // SAFETY: the caller's promise.
        unsafe { s.store(to.at(i), s.load_readonly(from.at(i))) };
        i += 1;
    }
}

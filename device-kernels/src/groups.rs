//! Entries in groups of equal number, of a matrix that is on the GPU already: where rows start among them, and which
//! rows lie in more than one group. What [`NonzeroGroups`](crate::spmm::segment_group::NonzeroGroups) takes.
//!
//! ```text
//! row_offsets --RowLengths, scan, ListRows-->  rows with entries and their starts, rows without
//! starts      --StartWords-->                  for each 32 entries which of them start a row, and starts before
//! words       --CountPieces, scan-->           pieces and rows that are cut in the groups before each
//! words       --ListGroupPieces-->                  slots of the groups, and rows that are cut
//! ```

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::preprocess::item;
use crate::spmm::combine::Combine;
use crate::variant::Variant;

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
/// Entries of a word of starts.
pub const WORD: u32 = 32;

/// Arguments of all kernels here.
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements from 0 to `entries`, which is below 2³¹, `rows` too;
/// - `ranks` has `rows + 1` elements: how many rows before each have entries; `filled_rows` and `filled_starts` have
///   `filled` elements, `ranks[rows]`, and `empty_rows` the other rows;
/// - `words` has an element for each [`WORD`] entries or fewer, and one more;
/// - `0 < group < 2³¹`; for `g = ⌈entries / group⌉ < 2³⁰` groups, `slots` has `g` elements, and `counts` `3·g + 1`; for
///   [`ListGroupPieces`] they are the exclusive sums of what [`CountPieces`] wrote, and `split_rows` has as many as
///   elements `g` and `2·g` of it differ by.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct GroupsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Rows with entries before each.
    pub ranks: GlobalPtr<u32>,
    /// Rows that have entries.
    pub filled_rows: GlobalPtr<u32>,
    /// First entry of each of these.
    pub filled_starts: GlobalPtr<u32>,
    /// Rows that have no entries.
    pub empty_rows: GlobalPtr<u32>,
    /// `[which of 32 entries start a row, how many starts there are before]`.
    pub words: GlobalPtr<[u32; 2]>,
    /// Slots of the pieces that begin in each group; rows that are cut and begin in it; such of them as a block adds
    /// up.
    pub counts: GlobalPtr<u32>,
    /// Slot of the first piece of each group.
    pub slots: GlobalPtr<u32>,
    /// `[row, first_slot, count, 1]`, rows of many slots first.
    pub split_rows: GlobalPtr<[u32; 4]>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// How many rows have entries.
    pub filled: u32,
    /// Entries of a group.
    pub group: u32,
    /// Unless 0, the pieces of a row share one slot.
    pub shared: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl GroupsParams {
    /// Rows that start before an entry.
    ///
    /// # Safety
    /// The obligations of the params, the words are written, and `entry ≤ entries`.
    #[inline(always)]
    unsafe fn starts_before<S: Simt>(&self, s: &S, entry: u32) -> u32 {
        // SAFETY: the caller's promise: there is a word behind the last entry.
        let [bits, before] = unsafe { s.load_readonly(self.words.at(entry / WORD)) };
        before + (bits & ((1 << (entry % WORD)) - 1)).count_ones()
    }

    /// Whether a row starts with an entry.
    ///
    /// # Safety
    /// As for [`starts_before`](Self::starts_before).
    #[inline(always)]
    unsafe fn starts_at<S: Simt>(&self, s: &S, entry: u32) -> bool {
        // SAFETY: the caller's promise.
        let [bits, _] = unsafe { s.load_readonly(self.words.at(entry / WORD)) };
        bits >> (entry % WORD) & 1 != 0
    }

    /// How many groups of entries there are.
    #[inline(always)]
    fn groups(&self) -> u32 {
        let group = core::num::NonZeroU32::new(self.group).unwrap_or(core::num::NonZeroU32::MIN); // it is not 0
        (self.entries - 1) / group + 1
    }
}

/// The rows with entries and those without, a thread for each row.
pub struct ListRows;

impl Kernel for ListRows {
    type Params = GroupsParams;
    const FILE: &'static str = "groups";
    const VARIANT: Variant = Variant::ListRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GroupsParams) {
        let row = item(s);
        // SAFETY: the obligations of the params: each row has one place.
        unsafe {
            if row < p.rows {
                let rank = s.load_readonly(p.ranks.at(row));
                if s.load_readonly(p.ranks.at(row + 1)) > rank {
                    s.store(p.filled_rows.at(rank), row);
                    s.store(p.filled_starts.at(rank), s.load_readonly(p.row_offsets.at(row)));
                } else {
                    s.store(p.empty_rows.at(row - rank), row);
                }
            }
        }
    }
}

/// Which of 32 entries start a row, and how many do before them: a thread for each word.
pub struct StartWords;

impl Kernel for StartWords {
    type Params = GroupsParams;
    const FILE: &'static str = "groups";
    const VARIANT: Variant = Variant::StartWords;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GroupsParams) {
        let word = item(s);
        if word > p.entries.div_ceil(WORD) {
            return;
        }
        let first = word * WORD;
        // SAFETY: the obligations of the params; starts are read below `filled`.
        unsafe {
            let (mut before, mut high) = (0, p.filled);
            while before < high {
                let middle = before + (high - before) / 2;
                match s.load_readonly(p.filled_starts.at(middle)) < first {
                    true => before = middle + 1,
                    false => high = middle,
                }
            }
            let (mut bits, mut next) = (0, before);
            while next < p.filled {
                let start = s.load_readonly(p.filled_starts.at(next)) - first;
                if start >= WORD {
                    break;
                }
                bits |= 1 << start;
                next += 1;
            }
            s.store(p.words.at(word), [bits, before]);
        }
    }
}

/// What a group has of rows that lie in others, too.
#[derive(Clone, Copy)]
struct Group {
    end: u32,
    /// Whether its first entry is of a row of the group before.
    continues: bool,
    /// Whether a row starts in it that ends in another.
    begins: bool,
}

impl Group {
    /// # Safety
    /// The obligations of the params, the words are written, and the group is one of theirs.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &GroupsParams, number: u32) -> Self {
        let begin = number * p.group;
        let end = if p.entries - begin > p.group { begin + p.group } else { p.entries };
        // SAFETY: the caller's promise.
        unsafe {
            let continues = !p.starts_at(s, begin);
            let starts = p.starts_before(s, end) - p.starts_before(s, begin);
            Self { end, continues, begins: starts > 0 && end < p.entries && !p.starts_at(s, end) }
        }
    }

    /// Slots of the pieces that begin with it.
    #[inline(always)]
    fn slots(self, p: &GroupsParams) -> u32 {
        u32::from(self.continues && p.shared == 0) + u32::from(self.begins)
    }

    /// Slots of the row that starts in it and ends in another.
    ///
    /// # Safety
    /// As for [`load`](Self::load), and there is such a row.
    #[inline(always)]
    unsafe fn row_slots<S: Simt>(self, s: &S, p: &GroupsParams, number: u32) -> u32 {
        if p.shared != 0 {
            return 1;
        }
        // SAFETY: the caller's promise; a row that starts before the end is the last of those.
        let next = unsafe {
            let rank = p.starts_before(s, self.end);
            if rank < p.filled { s.load_readonly(p.filled_starts.at(rank)) } else { p.entries }
        };
        let group = core::num::NonZeroU32::new(p.group).unwrap_or(core::num::NonZeroU32::MIN); // it is not 0
        (next - 1) / group - number + 1
    }
}

/// Pieces and cut rows of each group, a thread for each.
pub struct CountPieces;

impl Kernel for CountPieces {
    type Params = GroupsParams;
    const FILE: &'static str = "groups";
    const VARIANT: Variant = Variant::CountPieces;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GroupsParams) {
        let (number, groups) = (item(s), p.groups());
        // SAFETY: the obligations of the params; `number < groups` where it is used.
        unsafe {
            if number < groups {
                let group = Group::load(s, p, number);
                let is_wide = group.begins && group.row_slots(s, p, number) > Combine::<f32>::NARROW;
                s.store(p.counts.at(number), group.slots(p));
                s.store(p.counts.at(groups + number), u32::from(group.begins));
                s.store(p.counts.at(2 * groups + number), u32::from(is_wide));
            }
        }
    }
}

/// The slot of each group's first piece, and the rows that are cut: a thread for each group.
pub struct ListGroupPieces;

impl Kernel for ListGroupPieces {
    type Params = GroupsParams;
    const FILE: &'static str = "groups";
    const VARIANT: Variant = Variant::ListGroupPieces;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GroupsParams) {
        let (number, groups) = (item(s), p.groups());
        if number >= groups {
            return;
        }
        // SAFETY: the obligations of the params; each cut row has a place of its own.
        unsafe {
            let group = Group::load(s, p, number);
            let before = s.load_readonly(p.counts.at(number));
            let continued = u32::from(group.continues && p.shared != 0);
            s.store(p.slots.at(number), before.saturating_sub(continued));
            if group.begins {
                let row = s.load_readonly(p.filled_rows.at(p.starts_before(s, group.end) - 1));
                let first_slot = before + u32::from(group.continues && p.shared == 0);
                let slots = group.row_slots(s, p, number);
                let (all, all_rows) =
                    (s.load_readonly(p.counts.at(groups)), s.load_readonly(p.counts.at(2 * groups)));
                let all_wide = s.load_readonly(p.counts.at(3 * groups)) - all_rows;
                let rank = s.load_readonly(p.counts.at(groups + number)) - all;
                let wides = s.load_readonly(p.counts.at(2 * groups + number)) - all_rows;
                let at = if slots > Combine::<f32>::NARROW { wides } else { all_wide + (rank - wides) };
                s.store(p.split_rows.at(at), [row, first_slot, slots, 1]);
            }
        }
    }
}

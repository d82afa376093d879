//! The order of [`Method::MinHash`](windrow_preprocess::reorder::Method::MinHash), made by kernels: the host's, row for
//! row.

use windrow_formats::WINDOW_ROWS;
use windrow_kernels::Variant;
use windrow_kernels::preprocess::{MOST_ITEMS, RowLengthsParams};
use windrow_kernels::reorder::{
    CANDIDATES, ClusterKeysParams, CollectCandidatesParams, CountColumnsParams, CountVectorsParams,
    LIST_COLUMNS, ListFilledParams, ListLeftParams, ListPairsParams, Lists, ListsParams, ProposeParams,
    REACH, UnionsParams,
};
use windrow_preprocess::reorder::MinHash;
use windrow_simt::GlobalPtr;

use super::scratch::Scratch;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::sort::Sort;
use crate::spmm::layout::{CsrArrays, Matrix};

const _: () = assert!(LIST_COLUMNS as usize == MinHash::LIST && CANDIDATES == MinHash::KEPT);
const _: () = assert!(REACH as usize == MinHash::REACH && MinHash::HANDS.is_multiple_of(2));

/// An order that was made on the device.
#[derive(Debug)]
pub(in crate::spmm) struct DeviceOrder {
    /// Position `i` takes row `new_to_old[i]`.
    pub(in crate::spmm) new_to_old: Vec<u32>,
    /// Distinct columns of windows of 8 rows in the matrix's own order, and in this one.
    pub(in crate::spmm) column_vectors: [u32; 2],
}

/// Whether kernels can count the rows and entries of a matrix.
pub(in crate::spmm) fn can_order<A: Matrix>(a: &A) -> bool {
    let most = index(u64::from(MOST_ITEMS)) - WINDOW_ROWS * 4;
    a.rows() < most && a.nnz() < most
}

/// The order of a matrix's rows, unless it does not pay, which is asked when the column vectors of the matrix's own
/// order are counted.
///
/// Waits seven times for a number, and for the order. Memory on the device for about 150 bytes a row and 8 an entry, for
/// the time that it takes.
///
/// # Errors
/// What the device refuses, [`DeviceError::OutOfMemory`] above all.
pub(in crate::spmm) fn min_hash_order<A: Matrix>(
    device: &Device,
    a: &A,
    pays: impl FnOnce(u32) -> bool,
) -> Result<Option<DeviceOrder>, DeviceError> {
    let (rows, nnz) = (a.rows(), a.nnz());
    let bytes = 152 * wide(rows) + 8 * wide(nnz);
    let scratch = Scratch::new(device, bytes + bytes / 64 + (1 << 20))?;
    let arrays = a.arrays(&scratch)?;
    let lengths = scratch.array(rows, "lengths of rows")?;
    let ranks = scratch.array(rows + 1, "ranks of rows")?;
    let of_rows = RowLengthsParams {
        rows: GlobalPtr::NULL,
        row_offsets: arrays.row_offsets,
        lengths,
        count: narrow(rows),
        reserved: 0,
    };
    // SAFETY: the matrix is valid, the arrays have the lengths that the kernels ask for; here and below arrays are read
    // after the launch that writes them, in one queue.
    let filled = unsafe {
        scratch.launch(Variant::RowLengths, wide(rows), &of_rows)?;
        scratch.scan(lengths, narrow(rows), true, ranks)?;
        scratch.read(ranks.at(narrow(rows)), 1)?
    };
    let filled = filled.first().copied().unwrap_or_default();
    let orderer = Orderer {
        counters: MinHash::counters(a.cols(), nnz),
        order: scratch.array(rows, "the new order")?,
        by_number: scratch.array(filled as usize, "rows with entries")?,
        arrays,
        ranks,
        filled,
        rows: narrow(rows),
        cols: a.cols(),
        nnz: narrow(nnz),
        scratch,
    };
    orderer.run(pays)
}

/// The matrix, and what is known of its rows.
struct Orderer {
    scratch: Scratch,
    arrays: CsrArrays,
    /// Rows with entries before each.
    ranks: GlobalPtr<u32>,
    /// The rows that have entries.
    by_number: GlobalPtr<u32>,
    order: GlobalPtr<u32>,
    rows: u32,
    cols: usize,
    nnz: u32,
    /// How many rows have entries.
    filled: u32,
    /// How many counters the columns have.
    counters: usize,
}

/// Memory of all levels, for as many clusters as there are rows with entries.
struct Room {
    sequences: [GlobalPtr<u32>; 2],
    keys: GlobalPtr<u32>,
    sorted_keys: GlobalPtr<u32>,
    sort_memory: GlobalPtr<u32>,
    key_bits: u32,
    candidates: GlobalPtr<[u64; 2]>,
    partners: GlobalPtr<u32>,
    best: [DeviceBuffer<u64>; 2],
    flags: GlobalPtr<u32>,
    ranks: GlobalPtr<u32>,
    left: GlobalPtr<u32>,
    lengths: GlobalPtr<u32>,
    pairs: GlobalPtr<[u32; 2]>,
    lists: [Lists; 2],
    members: [GlobalPtr<u32>; 2],
}

impl Room {
    fn new(scratch: &Scratch, filled: usize, nnz: usize, cols: usize) -> Result<Self, DeviceError> {
        let of_clusters = |what| scratch.array::<u32>(filled, what);
        let key_bits = Sort::bits_below(cols.saturating_add(1));
        let lists = || {
            Ok::<_, DeviceError>(Lists {
                begins: scratch.array(filled + 1, "begins of lists")?,
                columns: scratch.array(nnz.min(filled.saturating_mul(MinHash::LIST)), "lists of columns")?,
                facts: scratch.array(filled, "samples of columns")?,
            })
        };
        let best = || DeviceBuffer::zeroed(scratch.device(), filled, "best of each");
        Ok(Self {
            sequences: [of_clusters("a sequence")?, of_clusters("a sequence")?],
            keys: of_clusters("keys of clusters")?,
            sorted_keys: of_clusters("sorted keys")?,
            sort_memory: scratch
                .array(index(Sort::memory_words(narrow(filled), key_bits)), "memory of a sort")?,
            key_bits,
            candidates: scratch.array(2 * filled, "candidates")?,
            partners: of_clusters("partners")?,
            best: [best()?, best()?],
            flags: of_clusters("clusters left")?,
            ranks: scratch.array(filled + 1, "ranks of clusters")?,
            left: of_clusters("clusters left")?,
            lengths: of_clusters("lengths of lists")?,
            pairs: scratch.array(filled / 2, "pairs")?,
            lists: [lists()?, lists()?],
            members: [of_clusters("members")?, of_clusters("members")?],
        })
    }
}

impl Orderer {
    fn run(&self, pays: impl FnOnce(u32) -> bool) -> Result<Option<DeviceOrder>, DeviceError> {
        let Self { scratch, by_number, order, filled, .. } = self;
        let rows = ListFilledParams {
            ranks: self.ranks,
            members: *by_number,
            order: *order,
            rows: self.rows,
            reserved: 0,
        };
        // SAFETY: `by_number` has an element for each row that is counted, `order` for each row.
        unsafe { scratch.launch(Variant::ListFilled, u64::from(self.rows), &rows)? };
        let own_vectors = self.column_vectors(*by_number, self.ranks)?;
        if !pays(own_vectors) {
            return Ok(None);
        }
        if *filled > 0 {
            let room = Room::new(scratch, *filled as usize, self.nnz as usize, self.cols)?;
            self.list_columns(&room)?;
            let (mut clusters, mut members) = (*filled, *by_number);
            for level in 0..MinHash::LEVELS {
                let [from, to] = if level % 2 == 0 { [0, 1] } else { [1, 0] };
                let (lists, united) = (room.lists[from], room.lists[to]);
                self.pair(&room, lists, level, clusters)?;
                let is_last = level + 1 == MinHash::LEVELS;
                let pair_members = if is_last { *order } else { room.members[to] };
                self.unite(&room, [lists, united], [members, pair_members], (level, clusters))?;
                (clusters, members) = (clusters / 2, pair_members);
            }
        }
        let column_vectors = [own_vectors, self.column_vectors_of_order()?];
        // SAFETY: it has an element for each row: those with entries from windows and tails, the others at the end.
        let new_to_old = unsafe { scratch.read(*order, self.rows as usize)? };
        Ok(Some(DeviceOrder { new_to_old, column_vectors }))
    }

    /// The lists of the rows, by which they are compared.
    fn list_columns(&self, room: &Room) -> Result<(), DeviceError> {
        let Self { scratch, arrays, by_number, filled, .. } = self;
        let counts = DeviceBuffer::<u32>::zeroed(scratch.device(), self.counters, "counts of columns")?;
        let columns = CountColumnsParams {
            col_indices: arrays.col_indices,
            counts: counts.pointer(),
            entries: self.nnz,
            counters: narrow(self.counters),
            cols: narrow(self.cols),
            reserved: 0,
        };
        let params = ListsParams {
            row_offsets: arrays.row_offsets,
            members: *by_number,
            lengths: room.lengths,
            lists: room.lists[0],
            columns,
            clusters: *filled,
            reserved: 0,
        };
        let clusters = u64::from(*filled);
        // SAFETY: the counters are zero, as many as the params say; lists have room for each entry, or for the longest
        // list of each row. The counters are freed in the order of the queue.
        unsafe {
            scratch.launch(Variant::CountColumns, u64::from(self.nnz), &columns)?;
            scratch.launch(Variant::CountLists, clusters, &params)?;
            scratch.scan(room.lengths, *filled, false, room.lists[0].begins)?;
            scratch.launch(Variant::WriteLists, clusters, &params)
        }
    }

    /// Finds the partner of each cluster of a level.
    fn pair(&self, room: &Room, lists: Lists, level: u32, clusters: u32) -> Result<(), DeviceError> {
        let scratch = &self.scratch;
        let (mut left, mut count) = (GlobalPtr::NULL, clusters);
        for phase in 0..MinHash::PHASES {
            if phase > 0 {
                self.list_left(room, clusters)?;
                // SAFETY: a number for each cluster, and the end.
                let found = unsafe { scratch.read(room.ranks.at(clusters), 1)? };
                (left, count) = (room.left, found.first().copied().unwrap_or_default());
                if count < 2 {
                    break;
                }
            }
            self.collect_candidates(room, lists, (left, count), (level, phase))?;
            for hand in 0..MinHash::HANDS {
                let [now, next] = if hand % 2 == 0 { [0, 1] } else { [1, 0] };
                let params = ProposeParams {
                    left,
                    candidates: room.candidates,
                    partners: room.partners,
                    best: room.best[now].pointer(),
                    next_best: room.best[next].pointer(),
                    is_left: room.flags,
                    count,
                    reserved: 0,
                };
                // SAFETY: candidates are among those that are left, each of which has elements in all arrays. `best` is
                // 0 for them: it was when allocated, and is set to that every other time for all that were left.
                unsafe {
                    scratch.launch(Variant::Propose, u64::from(count), &params)?;
                    scratch.launch(Variant::Match, u64::from(count), &params)?;
                }
            }
        }
        let params = self.list_left(room, clusters)?;
        // SAFETY: the list was made by the launch before.
        unsafe { scratch.launch(Variant::PairLeft, u64::from(clusters.div_ceil(2)), &params) }
    }

    /// Lists the clusters without a partner.
    fn list_left(&self, room: &Room, clusters: u32) -> Result<ListLeftParams, DeviceError> {
        let params = ListLeftParams {
            ranks: room.ranks,
            left: room.left,
            partners: room.partners,
            clusters,
            reserved: 0,
        };
        // SAFETY: the flags are those of all clusters.
        unsafe {
            self.scratch.scan(room.flags, clusters, true, room.ranks)?;
            self.scratch.launch(Variant::ListLeft, u64::from(clusters), &params)?;
        }
        Ok(params)
    }

    /// The candidates of so many clusters that are left.
    fn collect_candidates(
        &self,
        room: &Room,
        lists: Lists,
        (left, count): (GlobalPtr<u32>, u32),
        (level, phase): (u32, u32),
    ) -> Result<(), DeviceError> {
        let scratch = &self.scratch;
        let mut sequence = left;
        for round in 0..MinHash::ROUNDS {
            if round > 0 {
                let seed = MinHash::seed(level, phase, round);
                let without = narrow(self.cols);
                let keys =
                    ClusterKeysParams { lists, sequence, keys: room.keys, count, seed, without, reserved: 0 };
                let sorted = room.sequences[round as usize % 2];
                let sort = Sort {
                    keys: room.keys,
                    key_words: 1,
                    payloads: sequence,
                    out_keys: room.sorted_keys,
                    keys_wanted: false,
                    out_payloads: sorted,
                    len: count,
                    bits: room.key_bits,
                };
                // SAFETY: sequences take turns, so that none is read and written; the memory is enough for more keys
                // than these.
                unsafe {
                    scratch.launch(Variant::ClusterKeys, u64::from(count), &keys)?;
                    sort.queue(scratch.queue()?, room.sort_memory)?;
                }
                sequence = sorted;
            }
            let is_first = round == 0;
            let params = CollectCandidatesParams {
                lists,
                sequence,
                candidates: room.candidates,
                partners: if is_first && phase == 0 { room.partners } else { GlobalPtr::NULL },
                count,
                first: u32::from(is_first),
            };
            // SAFETY: a sequence has each cluster that is left once; the first launch writes candidates for all.
            unsafe { scratch.launch(Variant::CollectCandidates, u64::from(count), &params)? };
        }
        Ok(())
    }

    /// Makes the pairs of a level the clusters of the next.
    fn unite(
        &self,
        room: &Room,
        [lists, united]: [Lists; 2],
        [members, pair_members]: [GlobalPtr<u32>; 2],
        (level, clusters): (u32, u32),
    ) -> Result<(), DeviceError> {
        let scratch = &self.scratch;
        let each = 1 << level;
        let params = ListPairsParams {
            partners: room.partners,
            is_first: room.flags,
            ranks: room.ranks,
            members,
            tail: self.order.at(self.filled & !(2 * each - 1)),
            pairs: room.pairs,
            pair_members,
            clusters,
            each,
        };
        let pairs = clusters / 2;
        let of_pairs = UnionsParams {
            lists,
            pairs: room.pairs,
            lengths: room.lengths,
            united,
            count: pairs,
            reserved: 0,
        };
        // SAFETY: every cluster has a partner but one if their number is odd, and then there is room for its rows
        // behind those of the pairs, since so many rows are a bit of the number of all. Lists of pairs are no longer
        // together than those of clusters.
        unsafe {
            scratch.launch(Variant::MarkPairs, u64::from(clusters), &params)?;
            scratch.scan(room.flags, clusters, true, room.ranks)?;
            scratch.launch(Variant::ListPairs, u64::from(clusters), &params)?;
            if level + 1 < MinHash::LEVELS {
                scratch.launch(Variant::CountUnions, u64::from(pairs), &of_pairs)?;
                scratch.scan(room.lengths, pairs, false, united.begins)?;
                scratch.launch(Variant::WriteUnions, u64::from(pairs), &of_pairs)?;
            }
        }
        Ok(())
    }

    /// The column vectors of the new order.
    fn column_vectors_of_order(&self) -> Result<u32, DeviceError> {
        let places = self.scratch.array(self.rows as usize, "places of rows")?;
        let params = self.vectors_of(self.order, places, GlobalPtr::NULL);
        // SAFETY: the order begins with the rows that have entries.
        unsafe { self.scratch.launch(Variant::PlaceOrder, u64::from(self.filled), &params)? };
        self.column_vectors(self.order, places)
    }

    /// The column vectors of an order in which rows have these places.
    fn column_vectors(&self, order: GlobalPtr<u32>, places: GlobalPtr<u32>) -> Result<u32, DeviceError> {
        let total = DeviceBuffer::<u32>::zeroed(self.scratch.device(), 1, "column vectors")?;
        let params = self.vectors_of(order, places, total.pointer());
        // SAFETY: every row with entries has its place; the total is 0.
        unsafe { self.scratch.launch(Variant::CountVectors, u64::from(self.nnz), &params)? };
        Ok(total.to_vec()?.first().copied().unwrap_or_default())
    }

    fn vectors_of(
        &self,
        order: GlobalPtr<u32>,
        places: GlobalPtr<u32>,
        total: GlobalPtr<u32>,
    ) -> CountVectorsParams {
        let CsrArrays { row_offsets, col_indices } = self.arrays;
        let Self { rows, filled, nnz: entries, .. } = *self;
        CountVectorsParams {
            row_offsets,
            col_indices,
            order,
            places,
            total,
            rows,
            filled,
            entries,
            reserved: 0,
        }
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

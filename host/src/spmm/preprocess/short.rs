//! Whole rows of a matrix that is on the device, divided between tiles and short rows: what
//! [`windrow_preprocess::partition::assign`] and [`windrow_preprocess::balance::short_row_blocks`] do on the host.

use std::rc::Rc;

use windrow_kernels::Variant;
use windrow_kernels::hybrid::{CHUNK_ROWS, JudgeRowsParams, KeyRowsParams, ShortTotals, SortedRowsParams};
use windrow_kernels::preprocess::PlaceRowsParams;
use windrow_preprocess::partition::{PartitionRule, Thresholds};
use windrow_simt::GlobalPtr;

use super::condense::{RowList, WindowCounts, place_pass};
use super::distribute::RestEntries;
use super::scratch::Scratch;
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::sort::Sort;
use crate::spmm::layout::{CsrArrays, Matrix};
use crate::spmm::tiles::WINDOW_ROWS;

/// Scratch memory for each row: keys and rows, sorted and not, what they are sorted with, and sums.
const ROW_BYTES: u64 = 40;

/// Rows divided.
pub(in crate::spmm) struct DividedRows {
    /// None if all rows with entries are in tiles.
    pub(in crate::spmm) short: Option<ShortRows>,
    /// None if no row is in tiles.
    pub(in crate::spmm) tiles: Option<TileRows>,
}

/// Rows by their length, in device memory. Those without entries are among them if no row is in tiles.
pub(in crate::spmm) struct ShortRows {
    /// `[first_row, row_count, first_entry, len]`.
    pub(in crate::spmm) blocks: DeviceBuffer<[u32; 4]>,
    pub(in crate::spmm) rows: DeviceBuffer<u32>,
    pub(in crate::spmm) entries: RestEntries,
}

/// Rows in tiles, in the order of the matrix.
pub(in crate::spmm) struct TileRows {
    pub(in crate::spmm) list: RowList,
    pub(in crate::spmm) entries: usize,
    /// Holds the list.
    _scratch: Rc<Scratch>,
}

/// What a rule asks of a row.
struct Judgement {
    /// Longer rows are in tiles.
    max_entries: u32,
    /// The limit of the kernel, and whether it judges as printed; none if the length decides.
    window: Option<(u32, bool)>,
}

impl Judgement {
    /// None for a rule that divides entries.
    fn of(rule: PartitionRule) -> Option<Self> {
        let by_length = |max_entries| Self { max_entries, window: None };
        match rule {
            PartitionRule::AllTile => Some(by_length(0)),
            PartitionRule::AllResidual => Some(by_length(u32::MAX)),
            PartitionRule::ShortRows { max_entries } => Some(by_length(max_entries)),
            PartitionRule::Overlap { thresholds: Thresholds { max_entries, max_shared_percent } } => {
                Some(Self { max_entries, window: Some((max_shared_percent, false)) })
            }
            PartitionRule::Printed { max_entries, max_increment } => {
                Some(Self { max_entries, window: Some((max_increment, true)) })
            }
            _ => None,
        }
    }
}

/// Whether kernels divide rows by a rule.
pub(in crate::spmm) fn divides_rows(rule: PartitionRule) -> bool {
    Judgement::of(rule).is_some()
}

impl DividedRows {
    /// Divides the rows of a matrix that has some, in its own order. A block has so many short rows. None for a rule
    /// that divides entries.
    pub(in crate::spmm) fn new(
        device: &Device,
        a: &Received,
        rule: PartitionRule,
        rows_per_block: u32,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(judgement) = Judgement::of(rule) else { return Ok(None) };
        let longest = u32::try_from(a.record.longest).unwrap_or(u32::MAX - 1);
        let tile_key = judgement.max_entries.min(longest) + 1;
        let bits = Sort::bits_below(tile_key as usize + 1);
        let (rows, empty) = (narrow(a.rows), a.record.empty_rows);
        let sort_words = Sort::memory_words(rows, bits);
        let bytes = ROW_BYTES * wide(a.rows) + 4 * sort_words;
        let scratch = Rc::new(Scratch::new(device, bytes + bytes / 128 + (1 << 16))?);
        let CsrArrays { row_offsets, col_indices } = a.arrays(&scratch)?;
        let of_keys = KeyRowsParams {
            row_offsets,
            in_tiles: match judgement.window {
                Some(window) => judge(&scratch, a, judgement.max_entries, window)?,
                None => GlobalPtr::NULL,
            },
            keys: scratch.array(a.rows, "lengths of rows")?,
            rows,
            max_entries: judgement.max_entries,
            tile_key,
            reserved: 0,
        };
        let sort = Sort {
            keys: of_keys.keys,
            key_words: 1,
            payloads: GlobalPtr::NULL,
            out_keys: scratch.array(a.rows, "sorted lengths")?,
            keys_wanted: true,
            out_payloads: scratch.array(a.rows, "rows by length")?,
            len: rows,
            bits,
        };
        let mut params = SortedRowsParams {
            row_offsets,
            columns: col_indices,
            keys: sort.out_keys,
            rows: sort.out_payloads,
            begins: scratch.array(a.rows + 1, "begins of short rows")?,
            ranks: scratch.array(a.rows + 1, "ranks of blocks")?,
            totals: scratch.array(1, "sums of short rows")?,
            short_rows: GlobalPtr::NULL,
            blocks: GlobalPtr::NULL,
            col_indices: GlobalPtr::NULL,
            sources: GlobalPtr::NULL,
            count: rows,
            empty,
            tile_key,
            rows_per_block: rows_per_block.max(1),
            entries: 0,
            reserved: 0,
        };
        let memory = scratch.array(index(sort_words), "memory of a sort")?;
        // SAFETY: the matrix was checked, and has rows; the arrays have the lengths that the kernels ask for, sums may
        // take the place of what is added up: entries of rows and blocks of rows.
        let ShortTotals { rows: outside, entries, blocks, .. } = unsafe {
            scratch.launch(Variant::KeyRows, u64::from(rows), &of_keys)?;
            sort.queue(scratch.queue()?, memory)?;
            scratch.launch(Variant::MarkShort, u64::from(rows), &params)?;
            scratch.scan(params.begins, rows, false, params.begins)?;
            scratch.scan(params.ranks, rows, true, params.ranks)?;
            scratch.launch(Variant::SumShort, 1, &params)?;
            scratch.read(params.totals, 1)?.first().copied().unwrap_or_default()
        };
        let in_tiles = rows - outside;
        let listed = outside - if in_tiles > 0 { empty } else { 0 };
        let short = match listed > 0 {
            true => {
                let blocks = DeviceBuffer::alloc(device, blocks as usize, "short_row_blocks")?;
                let short_rows = DeviceBuffer::alloc(device, listed as usize, "short_rows")?;
                let columns = DeviceBuffer::alloc(device, entries as usize, "short_row_cols")?;
                let sources = DeviceBuffer::alloc(device, entries as usize, "short_row_sources")?;
                (params.blocks, params.short_rows) = (blocks.pointer(), short_rows.pointer());
                (params.col_indices, params.sources) = (columns.pointer(), sources.pointer());
                params.entries = entries;
                // SAFETY: as above; there is room for what the sums say.
                unsafe { scratch.launch(Variant::ListShort, u64::from(rows.max(entries)), &params)? };
                let entries = RestEntries::new(columns, sources, Rc::clone(&scratch));
                Some(ShortRows { blocks, rows: short_rows, entries })
            }
            false => None,
        };
        let tiles = (in_tiles > 0).then(|| TileRows {
            list: RowList {
                list: sort.out_payloads.at(outside),
                rows: in_tiles as usize,
                kinds: PlaceRowsParams::FULL,
            },
            entries: a.nnz - entries as usize,
            _scratch: scratch,
        });
        Ok(Some(Self { short, tiles }))
    }
}

/// Tells of each row with entries whether it stays in tiles.
fn judge(
    scratch: &Scratch,
    a: &Received,
    max_entries: u32,
    (limit, printed): (u32, bool),
) -> Result<GlobalPtr<u32>, DeviceError> {
    let counts = WindowCounts::of_filled(a);
    let rows = scratch.array(WINDOW_ROWS * counts.full, "rows with entries")?;
    let own = RowList { list: GlobalPtr::NULL, rows: a.rows, kinds: PlaceRowsParams::FULL };
    place_pass(scratch, a.row_offsets.pointer(), own, rows, counts)?;
    let count = narrow(a.rows) - a.record.empty_rows;
    let params = JudgeRowsParams {
        rows,
        row_offsets: a.row_offsets.pointer(),
        col_indices: a.col_indices.pointer(),
        in_tiles: scratch.array(a.rows, "rows in tiles")?,
        count,
        max_entries,
        limit,
        printed: u32::from(printed),
    };
    // SAFETY: the matrix was checked; the list has its rows with entries, and pads behind them.
    unsafe { scratch.launch(Variant::JudgeRows, u64::from(count.div_ceil(CHUNK_ROWS)), &params)? };
    Ok(params.in_tiles)
}

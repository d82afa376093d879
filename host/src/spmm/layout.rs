//! The algorithms' parts on the host: how rows become segments, tiles and buckets.

use windrow_formats::{RsTile, Value};
use windrow_preprocess::balance::{row_segments, tile_workers};
use windrow_preprocess::partition::{PartitionRule, assign};

use super::builder::{Draft, MAX_INDEX, SpmmBuilder};
use super::geometry::{TILE_SLOT_ROWS, division, short_row_groups};
use super::parts::{RowSplitHost, ShortRowsHost, TilesHost, push, row_split_host, wide_first};
use super::report::ArraySize;
use super::select::{self, Demand};
use super::tiles::{STEP_COLUMNS, TilePattern, empty_rows};
use crate::device::Machine;
use crate::error::SpmmError;
use crate::num::{index, narrow, real, wide};
use crate::options::Algorithm;

/// No row is cut into shorter pieces than this: a piece's sum is written and read once more.
pub(super) const SHORTEST_PIECE: u32 = 32;
/// So many pieces of the longest kind would occupy a multiprocessor for the whole product. One lane group
/// takes about as long for such a piece as an eighth of it, so the longest row does not outlast the rest,
/// and the workspace depends on the device, not on the matrix.
const PIECES_PER_MULTIPROCESSOR: u32 = 96;

/// With so many rows for each multiprocessor, the rows alone occupy the device.
const ROWS_PER_MULTIPROCESSOR: u32 = 32;
/// No row is cut for being longer than the others by less than this: adding its pieces is a launch of its own.
const SHORTEST_CUT: u32 = 96;

/// Entries from which on a row is cut, and entries of its longest piece.
///
/// Rows that are alike need no cutting if there are enough of them; on an H200, cutting them cost bcsstk16
/// 24 %, not cutting unlike ones email-Enron 100 %.
fn cut_lengths(row_offsets: &[u64], multiprocessors: u32) -> (u32, u32) {
    let nnz = row_offsets.last().copied().unwrap_or(0);
    let rows = wide(row_offsets.len()).saturating_sub(1);
    let longest = row_offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let alike = longest <= u64::from(SHORTEST_CUT).max(2 * nnz / rows.max(1));
    let piece = piece_len(nnz, multiprocessors);
    if alike && rows >= u64::from(ROWS_PER_MULTIPROCESSOR) * u64::from(multiprocessors) {
        return (u32::MAX, piece);
    }
    // A row that is barely longer than a piece is better left whole than cut into halves.
    (piece.saturating_add(piece / 2), piece)
}

/// Entries of the longest piece of a row that is cut, for `nnz` entries on so many multiprocessors.
fn piece_len(nnz: u64, multiprocessors: u32) -> u32 {
    let pieces = u64::from(PIECES_PER_MULTIPROCESSOR) * u64::from(multiprocessors.max(1));
    narrow(index(nnz.div_ceil(pieces).max(u64::from(SHORTEST_PIECE))))
}

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Row-split: segments over the CSR arrays as they are.
    pub(super) fn lay_out_rows(&self, multiprocessors: u32, draft: &mut Draft) -> HostParts<'a> {
        let report = &mut draft.report;
        let (limit, piece) = cut_lengths(self.a.row_offsets(), multiprocessors);
        let mut cut = row_segments(self.a.row_offsets(), limit, piece);
        report.segments = wide(cut.segments.len());
        report.split = wide(cut.split_rows.len());
        let split_rows = wide_first(std::mem::take(&mut cut.split_rows));
        let slot_rows = u64::from(cut.slots);
        let row_split = Some(row_split_host(self.a, cut, self.precision.bytes()));
        draft.clock.end("balance");
        HostParts { row_split, short_rows: None, tiles: None, split_rows, slot_rows }
    }

    /// The three forms of RS-Tile: every row in tiles, every row in the residual, or both.
    pub(super) fn lay_out_tiles(
        &self,
        machine: &dyn Machine,
        draft: &mut Draft,
    ) -> Result<HostParts<'a>, SpmmError> {
        let Draft { report, clock } = draft;
        let rule = match report.algorithm {
            Algorithm::ShortRows => PartitionRule::AllResidual,
            Algorithm::Hybrid => PartitionRule::ShortRows { max_entries: self.residual_max_entries },
            _ => PartitionRule::AllTile,
        };
        let assignment = assign(self.a, rule);
        clock.end("partition");
        let rs_tile = RsTile::from_csr(self.a, &assignment)?;
        let sources = rs_tile.entry_sources(self.a)?;
        clock.end("tiles");

        let demand = self.demand();
        let empty = empty_rows(self.a);
        report.residual_rows = wide(rs_tile.residual().rows().len());
        let short_rows = (!empty.is_empty() || report.residual_rows > 0).then(|| {
            let groups = select::short_rows(demand).map_or(1, short_row_groups);
            let bytes = self.precision.bytes();
            ShortRowsHost::new(empty, rs_tile.residual(), sources.residual(), bytes, groups)
        });
        let pattern = TilePattern::new(&mut rs_tile.into_parts(), &sources);
        (report.windows, report.tiles) = (wide(pattern.windows()), wide(pattern.tiles()));
        report.steps = wide(pattern.steps());
        report.column_vectors = pattern.column_vectors();
        report.gather_places = report.steps * wide(STEP_COLUMNS);
        report.tile_share = real(wide(pattern.entries())) / real(wide(self.a.nnz()).max(1));
        let dealt = tile_workers(pattern.window_steps(), self.worker_count(machine, demand)?);
        report.workers = wide(dealt.workers.len());
        report.split = wide(dealt.split_windows.len());
        let split_rows = wide_first(dealt.combine_rows(pattern.window_rows()));
        let slot_rows = u64::from(dealt.slots) * u64::from(TILE_SLOT_ROWS);
        let tiles = (report.steps > 0).then_some(TilesHost { pattern, workers: dealt.workers });
        clock.end("balance");
        Ok(HostParts { row_split: None, short_rows, tiles, split_rows, slot_rows })
    }

    /// What an aligned product of the plan's width asks of an entry.
    pub(super) fn demand(&self) -> Demand {
        let n = narrow(self.width.min(index(MAX_INDEX)));
        Demand { dtype: self.precision.dtype(), n, vectors: true, mean_len: 0.0 }
    }

    /// As many workers as the device holds warps of the kernel at a time, divided by the slices of the width:
    /// then every slice of every worker is resident at once.
    fn worker_count(&self, machine: &dyn Machine, demand: Demand) -> Result<u32, SpmmError> {
        if let Some(workers) = self.workers {
            return Ok(workers);
        }
        let Some(entry) = select::tile_stream(demand) else { return Ok(1) };
        let division = division(entry);
        let slices = demand.n.div_ceil(division.slice).max(1);
        let blocks = machine.multiprocessors() * machine.resident_blocks(entry)?;
        Ok((blocks * division.units_per_block / slices).max(1))
    }
}

/// A plan's arrays while they are on the host.
pub(super) struct HostParts<'a> {
    pub(super) row_split: Option<RowSplitHost<'a>>,
    pub(super) short_rows: Option<ShortRowsHost>,
    pub(super) tiles: Option<TilesHost>,
    pub(super) split_rows: Vec<[u32; 4]>,
    /// Rows of the workspace.
    pub(super) slot_rows: u64,
}

impl HostParts<'_> {
    pub(super) fn sizes(&self) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        if let Some(part) = &self.row_split {
            part.sizes(&mut sizes);
        }
        if let Some(part) = &self.short_rows {
            part.sizes(&mut sizes);
        }
        if let Some(part) = &self.tiles {
            part.sizes(&mut sizes);
        }
        push(&mut sizes, "split_rows", 16 * wide(self.split_rows.len()));
        sizes
    }

    /// What stays on the host for new values.
    pub(super) fn host_bytes(&self) -> u64 {
        let short_rows = self.short_rows.as_ref().map_or(0, |part| 4 * wide(part.sources.len()));
        short_rows + self.tiles.as_ref().map_or(0, |part| part.pattern.host_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(lengths: &[u64]) -> Vec<u64> {
        lengths.iter().fold(vec![0], |mut offsets, len| {
            offsets.push(offsets[offsets.len() - 1] + len);
            offsets
        })
    }

    #[test]
    fn many_rows_alike_stay_whole() {
        assert_eq!(cut_lengths(&offsets(&[60; 128]), 4), (u32::MAX, SHORTEST_PIECE));
    }

    #[test]
    fn few_rows_and_unlike_rows_are_cut() {
        let cut = (SHORTEST_PIECE + SHORTEST_PIECE / 2, SHORTEST_PIECE);
        assert_eq!(cut_lengths(&offsets(&[60; 127]), 4), cut);
        let mut lengths = [4; 128];
        lengths[5] = 97;
        assert_eq!(cut_lengths(&offsets(&lengths), 4), cut);
        lengths[5] = 96;
        assert_eq!(cut_lengths(&offsets(&lengths), 4).0, u32::MAX);
    }

    #[test]
    fn a_larger_matrix_has_longer_pieces() {
        let nnz = 1000 * u64::from(PIECES_PER_MULTIPROCESSOR) * 4;
        assert_eq!(cut_lengths(&[0, nnz], 4), (1500, 1000));
        assert_eq!(cut_lengths(&[0], 4).1, SHORTEST_PIECE);
    }
}

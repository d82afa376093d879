//! The algorithms' parts on the host: how rows become segments, tiles and buckets.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use windrow_formats::{Csr, Permutation, RsTile, RsTileParts, Value};
use windrow_preprocess::balance::{RowSegments, row_segments};
use windrow_preprocess::partition::{PartitionRule, assign, assign_in_order};

use super::build::{Draft, MAX_INDEX};
use super::builder::SpmmBuilder;
use super::geometry::{division, short_row_groups};
use super::groups::{GroupsHost, described};
use super::matricized::MatricizedHost;
use super::parts::{RowSplitHost, SegmentEntries, ShortRowsHost, TilesHost, push};
use super::places::PlaceCounts;
use super::points::Division;
use super::report::{ArraySize, SpmmReport};
use super::select::{self, Demand, Packing};
use super::sums::wide_first;
use super::tiles::{
    Dealing, DealtWindows, Form, STEP_COLUMNS, TilePattern, WINDOW_ROWS, empty_rows, steps_of,
};
use crate::device::{Device, Machine};
use crate::error::SpmmError;
use crate::num::{index, narrow, real, wide};
use crate::options::{Determinism, TileValues};
use crate::schedule::Scheduling;

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

/// What a slice of `B` may occupy of the L2 cache, in quarters of it: the rest is for `A`, for `C` on its way out, and for
/// the lines that both halves of the cache hold. A pass of row-split over `A` costs more than one of tiles, so
/// that its slices had better be wide.
const TILE_CACHE_QUARTERS: u64 = 2;
const ROW_CACHE_QUARTERS: u64 = 3;

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Row-split: segments over the CSR arrays as they are, in the order of the plan.
    pub(super) fn lay_out_rows(&self, context: &Context<'_>, draft: &mut Draft) -> HostParts<'a> {
        let cut = self.cut_rows(context, self.a.row_offsets());
        let entries = SegmentEntries::OnHost(Cow::Borrowed(self.a.col_indices()), None);
        let mut host = HostParts::default();
        self.add_segments(context, (cut, entries), &mut host, &mut draft.report);
        draft.clock.end("balance");
        host
    }

    /// Segment groups: the arrays of a point, over the CSR arrays as they are.
    pub(super) fn lay_out_groups(
        &self,
        Division { point, launch, .. }: Division,
        draft: &mut Draft,
    ) -> Result<HostParts<'a>, SpmmError> {
        launch.check(point)?;
        let of = (point, launch);
        let mut groups = GroupsHost::new(self.a, of, self.determinism, self.precision.dtype());
        let report = &mut draft.report;
        report.parallelism = Some(described(point, launch));
        report.split_rows = wide(groups.split_rows.len());
        report.split = report.split_rows;
        draft.clock.end("balance");
        Ok(HostParts {
            split_rows: wide_first(std::mem::take(&mut groups.split_rows)),
            slot_rows: groups.slots,
            groups: Some(groups),
            ..HostParts::default()
        })
    }

    /// The segments of rows with these offsets, in the order of the rows.
    pub(super) fn cut_rows(&self, context: &Context<'_>, row_offsets: &[u64]) -> RowSegments {
        let (limit, piece) = match self.row_division.piece_entries {
            Some(piece) => (piece.saturating_add(piece / 2), piece.max(SHORTEST_PIECE)),
            None => cut_lengths(row_offsets, context.device.multiprocessors()),
        };
        let mut cut = row_segments(row_offsets, limit, piece);
        if self.determinism == Determinism::Fast {
            cut.share_slots();
        }
        cut
    }

    /// Adds segments and their entries to a plan.
    pub(super) fn add_segments(
        &self,
        context: &Context<'_>,
        (mut cut, entries): (RowSegments, SegmentEntries<'a>),
        host: &mut HostParts<'a>,
        report: &mut SpmmReport,
    ) {
        if let Some(order) = context.order {
            cut.segments.sort_by_key(|segment| order.to_new(segment[0] as usize));
        }
        report.segments = wide(cut.segments.len());
        report.split_rows = wide(cut.split_rows.len());
        report.split += report.split_rows;
        host.split_rows = wide_first(std::mem::take(&mut cut.split_rows));
        host.slot_rows = host.slot_rows.max(u64::from(cut.slots));
        let value_bytes = wide(entries.len()) * u64::from(self.precision.bytes());
        let widest_slice = self.widest_of_rows(context);
        let several_ways = self.row_division.several_ways;
        let segments = cut.segments;
        host.row_split = Some(RowSplitHost { segments, entries, value_bytes, widest_slice, several_ways });
    }

    /// Widest slice of `B` for segments of rows, in columns.
    pub(super) fn widest_of_rows(&self, context: &Context<'_>) -> u32 {
        self.row_division.slice_columns.unwrap_or_else(|| self.slicing(context, ROW_CACHE_QUARTERS).widest)
    }

    /// The forms of RS-Tile: every row in tiles, every row in the residual, or both.
    pub(super) fn lay_out_tiles(
        &self,
        context: &Context<'_>,
        rule: PartitionRule,
        draft: &mut Draft,
    ) -> Result<HostParts<'a>, SpmmError> {
        if let Some(host) = self.lay_out_on_device(context, rule, draft)? {
            return Ok(host);
        }
        if let PartitionRule::ColumnVectors { threshold } = rule {
            return self.lay_out_vectors(context, threshold, draft);
        }
        let Draft { report, clock, .. } = draft;
        let assignment = match context.order {
            Some(order) => assign_in_order(self.a, order, rule)?,
            None => assign(self.a, rule),
        };
        clock.end("partition");
        let rs_tile = match context.order {
            Some(order) => RsTile::from_csr_in_order(self.a, &assignment, order)?,
            None => RsTile::from_csr(self.a, &assignment)?,
        };
        let sources = rs_tile.entry_sources(self.a)?;
        clock.end("tiles");

        let mut empty = empty_rows(self.a);
        report.residual_rows = wide(rs_tile.residual().rows().len());
        let all_residual = rs_tile.bitmaps().is_empty();
        let short_rows = (all_residual || report.residual_rows > 0).then(|| {
            let groups = select::short_rows(self.demand()).map_or(1, short_row_groups);
            let bytes = self.precision.bytes();
            // With tiles, their stream writes the empty rows.
            let empty = if all_residual { std::mem::take(&mut empty) } else { Vec::new() };
            ShortRowsHost::new(empty, rs_tile.residual(), sources.residual(), bytes, groups)
        });
        let sources = sources.tile().par_iter().map(|&entry| narrow(index(entry))).collect();
        let stream = Stream { parts: rs_tile.into_parts(), sources, empty };
        let mut host = HostParts { short_rows, ..self.lay_out_stream(context, stream, draft)? };
        if let (Some(part), Some(entry)) = (&host.short_rows, select::short_rows(self.demand())) {
            host.scheduling = self.scheduling(context, &host, (entry, wide(part.blocks.len())))?;
        }
        Ok(host)
    }

    /// Windows of tiles, dealt out.
    pub(super) fn lay_out_stream(
        &self,
        context: &Context<'_>,
        stream: Stream<V>,
        draft: &mut Draft,
    ) -> Result<HostParts<'a>, SpmmError> {
        let Draft { report, clock, .. } = draft;
        let Stream { mut parts, sources, empty } = stream;
        let steps = steps_of(&parts.window_tiles, empty.len());
        let windows = wide(parts.window_tiles.len() - 1 + empty.len().div_ceil(WINDOW_ROWS));
        let choice = self.choose_stream(context, (windows, steps, wide(sources.len())), report)?;
        let mut pattern = TilePattern::new(&mut parts, sources, &empty, choice.dealing);
        if self.determinism == Determinism::Fast {
            pattern.share_slots();
        }
        self.note_stream(pattern.stream(), (pattern.column_vectors(), wide(pattern.entries())), report);
        let dealt = pattern.stream().dealt();
        let split_windows = wide_first(dealt.combine_rows(pattern.window_rows(), WINDOW_ROWS));
        let slot_rows = u64::from(dealt.slots) * wide(WINDOW_ROWS);
        let (dtype, form) = (self.precision.dtype(), choice.form);
        let tiles = (report.steps > 0).then(|| TilesHost::new(pattern, (dtype, form)));
        clock.end("balance");
        let widest_slice = choice.widest_slice;
        Ok(HostParts { tiles, split_windows, slot_rows, widest_slice, ..HostParts::default() })
    }

    /// How so many windows, steps and entries become a stream of tiles.
    pub(super) fn choose_stream(
        &self,
        context: &Context<'_>,
        (windows, steps, entries): (u64, u64, u64),
        report: &mut SpmmReport,
    ) -> Result<StreamChoice, SpmmError> {
        let slicing = self.slicing(context, TILE_CACHE_QUARTERS);
        let mut demand = Demand { widest_slice: slicing.widest, ..self.demand() };
        let workers = self.worker_count(context, demand, slicing)?;
        demand.widest_slice = select::widest_for_few_steps(demand, windows, steps, workers);
        let workers = self.worker_count(context, demand, slicing)?;
        let packing = Packing {
            entries,
            steps,
            workers,
            narrow: select::tile_stream(demand)
                .is_some_and(|entry| division(entry).slice * demand.dtype.bytes() <= select::LINE_BYTES),
            b_bytes: wide(self.a.cols()) * wide(self.width) * u64::from(demand.dtype.bytes()),
        };
        let (form, why) = select::packs_values(self.tile_values, packing);
        if steps > 0 {
            report.tile_values = match form {
                Form::Dense => TileValues::Dense,
                Form::Packed => TileValues::Packed,
            };
            report.tile_values_reason = why;
        }
        demand.packed = form == Form::Packed;
        let dealing = match self.window_each {
            true => Dealing::WindowEach,
            false => Dealing::Evenly(self.worker_count(context, demand, slicing)?),
        };
        Ok(StreamChoice { form, dealing, widest_slice: demand.widest_slice })
    }

    /// Notes what a stream of so many column vectors and entries is.
    pub(super) fn note_stream(
        &self,
        stream: &DealtWindows,
        (column_vectors, entries): (u64, u64),
        report: &mut SpmmReport,
    ) {
        (report.windows, report.tiles) = (wide(stream.windows()), wide(stream.tiles()));
        report.steps = wide(stream.steps());
        report.column_vectors = column_vectors;
        report.gather_places = report.steps * wide(STEP_COLUMNS);
        report.tile_share = real(entries) / real(wide(self.a.nnz()).max(1));
        report.workers = wide(stream.dealt().workers());
        report.split = wide(stream.dealt().split_windows.len());
    }

    /// What an aligned product of the plan's width asks of an entry.
    pub(super) fn demand(&self) -> Demand {
        let n = narrow(self.width.min(index(MAX_INDEX)));
        Demand {
            dtype: self.precision.dtype(),
            n,
            vectors: true,
            mean_len: 0.0,
            widest_slice: u32::MAX,
            packed: false,
        }
    }

    /// How the width is divided so that the rows of `B` in use stay in the L2 cache.
    ///
    /// What is in use are the columns of the rows that are worked on at the same time. If their whole rows of `B`
    /// fit, all slices of the width are worked on together; otherwise one after the other; and if not even a wide
    /// slice of them fits, narrow ones are taken.
    fn slicing(&self, context: &Context<'_>, cache_quarters: u64) -> Slicing {
        let Some(l2) = context.device.l2_bytes() else { return Slicing::ALL };
        let bytes = u64::from(self.precision.bytes());
        let rows_at_once = context.device.multiprocessors() as usize * WARPS_AT_ONCE * WINDOW_ROWS;
        let in_use = || wide(columns_in_use(self.a, context.order, rows_at_once));
        let columns = *context.columns_in_use.get_or_init(in_use);
        let room = l2 / 4 * cache_quarters;
        if columns.saturating_mul(wide(self.width)).saturating_mul(bytes) <= room {
            return Slicing::ALL;
        }
        let fitting = room / (columns * bytes).max(1);
        Slicing { widest: narrow(index(fitting.clamp(1, u64::from(u32::MAX)))), together: false }
    }

    /// As many workers as the device holds warps of the kernel at a time; divided by the slices of the width if
    /// these are worked on together.
    fn worker_count(
        &self,
        context: &Context<'_>,
        demand: Demand,
        slicing: Slicing,
    ) -> Result<u32, SpmmError> {
        if let Some(workers) = self.workers {
            return Ok(workers);
        }
        let Some(entry) = select::tile_stream(demand) else { return Ok(1) };
        let division = division(entry);
        let slices = if slicing.together { demand.n.div_ceil(division.slice).max(1) } else { 1 };
        let machine = context.machine;
        let blocks = machine.multiprocessors() * machine.resident_blocks(entry)?;
        Ok((blocks * division.units_per_block / slices).max(1))
    }
}

/// How windows become a stream of tiles.
pub(super) struct StreamChoice {
    /// How records hold values.
    pub(super) form: Form,
    pub(super) dealing: Dealing,
    /// Widest slice of `B`, in columns.
    pub(super) widest_slice: u32,
}

/// Windows of tiles before they are dealt out.
pub(super) struct Stream<V> {
    pub(super) parts: RsTileParts<V>,
    /// CSR entry of each value of the tiles.
    pub(super) sources: Vec<u32>,
    /// Rows without entries, which make windows too.
    pub(super) empty: Vec<u32>,
}

/// What a layout is made for.
pub(super) struct Context<'a> {
    pub(super) device: &'a Device,
    pub(super) machine: &'a dyn Machine,
    pub(super) order: Option<&'a Permutation>,
    /// Columns of the rows that are worked on at the same time, once they are counted.
    pub(super) columns_in_use: OnceCell<u64>,
}

/// Warps of a tile stream that a multiprocessor works on at the same time.
const WARPS_AT_ONCE: usize = 16;

/// How the width is divided.
#[derive(Debug, Clone, Copy)]
struct Slicing {
    /// Widest slice, in columns.
    widest: u32,
    /// Whether all slices are worked on at the same time.
    together: bool,
}

impl Slicing {
    const ALL: Self = Self { widest: u32::MAX, together: true };
}

/// Distinct columns of `rows` successive rows in the middle of the order.
fn columns_in_use<V: Value>(a: &Csr<V>, order: Option<&Permutation>, rows: usize) -> usize {
    let first = a.rows().saturating_sub(rows) / 2;
    let seen: Vec<AtomicBool> = (0..a.cols()).into_par_iter().map(|_| AtomicBool::new(false)).collect();
    (first..a.rows().min(first + rows)).into_par_iter().with_min_len(256).for_each(|position| {
        let row = order.map_or(position, |order| order.to_old(position));
        for &col in a.row(row).0 {
            seen[col as usize].store(true, Ordering::Relaxed);
        }
    });
    seen.into_par_iter().filter(|seen| seen.load(Ordering::Relaxed)).count()
}

/// A plan's arrays while they are on the host.
#[derive(Default)]
pub(super) struct HostParts<'a> {
    pub(super) row_split: Option<RowSplitHost<'a>>,
    pub(super) short_rows: Option<ShortRowsHost>,
    pub(super) groups: Option<GroupsHost>,
    pub(super) matricized: Option<MatricizedHost<'a>>,
    pub(super) tiles: Option<TilesHost>,
    /// Rows of cut windows, and cut rows, whose partial sums are added.
    pub(super) split_windows: Vec<[u32; 4]>,
    pub(super) split_rows: Vec<[u32; 4]>,
    /// Rows of the workspace, which cut windows have before cut rows.
    pub(super) slot_rows: u64,
    /// Widest slice of `B` for tiles, in columns.
    pub(super) widest_slice: u32,
    /// How the launches of the two parts of a hybrid follow each other.
    pub(super) scheduling: Option<Scheduling>,
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
        if let Some(part) = &self.groups {
            part.sizes(&mut sizes);
        }
        if let Some(part) = &self.matricized {
            part.sizes(&mut sizes);
        }
        if let Some(part) = &self.tiles {
            part.sizes(&mut sizes);
        }
        push(&mut sizes, "split_rows", 16 * wide(self.split_windows.len() + self.split_rows.len()));
        sizes
    }

    /// What decides the size of the index arrays for values from the device, which come in another order than that of
    /// the entries, or not.
    pub(super) fn place_counts(&self, nnz: usize, value_bytes: u32, reordered: bool) -> PlaceCounts {
        let on_host = |part: &RowSplitHost<'_>| match &part.entries {
            SegmentEntries::OnHost(columns, sources) if sources.is_some() || reordered => columns.len(),
            SegmentEntries::OnHost(..) | SegmentEntries::OnDevice(_) => 0,
        };
        let on_device = self.tiles.as_ref().is_some_and(TilesHost::is_on_device);
        PlaceCounts {
            nnz,
            row_split: self.row_split.as_ref().map_or(0, on_host),
            short_rows: self.short_rows.as_ref().map_or(0, |part| part.sources.len()),
            groups: if reordered && (self.groups.is_some() || self.matricized.is_some()) { nnz } else { 0 },
            tiles: self.tiles.is_some() && !on_device,
            on_device: on_device.then_some((value_bytes, reordered)),
        }
    }

    /// What stays on the host for new values.
    pub(super) fn host_bytes(&self) -> u64 {
        let short_rows = self.short_rows.as_ref().map_or(0, |part| 4 * wide(part.sources.len()));
        short_rows
            + self.row_split.as_ref().map_or(0, |part| part.entries.host_bytes())
            + self.tiles.as_ref().map_or(0, TilesHost::host_bytes)
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
    fn columns_in_use_are_those_of_the_middle_rows() {
        let a =
            Csr::try_from_parts(4, 9, vec![0, 2, 3, 5, 6], vec![0, 1, 4, 4, 5, 8], vec![1.0f32; 6]).unwrap();
        assert_eq!(columns_in_use(&a, None, 2), 2, "rows 1 and 2: columns 4 and 5");
        assert_eq!(columns_in_use(&a, None, 100), 5);
        let order = Permutation::try_from_new_to_old(vec![1, 0, 3, 2]).unwrap();
        assert_eq!(columns_in_use(&a, Some(&order), 2), 3, "rows 0 and 3");
        assert_eq!(columns_in_use(&Csr::<f32>::zeros(0, 3).unwrap(), None, 5), 0);
    }

    #[test]
    fn a_larger_matrix_has_longer_pieces() {
        let nnz = 1000 * u64::from(PIECES_PER_MULTIPROCESSOR) * 4;
        assert_eq!(cut_lengths(&[0, nnz], 4), (1500, 1000));
        assert_eq!(cut_lengths(&[0], 4).1, SHORTEST_PIECE);
    }
}

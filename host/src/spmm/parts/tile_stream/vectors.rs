//! Entries divided between tiles and segments by column vectors: a row may have entries in both.
//!
//! The launches of such a plan, in this order: the tile stream writes the rows that have entries in tiles, and those
//! without any; what was cut of its windows is added up; the segments *add* to these rows, and write those that are
//! theirs alone; what was cut of these is added up likewise. So every row is written once with the caller's `β`, and
//! no sum depends on which path is quicker: Libra adds with atomics instead.
//!
//! In two streams the segments do not wait for the tiles: for rows that have entries in tiles they write to the
//! workspace, and all of that is added in the end.

use std::borrow::Cow;

use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{Csr, RsTile, Value};
use windrow_preprocess::balance::RowSegments;
use windrow_preprocess::partition::{VectorSplit, VectorThreshold, split_vectors};

use super::super::row_split::{self, SegmentEntries, Segments};
use super::on_host::{DealtStream, Windows, deal_out};
use super::stream::{ScalarLaunch, scheduling};
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, real, wide};
use crate::plan::{Scheduling, StageClock};
use crate::spmm::layout::Context;
use crate::spmm::part::{LaidOut, Turn};
use crate::spmm::tiles::empty_rows;

/// Full vectors as tiles, the entries of the others as segments of rows: long rows of them are cut as in a
/// row-split plan (Libra's long tiles of `C_s = 32`), the others are one segment each, short or not.
pub(super) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    threshold: VectorThreshold,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, SpmmError> {
    let split = split_vectors(context.a, context.order, threshold)?;
    clock.end("partition");
    if split.window_rows.is_empty() {
        return Ok(without_tiles(context, threshold, clock)?);
    }
    let rows_in_both = wide(split.rows_in_both());
    let VectorSplit { tiles, residual, window_rows, density, .. } = split;
    let entry = |sources: &[u64], at: u64| narrow(index(sources[index(at)]));
    let rs_tile = RsTile::from_windows(&tiles.matrix, window_rows)?;
    let sources = rs_tile.entry_sources(&tiles.matrix)?;
    let sources = sources.tile().par_iter().map(|&at| entry(&tiles.sources, at));
    let sources = try_par_collect(sources, "sources of tiles")?;
    clock.end("tiles");
    let windows = Windows { parts: rs_tile.into_parts(), sources, empty: empty_rows(context.a)? };
    let mut stream = deal_out(context, windows, clock)?;
    stream.facts.rows_in_both = rows_in_both;
    if residual.matrix.nnz() == 0 {
        return Ok(stream.into_laid_out());
    }
    stream.facts.residual_rows = density.residual_rows;
    let (row_offsets, columns, _) = residual.matrix.into_parts();
    let cut = row_split::cut_rows(context, &row_offsets)?;
    let sources = residual.sources.par_iter().map(|&entry| narrow(index(entry)));
    let sources = try_par_collect(sources, "sources of segments")?;
    let entries = SegmentEntries::OnHost(Cow::Owned(columns), Some(sources));
    let in_tiles = |row: u32| tiles.matrix.row_len(row as usize) > 0;
    let laid = with_rest(context, stream, cut, entries, in_tiles)?;
    clock.end("balance");
    Ok(laid)
}

/// All entries as segments, since no vector is full enough.
pub(super) fn without_tiles<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    threshold: VectorThreshold,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, DeviceError> {
    let mut laid = row_split::lay_out(context)?;
    laid.facts.instead = Some(format!("all entries on CUDA cores: no column vector is {threshold} full"));
    clock.end("balance");
    Ok(laid)
}

/// A stream of tiles, and the segments of the entries that are not in it.
pub(super) fn with_rest<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    stream: DealtStream,
    mut cut: RowSegments,
    entries: SegmentEntries<'a>,
    in_tiles: impl Fn(u32) -> bool,
) -> Result<LaidOut<'a>, SpmmError> {
    cut.skip_empty();
    let scalar_entries = wide(entries.len());
    let units = wide(cut.segments.len());
    let mean_len = real(scalar_entries) / real(units.max(1));
    let scheduling = match (&stream.layout, row_split::entry_for(context, mean_len)?) {
        (Some(tiles), Some(entry)) => scheduling(context, tiles, &ScalarLaunch { entry, units })?,
        _ => None,
    };
    let turn = match scheduling.as_ref().is_some_and(Scheduling::is_beside) {
        // Their slots come behind those of the tiles, which are written at the same time.
        true => {
            cut.sum_apart(narrow(index(stream.cut.slot_rows)), in_tiles)?;
            Turn::Beside
        }
        false => {
            cut.add_to_c(in_tiles);
            Turn::Last
        }
    };
    let Segments { layout, cut_rows, slots, count } = row_split::segments(context, cut, entries)?;
    let mut laid = stream.into_laid_out();
    laid.add(turn, layout);
    laid.cut.slot_rows = laid.cut.slot_rows.max(slots);
    let facts = &mut laid.facts;
    (facts.scalar_rows, facts.scalar_entries) = (facts.residual_rows, scalar_entries);
    (facts.segments, facts.split_rows) = (count, wide(cut_rows.len()));
    facts.split += facts.split_rows;
    facts.scheduling = scheduling;
    laid.cut.rows = cut_rows;
    Ok(laid)
}

//! Tiles, and what is beside them, of a matrix that is on the device.

use windrow_preprocess::partition::{PartitionRule, VectorThreshold};

use super::super::row_split::{self, count_rest, lay_out_rest};
use super::super::short_rows::{self, ShortRowsLayout};
use super::choose::{self, StreamWork};
use super::on_gpu::{self, TILES_ENTRY_BYTES, VECTORS_ENTRY_BYTES, deal_out, window_counts};
use super::on_host::DealtStream;
use super::stream::{Held, ScalarLaunch, facts_of, scheduling};
use crate::csr::Received;
use crate::error::SpmmError;
use crate::num::{index, narrow, real, wide};
use crate::plan::{Scheduling, StageClock, short_row_groups};
use crate::spmm::layout::Context;
use crate::spmm::part::{CutRows, LaidOut, LayoutFacts, Turn};
use crate::spmm::preprocess::{
    Condensed, DividedRows, ListedRows, Rest, TileRows, WindowCounts, divides_rows,
};
use crate::spmm::tiles::{DealtWindows, WINDOW_ROWS};

/// What kernels make of a matrix.
pub(in crate::spmm) enum ReceivedTiles {
    LaidOut(Box<LaidOut<'static>>),
    /// No column vector is so full: all entries go to segments of rows.
    WithoutTiles(String),
    /// There are more steps than a plan may have.
    TooLarge,
}

impl From<Option<LaidOut<'static>>> for ReceivedTiles {
    fn from(laid: Option<LaidOut<'static>>) -> Self {
        laid.map_or(Self::TooLarge, |laid| Self::LaidOut(Box::new(laid)))
    }
}

/// Rows or entries of a matrix with entries in tiles, and the others on CUDA cores, as a rule says.
pub(in crate::spmm) fn lay_out_received(
    context: &Context<'_, Received>,
    rule: PartitionRule,
    clock: &mut StageClock,
) -> Result<ReceivedTiles, SpmmError> {
    match rule {
        PartitionRule::ColumnVectors { threshold } => distribute(context, threshold, clock),
        PartitionRule::AllTile => Ok(on_gpu::condense(context, clock)?.into()),
        rule => Ok(divide(context, rule, clock)?.into()),
    }
}

/// Whether kernels divide a matrix by a rule.
pub(in crate::spmm) fn kernels_divide(rule: PartitionRule) -> bool {
    matches!(rule, PartitionRule::ColumnVectors { .. }) || divides_rows(rule)
}

/// Whole rows in tiles or beside them, as the host divides them.
fn divide(
    context: &Context<'_, Received>,
    rule: PartitionRule,
    clock: &mut StageClock,
) -> Result<Option<LaidOut<'static>>, SpmmError> {
    let entry = short_rows::entry_for(context);
    let rows_per_block = entry.map_or(1, short_row_groups);
    let divided = DividedRows::new(context.device, context.a, rule, rows_per_block)?;
    clock.end("partition");
    let Some(DividedRows { short, tiles }) = divided else { return Ok(None) };
    let stream = match &tiles {
        Some(rows) => {
            let condensed = condense_rows(context, rows)?;
            clock.end("tiles");
            let Some(stream) = deal_out(context, condensed, clock)? else { return Ok(None) };
            stream
        }
        None => no_stream(context)?,
    };
    let Some(short) = short else { return Ok(Some(stream.into_laid_out())) };
    let empty = if tiles.is_none() { u64::from(context.a.record.empty_rows) } else { 0 };
    let scalar_rows = wide(short.rows.len()) - empty;
    let scalar_entries = wide(short.entries.len());
    let short = ShortRowsLayout::on_device(context, short);
    let scheduling = match (&stream.layout, entry) {
        (Some(tiles), Some(entry)) => {
            scheduling(context, tiles, &ScalarLaunch { entry, units: short.blocks() })?
        }
        _ => None,
    };
    let beside = scheduling.as_ref().is_some_and(Scheduling::is_beside);
    let mut laid = stream.into_laid_out();
    let residual_rows = scalar_rows;
    laid.facts = LayoutFacts { residual_rows, scalar_rows, scalar_entries, scheduling, ..laid.facts };
    laid.add(if beside { Turn::Beside } else { Turn::First }, short);
    Ok(Some(laid))
}

/// The windows of some rows, and those of the rows without entries.
fn condense_rows(context: &Context<'_, Received>, rows: &TileRows) -> Result<Condensed, SpmmError> {
    let empty = index(context.empty_rows).div_ceil(WINDOW_ROWS);
    let counts = WindowCounts { full: rows.list.rows.div_ceil(WINDOW_ROWS), empty, all_full: false };
    let listed =
        ListedRows { list: rows.list, entries: rows.entries, counts, entry_bytes: TILES_ENTRY_BYTES };
    Ok(Condensed::of_list(context.device, context.a, listed)?.counted()?)
}

/// No tiles: what the report has of a stream without windows.
fn no_stream(context: &Context<'_, Received>) -> Result<DealtStream, SpmmError> {
    let choice = choose::choose(context, StreamWork { windows: 0, steps: 0, entries: 0 })?;
    let stream = DealtWindows::new(&[], 0, choice.dealing)?;
    let facts = facts_of(context, &stream, Held { column_vectors: 0, entries: 0 }, choice);
    Ok(DealtStream { layout: None, cut: CutRows::default(), facts })
}

/// Full column vectors in tiles, the entries of the others as segments of rows, as the host divides them.
fn distribute(
    context: &Context<'_, Received>,
    threshold: VectorThreshold,
    clock: &mut StageClock,
) -> Result<ReceivedTiles, SpmmError> {
    let a = context.a;
    let with_entries = WindowCounts { empty: 0, ..window_counts(context) };
    let condensed = Condensed::new(context.device, a, None, with_entries, VECTORS_ENTRY_BYTES)?.read()?;
    clock.end("condense");
    let divided = condensed.distribute(a.rows, threshold, index(context.empty_rows), true)?;
    clock.end("distribute");
    let Some((condensed, rest)) = divided else {
        return Ok(ReceivedTiles::WithoutTiles(format!("no column vector is {threshold} full")));
    };
    let Some(stream) = deal_out(context, condensed, clock)? else { return Ok(ReceivedTiles::TooLarge) };
    if rest.entries.len() == 0 {
        return Ok(Some(stream.into_laid_out()).into());
    }
    let laid = with_rest(context, stream, rest)?;
    clock.end("balance");
    Ok(Some(laid).into())
}

/// A stream of tiles, and the segments of the entries that are not in it.
fn with_rest(
    context: &Context<'_, Received>,
    mut stream: DealtStream,
    rest: Rest,
) -> Result<LaidOut<'static>, SpmmError> {
    let counted = count_rest(context, &rest)?;
    let (units, totals) = (u64::from(counted.totals.segments), counted.totals);
    let scalar_entries = wide(rest.entries.len());
    let mean_len = real(scalar_entries) / real(units.max(1));
    let scheduling = match (&stream.layout, row_split::entry_for(context, mean_len)?) {
        (Some(tiles), Some(entry)) => scheduling(context, tiles, &ScalarLaunch { entry, units })?,
        _ => None,
    };
    let beside = scheduling.as_ref().is_some_and(Scheduling::is_beside);
    // Beside the tiles, their slots come behind those of the tiles, which are written at the same time.
    let apart = beside.then(|| narrow(index(stream.cut.slot_rows)));
    let cut = counted.cut(&stream.cut.windows, apart)?;
    let layout = lay_out_rest(context, cut.segments, rest.entries)?;
    let facts = &mut stream.facts;
    (facts.residual_rows, facts.rows_in_both) = (u64::from(totals.rows), u64::from(totals.in_both));
    (facts.scalar_rows, facts.scalar_entries) = (facts.residual_rows, scalar_entries);
    (facts.segments, facts.split_rows) = (units, cut.listed);
    facts.split += cut.listed;
    facts.scheduling = scheduling;
    let mut laid = stream.into_laid_out();
    laid.add(if beside { Turn::Beside } else { Turn::Last }, layout);
    laid.cut.slot_rows = laid.cut.slot_rows.max(cut.slots);
    laid.cut.on_device = cut.list;
    Ok(laid)
}

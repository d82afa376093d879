//! Tiles laid out on the host: windows of an RS-Tile, dealt out.

use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{Csr, RsTile, RsTileParts, Value};
use windrow_preprocess::partition::{PartitionRule, assign, assign_in_order};

use super::super::short_rows::{self, ShortRowsLayout};
use super::choose::{self, StreamWork};
use super::stream::{Held, Made, ScalarLaunch, TilesLayout, facts_of, scheduling};
use crate::error::SpmmError;
use crate::num::{index, narrow, wide};
use crate::options::Determinism;
use crate::plan::{Scheduling, StageClock};
use crate::spmm::layout::Context;
use crate::spmm::part::{CutRows, LaidOut, LayoutFacts, Turn};
use crate::spmm::sums::wide_first;
use crate::spmm::tiles::{TilePattern, WINDOW_ROWS, empty_rows, steps_of};

/// Windows of tiles before they are dealt out.
pub(super) struct Windows<V> {
    pub(super) parts: RsTileParts<V>,
    /// CSR entry of each value of the tiles.
    pub(super) sources: Vec<u32>,
    /// Rows without entries, which make windows too.
    pub(super) empty: Vec<u32>,
}

/// A stream that was dealt out, before it is a part of a plan.
pub(super) struct DealtStream {
    /// None if there are no rows to write.
    pub(super) layout: Option<TilesLayout>,
    pub(super) cut: CutRows,
    pub(super) facts: LayoutFacts,
}

impl DealtStream {
    /// Alone, or beside a part that is added to it.
    pub(super) fn into_laid_out<'a>(self) -> LaidOut<'a> {
        let Self { layout, cut, facts } = self;
        let mut laid = LaidOut { cut, facts, ..LaidOut::default() };
        if let Some(layout) = layout {
            laid.parts.push((Turn::Main, Box::new(layout)));
        }
        laid
    }
}

/// Whole rows in tiles or in the residual, as the rule says.
pub(super) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    rule: PartitionRule,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, SpmmError> {
    let a = context.a;
    let assignment = match context.order {
        Some(order) => assign_in_order(a, order, rule)?,
        None => assign(a, rule)?,
    };
    clock.end("partition");
    let rs_tile = match context.order {
        Some(order) => RsTile::from_csr_in_order(a, &assignment, order)?,
        None => RsTile::from_csr(a, &assignment)?,
    };
    let sources = rs_tile.entry_sources(a)?;
    clock.end("tiles");

    let mut empty = empty_rows(a)?;
    let residual_rows = wide(rs_tile.residual().rows().len());
    let all_residual = rs_tile.bitmaps().is_empty();
    let short = match all_residual || residual_rows > 0 {
        true => {
            // With tiles, their stream writes the empty rows.
            let empty = if all_residual { std::mem::take(&mut empty) } else { Vec::new() };
            Some(ShortRowsLayout::new(context, empty, rs_tile.residual(), sources.residual())?)
        }
        false => None,
    };
    let scalar_entries = wide(sources.residual().len());
    let sources = sources.tile().par_iter().map(|&entry| narrow(index(entry)));
    let sources = try_par_collect(sources, "sources of tiles")?;
    let windows = Windows { parts: rs_tile.into_parts(), sources, empty };
    let stream = deal_out(context, windows, clock)?;
    let scheduling = match (&stream.layout, &short, short_rows::entry_for(context)) {
        (Some(tiles), Some(short), Some(entry)) => {
            scheduling(context, tiles, &ScalarLaunch { entry, units: short.blocks() })?
        }
        _ => None,
    };
    let beside = scheduling.as_ref().is_some_and(Scheduling::is_beside);
    let mut laid = stream.into_laid_out();
    laid.facts =
        LayoutFacts { residual_rows, scalar_rows: residual_rows, scalar_entries, scheduling, ..laid.facts };
    if let Some(short) = short {
        laid.add(if beside { Turn::Beside } else { Turn::First }, short);
    }
    Ok(laid)
}

/// Windows dealt out to warps.
pub(super) fn deal_out<V: Value>(
    context: &Context<'_, Csr<V>>,
    Windows { mut parts, sources, empty }: Windows<V>,
    clock: &mut StageClock,
) -> Result<DealtStream, SpmmError> {
    let steps = steps_of(&parts.window_tiles, empty.len());
    let windows = wide(parts.window_tiles.len() - 1 + empty.len().div_ceil(WINDOW_ROWS));
    let choice = choose::choose(context, StreamWork { windows, steps, entries: wide(sources.len()) })?;
    let shape = choice.shape;
    let mut pattern = TilePattern::new(&mut parts, sources, &empty, choice.dealing)?;
    if context.options.determinism == Determinism::Fast {
        pattern.share_slots()?;
    }
    let held = Held { column_vectors: pattern.column_vectors(), entries: wide(pattern.entries()) };
    let facts = facts_of(context, pattern.stream(), held, choice);
    let dealt = pattern.stream().dealt();
    let rows = pattern.rows_of_split(&dealt.split_windows)?;
    let cut = CutRows {
        windows: wide_first(dealt.combine_rows(&rows, WINDOW_ROWS)?)?,
        slot_rows: u64::from(dealt.slots) * wide(WINDOW_ROWS),
        ..CutRows::default()
    };
    let dtype = context.options.precision.dtype();
    let layout = (facts.steps > 0).then(|| TilesLayout { made: Made::OnHost(pattern), dtype, shape });
    clock.end("balance");
    Ok(DealtStream { layout, cut, facts })
}

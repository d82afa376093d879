//! Tiles laid out on the GPU: which matrices are, and how what it made becomes a stream.

use rayon::prelude::*;
use windrow_formats::{Csr, Value};
use windrow_preprocess::partition::{PartitionRule, VectorThreshold};

use super::super::row_split::{SegmentEntries, cut_rows};
use super::choose::{self, StreamWork};
use super::on_host::DealtStream;
use super::stream::{Held, Made, TilesLayout, facts_of};
use super::vectors::{with_rest, without_tiles};
use crate::error::SpmmError;
use crate::num::{index, wide};
use crate::options::{Determinism, TileValues};
use crate::plan::StageClock;
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{CutRows, LaidOut};
use crate::spmm::preprocess::{Condensed, MOST_TILE_ITEMS, Place, WindowCounts};
use crate::spmm::sums::wide_first;
use crate::spmm::tiles::WINDOW_ROWS;

/// Steps of a tile stream: sixteen columns each, counted in 32 bits.
pub(in crate::spmm) const MAX_STEPS: u64 = (1 << 28) - 1;
/// Scratch memory for each entry: columns, masks, ranks, values, and a vector for each.
pub(super) const TILES_ENTRY_BYTES: u64 = 24;
/// The same where entries are divided: twice the masks, ranks and vectors, and which entry goes where.
pub(super) const VECTORS_ENTRY_BYTES: u64 = 52;

/// Why tiles are laid out on the host whatever is asked, where kernels know no such layout.
pub(in crate::spmm) fn only_on_host(options: &SpmmOptions) -> Option<&'static str> {
    (options.tile_values == TileValues::Bitmap).then_some("values behind bitmaps are laid out there")
}

/// Where a plan for a GPU whose rows are divided by `rule` is laid out, and why.
pub(super) fn place<A: Matrix>(context: &Context<'_, A>, rule: PartitionRule) -> Place {
    let divided = !matches!(rule, PartitionRule::AllTile | PartitionRule::ColumnVectors { .. });
    let of_rule = divided.then_some("whole rows are divided there");
    Place::of(context, only_on_host(context.options).or(of_rule), MOST_TILE_ITEMS)
}

/// The layout by a rule that the GPU knows. None for more steps than a plan may have.
pub(super) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    rule: PartitionRule,
    clock: &mut StageClock,
) -> Result<Option<LaidOut<'a>>, SpmmError> {
    match rule {
        PartitionRule::ColumnVectors { threshold } => distribute(context, threshold, clock),
        _ => condense(context, clock),
    }
}

/// Windows of the matrix's rows.
pub(super) fn window_counts<A: Matrix>(context: &Context<'_, A>) -> WindowCounts {
    let empty_rows = index(context.empty_rows);
    WindowCounts {
        full: (context.a.rows() - empty_rows).div_ceil(WINDOW_ROWS),
        empty: empty_rows.div_ceil(WINDOW_ROWS),
        all_full: empty_rows == 0,
    }
}

/// All rows in tiles. None for more steps than a plan may have.
pub(super) fn condense<'a, A: Matrix>(
    context: &Context<'_, A>,
    clock: &mut StageClock,
) -> Result<Option<LaidOut<'a>>, SpmmError> {
    let (a, counts) = (context.a, window_counts(context));
    let condensed = Condensed::new(context.device, a, context.order, counts, TILES_ENTRY_BYTES)?.counted()?;
    clock.end("condense");
    Ok(deal_out(context, condensed, clock)?.map(DealtStream::into_laid_out))
}

/// Full column vectors in tiles, the entries of the others as segments of rows, as the host divides them.
fn distribute<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    threshold: VectorThreshold,
    clock: &mut StageClock,
) -> Result<Option<LaidOut<'a>>, SpmmError> {
    let a = context.a;
    let with_entries = WindowCounts { empty: 0, ..window_counts(context) };
    let condensed =
        Condensed::new(context.device, a, context.order, with_entries, VECTORS_ENTRY_BYTES)?.read()?;
    clock.end("condense");
    let divided = condensed.distribute(a.rows(), threshold, index(context.empty_rows), false)?;
    clock.end("distribute");
    let Some((condensed, rest)) = divided else {
        return Ok(Some(without_tiles(context, threshold, clock)?));
    };
    let len = |row: usize| rest.row_offsets[row + 1] - rest.row_offsets[row];
    let in_tiles = |row: usize| wide(a.row_len(row)) > len(row);
    let rows = (0..a.rows()).into_par_iter().filter(|&row| len(row) > 0);
    let Some(mut stream) = deal_out(context, condensed, clock)? else { return Ok(None) };
    stream.facts.rows_in_both = wide(rows.clone().filter(|&row| in_tiles(row)).count());
    if rest.entries.len() == 0 {
        return Ok(Some(stream.into_laid_out()));
    }
    stream.facts.residual_rows = wide(rows.count());
    let cut = cut_rows(context, &rest.row_offsets)?;
    let entries = SegmentEntries::OnDevice(rest.entries);
    let laid = with_rest(context, stream, cut, entries, |row| in_tiles(row as usize))?;
    clock.end("balance");
    Ok(Some(laid))
}

/// Condensed windows dealt out, and their steps. None for more steps than a plan may have.
pub(super) fn deal_out<A: Matrix>(
    context: &Context<'_, A>,
    mut condensed: Condensed,
    clock: &mut StageClock,
) -> Result<Option<DealtStream>, SpmmError> {
    let totals = condensed.totals();
    if totals.steps > MAX_STEPS {
        return Ok(None);
    }
    let entries = wide(condensed.entries());
    let work = StreamWork { windows: wide(totals.windows), steps: totals.steps, entries };
    let choice = choose::choose(context, work)?;
    let shape = choice.shape;
    let mut stream = condensed.dealt(choice.dealing)?;
    if context.options.determinism == Determinism::Fast {
        stream.share_slots()?;
    }
    let held = Held { column_vectors: wide(totals.vectors), entries };
    let facts = facts_of(context, &stream, held, choice);
    let dealt = stream.dealt();
    let rows = condensed.rows_of_split(&dealt.split_windows)?;
    let windows = wide_first(dealt.combine_rows(&rows, WINDOW_ROWS)?)?;
    let slot_rows = u64::from(dealt.slots) * wide(WINDOW_ROWS);
    clock.end("balance");

    let dtype = context.options.precision.dtype();
    let steps = condensed.into_steps(&stream, shape.form, dtype.bytes())?;
    clock.end("steps");
    let layout = Some(TilesLayout { made: Made::OnDevice(Box::new(steps), stream), dtype, shape });
    Ok(Some(DealtStream { layout, cut: CutRows { windows, slot_rows, ..CutRows::default() }, facts }))
}

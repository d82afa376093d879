//! Entries divided between tiles and segments by column vectors: a row may have entries in both.
//!
//! The launches of such a plan, in this order: the tile stream writes the rows that have entries in tiles, and those
//! without any; what was cut of its windows is added up; the segments *add* to these rows, and write those that are
//! theirs alone; what was cut of these is added up likewise. So every row is written once with the caller's `β`, and
//! no sum depends on which path is quicker: Libra adds with atomics instead.
//!
//! In two streams the segments do not wait for the tiles: for rows that have entries in tiles they write to the workspace,
//! and all of that is added in the end.

use std::borrow::Cow;

use rayon::prelude::*;
use windrow_formats::{RsTile, Value};
use windrow_preprocess::balance::RowSegments;
use windrow_preprocess::partition::{VectorSplit, VectorThreshold, split_vectors};

use super::build::Draft;
use super::builder::SpmmBuilder;
use super::layout::{Context, HostParts, Stream};
use super::parts::SegmentEntries;
use super::report::SpmmReport;
use super::select::{self, Demand};
use super::tiles::empty_rows;
use crate::error::SpmmError;
use crate::num::{index, narrow, real, wide};
use crate::schedule::Scheduling;

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Full vectors as tiles, the entries of the others as segments of rows: long rows of them are cut as in a
    /// row-split plan (Libra's long tiles of `C_s = 32`), the others are one segment each, short or not.
    pub(super) fn lay_out_vectors(
        &self,
        context: &Context<'_>,
        threshold: VectorThreshold,
        draft: &mut Draft,
    ) -> Result<HostParts<'a>, SpmmError> {
        let split = split_vectors(self.a, context.order, threshold)?;
        draft.clock.end("partition");
        if split.window_rows.is_empty() {
            draft.report.reason = no_full_vector(threshold);
            return Ok(self.lay_out_rows(context, draft));
        }
        draft.report.rows_in_both = wide(split.rows_in_both());
        let VectorSplit { tiles, residual, window_rows, density, .. } = split;
        let entry = |sources: &[u64], at: u64| narrow(index(sources[index(at)]));
        let rs_tile = RsTile::from_windows(&tiles.matrix, window_rows)?;
        let sources = rs_tile.entry_sources(&tiles.matrix)?;
        let sources = sources.tile().par_iter().map(|&at| entry(&tiles.sources, at)).collect();
        draft.clock.end("tiles");
        let stream = Stream { parts: rs_tile.into_parts(), sources, empty: empty_rows(self.a) };
        let mut host = self.lay_out_stream(context, stream, draft)?;
        if residual.matrix.nnz() > 0 {
            draft.report.residual_rows = density.residual_rows;
            let (row_offsets, columns, _) = residual.matrix.into_parts();
            let cut = self.cut_rows(context, &row_offsets);
            let sources = residual.sources.par_iter().map(|&entry| narrow(index(entry))).collect();
            let entries = SegmentEntries::OnHost(Cow::Owned(columns), Some(sources));
            let in_tiles = |row: u32| tiles.matrix.row_len(row as usize) > 0;
            self.add_rest(context, (cut, entries), in_tiles, (&mut host, &mut draft.report))?;
            draft.clock.end("balance");
        }
        Ok(host)
    }

    /// Adds the segments of entries that are not in tiles to a plan that has these.
    pub(super) fn add_rest(
        &self,
        context: &Context<'_>,
        (mut cut, entries): (RowSegments, SegmentEntries<'a>),
        in_tiles: impl Fn(u32) -> bool,
        (host, report): (&mut HostParts<'a>, &mut SpmmReport),
    ) -> Result<(), SpmmError> {
        cut.skip_empty();
        let mean_len = real(wide(entries.len())) / real(wide(cut.segments.len()).max(1));
        let demand = Demand { mean_len, widest_slice: self.widest_of_rows(context), ..self.demand() };
        if let Some(entry) = select::row_split(demand) {
            host.scheduling = self.scheduling(context, host, (entry, wide(cut.segments.len())))?;
        }
        match host.scheduling.as_ref().is_some_and(Scheduling::is_beside) {
            // Their slots come behind those of the tiles, which are written at the same time.
            true => cut.sum_apart(narrow(index(host.slot_rows)), in_tiles),
            false => cut.add_to_c(in_tiles),
        }
        self.add_segments(context, (cut, entries), host, report);
        Ok(())
    }
}

/// Why a plan by column vectors has no tiles.
pub(super) fn no_full_vector(threshold: VectorThreshold) -> String {
    format!("all entries on CUDA cores: no column vector is {threshold} full")
}

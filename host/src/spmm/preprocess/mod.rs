//! Where a matrix is laid out, and its layout on a GPU, after Libra (section 4.5).
//!
//! The host uploads the CSR arrays as they are and launches kernels that put every entry in its place; what it gets back
//! is the number of columns of each window, from which it chooses the form of the values and deals the windows out, as
//! it does with windows of its own. The kernels' side is [`windrow_kernels::preprocess`].

mod condense;
mod distribute;
mod scratch;
mod steps;

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_preprocess::partition::{PartitionRule, VectorThreshold};

use self::condense::{Condensed, WindowCounts};
pub(super) use self::distribute::{RestEntries, RestSources};
pub(super) use self::steps::{DeviceSteps, ValueSources};
use super::build::{Draft, MAX_STEPS};
use super::builder::SpmmBuilder;
use super::layout::{Context, HostParts};
use super::parts::{SegmentEntries, TilesHost};
use super::sums::wide_first;
use super::tiles::{DealtWindows, TILE_COLUMNS, WINDOW_ROWS, steps_of};
use super::vectors::no_full_vector;
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::options::{Determinism, Preprocessing};

/// Entries from which on the GPU lays a matrix out unless told otherwise. For fewer, its part is some thirty launches and
/// a dozen allocations, whatever the matrix; on an H200 it took half as long as 16 threads for 17,000 entries already.
const LEAST_ENTRIES: usize = 1 << 14;
/// Scratch memory for each entry: columns, masks, ranks, values, and a vector for each.
const TILES_ENTRY_BYTES: u64 = 24;
/// The same where entries are divided: twice the masks, ranks and vectors, and which entry goes where.
const VECTORS_ENTRY_BYTES: u64 = 52;

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// The layout of all rows in tiles on the GPU, where that is to be: otherwise the report says why not.
    pub(super) fn lay_out_on_device(
        &self,
        context: &Context<'_>,
        rule: PartitionRule,
        draft: &mut Draft,
    ) -> Result<Option<HostParts<'a>>, SpmmError> {
        let (place, why) = self.place(rule);
        draft.report.preprocessing_reason = why;
        if place == Preprocessing::Cpu {
            return Ok(None);
        }
        let laid_out = match rule {
            PartitionRule::ColumnVectors { threshold } => self.distribute(context, threshold, draft),
            _ => self.condense(context, draft),
        };
        match laid_out {
            Ok(Some(host)) => {
                draft.report.preprocessing = Preprocessing::Gpu;
                Ok(Some(host))
            }
            Ok(None) => Ok(None), // too large, which the CPU says better
            Err(SpmmError::Device(error @ DeviceError::OutOfMemory { .. }))
                if self.preprocessing == Preprocessing::Auto =>
            {
                draft.report.preprocessing_reason = format!("the GPU has no room for it: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Where a plan for a GPU whose rows are divided by `rule` is laid out, and why.
    fn place(&self, rule: PartitionRule) -> (Preprocessing, String) {
        let (rows, nnz) = (self.a.rows(), self.a.nnz());
        let cpu = |why: String| (Preprocessing::Cpu, why);
        if self.preprocessing == Preprocessing::Cpu {
            return cpu("as asked".to_owned());
        }
        if !matches!(rule, PartitionRule::AllTile | PartitionRule::ColumnVectors { .. }) {
            return cpu("whole rows are divided there".to_owned());
        }
        if nnz == 0 {
            return cpu("the matrix has no entries".to_owned());
        }
        let limit = index(u64::from(MOST_ITEMS)) - WINDOW_ROWS * 4;
        if nnz > limit || rows > limit {
            return cpu(format!("more than {limit} rows or entries"));
        }
        if self.preprocessing == Preprocessing::Gpu {
            return (Preprocessing::Gpu, "as asked".to_owned());
        }
        if self.memory_limit.is_some() {
            return cpu("the GPU would need memory beyond the limit".to_owned());
        }
        if nnz < LEAST_ENTRIES {
            return cpu(format!("{nnz} entries, fewer than {LEAST_ENTRIES}"));
        }
        (Preprocessing::Gpu, format!("{nnz} entries, no fewer than {LEAST_ENTRIES}"))
    }

    /// Windows of the matrix's rows.
    fn window_counts(&self, empty_rows: usize) -> WindowCounts {
        WindowCounts {
            full: (self.a.rows() - empty_rows).div_ceil(WINDOW_ROWS),
            empty: empty_rows.div_ceil(WINDOW_ROWS),
        }
    }

    /// All rows in tiles. None for more steps than a plan may have.
    fn condense(&self, context: &Context<'_>, draft: &mut Draft) -> Result<Option<HostParts<'a>>, SpmmError> {
        let counts = self.window_counts(index(draft.report.empty_rows));
        let condensed = Condensed::new(context.device, (self.a, context.order), counts, TILES_ENTRY_BYTES)?;
        draft.clock.end("condense");
        self.deal_out(context, condensed, draft)
    }

    /// Full column vectors in tiles, the entries of the others as segments of rows, as
    /// [`lay_out_vectors`](Self::lay_out_vectors) has them.
    fn distribute(
        &self,
        context: &Context<'_>,
        threshold: VectorThreshold,
        draft: &mut Draft,
    ) -> Result<Option<HostParts<'a>>, SpmmError> {
        let empty_rows = index(draft.report.empty_rows);
        let with_entries = WindowCounts { empty: 0, ..self.window_counts(empty_rows) };
        let condensed =
            Condensed::new(context.device, (self.a, context.order), with_entries, VECTORS_ENTRY_BYTES)?;
        draft.clock.end("condense");
        let divided = condensed.distribute(self.a.rows(), threshold, empty_rows)?;
        draft.clock.end("distribute");
        let Some((condensed, rest)) = divided else {
            draft.report.reason = no_full_vector(threshold);
            return Ok(Some(self.lay_out_rows(context, draft)));
        };
        let len = |row: usize| rest.row_offsets[row + 1] - rest.row_offsets[row];
        let in_tiles = |row: usize| wide(self.a.row_len(row)) > len(row);
        let rows = (0..self.a.rows()).into_par_iter().filter(|&row| len(row) > 0);
        draft.report.rows_in_both = wide(rows.clone().filter(|&row| in_tiles(row)).count());
        let Some(mut host) = self.deal_out(context, condensed, draft)? else { return Ok(None) };
        if rest.entries.len() > 0 {
            draft.report.residual_rows = wide(rows.count());
            let cut = self.cut_rows(context, &rest.row_offsets);
            let entries = SegmentEntries::OnDevice(rest.entries);
            let in_tiles = |row: u32| in_tiles(row as usize);
            self.add_rest(context, (cut, entries), in_tiles, (&mut host, &mut draft.report))?;
            draft.clock.end("balance");
        }
        Ok(Some(host))
    }

    /// Condensed windows dealt out, and their steps. None for more steps than a plan may have.
    fn deal_out(
        &self,
        context: &Context<'_>,
        condensed: Condensed,
        draft: &mut Draft,
    ) -> Result<Option<HostParts<'a>>, SpmmError> {
        let vectors = condensed.window_vectors();
        let mut window_tiles = Vec::with_capacity(vectors.len());
        window_tiles.push(0);
        let mut tiles = 0;
        window_tiles.extend(vectors.windows(2).map(|ends| {
            tiles += (ends[1] - ends[0]).div_ceil(narrow(TILE_COLUMNS));
            tiles
        }));
        let steps = steps_of(&window_tiles, 0);
        if steps > MAX_STEPS {
            return Ok(None);
        }
        let counts = (wide(condensed.windows()), steps, wide(condensed.entries()));
        let choice = self.choose_stream(context, counts, &mut draft.report)?;
        let mut stream = DealtWindows::new(window_tiles, choice.dealing);
        if self.determinism == Determinism::Fast {
            stream.share_slots();
        }
        let held = (wide(condensed.vector_count()), wide(condensed.entries()));
        self.note_stream(&stream, held, &mut draft.report);
        let dealt = stream.dealt();
        let split_windows = match dealt.split_windows.is_empty() {
            true => Vec::new(),
            false => wide_first(dealt.combine_rows(&condensed.window_rows()?, WINDOW_ROWS)),
        };
        let slot_rows = u64::from(dealt.slots) * wide(WINDOW_ROWS);
        draft.clock.end("balance");

        let dtype = self.precision.dtype();
        let steps = condensed.into_steps(&stream, choice.form, dtype.bytes())?;
        draft.clock.end("steps");
        Ok(Some(HostParts {
            tiles: Some(TilesHost::on_device(steps, stream, (dtype, choice.form))),
            split_windows,
            slot_rows,
            widest_slice: choice.widest_slice,
            ..HostParts::default()
        }))
    }
}

//! The columns of panels in spans, and which rows have them.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::PANEL_ROWS;
use crate::kernel::Kernel;
use crate::preprocess::{item, part_of};
use crate::variant::Variant;
use crate::{NO_COLUMN, NO_ROW};

/// Threads of a block of all kernels here.
pub(super) const THREADS: u32 = 256;
/// Spans of a block, a warp each.
pub const BLOCK_SPANS: u32 = THREADS / WARP;

/// Arguments of [`CountSpans`] and [`MarkRows`], and the part of those of the other kernels that says what panels have.
///
/// # Obligations
/// - `panel_columns` has an element for each of `panels` and one more, and ascends from 0;
/// - for [`CountSpans`]: `span_counts` has an element for each panel, and nothing else is read;
/// - `panel_spans` has one more, the exclusive sums of these; the last is `spans`;
/// - `row_masks`: those of [`MergeColumns`](crate::preprocess::MergeColumns) of the windows of 8 rows, 8 windows to a
///   panel, `vectors` what [`ListVectors`](crate::preprocess::ListVectors) makes of them;
/// - `sources` and `window_masks`: those of [`MergeColumns`](crate::preprocess::MergeColumns) of these vectors, the
///   windows of a panel taken for rows of a window, `columns` what
///   [`ListVectors`](crate::preprocess::ListVectors) makes of them;
/// - `words` has [`PANEL_ROWS`] elements for each span; nothing overlaps what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SpansParams {
    /// Columns of the panels before each, and of all.
    pub panel_columns: GlobalPtr<u32>,
    /// Spans of each panel.
    pub span_counts: GlobalPtr<u32>,
    /// Spans of the panels before each, and of all.
    pub panel_spans: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// At the first position of a column of a window: bit `r` for row `r` of the window.
    pub row_masks: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each panel; behind the last, the number of positions.
    pub columns: GlobalPtr<[u32; 2]>,
    /// At the first position of a column of a panel: bit `w` for window `w` of the panel.
    pub window_masks: GlobalPtr<u32>,
    /// The vector at each position.
    pub sources: GlobalPtr<u32>,
    /// Of each span and row of its panel: bit `i` if the row has the span's column `i`.
    pub words: GlobalPtr<u32>,
    /// Number of all panels.
    pub panels: u32,
    /// Number of all spans.
    pub spans: u32,
}

/// How many spans the columns of each panel fill, a thread for each.
pub struct CountSpans;

impl Kernel for CountSpans {
    type Params = SpansParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::CountSpans;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SpansParams) {
        let panel = item(s);
        // SAFETY: the obligations of the params; each count is one thread's.
        unsafe {
            if panel < p.panels {
                let first = s.load_readonly(p.panel_columns.at(panel));
                let columns = s.load_readonly(p.panel_columns.at(panel + 1)) - first;
                s.store(p.span_counts.at(panel), columns.div_ceil(WARP));
            }
        }
    }
}

/// For each row of a panel a word a span: which of its columns the row has; a warp a span, a lane a column.
///
/// A lane brings together what the windows of its panel say of its column, one bit for each of 64 rows. Votes over one
/// row after the other turn that over, and leave each lane the words of two rows.
pub struct MarkRows;

impl Kernel for MarkRows {
    type Params = SpansParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::MarkRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = BLOCK_SPANS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SpansParams) {
        let span = s.block_idx() * BLOCK_SPANS + s.warp();
        if span >= p.spans {
            return;
        }
        // SAFETY: the obligations of the params; the whole warp is here, and every word is one lane's.
        unsafe {
            let panel = part_of(s, p.panel_spans, p.panels, span);
            let of_panel = span - s.load_readonly(p.panel_spans.at(panel));
            let [column, first] = column_of(s, p, panel, of_panel * WARP + s.lane());
            let of_column = if column == NO_COLUMN { [0, 0] } else { rows_of(s, p, first) };
            let mut words = [0, 0];
            let mut row = 0;
            while row < WARP {
                let first = s.ballot(of_column[0] >> row & 1 != 0);
                let second = s.ballot(of_column[1] >> row & 1 != 0);
                words = if s.lane() == row { [first, second] } else { words };
                row += 1;
            }
            let to = u64::from(span) * u64::from(PANEL_ROWS) + u64::from(s.lane());
            s.store(p.words.at_wide(to), words[0]);
            s.store(p.words.at_wide(to + u64::from(WARP)), words[1]);
        }
    }
}

/// Which of its panel's rows have a column whose first position this is, 32 to a word.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn rows_of<S: Simt>(s: &S, p: &SpansParams, first: u32) -> [u32; 2] {
    // SAFETY: the vectors of a column follow each other by their windows, one for each bit.
    unsafe {
        let mut windows = s.load_readonly(p.window_masks.at(first));
        let mut position = first;
        let mut rows = [0, 0];
        while windows != 0 {
            let window = windows.trailing_zeros();
            let [_, of_vector] = s.load_readonly(p.vectors.at(s.load_readonly(p.sources.at(position))));
            let of_window = s.load_readonly(p.row_masks.at(of_vector)) << (8 * (window % 4));
            rows = if window < 4 { [rows[0] | of_window, rows[1]] } else { [rows[0], rows[1] | of_window] };
            windows &= windows - 1;
            position += 1;
        }
        rows
    }
}

/// A column of a panel by its number, with the position where it begins; [`NO_COLUMN`] behind the last.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
pub(super) unsafe fn column_of<S: Simt>(s: &S, p: &SpansParams, panel: u32, number: u32) -> [u32; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let at = s.load_readonly(p.panel_columns.at(panel)) + number;
        match at < s.load_readonly(p.panel_columns.at(panel + 1)) {
            true => s.load_readonly(p.columns.at(at)),
            false => [NO_COLUMN, 0],
        }
    }
}

/// The word of a row of a panel in a span; none of a slot without a row.
///
/// # Safety
/// The span and the row are among those of the params, and the words were written.
#[inline(always)]
pub(super) unsafe fn word_of<S: Simt>(s: &S, p: &SpansParams, span: u32, row: u32) -> u32 {
    if row == NO_ROW {
        return 0;
    }
    let at = u64::from(span) * u64::from(PANEL_ROWS) + u64::from(row % PANEL_ROWS);
    // SAFETY: the caller's promise.
    unsafe { s.load_readonly(p.words.at_wide(at)) }
}

/// Where a row of a matrix comes to this column or one behind it.
///
/// # Safety
/// The matrix has the row; its columns ascend.
#[inline(always)]
pub(super) unsafe fn entry_from<S: Simt>(
    s: &S,
    (row_offsets, col_indices): (GlobalPtr<u32>, GlobalPtr<u32>),
    row: u32,
    column: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut low = s.load_readonly(row_offsets.at(row));
        let mut high = s.load_readonly(row_offsets.at(row + 1));
        while low < high {
            let middle = low + (high - low) / 2;
            match s.load_readonly(col_indices.at(middle)) < column {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// The sum of the lanes up to the own.
///
/// # Safety
/// The full warp.
#[inline(always)]
pub(super) unsafe fn sum_upto<S: Simt>(s: &S, number: u32) -> u32 {
    let (mut sum, mut step) = (number, 1);
    while step < WARP {
        // SAFETY: the caller's promise.
        let before = unsafe { s.shuffle_up(sum, step) };
        sum += if s.lane() >= step { before } else { 0 };
        step *= 2;
    }
    sum
}

/// The sum of what lanes have, and the greatest.
///
/// # Safety
/// The full warp.
#[inline(always)]
pub(super) unsafe fn sum_and_greatest<S: Simt>(s: &S, mut sum: u32, mut greatest: u32) -> [u32; 2] {
    let mut mask = WARP / 2;
    while mask > 0 {
        // SAFETY: the caller's promise.
        let other = unsafe {
            sum += s.shuffle_xor(sum, mask);
            s.shuffle_xor(greatest, mask)
        };
        greatest = if other > greatest { other } else { greatest };
        mask /= 2;
    }
    [sum, greatest]
}

//! Rows cut into batches of a few entries.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_with_room;

/// Rows as batches: pieces of at most a few successive entries of one row.
///
/// Invariants: `begins` ascend strictly from 0 to the number of entries, and have one element more than `rows`; the
/// batches of a row are consecutive, and rows are in the order in which they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryBatches {
    /// Row of each batch.
    pub rows: Vec<u32>,
    /// First entry of each batch, and the number of entries.
    pub begins: Vec<u32>,
}

/// Cuts rows, given as `(row, entries)`, into the fewest batches of at most `size` entries, full ones first. A `size`
/// of 0 counts as 1. For products in which no entry waits for another, such as SDDMM: nothing is added up afterwards.
///
/// The caller has refused matrices of 2³² entries and more.
///
/// # Errors
/// [`OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::entry_batches;
///
/// let batches = entry_batches([(0, 2), (1, 0), (2, 5)], 4)?;
/// assert_eq!(batches.rows, [0, 2, 2]);
/// assert_eq!(batches.begins, [0, 2, 6, 7]);
/// # Ok::<(), windrow_formats::OutOfMemory>(())
/// ```
pub fn entry_batches<R>(rows: R, size: u32) -> Result<EntryBatches, OutOfMemory>
where
    R: IntoIterator<Item = (u32, u32), IntoIter: Clone>,
{
    let (rows, size) = (rows.into_iter(), size.max(1));
    let count = rows.clone().map(|(_, entries)| entries.div_ceil(size) as usize).sum::<usize>();
    let what = "batches of entries";
    let mut batches =
        EntryBatches { rows: try_with_room(count, what)?, begins: try_with_room(count + 1, what)? };
    batches.begins.push(0);
    let mut end = 0;
    for (row, mut left) in rows {
        while left > 0 {
            let taken = left.min(size);
            left -= taken;
            end += taken;
            batches.rows.push(row);
            batches.begins.push(end);
        }
    }
    Ok(batches)
}

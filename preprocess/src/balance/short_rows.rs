//! Buckets of equally long rows cut into blocks.

use windrow_formats::memory::try_with_room;
use windrow_formats::{Bucket, OutOfMemory};

/// Cuts each bucket into blocks of at most `rows_per_block` rows: `[first_row, row_count, first_entry, len]`.
///
/// Positions `first_row .. first_row + row_count` of the bucket list's rows have `len` entries each, the
/// first of them from `first_entry` on. The blocks cover every position once, in order; all blocks of a
/// bucket but the last are full. Buckets without rows give no block; `rows_per_block = 0` counts as 1.
///
/// # Errors
/// [`OutOfMemory`].
///
/// # Panics
/// If an entry's position exceeds 2³² − 1; the caller has refused matrices of that size.
///
/// # Examples
/// ```
/// use windrow_formats::Bucket;
/// use windrow_preprocess::balance::short_row_blocks;
///
/// let bucket = Bucket { len: 3, first_row: 10, rows: 5, first_entry: 100 };
/// assert_eq!(short_row_blocks(&[bucket], 4)?, [[10, 4, 100, 3], [14, 1, 112, 3]]);
/// # Ok::<(), windrow_formats::OutOfMemory>(())
/// ```
pub fn short_row_blocks(buckets: &[Bucket], rows_per_block: u32) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    let rows_per_block = rows_per_block.max(1);
    let count = buckets.iter().map(|bucket| bucket.rows.div_ceil(rows_per_block) as usize).sum();
    let mut blocks = try_with_room(count, "blocks of short rows")?;
    for bucket in buckets {
        let mut done = 0;
        while done < bucket.rows {
            let rows = rows_per_block.min(bucket.rows - done);
            let first_entry = bucket.first_entry + u64::from(done) * u64::from(bucket.len);
            let first_entry = u32::try_from(first_entry)
                .expect("the caller has refused matrices with 2^32 entries or more");
            blocks.push([bucket.first_row + done, rows, first_entry, bucket.len]);
            done += rows;
        }
    }
    Ok(blocks)
}

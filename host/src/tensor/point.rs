//! Which point of Sgap's space suits a tensor and a width.

use crate::num::{narrow, real, wide};
use crate::parallelism::{AtomicParallelism, IllegalPoint, MinimalData, Share};

/// Most entries of a thread.
const MOST_EACH: u32 = 32;

/// The point for a product of `width` columns with a tensor of `nnz` entries: all lanes of a warp that the width
/// leaves are reduced together, and each has as many entries as leave enough threads, since slices are long and of
/// any length: `threads` that occupy the GPU.
///
/// # Errors
/// None in fact: every such point is legal.
pub(super) fn default_point(
    nnz: usize,
    width: usize,
    threads: f64,
) -> Result<AtomicParallelism, IllegalPoint> {
    let columns = match width {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    };
    let lanes = narrow(width.clamp(1, 32 * columns as usize)).div_ceil(columns).next_power_of_two();
    let fitting = real(wide(nnz)) * f64::from(lanes) / threads;
    let fits = |each: &u32| f64::from(*each) <= fitting;
    let each = std::iter::successors(Some(MOST_EACH), |each| Some(each / 2)).take(6).find(fits).unwrap_or(1);
    AtomicParallelism::new(MinimalData::Nnz(Share::Whole(each)), Share::Whole(columns), 32 / lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_follow_entries_and_width() {
        for (nnz, width, point) in [
            (0, 0, "{<1 nnz, 1 col>, 32}"),
            (1_000_000, 8, "{<2 nnz, 4 col>, 16}"),
            (1_000_000, 64, "{<16 nnz, 4 col>, 2}"),
            (100_000_000, 16, "{<32 nnz, 4 col>, 8}"),
            (30_000, 3, "{<1 nnz, 2 col>, 16}"),
            (30_000_000, 1000, "{<32 nnz, 4 col>, 1}"),
        ] {
            assert_eq!(
                default_point(nnz, width, 750_000.0).unwrap().to_string(),
                point,
                "{nnz} entries, {width} columns"
            );
        }
    }
}

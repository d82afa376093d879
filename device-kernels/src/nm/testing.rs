//! What the tests of several kernels share.

/// A small number of its own for each place: sums of a few thousand products are exact.
pub(super) fn number(row: u32, column: u32, step: u32) -> f32 {
    let bits = row.wrapping_mul(131).wrapping_add(column).wrapping_mul(step);
    f32::from(u16::try_from(bits >> 9 & 7).unwrap()) - 3.0
}

//! Conversions between the index widths of the host and of the device, in one place.

/// `x` as a count of bytes or elements; no platform has a `usize` wider than 64 bits.
pub(crate) const fn wide(x: usize) -> u64 {
    x as u64
}

/// `x` as an index of host memory.
///
/// Every caller passes a number that is bounded by the length of a vector that exists, or a byte count
/// that is about to be allocated: one that does not fit saturates, and the allocation is then refused.
pub(crate) fn index(x: u64) -> usize {
    usize::try_from(x).unwrap_or(usize::MAX)
}

/// `x` as a 32-bit device index.
///
/// Callers have checked the quantity against its limit, so this saturates only on a broken invariant.
pub(crate) fn narrow(x: usize) -> u32 {
    debug_assert!(u32::try_from(x).is_ok(), "{x} was not checked to fit 32 bits");
    u32::try_from(x).unwrap_or(u32::MAX)
}

/// The greatest common divisor, that of 0 and `b` being `b`.
pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `x` for ratios and reports, where the rounding of counts beyond 2⁵³ does not matter.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 may be rounded in a report")]
pub(crate) const fn real(x: u64) -> f64 {
    x as f64
}

//! What stands between the numbers of a plain line.

use super::line::is_blank;

/// The position behind the one blank at `at`.
#[inline]
pub(super) fn blank(text: &[u8], at: usize) -> Option<usize> {
    is_blank(*text.get(at)?).then_some(at + 1)
}

/// The position behind the end of the line at `at`.
#[inline]
pub(super) fn line_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'\n' => Some(at + 1),
        b'\r' if text.get(at + 1) == Some(&b'\n') => Some(at + 2),
        _ => None,
    }
}

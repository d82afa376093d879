//! A run of a plan as the kernel of its product sees it.

use windrow_kernels::output::Output;

use super::staging::Brought;

/// A run as the kernel of the product sees it.
pub(super) struct Launch {
    pub(super) a: Brought,
    /// `C`, or the first of the parts.
    pub(super) output: Output,
    /// Elements from a part to the next.
    pub(super) part_elements: u64,
    /// Into how many parts the stages are divided, as a power of two.
    pub(super) parts_log2: u32,
}

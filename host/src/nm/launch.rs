//! A run of a plan as the kernel of its product sees it.

use windrow_kernels::output::{Output, OutputType};

use super::staging::Brought;

/// A run as the program of the product sees it.
pub(super) struct Launch {
    pub(super) a: Brought,
    /// `C`, or the first of the parts.
    pub(super) output: Output,
    /// Type of the elements that are written there.
    pub(super) element: OutputType,
    /// Elements from a part to the next.
    pub(super) part_elements: u64,
    /// Into how many parts the stages are divided, as a power of two.
    pub(super) parts_log2: u32,
    /// Address and bytes of what a library works with.
    pub(super) scratch: (u64, u64),
}

//! What runs need beside the kernel of the product: activations that are brought, and sums of products that are divided
//! along `k`.

use windrow_kernels::nm::{NmCombine, NmCombineParams, STAGE_TILE};
use windrow_kernels::output::Output;
use windrow_kernels::{Entry, Factor, Variant};
use windrow_simt::GlobalPtr;

use super::model::{Sizes, Sums};
use super::operands::Operands;
use super::staging::{Brought, Staging};
use super::workspace::{Need, Workspace};
use crate::device::{Prepared, Queue};
use crate::error::{DeviceError, PlanError};

/// Vectors of 16 bytes that activations may have, and a row of them: its bytes are counted by 32 bits, too.
const MAX_VECTORS: u64 = u32::MAX as u64;
const MAX_ROW_VECTORS: u64 = MAX_VECTORS / 16;
/// Rows that the pass which brings activations may write: the slow axis of its grid has 65,535 blocks.
const MAX_BROUGHT_ROWS: u64 = 65_535 * STAGE_TILE as u64;

/// Kernels beside those of the product itself, and what memory they may take.
pub(super) struct Shared {
    staging: Staging,
    /// Elements of partial sums that a stream's runs may take, if the plan's memory is limited.
    most_partial: Option<u64>,
    combine: &'static Entry,
}

/// Leading dimension of partial sums.
const fn ld_partial(n: u32) -> u32 {
    n.next_multiple_of(4)
}

fn combine_entry() -> Result<&'static Entry, DeviceError> {
    windrow_kernels::entry(Variant::NmCombine).ok_or(DeviceError::MissingEntry { name: "nm_combine" })
}

impl Shared {
    /// Elements of the sums of a product of these sizes that are not finished.
    pub(super) fn partial_elements(sizes: Sizes, sums: Sums) -> u64 {
        match sums {
            Sums::Finished => 0,
            Sums::Partial { log2 } => (u64::from(sizes.m) << log2) * u64::from(ld_partial(sizes.n)),
        }
    }

    /// With `elements` of partial sums and, if the plan's memory is limited, `spare` more at most.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`].
    pub(super) fn new(staging: Staging, elements: u64, spare: Option<u64>) -> Result<Self, DeviceError> {
        let most_partial = spare.map(|spare| elements + spare);
        Ok(Self { staging, most_partial, combine: combine_entry()? })
    }

    /// Into how many parts a product may be divided: as many as would be best, if there is memory for their sums.
    pub(super) fn affordable(&self, sizes: Sizes, best_log2: u32) -> u32 {
        let fits = |most| Self::partial_elements(sizes, Sums::of(best_log2, true)) <= most;
        if self.most_partial.is_none_or(fits) { best_log2 } else { 0 }
    }

    /// What a product of `m` rows launches, packed activations taken for granted.
    pub(super) fn expected(&self, m: u32, kernel: Option<&'static Entry>, sums: Sums) -> Vec<&'static str> {
        let all = self.staging.expected_entry(m).into_iter().chain(kernel).chain(self.combine(sums));
        all.map(|entry| entry.name).collect()
    }

    /// What a product launches.
    pub(super) fn entries(
        &self,
        operands: &Operands,
        kernel: Option<&'static Entry>,
        sums: Sums,
    ) -> impl Iterator<Item = &'static Entry> {
        self.staging.entry(operands).into_iter().chain(kernel).chain(self.combine(sums))
    }

    /// What finishes sums, if they are not.
    fn combine(&self, sums: Sums) -> Option<&'static Entry> {
        (sums != Sums::Finished).then_some(self.combine)
    }

    /// The memory that a product takes, beside what a library works with.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] for activations of 64 GiB, rows of 4 GiB, or more rows than can be brought.
    pub(super) fn need(&self, operands: &Operands, sizes: Sizes, sums: Sums) -> Result<Need, PlanError> {
        let rows = u64::from(self.staging.rows(operands));
        let brought = if self.staging.suit(operands) { 0 } else { rows };
        // The engine that copies rows counts in 64 bits.
        let of_row = match self.staging.reads_rows() {
            true => 0,
            false => self.staging.leading_dimension(operands) * self.staging.element_bytes() / 16,
        };
        let limits = [
            ("vectors of 16 bytes in A", of_row * rows, MAX_VECTORS),
            ("vectors of 16 bytes in a row of k-major A", of_row, MAX_ROW_VECTORS),
            ("rows of A that are brought, since it is not row-major and aligned", brought, MAX_BROUGHT_ROWS),
        ];
        for (what, found, limit) in limits {
            if found > limit {
                let remedy = "multiply fewer rows at a time";
                return Err(PlanError::TooLarge { what, found, limit, remedy });
            }
        }
        let partial = Self::partial_elements(sizes, sums);
        Ok(Need { staged: self.staging.words(operands), partial, scratch: 0 })
    }

    /// Activations as kernels read them.
    ///
    /// # Errors
    /// As for [`Staging::bring`].
    ///
    /// # Safety
    /// As for [`Staging::bring`], with a workspace that [has](Workspace::has) what the product needs.
    pub(super) unsafe fn bring(
        &self,
        queue: &dyn Queue,
        operands: &Operands,
        space: &Workspace,
    ) -> Result<Brought, DeviceError> {
        // SAFETY: the operands are live memory of the plan's device, as [`Staging::bring`] wants them; there is room in
        // the workspace.
        unsafe { self.staging.bring(queue, operands, space.staged()) }
    }

    /// Where the program writes, and how many elements further on each part does: `output` itself, or the partial sums
    /// of a workspace.
    pub(super) fn output(output: Output, sums: Sums, space: &Workspace) -> (Output, u64) {
        let n = ld_partial(output.n);
        let part_elements = u64::from(output.m) * u64::from(n);
        if sums == Sums::Finished {
            return (output, part_elements);
        }
        let flags = Output::flags(Default::default(), Default::default(), true);
        let [alpha, beta] = [1.0f32, 0.0].map(Factor::new);
        let c = space.partial().cast();
        (Output { c, bias: GlobalPtr::NULL, n, ldc: n, alpha, beta, flags, ..output }, part_elements)
    }

    /// Queues what adds up and finishes the sums, if they are not finished.
    ///
    /// # Errors
    /// [`DeviceError`].
    ///
    /// # Safety
    /// What was queued last wrote all parts where [`output`](Self::output) said; `output` is what was given there.
    pub(super) unsafe fn finish(
        &self,
        queue: &dyn Queue,
        output: Output,
        (part_elements, sums): (u64, Sums),
        space: &Workspace,
    ) -> Result<(), DeviceError> {
        let Some(entry) = self.combine(sums) else { return Ok(()) };
        let parts = 1 << sums.parts_log2();
        let (partial, ld_partial) = (space.partial(), ld_partial(output.n));
        let params = NmCombineParams { output, partial, part_elements, ld_partial, parts };
        let rows = u64::from(output.m).div_ceil(u64::from(NmCombine::ROWS));
        let columns = u64::from(output.n).div_ceil(u64::from(NmCombine::COLUMNS));
        // SAFETY: all columns up to the leading dimension were written, by the caller's promise.
        unsafe { launch(queue, entry, [rows, columns], &params) }
    }
}

/// Queues a kernel, if its grid has blocks.
///
/// # Safety
/// As for [`Prepared::new`].
pub(super) unsafe fn launch<P: bytemuck::Pod>(
    queue: &dyn Queue,
    entry: &'static Entry,
    grid: [u64; 2],
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller promises that the params are the entry's and keep its obligations for this grid.
    match unsafe { Prepared::new(entry, grid, params)? } {
        Some(prepared) => queue.launch(&prepared),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use windrow_formats::NmPattern;

    use super::super::options::ActivationLayout;
    use super::super::staging::{Bringing, ReadAs};
    use super::*;
    use crate::options::Precision;

    #[test]
    fn products_are_divided_as_memory_allows() {
        let (precision, layout) = (Precision::F32, ActivationLayout::RowMajor);
        let bringing = Bringing { precision, layout, read_as: ReadAs::KMajorF32, inner: 8 };
        let shared = |spare| {
            let staging = Staging::new(bringing).unwrap();
            Shared::new(staging, 400, spare).unwrap()
        };
        let pattern = NmPattern::new(1, 2, 1).unwrap();
        let sizes = |m| Sizes { m, n: 98, inner: 8, pattern };
        // Two parts of 4 rows of 100 take 800 elements.
        assert_eq!(Shared::partial_elements(sizes(4), Sums::of(1, true)), 800);
        assert_eq!(Shared::partial_elements(sizes(4), Sums::of(0, true)), 0);
        // One part that is not finished.
        assert_eq!(Shared::partial_elements(sizes(4), Sums::of(0, false)), 400);
        for (m, spare, parts_log2) in [(4, None, 1), (4, Some(400), 1), (4, Some(399), 0), (2, Some(0), 1)] {
            assert_eq!(shared(spare).affordable(sizes(m), 1), parts_log2, "{m} rows, {spare:?}");
        }
    }
}

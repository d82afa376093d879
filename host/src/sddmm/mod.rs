//! Sampled dense-dense products: plans and their parts.

mod build;
mod builder;
mod choose;
mod from_device;
mod gpu;
mod host;
mod options;
mod plan;
mod received;
mod report;
mod row_panels;
mod stage;
mod trial;
mod verify;
mod workspace;

pub use builder::SddmmBuilder;
pub use choose::SddmmWeighed;
pub(crate) use choose::weigh_counts;
pub use options::{SddmmAlgorithm, SddmmForm, SddmmGroup, SddmmOptions};
pub use plan::SddmmPlan;
pub use report::SddmmReport;
pub(crate) use row_panels::slice_of;

use crate::spmm::SparseMatrix;

/// `out = α·(X·Yᵀ) ⊙ A` for a sparse `A` (SDDMM): the way to a plan.
///
/// One number for each entry of `A`, in CSR order: the product of row `i` of `X` and row `j` of `Y` where `A` has an
/// entry in row `i` and column `j`; times the entry's value with [`SddmmForm::Scale`]. `X` is m × d and `Y` n × d for
/// an `A` of m × n; `d` is the *inner dimension*.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, Sddmm};
///
/// let pattern = Csr::try_from_parts(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0f32; 3])?;
/// let plan = Sddmm::builder(&pattern).inner(2).build(&Device::best()?)?;
/// let x = [1.0, 2.0, 3.0, 4.0]; // 2 × 2
/// let y = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]; // 3 × 2
/// assert_eq!(plan.run(&x, &y)?, [1.0, 3.0, 4.0]); // (0, 0), (0, 2), (1, 1)
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Sddmm;

impl Sddmm {
    /// Starts a plan for products sampled where `a` has entries, a [`Csr`](windrow_formats::Csr) in host memory or a
    /// [`DeviceCsr`](crate::DeviceCsr) in that of a device. The plan keeps what it needs; `a` may be dropped after
    /// [`build`](SddmmBuilder::build) or [`build_on`](SddmmBuilder::build_on).
    pub fn builder<A: SparseMatrix>(a: &A) -> SddmmBuilder<'_, A> {
        SddmmBuilder::new(a)
    }
}

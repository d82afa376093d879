//! Sparse times dense: plans and their parts.

mod arrays;
mod build;
mod builder;
mod column_major;
mod geometry;
mod gpu;
mod groups;
mod layout;
mod matricized;
mod parts;
mod places;
mod plan;
pub(crate) mod points;
mod preprocess;
mod report;
mod scheduling;
mod select;
mod sums;
mod tiles;
mod tuning;
mod values;
mod vectors;
mod verify;

pub(crate) use build::MAX_INDEX;
pub use builder::SpmmBuilder;
pub(crate) use geometry::grid;
pub(crate) use gpu::{Lane, start, start_in};
pub(crate) use groups::{GroupsHost, GroupsPart, MAX_GROUP_COLUMNS, SecondFactor, padded_indices};
pub(crate) use parts::push;
pub(crate) use places::copy_on_device;
pub use plan::SpmmPlan;
pub use report::{ArraySize, SpmmReport, StageTime};
pub(crate) use report::{StageClock, total_us, write_arrays, write_stages};
pub(crate) use sums::{SplitPart, wide_first};
pub(crate) use values::{Bits, Values};
pub use verify::{Reference, Verification};
pub(crate) use verify::{
    Storing, UNIT_FMA, UNIT_MMA, bounded_ratio, error_ratio, gamma, multiplied, subnormal_error,
};

use windrow_formats::{Csr, Value};

/// `C[m×n] ← α·A[m×k]·B[k×n] + β·C` with a sparse `A`: the way to a plan.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, Spmm};
///
/// let a = Csr::try_from_parts(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0f32, 2.0, 3.0])?;
/// let plan = Spmm::builder(&a).width(2).build(&Device::best()?)?;
/// let b = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]; // 3 × 2, row-major
/// assert_eq!(plan.run(&b)?, [7.0, 70.0, 6.0, 60.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Spmm;

impl Spmm {
    /// Starts a plan for products with `a`. The plan keeps what it needs; `a` may be dropped after
    /// [`build`](SpmmBuilder::build).
    pub fn builder<V: Value>(a: &Csr<V>) -> SpmmBuilder<'_, V> {
        SpmmBuilder::new(a)
    }
}

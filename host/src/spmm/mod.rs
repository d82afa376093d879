//! Sparse times dense: plans and their parts.

mod build;
mod builder;
#[cfg(all(test, feature = "emulator"))]
mod captured_tests;
mod column_major;
mod decide;
mod fit;
mod from_device;
mod gpu;
mod launch;
mod layout;
mod once;
mod operands;
mod options;
mod order;
mod out_of_core;
mod part;
mod parts;
mod places;
mod plan;
pub(crate) mod points;
mod preprocess;
mod replace;
mod report;
mod run;
mod select;
mod state;
mod sums;
mod tiles;
mod trial;
mod tuning;
mod verify;
mod weighed;
mod workspace;

pub(crate) use build::cpu_arrays;
pub use builder::SpmmBuilder;
pub(crate) use from_device::{OfReceived, OnDevice};
pub(crate) use gpu::{GpuPlan, PlanShape};
pub(crate) use operands::{Finish, Operands};
pub use options::SpmmOptions;
pub use out_of_core::{OutOfCoreReport, OutOfCoreSpmm};
pub(crate) use part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, SecondFactor,
    ValueSlots,
};
pub(crate) use parts::merge_based::kernel as kernel_without_plan;
pub(crate) use parts::read_array;
pub(crate) use parts::row_split::cut_above;
pub(crate) use parts::segment_group::{
    Groups, GroupsLayout, GroupsPart, ReceivedGroups, RowEntries, described, made_on_host, padded_indices,
};
pub(crate) use plan::MEMORY_REMEDY;
pub use plan::SpmmPlan;
pub(crate) use preprocess::{
    Condensed, DevicePanels, MOST_PANEL_ITEMS, Scratch, WindowCounts, WrittenPanels,
};
pub use report::SpmmReport;
pub use verify::Reference;
pub use weighed::Weighed;
pub(crate) use weighed::weigh_counts;

use windrow_formats::{Csr, Value};

use crate::csr::DeviceCsr;

mod sealed {
    pub trait SparseMatrix {}
}

/// What plans of sparse products are made of: [`Csr`] and [`DeviceCsr`].
pub trait SparseMatrix: sealed::SparseMatrix {}

impl<V: Value> sealed::SparseMatrix for Csr<V> {}
impl<V: Value> SparseMatrix for Csr<V> {}
impl<V: Value> sealed::SparseMatrix for DeviceCsr<'_, V> {}
impl<V: Value> SparseMatrix for DeviceCsr<'_, V> {}

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
    /// Starts a plan for products with `a`, a [`Csr`](windrow_formats::Csr) in host memory or a
    /// [`DeviceCsr`](crate::DeviceCsr) in that of a device. The plan keeps what it needs; `a` may be dropped after
    /// [`build`](SpmmBuilder::build) or [`build_on`](SpmmBuilder::build_on).
    pub fn builder<A: SparseMatrix>(a: &A) -> SpmmBuilder<'_, A> {
        SpmmBuilder::new(a)
    }
}

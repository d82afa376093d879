//! Products of sparse tensors of three modes with dense matrices: plans and their parts.

mod build;
mod builder;
mod coo;
mod csf;
mod from_device;
mod host;
mod levels;
mod options;
mod part;
mod plan;
mod point;
mod received;
mod report;
mod slices;
mod ttm;
mod verify;

pub use builder::MttkrpBuilder;
pub use coo::{Coo3Addresses, DeviceCoo3};
pub use csf::DeviceCsf3;
pub use options::MttkrpOptions;
pub use plan::MttkrpPlan;
pub use report::MttkrpReport;
pub use ttm::{TtmBuilder, TtmPlan};

use windrow_formats::{Csf3, Value};

mod sealed {
    pub trait SparseTensor {}
}

/// What plans of products of sparse tensors are made of: [`Csf3`], [`DeviceCsf3`] and [`DeviceCoo3`].
pub trait SparseTensor: sealed::SparseTensor {}

impl<V: Value> sealed::SparseTensor for Csf3<V> {}
impl<V: Value> SparseTensor for Csf3<V> {}
impl<V: Value> sealed::SparseTensor for DeviceCsf3<V> {}
impl<V: Value> SparseTensor for DeviceCsf3<V> {}
impl<V: Value> sealed::SparseTensor for DeviceCoo3<'_, V> {}
impl<V: Value> SparseTensor for DeviceCoo3<'_, V> {}

/// `Y[i,:] ← α·Σ A[i,k,l]·(B[k,:] ⊙ C[l,:]) + β·Y[i,:]` for a sparse tensor `A`: the way to a plan.
///
/// The matricized tensor times Khatri–Rao product (MTTKRP) for the mode of the tensor's roots, the step of CP
/// decomposition that takes its time. `A` is I × K × L in the order of its levels, `B` is K × n, `C` is L × n, and
/// `Y` is I × n. For another mode the fibers are made with that mode first: [`Csf3::try_from_coo`] takes the order.
///
/// Source: Sgap, equation 2. The nonzeros of the tensor are divided as a point of its space says, and sums of slices
/// are taken by segment reduction, as those of rows of a matrix are; `A` is not unfolded, and `B ⊙ C` exists nowhere.
///
/// # Examples
/// ```
/// use windrow::{Coo3, Device, Mttkrp};
///
/// let tensor = Coo3::from_entries([2, 3, 2], [([0, 0, 1], 1.0f32), ([1, 2, 0], 4.0), ([1, 0, 1], 2.0)])?;
/// let plan = Mttkrp::builder(&tensor.to_csf([0, 1, 2])?).width(2).build(&Device::best()?)?;
/// let b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // 3 × 2
/// let c = [1.0, 1.0, 10.0, 100.0]; // 2 × 2
/// // Row 1: 4·(5·1, 6·1) + 2·(1·10, 2·100).
/// assert_eq!(plan.run(&b, &c)?, [10.0, 200.0, 40.0, 424.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Mttkrp;

impl Mttkrp {
    /// Starts a plan for products with `a`, for the mode of its roots: a [`Csf3`] in host memory, or in that of a
    /// device a [`DeviceCsf3`] or, for any order of its modes, a [`DeviceCoo3`]. The plan keeps what it needs; `a` may
    /// be dropped after [`build`](MttkrpBuilder::build) or [`build_on`](MttkrpBuilder::build_on).
    pub fn builder<A: SparseTensor>(a: &A) -> MttkrpBuilder<'_, A> {
        MttkrpBuilder::new(a)
    }
}

/// `Y[i,j,:] ← α·Σ A[i,j,l]·B[l,:] + β·Y[i,j,:]` for a sparse tensor `A`: the way to a plan.
///
/// The tensor-times-matrix product (TTM) for the mode of the tensor's leaves. The result is semi-sparse: it has a
/// dense row for each fiber of `A` and nothing else. Row `f` of `Y` is that of fiber `f`, whose index in mode
/// `mode_order()[1]` is `fiber_indices()[f]`, of the root whose range has `f`. `B` is L × n for leaves of L places,
/// `Y` is fibers × n.
///
/// Source: Sgap, equation 3. Fibers are to this product what rows are to SpMM, so that it is planned and run as one:
/// any [`Algorithm`](crate::Algorithm) and every point of the space.
///
/// # Examples
/// ```
/// use windrow::{Coo3, Device, Ttm};
///
/// let tensor = Coo3::from_entries([2, 3, 2], [([0, 0, 1], 1.0f32), ([1, 2, 0], 4.0), ([1, 2, 1], 2.0)])?;
/// let fibers = tensor.to_csf([0, 1, 2])?;
/// let plan = Ttm::builder(&fibers).width(2).build(&Device::best()?)?;
/// let b = [1.0, 2.0, 10.0, 20.0]; // 2 × 2
/// assert_eq!(plan.run(&b)?, [10.0, 20.0, 24.0, 48.0]); // fibers (0, 0) and (1, 2)
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Ttm;

impl Ttm {
    /// Starts a plan for products with `a`, for the mode of its leaves: a [`Csf3`] in host memory, or in that of a
    /// device a [`DeviceCsf3`] or, for any order of its modes, a [`DeviceCoo3`]. The plan keeps what it needs; `a` may
    /// be dropped after [`build`](TtmBuilder::build) or [`build_on`](TtmBuilder::build_on).
    pub fn builder<A: SparseTensor>(a: &A) -> TtmBuilder<'_, A> {
        TtmBuilder::new(a)
    }
}

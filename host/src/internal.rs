//! What windrow's own programs and tests use beside its API: no part of it, and free to change with any version.

use bytemuck::Pod;
use windrow_formats::Value;
pub use windrow_kernels::atomic_entries::{AtomicEntriesParams, Factor as EntryFactor};
pub use windrow_kernels::gather_probe::{GatherProbeParams, IN_FLIGHT};
pub use windrow_kernels::{Arch, Dtype, ENTRIES, Entry, MODULES, Variant, entry};

pub use crate::costs::GroupThresholds;
use crate::device::Prepared;
pub use crate::predict::{Asked, Kind, MatrixCounts, PanelCounts, predicted_us, terms};
pub use crate::spmm::Reference;
pub use crate::spmm::points::{Division, MOST_EACH, RowLengths, divisions};
use crate::{
    Device, DeviceError, DeviceMatrix, Element, GroupLaunch, MttkrpPlan, NmError, NmSpmmPlan, PlanError,
    Precision, Profile, RowSoftmax, SddmmError, SddmmOptions, SddmmPlan, SddmmWeighed, SpmmError,
    SpmmOptions, SpmmPlan, TensorError, TtmPlan, Verification, Weighed,
};

/// Starts a kernel directly, in the order of the device's work: for measuring tools and tests of one kernel.
/// A grid with no blocks starts nothing.
///
/// # Errors
/// - [`DeviceError::NotAvailable`] on the CPU, which runs no kernels;
/// - [`DeviceError::Grid`] for more blocks than a GPU takes;
/// - [`DeviceError::Driver`], [`DeviceError::Emulator`].
///
/// # Panics
/// If `P` is not as large as the entry's parameter struct.
///
/// # Safety
/// `P` is the entry's parameter struct and `params` keeps the obligations of its documentation, for this grid.
/// The memory it points to is of this device and stays allocated until the kernel has finished.
pub unsafe fn launch<P: Pod>(
    device: &Device,
    entry: &'static Entry,
    grid: [u64; 2],
    params: &P,
) -> Result<(), DeviceError> {
    let Some(machine) = device.machine() else {
        let (operation, remedy) = ("start GPU kernels", "a CUDA device");
        return Err(DeviceError::NotAvailable { device: device.to_string(), operation, remedy });
    };
    // SAFETY: the caller's promise.
    match unsafe { Prepared::new(entry, grid, params) }? {
        Some(prepared) => machine.own().launch(&prepared),
        None => Ok(()),
    }
}

/// The kernel of [`SpmmBuilder::run_once_on`](crate::SpmmBuilder::run_once_on) for so many columns, whose rows of `B`
/// may be read in vectors or not.
#[must_use]
pub fn kernel_without_plan(precision: Precision, n: u32, vectors: bool) -> Option<&'static Entry> {
    crate::spmm::kernel_without_plan(precision, n, vectors)
}

/// What [`SpmmBuilder::weigh`](crate::SpmmBuilder::weigh) says of a matrix with these counts, all of its column vectors
/// counted: for records of matrices that are elsewhere.
///
/// # Errors
/// As there.
pub fn weigh_spmm(
    counts: &MatrixCounts,
    options: &SpmmOptions,
    profile: &Profile,
) -> Result<Weighed, SpmmError> {
    crate::spmm::weigh_counts(counts, options, profile)
}

/// The same of [`SddmmBuilder::weigh`](crate::SddmmBuilder::weigh).
///
/// # Errors
/// As there.
pub fn weigh_sddmm(
    counts: &MatrixCounts,
    options: &SddmmOptions,
    profile: &Profile,
) -> Result<SddmmWeighed, SddmmError> {
    crate::sddmm::weigh_counts(counts, options, profile)
}

/// Name and content of each array in device memory that products of a plan read, the workspace excepted; none on the
/// CPU. For comparing plans that were made in different ways.
///
/// # Errors
/// [`PlanError::Device`].
pub fn device_arrays(plan: &SpmmPlan) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
    plan.device_arrays()
}

/// [`device_arrays`] of a plan of products with N:M weights, without what new values need.
///
/// # Errors
/// As there.
pub fn nm_arrays(plan: &NmSpmmPlan) -> Result<Vec<(&'static str, Vec<u8>)>, NmError> {
    plan.device_arrays()
}

/// [`device_arrays`] of a plan of sampled products.
///
/// # Errors
/// As there.
pub fn sampled_arrays(plan: &SddmmPlan) -> Result<Vec<(&'static str, Vec<u8>)>, SddmmError> {
    plan.device_arrays()
}

/// [`device_arrays`] of a plan of MTTKRP.
///
/// # Errors
/// As there.
pub fn mttkrp_arrays(plan: &MttkrpPlan) -> Result<Vec<(&'static str, Vec<u8>)>, TensorError> {
    plan.device_arrays()
}

/// [`device_arrays`] of a plan of TTM.
///
/// # Errors
/// As there.
pub fn ttm_arrays(plan: &TtmPlan) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
    plan.device_arrays()
}

/// [`device_arrays`] of a softmax over rows.
///
/// # Errors
/// [`PlanError::Device`].
pub fn softmax_arrays(softmax: &RowSoftmax) -> Result<Vec<(&'static str, Vec<u8>)>, PlanError> {
    softmax.device_arrays()
}

/// Another launch of the same segment groups; whether the plan has any.
///
/// # Errors
/// [`SpmmError::IllegalPoint`] for a launch that is none of the plan's point.
pub fn set_group_launch(plan: &mut SpmmPlan, launch: GroupLaunch) -> Result<bool, SpmmError> {
    plan.set_group_launch(launch)
}

/// [`SpmmPlan::verify`] with a matrix that may serve many plans of its precision and device.
///
/// # Errors
/// As there.
pub fn verify_with<V: Value, B: Element, C: Element>(
    plan: &SpmmPlan,
    reference: &Reference<'_, V>,
    b: &DeviceMatrix<B>,
    c: &DeviceMatrix<C>,
) -> Result<Verification, SpmmError> {
    plan.verify_with(reference, b, c)
}

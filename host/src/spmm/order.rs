//! Orders of rows that are made on the device.

use windrow_formats::Permutation;
use windrow_preprocess::reorder::{Method, Options};

use super::build::OWN_ORDER;
use super::layout::Matrix;
use super::options::SpmmOptions;
use super::preprocess::{DeviceOrder, can_order, min_hash_order};
use crate::device::Device;
use crate::error::{DeviceError, PlanError, SpmmError};
use crate::num::wide;
use crate::options::Preprocessing;
use crate::profile::Profile;

/// An order of the rows, if it is not the matrix's own, and its name.
pub(super) type NamedOrder = (Option<Permutation>, String);

/// Whether kernels know a way to order rows.
pub(super) fn has_kernels(options: &Options) -> bool {
    options.method == Method::MinHash
}

/// The name of an order that was found by a method.
pub(super) fn name_of(method: Method, kept_original: bool) -> String {
    match kept_original {
        true => format!("{OWN_ORDER}: the one of {method} gathers more"),
        false => method.to_string(),
    }
}

/// The order that kernels find, of a matrix on the device or on the host.
///
/// # Errors
/// What the device refuses, memory above all.
pub(super) fn on_device<A: Matrix>(device: &Device, a: &A) -> Result<NamedOrder, SpmmError> {
    let DeviceOrder { new_to_old, column_vectors: [own, new] } = min_hash_order(device, a)?;
    let name = name_of(Method::MinHash, new > own);
    if new > own {
        return Ok((None, name));
    }
    let order = Permutation::try_from_new_to_old(new_to_old)?;
    Ok((Some(order).filter(|order| !order.is_identity()), name))
}

/// The order that kernels find of a matrix on the host, where they are asked for or it has entries enough; none where
/// the host finds it.
///
/// # Errors
/// Those of [`on_device`], but for too little memory where the host may do it.
pub(super) fn of_host_matrix<A: Matrix>(
    device: &Device,
    a: &A,
    options: &SpmmOptions,
    profile: &Profile,
) -> Result<Option<NamedOrder>, SpmmError> {
    let known = options.reorder.as_ref().is_some_and(has_kernels) && can_order(a);
    let may = match options.preprocessing {
        Preprocessing::Cpu => false,
        Preprocessing::Gpu => true,
        Preprocessing::Auto => {
            options.memory_limit.is_none() && wide(a.nnz()) >= profile.costs.tiles.layout_entries
        }
    };
    if !(known && may) {
        return Ok(None);
    }
    match on_device(device, a) {
        Ok(found) => Ok(Some(found)),
        Err(SpmmError::Plan(PlanError::Device(DeviceError::OutOfMemory { .. })))
            if options.preprocessing == Preprocessing::Auto =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

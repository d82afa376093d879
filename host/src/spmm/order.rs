//! Orders of rows: those that are made on the device, asked for or not.

mod weigh;

use std::borrow::Cow;

use windrow_formats::Permutation;
use windrow_preprocess::reorder::{Method, Options};

use super::layout::Matrix;
use super::options::SpmmOptions;
use super::preprocess::{DeviceOrder, by_kernels, can_order, min_hash_order};
use crate::device::Device;
use crate::error::{DeviceError, PlanError, SpmmError};
use crate::num::wide;
use crate::options::Preprocessing;
use crate::profile::Profile;

pub(super) use weigh::Weighing;

/// The name of the matrix's own order.
pub(super) const OWN_ORDER: &str = "its own";

/// What the report says of an order.
#[derive(Debug, Clone)]
pub(super) struct OrderName {
    pub(super) name: String,
    /// What was weighed against what, if anything was.
    pub(super) why: String,
}

/// An order of the rows, if it is not the matrix's own.
pub(super) struct RowOrder<'a> {
    pub(super) order: Option<Cow<'a, Permutation>>,
    pub(super) name: OrderName,
}

impl<'a> RowOrder<'a> {
    /// The matrix's own order.
    pub(super) fn own(why: String) -> Self {
        Self { order: None, name: OrderName { name: OWN_ORDER.to_owned(), why } }
    }

    /// One that has a name.
    pub(super) fn named(order: Cow<'a, Permutation>, name: String) -> Self {
        let order = Some(order).filter(|order| !order.is_identity());
        Self { order, name: OrderName { name, why: String::new() } }
    }
}

/// Whether the matrix need not be on the host for a way to order rows.
pub(super) fn has_kernels(options: &Options) -> bool {
    matches!(options.method, Method::MinHash | Method::Identity)
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
pub(super) fn on_device<A: Matrix>(
    device: &Device,
    a: &A,
    method: Method,
) -> Result<RowOrder<'static>, SpmmError> {
    let as_it_is =
        || RowOrder { order: None, name: OrderName { name: method.to_string(), why: String::new() } };
    if method == Method::Identity {
        return Ok(as_it_is());
    }
    let Some(DeviceOrder { new_to_old, column_vectors: [own, new] }) = min_hash_order(device, a, |_| true)?
    else {
        return Ok(as_it_is()); // not reached: it is asked for whatever the matrix
    };
    let name = name_of(Method::MinHash, new > own);
    if new > own {
        let why = String::new();
        return Ok(RowOrder { order: None, name: OrderName { name, why } });
    }
    Ok(RowOrder::named(Cow::Owned(Permutation::try_from_new_to_old(new_to_old)?), name))
}

/// Whether kernels may find the order of a matrix that is on the host: where they are asked for, or it has entries
/// enough.
fn may_for_host<A: Matrix>(a: &A, options: &SpmmOptions, profile: &Profile) -> bool {
    can_order(a) && by_kernels(options, a.nnz(), &profile.costs.tiles).0
}

/// The order that kernels find of a matrix on the host; none where the host finds it.
///
/// # Errors
/// Those of [`on_device`], but for too little memory where the host may do it.
pub(super) fn of_host_matrix<A: Matrix>(
    device: &Device,
    a: &A,
    options: &SpmmOptions,
    profile: &Profile,
) -> Result<Option<RowOrder<'static>>, SpmmError> {
    let asked = options.reorder.is_some_and(|reorder| reorder.method == Method::MinHash);
    if !(asked && may_for_host(a, options, profile)) {
        return Ok(None);
    }
    match on_device(device, a, Method::MinHash) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_full(&error) && options.preprocessing == Preprocessing::Auto => Ok(None),
        Err(error) => Err(error),
    }
}

/// An order that nobody asked for, if there is one that pays.
///
/// # Errors
/// What the device refuses, but for too little memory.
pub(super) fn automatic<A: Matrix>(
    device: &Device,
    a: &A,
    weighing: &Weighing<'_>,
) -> Result<RowOrder<'static>, SpmmError> {
    // No order has more column vectors than entries.
    if let Err(why) = weighing.may_pay(wide(a.nnz())) {
        return Ok(RowOrder::own(why));
    }
    let mut refused = String::new();
    let may_pay = |own: u32| weighing.may_pay(own.into()).map_err(|why| refused = why).is_ok();
    let found = match min_hash_order(device, a, may_pay).map_err(SpmmError::from) {
        Err(error) if is_full(&error) => {
            return Ok(RowOrder::own(format!("there is no memory to find another in: {error}")));
        }
        found => found?,
    };
    let Some(DeviceOrder { new_to_old, column_vectors }) = found else { return Ok(RowOrder::own(refused)) };
    match weighing.is_quicker(column_vectors.map(u64::from)) {
        Err(why) => Ok(RowOrder::own(why)),
        Ok(why) => {
            let order = Cow::Owned(Permutation::try_from_new_to_old(new_to_old)?);
            let mut found = RowOrder::named(order, Method::MinHash.to_string());
            found.name.why = why;
            Ok(found)
        }
    }
}

/// [`automatic`] for a matrix on the host, where kernels may look for an order.
pub(super) fn automatic_of_host<A: Matrix>(
    device: &Device,
    a: &A,
    weighing: &Weighing<'_>,
    options: &SpmmOptions,
    profile: &Profile,
) -> Result<RowOrder<'static>, SpmmError> {
    match may_for_host(a, options, profile) {
        true => automatic(device, a, weighing),
        false => Ok(RowOrder::own(String::new())),
    }
}

fn is_full(error: &SpmmError) -> bool {
    matches!(error, SpmmError::Plan(PlanError::Device(DeviceError::OutOfMemory { .. })))
}

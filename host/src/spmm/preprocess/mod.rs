//! A matrix laid out on a GPU, after Libra (section 4.5).
//!
//! The host uploads the CSR arrays as they are and launches kernels that put every entry in its place; what it gets
//! back is the number of columns of each window, from which it chooses the form of the values and deals the windows
//! out, as it does with windows of its own. The kernels' side is [`windrow_kernels::preprocess`].

mod condense;
mod distribute;
mod minhash;
mod received;
mod rest;
mod scratch;
mod short;
mod steps;

pub(super) use self::condense::ListedRows;
pub(crate) use self::condense::{Condensed, WindowCounts};
pub(super) use self::distribute::{Rest, RestEntries, RestSources};
pub(super) use self::minhash::{DeviceOrder, can_order, min_hash_order};
pub(super) use self::received::DeviceSegments;
pub(super) use self::rest::CountedRest;
pub(crate) use self::scratch::Scratch;
pub(super) use self::short::{DividedRows, ShortRows, TileRows, divides_rows};
pub(super) use self::steps::{DeviceSteps, DeviceTiles, Lookup, ValueSources};

//! A matrix laid out on a GPU, after Libra (section 4.5).
//!
//! The host uploads the CSR arrays as they are and launches kernels that put every entry in its place; what it gets
//! back is the columns of each window, from which it chooses the form of the values, and it deals them out as its own.
//! Windows that all stay whole kernels can deal out, too ([`windrow_kernels::deal`]), so far on the emulator alone. The
//! kernels' side is [`windrow_kernels::preprocess`].

mod condense;
mod deal;
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

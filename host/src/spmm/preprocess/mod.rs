//! A matrix laid out on a GPU, after Libra (section 4.5).
//!
//! The host uploads the CSR arrays as they are and launches kernels that put every entry in its place. What it gets
//! back are sums over the windows, from which it chooses the form of the values; kernels deal the windows out
//! ([`windrow_kernels::deal`]) if there are more than a few and all stay whole. Otherwise the columns of each window
//! come back, and it deals them out as its own. The kernels' side is [`windrow_kernels::preprocess`].

mod condense;
mod deal;
mod distribute;
mod minhash;
mod panels;
mod place;
mod received;
mod rest;
mod scratch;
mod short;
mod steps;

pub(super) use self::condense::ListedRows;
pub(crate) use self::condense::{Condensed, WindowCounts};
pub(super) use self::distribute::{Rest, RestEntries, RestSources};
pub(super) use self::minhash::{DeviceOrder, can_order, min_hash_order};
pub(crate) use self::panels::{DevicePanels, MOST_PANEL_ITEMS, WrittenPanels};
pub(super) use self::panels::{ValuePlaces, received_panel_counts};
pub(super) use self::place::{MOST_TILE_ITEMS, Place, by_kernels};
pub(super) use self::received::DeviceSegments;
pub(super) use self::rest::CountedRest;
pub(crate) use self::scratch::Scratch;
pub(super) use self::short::{DividedRows, ShortRows, TileRows, divides_rows};
pub(super) use self::steps::{DeviceSteps, DeviceTiles, Lookup, ValueSources};

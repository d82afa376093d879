//! The algorithms of sparse times dense, a file each, named like the kernel's.

pub(super) mod matricized_rows;
pub(super) mod merge_based;
pub(super) mod merge_path;
pub(super) mod row_panels;
pub(super) mod row_split;
pub(crate) mod segment_group;
pub(super) mod short_rows;
pub(super) mod tile_stream;

use bytemuck::Pod;
use windrow_formats::memory::try_copy;

use crate::device::DeviceBuffer;
use crate::error::DeviceError;

/// Name and content of an array.
pub(crate) fn read_array<T: Pod>(
    name: &'static str,
    array: &DeviceBuffer<T>,
) -> Result<(&'static str, Vec<u8>), DeviceError> {
    Ok((name, try_copy(bytemuck::cast_slice(&array.to_vec()?), name)?))
}

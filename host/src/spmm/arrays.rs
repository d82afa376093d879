//! The arrays of a plan in device memory, read back.

use bytemuck::Pod;

use super::parts::{Lookup, RowSplitPart, ShortRowsPart, TilesPart};
use super::plan::{Body, SpmmPlan};
use super::sums::SplitPart;
use crate::device::DeviceBuffer;
use crate::error::{DeviceError, SpmmError};

/// Name and bytes of each array, in the order of the parts.
struct Arrays(Vec<(&'static str, Vec<u8>)>);

impl Arrays {
    fn add<T: Pod>(&mut self, name: &'static str, array: &DeviceBuffer<T>) -> Result<(), DeviceError> {
        self.0.push((name, bytemuck::cast_slice(&array.to_vec()?).to_vec()));
        Ok(())
    }

    fn add_tiles(&mut self, part: &TilesPart) -> Result<(), DeviceError> {
        self.add("workers", &part.workers)?;
        self.add("step_cols", &part.step_cols)?;
        self.add("records", &part.records)?;
        match &part.lookup {
            Lookup::Bitmaps(bitmaps) => self.add("bitmaps", bitmaps),
            Lookup::RecordStarts(starts) => self.add("record_starts", starts),
        }
    }

    fn add_short_rows(&mut self, part: &ShortRowsPart) -> Result<(), DeviceError> {
        self.add("short_row_blocks", &part.blocks)?;
        self.add("short_rows", &part.rows)?;
        self.add("short_row_cols", &part.col_indices)?;
        self.add("short_row_values", &part.values)
    }

    fn add_row_split(&mut self, part: &RowSplitPart) -> Result<(), DeviceError> {
        self.add("segments", &part.segments)?;
        self.add("col_indices", &part.col_indices)?;
        self.add("values", &part.values)
    }

    fn add_split(&mut self, part: &SplitPart) -> Result<(), DeviceError> {
        self.add("split_rows", part.rows())
    }
}

impl SpmmPlan {
    /// Name and content of each array in device memory that products read, the workspace excepted; none on the CPU. For
    /// comparing plans that were made in different ways.
    ///
    /// # Errors
    /// [`SpmmError::Device`].
    #[doc(hidden)]
    pub fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
        let mut arrays = Arrays(Vec::new());
        if let Body::Gpu(plan) = &self.body {
            plan.tiles.as_ref().map_or(Ok(()), |part| arrays.add_tiles(part))?;
            plan.short_rows.as_ref().map_or(Ok(()), |part| arrays.add_short_rows(part))?;
            plan.row_split.as_ref().map_or(Ok(()), |part| arrays.add_row_split(part))?;
            plan.split.as_ref().map_or(Ok(()), |part| arrays.add_split(part))?;
        }
        Ok(arrays.0)
    }
}

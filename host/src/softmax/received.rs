//! The rows of a pattern that is on the device, divided by kernels as the host divides them.

use windrow_kernels::Variant;
use windrow_kernels::patterns::{CLASS_ROWS, CLASSES, ClassesParams};
use windrow_kernels::row_softmax::MOST_SHORT;
use windrow_simt::GlobalPtr;

use super::gpu::{GpuRows, longest_first};
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer};
use crate::error::PlanError;
use crate::num::{narrow, wide};
use crate::spmm::Scratch;

impl GpuRows {
    /// The rows of a pattern that was received. Waits for nothing unless a row is long: long ones, of which there are
    /// few, the host sorts.
    pub(super) fn of_received(device: &Device, a: &Received) -> Result<Self, PlanError> {
        let filled = a.rows - a.record.empty_rows as usize;
        let blocks = a.rows.div_ceil(CLASS_ROWS as usize);
        let counts = blocks * CLASSES as usize;
        // The numbers of blocks and the sums of their scan, and the ends of arrays.
        let scratch = Scratch::new(device, 4 * wide(counts) + wide(counts) / 128 + (1 << 12))?;
        let mut params = ClassesParams {
            row_offsets: a.row_offsets.pointer(),
            places: scratch.array(counts + 1, "rows of each class")?,
            long_rows: GlobalPtr::NULL,
            short_rows: GlobalPtr::NULL,
            rows: narrow(a.rows),
            long_count: 0,
        };
        // SAFETY: the offsets were checked; there is a number for each class of each block, whose sums may take the
        // place of what is added up. The long rows are those before the second class.
        unsafe {
            scratch.launch(Variant::CountClasses, wide(a.rows), &params)?;
            scratch.scan(params.places, narrow(counts), false, params.places)?;
            if a.record.longest > u64::from(MOST_SHORT) {
                let long = scratch.read(params.places.at(narrow(blocks)), 1)?;
                params.long_count = long.first().copied().unwrap_or_default();
            }
        }
        let long_count = params.long_count as usize;
        let mut long = DeviceBuffer::<[u32; 2]>::alloc(device, long_count, "long_rows")?;
        let short = DeviceBuffer::<[u32; 2]>::alloc(device, filled - long_count, "short_rows")?;
        (params.long_rows, params.short_rows) = (long.pointer(), short.pointer());
        // SAFETY: as above; there is room for the long rows that were counted, and for the others.
        unsafe { scratch.launch(Variant::PlaceClasses, wide(a.rows), &params)? };
        if long_count > 1 {
            let mut rows = long.to_vec()?;
            longest_first(&mut rows);
            long.copy_from_slice(&rows)?;
        }
        Ok(Self::of_parts(long, short))
    }
}

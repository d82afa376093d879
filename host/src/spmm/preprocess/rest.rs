//! Entries outside of tiles as segments of rows, cut on the device.

use windrow_kernels::Variant;
use windrow_kernels::hybrid::{REST_ROWS, RestParams, RestTotals};
use windrow_simt::GlobalPtr;

use super::distribute::Rest;
use super::scratch::Scratch;
use crate::csr::CutAt;
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::spmm::part::CutList;

/// The rows of a matrix outside of tiles before they are cut: what [`windrow_preprocess::balance::row_segments`] does
/// on the host.
pub(in crate::spmm) struct CountedRest {
    scratch: Scratch,
    params: RestParams,
    pub(in crate::spmm) totals: RestTotals,
}

impl CountedRest {
    /// Counts the pieces of rows. Waits for them.
    pub(in crate::spmm) fn new(
        device: &Device,
        a: &Received,
        rest: &Rest,
        CutAt { limit, piece, shared }: CutAt,
    ) -> Result<Self, DeviceError> {
        let blocks = a.rows.div_ceil(REST_ROWS as usize);
        let scratch = Scratch::new(device, 32 * wide(blocks + 1) + (1 << 10))?;
        let rows = narrow(a.rows);
        let params = RestParams {
            row_offsets: a.row_offsets.pointer(),
            rest_offsets: rest.offsets,
            sums: scratch.array(2 * blocks, "sums of rows that are cut")?,
            totals: scratch.array(1, "sums of rows that are cut")?,
            segments: GlobalPtr::NULL,
            cut_rows: GlobalPtr::NULL,
            rows,
            limit,
            piece: piece.max(1),
            shared: u32::from(shared),
            apart: 0,
            first_slot: 0,
            cut_slots: 0,
            wide_count: 0,
        };
        // SAFETY: the offsets were checked, and those of the rest are sums of some of their entries; there are two sums
        // for each block of rows.
        let totals = unsafe {
            scratch.launch(Variant::CountRest, u64::from(rows), &params)?;
            scratch.launch(Variant::SumRest, 1, &params)?;
            scratch.read(params.totals, 1)?.first().copied().unwrap_or_default()
        };
        Ok(Self { scratch, params, totals })
    }

    /// The segments, and the list of `windows` before the rows that are cut. `apart` from the tiles, rows that have
    /// entries in these are summed in slots from a first one on; else they are added to `C`.
    pub(in crate::spmm) fn cut(
        self,
        windows: &[[u32; 4]],
        apart: Option<u32>,
    ) -> Result<CutRest, DeviceError> {
        let Self { scratch, mut params, totals } = self;
        let device = scratch.device();
        let extra = if apart.is_some() { totals.shared_whole } else { 0 };
        let segments = DeviceBuffer::alloc(device, totals.segments as usize, "segments")?;
        let listed = (totals.cut + extra) as usize;
        let list = match windows.len() + listed {
            0 => None,
            len => Some(DeviceBuffer::<[u32; 4]>::alloc(device, len, "split_rows")?),
        };
        params.segments = segments.pointer();
        params.cut_rows =
            list.as_ref().map_or(GlobalPtr::NULL, |list| list.pointer().at(narrow(windows.len())));
        (params.apart, params.first_slot) = (u32::from(apart.is_some()), apart.unwrap_or(0));
        (params.cut_slots, params.wide_count) = (totals.slots, totals.wide);
        // SAFETY: there is room for what the sums say, behind the windows; these are in a vector, not page-locked.
        unsafe {
            if let Some(list) = &list {
                scratch.write(list.pointer(), windows)?;
            }
            scratch.launch(Variant::CutRest, u64::from(params.rows), &params)?;
        }
        Ok(CutRest {
            segments,
            list: list.map(|rows| CutList { rows, wide: totals.wide }),
            listed: wide(listed),
            slots: u64::from(params.first_slot) + u64::from(totals.slots) + u64::from(extra),
        })
    }
}

/// Rows outside of tiles as segments.
pub(in crate::spmm) struct CutRest {
    pub(in crate::spmm) segments: DeviceBuffer<[u32; 4]>,
    /// Rows of cut windows, and those that are cut or summed apart; none if there are neither.
    pub(in crate::spmm) list: Option<CutList>,
    /// How many are cut or summed apart.
    pub(in crate::spmm) listed: u64,
    /// Slots of the workspace.
    pub(in crate::spmm) slots: u64,
}

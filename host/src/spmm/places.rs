//! New values that are on the device already: where each belongs, and the launches that put it there.

use windrow_formats::{Permutation, Value};
use windrow_kernels::Variant;
use windrow_kernels::place_values::{NOWHERE, PlaceValues, PlaceValuesParams, Placing};
use windrow_simt::GlobalPtr;

use super::builder::SpmmBuilder;
use super::gpu::{GpuPlan, start};
use super::groups::GroupsPart;
use super::matricized::MatricizedPart;
use super::parts::{RowSplitPart, TilesPart};
use super::report::{ArraySize, PLACES};
use super::tiles::TilePattern;
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::options::Precision;

/// Where a plan keeps each value, on the device.
pub(super) struct Places {
    /// All values in the order of the entries, rounded: for parts that were laid out on the device, which find their own
    /// there.
    rounded: Option<(Index, DeviceBuffer<u8>)>,
    row_split: Option<Index>,
    short_rows: Option<Index>,
    groups: Option<Index>,
    matricized: Option<Index>,
    tiles: Option<Index>,
    /// How many of the values placed last were finite and are not any more.
    overflowed: DeviceBuffer<u32>,
}

/// How the values of one part are placed.
enum Index {
    /// In the order in which they come.
    None,
    Gather(DeviceBuffer<u32>),
    Scatter(DeviceBuffer<u32>),
}

/// What decides how large the index arrays are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlaceCounts {
    /// Entries of the matrix.
    pub(super) nnz: usize,
    /// Values of row segments, if they are not in the order in which new ones come.
    pub(super) row_split: usize,
    pub(super) short_rows: usize,
    /// Values of groups and of matricised rows, likewise.
    pub(super) groups: usize,
    /// Whether there are tiles that were laid out on the host.
    pub(super) tiles: bool,
    /// For parts that were laid out on the device: bytes of a value, and whether new ones come in another order.
    pub(super) on_device: Option<(u32, bool)>,
}

impl PlaceCounts {
    /// The index arrays, as one, and the counter.
    pub(super) fn size(self) -> ArraySize {
        let tiles = if self.tiles { self.nnz } else { 0 };
        let rounded = self.on_device.map_or(0, |(value_bytes, reordered)| {
            wide(self.nnz) * (u64::from(value_bytes) + if reordered { 4 } else { 0 })
        });
        ArraySize {
            name: PLACES,
            bytes: 4 * wide(self.row_split + self.short_rows + self.groups + tiles + 1) + rounded,
        }
    }
}

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// The order in which new values come: entry `e` of the matrix takes value `order.to_old(e)` of those given to
    /// [`replace_values`](super::SpmmPlan::replace_values) and
    /// [`replace_values_from`](super::SpmmPlan::replace_values_from). In the order of the entries unless told. The values
    /// that the matrix itself has are in their places.
    ///
    /// With the [`transpose_order`](windrow_formats::Csr::transpose_order) of `A` a plan for `Aᵀ` takes values in the
    /// order of `A`'s entries, as backward passes have them.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm};
    ///
    /// let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 3.0, 0.0])?;
    /// let (transposed, order) = (a.transpose()?, a.transpose_order()?);
    /// let mut plan = Spmm::builder(&transposed).value_order(&order).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [31.0, 2.0]);
    /// plan.replace_values(&[5.0f32, 6.0, 7.0])?; // A = [5 6; 7 .]
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [75.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value_order(mut self, order: &'a Permutation) -> Self {
        self.value_order = Some(order);
        self
    }

    /// Makes what [`replace_values_from`](super::SpmmPlan::replace_values_from) needs with the plan, so that the memory
    /// limit counts it and the first replacement takes no longer than others: up to 4 bytes of device memory for each
    /// entry, or 8 where there are tiles and other entries.
    #[must_use]
    pub fn values_from_device(mut self) -> Self {
        self.values_from_device = true;
        self
    }
}

impl GpuPlan {
    /// What [`Places::new`] will allocate.
    pub(super) fn place_counts(&self, nnz: usize, order: Option<&[u32]>) -> PlaceCounts {
        let on_host =
            |part: &&RowSplitPart| !part.is_on_device() && (part.sources().is_some() || order.is_some());
        PlaceCounts {
            nnz,
            row_split: self.row_split.as_ref().filter(on_host).map_or(0, |part| part.col_indices.len()),
            short_rows: self.short_rows.as_ref().map_or(0, |part| part.sources.len()),
            groups: order.map_or(0, |_| {
                let groups = self.groups.as_ref().map_or(0, GroupsPart::len);
                groups + self.matricized.as_ref().map_or(0, MatricizedPart::len)
            }),
            tiles: self.tiles.as_ref().is_some_and(|part| part.pattern().is_some()),
            on_device: self.is_on_device().then_some((self.precision.bytes(), order.is_some())),
        }
    }

    /// Whether parts were laid out on the device.
    fn is_on_device(&self) -> bool {
        self.tiles.as_ref().is_some_and(|part| part.pattern().is_none())
    }

    /// Queues the replacement of all values by `values`, one for each entry, in the order that the places were made for.
    ///
    /// # Safety
    /// `values` are live memory of the plan's device until the work is done, an f32 for each entry, which nothing writes
    /// meanwhile.
    pub(super) unsafe fn place_values(
        &self,
        machine: &dyn Machine,
        places: &Places,
        values: GlobalPtr<f32>,
        nnz: usize,
    ) -> Result<(), DeviceError> {
        places.overflowed.clear()?;
        let mut overflowed = places.overflowed.pointer();
        if let Some((index, rounded)) = &places.rounded {
            let (rounded, dtype) = (rounded.pointer().cast(), self.precision.dtype());
            let params = index.params((self.precision, overflowed), values, (rounded, nnz));
            // SAFETY: the caller's promise; there is room for all values. They are freed after the work that is queued here.
            unsafe {
                launch(machine, &params)?;
                if let Some(part) = &self.row_split {
                    part.replace_from((rounded, dtype))?;
                }
                if let Some(part) = &self.tiles {
                    part.replace_from((rounded, dtype))?;
                }
            }
            overflowed = GlobalPtr::NULL; // all were counted
        }
        let place = |index: &Option<Index>, out: GlobalPtr<u32>, count: usize| {
            let Some(index) = index else { return Ok(()) };
            let params = index.params((self.precision, overflowed), values, (out, count));
            // SAFETY: the caller's promise; the arrays are the plan's, which frees them after the machine's work, and the
            // index was made for them.
            unsafe { launch(machine, &params) }
        };
        if let Some(part) = &self.row_split {
            place(&places.row_split, part.values.pointer().cast(), part.col_indices.len())?;
        }
        if let Some(part) = &self.short_rows {
            place(&places.short_rows, part.values.pointer().cast(), part.sources.len())?;
        }
        if let Some(part) = &self.groups {
            place(&places.groups, part.values.pointer().cast(), part.len())?;
        }
        if let Some(part) = &self.matricized {
            place(&places.matricized, part.values.pointer().cast(), part.len())?;
        }
        if let Some(part) = &self.tiles {
            place(&places.tiles, part.records.pointer(), nnz)?;
        }
        Ok(())
    }
}

impl Places {
    /// For values in the order of the entries, or where entry `e` takes value `order[e]`.
    ///
    /// # Errors
    /// [`SpmmError::TooLarge`] for records with 2³² elements or more.
    pub(super) fn new(
        plan: &GpuPlan,
        device: &Device,
        nnz: usize,
        order: Option<&[u32]>,
    ) -> Result<Self, SpmmError> {
        let gather = |sources: &[u32]| match order {
            None => DeviceBuffer::named(device, sources, PLACES),
            Some(order) => {
                let values: Vec<u32> = sources.iter().map(|&entry| order[entry as usize]).collect();
                DeviceBuffer::named(device, &values, PLACES)
            }
        };
        let rounded = match plan.is_on_device() {
            false => None,
            true => {
                let index = match order {
                    None => Index::None,
                    Some(order) => Index::Gather(DeviceBuffer::named(device, order, PLACES)?),
                };
                let bytes = nnz * plan.precision.bytes() as usize;
                Some((index, DeviceBuffer::alloc(device, bytes, PLACES)?))
            }
        };
        let on_host = plan.row_split.as_ref().filter(|part| !part.is_on_device());
        let row_split = match on_host.map(|part| (part.sources(), order)) {
            None => None,
            Some((None, None)) => Some(Index::None),
            Some((None, Some(order))) => Some(Index::Gather(DeviceBuffer::named(device, order, PLACES)?)),
            Some((Some(sources), _)) => Some(Index::Gather(gather(sources)?)),
        };
        let short_rows = match &plan.short_rows {
            None => None,
            Some(part) => Some(Index::Gather(gather(&part.sources)?)),
        };
        let in_order = |is_there: bool| match (is_there, order) {
            (false, _) => Ok::<_, DeviceError>(None),
            (true, None) => Ok(Some(Index::None)),
            (true, Some(order)) => Ok(Some(Index::Gather(DeviceBuffer::named(device, order, PLACES)?))),
        };
        let groups = in_order(plan.groups.is_some())?;
        let matricized = in_order(plan.matricized.is_some())?;
        let tiles = match plan.tiles.as_ref().and_then(|part| Some((part, part.pattern()?))) {
            None => None,
            Some((part, pattern)) => {
                let places = tile_places((part, pattern), plan.precision, nnz, order)?;
                Some(Index::Scatter(DeviceBuffer::named(device, &places, PLACES)?))
            }
        };
        Ok(Self {
            rounded,
            row_split,
            short_rows,
            groups,
            matricized,
            tiles,
            overflowed: DeviceBuffer::zeroed(device, 1, PLACES)?,
        })
    }

    /// How many of the values placed last were finite and are not any more, after all work asked for before.
    pub(super) fn overflowed(&self) -> Result<u64, DeviceError> {
        Ok(self.overflowed.to_vec()?.first().copied().map_or(0, u64::from))
    }
}

/// Element of the records for each value, in the order in which values come.
fn tile_places(
    (part, pattern): (&TilesPart, &TilePattern),
    precision: Precision,
    nnz: usize,
    order: Option<&[u32]>,
) -> Result<Vec<u32>, SpmmError> {
    let (found, limit) = (part.records.bytes() / u64::from(precision.bytes()), u64::from(NOWHERE));
    if found > limit {
        let (what, remedy) = ("elements of tile records", "replace the values from the host");
        return Err(SpmmError::TooLarge { what, found, limit, remedy });
    }
    let places = pattern.places((part.lookup.form(), precision.dtype()), nnz, NOWHERE);
    Ok(match order {
        None => places,
        Some(order) => {
            let mut of_values = vec![NOWHERE; nnz];
            for (&value, &place) in order.iter().zip(&places) {
                of_values[value as usize] = place;
            }
            of_values
        }
    })
}

impl Index {
    /// Params that place `count` elements of `out`, or, where they are scattered, `count` values.
    fn params(
        &self,
        (precision, overflowed): (Precision, GlobalPtr<u32>),
        values: GlobalPtr<f32>,
        (out, count): (GlobalPtr<u32>, usize),
    ) -> PlaceValuesParams {
        let (placing, index) = match self {
            Self::None => (Placing::InPlace, GlobalPtr::NULL),
            Self::Gather(index) => (Placing::Gather, index.pointer()),
            Self::Scatter(index) => (Placing::Scatter, index.pointer()),
        };
        PlaceValuesParams {
            values,
            index,
            out,
            overflowed,
            count: narrow(count),
            placing: placing.code(),
            dtype: PlaceValues::code(precision.dtype()),
            reserved: 0,
        }
    }
}

/// Queues a launch for these params.
///
/// # Safety
/// They keep their obligations, and what they point to is live memory of the machine until the work is done.
unsafe fn launch(machine: &dyn Machine, params: &PlaceValuesParams) -> Result<(), DeviceError> {
    let missing = DeviceError::MissingEntry { name: "place_values" };
    let entry = windrow_kernels::entry(Variant::PlaceValues).ok_or(missing)?;
    // SAFETY: the caller's promise.
    unsafe { start(machine, entry, u64::from(params.count), 1, params) }
}

/// Copies f32 from one array of a device to another of the same length.
pub(crate) fn copy_on_device(
    machine: &dyn Machine,
    from: &DeviceBuffer<f32>,
    to: &mut DeviceBuffer<f32>,
) -> Result<(), DeviceError> {
    // f32 do not overflow in f32: nothing is counted.
    let (precision, out) = (Precision::F32, to.pointer().cast());
    let count = from.len().min(to.len());
    let params = Index::None.params((precision, GlobalPtr::NULL), from.pointer(), (out, count));
    // SAFETY: both buffers have `count` elements, are of one device, and free their memory after the work queued before;
    // `to` is borrowed for itself.
    unsafe { launch(machine, &params) }
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

//! New values that are on the device already: where each belongs, and the launches that put it there.

use windrow_kernels::Variant;
use windrow_kernels::place_values::{NOWHERE, PlaceValues, PlaceValuesParams, Placing};
use windrow_simt::GlobalPtr;

use super::gpu::{GpuPlan, start};
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
        ArraySize { name: PLACES, bytes: 4 * wide(self.row_split + self.short_rows + tiles + 1) + rounded }
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
            // SAFETY: the caller's promise; there is room for all values. They are freed after the work that is queued here.
            unsafe {
                index.launch(machine, (self.precision, overflowed), values, rounded, nnz)?;
                if let Some(part) = &self.row_split {
                    part.replace_from((rounded, dtype))?;
                }
                if let Some(part) = &self.tiles {
                    part.replace_from((rounded, dtype))?;
                }
            }
            overflowed = GlobalPtr::NULL; // all were counted
        }
        let place = |index: &Option<Index>, out: GlobalPtr<u32>, count: usize| match index {
            None => Ok(()),
            // SAFETY: the caller's promise; the arrays are the plan's and were made for it.
            Some(index) => unsafe { index.launch(machine, (self.precision, overflowed), values, out, count) },
        };
        if let Some(part) = &self.row_split {
            place(&places.row_split, part.values.pointer().cast(), part.col_indices.len())?;
        }
        if let Some(part) = &self.short_rows {
            place(&places.short_rows, part.values.pointer().cast(), part.sources.len())?;
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
    /// Queues the placing of `count` elements, or, where they are scattered, of `count` values.
    ///
    /// # Safety
    /// `out` has an element for every place of the index, `values` a value for each of its sources; both are live
    /// memory of the machine until the work is done.
    unsafe fn launch(
        &self,
        machine: &dyn Machine,
        (precision, overflowed): (Precision, GlobalPtr<u32>),
        values: GlobalPtr<f32>,
        out: GlobalPtr<u32>,
        count: usize,
    ) -> Result<(), DeviceError> {
        let (placing, index) = match self {
            Self::None => (Placing::InPlace, GlobalPtr::NULL),
            Self::Gather(index) => (Placing::Gather, index.pointer()),
            Self::Scatter(index) => (Placing::Scatter, index.pointer()),
        };
        let params = PlaceValuesParams {
            values,
            index,
            out,
            overflowed,
            count: narrow(count),
            placing: placing.code(),
            dtype: PlaceValues::code(precision.dtype()),
            reserved: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { launch(machine, &params) }
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
    let params = PlaceValuesParams {
        values: from.pointer(),
        index: GlobalPtr::NULL,
        out: to.pointer().cast(),
        overflowed: GlobalPtr::NULL,
        count: narrow(from.len().min(to.len())),
        placing: Placing::InPlace.code(),
        dtype: PlaceValues::code(Precision::F32.dtype()),
        reserved: 0,
    };
    // SAFETY: both buffers have `count` elements, are of one device, and free their memory after the work queued before;
    // `to` is borrowed for itself.
    unsafe { launch(machine, &params) }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use windrow_formats::synthetic::seeded_values;
    use windrow_formats::{Csr, Permutation};

    use super::*;
    use crate::partition::{PartitionRule, VectorThreshold};
    use crate::spmm::plan::{Body, SpmmPlan};
    use crate::{Algorithm, Determinism, EmulatorSchedule, Preprocessing, Spmm, SpmmBuilder, TileValues};

    /// Rows of many lengths, some empty, one cut by every algorithm.
    fn pattern() -> Csr<f32> {
        let lengths = [0u64, 3, 1, 900, 0, 17, 64, 2, 2, 2, 40, 5, 1, 0, 8, 130, 7, 33, 0, 1];
        let mut offsets = vec![0u64];
        let mut columns = Vec::new();
        for (row, &len) in (0..).zip(&lengths) {
            let step = 900 / len.max(1);
            columns.extend((0..len).map(|i| u32::try_from(i * step + row % step.max(1)).unwrap()));
            offsets.push(columns.len() as u64);
        }
        let values = vec![1.0; columns.len()];
        Csr::try_from_parts(lengths.len(), 920, offsets, columns, values).unwrap()
    }

    /// Values of every kind that rounds in a way of its own, at the places of the first entries.
    fn values(nnz: usize, seed: u64) -> Vec<f32> {
        let mut values = seeded_values::<f32>(nnz, seed).unwrap();
        let bits = [
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0xffc1_2345,
            0x7fff_ffff,
            0x7f7f_ffff,
            0xff7f_ffff,
            0x0000_0001,
            0x8000_0000,
            0x0080_0000,
            0x3f80_1000,
            0x3f80_3000,
            0x3f80_8000,
            0x3f81_8000,
            0x477f_e000,
            0x477f_f000,
            0x3380_0000,
            0x3300_0000,
            0x3300_0001,
            0x7f7f_8000,
        ];
        for (value, bits) in values.iter_mut().zip(bits) {
            *value = f32::from_bits(bits);
        }
        values
    }

    fn kinds(builder: SpmmBuilder<'_, f32>) -> Vec<SpmmBuilder<'_, f32>> {
        let vectors = PartitionRule::ColumnVectors { threshold: VectorThreshold::ALL[1] };
        let short = PartitionRule::ShortRows { max_entries: 3 };
        let mut kinds = vec![
            builder.clone().algorithm(Algorithm::RowSplit),
            builder.clone().algorithm(Algorithm::ShortRows),
        ];
        for form in [TileValues::Dense, TileValues::Packed] {
            for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
                let builder = builder.clone().precision(precision).tile_values(form).workers(9);
                kinds.push(builder.clone().algorithm(Algorithm::Hybrid).partition(short));
                for place in [Preprocessing::Cpu, Preprocessing::Gpu] {
                    let builder = builder.clone().preprocessing(place);
                    kinds.push(builder.clone().algorithm(Algorithm::TileStream));
                    kinds.push(builder.algorithm(Algorithm::Hybrid).partition(vectors));
                }
            }
        }
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
            kinds.push(builder.clone().precision(precision).algorithm(Algorithm::RowSplit));
            kinds.push(builder.clone().precision(precision).algorithm(Algorithm::ShortRows));
        }
        kinds.push(builder.algorithm(Algorithm::RowSplit).determinism(Determinism::Fast));
        kinds
    }

    /// Every array of the plan that depends on values.
    fn arrays(plan: &SpmmPlan) -> (Vec<u8>, Vec<u8>, Vec<u32>) {
        let Body::Gpu(plan) = &plan.body else { panic!("a machine runs kernels") };
        (
            plan.row_split.as_ref().map_or(vec![], |part| part.values.to_vec().unwrap()),
            plan.short_rows.as_ref().map_or(vec![], |part| part.values.to_vec().unwrap()),
            plan.tiles.as_ref().map_or(vec![], |part| part.records.to_vec().unwrap()),
        )
    }

    fn machines() -> Vec<Device> {
        let mut machines: Vec<Device> = EmulatorSchedule::STANDARD.map(Device::emulator).into();
        machines.extend(Device::cuda(0));
        machines
    }

    fn check(device: &Device, a: &Csr<f32>, order: Option<&Permutation>) {
        let builder = Spmm::builder(a).width(3);
        let builder = match order {
            Some(order) => builder.value_order(order),
            None => builder,
        };
        let (mut parts, mut laid_out_on_device) = ([0; 3], 0);
        for builder in kinds(builder) {
            let mut plan = builder.build(device).unwrap();
            for seed in 0..2 {
                let values = values(a.nnz(), seed);
                plan.replace_values(&values).unwrap();
                let (expected, overflowed) = (arrays(&plan), plan.report().overflowed_values);
                plan.replace_values(&vec![7.0f32; a.nnz()]).unwrap();
                assert_ne!(arrays(&plan), expected, "{plan:?}");
                plan.replace_values_from(&DeviceBuffer::from_slice(device, &values).unwrap()).unwrap();
                assert_eq!(arrays(&plan), expected, "{plan:?}, order given: {}", order.is_some());
                assert_eq!(plan.overflowed_values().unwrap(), overflowed, "{plan:?}");
                assert_eq!(plan.report().overflowed_values, 0, "that of the values from the host");
            }
            let (row_split, short_rows, tiles) = arrays(&plan);
            let sizes = [row_split.len(), short_rows.len(), tiles.len()];
            for (part, size) in parts.iter_mut().zip(sizes) {
                *part += usize::from(size > 0);
            }
            // The same memory whether it was asked for with the plan or is made at the first replacement.
            let early = builder.values_from_device().build(device).unwrap();
            let placed =
                |plan: &SpmmPlan| plan.report().arrays.iter().find(|array| array.name == PLACES).copied();
            assert_eq!(
                (placed(&early), early.report().device_bytes),
                (placed(&plan), plan.report().device_bytes)
            );
            let Body::Gpu(gpu) = &early.body else { panic!("a machine runs kernels") };
            let places = gpu.places.as_ref().expect("made with the plan");
            let bytes = |index: &Option<Index>| match index {
                Some(Index::Gather(index) | Index::Scatter(index)) => index.bytes(),
                Some(Index::None) | None => 0,
            };
            let all = bytes(&places.row_split) + bytes(&places.short_rows) + bytes(&places.tiles);
            let rounded = |(index, values): &(Index, DeviceBuffer<u8>)| {
                values.bytes() + if let Index::Gather(index) = index { index.bytes() } else { 0 }
            };
            let all = all + places.rounded.as_ref().map_or(0, rounded);
            laid_out_on_device += usize::from(places.rounded.is_some());
            assert_eq!(placed(&early).map(|array| array.bytes), Some(all + places.overflowed.bytes()));
        }
        assert!(parts.iter().all(|&plans| plans > 1), "{parts:?} plans have each part");
        assert_eq!(laid_out_on_device, 12);
    }

    #[test]
    fn values_from_the_device_are_placed_as_those_from_the_host() {
        let a = pattern();
        for device in machines() {
            check(&device, &a, None);
        }
    }

    #[test]
    fn values_of_a_matrix_reach_the_plan_of_its_transpose() {
        let a = pattern();
        let (transposed, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
        for device in machines() {
            check(&device, &transposed, Some(&order));
        }
    }
}

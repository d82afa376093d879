//! From a list of coordinates to fibers, where the list is. The kernels are [`windrow_kernels::tensors`].

use windrow_formats::{Value, check_mode_order};
use windrow_kernels::Variant;
use windrow_kernels::csr::{CanonicalParams, ReadCsr};
use windrow_kernels::place_values::code;
use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_kernels::tensors::{Coo3Record, LevelsParams};
use windrow_simt::GlobalPtr;

use super::coo::DeviceCoo3;
use super::csf::DeviceCsf3;
use crate::csr::{DeviceCsr, Key, Ordered, OwnedCsr, given};
use crate::device::{DeviceBuffer, Stream};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{On, check_device};
use crate::sort::Sort;
use crate::spmm::Scratch;

/// What arrays that live until fibers are made are called where there is no memory for them.
const WHAT: &str = "fibers to be made";

impl<V: Value> DeviceCoo3<'_, V> {
    /// Compressed fibers with mode `mode_order[l]` at level `l`, made where the list is: entries are sorted, and those
    /// of one place added in the order in which they came. In the order of a stream: after what that was asked for so
    /// far. The arrays of the list may be written or freed by what that is asked for later.
    ///
    /// The arrays are those of [`Coo3::to_csf`](windrow_formats::Coo3::to_csf) on the host, bit for bit, but for what a
    /// value that is not a number says beside that. f16 and bf16 are added in f32 and rounded after each addition, as
    /// there.
    ///
    /// # Cost
    /// On a GPU three stable sorts, by leaf, fiber and root, of three launches for each nine bits of a coordinate, some
    /// kernels that are linear in the entries, and a wait for a few numbers; 44 to 56 bytes for each entry until it is
    /// done. A place with many entries is one thread's. On the CPU, of a list without entries or with 2³¹, it is made
    /// on the host.
    ///
    /// # Errors
    /// - [`PlanError::Format`]: [`FormatError::ModeOrder`](windrow_formats::FormatError::ModeOrder) unless
    ///   `mode_order` holds 0, 1 and 2 once each;
    /// - those of [`checked`](Self::checked); [`DeviceError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCoo3};
    ///
    /// let device = Device::best()?;
    /// let entries = [([1, 2, 0], 4.0f32), ([0, 0, 1], 1.0), ([1, 2, 0], 0.5)];
    /// let a = Coo3::from_entries([2, 3, 2], entries)?;
    /// let fibers = DeviceCoo3::from_host(&device, &a)?.to_csf([2, 0, 1], &device.stream())?;
    /// assert_eq!(fibers.to_host(&device.stream())?, a.to_csf([2, 0, 1])?);
    /// assert_eq!(fibers.summed_duplicates(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_csf(&self, mode_order: [usize; 3], on: &Stream) -> Result<DeviceCsf3<V>, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        check_mode_order(mode_order)?;
        if let Some(why) = self.made_on_host() {
            let fibers = self.to_host(on)?.to_csf(mode_order)?;
            return Ok(DeviceCsf3 { of_copy: Some(why), ..DeviceCsf3::from_host(&self.device, &fibers)? });
        }
        let on = On::of(on, &self.device, false)?;
        on.before_own()?;
        let made = self.csf_there(&on, mode_order);
        // Whoever writes or frees the arrays in the order of the stream does so after they were read.
        let ordered = on.after_own();
        let made = made?;
        ordered?;
        Ok(made)
    }

    /// Why fibers are made on the host, if they are.
    pub(super) fn made_on_host(&self) -> Option<&'static str> {
        match () {
            () if self.device.machine().is_none() => Some("the plan runs there"),
            () if self.nnz == 0 => Some("it has no entries"),
            () if self.nnz >= index(u64::from(MOST_ITEMS - ReadCsr::PER_BLOCK)) => Some("it has 2³¹ entries"),
            () if given::<V>().is_none() => Some("kernels do not read values of its type"),
            () => None,
        }
    }

    fn csf_there(&self, on: &On<'_>, mode_order: [usize; 3]) -> Result<DeviceCsf3<V>, PlanError> {
        let (device, nnz, coordinates) = (&self.device, self.nnz, self.coordinates());
        let bits = mode_order.map(|mode| Sort::bits_below(self.dims[mode]));
        let wide_modes = wide(coordinates.iter().filter(|of_mode| of_mode.is_wide()).count());
        let words = Ordered::words(nnz, bits) + (5 + wide_modes) * wide(nnz);
        // The ends of arrays, and sums of scans.
        let scratch = Scratch::new(device, 4 * (words + words / 128) + (1 << 13))?;
        let record = DeviceBuffer::<Coo3Record>::zeroed(device, 1, "a record of a tensor")?;

        // 1. Coordinates in range, in 32 bits.
        let mut narrowed = [GlobalPtr::NULL; 3];
        for (to, of_mode) in narrowed.iter_mut().zip(&coordinates) {
            if of_mode.is_wide() {
                *to = scratch.array(nnz, WHAT)?;
            }
        }
        self.read(&scratch, narrowed, &record)?;
        let [roots, fibers, leaves] = mode_order.map(|mode| match coordinates[mode].is_wide() {
            true => narrowed[mode],
            false => GlobalPtr::from_address(coordinates[mode].address()),
        });

        // 2. The order of the tree. Coordinates that are none are sorted by their low bits, which nobody sees.
        let [by_root, by_fiber, by_leaf] = [(roots, bits[0]), (fibers, bits[1]), (leaves, bits[2])]
            .map(|(indices, bits)| Key { indices, words: 1, bits });
        // SAFETY: there are as many coordinates of each mode, in memory that lives as long as the tensor, or the
        // scratch memory.
        let Ordered { order, sorted } =
            unsafe { Ordered::by(&scratch, &**on.machine.own(), [by_leaf, by_fiber, by_root], nnz)? };

        // 3. Where roots, fibers and entries begin.
        let array = || scratch.array::<u32>(nnz + 1, WHAT);
        let params = LevelsParams {
            order,
            roots: sorted,
            fibers,
            leaves,
            marks: [array()?, array()?, array()?],
            record: record.pointer(),
            root_indices: GlobalPtr::NULL,
            root_offsets: GlobalPtr::NULL,
            fiber_indices: GlobalPtr::NULL,
            fiber_begins: GlobalPtr::NULL,
            entries: narrow(nnz),
            reserved: 0,
        };
        let [of_roots, of_fibers, of_entries] = params.marks;
        let places = array()?;
        // SAFETY: the arrays have an element for each entry, and one more for sums, which may take the place of what is
        // added up.
        unsafe {
            scratch.launch(Variant::MarkPaths, wide(nnz), &params)?;
            for (marks, sums) in [(of_roots, of_roots), (of_fibers, of_fibers), (of_entries, places)] {
                scratch.scan(marks, narrow(nnz), false, sums)?;
            }
        }

        // 4. Room for as many, and the arrays.
        let Coo3Record { levels, .. } = self.found(&record)?;
        let marked = Marked { params, places };
        Ok(self.write_levels(&scratch, marked, levels.map(|count| count as usize), mode_order)?)
    }

    /// Writes as many roots, fibers and entries as were counted.
    fn write_levels(
        &self,
        scratch: &Scratch,
        Marked { params, places }: Marked,
        [roots, fibers, entries]: [usize; 3],
        mode_order: [usize; 3],
    ) -> Result<DeviceCsf3<V>, DeviceError> {
        let device = &self.device;
        let root_indices = DeviceBuffer::alloc(device, roots, "root_indices")?;
        let root_offsets = DeviceBuffer::alloc(device, roots + 1, "root_offsets")?;
        let fiber_indices = DeviceBuffer::alloc(device, fibers, "fiber_indices")?;
        let offsets = DeviceBuffer::<u64>::alloc(device, fibers + 1, "fiber_offsets")?;
        let columns = DeviceBuffer::<u32>::alloc(device, entries, "leaf_indices")?;
        let values = DeviceBuffer::<V>::alloc(device, entries, "values")?;
        let levels = LevelsParams {
            root_indices: root_indices.pointer(),
            root_offsets: root_offsets.pointer(),
            fiber_indices: fiber_indices.pointer(),
            fiber_begins: scratch.array(fibers + 1, WHAT)?,
            ..params
        };
        let address = |values: u64| GlobalPtr::from_address(values);
        let sums = CanonicalParams {
            order: params.order,
            rows: GlobalPtr::NULL,
            columns: params.leaves,
            values: self.values().map_or(GlobalPtr::NULL, |values| address(values.address())),
            marks: params.marks[2],
            places,
            offsets: levels.fiber_begins,
            out_offsets: offsets.pointer(),
            out_columns: columns.pointer(),
            out_values: values.pointer().cast(),
            entries: params.entries,
            row_count: narrow(fibers),
            column_words: 1,
            wide_offsets: 0,
            given: given::<V>().map_or(0, code), // all tensors here have a type that kernels take
            reserved: 0,
        };
        // SAFETY: marks and sums are those of the entries, whose coordinates were checked; there is room for all that
        // was counted, and the beginnings of fibers are written before they are read.
        unsafe {
            scratch.launch(Variant::ListLevels, wide(self.nnz) + 1, &levels)?;
            scratch.launch(Variant::SumEntries, wide(self.nnz.max(fibers + 1)), &sums)?;
        }
        let rows = OwnedCsr { offsets, columns, values: Some(values) };
        Ok(DeviceCsf3 {
            dims: self.dims,
            mode_order,
            root_indices,
            root_offsets,
            fiber_indices,
            rows: DeviceCsr::of_owned((fibers, self.dims[mode_order[2]]), rows, None),
            summed_duplicates: wide(self.nnz - entries),
            of_copy: None,
        })
    }
}

/// Entries in the order of the tree, and where levels begin.
struct Marked {
    params: LevelsParams,
    /// Entries of different places before each.
    places: GlobalPtr<u32>,
}

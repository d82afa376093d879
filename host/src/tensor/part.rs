//! The entries of a tensor as a part of a plan: rows of entries in groups of threads, each entry with two factors.

use windrow_formats::OutOfMemory;
use windrow_kernels::{Dtype, Entry, Variant};

use super::received::ReceivedSlices;
use super::slices::Slices;
use crate::device::{ArrayMemory, Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::wide;
use crate::options::Determinism;
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, push};
use crate::spmm::{
    CutRows, DenseOperands, Groups, GroupsLayout, GroupsPart, Layout, Operation, Part, Placement,
    ReceivedGroups, RowEntries, ValueSlots, padded_indices, read_array,
};

/// The slices of a tensor, divided by their entries, before upload or where they are.
pub(super) struct MttkrpLayout {
    groups: Box<dyn Groups>,
    leaves: Leaves,
}

/// Row of the second factor for each entry, and zeros behind.
enum Leaves {
    OnHost(Vec<u32>),
    OnDevice(DeviceBuffer<u32>),
}

impl MttkrpLayout {
    /// The arrays for a point that divides entries, and the slices that are cut.
    pub(super) fn new(
        slices: &Slices,
        point: AtomicParallelism,
        launch: GroupLaunch,
        determinism: Determinism,
        dtype: Dtype,
    ) -> Result<(Self, CutRows), OutOfMemory> {
        let rows = RowEntries { offsets: &slices.offsets, columns: &slices.fibers };
        let (groups, cut) = GroupsLayout::of_rows(rows, point, launch, determinism, dtype)?;
        let leaves = Leaves::OnHost(padded_indices(&slices.leaves)?);
        Ok((Self { groups: Box::new(groups), leaves }, cut))
    }

    /// The same of slices that are on a device, for a point that [kernels divide by](crate::spmm::made_on_host).
    pub(super) fn of_received(
        device: &Device,
        ReceivedSlices { rows, leaves }: ReceivedSlices,
        point: AtomicParallelism,
        launch: GroupLaunch,
        determinism: Determinism,
    ) -> Result<(Self, CutRows), DeviceError> {
        let (groups, cut) = ReceivedGroups::of_rows(device, rows, point, launch, determinism)?;
        Ok((Self { groups: Box::new(groups), leaves: Leaves::OnDevice(leaves) }, cut))
    }
}

impl Layout for MttkrpLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        self.groups.arrays(sizes);
        let leaves = match &self.leaves {
            Leaves::OnHost(leaves) => 4 * wide(leaves.len()),
            Leaves::OnDevice(leaves) => leaves.bytes(),
        };
        push(sizes, "leaf_indices", leaves);
    }

    fn placement(&self) -> Placement {
        self.groups.placement()
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        Ok(Box::new(MttkrpPart {
            groups: self.groups.upload_groups(memory, values)?,
            leaves: match self.leaves {
                Leaves::OnHost(leaves) => memory.array(&leaves, "leaf_indices")?,
                Leaves::OnDevice(leaves) => leaves,
            },
        }))
    }
}

/// The slices of a tensor in device memory; columns of entries are rows of `B`.
struct MttkrpPart {
    groups: GroupsPart,
    /// Row of `C` of each entry.
    leaves: DeviceBuffer<u32>,
}

impl Part for MttkrpPart {
    fn name(&self) -> &'static str {
        "mttkrp"
    }

    fn entry(&self, _: Operation) -> Option<&'static Entry> {
        let (point, dtype) = (self.groups.point(), self.groups.dtype());
        let (each, columns) = (point.nonzeros_per_thread().unwrap_or(1), point.columns_per_thread());
        // Four entries of four columns in f64 are more than a thread has registers for.
        let most = [4, 2, 1].into_iter().filter(|&at_once| at_once <= each);
        most.filter_map(|at_once| windrow_kernels::entry(Variant::Mttkrp { dtype, at_once, columns })).next()
    }

    fn most_columns(&self) -> u32 {
        self.groups.most_columns()
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise about the operands; the leaves are those of a valid tensor, whose mode has the
        // rows of the second factor, and they are padded.
        unsafe { self.groups.launch_factors(stream, entry, operands, Some(self.leaves.pointer())) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.groups.replace_values(values)
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        self.groups.value_slots()
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = self.groups.read_arrays()?;
        arrays.push(read_array("leaf_indices", &self.leaves)?);
        Ok(arrays)
    }
}

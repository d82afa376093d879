//! What an algorithm is to a plan: a [`Layout`] of the matrix, or of a part of it, and once that is on a device a
//! [`Part`], whose kernels can be started.
//!
//! A plan has one part, or two whose rows or entries complete each other. Every row of `C` is written by exactly one of
//! them; the other may add to it, earlier launches having written it. What a part has cut it leaves to the plan: the
//! lists of [`CutRows`], whose sums the plan's workspace holds and adds up.

use std::sync::Arc;

use windrow_formats::OutOfMemory;
use windrow_kernels::dense::Dense;
use windrow_kernels::{Dtype, Entry};
use windrow_simt::GlobalPtr;

use crate::device::{ArrayMemory, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::wide;
use crate::options::TileValues;
use crate::parallelism::{GroupLaunch, IllegalPoint};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, MAX_BLOCK_COLUMNS, RoundedValues, Scheduling};
use crate::predict::PanelCounts;

/// Name of the array that says where new values go, which products do not read.
pub(super) const PLACES: &str = "value_places";

/// What decides the entry of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Columns of `B` and `C`.
    pub(crate) n: u32,
    /// Whether rows of `B`, or columns of a column-major one, are aligned to 16 bytes.
    pub(crate) vectors: bool,
    /// Whether columns of `B` are contiguous.
    pub(crate) column_major: bool,
}

/// The dense matrices of a launch.
#[derive(Clone, Copy)]
pub(crate) struct DenseOperands {
    /// `B`, `C` and the workspace, at the first column of the launch.
    pub(crate) dense: Dense,
    /// Whether columns of `B` are contiguous.
    pub(crate) column_major: bool,
    /// Whether rows may be read up to the end of the 16 bytes that their last element is in.
    pub(crate) reads_vectors: bool,
    /// The other factor of entries that have two, likewise.
    pub(crate) second: Option<SecondFactor>,
}

/// A second dense factor: the address of its first element, and its leading dimension in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecondFactor {
    pub(crate) address: u64,
    pub(crate) ld: u32,
}

/// An algorithm's arrays before upload.
pub(crate) trait Layout {
    /// Adds the arrays in device memory to a list.
    fn arrays(&self, sizes: &mut Vec<ArraySize>);

    /// Bytes that stay on the host for new values.
    fn host_bytes(&self) -> u64 {
        0
    }

    /// How the values lie, compared to those of the matrix.
    fn placement(&self) -> Placement;

    /// Brings the arrays to memory of the device, with these values in CSR order.
    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError>;
}

/// An algorithm's arrays in device memory, and its kernels.
pub(crate) trait Part: Send + Sync {
    /// Whose kernels they are, for errors.
    fn name(&self) -> &'static str;

    /// The kernel for an operation. None is a mistake, of which no plan is made: decisions keep to what has kernels.
    fn entry(&self, operation: Operation) -> Option<&'static Entry>;

    /// Whether Tensor Cores multiply, whose rounding is not that of a fused multiply-add.
    fn on_tensor_cores(&self) -> bool {
        false
    }

    /// Whether there are kernels for a column-major `B`.
    fn takes_column_major(&self) -> bool {
        false
    }

    /// Columns of one launch, at most.
    fn most_columns(&self) -> u32 {
        MAX_BLOCK_COLUMNS
    }

    /// Starts the kernel that [`entry`](Self::entry) named for the operation.
    ///
    /// # Safety
    /// The operands are live memory of the stream's machine until the work is done, and have the shapes, element
    /// types and alignment that the entry was chosen for; `C` may be written, and nothing else touches it meanwhile.
    /// The workspace has the slots that the layout's cut rows name, and no other run uses it. Rows to which the part
    /// adds were written by launches that come before in the stream.
    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError>;

    /// Puts new values in the places of the old: those of the matrix in CSR order.
    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError>;

    /// Where the values are, for new ones that are on the device.
    fn value_slots(&self) -> ValueSlots<'_>;

    /// The same for a part that [finds its own](ValueSlots::OnDevice): takes them from all values of the matrix,
    /// which are rounded and on the device, in the order of the queue.
    ///
    /// # Safety
    /// `values` are live memory until the work is done, one for each entry, which nothing writes meanwhile.
    unsafe fn replace_from(&self, queue: &Arc<dyn Queue>, values: RoundedValues) -> Result<(), DeviceError> {
        let _ = (queue, values);
        Ok(())
    }

    /// The kernel of [`replace_from`](Self::replace_from) for values of this type; none where the part does not find
    /// its own.
    fn replacing(&self, dtype: Dtype) -> Option<&'static Entry> {
        let _ = dtype;
        None
    }

    /// Takes another launch of the same division of work, and says how it is described; none for a part without such.
    fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<Option<String>, IllegalPoint> {
        let _ = launch;
        Ok(None)
    }

    /// Name and content of each array, read back.
    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError>;
}

/// When the launch of a part comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Before the launches of all other parts.
    First,
    /// Beside those of the main part, in the other stream.
    Beside,
    /// With the main part.
    Main,
    /// After the main part and the sums of its windows, whose rows of `C` it adds to.
    Last,
}

/// How the values of a part lie, compared to those of the matrix in CSR order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All of them in this order, so many.
    InOrder(usize),
    /// So many of them, in another order.
    Gathered(usize),
    /// Each somewhere, among other things.
    Scattered,
    /// Only the device knows.
    OnDevice,
}

impl Placement {
    /// Numbers of an index for values that come from the device, of a matrix with `nnz` entries, in the order of
    /// these or not.
    fn index_len(self, nnz: usize, reordered: bool) -> usize {
        match self {
            Self::InOrder(count) if reordered => count,
            Self::InOrder(_) | Self::OnDevice => 0,
            Self::Gathered(count) => count,
            Self::Scattered => nnz,
        }
    }
}

/// Where the values of a part are in device memory.
pub(crate) enum ValueSlots<'a> {
    /// Value `i` of `count` is that of entry `i`.
    InOrder { out: GlobalPtr<u32>, count: usize },
    /// Value `i` is that of entry `sources[i]`.
    Gathered { out: GlobalPtr<u32>, sources: &'a [u32] },
    /// The value of each entry is one of so many `elements`.
    Scattered {
        out: GlobalPtr<u32>,
        elements: u64,
        /// The element of each of `nnz` entries, the second number for an entry that has none.
        places: Box<dyn Fn(usize, u32) -> Result<Vec<u32>, OutOfMemory> + 'a>,
    },
    /// The part finds them: [`Part::replace_from`].
    OnDevice,
}

impl ValueSlots<'_> {
    pub(super) fn placement(&self) -> Placement {
        match self {
            Self::InOrder { count, .. } => Placement::InOrder(*count),
            Self::Gathered { sources, .. } => Placement::Gathered(sources.len()),
            Self::Scattered { .. } => Placement::Scattered,
            Self::OnDevice => Placement::OnDevice,
        }
    }
}

/// The index arrays for values from the device, as one, and the counter of overflows: for values of so many bytes that
/// come in the order of the entries, or not.
pub(super) fn places_size(
    placements: impl Iterator<Item = Placement> + Clone,
    nnz: usize,
    value_bytes: u32,
    reordered: bool,
) -> ArraySize {
    let index: usize = placements.clone().map(|placement| placement.index_len(nnz, reordered)).sum();
    // Rounded values of all entries, and their order, for parts that find their own.
    let each = u64::from(value_bytes) + if reordered { 4 } else { 0 };
    let rounded = if placements.clone().any(|p| p == Placement::OnDevice) { wide(nnz) * each } else { 0 };
    ArraySize { name: PLACES, bytes: 4 * wide(index + 1) + rounded }
}

/// A matrix laid out, before upload.
#[derive(Default)]
pub(crate) struct LaidOut<'a> {
    /// Those on CUDA cores first.
    pub(crate) parts: Vec<(Turn, Box<dyn Layout + 'a>)>,
    pub(crate) cut: CutRows,
    pub(crate) facts: LayoutFacts,
}

impl<'a> LaidOut<'a> {
    /// One part, and what it has cut.
    pub(crate) fn one(layout: impl Layout + 'a, cut: CutRows, facts: LayoutFacts) -> Self {
        Self { parts: vec![(Turn::Main, Box::new(layout))], cut, facts }
    }

    /// Adds a part on CUDA cores.
    pub(crate) fn add(&mut self, turn: Turn, layout: impl Layout + 'a) {
        self.parts.insert(0, (turn, Box::new(layout)));
    }

    /// The arrays of all parts and the lists of what was cut.
    pub(crate) fn arrays(&self) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        self.parts.iter().for_each(|(_, part)| part.arrays(&mut sizes));
        crate::plan::push(&mut sizes, "split_rows", self.cut.list_bytes());
        sizes
    }

    /// Bytes that stay on the host for new values.
    pub(super) fn host_bytes(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.host_bytes()).sum()
    }

    /// Size of the array of [`places_size`] for the places of all parts.
    pub(super) fn places_size(&self, nnz: usize, value_bytes: u32, reordered: bool) -> ArraySize {
        places_size(self.parts.iter().map(|(_, part)| part.placement()), nnz, value_bytes, reordered)
    }
}

/// What was cut, whose partial sums are added: `[row, first_slot, count, stride]`, those with many sums first.
#[derive(Debug, Default)]
pub(crate) struct CutRows {
    /// Rows of cut windows.
    pub(crate) windows: Vec<[u32; 4]>,
    /// Rows outside of tiles that were cut.
    pub(crate) rows: Vec<[u32; 4]>,
    /// Rows of the workspace, which cut windows have before cut rows.
    pub(crate) slot_rows: u64,
    /// Instead of both lists, both in device memory: the rows of cut windows, and behind them cut rows that kernels
    /// have listed.
    pub(crate) on_device: Option<CutList>,
}

/// Rows of cut windows and cut rows in device memory, of each those with many sums first.
#[derive(Debug)]
pub(crate) struct CutList {
    pub(crate) rows: DeviceBuffer<[u32; 4]>,
    /// Cut rows with many sums.
    pub(crate) wide: u32,
}

impl CutRows {
    fn list_bytes(&self) -> u64 {
        match &self.on_device {
            Some(list) => list.rows.bytes(),
            None => 16 * wide(self.windows.len() + self.rows.len()),
        }
    }

    /// Rows that are cut, of a division that cuts no windows.
    pub(crate) fn row_count(&self) -> u64 {
        self.on_device.as_ref().map_or(wide(self.rows.len()), |list| wide(list.rows.len()))
    }

    /// Whether nothing was cut.
    pub(super) fn is_empty(&self) -> bool {
        self.list_bytes() == 0
    }
}

/// What a layout is, in numbers: for the report and for predicted times.
#[derive(Debug, Default)]
pub(crate) struct LayoutFacts {
    /// Rows and entries on CUDA cores.
    pub(super) scalar_rows: u64,
    pub(super) scalar_entries: u64,
    /// As in the report.
    pub(super) segments: u64,
    pub(super) split: u64,
    pub(crate) split_rows: u64,
    pub(super) windows: u64,
    pub(super) tiles: u64,
    pub(super) steps: u64,
    pub(super) workers: u64,
    pub(super) column_vectors: u64,
    pub(super) panels: PanelCounts,
    pub(super) gather_places: u64,
    pub(super) residual_rows: u64,
    pub(super) rows_in_both: u64,
    pub(super) tile_share: f64,
    pub(super) mma_count: u64,
    pub(crate) parallelism: Option<String>,
    pub(super) scheduling: Option<Scheduling>,
    /// The form that values of tiles have, and why.
    pub(super) tile_values: Option<(TileValues, String)>,
    /// Whether the GPU laid the matrix out; why, or why not.
    pub(super) on_gpu: bool,
    pub(super) place: Option<String>,
    /// Why it is not the layout that was decided on.
    pub(super) instead: Option<String>,
}

//! A plan of MTTKRP on a machine that runs kernels.

use std::sync::{Mutex, PoisonError};

use windrow_kernels::dense::Dense;
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::{DeviceBuffer, Machine};
use crate::error::DeviceError;
use crate::options::{Determinism, Precision};
use crate::parallelism::AtomicParallelism;
use crate::spmm::{Bits, GroupsPart, MAX_GROUP_COLUMNS, SecondFactor, SplitPart};

/// The arrays of a plan in device memory, and its entries.
pub(super) struct GpuMttkrp {
    pub(super) precision: Precision,
    pub(super) determinism: Determinism,
    /// Slices; columns of entries are rows of `B`.
    pub(super) groups: GroupsPart,
    /// Row of `C` of each entry.
    pub(super) leaves: DeviceBuffer<u32>,
    pub(super) split: Option<SplitPart>,
    pub(super) kernels: Kernels,
    /// Columns of the workspace, a multiple of 8.
    pub(super) capacity: u32,
    /// Whether sums of a run may be left in the workspace: one that failed half-way leaves it so. Held while the launches of
    /// a run are queued, which share the workspace.
    pub(super) unfinished: Mutex<bool>,
}

/// The entries that a plan launches, found once.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    product: &'static Entry,
    combine: &'static Entry,
}

impl Kernels {
    /// Those of a point that divides nonzeros.
    pub(super) fn of(precision: Precision, point: AtomicParallelism) -> Result<Self, DeviceError> {
        let at_once = point.nonzeros_per_thread().unwrap_or(1).min(4);
        let product =
            Variant::Mttkrp { dtype: precision.dtype(), at_once, columns: point.columns_per_thread() };
        let entry = |variant, name| windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name });
        Ok(Self {
            product: entry(product, "mttkrp_nonzero_groups")?,
            combine: entry(Variant::Combine, "spmm_combine")?,
        })
    }
}

/// The dense operands of a run: addresses, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub(super) b: u64,
    pub(super) ldb: u32,
    pub(super) c: u64,
    pub(super) ldc: u32,
    pub(super) y: u64,
    pub(super) ldy: u32,
    pub(super) n: u32,
    pub(super) alpha: f32,
    pub(super) beta: f32,
    pub(super) y_is_half: bool,
}

impl GpuMttkrp {
    /// Queues `Y ← α·A·(B ⊙ C) + β·Y`, in blocks of columns.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `b` and `c` have the rows of their modes and
    /// `y` that of the slices, all n columns, `b` and `c` of the plan's element type and `y` of that which `y_is_half`
    /// tells, with all rows readable up to their leading dimensions; nothing else touches `y` meanwhile, nothing writes
    /// `b` or `c`.
    pub(super) unsafe fn run(&self, machine: &dyn Machine, operands: Operands) -> Result<(), DeviceError> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Determinism::Fast, Some(split)) = (*unfinished, self.determinism, &self.split) {
            split.clear()?; // what is accumulated must begin at zero
        }
        *unfinished = true;
        let block = if self.split.is_some() { self.capacity } else { MAX_GROUP_COLUMNS };
        let mut first = 0;
        while first < operands.n {
            let dense = self.dense(&operands, first, block.min(operands.n - first));
            let matrix = operands.c + u64::from(first) * u64::from(self.precision.bytes());
            let second = SecondFactor { indices: self.leaves.pointer(), matrix, ld: operands.ldc };
            // SAFETY: the caller's promise, for these columns of it. The indices are those of a valid tensor, and padded. Cut
            // slices were written by the launch before their sums are added.
            unsafe {
                self.groups.launch_factors(machine, self.kernels.product, dense, Some(second))?;
                if let Some(split) = &self.split {
                    split.launch(machine, self.kernels.combine, dense, split.cut_rows)?;
                }
            }
            first += dense.n;
        }
        *unfinished = false;
        Ok(())
    }

    /// Columns `first..first + n` of the operands.
    fn dense(&self, operands: &Operands, first: u32, n: u32) -> Dense {
        let y_bytes = if operands.y_is_half { 2 } else { 4 };
        let y = operands.y + u64::from(first) * y_bytes;
        Dense {
            b: GlobalPtr::from_address(operands.b + u64::from(first) * u64::from(self.precision.bytes())),
            c: GlobalPtr::from_address(y),
            partial: self.split.as_ref().map_or(GlobalPtr::NULL, |split| split.partial.pointer()),
            n,
            ldb: operands.ldb,
            ldc: operands.ldy,
            ld_partial: self.capacity,
            alpha: operands.alpha,
            beta: operands.beta,
            c_is_half: u32::from(operands.y_is_half),
            c_vectors: u32::from(y.is_multiple_of(4 * y_bytes) && operands.ldy.is_multiple_of(4)),
            accumulate: u32::from(self.determinism == Determinism::Fast),
            reserved: 0,
        }
    }

    /// The entries that a run launches.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let combine = self.split.as_ref().map(|_| self.kernels.combine.name);
        [self.kernels.product.name].into_iter().chain(combine).collect()
    }

    /// New values in the order of the tensor's entries.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.groups.replace_values(values)
    }
}

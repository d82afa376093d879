//! What a plan of MTTKRP is, what it holds and what it cost to make.

use std::fmt;

use crate::device::DeviceKind;
use crate::options::{Determinism, Precision, Preprocessing};
use crate::plan::{ArraySize, StageTime, total_us, write_arrays, write_stages};

/// What a plan of MTTKRP is, what it holds and what it cost to make. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct MttkrpReport {
    /// Dimensions of the tensor in the order of the levels: rows of `Y`, of `B` and of `C`.
    pub dims: [usize; 3],
    /// The mode at each level; `Y` is for the first.
    pub mode_order: [usize; 3],
    /// Entries of the tensor.
    pub nnz: usize,
    /// Fibers of the tensor.
    pub fibers: usize,
    /// Slices without an entry, whose rows of `Y` become `β·Y`.
    pub empty_slices: u64,
    /// The width that the plan was made for. Any other can be run.
    pub width: usize,
    /// Type of the values and of the factors.
    pub precision: Precision,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// Whether two runs give the same bits.
    pub determinism: Determinism,
    /// The point of Sgap's space that divides the work, and its launch, `<groupSz, blockSz, tileSz, workerDimR>`;
    /// none on the CPU.
    pub parallelism: Option<String>,
    /// Entry points that a run launches; empty on the CPU.
    pub entries: Vec<&'static str>,
    /// Where the tensor was laid out: on the CPU or on the GPU.
    pub preprocessing: Preprocessing,
    /// Why it was laid out there.
    pub preprocessing_reason: String,
    /// Slices that lie in more than one group of entries, with partial sums added in a second pass.
    pub split_slices: u64,
    /// Arrays in device memory, workspace included.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// The part of it that is workspace for partial sums.
    pub workspace_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl MttkrpReport {
    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }
}

impl fmt::Display for MttkrpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([i, k, l], [mode, ..]) = (self.dims, self.mode_order);
        writeln!(f, "tensor         {i} × {k} × {l}, {} entries in {} fibers", self.nnz, self.fibers)?;
        writeln!(f, "slices         of mode {mode}, {} empty", self.empty_slices)?;
        writeln!(f, "device         {}", self.device)?;
        if let Some(point) = &self.parallelism {
            writeln!(f, "parallelism    {point}")?;
        }
        writeln!(f, "precision      {}, {}", self.precision, self.determinism)?;
        if !self.entries.is_empty() {
            writeln!(f, "entries        {} (width {})", self.entries.join(", "), self.width)?;
            writeln!(f, "cut            {} slices", self.split_slices)?;
        }
        let of_memory = format!(", {} of them workspace", self.workspace_bytes);
        write_arrays(f, self.device_bytes, &of_memory, &self.arrays)?;
        let place = self.preprocessing.to_string().to_uppercase();
        write_stages(f, &format!(" on the {place} ({})", self.preprocessing_reason), &self.stages)
    }
}

//! What a plan of sampled products is, what it holds and what it cost to make.

use std::fmt;

use super::options::{SddmmAlgorithm, SddmmForm, SddmmGroup};
use crate::device::DeviceKind;
use crate::num::real;
use crate::options::{Precision, Preprocessing, Rates};
use crate::plan::{ArraySize, Scheduling, StageTime, total_us, write_arrays, write_stages};
use crate::predict::weigh::Candidate;

/// What a plan of sampled products is, what it holds and what it cost to make. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SddmmReport {
    /// Rows of the pattern, and of `X`.
    pub rows: usize,
    /// Columns of the pattern, rows of `Y`.
    pub cols: usize,
    /// Entries of the pattern.
    pub nnz: usize,
    /// The inner dimension that the plan was made for. Any other can be run.
    pub inner: usize,
    /// Type of `X` and `Y`.
    pub precision: Precision,
    /// The precision asked for: tf32 may be served by kernels of f32, which are more exact, where these are predicted
    /// to be quicker.
    pub requested_precision: Precision,
    /// What the stored values are for.
    pub form: SddmmForm,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// The algorithm asked for.
    pub requested: SddmmAlgorithm,
    /// The algorithm that the plan uses.
    pub algorithm: SddmmAlgorithm,
    /// Why it uses that one.
    pub reason: String,
    /// The paths whose predicted times decided that, the quickest first; none where something else did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weighed: Vec<Candidate>,
    /// Where the pattern was laid out: on the CPU or on the GPU.
    pub preprocessing: Preprocessing,
    /// Why it was laid out there.
    pub preprocessing_reason: String,
    /// How the launches of the two parts of a hybrid follow each other; none for plans with one part, and on the CPU.
    pub scheduling: Option<Scheduling>,
    /// Entry points that a run of the plan's inner dimension with aligned operands launches; empty on the CPU.
    pub entries: Vec<&'static str>,
    /// Tiles of 8 rows × 16 columns.
    pub tiles: u64,
    /// Rows of `Y` that the tiles gather.
    pub column_vectors: u64,
    /// Rows of `X` that the tiles read: 8 for each window that has tiles.
    pub window_rows: u64,
    /// Batches of entries on CUDA cores.
    pub batches: u64,
    /// Rows of `Y` that panels bring to shared memory: one for each distinct column of a panel, for
    /// [`SddmmAlgorithm::RowPanels`]; else 0.
    pub panel_columns: u64,
    /// What groups of four rows of the panels have in these columns: vectors of one to four entries.
    pub panel_vectors: u64,
    /// Groups of threads that share entries, for [`SddmmAlgorithm::Groups`]; none for others, and on the CPU.
    pub group: Option<SddmmGroup>,
    /// Share of the entries that Tensor Cores compute.
    pub tile_share: f64,
    /// Share of the places of the tiles that hold an entry: how much of what Tensor Cores compute is kept.
    pub utilisation: f64,
    /// Arrays in device memory.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl SddmmReport {
    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }

    /// Bytes of `X` and `Y` gathered by a product of inner dimension `inner`: for tiles a row of `Y` a column vector
    /// and a row of `X` a slot of a window; for panels a row of `Y` a distinct column of a panel and each row of `X`;
    /// else on CUDA cores a row of `Y` an entry and a row of `X` a batch.
    #[must_use]
    pub fn gathered_bytes(&self, inner: usize) -> f64 {
        let scalar = match self.panel_columns {
            0 => real(self.nnz as u64) * (1.0 - self.tile_share),
            columns => real(columns) + real(self.rows as u64),
        };
        let rows = scalar + real(self.batches) + real(self.column_vectors) + real(self.window_rows);
        rows * real(inner as u64) * f64::from(self.precision.bytes())
    }

    /// Lower bound for the time of a product, in microseconds:
    ///
    /// ```text
    /// max( (bytes(A) + bytes(X) + bytes(Y) + bytes(out)) / copy,  gathered bytes / gather )
    /// ```
    #[must_use]
    pub fn roofline_us(&self, inner: usize, rates: Rates) -> f64 {
        let dense =
            real((self.rows + self.cols) as u64) * real(inner as u64) * f64::from(self.precision.bytes());
        let streamed = real(self.device_bytes)
            + dense
            + f64::from(self.precision.bytes().max(4)) * real(self.nnz as u64);
        (streamed / rates.copy).max(self.gathered_bytes(inner) / rates.gather) * 1e6
    }
}

impl fmt::Display for SddmmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, inner, .. } = self;
        writeln!(f, "pattern        {rows} × {cols}, {nnz} entries, {}", self.form)?;
        writeln!(f, "device         {}", self.device)?;
        writeln!(f, "algorithm      {} in {}: {}", self.algorithm, self.precision, self.reason)?;
        if self.requested_precision != self.precision {
            writeln!(f, "asked for      {}, which {} serves", self.requested_precision, self.precision)?;
        }
        if !self.entries.is_empty() {
            writeln!(f, "entries        {} (inner dimension {inner})", self.entries.join(", "))?;
        }
        if let Some(scheduling) = &self.scheduling {
            writeln!(f, "schedule       {scheduling}")?;
        }
        if self.tiles > 0 {
            writeln!(
                f,
                "tiles          {} with {:.1} % of the entries, {:.1} % of their places taken, {} gathers",
                self.tiles,
                100.0 * self.tile_share,
                100.0 * self.utilisation,
                self.column_vectors
            )?;
        }
        if self.batches > 0 {
            writeln!(f, "batches        {}", self.batches)?;
        }
        if self.panel_columns > 0 {
            let each = |of: u64| real(self.nnz as u64) / real(of.max(1));
            let (columns, vectors) = (self.panel_columns, self.panel_vectors);
            writeln!(
                f,
                "panels         {columns} columns, {:.2} entries each; {vectors} vectors of four rows, {:.2} entries \
                 each",
                each(columns),
                each(vectors)
            )?;
        }
        if let Some(group) = self.group {
            writeln!(f, "groups         {group}")?;
        }
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        let place = self.preprocessing.to_string().to_uppercase();
        write_stages(f, &format!(" on the {place} ({})", self.preprocessing_reason), &self.stages)
    }
}

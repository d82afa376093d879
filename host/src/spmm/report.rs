//! What a plan is, what it holds and what it cost to make.

use std::fmt;

use windrow_formats::Canonicalised;

use super::decide::{Decision, Facts, Way};
use super::options::SpmmOptions;
use super::order::{OWN_ORDER, OrderName};
use super::part::{LayoutFacts, PLACES};
use crate::device::{Device, DeviceKind};
use crate::num::real;
use crate::options::{Algorithm, CpuTasks, Determinism, Precision, Preprocessing, Rates, TileValues};
use crate::plan::{ArraySize, Scheduling, StageTime, total_us, write_arrays, write_stages};
use crate::predict::weigh::Candidate;

/// What a plan is, what it holds and what it cost to make. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SpmmReport {
    /// Rows of `A`, and of `C`.
    pub rows: usize,
    /// Columns of `A`: the rows that `B` must have.
    pub cols: usize,
    /// Entries of `A`, stored zeros included, after duplicates were summed.
    pub nnz: usize,
    /// Rows of the input that had to be sorted.
    pub sorted_rows: u64,
    /// Duplicates of the input that were summed.
    pub summed_duplicates: u64,
    /// Values that are finite in the input and infinite in the plan's precision, of those given last by the host, or
    /// with a matrix that is on the device, if the making of the plan waited for them:
    /// [`SpmmPlan::overflowed_values`](crate::SpmmPlan::overflowed_values) always knows.
    pub overflowed_values: u64,
    /// The width that the plan was made for. Any other can be run.
    pub width: usize,
    /// Type of the values and of `B`.
    pub precision: Precision,
    /// The precision asked for: tf32 may be served by kernels of f32, which are more exact, where these are predicted
    /// to be quicker.
    pub requested_precision: Precision,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// The algorithm asked for.
    pub requested: Algorithm,
    /// The algorithm that the plan uses.
    pub algorithm: Algorithm,
    /// Why it uses that one.
    pub reason: String,
    /// The paths whose predicted times decided that, the quickest first; none where something else did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weighed: Vec<Candidate>,
    /// Whether two runs give the same bits.
    pub determinism: Determinism,
    /// How device memory holds the values of tiles; what was asked for if there are none.
    pub tile_values: TileValues,
    /// Why so; empty if there are no tiles.
    pub tile_values_reason: String,
    /// Where the matrix was laid out in tiles: on the CPU or on the GPU.
    pub preprocessing: Preprocessing,
    /// Why it was laid out there and not in the other place.
    pub preprocessing_reason: String,
    /// How the launches of the two parts of a hybrid follow each other; none for plans with one part, and on the CPU.
    pub scheduling: Option<Scheduling>,
    /// The point of Sgap's space that divides the work, and its launch, `<groupSz, blockSz, tileSz, workerDimR>`.
    pub parallelism: Option<String>,
    /// MMAs of 16 × 8 × 8 that a product of the plan's width takes, for plans of
    /// [`Algorithm::MatricizedRows`](crate::Algorithm::MatricizedRows); else 0.
    pub mma_count: u64,
    /// How the CPU deals products out to its threads; none on a GPU.
    pub cpu_tasks: Option<CpuTasks>,
    /// Whether the choice of [`Algorithm::Auto`] is one that was [tuned](crate::Tuned).
    pub tuned: bool,
    /// Why a choice that was tuned for this product is not the plan's, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuned_refused: Option<String>,
    /// The order in which rows are worked on.
    pub order: String,
    /// What was weighed against what for that, where nobody asked for an order and the products that are
    /// [expected](crate::SpmmBuilder::expected_runs) might pay for one; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub order_reason: String,
    /// Time that the cost model predicts for a product of the plan's width on CUDA cores and on Tensor Cores, in
    /// microseconds; 0 for a path without work. On the CPU nothing is predicted, and JSON leaves it out.
    #[serde(skip_serializing_if = "is_nothing")]
    pub predicted_us: [f64; 2],
    /// Entry points that a run of the plan's width with aligned operands launches; empty on the CPU.
    pub entries: Vec<&'static str>,
    /// Arrays in device memory, workspace included.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// The part of it that is workspace for partial sums.
    pub workspace_bytes: u64,
    /// Host memory that the plan keeps to lay out new values.
    pub host_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
    /// Pieces of rows that the row-split part works on, a row that is not cut being one; of plans of
    /// [`Algorithm::RowPanels`](crate::Algorithm::RowPanels) pieces of panels likewise. Of a plan of a matrix that is
    /// on the device, for [few products](crate::SpmmBuilder::expected_runs), it is the places for pieces, which nobody
    /// counts, and likewise the rows that are cut.
    pub segments: u64,
    /// Rows (row-split), windows (tile-stream) and panels (row-panels) that are cut, with partial sums added in a
    /// second pass.
    pub split: u64,
    /// The rows among them.
    pub split_rows: u64,
    /// Windows of 8 rows.
    pub windows: u64,
    /// Tiles of 8 × 8.
    pub tiles: u64,
    /// Steps of two tiles.
    pub steps: u64,
    /// Warps that share the steps.
    pub workers: u64,
    /// Rows of `B` that the tiles gather for one slice: one for each column vector.
    pub column_vectors: u64,
    /// Rows of `B` that panels bring to shared memory for one slice: one for each distinct column of a panel, for plans
    /// of [`Algorithm::RowPanels`](crate::Algorithm::RowPanels); else 0.
    pub panel_columns: u64,
    /// What groups of four rows of the panels have in these columns: vectors of one to four entries.
    pub panel_vectors: u64,
    /// Places for gathered rows in all steps, pads included: 16 for each step.
    pub gather_places: u64,
    /// Rows of `A` without an entry, whose rows of `C` become `β·C`.
    pub empty_rows: u64,
    /// Rows of the short-row part, or, beside tiles, of the row-split part.
    pub residual_rows: u64,
    /// Rows with entries both in tiles and on CUDA cores.
    pub rows_in_both: u64,
    /// Share of the entries that Tensor Cores multiply.
    pub tile_share: f64,
}

fn is_nothing(predicted_us: &[f64; 2]) -> bool {
    *predicted_us == [0.0; 2]
}

/// What a plan turned out to be.
pub(super) struct Described<'a> {
    pub(super) facts: &'a Facts,
    pub(super) cols: usize,
    pub(super) canonicalised: Canonicalised,
    pub(super) options: &'a SpmmOptions,
    pub(super) device: &'a Device,
    pub(super) decision: Decision,
    pub(super) layout: LayoutFacts,
    pub(super) order: OrderName,
    pub(super) predicted_us: [f64; 2],
    pub(super) entries: Vec<&'static str>,
    pub(super) memory: PlanMemory,
    pub(super) stages: Vec<StageTime>,
}

/// The memory of a plan.
#[derive(Debug, Default)]
pub(super) struct PlanMemory {
    pub(super) arrays: Vec<ArraySize>,
    pub(super) device_bytes: u64,
    pub(super) workspace_bytes: u64,
    pub(super) host_bytes: u64,
}

impl SpmmReport {
    /// The report of a plan.
    pub(super) fn of(plan: Described<'_>) -> Self {
        let Described { facts, options, decision, layout, memory, .. } = plan;
        let (tile_values, tile_values_reason) =
            layout.tile_values.unwrap_or((options.tile_values, String::new()));
        let (preprocessing, nowhere_else) = match (layout.on_gpu, decision.way) {
            (true, _) => (Preprocessing::Gpu, ""),
            (false, Way::Cpu(_)) => (Preprocessing::Cpu, "the plan runs there"),
            (false, _) => (Preprocessing::Cpu, "only rows in tiles are laid out on a GPU"),
        };
        Self {
            rows: facts.rows,
            cols: plan.cols,
            nnz: facts.nnz,
            sorted_rows: plan.canonicalised.sorted_rows,
            summed_duplicates: plan.canonicalised.summed_duplicates,
            overflowed_values: facts.exceptions.overflowed,
            width: options.width,
            precision: options.precision,
            requested_precision: options.precision,
            device: plan.device.to_string(),
            device_kind: plan.device.kind(),
            requested: options.algorithm,
            algorithm: decision.algorithm,
            reason: layout.instead.unwrap_or(decision.why) + &decision.untimed,
            weighed: decision.weighed,
            determinism: options.determinism,
            tile_values,
            tile_values_reason,
            preprocessing,
            preprocessing_reason: layout.place.unwrap_or_else(|| nowhere_else.to_owned()),
            scheduling: layout.scheduling,
            parallelism: layout.parallelism,
            mma_count: layout.mma_count,
            cpu_tasks: if let Way::Cpu(tasks) = decision.way { Some(tasks) } else { None },
            tuned: false,
            tuned_refused: None,
            order: plan.order.name,
            order_reason: plan.order.why,
            predicted_us: plan.predicted_us,
            entries: plan.entries,
            arrays: memory.arrays,
            device_bytes: memory.device_bytes,
            workspace_bytes: memory.workspace_bytes,
            host_bytes: memory.host_bytes,
            stages: plan.stages,
            segments: layout.segments,
            split: layout.split,
            split_rows: layout.split_rows,
            windows: layout.windows,
            tiles: layout.tiles,
            steps: layout.steps,
            workers: layout.workers,
            column_vectors: layout.column_vectors,
            panel_columns: layout.panels.columns,
            panel_vectors: layout.panels.vectors,
            gather_places: layout.gather_places,
            empty_rows: facts.empty_rows,
            residual_rows: layout.residual_rows,
            rows_in_both: layout.rows_in_both,
            tile_share: layout.tile_share,
        }
    }

    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }

    /// Number of entries that CUDA cores multiply one by one.
    fn scalar_entries(&self) -> f64 {
        real(self.nnz as u64) * (1.0 - self.tile_share)
    }

    /// Bytes of `B` gathered by a product of width `n`: an entry's row on CUDA cores, a column vector's row for
    /// tiles, the row of a distinct column for a panel.
    #[must_use]
    pub fn gathered_bytes(&self, n: usize) -> f64 {
        let rows = match self.panel_columns {
            0 => self.scalar_entries() + real(self.column_vectors),
            columns => real(columns),
        };
        rows * real(n as u64) * f64::from(self.precision.bytes())
    }

    /// Lower bound for the time of a product of width `n` with a `C` of the type of the sums, in microseconds:
    ///
    /// ```text
    /// max( (bytes(A) + bytes(B) + bytes(C)) / copy,  gathered bytes / gather )
    /// ```
    ///
    /// where bytes(A) are the plan's arrays that products read, and `rates` are the device's.
    #[must_use]
    pub fn roofline_us(&self, n: usize, rates: Rates) -> f64 {
        let places: u64 =
            self.arrays.iter().filter(|array| array.name == PLACES).map(|array| array.bytes).sum();
        let a = real(self.device_bytes - self.workspace_bytes - places);
        let b = real(self.cols as u64) * real(n as u64) * f64::from(self.precision.bytes());
        let c = real(self.rows as u64) * real(n as u64) * f64::from(self.precision.bytes().max(4));
        let seconds = ((a + b + c) / rates.copy).max(self.gathered_bytes(n) / rates.gather);
        seconds * 1e6
    }

    /// After how many products the time to make the plan is earned back, against a competitor without one:
    /// `preprocessing / (competitor − own)`; `None` if the competitor is not slower.
    ///
    /// # Examples
    /// ```
    /// # use windrow::{Csr, Device, Spmm};
    /// let plan = Spmm::builder(&Csr::<f32>::identity(4)?).build(&Device::cpu())?;
    /// let report = plan.report();
    /// assert_eq!(report.break_even_calls(10.0, 10.0), None);
    /// let calls = report.break_even_calls(10.0, 11.0).unwrap();
    /// assert!((calls - report.preprocessing_us()).abs() <= 1.0); // one microsecond earned a call
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn break_even_calls(&self, own_us: f64, competitor_us: f64) -> Option<f64> {
        (competitor_us > own_us).then(|| (self.preprocessing_us() / (competitor_us - own_us)).ceil())
    }
}

impl fmt::Display for SpmmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, .. } = self;
        writeln!(f, "matrix         {rows} × {cols}, {nnz} entries, {} rows empty", self.empty_rows)?;
        if self.sorted_rows + self.summed_duplicates > 0 {
            writeln!(
                f,
                "input          {} rows sorted, {} duplicates summed",
                self.sorted_rows, self.summed_duplicates
            )?;
        }
        if self.overflowed_values > 0 {
            writeln!(
                f,
                "overflow       {} values are infinite in {}",
                self.overflowed_values, self.precision
            )?;
        }
        writeln!(f, "device         {}", self.device)?;
        writeln!(f, "algorithm      {} in {}: {}", self.algorithm, self.precision, self.reason)?;
        if self.requested_precision != self.precision {
            writeln!(f, "asked for      {}, which {} serves", self.requested_precision, self.precision)?;
        }
        if let Some(parallelism) = &self.parallelism {
            writeln!(f, "parallelism    {parallelism}, {} rows cut", self.split_rows)?;
        }
        if self.mma_count > 0 {
            writeln!(
                f,
                "multiplies     {} MMAs at width {}, {} rows cut",
                self.mma_count, self.width, self.split_rows
            )?;
        }
        if let Some(CpuTasks { ranges_per_thread, tile_columns }) = self.cpu_tasks {
            let tile = tile_columns.map_or("all columns".to_owned(), |tile| format!("{tile} columns"));
            writeln!(f, "tasks          {ranges_per_thread} ranges of rows a thread, {tile} at a time")?;
        }
        match self.order_reason.as_str() {
            "" if self.order == OWN_ORDER => {}
            "" => writeln!(f, "order          {}", self.order)?,
            why => writeln!(f, "order          {}: {why}", self.order)?,
        }
        if self.determinism == Determinism::Fast {
            writeln!(f, "determinism    {}: parts of cut rows are added in any order", self.determinism)?;
        }
        let [scalar, tiles] = self.predicted_us;
        if scalar + tiles > 0.0 {
            let entries = 100.0 * self.tile_share;
            let time = 100.0 * tiles / (scalar + tiles);
            writeln!(
                f,
                "predicted      {:.1} µs at width {}: {entries:.1} % of the entries and {time:.1} % of the time on Tensor Cores",
                scalar + tiles,
                self.width
            )?;
        }
        if !self.entries.is_empty() {
            writeln!(f, "entries        {} (width {})", self.entries.join(", "), self.width)?;
        }
        if self.segments > 0 {
            writeln!(f, "segments       {}, {} rows cut", self.segments, self.split_rows)?;
        }
        if self.panel_columns > 0 {
            let each = |of: u64| real(self.nnz as u64) / real(of.max(1));
            writeln!(
                f,
                "panels         {} columns, {:.2} entries each; {} vectors of four rows, {:.2} entries each; {} panels cut",
                self.panel_columns,
                each(self.panel_columns),
                self.panel_vectors,
                each(self.panel_vectors),
                self.split
            )?;
        }
        if self.tiles > 0 {
            let pads = self.gather_places - self.column_vectors;
            writeln!(
                f,
                "tiles          {} in {} windows, {} steps for {} warps, {} windows cut",
                self.tiles,
                self.windows,
                self.steps,
                self.workers,
                self.split - self.split_rows
            )?;
            writeln!(
                f,
                "gathers        {} column vectors, {pads} pads, {:.2} entries a vector",
                self.column_vectors,
                real(self.nnz as u64) * self.tile_share / real(self.column_vectors.max(1))
            )?;
        }
        if let Some(scheduling) = &self.scheduling {
            writeln!(f, "schedule       {scheduling}")?;
        }
        if !self.tile_values_reason.is_empty() {
            writeln!(f, "tile values    {}: {}", self.tile_values, self.tile_values_reason)?;
        }
        if self.residual_rows > 0 {
            write!(f, "residual       {} rows", self.residual_rows)?;
            match self.rows_in_both {
                0 => writeln!(f)?,
                both => writeln!(f, ", {both} of them in tiles too")?,
            }
        }
        let (workspace, host) = (self.workspace_bytes, self.host_bytes);
        let of_memory = format!(", {workspace} of them workspace; {host} on the host");
        write_arrays(f, self.device_bytes, &of_memory, &self.arrays)?;
        let place = self.preprocessing.to_string().to_uppercase();
        write_stages(f, &format!(" on the {place} ({})", self.preprocessing_reason), &self.stages)
    }
}

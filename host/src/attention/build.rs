//! From a matrix and options to a plan.

use windrow_formats::{Csr, Value};
use windrow_simt::GlobalPtr;

use super::builder::AttentionBuilder;
use super::gpu::{GpuAttention, GpuWindows};
use super::options::{AttentionAlgorithm, AttentionOptions};
use super::plan::{AttentionPlan, Body};
use super::report::AttentionReport;
use super::windows::{ColumnWindows, Division, extents, most_columns, narrow_offsets};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::{AttentionError, PlanError};
use crate::num::{narrow, real, wide};
use crate::plan::{ArraySize, PerStream, StageClock, check_memory, push};

/// Columns of a head that kernels have room for.
const MOST_COLUMNS: usize = 256;
/// Heads that the slow axis of a grid has room for.
const MOST_HEADS: usize = 65_535;
/// Entries that kernels can count.
const MOST_ENTRIES: u64 = 1 << 31;
/// Mean entries of a row below which windows have eight rows: shorter ones would not fill steps.
const SHORT_ROWS: f64 = 6.0;
/// How many times the entries of a column of four rows one of eight must have, for windows of eight to pay.
const SHARED_BY_EIGHT: f64 = 1.4;

/// Windows on the host.
struct Windows {
    algorithm: AttentionAlgorithm,
    rows: u32,
    /// Windows by columns; others are the matrix's own.
    columns: Option<ColumnWindows>,
    reason: String,
}

impl<V: Value> AttentionBuilder<'_, Csr<V>> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`AttentionError::Unsupported`] for an algorithm without kernels for the precision, or windows by columns with
    ///   a bias ([`AttentionError::NotBiased`]);
    /// - [`AttentionError::Extent`] for no heads or columns, or more than 256 columns;
    ///   [`AttentionError::WindowRows`] for windows of other than 4 or 8 rows;
    ///   [`AttentionError::TooManyColumns`] if windows by columns were asked for and cannot name them;
    /// - `TooLarge` of [`PlanError`] for a GPU plan with 2³¹ entries or more, `MemoryLimit` if the plan needs more than
    ///   the limit, `Device` if the device refuses.
    pub fn build(&self, device: &Device) -> Result<AttentionPlan, AttentionError> {
        self.check_options()?;
        let a = self.a;
        let mut report = self.blank_report(device);
        let mut clock = StageClock::start();
        let Some(machine) = device.machine() else {
            report.algorithm = AttentionAlgorithm::Rows;
            "the CPU has one algorithm, rows in parallel".clone_into(&mut report.reason);
            let mut sizes = Vec::new();
            push(&mut sizes, "row_offsets", 8 * wide(a.row_offsets().len()));
            push(&mut sizes, "col_indices", 4 * wide(a.nnz()));
            self.account(&mut report, sizes)?;
            clock.end("copy");
            return Ok(self.plan(device, Body::Cpu(a.pattern().clone()), report, clock));
        };
        if wide(a.nnz()) >= MOST_ENTRIES {
            let remedy = "split the matrix by rows, or use the CPU";
            let (found, limit) = (wide(a.nnz()), MOST_ENTRIES - 1);
            return Err(PlanError::TooLarge { what: "entries", found, limit, remedy }.into());
        }
        let windows = self.windows()?;
        clock.end("layout");
        let plan = self.upload((device, machine), windows, &mut report)?;
        report.entry = plan.name()?;
        clock.end("upload");
        Ok(self.plan(device, Body::Gpu(Box::new(plan)), report, clock))
    }

    fn check_options(&self) -> Result<(), AttentionError> {
        let AttentionOptions { heads, columns, precision, algorithm, window_rows, biased, .. } = self.options;
        if !algorithm.supports(precision) {
            return Err(AttentionError::Unsupported { algorithm, precision });
        }
        if algorithm == AttentionAlgorithm::Columns && biased {
            return Err(AttentionError::NotBiased);
        }
        let value_columns = self.options.value_columns();
        let split = "split them among heads, or products";
        for (what, found, most, remedy) in [
            ("heads", heads, MOST_HEADS, "run some of them at a time"),
            ("columns of Q and K", columns, MOST_COLUMNS, split),
            ("columns of V", value_columns, MOST_COLUMNS, split),
        ] {
            if !(1..=most).contains(&found) {
                return Err(AttentionError::Extent { what, found, most, remedy });
            }
        }
        match window_rows {
            None | Some(4 | 8) => Ok(()),
            Some(found) => Err(AttentionError::WindowRows { found }),
        }
    }

    /// What the plan's windows are.
    fn windows(&self) -> Result<Windows, AttentionError> {
        let AttentionOptions { algorithm, window_rows, biased, precision, .. } = self.options;
        let a = self.a;
        let mean = real(wide(a.nnz())) / real(wide(a.rows().max(1)));
        let own = |reason: String| {
            let rows = window_rows.unwrap_or(if mean < SHORT_ROWS { 8 } else { 4 });
            Windows { algorithm: AttentionAlgorithm::Entries, rows, columns: None, reason }
        };
        let asked = || "as asked".to_owned();
        match algorithm {
            AttentionAlgorithm::Rows => {
                return Ok(Windows { algorithm, rows: 1, columns: None, reason: asked() });
            }
            AttentionAlgorithm::Auto if precision == crate::Precision::F32 => {
                let reason = "Tensor Cores would round f32".to_owned();
                return Ok(Windows { algorithm: AttentionAlgorithm::Rows, rows: 1, columns: None, reason });
            }
            AttentionAlgorithm::Entries => return Ok(own(asked())),
            AttentionAlgorithm::Auto if biased => {
                return Ok(own("windows by columns have no bias".to_owned()));
            }
            AttentionAlgorithm::Auto | AttentionAlgorithm::Columns => {}
        }
        let fits = |rows: u32| a.cols() <= most_columns(rows);
        let by_columns = |rows, columns, reason| Windows {
            algorithm: AttentionAlgorithm::Columns,
            rows,
            columns: Some(columns),
            reason,
        };
        if algorithm == AttentionAlgorithm::Columns
            && let Some(rows) = window_rows
        {
            if !fits(rows) {
                return Err(AttentionError::TooManyColumns {
                    found: a.cols(),
                    rows,
                    limit: most_columns(rows),
                });
            }
            return Ok(by_columns(rows, ColumnWindows::new(a, rows)?, asked()));
        }
        let listed = |rows: u32| match fits(rows) && window_rows.is_none_or(|asked| asked == rows) {
            true => ColumnWindows::new(a, rows).map(Some),
            false => Ok(None),
        };
        let shared = |windows: &ColumnWindows| real(wide(a.nnz())) / real(wide(windows.entries.len().max(1)));
        let (four, eight) = (listed(4)?, listed(8)?);
        let by_eight = match (&four, &eight) {
            (Some(four), Some(eight)) => mean < SHORT_ROWS || shared(eight) >= SHARED_BY_EIGHT * shared(four),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let (rows, chosen) = if by_eight { (8, eight) } else { (4, four) };
        match chosen {
            None if algorithm == AttentionAlgorithm::Columns => {
                Err(AttentionError::TooManyColumns { found: a.cols(), rows: 4, limit: most_columns(4) })
            }
            Some(columns) => {
                let reason = format!("a row of K and V serves {:.2} of {rows} rows", shared(&columns));
                Ok(by_columns(rows, columns, reason))
            }
            None => Ok(own("the matrix has more columns than windows by columns can name".to_owned())),
        }
    }

    /// Divides the windows among warps and blocks, and uploads them.
    fn upload(
        &self,
        (device, machine): (&Device, &dyn Machine),
        windows: Windows,
        report: &mut AttentionReport,
    ) -> Result<GpuAttention, AttentionError> {
        let a = self.a;
        let other =
            GpuAttention::takes_any_alignment(&self.options) && windows.algorithm != AttentionAlgorithm::Rows;
        let other = other.then(|| Windows {
            algorithm: AttentionAlgorithm::Rows,
            rows: 1,
            columns: None,
            reason: String::new(),
        });
        let divided = |windows: &Windows| match &windows.columns {
            Some(columns) => Division::new(
                columns.offsets.windows(2).map(|ends| [ends[0], ends[1]]).collect::<Vec<_>>().into_iter(),
                machine.multiprocessors(),
            ),
            None => Division::new(extents(a.row_offsets(), windows.rows), machine.multiprocessors()),
        };
        let (division, of_other) = (divided(&windows)?, other.as_ref().map(divided).transpose()?);
        let mut sizes = Vec::new();
        let mut count = |windows: &Windows, division: &Division| {
            let own = (a.rows() + 1, a.nnz());
            let (offsets, entries) = windows
                .columns
                .as_ref()
                .map_or(own, |columns| (columns.offsets.len(), columns.entries.len()));
            push(&mut sizes, "offsets", 4 * wide(offsets));
            push(&mut sizes, "columns", 4 * wide(entries));
            push(&mut sizes, "pieces", 16 * wide(division.pieces.len()));
            push(&mut sizes, "cut_windows", 16 * wide(division.cut.len()));
        };
        count(&windows, &division);
        if let (Some(windows), Some(division)) = (&other, &of_other) {
            count(windows, division);
        }
        report.algorithm = windows.algorithm;
        report.window_rows = windows.rows;
        report.reason.clone_from(&windows.reason);
        report.gathered = wide(windows.columns.as_ref().map_or(a.nnz(), |columns| columns.entries.len()));
        report.pieces = wide(division.pieces.len());
        report.cut_windows = wide(division.cut.len());
        let (columns, value_columns) = (self.options.columns, self.options.value_columns());
        let mut plan = GpuAttention {
            device: device.clone(),
            dtype: self.options.precision.dtype(),
            heads: narrow(self.options.heads),
            rows: narrow(a.rows()),
            columns: narrow(columns.max(value_columns)),
            windows: GpuWindows::empty(device, &windows, &division)?,
            any_alignment: match (&other, &of_other) {
                (Some(windows), Some(division)) => Some(GpuWindows::empty(device, windows, division)?),
                _ => None,
            },
            partial: PerStream::new(None),
        };
        push(&mut sizes, "partial_sums", plan.partial_bytes());
        self.account(report, sizes)?;
        plan.windows.fill(device, a, &windows, &division)?;
        if let (Some(of_plan), Some(windows), Some(division)) = (&mut plan.any_alignment, &other, &of_other) {
            of_plan.fill(device, a, windows, division)?;
        }
        plan.partial = PerStream::new(plan.make_partial()?);
        Ok(plan)
    }

    fn plan(
        &self,
        device: &Device,
        body: Body,
        mut report: AttentionReport,
        clock: StageClock,
    ) -> AttentionPlan {
        report.stages = clock.stages;
        AttentionPlan { device: device.clone(), body, report }
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(&self, report: &mut AttentionReport, sizes: Vec<ArraySize>) -> Result<(), PlanError> {
        let remedy = "raise the limit, or run fewer heads at a time";
        report.device_bytes = check_memory(&sizes, self.options.memory_limit, remedy)?;
        report.arrays = sizes;
        Ok(())
    }

    fn blank_report(&self, device: &Device) -> AttentionReport {
        AttentionReport {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            options: self.options.clone(),
            device: device.to_string(),
            device_kind: device.kind(),
            algorithm: self.options.algorithm,
            reason: String::new(),
            window_rows: 1,
            gathered: wide(self.a.nnz()),
            pieces: 0,
            cut_windows: 0,
            entry: "",
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        }
    }
}

impl GpuWindows {
    /// Without memory for its arrays yet.
    fn empty(device: &Device, windows: &Windows, division: &Division) -> Result<Self, PlanError> {
        Ok(Self {
            rows: windows.rows,
            algorithm: windows.algorithm,
            window_count: 0,
            offsets: DeviceBuffer::named(device, &[], "offsets")?,
            entries: DeviceBuffer::named(device, &[], "columns")?,
            longest: division.longest,
            pieces: DeviceBuffer::named(device, &[], "pieces")?,
            cut: DeviceBuffer::named(device, &[], "cut_windows")?,
            slots: division.slots,
        })
    }

    fn fill<V: Value>(
        &mut self,
        device: &Device,
        a: &Csr<V>,
        windows: &Windows,
        division: &Division,
    ) -> Result<(), PlanError> {
        self.window_count = narrow(a.rows().div_ceil(windows.rows as usize));
        match &windows.columns {
            Some(columns) => {
                self.offsets = DeviceBuffer::named(device, &columns.offsets, "offsets")?;
                self.entries = DeviceBuffer::named(device, &columns.entries, "columns")?;
            }
            None => {
                let offsets = narrow_offsets(a.row_offsets())?;
                self.offsets = DeviceBuffer::named(device, &offsets, "offsets")?;
                self.entries = DeviceBuffer::named(device, a.col_indices(), "columns")?;
            }
        }
        self.pieces = DeviceBuffer::named(device, &division.pieces, "pieces")?;
        self.cut = DeviceBuffer::named(device, &division.cut, "cut_windows")?;
        Ok(())
    }
}

/// The address of an array that may not be there.
pub(super) fn pointer_or_null<T>(address: Option<u64>) -> GlobalPtr<T> {
    address.map_or(GlobalPtr::NULL, GlobalPtr::from_address)
}

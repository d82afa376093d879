//! From a matrix and options to a plan.

use windrow_formats::{Csr, OutOfMemory, Value};

use super::builder::AttentionBuilder;
use super::gpu::gradient::{GRADIENT_COLUMNS, GRADIENT_ROWS, GpuGradient, GradientWindows};
use super::gpu::{GpuAttention, GpuWindows, WARPS_AT_WORK};
use super::options::{AttentionAlgorithm, AttentionOptions, AttentionScores};
use super::plan::{AttentionPlan, Body};
use super::report::AttentionReport;
use super::windows::{WindowLists, most_columns};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::{AttentionError, PlanError};
use crate::num::{narrow, real, wide};
use crate::plan::{ArraySize, PerStream, StageClock, check_memory, push};
use crate::row_lists::{Division, Transposed, extents, narrow_offsets};

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
    /// Lists of their own; others are the matrix as it is.
    lists: Option<WindowLists>,
    reason: String,
}

/// What gradients walk beside the rows of the matrix.
#[derive(Default)]
struct GradientLists {
    /// The columns, as rows of the transpose.
    columns: Option<Windows>,
    /// Where its entries are in the matrix, if there is a bias.
    positions: Vec<u32>,
    /// Of rows and of columns, for Tensor Cores.
    windows: [Option<Windows>; 2],
}

impl Windows {
    /// Single rows, of the matrix or of its transpose.
    fn rows(lists: Option<WindowLists>, reason: &str) -> Self {
        Self { algorithm: AttentionAlgorithm::Rows, rows: 1, lists, reason: reason.to_owned() }
    }

    /// Those of rows, or of columns, whose distinct entries are listed once.
    fn by_columns(rows: u32, lists: WindowLists, reason: String) -> Self {
        Self { algorithm: AttentionAlgorithm::Columns, rows, lists: Some(lists), reason }
    }

    /// How they are divided, of a matrix with these offsets.
    fn division(&self, row_offsets: &[u64], multiprocessors: u32) -> Result<Division, OutOfMemory> {
        match &self.lists {
            Some(lists) => Division::new(lists.extents(), multiprocessors),
            None => Division::new(extents(row_offsets, self.rows), multiprocessors),
        }
    }
}

impl<V: Value> AttentionBuilder<'_, Csr<V>> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`AttentionError::Unsupported`] for an algorithm without kernels for the precision, or windows by columns with
    ///   a bias ([`AttentionError::NotBiased`]); [`AttentionError::Additive`] for one on Tensor Cores with scores
    ///   that are no products, [`AttentionError::NegativeSlope`] for a slope that is not finite;
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
            let transposed = self.transposed()?;
            if transposed.is_some() {
                push(&mut sizes, "transpose", 8 * wide(a.cols() + 1) + 8 * wide(a.nnz()));
            }
            self.account(&mut report, sizes)?;
            clock.end("copy");
            let body = Body::Cpu { pattern: a.pattern().clone(), transposed };
            return Ok(self.plan(device, body, report, clock));
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
        if self.options.gradients {
            report.gradient_entries = plan.gradient_names()?.to_vec();
        }
        clock.end("upload");
        Ok(self.plan(device, Body::Gpu(Box::new(plan)), report, clock))
    }

    fn check_options(&self) -> Result<(), AttentionError> {
        let AttentionOptions { heads, precision, algorithm, window_rows, biased, .. } = self.options;
        if !algorithm.supports(precision) {
            return Err(AttentionError::Unsupported { algorithm, precision });
        }
        if algorithm == AttentionAlgorithm::Columns && biased {
            return Err(AttentionError::NotBiased);
        }
        if let AttentionScores::Additive { negative_slope } | AttentionScores::Gatv2 { negative_slope } =
            self.options.scores
        {
            if !matches!(algorithm, AttentionAlgorithm::Auto | AttentionAlgorithm::Rows) {
                return Err(AttentionError::Additive { algorithm });
            }
            if !negative_slope.is_finite() {
                return Err(AttentionError::NegativeSlope { found: negative_slope });
            }
        }
        let value_columns = self.options.value_columns();
        let split = "split them among heads, or products";
        for (what, found, most, remedy) in [
            ("heads", heads, MOST_HEADS, "run some of them at a time"),
            ("columns of Q and K", self.options.score_columns(), MOST_COLUMNS, split),
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
            Windows { algorithm: AttentionAlgorithm::Entries, rows, lists: None, reason }
        };
        let asked = || "as asked".to_owned();
        match algorithm {
            AttentionAlgorithm::Rows => {
                return Ok(Windows::rows(None, "as asked"));
            }
            AttentionAlgorithm::Auto if self.options.scores != AttentionScores::DotProduct => {
                return Ok(Windows::rows(None, "scores are no products for Tensor Cores"));
            }
            AttentionAlgorithm::Auto if precision == crate::Precision::F32 => {
                return Ok(Windows::rows(None, "Tensor Cores would round f32"));
            }
            AttentionAlgorithm::Entries => return Ok(own(asked())),
            AttentionAlgorithm::Auto if biased => {
                return Ok(own("windows by columns have no bias".to_owned()));
            }
            AttentionAlgorithm::Auto | AttentionAlgorithm::Columns => {}
        }
        let fits = |rows: u32| a.cols() <= most_columns(rows);
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
            return Ok(Windows::by_columns(rows, WindowLists::columns(a, rows)?, asked()));
        }
        let listed = |rows: u32| match fits(rows) && window_rows.is_none_or(|asked| asked == rows) {
            true => WindowLists::columns(a, rows).map(Some),
            false => Ok(None),
        };
        let shared = |windows: &WindowLists| real(wide(a.nnz())) / real(wide(windows.entries.len().max(1)));
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
                Ok(Windows::by_columns(rows, columns, reason))
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
        let options = &self.options;
        let takes_any_alignment = GpuAttention::takes_any_alignment(options);
        let needs_rows = takes_any_alignment || options.gradients;
        let rows_too =
            (needs_rows && windows.algorithm != AttentionAlgorithm::Rows).then(|| Windows::rows(None, ""));
        let has_eight = windows.algorithm == AttentionAlgorithm::Columns && windows.rows == GRADIENT_ROWS;
        let GradientLists { columns, positions, windows: [eight_rows, eight_columns] } =
            self.gradient_lists(has_eight)?;
        let mut sizes = Vec::new();
        let mut divided = |windows: Windows| -> Result<(Windows, Division), OutOfMemory> {
            let division = windows.division(a.row_offsets(), machine.multiprocessors())?;
            let own = (a.rows() + 1, a.nnz());
            let (offsets, entries) =
                windows.lists.as_ref().map_or(own, |lists| (lists.offsets.len(), lists.entries.len()));
            push(&mut sizes, "offsets", 4 * wide(offsets));
            push(&mut sizes, "columns", 4 * wide(entries));
            push(&mut sizes, "pieces", 16 * wide(division.pieces.len()));
            push(&mut sizes, "cut_windows", 16 * wide(division.cut.len()));
            Ok((windows, division))
        };
        let main = divided(windows)?;
        let mut divided = |windows: Option<Windows>| windows.map(&mut divided).transpose();
        let (rows_too, columns) = (divided(rows_too)?, divided(columns)?);
        let (eight_rows, eight_columns) = (divided(eight_rows)?, divided(eight_columns)?);
        let (windows, division) = &main;
        report.algorithm = windows.algorithm;
        report.window_rows = windows.rows;
        report.reason.clone_from(&windows.reason);
        report.gathered = wide(windows.lists.as_ref().map_or(a.nnz(), |lists| lists.entries.len()));
        report.pieces = wide(division.pieces.len());
        report.cut_windows = wide(division.cut.len());
        let empty = |of: &Option<(Windows, Division)>| {
            of.as_ref().map(|(windows, division)| GpuWindows::empty(device, windows, division)).transpose()
        };
        let mut plan = GpuAttention {
            device: device.clone(),
            dtype: options.precision.dtype(),
            scores: options.scores,
            heads: narrow(options.heads),
            layout: options.layout,
            rows: narrow(a.rows()),
            columns_of_matrix: narrow(a.cols()),
            warps_at_work: WARPS_AT_WORK * machine.multiprocessors(),
            score_columns: narrow(options.score_columns()),
            value_columns: narrow(options.value_columns()),
            windows: GpuWindows::empty(device, windows, division)?,
            rows_too: empty(&rows_too)?,
            takes_any_alignment,
            partial: PerStream::new(None),
            gradient: match empty(&columns)? {
                Some(columns) => {
                    let positions = DeviceBuffer::named(device, &[], "positions")?;
                    let rows = empty(&eight_rows)?;
                    let windows = empty(&eight_columns)?.map(|columns| GradientWindows { rows, columns });
                    Some(GpuGradient { columns, windows, positions, workspace: PerStream::new(None) })
                }
                None => None,
            },
        };
        push(&mut sizes, "partial_sums", plan.partial_bytes());
        if plan.gradient.is_some() {
            push(&mut sizes, "positions", 4 * wide(positions.len()));
            for (name, bytes) in plan.gradient_workspace_bytes()? {
                push(&mut sizes, name, bytes);
            }
        }
        self.account(report, sizes)?;
        plan.windows.fill(device, a, &main)?;
        let fill = |of_plan: Option<&mut GpuWindows>, found: &Option<(Windows, Division)>| {
            of_plan.zip(found.as_ref()).map_or(Ok(()), |(of_plan, found)| of_plan.fill(device, a, found))
        };
        fill(plan.rows_too.as_mut(), &rows_too)?;
        if let Some(gradient) = &mut plan.gradient {
            fill(Some(&mut gradient.columns), &columns)?;
            if let Some(windows) = &mut gradient.windows {
                fill(windows.rows.as_mut(), &eight_rows)?;
                fill(Some(&mut windows.columns), &eight_columns)?;
            }
        }
        plan.partial = PerStream::new(plan.make_partial()?);
        if plan.gradient.is_some() {
            let workspace = PerStream::new(Some(plan.make_gradient_workspace()?));
            let positions = DeviceBuffer::named(device, &positions, "positions")?;
            if let Some(gradient) = &mut plan.gradient {
                (gradient.positions, gradient.workspace) = (positions, workspace);
            }
        }
        Ok(plan)
    }

    /// What gradients walk beside the rows of the matrix, if they are asked for. With `has_eight` the forward pass has
    /// the windows of rows that Tensor Cores walk.
    fn gradient_lists(&self, has_eight: bool) -> Result<GradientLists, AttentionError> {
        let (a, options) = (self.a, &self.options);
        let Some(transposed) = self.transposed()? else { return Ok(GradientLists::default()) };
        let is_product = options.scores == AttentionScores::DotProduct && !options.biased;
        let serves = is_product
            && options.precision != crate::Precision::F32
            && matches!(options.algorithm, AttentionAlgorithm::Auto | AttentionAlgorithm::Columns)
            && GRADIENT_COLUMNS.contains(&options.score_columns().max(options.value_columns()))
            && a.rows().max(a.cols()) <= most_columns(GRADIENT_ROWS);
        let listed = |lists| Windows::by_columns(GRADIENT_ROWS, lists, String::new());
        let windows = match serves {
            true => {
                let rows = if has_eight { None } else { Some(WindowLists::columns(a, GRADIENT_ROWS)?) };
                [rows, Some(WindowLists::columns(&transposed, GRADIENT_ROWS)?)].map(|lists| lists.map(listed))
            }
            false => [None, None],
        };
        let [offsets, entries, positions] = transposed.into_parts()?;
        let columns = Some(Windows::rows(Some(WindowLists { offsets, entries }), ""));
        Ok(GradientLists { columns, positions: if options.biased { positions } else { Vec::new() }, windows })
    }

    /// The transpose, if gradients are asked for.
    fn transposed(&self) -> Result<Option<Transposed>, PlanError> {
        self.options.gradients.then(|| Transposed::new(self.a)).transpose()
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
            gradient_entries: Vec::new(),
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
        (windows, division): &(Windows, Division),
    ) -> Result<(), PlanError> {
        match &windows.lists {
            Some(lists) => {
                self.window_count = narrow(lists.extents().len());
                self.offsets = DeviceBuffer::named(device, &lists.offsets, "offsets")?;
                self.entries = DeviceBuffer::named(device, &lists.entries, "columns")?;
            }
            None => {
                self.window_count = narrow(a.rows().div_ceil(windows.rows as usize));
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

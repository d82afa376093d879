//! From a matrix and options to a plan.

use windrow_formats::{Csr, Value};

use super::builder::AggregateBuilder;
use super::gpu::{GpuAggregate, partial_bytes};
use super::plan::{AggregatePlan, Body};
use super::report::AggregateReport;
use crate::csr::DeviceCsr;
use crate::device::{Device, DeviceBuffer, Machine, Stream};
#[cfg(doc)]
use crate::error::DeviceError;
use crate::error::{AggregateError, PlanError};
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{ArraySize, PerStream, StageClock, check_device, check_index, check_memory, push};
use crate::row_lists::{DeviceRows, Division, Transposed, extents, narrow_offsets};

/// Entries and columns that kernels can count.
const MOST: u64 = (1 << 31) - 1;

impl<V: Value> AggregateBuilder<'_, Csr<V>> {
    /// Makes the plan: checks, divides the rows, uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`AggregateError::Unsupported`] for a precision without kernels;
    /// - `TooLarge` of [`PlanError`] for a GPU plan with 2³¹ entries or columns, `MemoryLimit` if the plan needs more
    ///   than the limit, `Device` if the device refuses.
    pub fn build(&self, device: &Device) -> Result<AggregatePlan, AggregateError> {
        let precision = self.options.precision;
        if !matches!(precision, Precision::F32 | Precision::F16 | Precision::Bf16) {
            return Err(AggregateError::Unsupported { precision });
        }
        let a = self.a;
        let mut clock = StageClock::start();
        let mut report = AggregateReport {
            rows: a.rows(),
            cols: a.cols(),
            nnz: a.nnz(),
            options: self.options.clone(),
            device: device.to_string(),
            device_kind: device.kind(),
            pieces: 0,
            cut_rows: 0,
            entry: "",
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        };
        let transposed = self.options.gradients.then(|| Transposed::new(a)).transpose()?;
        let values = match self.options.message.has_values() {
            #[expect(clippy::cast_possible_truncation, reason = "values are f32 here, as documented")]
            true => {
                windrow_formats::memory::try_collect(a.values().iter().map(|x| x.to_f64() as f32), "values")
                    .map_err(PlanError::from)?
            }
            false => Vec::new(),
        };
        let body = match device.machine() {
            None => {
                let mut sizes = Vec::new();
                push(&mut sizes, "row_offsets", 8 * wide(a.row_offsets().len()));
                push(&mut sizes, "col_indices", 4 * wide(a.nnz()));
                push(&mut sizes, "values", 4 * wide(values.len()));
                if transposed.is_some() {
                    push(&mut sizes, "transpose", 8 * wide(a.cols() + 1) + 8 * wide(a.nnz()));
                }
                self.account(&mut report, sizes)?;
                clock.end("copy");
                Body::Cpu { pattern: a.pattern().clone(), values, transposed }
            }
            Some(machine) => {
                let plan = self.upload((device, machine), (values, transposed), &mut report)?;
                report.entry = plan.name().map_err(PlanError::from)?;
                clock.end("upload");
                Body::Gpu(Box::new(plan))
            }
        };
        report.stages = clock.stages;
        Ok(AggregatePlan { device: device.clone(), body, report })
    }

    fn upload(
        &self,
        (device, machine): (&Device, &dyn Machine),
        (values, transposed): (Vec<f32>, Option<Transposed>),
        report: &mut AggregateReport,
    ) -> Result<GpuAggregate, PlanError> {
        let a = self.a;
        let split = "split the matrix by rows, or use the CPU";
        check_index("entries", a.nnz(), MOST, split)?;
        check_index("columns of X", self.options.columns, MOST, "reduce some of the columns at a time")?;
        let multiprocessors = machine.multiprocessors();
        let division = Division::new(extents(a.row_offsets(), 1), multiprocessors)?;
        let offsets = narrow_offsets(a.row_offsets())?;
        let of_columns = match transposed {
            Some(transposed) => {
                let [offsets, rows, positions] = transposed.into_parts()?;
                let division =
                    Division::new(offsets.windows(2).map(|ends| [ends[0], ends[1]]), multiprocessors)?;
                Some((offsets, rows, positions, division))
            }
            None => None,
        };
        let mut sizes = Vec::new();
        DeviceRows::push_sizes(&mut sizes, (offsets.len(), a.nnz()), &division);
        if let Some((offsets, rows, positions, division)) = &of_columns {
            DeviceRows::push_sizes(&mut sizes, (offsets.len(), rows.len()), division);
            push(&mut sizes, "positions", 4 * wide(positions.len()));
        }
        push(&mut sizes, "values", 4 * wide(values.len()));
        report.pieces = wide(division.pieces.len());
        report.cut_rows = wide(division.cut.len());
        let slots = [division.slots, of_columns.as_ref().map_or(0, |(.., division)| division.slots)];
        let partial_bytes = partial_bytes(&self.options, slots);
        push(&mut sizes, "partial_results", partial_bytes);
        self.account(report, sizes)?;
        let columns = match &of_columns {
            Some((offsets, rows, positions, division)) => {
                let columns = DeviceRows::upload(device, (offsets, rows), division)?;
                Some((columns, DeviceBuffer::named(device, positions, "positions")?))
            }
            None => None,
        };
        let mut plan = GpuAggregate {
            device: device.clone(),
            dtype: self.options.precision.dtype(),
            options: self.options.clone(),
            rows: DeviceRows::upload(device, (&offsets, a.col_indices()), &division)?,
            columns,
            values: DeviceBuffer::named(device, &values, "values")?,
            partial_bytes,
            partial: PerStream::new(None),
        };
        plan.partial = PerStream::new(plan.make_partial()?);
        Ok(plan)
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(&self, report: &mut AggregateReport, sizes: Vec<ArraySize>) -> Result<(), PlanError> {
        let remedy = "raise the limit, or reduce fewer columns at a time";
        report.device_bytes = check_memory(&sizes, self.options.memory_limit, remedy)?;
        report.arrays = sizes;
        Ok(())
    }
}

impl<V: Value> AggregateBuilder<'_, DeviceCsr<'_, V>> {
    /// Makes the plan, on the device that the matrix is on, of its arrays as they are when `on` comes to it.
    ///
    /// Rows are divided on the host, of a copy of the matrix: this waits for `on` and for the copy.
    ///
    /// # Errors
    /// - those of [`build`](AggregateBuilder::build);
    /// - those of [`DeviceCsr::checked`] for a matrix that is not in canonical form;
    /// - [`PlanError::WrongDevice`] for a stream of another device, [`DeviceError::Captured`] for one that is captured
    ///   into a graph.
    pub fn build_on(&self, on: &Stream) -> Result<AggregatePlan, AggregateError> {
        let device = self.a.device();
        check_device("the stream", on.device(), device)?;
        let a = self.a.to_host(on)?;
        AggregateBuilder::new(&a).options(self.options.clone()).build(device)
    }
}

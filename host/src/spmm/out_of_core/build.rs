//! From a matrix and a limit to a plan: decide, arrange, lay out, report.

use windrow_formats::{Csr, Value};
use windrow_preprocess::partition::PartitionRule;

use super::arrange::{Arrangement, BUS_RATE, Sizes};
use super::blocks::{BLOCK_OVERHEAD, Making, row_bytes};
use super::engine::Engine;
use super::report::OutOfCoreReport;
use super::{Body, OutOfCoreSpmm};
use crate::device::Device;
use crate::error::{PlanError, SpmmError};
use crate::num::{index, wide};
use crate::options::{Algorithm, Preprocessing};
use crate::plan::{Exceptions, StageClock};
use crate::predict::weigh::vectors_of;
use crate::spmm::builder::SpmmBuilder;
use crate::spmm::decide::{Decision, Facts, decide};
use crate::spmm::options::SpmmOptions;

/// What share of free memory is taken where no limit is given, in tenths: the rest is for kernels and for others.
const SHARE_OF_FREE: u64 = 9;
/// Rows of `B` that row-split reads in a second, in bytes: about what an H200's L2 cache gives.
const GATHER_RATE: f64 = 5e12;

impl<V: Value> SpmmBuilder<'_, Csr<V>> {
    /// Makes a plan for products whose operands need not fit in the device's memory: see [`OutOfCoreSpmm`].
    ///
    /// The [memory limit](Self::memory_limit) is of all that the products take there, slices of `B` and blocks of `C`
    /// included; nine tenths of what is free unless told. On the CPU, in whose memory all is anyway, there is none.
    /// [`width`](Self::width) decides how `B` is sliced. An [order](Self::order) is one within blocks of rows. Blocks
    /// are laid out on the CPU; nothing is [timed](Self::autotune), and nothing that was [tuned](Self::tuned) is taken.
    ///
    /// # Cost
    /// Linear in rows and entries. The blocks that do not stay on the device are kept in page-locked memory.
    ///
    /// # Errors
    /// Those of [`build`](Self::build); [`PlanError::MemoryLimit`] where a slice of eight columns of `B`, and room for
    /// four blocks of the longest row, are beyond the limit.
    ///
    /// [`PlanError::MemoryLimit`]: crate::PlanError::MemoryLimit
    pub fn build_out_of_core(&self, device: &Device) -> Result<OutOfCoreSpmm, SpmmError> {
        self.build_arranged(device, Sizes::arrange)
    }

    /// A plan whose arrangement `arrange` finds, of the sizes and the limit.
    pub(super) fn build_arranged(
        &self,
        device: &Device,
        arrange: impl FnOnce(&Sizes, u64) -> Result<Arrangement, PlanError>,
    ) -> Result<OutOfCoreSpmm, SpmmError> {
        self.check_orders(self.a.rows(), self.a.nnz())?;
        let Some(machine) = device.machine() else { return self.build_in_core(device) };
        let mut clock = StageClock::start();
        let exceptions = Exceptions::of(self.options.precision, self.a.values());
        let own_order = self.order.is_none() && self.options.reorder.is_none();
        let facts = Facts::of(self.a.pattern(), exceptions, true, own_order);
        let profile = self.profile_of(device);
        let decision = decide(&facts, &self.options, &profile, &mut || Ok(vectors_of(self.a)?))?;
        let limit = match self.options.memory_limit {
            Some(limit) => limit,
            None => machine.memory_free()?.map_or(u64::MAX, |free| free / 10 * SHARE_OF_FREE),
        };
        let sizes = self.sizes(&facts, &decision);
        let arrangement = arrange(&sizes, limit)?;
        let decision = self.lightened(decision, &sizes, &arrangement);
        clock.end("arrange");
        let making = Making {
            builder: self,
            device,
            machine,
            profile: &profile,
            arrangement: &arrangement,
            options: self.options_of_blocks(&decision, &arrangement),
            a_bytes: sizes.a_bytes,
        };
        let engine = making.engine(&mut clock)?;
        device.synchronize()?;
        clock.end("upload");
        let report = self.report(&sizes, &arrangement, (decision, &engine, exceptions.overflowed), clock);
        Ok(self.plan(device, Body::Gpu(Box::new(engine)), report))
    }

    /// A plan for the CPU, in whose memory all is.
    fn build_in_core(&self, device: &Device) -> Result<OutOfCoreSpmm, SpmmError> {
        let plan = self.clone().options(SpmmOptions { memory_limit: None, ..self.options }).build(device)?;
        let of = plan.report();
        let report = OutOfCoreReport {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            width: self.options.width,
            precision: self.options.precision,
            algorithm: of.algorithm,
            reason: of.reason.clone(),
            overflowed_values: of.overflowed_values,
            blocks: 1,
            resident_blocks: 1,
            slice_columns: self.options.width,
            slices: 1,
            a_bytes_up: 0,
            b_bytes_up: 0,
            c_bytes_down: 0,
            predicted_us: 0.0,
            arrays: of.arrays.clone(),
            device_bytes: of.device_bytes,
            pinned_bytes: 0,
            stages: of.stages.clone(),
        };
        Ok(self.plan(device, Body::Cpu(Box::new(plan)), report))
    }

    fn plan(&self, device: &Device, body: Body, report: OutOfCoreReport) -> OutOfCoreSpmm {
        OutOfCoreSpmm { device: device.clone(), body, report }
    }

    /// The bytes of a product, and how long it takes on the device, about.
    fn sizes(&self, facts: &Facts, decision: &Decision) -> Sizes {
        let SpmmOptions { width, precision, partition, .. } = self.options;
        let (element_bytes, sum_bytes) =
            (u64::from(precision.bytes()), u64::from(precision.dtype().sum_bytes()));
        let (rows, nnz) = (wide(facts.rows), wide(facts.nnz));
        // Rows that have entries in tiles and beside them are listed, 16 bytes each.
        let adds = matches!(partition, Some(PartitionRule::ColumnVectors { .. }));
        let sizes = Sizes {
            rows,
            cols: wide(facts.cols),
            width,
            element_bytes,
            sum_bytes,
            a_bytes: row_bytes(0, element_bytes) * rows + nnz * (4 + element_bytes),
            longest_row: row_bytes(facts.longest, element_bytes) + BLOCK_OVERHEAD,
            kept_bytes: if adds { 16 * rows } else { 0 },
            seconds: 0.0,
        };
        let gathered = sizes.dense_bytes(nnz) as f64 / GATHER_RATE;
        let seconds = decision.weighed.first().map_or(gathered, |best| best.predicted_us * 1e-6);
        Sizes { seconds, ..sizes }
    }

    /// The decision; or, where that was left open, row-split, whose arrays are the smallest, unless there is room for
    /// twice as much as they take and the bus is not what takes longest.
    fn lightened(&self, decision: Decision, sizes: &Sizes, arrangement: &Arrangement) -> Decision {
        let precision = self.options.precision;
        let is_open = self.options.algorithm == Algorithm::Auto && Algorithm::RowSplit.supports(precision);
        let streamed = sizes.a_bytes.saturating_sub(arrangement.resident_bytes);
        let up = sizes.slices(arrangement) * streamed + sizes.dense_bytes(sizes.cols);
        let bus = up.max(sizes.dense_bytes(sizes.rows)) as f64 / BUS_RATE;
        let on_device = sizes.dense_bytes(wide(self.a.nnz())) as f64 / GATHER_RATE;
        let is_roomy = arrangement.resident_bytes >= 2 * sizes.a_bytes;
        if !is_open || is_roomy && on_device > bus {
            return decision;
        }
        let [bus, on_device] = [bus, on_device].map(|seconds| seconds * 1e6);
        let why = match on_device > bus {
            false => format!("the bus takes {bus:.0} µs, CSR on the device about {on_device:.0}"),
            true => "of CSR more stays on the device than of tiles".to_owned(),
        };
        Decision { algorithm: Algorithm::RowSplit, precision, why, ..decision }
    }

    /// The options of the plans of blocks.
    fn options_of_blocks(&self, decision: &Decision, arrangement: &Arrangement) -> SpmmOptions {
        SpmmOptions {
            width: arrangement.slice,
            algorithm: decision.algorithm,
            precision: decision.precision,
            memory_limit: None,
            expected_runs: None,
            autotune: false,
            values_from_device: false,
            preprocessing: Preprocessing::Cpu,
            ..self.options
        }
    }

    fn report(
        &self,
        sizes: &Sizes,
        arrangement: &Arrangement,
        (decision, engine, overflowed_values): (Decision, &Engine, u64),
        clock: StageClock,
    ) -> OutOfCoreReport {
        let SpmmOptions { width, precision, .. } = self.options;
        let slices = sizes.slices(arrangement);
        let streamed = engine.blocks.iter().filter_map(|block| block.content.as_ref());
        let streamed_bytes: u64 = streamed.clone().map(|content| wide(content.len())).sum();
        let pieces = engine.feeders.iter().map(|feeder| &feeder.piece).chain(&engine.results);
        let resident: u64 = engine.resident_bytes;
        let arrays = sizes.arrays(&Arrangement { resident_bytes: resident, ..arrangement.clone() });
        OutOfCoreReport {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            width,
            precision,
            algorithm: decision.algorithm,
            reason: decision.why,
            overflowed_values,
            blocks: engine.blocks.len(),
            resident_blocks: engine.blocks.len() - streamed.count(),
            slice_columns: arrangement.slice,
            slices: index(slices),
            a_bytes_up: slices * engine.bytes_there_and_back() / 2,
            b_bytes_up: sizes.dense_bytes(sizes.cols),
            c_bytes_down: sizes.dense_bytes(sizes.rows),
            predicted_us: arrangement.seconds * 1e6,
            device_bytes: arrays.iter().map(|array| array.bytes).sum(),
            arrays,
            pinned_bytes: streamed_bytes + pieces.map(|piece| wide(piece.len())).sum::<u64>(),
            stages: clock.stages,
        }
    }
}

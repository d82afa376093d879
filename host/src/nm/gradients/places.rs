//! Kept values and dense matrices: each brought to the other.

use std::any::TypeId;

use windrow_formats::{Value, VectorNm};
use windrow_kernels::nm::{NmKeptParams, NmTaken, NmTransposed};
use windrow_kernels::place_values::code;
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer, Stream};
use crate::element::Element;
use crate::error::{DeviceError, NmError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::nm::placing::given;
use crate::num::narrow;
use crate::options::Precision;
use crate::plan::{On, check_ld, start};
use crate::view::{DeviceView, DeviceViewMut};

/// Where the kept values of weights belong.
pub(super) struct Places {
    weights: VectorNm<()>,
    /// Position in its group of each kept row and vector, on a device that runs kernels.
    positions: Option<DeviceBuffer<u8>>,
}

impl Places {
    /// Those of checked weights, brought to a device that runs kernels.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(super) fn new(device: &Device, weights: VectorNm<()>) -> Result<Self, DeviceError> {
        let positions = match device.machine() {
            Some(_) => Some(DeviceBuffer::named(device, &even(weights.indices())?, POSITIONS)?),
            None => None,
        };
        Ok(Self { weights, positions })
    }

    pub(super) fn weights(&self) -> &VectorNm<()> {
        &self.weights
    }

    /// What of this is in device memory.
    pub(super) fn bytes(&self) -> Option<(&'static str, u64)> {
        self.positions.as_ref().map(|positions| (POSITIONS, positions.bytes()))
    }

    /// What kernels are told, of a machine that runs them.
    fn params(&self, positions: &DeviceBuffer<u8>) -> NmKeptParams {
        let (weights, pattern) = (&self.weights, self.weights.pattern());
        NmKeptParams {
            kept: GlobalPtr::NULL,
            positions: positions.pointer().cast(),
            dense: GlobalPtr::NULL,
            rows: narrow(weights.rows()),
            columns: narrow(weights.cols()),
            kept_rows: narrow(weights.kept_rows()),
            group_kept: narrow(pattern.n()),
            group_rows: narrow(pattern.m()),
            vector: narrow(pattern.l()),
            vectors: narrow(weights.vectors()),
            kept_type: 0,
            dense_type: 0,
            ld_kept: 0,
        }
    }

    /// Fills `into`, of as many elements as the weights have, with their transpose: kept values rounded, zeros where
    /// nothing is kept.
    ///
    /// # Errors
    /// [`PlanError::ElementType`] for values that kernels do not read.
    pub(super) fn transposed<V: Value, E: Element>(
        &self,
        on: &Stream,
        values: DeviceView<'_, V>,
        into: &mut DeviceBuffer<E>,
    ) -> Result<(), NmError> {
        let Some(positions) = &self.positions else {
            if let (Some(values), Some(into)) = (values.host(), into.view_mut().into_host()) {
                into.fill(E::ZERO);
                let rows = self.weights.rows();
                self.each(|kept, row, column| into[column * rows + row] = convert(values.row(kept)[column]));
            }
            return Ok(());
        };
        let Some(kept_type) = given::<V>() else {
            let (operand, found) = ("the array of values", V::NAME);
            return Err(PlanError::ElementType { operand, found, expected: Precision::F32 }.into());
        };
        let params = NmKeptParams {
            kept: GlobalPtr::from_address(values.address()),
            ld_kept: check_ld(values.ld())?,
            dense: into.pointer().cast(),
            kept_type: code(kept_type),
            dense_type: code(E::PRECISION.dtype()),
            ..self.params(positions)
        };
        let blocks = NmTransposed::blocks(params.rows, params.columns, params.group_rows);
        self.queue(on, into.device(), Variant::NmTransposed, (blocks, params))
    }

    /// Fills `into` with the elements of a `k × n` matrix that weights keep.
    pub(super) fn taken<R: Element>(
        &self,
        on: &Stream,
        dense: &DeviceMatrix<f32>,
        into: DeviceViewMut<'_, R>,
    ) -> Result<(), NmError> {
        let Some(positions) = &self.positions else {
            if let (Some(dense), Some(mut into)) = (dense.host(), into.into_host()) {
                self.each(|kept, row, column| {
                    into.row_mut(kept)[column] = R::from_f32(dense.row(row)[column]);
                });
            }
            return Ok(());
        };
        let params = NmKeptParams {
            kept: GlobalPtr::from_address(into.address()),
            ld_kept: check_ld(into.ld())?,
            dense: dense.buffer().pointer().cast(),
            kept_type: code(R::PRECISION.dtype()),
            ..self.params(positions)
        };
        let blocks = NmTaken::blocks(params.kept_rows, params.columns);
        self.queue(on, dense.device(), Variant::NmTaken, (blocks, params))
    }

    /// Visits every kept row and column, with the row of the weights that it is of between them.
    fn each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let weights = &self.weights;
        for kept in 0..weights.kept_rows() {
            for vector in 0..weights.vectors() {
                let row = weights.source_row(kept, vector);
                weights.vector_columns(vector).for_each(|column| visit(kept, row, column));
            }
        }
    }

    /// Queues a kernel. Its dense matrix is windrow's memory.
    fn queue(
        &self,
        on: &Stream,
        device: &Device,
        variant: Variant,
        (blocks, params): (u64, NmKeptParams),
    ) -> Result<(), NmError> {
        let entry: &'static Entry = windrow_kernels::entry(variant)
            .ok_or(DeviceError::MissingEntry { name: "a kernel for kept values" })
            .map_err(PlanError::from)?;
        let on = On::of(on, device, true)?;
        // SAFETY: positions are those of the weights, which were checked; the caller has found as many kept values and
        // elements as these have, in memory that lives until the work is done, what is written borrowed for itself.
        let queued = on.run([entry], |queue| unsafe { start(queue, entry, blocks, 1, &params) });
        Ok(queued.map_err(PlanError::from)?)
    }
}

/// Name of the array in reports.
const POSITIONS: &str = "positions of kept values";

/// Bytes in words of two: one more if their number is odd.
fn even(bytes: &[u8]) -> Result<Vec<u8>, DeviceError> {
    let mut words = windrow_formats::memory::try_filled(bytes.len().next_multiple_of(2), 0, POSITIONS)?;
    words[..bytes.len()].copy_from_slice(bytes);
    Ok(words)
}

/// The nearest element of the other type.
fn convert<V: Value, E: Value>(value: V) -> E {
    match TypeId::of::<V>() == TypeId::of::<f64>() {
        true => E::from_f64(value.to_f64()),
        false => E::from_f32(value.to_f32()),
    }
}

//! The dense operands of a run, and what becomes of its sums.

use windrow_formats::Value;
use windrow_kernels::Factor;
use windrow_kernels::dense::Dense;
use windrow_kernels::output::{Activate, Output, OutputType};
use windrow_simt::GlobalPtr;

use super::part::{DenseOperands, SecondFactor};
use super::sums::Wide;
use crate::activation::{Activation, Epilogue};
use crate::element::{Element, kernel_factor, output_type};
use crate::options::Precision;
use crate::view::DeviceSlice;

/// The dense operands of a run: addresses, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) b: u64,
    pub(crate) ldb: u32,
    /// Whether columns of `B` are contiguous, `ldb` elements from one to the next.
    pub(crate) column_major: bool,
    /// The other factor of entries that have two, of the same type as `B`.
    pub(crate) second: Option<SecondFactor>,
    /// Whether rows of `B` and of the second factor, columns of a column-major `B`, may be read up to 16 bytes beyond
    /// their end, if they begin at multiples of that.
    pub(crate) reads_vectors: bool,
    pub(crate) c: u64,
    pub(crate) ldc: u32,
    pub(crate) n: u32,
    pub(crate) finish: Finish,
}

/// What becomes of sums: the run's epilogue, and the type of `C`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    alpha: Factor,
    beta: Factor,
    /// One number for each column, in the type of the sums; 0 if there is none.
    bias: u64,
    activation: Activation,
    gated: bool,
    c_type: OutputType,
}

impl Finish {
    /// For a `C` of elements `C`.
    pub(crate) fn of<C: Element>(run: &Epilogue<'_, C::Sum, DeviceSlice<'_, C::Sum>>) -> Self {
        Self {
            alpha: kernel_factor(run.alpha),
            beta: kernel_factor(run.beta),
            bias: run.bias.map_or(0, DeviceSlice::address),
            activation: run.activation,
            gated: run.gated,
            c_type: output_type::<C>(),
        }
    }

    /// `C ← α·A·B + β·C`, for a `C` of this type.
    pub(super) fn linear(alpha: Factor, beta: Factor, c_type: OutputType) -> Self {
        Self { alpha, beta, bias: 0, activation: Activation::Identity, gated: false, c_type }
    }

    /// Whether it may be done to parts of a sum, one after the other.
    pub(super) fn is_additive(&self) -> bool {
        self.c_type == OutputType::Sums && !self.needs_stage()
    }

    /// Whether only [`Combine`] does it: kernels that multiply have no registers left for a bias, an activation, a gate
    /// or bf16.
    pub(super) fn needs_stage(&self) -> bool {
        let Self { bias, activation, gated, c_type, .. } = *self;
        bias != 0 || activation != Activation::Identity || gated || c_type == OutputType::Bf16
    }
}

/// The workspace of a run, as kernels see it.
#[derive(Clone, Copy)]
pub(super) struct Workspace {
    /// The first of its sums; null if nothing is cut.
    pub(super) partial: GlobalPtr<u32>,
    /// Columns of the workspace.
    pub(super) columns: u32,
    /// Whether sums are accumulated in it, in any order.
    pub(super) accumulate: bool,
}

impl Operands {
    /// Columns `first..first + n`, for kernels of a precision.
    pub(super) fn columns(
        &self,
        first: u32,
        n: u32,
        precision: Precision,
        workspace: Workspace,
    ) -> DenseOperands {
        let sum_bytes = precision.dtype().sum_bytes();
        let Finish { alpha, beta, bias, activation, gated, c_type } = self.finish;
        let c_bytes = u64::from(c_type.bytes(sum_bytes));
        let c = self.c + u64::from(first) * c_bytes;
        let bias = if bias == 0 { 0 } else { bias + u64::from(first) * u64::from(sum_bytes) };
        // Four elements, or 16 bytes.
        let aligned = |address: u64| address.is_multiple_of(16.min(4 * c_bytes));
        let vectors = aligned(c) && aligned(u64::from(self.ldc) * c_bytes) && bias.is_multiple_of(16);
        let columns_bytes = u64::from(first) * u64::from(precision.bytes());
        let step = if self.column_major { self.ldb } else { 1 };
        let at_first = |SecondFactor { address, ld }| SecondFactor { address: address + columns_bytes, ld };
        let out = Output {
            c: GlobalPtr::from_address(c),
            bias: GlobalPtr::from_address(bias),
            alpha,
            beta,
            m: u32::MAX, // parts know their rows
            n,
            ldc: self.ldc,
            flags: Output::flags(c_type, activation.code(), vectors) | Output::gate(gated),
        };
        let dense = Dense {
            out,
            b: GlobalPtr::from_address(self.b + columns_bytes * u64::from(step)),
            partial: workspace.partial,
            ldb: self.ldb,
            ld_partial: workspace.columns,
            accumulate: u32::from(workspace.accumulate),
            reserved: 0,
        };
        let Self { column_major, reads_vectors, .. } = *self;
        DenseOperands { dense, column_major, reads_vectors, second: self.second.map(at_first) }
    }
}

impl DenseOperands {
    /// Whether `B` may be read in vectors of 16 bytes.
    pub(super) fn are_vectors(&self, precision: Precision) -> bool {
        let row_bytes = u64::from(self.dense.ldb) * u64::from(precision.bytes());
        let aligned = self.dense.b.address().is_multiple_of(16) && row_bytes.is_multiple_of(16);
        self.reads_vectors && aligned
    }

    /// The same with sums as they are in place of `C`, which has no more columns than `wide_c`.
    pub(super) fn into_wide(self, wide_c: Wide, precision: Precision) -> Self {
        let out = Output {
            c: wide_c.c,
            bias: GlobalPtr::NULL,
            alpha: factor(precision, 1.0),
            beta: factor(precision, 0.0),
            ldc: wide_c.columns,
            flags: Output::flags(OutputType::Sums, Activate::Identity, true),
            ..self.dense.out
        };
        Self { dense: Dense { out, ..self.dense }, ..self }
    }
}

/// A number as the kernels of a precision take it.
fn factor(precision: Precision, x: f32) -> Factor {
    crate::with_element!(precision, E => kernel_factor(<<E as Element>::Sum as Value>::from_f32(x)))
}

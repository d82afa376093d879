//! The dense operands of a run.

use windrow_formats::Value;
use windrow_kernels::attention::{DroppedWeights, HeadMatrix};
use windrow_simt::GlobalPtr;

use super::options::{AttentionOptions, Dropout, HeadLayout};
use crate::element::Element;
use crate::error::PlanError;
use crate::num::wide;
use crate::plan::{check_ld, check_shape};
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView};

/// What a run of attention reads beside the matrix, and keeps for the gradient; made of `Q`, `K` and `V`.
///
/// # Shapes
/// For `A` of m × n, `h` heads of `d` columns of `Q` and `K` and `e` of `V`, in the plan's [`HeadLayout`]: `Q` is
/// m × (h·d) or (h·m) × d, `K` n × (h·d) or (h·n) × d, `V` n × (h·e) or (h·n) × e. `Q` and `K` are of the type of `V`;
/// of [additive](super::AttentionBuilder::additive) scores they are of f32 and `d` is 1.
#[derive(Debug)]
pub struct AttentionOperands<'a, T: Value, S: Value = T> {
    pub(super) q: DeviceView<'a, S>,
    pub(super) k: DeviceView<'a, S>,
    pub(super) v: DeviceView<'a, T>,
    pub(super) vector: Option<DeviceSlice<'a, f32>>,
    pub(super) bias: Option<DeviceSlice<'a, f32>>,
    pub(super) dropout: Option<Dropout>,
    pub(super) states: Option<DeviceSliceMut<'a, f32>>,
}

impl<'a, T: Value, S: Value> AttentionOperands<'a, T, S> {
    /// Without vector, bias, dropout and states.
    pub fn new(
        q: impl Into<DeviceView<'a, S>>,
        k: impl Into<DeviceView<'a, S>>,
        v: impl Into<DeviceView<'a, T>>,
    ) -> Self {
        let (q, k, v) = (q.into(), k.into(), v.into());
        Self { q, k, v, vector: None, bias: None, dropout: None, states: None }
    }

    /// What scores of [`GATv2`](super::AttentionBuilder::gatv2) multiply rectified sums by: `heads · d` numbers, those
    /// of a head in succession.
    #[must_use]
    pub fn vector(mut self, vector: impl Into<DeviceSlice<'a, f32>>) -> Self {
        self.vector = Some(vector.into());
        self
    }

    /// What is added to the scaled products, or to the sums of additive scores: a number for each entry in CSR order,
    /// the same for all heads, or so many for each head, one head after the other. Minus infinity leaves an entry out.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<DeviceSlice<'a, f32>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// Leaves weights out at random, in training.
    #[must_use]
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// Keeps of each head and row the largest score, or one a little smaller, and `Σ exp(score − it)`, heads slowest:
    /// `2 · heads · m` numbers, of which the gradient recomputes the weights.
    #[must_use]
    pub fn states(mut self, states: impl Into<DeviceSliceMut<'a, f32>>) -> Self {
        self.states = Some(states.into());
        self
    }
}

/// As kernels take it.
pub(super) fn dropped_weights(dropout: Option<Dropout>) -> DroppedWeights {
    match dropout {
        None => DroppedWeights { below: 0, keep_scale: 1.0, seed: 0 },
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2³², and no more"
        )]
        Some(Dropout { rate, seed }) => {
            let below = (f64::from(rate) * 4_294_967_296.0) as u32;
            DroppedWeights { below, keep_scale: 1.0 / (1.0 - rate), seed }
        }
    }
}

/// An operand of `rows` rows and so many columns a head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) name: &'static str,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Extent {
    /// Rows and columns of the matrix that has all heads.
    pub(super) fn shape(self, options: &AttentionOptions) -> (usize, usize) {
        match options.layout {
            HeadLayout::Columns => (self.rows, options.heads * self.columns),
            HeadLayout::Rows => (options.heads * self.rows, self.columns),
        }
    }

    /// Elements from one head to the next, for a leading dimension.
    pub(super) fn head(self, options: &AttentionOptions, ld: usize) -> usize {
        match options.layout {
            HeadLayout::Columns => self.columns,
            HeadLayout::Rows => self.rows * ld,
        }
    }

    pub(super) fn check(self, options: &AttentionOptions, found: (usize, usize)) -> Result<(), PlanError> {
        check_shape(self.name, found, self.shape(options))
    }

    /// As kernels take it.
    pub(super) fn of_kernel(
        self,
        options: &AttentionOptions,
        address: u64,
        ld: usize,
    ) -> Result<HeadMatrix, PlanError> {
        Ok(HeadMatrix {
            first: GlobalPtr::from_address(address),
            head: wide(self.head(options, ld)),
            ld: check_ld(ld)?,
            columns: crate::num::narrow(self.columns),
        })
    }

    /// Whether every row of every head begins at a multiple of `bytes` bytes, and has a multiple of that.
    pub(super) fn is_aligned<T: Element>(
        self,
        options: &AttentionOptions,
        address: u64,
        ld: usize,
        bytes: usize,
    ) -> bool {
        let size = size_of::<T>();
        let lengths = [ld, self.head(options, ld), self.columns];
        address.is_multiple_of(wide(bytes)) && lengths.iter().all(|len| (len * size).is_multiple_of(bytes))
    }
}

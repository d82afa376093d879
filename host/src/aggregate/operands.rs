//! The operands of a run.

use windrow_formats::Value;

use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut};

/// What a reduction reads beside the matrix, and keeps for the gradient; made of `X`.
///
/// # Shapes
/// For `A` of m × n and a plan of `d` columns `X` is n × d. Values have a number for each entry in CSR order, winners
/// `m · d`.
#[derive(Debug)]
pub struct AggregateOperands<'a, T: Value> {
    pub(super) x: DeviceView<'a, T>,
    pub(super) values: Option<DeviceSlice<'a, f32>>,
    pub(super) winners: Option<DeviceSliceMut<'a, u32>>,
}

impl<'a, T: Value> AggregateOperands<'a, T> {
    /// With the matrix's values, keeping no winners.
    pub fn new(x: impl Into<DeviceView<'a, T>>) -> Self {
        Self { x: x.into(), values: None, winners: None }
    }

    /// Other values than the matrix has.
    #[must_use]
    pub fn values(mut self, values: impl Into<DeviceSlice<'a, f32>>) -> Self {
        self.values = Some(values.into());
        self
    }

    /// Keeps of each element the position of the entry that it came from, row after row; 2³² − 1 in rows without
    /// entries. Of a maximum or a minimum.
    #[must_use]
    pub fn winners(mut self, winners: impl Into<DeviceSliceMut<'a, u32>>) -> Self {
        self.winners = Some(winners.into());
        self
    }
}

/// What the gradient of a reduction reads: the operands of the forward pass, the gradient of its result, and of a
/// maximum or a minimum the winners that it kept.
#[derive(Debug)]
pub struct AggregateBackward<'a, T: Value> {
    pub(super) operands: AggregateOperands<'a, T>,
    pub(super) gradient: DeviceView<'a, T>,
    pub(super) winners: Option<DeviceSlice<'a, u32>>,
}

impl<'a, T: Value> AggregateBackward<'a, T> {
    /// `gradient` is that of a loss with respect to the result, in the type of `X`. Where the operands would leave
    /// winners is not looked at.
    pub fn new(operands: AggregateOperands<'a, T>, gradient: impl Into<DeviceView<'a, T>>) -> Self {
        Self { operands, gradient: gradient.into(), winners: None }
    }

    /// Which entry each element came from, as the forward pass has [kept](AggregateOperands::winners) it.
    #[must_use]
    pub fn winners(mut self, winners: impl Into<DeviceSlice<'a, u32>>) -> Self {
        self.winners = Some(winners.into());
        self
    }
}

/// Where the gradients of a reduction go: that of `X`, of f32, f16 or bf16.
#[derive(Debug)]
pub struct AggregateGradients<'a, R: Value> {
    pub(super) x: DeviceViewMut<'a, R>,
    pub(super) values: Option<DeviceSliceMut<'a, f32>>,
}

impl<'a, R: Value> AggregateGradients<'a, R> {
    /// Without that of the values.
    pub fn new(x: impl Into<DeviceViewMut<'a, R>>) -> Self {
        Self { x: x.into(), values: None }
    }

    /// Where the gradient of the values goes, a number for each entry.
    #[must_use]
    pub fn values(mut self, values: impl Into<DeviceSliceMut<'a, f32>>) -> Self {
        self.values = Some(values.into());
        self
    }
}

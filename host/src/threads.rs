//! What threads may share and hand on: everything that a program keeps, checked by the compiler.

use crate::training::{Adam, ColumnSums, CountedAdam, CountedStep, CrossEntropy, Moments};
use crate::{
    Device, DeviceBuffer, DeviceCsr, DeviceMatrix, DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut,
    Error, Event, MttkrpPlan, NmSpmmPlan, RowSoftmax, SddmmPlan, SpmmPlan, Stream, TtmPlan,
};

const fn shared<T: Send + Sync>() {}

const _: () = {
    shared::<Device>();
    shared::<Stream>();
    shared::<Event>();
    shared::<Error>();
    shared::<DeviceBuffer<f32>>();
    shared::<DeviceMatrix<f32>>();
    shared::<DeviceCsr<'_, f32>>();
    shared::<DeviceView<'_, f32>>();
    shared::<DeviceViewMut<'_, f32>>();
    shared::<DeviceSlice<'_, f32>>();
    shared::<DeviceSliceMut<'_, f32>>();
    shared::<SpmmPlan>();
    shared::<SddmmPlan>();
    shared::<RowSoftmax>();
    shared::<NmSpmmPlan>();
    shared::<MttkrpPlan>();
    shared::<TtmPlan>();
    shared::<Adam>();
    shared::<CountedAdam>();
    shared::<CountedStep<'_>>();
    shared::<Moments>();
    shared::<CrossEntropy>();
    shared::<ColumnSums>();
};

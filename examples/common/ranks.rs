//! Graph convolution on several ranks: each has some nodes, their features and their labels.

use std::ops::Range;

use windrow::dist::{Communicator, DistCsr, DistSpmm, DistSpmmPlan};
use windrow::{Csr, Device, DeviceMatrix, DistError};

use super::Result;
use super::data::Task;
use super::gcn::{Adjacency, Gcn};
use super::graph::normalized;
use super::lane::Lane;
use super::model::{Operand, Shape, Tools, Typed};

/// A rank's rows of `Â`, which is symmetric. Gradients of parameters are summed over the ranks.
pub(crate) struct OfRank<'a> {
    communicator: &'a Communicator,
    plan: DistSpmmPlan<'a>,
}

impl Adjacency for OfRank<'_> {
    type Error = DistError;

    fn multiply(
        &self,
        _lane: &Lane,
        _transposed: bool,
        (alpha, operand, x): (f32, &Operand, &DeviceMatrix<f32>),
        product: &mut DeviceMatrix<f32>,
    ) -> std::result::Result<(), DistError> {
        match operand.of(x) {
            Typed::F32(x) => self.plan.run_into(alpha, x, 0.0, product),
            Typed::F16(x) => self.plan.run_into(alpha, x, 0.0, product),
            Typed::Bf16(x) => self.plan.run_into(alpha, x, 0.0, product),
        }
    }

    fn reduce(&self, gradient: &mut DeviceMatrix<f32>) -> std::result::Result<(), DistError> {
        self.communicator.all_reduce(gradient)
    }

    fn reports(&self) -> String {
        self.plan.report().to_string()
    }
}

/// A rank's rows of the normalised graph.
///
/// # Errors
/// Those of [`DistCsr::of`].
pub(crate) fn part(communicator: &Communicator, graph: &Csr<f32>) -> Result<DistCsr<f32>> {
    Ok(DistCsr::of(communicator, &normalized(graph)?)?)
}

/// The nodes of a rank.
pub(crate) fn nodes(part: &DistCsr<f32>) -> Range<usize> {
    part.rows().range(part.rank())
}

/// A rank's part of the model, for its part of the task; all ranks make theirs together.
///
/// # Errors
/// If there are no layers, or a device refuses.
pub(crate) fn gcn<'a>(
    communicator: &'a Communicator,
    part: &'a DistCsr<f32>,
    (task, shape): (&Task, &Shape),
    tools: Tools,
) -> Result<Gcn<OfRank<'a>>> {
    let device: Device = tools.device.clone();
    let builder = DistSpmm::builder(communicator, part).width(shape.widest()).precision(shape.precision);
    let plan = builder.build(&device)?;
    Gcn::with(OfRank { communicator, plan }, task, shape, tools)
}

//! Products of two dense matrices at the entries of a distributed sparse one.

use std::fmt;

use windrow_formats::{Csr, Value};

use super::communicator::Communicator;
use super::csr::DistCsr;
use super::exchange::{Exchange, Needed, decide};
use super::scheme::{DistReport, Scheme};
use crate::device::{Device, DeviceBuffer};
use crate::element::Element;
use crate::error::DistError;
use crate::matrix::DeviceMatrix;
use crate::num::narrow;
use crate::options::Precision;
use crate::plan::check_shape;
use crate::sddmm::{Sddmm, SddmmForm, SddmmOptions, SddmmPlan};
use crate::spmm::SpmmOptions;

/// `out = α·(X·Yᵀ) ⊙ A` at the entries of an `A` of which each rank has some rows: the way to a plan.
#[derive(Debug, Clone, Copy)]
pub struct DistSddmm;

impl DistSddmm {
    /// Starts a plan for sampled products at the entries of `a`, which all ranks of the group make together.
    pub fn builder<'a, V: Value>(
        communicator: &'a Communicator,
        a: &'a DistCsr<V>,
    ) -> DistSddmmBuilder<'a, V> {
        DistSddmmBuilder { communicator, a, scheme: Scheme::default(), options: SddmmOptions::default() }
    }
}

/// Options of a plan of sampled products with a distributed matrix; made by [`DistSddmm::builder`].
#[derive(Debug, Clone)]
pub struct DistSddmmBuilder<'a, V: Value> {
    communicator: &'a Communicator,
    a: &'a DistCsr<V>,
    scheme: Scheme,
    options: SddmmOptions,
}

impl<'a, V: Value> DistSddmmBuilder<'a, V> {
    /// Which rows of `Y` are exchanged, [`Scheme::Rows`] unless told; there is no division by columns.
    #[must_use]
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Columns of `X` and `Y`, 128 unless told.
    #[must_use]
    pub fn inner(mut self, d: usize) -> Self {
        self.options.inner = d;
        self
    }

    /// The type that `X` and `Y` are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// What the values of the matrix are for, [`SddmmForm::Mask`] unless told.
    #[must_use]
    pub fn form(mut self, form: SddmmForm) -> Self {
        self.options.form = form;
        self
    }

    /// Makes this rank's plan on its device.
    ///
    /// # Errors
    /// - [`DistError::Disagreement`] if ranks ask for other schemes, inner dimensions or precisions;
    /// - [`DistError::NotByColumns`] for [`Scheme::Columns`];
    /// - those of [`SddmmBuilder::build`](crate::SddmmBuilder::build), which the other ranks get as
    ///   [`DistError::RankFailed`];
    /// - those of [`Communicator::all_gather`].
    pub fn build(&self, device: &Device) -> Result<DistSddmmPlan<'a>, DistError> {
        self.communicator.told(self.built(device))
    }

    fn built(&self, device: &Device) -> Result<DistSddmmPlan<'a>, DistError> {
        if self.scheme == Scheme::Columns {
            return Err(DistError::NotByColumns);
        }
        let SddmmOptions { inner, precision, form, .. } = self.options;
        self.communicator
            .agree("scheme, inner dimension, precision and form", &(self.scheme, inner, precision, form))?;
        let (a, owned) = (self.a, self.a.columns());
        let own = owned.range(a.rank());
        let needed = Needed::of(a);
        let mut report = DistReport::of(a, &needed, (self.communicator.size(), self.scheme));
        let (channel, coming) =
            decide((self.communicator, device), a, needed, (inner, precision), &mut report)?;
        // Rows of one's own lie among those that come, in the order of all: entries stay in theirs.
        let before = coming.partition_point(|&row| (row as usize) < own.start);
        let place = |column: u32| match own.contains(&(column as usize)) {
            true => narrow(before + column as usize - own.start),
            false => {
                let at = coming.partition_point(|&row| row < column);
                narrow(if at < before { at } else { at + own.len() })
            }
        };
        let local = a.local();
        let columns = local.col_indices().iter().map(|&column| place(column)).collect();
        let rows = own.len() + coming.len();
        let offsets = local.row_offsets().to_vec();
        let local = Csr::try_from_parts(local.rows(), rows, offsets, columns, local.values().to_vec())?;
        let plan = Sddmm::builder(&local).options(self.options.clone()).build(device)?;
        let packing = SpmmOptions { width: inner, precision, ..SpmmOptions::default() };
        let exchange = Exchange::new(
            (self.communicator, channel, device),
            owned,
            (coming, true),
            report.scheme,
            &packing,
        )?;
        (report.received_rows, report.sent_rows) = (exchange.received_rows(), exchange.sent_rows());
        report.device_bytes =
            plan.report().device_bytes + exchange.packing().map_or(0, |plan| plan.report().device_bytes);
        self.communicator.barrier()?; // all ranks have a plan, or none
        Ok(DistSddmmPlan {
            communicator: self.communicator,
            device: device.clone(),
            plan,
            exchange,
            own: own.len(),
            report,
        })
    }
}

/// One rank's part of a sampled product with a distributed matrix, ready to run; made by [`DistSddmmBuilder::build`].
///
/// # Examples
/// ```
/// use windrow::dist::{Communicator, DistCsr, DistSddmm};
/// use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix};
///
/// let (device, a) = (Device::cpu(), Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0])?);
/// for rank in Communicator::threads(1)? {
///     let part = DistCsr::of(&rank, &a)?;
///     let plan = DistSddmm::builder(&rank, &part).inner(1).build(&device)?;
///     let x = DeviceMatrix::upload(&device, DenseRef::packed(&[2.0f32, 3.0], 2, 1)?)?;
///     let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, part.local().nnz())?;
///     plan.run_into(1.0, &x, &x, &mut out)?;
///     assert_eq!(out.to_vec()?, [4.0, 6.0, 9.0]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DistSddmmPlan<'a> {
    communicator: &'a Communicator,
    device: Device,
    plan: SddmmPlan,
    exchange: Exchange,
    /// Rows of `Y` that this rank owns.
    own: usize,
    report: DistReport,
}

impl DistSddmmPlan<'_> {
    /// What the plan is and exchanges.
    #[must_use]
    pub fn report(&self) -> &DistReport {
        &self.report
    }

    /// `out ← α·(X·Yᵀ) ⊙ A`, in which all ranks take part, each with the rows of `X` and `Y` that it owns and the
    /// entries of its rows. The same bits as of one device with the whole matrix, by the same kernel.
    ///
    /// # Shapes
    /// `x`: a row for each row of the rank, `y`: one for each row of `Y` that it owns; `out`: a number for each entry.
    ///
    /// # Errors
    /// - those of [`SddmmPlan::run_into`], which other ranks get as [`DistError::RankFailed`];
    /// - [`DistError::Disagreement`] if a rank has another inner dimension;
    /// - [`DistError::RankFailed`] and [`DistError::TimedOut`] of another rank. `out` is not to be used then.
    pub fn run_into<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T>,
        out: &mut DeviceBuffer<O>,
    ) -> Result<(), DistError> {
        self.communicator.told(self.run(alpha, [x, y], out))
    }

    fn run<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        [x, y]: [&DeviceMatrix<T>; 2],
        out: &mut DeviceBuffer<O>,
    ) -> Result<(), DistError> {
        let inner = y.cols();
        // What is wrong with this rank's operands is told to the others before they wait for its rows.
        check_shape("Y", (y.rows(), inner), (self.own, inner))?;
        let mut room = self.exchange.room::<T>(inner)?;
        self.exchange.run(self.communicator, y, &mut room, || Ok(()))?;
        self.plan.run_into(alpha, x, room.rows(), out)?;
        self.exchange.finish(self.communicator, room)
    }
}

impl fmt::Debug for DistSddmmPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DistReport { rank, ranks, scheme, .. } = self.report;
        write!(f, "DistSddmmPlan({scheme}, rank {rank} of {ranks}, on {})", self.device)
    }
}

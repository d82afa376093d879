//! Products of a distributed sparse matrix and a dense one.

use std::fmt;
use std::ops::Range;

use windrow_formats::{Csr, Permutation, Value};

use super::communicator::Communicator;
use super::csr::DistCsr;
use super::exchange::{Exchange, Needed, decide};
use super::ownership::Ownership;
use super::scheme::{DistReport, Scheme};
use crate::device::Device;
use crate::element::Element;
use crate::error::{DistError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::num::narrow;
use crate::options::{Algorithm, Precision};
use crate::spmm::{Spmm, SpmmOptions, SpmmPlan};

/// `C ← α·A·B + β·C` with an `A` of which each rank has some rows: the way to a plan.
#[derive(Debug, Clone, Copy)]
pub struct DistSpmm;

impl DistSpmm {
    /// Starts a plan for products with `a`, which all ranks of the group make together.
    pub fn builder<'a, V: Value>(
        communicator: &'a Communicator,
        a: &'a DistCsr<V>,
    ) -> DistSpmmBuilder<'a, V> {
        DistSpmmBuilder { communicator, a, scheme: Scheme::default(), options: SpmmOptions::default() }
    }
}

/// Options of a plan of products with a distributed matrix; made by [`DistSpmm::builder`].
#[derive(Debug, Clone)]
pub struct DistSpmmBuilder<'a, V: Value> {
    communicator: &'a Communicator,
    a: &'a DistCsr<V>,
    scheme: Scheme,
    options: SpmmOptions,
}

impl<'a, V: Value> DistSpmmBuilder<'a, V> {
    /// How the product is divided, [`Scheme::Rows`] unless told.
    #[must_use]
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Columns of `B` of all ranks together, 128 unless told.
    #[must_use]
    pub fn width(mut self, n: usize) -> Self {
        self.options.width = n;
        self
    }

    /// The type that values and `B` are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// All options of the plans that each rank makes on its device, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: SpmmOptions) -> Self {
        self.options = options;
        self
    }

    /// Makes this rank's plan on its device; ranks may have devices of different kinds.
    ///
    /// # Errors
    /// - [`DistError::Disagreement`] if ranks ask for other schemes, widths or precisions, or have other matrices;
    /// - those of [`SpmmBuilder::build`](crate::SpmmBuilder::build), which the other ranks get as
    ///   [`DistError::RankFailed`];
    /// - those of [`Communicator::all_gather`].
    pub fn build(&self, device: &Device) -> Result<DistSpmmPlan<'a>, DistError> {
        self.communicator.told(self.built(device))
    }

    fn built(&self, device: &Device) -> Result<DistSpmmPlan<'a>, DistError> {
        let SpmmOptions { width, precision, .. } = self.options;
        self.communicator.agree("scheme, width and precision", &(self.scheme, width, precision))?;
        self.communicator.agree("who owns what", &(self.a.rows(), self.a.columns()))?;
        let ranks = self.communicator.size();
        let columns = Ownership::even(width, ranks);
        let needed = Needed::of(self.a);
        let mut report = DistReport::of(self.a, &needed, (ranks, self.scheme));
        let body = match self.scheme {
            Scheme::Columns => {
                Body::Columns(Box::new(self.whole(device, columns.range(self.a.rank()).len())?))
            }
            _ => Body::Rows(Box::new(self.rows(device, needed, &mut report)?)),
        };
        report.device_bytes = body.plans().map(|plan| plan.report().device_bytes).sum();
        if report.scheme == Scheme::Columns {
            (report.rows, report.nnz, report.outer_nnz) =
                (self.a.rows().rows(), body.plans().map(SpmmPlan::nnz).sum(), 0);
            report.needed_rows = 0;
        }
        self.communicator.barrier()?; // all ranks have a plan, or none
        Ok(DistSpmmPlan {
            communicator: self.communicator,
            device: device.clone(),
            rows: self.a.rows().clone(),
            inner: self.a.columns().clone(),
            columns,
            body,
            report,
        })
    }

    /// A plan of all rows, for some columns.
    fn whole(&self, device: &Device, width: usize) -> Result<SpmmPlan, DistError> {
        let a = self.a.local();
        for to in self.communicator.others() {
            self.communicator.send_slice(to, a.row_offsets());
            self.communicator.send_slice(to, a.col_indices());
            self.communicator.send_slice(to, a.values());
        }
        let mut offsets = vec![0];
        for of_rank in self.communicator.with_others(a.row_offsets().to_vec())? {
            let before = offsets[offsets.len() - 1];
            offsets.extend(of_rank.iter().skip(1).map(|offset| before + offset));
        }
        let columns = self.communicator.with_others(a.col_indices().to_vec())?.concat();
        let values = self.communicator.with_others(a.values().to_vec())?.concat();
        let whole = Csr::try_from_parts(self.a.rows().rows(), a.cols(), offsets, columns, values)?;
        Ok(Spmm::builder(&whole)
            .options(SpmmOptions { width: width.max(1), ..self.options })
            .build(device)?)
    }

    /// The plans of a product of this rank's rows.
    fn rows(&self, device: &Device, needed: Needed, report: &mut DistReport) -> Result<Rows, DistError> {
        let SpmmOptions { width, precision, .. } = self.options;
        let (channel, coming) =
            decide((self.communicator, device), self.a, needed, (width, precision), report)?;
        let (scheme, owned) = (report.scheme, self.a.columns());
        let [inner, outer] = split(self.a.local(), &owned.range(self.a.rank()), &coming)?;
        let plan = |a: &Csr<V>| Spmm::builder(a).options(self.options).build(device);
        let exchange = Exchange::new(
            (self.communicator, channel, device),
            owned,
            (coming, false),
            scheme,
            &self.options,
        )?;
        (report.received_rows, report.sent_rows) = (exchange.received_rows(), exchange.sent_rows());
        let outer = if outer.nnz() == 0 { None } else { Some(self.outer(device, &outer)?) };
        Ok(Rows { inner: plan(&inner)?, outer, exchange })
    }

    /// The plan of what is added to `C` for the rows of others. Where few rows of `A` name some, these are worked on
    /// first and the rest of `C` is not touched.
    fn outer(&self, device: &Device, outer: &Csr<V>) -> Result<SpmmPlan, DistError> {
        let builder = Spmm::builder(outer).options(self.options);
        let (with_entries, without): (Vec<u32>, Vec<u32>) =
            (0..narrow(outer.rows())).partition(|&row| !outer.row_range(row as usize).is_empty());
        if without.len() < with_entries.len() || self.options.algorithm != Algorithm::Auto {
            return Ok(builder.build(device)?);
        }
        let order = Permutation::try_from_new_to_old([with_entries, without].concat())?;
        Ok(builder.algorithm(Algorithm::RowSplit).order(&order).build(device)?)
    }
}

/// The entries in columns of one's own and in those that come, each numbered from 0 on.
fn split<V: Value>(a: &Csr<V>, own: &Range<usize>, coming: &[u32]) -> Result<[Csr<V>; 2], DistError> {
    let mut parts = [(vec![0u64], Vec::new(), Vec::new()), (vec![0u64], Vec::new(), Vec::new())];
    for (columns, values) in a.rows_iter() {
        for (&column, &value) in columns.iter().zip(values) {
            let (part, at) = match own.contains(&(column as usize)) {
                true => (0, column - narrow(own.start)),
                false => (1, narrow(coming.partition_point(|&row| row < column))),
            };
            parts[part].1.push(at);
            parts[part].2.push(value);
        }
        parts.iter_mut().for_each(|(offsets, columns, _)| offsets.push(columns.len() as u64));
    }
    let [inner, outer] = parts;
    let made =
        |(offsets, columns, values), cols| Csr::try_from_parts(a.rows(), cols, offsets, columns, values);
    Ok([made(inner, own.len())?, made(outer, coming.len())?])
}

/// One rank's part of a product with a distributed matrix, ready to run; made by [`DistSpmmBuilder::build`].
///
/// All ranks run their plans in the same order, each with its own rows, or columns, of `B` and `C`.
///
/// # Precision
/// As for [`SpmmPlan`]. By rows the sums over entries of one's own rows of `B` and over those of others are added in
/// `C`, which is rounded once for each. The same group, scheme and devices give the same bits in every run.
///
/// # Examples
/// ```
/// use windrow::dist::{Communicator, DistCsr, DistSpmm};
/// use windrow::{Csr, DenseRef, Device, DeviceMatrix};
///
/// let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 0.0, 3.0])?;
/// let of_rank = |rank: Communicator| -> Result<Vec<f32>, windrow::DistError> {
///     let part = DistCsr::of(&rank, &a)?;
///     let plan = DistSpmm::builder(&rank, &part).width(1).build(&Device::cpu())?;
///     let own = part.columns().range(rank.rank());
///     let b: Vec<f32> = own.clone().map(|row| 10.0 * row as f32 + 10.0).collect();
///     let b = DeviceMatrix::upload(plan.device(), DenseRef::packed(&b, own.len(), 1)?)?;
///     let (rows, columns) = plan.result_shape();
///     let mut c = DeviceMatrix::<f32>::zeros(plan.device(), rows, columns)?;
///     plan.run_into(1.0, &b, 0.0, &mut c)?;
///     Ok(c.download()?)
/// };
/// let found: Vec<f32> = std::thread::scope(|scope| {
///     let ranks = Communicator::threads(2)?.into_iter().map(|rank| scope.spawn(|| of_rank(rank)));
///     let parts = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap());
///     parts.collect::<Result<Vec<_>, _>>().map(|parts| parts.concat())
/// })?;
/// assert_eq!(found, [50.0, 60.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DistSpmmPlan<'a> {
    pub(super) communicator: &'a Communicator,
    pub(super) device: Device,
    rows: Ownership,
    /// Of the rows of `B`.
    inner: Ownership,
    /// Of the columns of `B` and `C`, where those are divided.
    columns: Ownership,
    pub(super) body: Body,
    report: DistReport,
}

pub(super) enum Body {
    Columns(Box<SpmmPlan>),
    Rows(Box<Rows>),
}

/// A product of some rows.
pub(super) struct Rows {
    /// With the rows of `B` that the rank owns.
    pub(super) inner: SpmmPlan,
    /// With those that come.
    pub(super) outer: Option<SpmmPlan>,
    pub(super) exchange: Exchange,
}

impl Body {
    fn plans(&self) -> impl Iterator<Item = &SpmmPlan> {
        let plans = match self {
            Self::Columns(plan) => [Some(&**plan), None, None],
            Self::Rows(rows) => [Some(&rows.inner), rows.outer.as_ref(), rows.exchange.packing()],
        };
        plans.into_iter().flatten()
    }
}

impl DistSpmmPlan<'_> {
    /// What the plan is and exchanges.
    #[must_use]
    pub fn report(&self) -> &DistReport {
        &self.report
    }

    /// The device of this rank.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Rows and columns of this rank's `B`.
    #[must_use]
    pub fn operand_shape(&self) -> (usize, usize) {
        match self.body {
            Body::Columns(_) => (self.inner.rows(), self.columns.range(self.report.rank).len()),
            Body::Rows(_) => (self.inner.range(self.report.rank).len(), self.columns.rows()),
        }
    }

    /// Rows and columns of this rank's `C`.
    #[must_use]
    pub fn result_shape(&self) -> (usize, usize) {
        match self.body {
            Body::Columns(_) => (self.rows.rows(), self.columns.range(self.report.rank).len()),
            Body::Rows(_) => (self.rows.range(self.report.rank).len(), self.columns.rows()),
        }
    }

    /// Which columns of `B` and `C` each rank has, where those are divided.
    #[must_use]
    pub fn columns(&self) -> Option<&Ownership> {
        matches!(self.body, Body::Columns(_)).then_some(&self.columns)
    }

    /// `C ← α·A·B + β·C`, in which all ranks take part, each with its own `B` and `C`.
    ///
    /// By rows, each sends what others need, multiplies by what it has while that is under way, and then by what comes.
    ///
    /// # Shapes
    /// `B` as [`operand_shape`](Self::operand_shape), `C` as [`result_shape`](Self::result_shape). By rows the width
    /// may be another than the plan's, the same for all ranks.
    ///
    /// # Errors
    /// - those of [`SpmmPlan::run_into`], which other ranks get as [`DistError::RankFailed`];
    /// - [`DistError::Disagreement`] if a rank has another width;
    /// - [`DistError::RankFailed`] and [`DistError::TimedOut`] of another rank. `C` is not to be used then.
    pub fn run_into<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: &DeviceMatrix<B>,
        beta: B::Sum,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), DistError> {
        let outcome = match &self.body {
            Body::Columns(plan) => plan.run_into(alpha, b, beta, c).map_err(DistError::from),
            Body::Rows(rows) => self.run_rows(rows, (alpha, beta), b, c),
        };
        self.communicator.told(outcome)
    }

    fn run_rows<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        rows: &Rows,
        (alpha, beta): (B::Sum, B::Sum),
        b: &DeviceMatrix<B>,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), DistError> {
        // What is wrong with this rank's operands is told to the others before they wait for its rows.
        let expected = self.inner.range(self.report.rank).len();
        if b.rows() != expected {
            return Err(SpmmError::InnerDim { a_cols: expected, b_rows: b.rows() }.into());
        }
        let Rows { inner, outer, exchange } = rows;
        let mut room = exchange.room::<B>(b.cols())?;
        exchange.run(self.communicator, b, &mut room, || Ok(inner.run_into(alpha, b, beta, c)?))?;
        if let Some(outer) = outer {
            outer.run_into(alpha, room.rows(), B::Sum::from_f32(1.0), c)?;
        }
        exchange.finish(self.communicator, room)
    }
}

impl fmt::Debug for DistSpmmPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DistReport { rank, ranks, scheme, .. } = self.report;
        write!(f, "DistSpmmPlan({scheme}, rank {rank} of {ranks}, on {})", self.device)
    }
}

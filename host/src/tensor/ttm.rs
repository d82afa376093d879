//! TTM: SpMM whose rows are the fibers of a tensor.

use std::fmt;

use windrow_formats::memory::try_copy;
use windrow_formats::{Csf3, Csr, Value};

use super::builder::OWN_ORDER;
use super::coo::DeviceCoo3;
use super::point::default_point;
use super::slices::level_dims;
use crate::dense::{DenseMut, MatRef};
use crate::device::{Device, Stream};
use crate::element::{Element, Real};
use crate::error::{PlanError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::options::{Algorithm, Determinism, Precision};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::plan::{Verification, check_memory};
use crate::profile::Profile;
use crate::spmm::{MEMORY_REMEDY, Spmm, SpmmOptions, SpmmPlan, SpmmReport, cpu_arrays};
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};

/// Width that a plan is made for, unless told otherwise: a usual rank of a Tucker decomposition.
const DEFAULT_WIDTH: usize = 32;

/// Options of a plan for a [`Csf3`], a [`DeviceCsf3`](crate::DeviceCsf3) or a [`DeviceCoo3`]; made by
/// [`Ttm::builder`](super::Ttm::builder).
#[derive(Debug)]
pub struct TtmBuilder<'a, A> {
    pub(super) a: &'a A,
    options: SpmmOptions,
    /// The mode at each level, of a list of coordinates.
    pub(super) mode_order: [usize; 3],
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
}

impl<A> Clone for TtmBuilder<'_, A> {
    fn clone(&self) -> Self {
        self.for_tensor(self.a)
    }
}

impl<'a, A> TtmBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        let options = SpmmOptions { width: DEFAULT_WIDTH, ..SpmmOptions::default() };
        Self { a, options, mode_order: OWN_ORDER, profile: None }
    }

    /// The same options for another tensor.
    pub(super) fn for_tensor<'b, B>(&self, a: &'b B) -> TtmBuilder<'b, B> {
        let Self { options, mode_order, ref profile, .. } = *self;
        TtmBuilder { a, options, mode_order, profile: profile.clone() }
    }

    /// What was measured on `device`, as far as it is known.
    pub(super) fn profile_of(&self, device: &Device) -> Profile {
        Profile::given_or_built_in(self.profile.as_ref(), device)
    }

    /// The options of the product whose rows are fibers with so many entries.
    pub(super) fn options_for(&self, nnz: usize, profile: &Profile) -> Result<SpmmOptions, SpmmError> {
        let mut options = self.options;
        let groups = match options.algorithm {
            Algorithm::Auto => Algorithm::SegmentGroup.supports(options.precision),
            other => other == Algorithm::SegmentGroup,
        };
        options.group_launch = Some(options.group_launch.unwrap_or_default());
        if groups {
            options.algorithm = Algorithm::SegmentGroup;
            let default = || default_point(nnz, options.width, profile.costs.tensor_threads);
            options.parallelism = Some(options.parallelism.map_or_else(default, Ok)?);
        }
        Ok(options)
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: SpmmOptions) -> Self {
        self.options = options;
        self
    }

    /// The number of columns that most products will have, 32 unless told. A hint, as for [`Spmm`].
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

    /// The algorithm, fibers taking the place of rows. [`Algorithm::Auto`], unless told, takes
    /// [`Algorithm::SegmentGroup`] at any width where there are kernels for the precision: fibers are many, short, and
    /// now and then long.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// Whether two runs must give the same bits: [`Determinism::RunToRun`] unless told.
    #[must_use]
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.options.determinism = determinism;
        self
    }

    /// Device memory that the plan may take, in bytes, workspace included. No limit unless told.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// How [`Algorithm::SegmentGroup`] divides the work, rows being fibers, instead of entries as
    /// [`Mttkrp`](super::Mttkrp) does.
    #[must_use]
    pub fn parallelism(mut self, point: AtomicParallelism) -> Self {
        self.options.parallelism = Some(point);
        self
    }

    /// The launch of [`Algorithm::SegmentGroup`]; [`GroupLaunch::default`] unless told.
    #[must_use]
    pub fn group_launch(mut self, launch: GroupLaunch) -> Self {
        self.options.group_launch = Some(launch);
        self
    }

    /// What was measured on the device, as [`SpmmBuilder::profile`](crate::SpmmBuilder::profile).
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }
}

impl<V: Value> TtmBuilder<'_, DeviceCoo3<'_, V>> {
    /// The mode at each level of the fibers that are made: rows of `Y` are the fibers of the first two, rows of `B` the
    /// indices of the last. In the tensor's own order, `[0, 1, 2]`, unless told.
    #[must_use]
    pub fn mode_order(mut self, order: [usize; 3]) -> Self {
        self.mode_order = order;
        self
    }
}

impl<V: Value> TtmBuilder<'_, Csf3<V>> {
    /// Makes the plan.
    ///
    /// # Cost
    /// Linear in fibers and entries. Needs room for a copy of the fibers and entries while it is made.
    ///
    /// # Errors
    /// As [`SpmmBuilder::build`](crate::SpmmBuilder::build), for a matrix with a row for each fiber;
    /// [`PlanError::Format`] for 2³² fibers or more.
    pub fn build(&self, device: &Device) -> Result<TtmPlan, SpmmError> {
        if device.machine().is_none() {
            // The fibers as rows are the plan, and there before it is.
            let arrays = cpu_arrays(self.a.fibers(), self.a.nnz(), self.options.precision);
            check_memory(&arrays, self.options.memory_limit, MEMORY_REMEDY)?;
        }
        let rows = rows_of_fibers(self.a)?;
        let profile = self.profile_of(device);
        let options = self.options_for(self.a.nnz(), &profile)?;
        Ok(TtmPlan { product: Spmm::builder(&rows).options(options).profile(&profile).build(device)? })
    }
}

/// The fibers of a tensor as the rows of a matrix, with a column for each index of a leaf.
fn rows_of_fibers<V: Value>(a: &Csf3<V>) -> Result<Csr<V>, SpmmError> {
    let [.., cols] = level_dims(a);
    let offsets = try_copy(a.fiber_offsets(), "row_offsets")?;
    let (leaves, values) = (try_copy(a.leaf_indices(), "col_indices")?, try_copy(a.values(), "values")?);
    Ok(Csr::try_from_parts(a.fibers(), cols, offsets, leaves, values)?)
}

/// A sparse tensor laid out for products `Y[i,j,:] ← α·Σ A[i,j,l]·B[l,:] + β·Y[i,j,:]` on one device, with a row of
/// `Y` for each fiber `(i, j)` that has entries.
///
/// Made by [`Ttm::builder`](super::Ttm::builder); runs any number of times, with any width. Precision, determinism
/// and what is not a number are those of an [`SpmmPlan`] whose rows are the fibers.
pub struct TtmPlan {
    pub(super) product: SpmmPlan,
}

impl TtmPlan {
    /// The product for a `B` of L × n in host memory, row after row without padding; the result is fibers × n,
    /// likewise.
    ///
    /// # Errors
    /// As [`SpmmPlan::run`].
    pub fn run<T: Element>(&self, b: &[T]) -> Result<Vec<T>, SpmmError> {
        self.product.run(b)
    }

    /// `Y ← α·A·B + β·Y` for matrices in host memory.
    ///
    /// # Errors
    /// As [`SpmmPlan::run_host`].
    pub fn run_host<'b, T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        b: impl TryInto<MatRef<'b, T>, Error: Into<PlanError>>,
        beta: T::Sum,
        y: DenseMut<'_, O>,
    ) -> Result<(), SpmmError> {
        self.product.run_host(alpha, b, beta, y)
    }

    /// `Y ← α·A·B + β·Y` for matrices on the plan's device: `b` is L × n, of the plan's precision, `y` fibers × n,
    /// f32, f16 or bf16, or f64. On a GPU this queues the kernels and returns; it allocates nothing.
    ///
    /// # Errors
    /// As [`SpmmPlan::run_into`].
    pub fn run_into<T: Element, O: Element<Sum = T::Sum>>(
        &self,
        alpha: T::Sum,
        b: &DeviceMatrix<T>,
        beta: T::Sum,
        y: &mut DeviceMatrix<O>,
    ) -> Result<(), SpmmError> {
        self.product.run_into(alpha, b, beta, y)
    }

    /// [`run_into`](Self::run_into) on a [`Stream`], for matrices in memory of any origin.
    ///
    /// # Errors
    /// As [`SpmmPlan::run_into_on`].
    #[expect(clippy::too_many_arguments, reason = "those of `run_into`, and where")]
    pub fn run_into_on<'a, T: Element, O: Element<Sum = T::Sum>>(
        &self,
        on: &Stream,
        alpha: T::Sum,
        b: impl Into<DeviceView<'a, T>>,
        beta: T::Sum,
        y: impl Into<DeviceViewMut<'a, O>>,
    ) -> Result<(), SpmmError> {
        self.product.run_into_on(on, alpha, b, beta, y)
    }

    /// Makes and compiles what runs of this width on a stream would else make when they first come; `staged` for a `Y`
    /// of bf16.
    ///
    /// # Errors
    /// As [`SpmmPlan::prepare_on`].
    pub fn prepare_on(&self, on: &Stream, width: usize, staged: bool) -> Result<(), SpmmError> {
        self.product.prepare_on(on, width, staged)
    }

    /// Puts new values in the places of the old, one for each entry in the order of the fibers.
    ///
    /// # Errors
    /// As [`SpmmPlan::replace_values`].
    pub fn replace_values<V: Value>(&mut self, values: &[V]) -> Result<(), SpmmError> {
        self.product.replace_values(values)
    }

    /// [`replace_values`](Self::replace_values) with values that are on the plan's device, on a [`Stream`].
    ///
    /// # Errors
    /// As [`SpmmPlan::replace_values_on`].
    pub fn replace_values_on<'a, S: Real>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceSlice<'a, S>>,
    ) -> Result<(), SpmmError> {
        self.product.replace_values_on(on, values)
    }

    /// Compares `y` with the product, summed with twice f64's precision (α = 1, β = 0), every element, on the device
    /// where it is. `a` is the tensor that the plan was built from, with its current values.
    ///
    /// # Errors
    /// As [`SpmmPlan::verify`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, DenseRef, Device, DeviceMatrix, Ttm};
    ///
    /// let device = Device::best()?;
    /// let tensor = Coo3::from_entries([2, 2, 2], [([0, 1, 0], 3.0f32), ([1, 1, 1], 4.0)])?.to_csf([0, 1, 2])?;
    /// let plan = Ttm::builder(&tensor).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, plan.fibers(), 1)?;
    /// plan.run_into(1.0, &b, 0.0, &mut y)?;
    /// assert!(plan.verify(&tensor, &b, &y)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, T: Element, O: Element>(
        &self,
        a: &Csf3<V>,
        b: &DeviceMatrix<T>,
        y: &DeviceMatrix<O>,
    ) -> Result<Verification, SpmmError> {
        self.product.verify(&rows_of_fibers(a)?, b, y)
    }

    /// What the plan is, what it holds and what it cost to make: the report of a product whose rows are the fibers.
    #[must_use]
    pub fn report(&self) -> &SpmmReport {
        self.product.report()
    }

    /// The arrays that [`internal::ttm_arrays`](crate::internal::ttm_arrays) returns.
    pub(crate) fn device_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SpmmError> {
        self.product.device_arrays()
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.product.device()
    }

    /// Number of fibers: rows of `Y`.
    #[must_use]
    pub fn fibers(&self) -> usize {
        self.product.shape().0
    }
}

impl fmt::Debug for TtmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TtmPlan({:?})", self.product)
    }
}

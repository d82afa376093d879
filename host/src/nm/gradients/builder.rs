//! From weights and options to a plan of gradients.

use windrow_formats::Value;

use super::dense::{Elements, with_elements};
use super::places::Places;
use super::plan::{NmGradientPlan, NmGradientReport, OfActivations};
use crate::device::Stream;
use crate::error::{NmError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::nm::options::{ActivationLayout, NmOptions};
use crate::nm::weights::DeviceVectorNm;
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{ArraySize, StageClock, check_device, push};
use crate::profile::Profile;

/// Options of a plan of gradients; made by [`NmGradients::builder`](super::NmGradients::builder).
#[derive(Debug)]
pub struct NmGradientBuilder<'a, V: Value> {
    weights: &'a DeviceVectorNm<'a, V>,
    /// Of both products: each has its own layout and rows.
    options: NmOptions,
    activations: bool,
    profile: Option<Profile>,
}

impl<'a, V: Value> NmGradientBuilder<'a, V> {
    pub(super) fn new(weights: &'a DeviceVectorNm<'a, V>) -> Self {
        Self { weights, options: NmOptions::default(), activations: true, profile: None }
    }

    /// `m`: rows of `A` and `C`, 1024 unless told. The gradient of the values is that of exactly so many rows; that of
    /// the activations takes any number.
    #[must_use]
    pub fn rows(mut self, m: usize) -> Self {
        self.options.rows = m;
        self
    }

    /// The type that `A`, `dC` and the weights are rounded to, [`Precision::F32`] unless told; that of the product's
    /// own plan as a rule.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// The [factor](crate::NmSpmmBuilder::scale) of the product, 1 unless told.
    #[must_use]
    pub fn scale(mut self, scale: f32) -> Self {
        self.options.scale = scale;
        self
    }

    /// Whether there is to be the gradient of the activations: there is unless told. A first layer needs none, whose
    /// weights then are not laid out for it.
    #[must_use]
    pub fn activations(mut self, activations: bool) -> Self {
        self.activations = activations;
        self
    }

    /// Lets cuBLAS multiply where that is quicker by the model:
    /// [`NmSpmmBuilder::dense_fallback`](crate::NmSpmmBuilder::dense_fallback) of both products.
    #[must_use]
    pub fn dense_fallback(mut self, allowed: bool) -> Self {
        self.options.dense_fallback = allowed;
        self
    }

    /// Tries a few kernels and takes the quickest: [`NmSpmmBuilder::autotune`](crate::NmSpmmBuilder::autotune) of both
    /// products.
    #[must_use]
    pub fn autotune(mut self, autotune: bool) -> Self {
        self.options.autotune = autotune;
        self
    }

    /// What was measured on the device, by which kernels are chosen.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

    /// Makes the plan, in the order of a stream: after what that was asked for so far. The arrays of the weights may be
    /// written or freed by what comes later in it.
    ///
    /// # Cost
    /// That of two plans of [`NmSpmm`](crate::NmSpmm) with weights of which nothing is dropped, `k × n` and `m × n`. In
    /// device memory the plan has these, `k·n` elements more, `k·n` f32, and a byte for each vector that is kept;
    /// without the gradient of the activations neither the first of these weights nor the elements.
    ///
    /// # Errors
    /// - those of [`NmSpmmBuilder::build_on`](crate::NmSpmmBuilder::build_on);
    /// - [`PlanError::ElementType`] for values of f64 on a GPU.
    pub fn build_on(&self, on: &Stream) -> Result<NmGradientPlan, NmError> {
        let device = self.weights.device();
        check_device("the stream", on.device(), device)?;
        let mut clock = StageClock::start();
        let precision = self.options.precision;
        let places = Places::new(device, self.weights.places(on)?).map_err(PlanError::from)?;
        let (k, n, m) = (self.weights.rows(), self.weights.cols(), self.options.rows);
        let profile = self.profile.as_ref();
        clock.end("indices");

        let of_activations = if self.activations {
            let mut dense = Elements::zeroed(device, precision, k.saturating_mul(n))?;
            with_elements!(&mut dense, of => places.transposed(on, self.weights.rows_of_values(), of))?;
            let plan = dense.plan((n, k), (self.options.clone(), profile), on)?;
            clock.end("of activations");
            Some(OfActivations { dense, plan })
        } else {
            None
        };

        // The gradient of C takes the place of weights, that of the activations is k-major as A lies.
        let options = NmOptions { rows: k, layout: ActivationLayout::KMajor, ..self.options.clone() };
        let zeros = Elements::zeroed(device, precision, m.saturating_mul(n))?;
        let of_values = zeros.plan((m, n), (options, profile), on)?;
        // Without gaps, as the kernel that takes out of it reads it.
        let of_all = DeviceMatrix::with_ld(device, k, n, n)?;
        clock.end("of values");

        let mut arrays = Vec::<ArraySize>::new();
        if device.machine().is_some() {
            let plans = of_activations.iter().map(|of| &of.plan).chain([&of_values]);
            for plan in plans {
                plan.report().arrays.iter().for_each(|of| push(&mut arrays, of.name, of.bytes));
            }
            let dense = of_activations.as_ref().map(|of| of.dense.bytes());
            let beside = [dense, places.bytes(), Some(("dense gradient", 4 * wide(k * n)))];
            beside.into_iter().flatten().for_each(|(name, bytes)| push(&mut arrays, name, bytes));
        }
        let report = NmGradientReport {
            rows: m,
            of_activations: of_activations.as_ref().map(|of| of.plan.report().clone()),
            of_values: of_values.report().clone(),
            device_bytes: arrays.iter().map(|array| array.bytes).sum(),
            arrays,
            stages: clock.stages,
        };
        Ok(NmGradientPlan { places, of_activations, of_values, of_all, rows: m, report })
    }
}

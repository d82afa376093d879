//! The setters of a plan's options.

use super::options::{SddmmAlgorithm, SddmmForm, SddmmGroup, SddmmOptions};
use crate::device::Device;
use crate::options::Precision;
use crate::plan::Schedule;
use crate::profile::Profile;

/// Options of a plan for a [`Csr`](windrow_formats::Csr) or a [`DeviceCsr`](crate::DeviceCsr); made by
/// [`Sddmm::builder`](super::Sddmm::builder).
#[derive(Debug)]
pub struct SddmmBuilder<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: SddmmOptions,
    profile: Option<Profile>,
}

impl<A> Clone for SddmmBuilder<'_, A> {
    fn clone(&self) -> Self {
        self.for_matrix(self.a)
    }
}

impl<'a, A> SddmmBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        Self { a, options: SddmmOptions::default(), profile: None }
    }

    /// The same options for another matrix.
    pub(super) fn for_matrix<'b, B>(&self, a: &'b B) -> SddmmBuilder<'b, B> {
        SddmmBuilder { a, options: self.options.clone(), profile: self.profile.clone() }
    }

    /// What was measured on `device`, as far as it is known.
    pub(super) fn profile_of(&self, device: &Device) -> Profile {
        Profile::given_or_built_in(self.profile.as_ref(), device)
    }

    /// The groups of the algorithm that has them.
    pub(super) fn group(&self) -> SddmmGroup {
        let SddmmOptions { group, inner, precision, .. } = self.options;
        group.unwrap_or_else(|| SddmmGroup::of(inner, precision))
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: SddmmOptions) -> Self {
        self.options = options;
        self
    }

    /// The inner dimension that most products will have, 128 unless told. A hint: products of any can be run.
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

    /// What the values of the pattern are for, [`SddmmForm::Mask`] unless told.
    #[must_use]
    pub fn form(mut self, form: SddmmForm) -> Self {
        self.options.form = form;
        self
    }

    /// The algorithm, [`SddmmAlgorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: SddmmAlgorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// How [`SddmmAlgorithm::Groups`] divides the work, instead of what suits the inner dimension. Other algorithms
    /// disregard it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Sddmm, SddmmAlgorithm, SddmmGroup};
    ///
    /// let a = Csr::<f32>::identity(2)?;
    /// let builder = Sddmm::builder(&a).inner(2).algorithm(SddmmAlgorithm::Groups);
    /// let plan = builder.groups(SddmmGroup { threads: 2, entries: 1 }).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0])?, [17.0, 53.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn groups(mut self, group: SddmmGroup) -> Self {
        self.options.group = Some(group);
        self
    }

    /// Entries that a tile of 8 × 16 must have to be computed on Tensor Cores by [`SddmmAlgorithm::Hybrid`], instead of
    /// what the [profile](Self::profile) has. Other algorithms disregard it.
    #[must_use]
    pub fn tile_threshold(mut self, entries: u32) -> Self {
        self.options.tile_threshold = Some(entries);
        self
    }

    /// Whether the two parts of a hybrid run one after the other or beside each other: [`Schedule::Auto`] unless told.
    /// The report says what is done, and the occupancy ratios that decide.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.options.schedule = schedule;
        self
    }

    /// What was measured on the device: the threshold of tiles, and what [`Schedule::Auto`] goes by.
    /// [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

    /// Whether, where predicted times decide for [`SddmmAlgorithm::Auto`], plans of the two quickest are made and timed
    /// on the device, with operands of the [inner dimension](Self::inner), and the quicker is kept; no unless told. It
    /// costs the second plan and some hundred products, and waits for them; [`SddmmReport::reason`](super::SddmmReport)
    /// has the times. Two builds may choose differently, and the paths differ in the last bits. One that is predicted
    /// to take twice as long is not tried, nor is any under a [memory limit](Self::memory_limit), with
    /// [expected runs](Self::expected_runs), or where there is no room for a second plan or the operands; the reason
    /// says so. The CPU has nothing to choose. Any other error of the two plans or of their products is one of the
    /// build.
    #[must_use]
    pub fn autotune(mut self, autotune: bool) -> Self {
        self.options.autotune = autotune;
        self
    }

    /// How many products the plan will make, if that is known: [`SddmmAlgorithm::Auto`] leaves panels of rows out,
    /// which take long to lay out, where so many products save less than that. Many unless told.
    #[must_use]
    pub fn expected_runs(mut self, runs: u64) -> Self {
        self.options.expected_runs = Some(runs);
        self
    }

    /// Device memory that the plan may take, in bytes; `X`, `Y` and the result are the caller's. No limit unless told.
    /// The need is computed before anything is allocated. On a GPU the first result of 16 bits on each stream takes
    /// four bytes an entry beyond it, and is refused where the limit leaves no room for them.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// Finds the position of an entry of a tile by scanning its row's mask instead of counting bits: for comparison.
    #[must_use]
    pub fn scan_masks(mut self) -> Self {
        self.options.scan = true;
        self
    }
}

//! The setters of a plan's options.

use windrow_formats::Value;

use super::coo::DeviceCoo3;
use super::options::MttkrpOptions;
use crate::device::Device;
use crate::options::{Determinism, Precision};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::profile::Profile;

/// The order of modes of a list of coordinates, unless told otherwise.
pub(super) const OWN_ORDER: [usize; 3] = [0, 1, 2];

/// Options of a plan for a [`Csf3`](windrow_formats::Csf3), a [`DeviceCsf3`](crate::DeviceCsf3) or a
/// [`DeviceCoo3`](crate::DeviceCoo3); made by [`Mttkrp::builder`](super::Mttkrp::builder).
#[derive(Debug)]
pub struct MttkrpBuilder<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: MttkrpOptions,
    /// The mode at each level, of a list of coordinates.
    pub(super) mode_order: [usize; 3],
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
}

impl<A> Clone for MttkrpBuilder<'_, A> {
    fn clone(&self) -> Self {
        self.for_tensor(self.a)
    }
}

impl<'a, A> MttkrpBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        Self { a, options: MttkrpOptions::default(), mode_order: OWN_ORDER, profile: None }
    }

    /// The same options for another tensor.
    pub(super) fn for_tensor<'b, B>(&self, a: &'b B) -> MttkrpBuilder<'b, B> {
        let Self { options, mode_order, profile, .. } = self;
        MttkrpBuilder { a, options: options.clone(), mode_order: *mode_order, profile: profile.clone() }
    }

    /// What was measured on `device`, as far as it is known.
    pub(super) fn profile_of(&self, device: &Device) -> Profile {
        Profile::given_or_built_in(self.profile.as_ref(), device)
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: MttkrpOptions) -> Self {
        self.options = options;
        self
    }

    /// The number of columns that most products will have, 32 unless told. A hint: it decides how work is divided and
    /// how wide the workspace is; products of any width can be run.
    #[must_use]
    pub fn width(mut self, n: usize) -> Self {
        self.options.width = n;
        self
    }

    /// The type that values and factors are rounded to, [`Precision::F32`] unless told, or [`Precision::F16`].
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// Whether two runs must give the same bits: [`Determinism::RunToRun`] unless told.
    #[must_use]
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.options.determinism = determinism;
        self
    }

    /// Device memory that the plan may take, in bytes, workspace included; factors and result are the caller's. No
    /// limit unless told. The need is computed before anything is allocated.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// How nonzeros are divided, instead of what suits their number and the width: a point `{<g nnz, c col>, r}`. The
    /// CPU, which has one algorithm, disregards it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, Mttkrp};
    ///
    /// let tensor = Coo3::from_entries([1, 1, 2], [([0, 0, 0], 2.0f32), ([0, 0, 1], 3.0)])?.to_csf([0, 1, 2])?;
    /// let builder = Mttkrp::builder(&tensor).width(1).parallelism("{<1 nnz, 1 col>, 2}".parse()?);
    /// assert_eq!(builder.build(&Device::best()?)?.run(&[10.0], &[1.0, 1.0])?, [50.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn parallelism(mut self, point: AtomicParallelism) -> Self {
        self.options.parallelism = Some(point);
        self
    }

    /// What the point leaves open; [`GroupLaunch::default`] unless told.
    #[must_use]
    pub fn group_launch(mut self, launch: GroupLaunch) -> Self {
        self.options.group_launch = launch;
        self
    }

    /// What was measured on the device, for the division of the nonzeros; [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }
}

impl<V: Value> MttkrpBuilder<'_, DeviceCoo3<'_, V>> {
    /// The mode at each level of the fibers that are made: rows of `Y`, of `B` and of `C` are the indices of these
    /// modes. In the tensor's own order, `[0, 1, 2]`, unless told.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCoo3, Mttkrp};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 3, 2], [([1, 2, 0], 4.0f32)])?);
    /// let on_device = DeviceCoo3::from_host(&device, &a)?;
    /// let plan = Mttkrp::builder(&on_device).mode_order([1, 0, 2]).width(1).build_on(&device.stream())?;
    /// assert_eq!(plan.run(&[1.0, 10.0], &[3.0, 0.0])?, [0.0, 0.0, 120.0]); // a row for each index of mode 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn mode_order(mut self, order: [usize; 3]) -> Self {
        self.mode_order = order;
        self
    }
}

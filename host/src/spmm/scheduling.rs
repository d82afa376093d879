//! Whether the two parts of a hybrid run in one stream or in two.

use windrow_formats::Value;
use windrow_kernels::Entry;

use super::builder::SpmmBuilder;
use super::layout::{Context, HostParts};
use super::select::{self, Demand};
use super::tiles::Form;
use crate::device::Device;
use crate::error::SpmmError;
use crate::num::wide;
use crate::profile::Profile;
use crate::schedule::{OccupancyRange, Schedule, Scheduling, occupancy};

impl<V: Value> SpmmBuilder<'_, V> {
    /// Whether the two parts of a hybrid run one after the other or beside each other: [`Schedule::Auto`] unless told. The
    /// report says what is done, and the occupancy ratios that decide.
    ///
    /// # Examples
    /// ```
    /// use windrow::partition::{PartitionRule, VectorThreshold};
    /// use windrow::{Algorithm, Csr, Device, Precision, Schedule, Spmm};
    ///
    /// let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 3.0, 0.0])?;
    /// let plan = Spmm::builder(&a)
    ///     .precision(Precision::F16)
    ///     .algorithm(Algorithm::Hybrid)
    ///     .partition(PartitionRule::ColumnVectors { threshold: VectorThreshold::try_new(0.25)? })
    ///     .schedule(Schedule::MultiStream)
    ///     .width(1)
    ///     .build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [21.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// What was measured on the device, for [`Schedule::Auto`]; [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.two_streams = Some(profile.spmm);
        self
    }

    /// When two streams pay on `device`.
    pub(super) fn two_streams(&self, device: &Device) -> OccupancyRange {
        self.two_streams.unwrap_or_else(|| Profile::built_in(device).spmm)
    }

    /// How the launch of `scalar`, an entry for CUDA cores and its units of work, follows that of the tiles; none if
    /// there are no tiles.
    pub(super) fn scheduling(
        &self,
        context: &Context<'_>,
        host: &HostParts<'_>,
        (scalar, units): (&'static Entry, u64),
    ) -> Result<Option<Scheduling>, SpmmError> {
        let Some(tiles) = &host.tiles else { return Ok(None) };
        let packed = tiles.form() == Form::Packed;
        let demand = Demand { widest_slice: host.widest_slice, packed, ..self.demand() };
        let Some(entry) = select::tile_stream(demand) else { return Ok(None) };
        let ratios = [
            occupancy(context.machine, scalar, units, demand.n)?,
            occupancy(context.machine, entry, wide(tiles.stream().dealt().workers()), demand.n)?,
        ];
        Ok(Some(Scheduling::choose(self.schedule, ratios, self.two_streams(context.device))))
    }
}

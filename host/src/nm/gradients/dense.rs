//! Matrices without zeros as weights of which all rows are kept: how kernels for N:M weights multiply dense ones.

use half::{bf16, f16};
use windrow_formats::memory::try_zeroed;
use windrow_formats::{NmPattern, Value};

use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::{NmError, PlanError};
use crate::nm::NmSpmm;
use crate::nm::options::NmOptions;
use crate::nm::plan::NmSpmmPlan;
use crate::nm::weights::DeviceVectorNm;
use crate::options::Precision;
use crate::profile::Profile;
use crate::view::DeviceSlice;

/// Rows of a group, all of which are kept.
const GROUP: u8 = 32;

/// Name of the elements in reports.
const DENSE: &str = "dense weights";

/// The elements of a matrix in the type that a precision is stored in.
pub(super) enum Elements {
    F32(DeviceBuffer<f32>),
    F16(DeviceBuffer<f16>),
    Bf16(DeviceBuffer<bf16>),
}

/// Does the same with elements of whatever type.
macro_rules! with_elements {
    ($elements:expr, $of:ident => $do:expr) => {
        match $elements {
            Elements::F32($of) => $do,
            Elements::F16($of) => $do,
            Elements::Bf16($of) => $do,
        }
    };
}
pub(super) use with_elements;

impl Elements {
    /// So many zeros of the type.
    pub(super) fn zeroed(device: &Device, precision: Precision, len: usize) -> Result<Self, NmError> {
        Ok(match precision {
            Precision::F16 => Self::F16(DeviceBuffer::zeroed(device, len, DENSE).map_err(PlanError::from)?),
            Precision::Bf16 => Self::Bf16(DeviceBuffer::zeroed(device, len, DENSE).map_err(PlanError::from)?),
            Precision::F32 | Precision::Tf32 | Precision::F64 => {
                Self::F32(DeviceBuffer::zeroed(device, len, DENSE).map_err(PlanError::from)?)
            }
        })
    }

    /// What of this is in device memory.
    pub(super) fn bytes(&self) -> (&'static str, u64) {
        (DENSE, with_elements!(self, of => of.bytes()))
    }

    /// A plan that multiplies by them, as a matrix of so many rows and columns.
    pub(super) fn plan(
        &self,
        shape: (usize, usize),
        (options, profile): (NmOptions, Option<&Profile>),
        on: &Stream,
    ) -> Result<NmSpmmPlan, NmError> {
        with_elements!(self, of => plan(of.view(), shape, (options, profile), on))
    }
}

/// A plan that multiplies by a dense matrix, row-major without gaps.
fn plan<T: Value>(
    elements: DeviceSlice<'_, T>,
    (rows, cols): (usize, usize),
    (options, profile): (NmOptions, Option<&Profile>),
    on: &Stream,
) -> Result<NmSpmmPlan, NmError> {
    let group = usize::from(GROUP);
    let pattern = NmPattern::new(group, group, cols.max(1)).map_err(PlanError::from)?;
    let mut indices = try_zeroed::<u8>(pattern.vectors(cols) * rows, "indices").map_err(PlanError::from)?;
    for of_group in indices.chunks_mut(group) {
        of_group.iter_mut().zip(0..).for_each(|(index, at)| *index = at);
    }
    let indices = DeviceBuffer::named(on.device(), &indices, "indices").map_err(PlanError::from)?;
    let weights = DeviceVectorNm::new(rows, cols, pattern, elements, &indices)?;
    let builder = NmSpmm::builder(&weights).options(options);
    match profile {
        Some(profile) => builder.profile(profile).build_on(on),
        None => builder.build_on(on),
    }
}

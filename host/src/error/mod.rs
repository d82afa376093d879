//! What can go wrong: on a device, with any plan, and with the products of each family.

mod aggregate;
mod attention;
mod device;
#[cfg(feature = "dist")]
mod dist;
mod nm;
mod plan;
mod sddmm;
mod spmm;
mod tensor;
mod training;

pub use aggregate::AggregateError;
pub use attention::AttentionError;
pub use device::DeviceError;
#[cfg(feature = "dist")]
pub use dist::DistError;
pub use nm::NmError;
pub use plan::PlanError;
pub use sddmm::SddmmError;
pub use spmm::SpmmError;
pub use tensor::TensorError;
pub use training::TrainingError;

use thiserror::Error;
use windrow_formats::{FormatError, OutOfMemory, UnknownName};

/// An error of a family, which may be that of any plan.
pub(crate) trait FamilyError: std::error::Error + From<DeviceError> {
    /// What went wrong with the plan whatever its product is, if that is what went wrong.
    fn of_plan(&self) -> Option<&PlanError>;

    /// Whether there was no memory, or something was too large: see [`PlanError::lacks_room`].
    fn lacks_room(&self) -> bool {
        self.of_plan().is_some_and(PlanError::lacks_room)
    }
}

/// Errors of devices and formats become those of a family by way of [`PlanError`].
macro_rules! via_plan_error {
    ($error:ident) => {
        impl $crate::error::FamilyError for $error {
            fn of_plan(&self) -> Option<&$crate::error::PlanError> {
                match self {
                    Self::Plan(error) => Some(error),
                    _ => None,
                }
            }
        }

        impl From<$crate::error::DeviceError> for $error {
            fn from(error: $crate::error::DeviceError) -> Self {
                Self::Plan(error.into())
            }
        }

        impl From<windrow_formats::OutOfMemory> for $error {
            fn from(error: windrow_formats::OutOfMemory) -> Self {
                Self::Plan(error.into())
            }
        }

        impl From<windrow_formats::FormatError> for $error {
            fn from(error: windrow_formats::FormatError) -> Self {
                Self::Plan(error.into())
            }
        }
    };
}
use via_plan_error;

/// Any error of this library's plans and devices, for programs that use several families.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, NmPattern, NmSpmm, Spmm, prune_magnitude};
///
/// fn both() -> Result<Vec<f32>, windrow::Error> {
///     let (device, a) = (Device::best()?, Csr::<f32>::identity(2)?);
///     let b = Spmm::builder(&a).build(&device)?.run(&[1.0, 2.0, 3.0, 4.0])?;
///     let weights = prune_magnitude(&b, 2, 2, NmPattern::new(1, 2, 1)?)?;
///     Ok(NmSpmm::builder(&weights).build(&device)?.run(&[1.0, 1.0])?)
/// }
/// assert_eq!(both()?, [3.0, 4.0]);
/// # Ok::<(), windrow::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The device, its driver or its memory: see [`DeviceError`].
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What can go wrong with any product: see [`PlanError`].
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A product of a sparse matrix and a dense one.
    #[error(transparent)]
    Spmm(#[from] SpmmError),
    /// A product of two dense matrices, sampled at the entries of a sparse one.
    #[error(transparent)]
    Sddmm(#[from] SddmmError),
    /// A reduction over the rows of a sparse matrix.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// Attention over the entries of a sparse matrix.
    #[error(transparent)]
    Attention(#[from] AttentionError),
    /// Products with N:M weights.
    #[error(transparent)]
    Nm(#[from] NmError),
    /// MTTKRP or TTM: a product of a sparse tensor and dense matrices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An operation of training, such as a loss or a step of Adam.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// Ranks that plan or run a product together.
    #[cfg(feature = "dist")]
    #[error(transparent)]
    Dist(#[from] DistError),
    /// A matrix, tensor or pattern that is none.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A name that stands for no option.
    #[error(transparent)]
    Name(#[from] UnknownName),
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::Format(error.into())
    }
}

impl Error {
    /// What went wrong with a plan whatever its product is, if that is what went wrong.
    #[must_use]
    pub fn plan(&self) -> Option<&PlanError> {
        match self {
            Self::Plan(error)
            | Self::Spmm(SpmmError::Plan(error))
            | Self::Sddmm(SddmmError::Plan(error))
            | Self::Aggregate(AggregateError::Plan(error))
            | Self::Attention(AttentionError::Plan(error))
            | Self::Nm(NmError::Plan(error))
            | Self::Tensor(TensorError::Plan(error))
            | Self::Training(TrainingError::Plan(error)) => Some(error),
            #[cfg(feature = "dist")]
            Self::Dist(DistError::Spmm(SpmmError::Plan(error))) => Some(error),
            _ => None,
        }
    }

    /// What went wrong on a device, if that is what went wrong.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceError> {
        match (self, self.plan()) {
            (Self::Device(error), _) | (_, Some(PlanError::Device(error))) => Some(error),
            _ => None,
        }
    }
}

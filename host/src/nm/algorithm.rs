//! What an algorithm of products with N:M weights has of its own: a layout of the weights, and launches that read it.

use windrow_formats::NmPattern;

use super::launch::Launch;
use super::model::Instance;
use super::options::{NmAlgorithm, NmPacking};
use super::placing::Placed;
use super::report::NmReport;
use super::staging::ReadAs;
use crate::device::{DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;

/// Weights laid out for an instance of an algorithm.
pub(super) trait Layout {
    fn instance(&self) -> &dyn Instance;

    fn algorithm(&self) -> NmAlgorithm;

    /// How the instance reads activations.
    fn read_as(&self) -> ReadAs;

    /// Names and bytes of the arrays.
    fn arrays(&self) -> Vec<(&'static str, u64)>;

    /// Brings the arrays to the device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    fn upload(&self, runner: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError>;

    /// Kept rows of a stage, and columns of `A` that it brings at most.
    fn stage(&self) -> [u32; 2];

    /// Notes whether columns of `A` are packed, and why, where `asked` was asked for.
    fn note_packing(&self, asked: NmPacking, pattern: NmPattern, report: &mut NmReport);
}

/// Weights in device memory that an instance of an algorithm reads.
pub(super) trait Weights: Send + Sync {
    fn instance(&self) -> &dyn Instance;

    /// What puts values from the device in their places, and where; none if these came from the host.
    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)>;

    /// Name and content of each array.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError>;

    /// Whether what is queued is loaded by the first run that queues it, as a library's kernels are.
    fn loads_when_run(&self) -> bool {
        false
    }

    /// Queues the program.
    ///
    /// # Errors
    /// [`DeviceError`].
    ///
    /// # Safety
    /// Activations are as the layout [reads](Layout::read_as) them, readable up to their leading dimension; the output,
    /// of all parts, is writable. Weights and memory of the run live until the machine has done the work.
    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError>;
}

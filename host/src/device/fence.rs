//! Points in the order of a queue's work that other queues wait for.

#[cfg(feature = "cuda")]
use super::cuda::CudaFence;
#[cfg(feature = "emulator")]
use super::emulator::EmulatorFence;

/// Where a queue's [mark](super::Queue::mark) was set last.
///
/// Threads share it: one that sets the mark while another is about to wait makes that one wait for a little more than
/// it meant to, never for less.
pub(crate) enum Fence {
    #[cfg(feature = "cuda")]
    Cuda(CudaFence),
    #[cfg(feature = "emulator")]
    Emulator(EmulatorFence),
}

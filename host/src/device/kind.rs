//! What sort of device one is.

/// What sort of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceKind {
    /// An NVIDIA GPU.
    Cuda,
    /// The processor that this program runs on.
    Cpu,
    /// The GPU emulator, which runs the GPU's kernels on the processor and checks every access. For tests.
    Emulator,
}

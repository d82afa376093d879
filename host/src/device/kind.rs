//! What a device says of itself: what sort it is, and which kernels were loaded.

/// What sort of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceKind {
    /// An NVIDIA GPU, through the CUDA driver.
    Cuda,
    /// The processor that this program runs on.
    Cpu,
    /// The GPU emulator, which runs the GPU's kernels on the processor and checks every access. For tests.
    Emulator,
}

/// Kernels that a GPU's driver compiled together, when one of them was first used.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct KernelModule {
    /// Its name: the family of products, the algorithm, the type of elements.
    pub name: &'static str,
    /// The architecture that its PTX is written for.
    pub architecture: &'static str,
    /// Entry points in it.
    pub entries: usize,
    /// Time that the driver took to load it, in milliseconds: to compile it, or to find it in its cache.
    pub milliseconds: f64,
}

//! Other libraries beside windrow: their CUDA work, and their matrices.
//!
//! # CUDA
//!
//! A [`DeviceBuffer::address`](crate::DeviceBuffer::address) of a CUDA device is a `CUdeviceptr` in the device's
//! primary context. Work on it by other libraries is ordered with windrow's if it is queued in windrow's
//! stream: hand [`cuda_handles`] to them (`cusparseSetStream`, `cublasSetStream`). The other way round, windrow queues
//! its work in a [stream of theirs](crate::Stream::from_raw) and reads and writes
//! [their memory](crate::DeviceView::from_raw).
//!
//! With the feature `cudarc` the slices and streams of that crate, version 0.19, are operands and streams of windrow's
//! calls without unsafe code, and windrow's buffers are memory for its kernels and copies: `CudarcStream`.
//!
//! # Matrices of other crates
//!
//! Each conversion needs the feature that has the crate's name. All are `TryFrom`, but for those that cannot fail.
//!
//! | crate | dense operands | results | sparse matrices |
//! | --- | --- | --- | --- |
//! | `ndarray` | views and arrays of two dimensions, in C's or Fortran's order, are operands as they are ([`MatRef`]); any other is copied ([`Dense`]) | `Array2` from [`Dense`]; arrays in C's order are written where they are ([`DenseMut`]) | |
//! | `faer` | `Mat` and `MatRef` are copied ([`Dense`]) | `Mat` from [`Dense`] | `SparseColMat` and `SparseRowMat`, from and to [`Csr`] |
//! | `sprs` | | | `CsMat` in either order and its views, from and to [`Csr`]; `TriMat` to [`Coo`] |
//! | `nalgebra-sparse` | `DMatrix::as_slice`, with [`MatRef::col_major`] | | `CsrMatrix` and `CscMatrix`, from and to [`Csr`]; `CooMatrix`, from and to [`Coo`] |
//!
#![cfg_attr(feature = "ndarray", doc = include_str!("interop/ndarray.md"))]
#![cfg_attr(feature = "sprs", doc = include_str!("interop/sprs.md"))]
#![cfg_attr(feature = "cudarc", doc = include_str!("interop/cudarc.md"))]
#![cfg_attr(feature = "faer", doc = include_str!("interop/faer.md"))]
#![cfg_attr(feature = "nalgebra-sparse", doc = include_str!("interop/nalgebra_sparse.md"))]
//! Elements of 16 bits are those of the crate `half`, and operands like any others:
//!
//! ```
//! use windrow::{Csr, Device, Precision, Spmm, f16};
//!
//! let a = Csr::from_dense(2, 2, &[2.0f32, 0.0, 0.0, 3.0])?;
//! let plan = Spmm::builder(&a).precision(Precision::F16).build(&Device::cpu())?;
//! let b: Vec<f16> = [1.0, 2.0, 3.0, 4.0].map(f16::from_f32).to_vec();
//! let c: Vec<f16> = plan.run(&b)?;
//! assert_eq!(c, [2.0, 4.0, 9.0, 12.0].map(f16::from_f32));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`MatRef`]: crate::MatRef
//! [`MatRef::col_major`]: crate::MatRef::col_major
//! [`Dense`]: crate::Dense
//! [`DenseMut`]: crate::DenseMut
//! [`Csr`]: crate::Csr
//! [`Coo`]: crate::Coo

#[cfg(feature = "cudarc")]
mod with_cudarc;
#[cfg(feature = "faer")]
mod with_faer;
#[cfg(feature = "ndarray")]
mod with_ndarray;

use std::ffi::c_void;

#[cfg(feature = "cudarc")]
pub use with_cudarc::{
    CudarcMemory, CudarcSlice, CudarcSliceMut, CudarcStream, CudarcView, CudarcViewMut, cudarc_stream,
};

use crate::{Device, DeviceError};

/// The driver's handles of a CUDA device. Valid as long as a [`Device`] for it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaHandles {
    /// `CUcontext`: the primary context.
    pub context: *mut c_void,
    /// `CUstream`: the device's own stream, in which windrow queues all work that is not asked of another
    /// [`Stream`](crate::Stream). It does not wait for the
    /// legacy default stream, nor that one for it.
    pub stream: *mut c_void,
}

/// The handles of a CUDA device, its context made current on the calling thread; `None` for other devices.
///
/// # Errors
/// [`DeviceError::Driver`].
pub fn cuda_handles(device: &Device) -> Result<Option<CudaHandles>, DeviceError> {
    let Some(machine) = device.machine() else { return Ok(None) };
    let pointer = |address| std::ptr::with_exposed_provenance_mut(address);
    let raw = machine.raw_cuda()?;
    Ok(raw.map(|(context, stream)| CudaHandles { context: pointer(context), stream: pointer(stream) }))
}

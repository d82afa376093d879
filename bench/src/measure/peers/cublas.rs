//! cuBLAS's dense product: what the same shape costs without sparsity.

use std::fmt;
use std::ptr;

use cudarc::cublas::sys as cb;
use windrow::{Device, DeviceMatrix, Element, Precision};

use super::operands::{check_on, check_product, pointer, stream_of};
use super::{called, require, signed};
use crate::measure::error::BenchError;

const LIBRARY: &str = "cuBLAS";
const SUCCESS: cb::cublasStatus_t = cb::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
/// Everything that is called below.
const FUNCTIONS: [&str; 5] =
    ["cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasGetVersion_v2", "cublasGemmEx"];

/// The arithmetic of a dense product; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenseMath {
    /// f32 operands, multiplied as they are.
    F32,
    /// f32 operands, rounded to 10 bits after the point and multiplied by Tensor Cores.
    Tf32,
    /// f16 operands, multiplied by Tensor Cores.
    F16,
}

impl DenseMath {
    pub(crate) const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::F16];

    /// The type of the operands.
    #[must_use]
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::F32 | Self::Tf32 => Precision::F32,
            Self::F16 => Precision::F16,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
        }
    }
}

impl fmt::Display for DenseMath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The library, set up for one device: its work is queued with the device's.
#[derive(Debug)]
pub struct CuBlas {
    handle: cb::cublasHandle_t,
    device: Device,
    version: String,
}

impl CuBlas {
    /// Loads the library.
    ///
    /// # Errors
    /// - [`BenchError::Absent`] if it is not there or lacks a function;
    /// - [`BenchError::Device`] on a device that is no CUDA device;
    /// - [`BenchError::Library`] if it does not start.
    pub fn load(device: &Device) -> Result<Self, BenchError> {
        let stream = stream_of(device)?;
        // SAFETY: loads the library, whose initialisers are meant for that; `culib` is only called once it is known
        // to be there. No symbol is called through the type given here.
        unsafe {
            let present = cb::is_culib_present();
            let has = |name: &str| cb::culib().get::<unsafe extern "C" fn()>(name).is_ok();
            require(LIBRARY, present, has, &FUNCTIONS)?;
        }
        let mut cublas = Self { handle: ptr::null_mut(), device: device.clone(), version: String::new() };
        let mut version = 0;
        // SAFETY: the functions exist; the pointers are to live variables; the stream is of the primary context,
        // which `stream_of` made current, and lives as long as the device.
        unsafe {
            called("cublasCreate", cb::cublasCreate_v2(&raw mut cublas.handle), &SUCCESS)?;
            let status = cb::cublasSetStream_v2(cublas.handle, stream.cast());
            called("cublasSetStream", status, &SUCCESS)?;
            let status = cb::cublasGetVersion_v2(cublas.handle, &raw mut version);
            called("cublasGetVersion", status, &SUCCESS)?;
        }
        cublas.version = format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100);
        Ok(cublas)
    }

    /// The library's own version, such as `13.0.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Queues `C[m×n] ← A[m×k]·B[k×n]`, all dense and row-major; `C` is f32 or f16.
    ///
    /// # Errors
    /// - [`BenchError::Operands`] if `T` is not what `math` multiplies;
    /// - [`BenchError::Product`] if the shapes do not fit, [`BenchError::Device`] if an operand is elsewhere;
    /// - [`BenchError::TooLarge`] for 2³¹ or more rows or columns;
    /// - [`BenchError::Library`] if cuBLAS refuses.
    pub(crate) fn gemm<T: Element, C: Element>(
        &self,
        math: DenseMath,
        a: &DeviceMatrix<T>,
        b: &DeviceMatrix<T>,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), BenchError> {
        if T::PRECISION != math.precision() {
            let (expected, found) = (math.precision(), T::PRECISION);
            return Err(BenchError::Operands { math: math.name(), expected, found });
        }
        check_on(&self.device, "A", a.device())?;
        check_product(&self.device, (a.rows(), a.cols()), b, c)?;
        let size = |what, x| signed(LIBRARY, what, x);
        let (m, n, k) =
            (size("rows of A", a.rows())?, size("columns of B", b.cols())?, size("columns of A", a.cols())?);
        let (lda, ldb, ldc) = (
            size("elements from row to row of A", a.ld())?,
            size("elements from row to row of B", b.ld())?,
            size("elements from row to row of C", c.ld())?,
        );
        let (operands, compute) = match math {
            DenseMath::F32 => (cb::cudaDataType::CUDA_R_32F, cb::cublasComputeType_t::CUBLAS_COMPUTE_32F),
            DenseMath::Tf32 => {
                (cb::cudaDataType::CUDA_R_32F, cb::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32)
            }
            DenseMath::F16 => (cb::cudaDataType::CUDA_R_16F, cb::cublasComputeType_t::CUBLAS_COMPUTE_32F),
        };
        let result = match C::PRECISION {
            Precision::F16 => cb::cudaDataType::CUDA_R_16F,
            Precision::F32 => cb::cudaDataType::CUDA_R_32F,
            found => {
                let expected = Precision::F32;
                return Err(BenchError::Operands { math: "cuBLAS's C here", expected, found });
            }
        };
        let (alpha, beta) = (1.0f32, 0.0f32);
        let as_is = cb::cublasOperation_t::CUBLAS_OP_N;
        // The library's matrices are column-major: to it these are the transposes, and Cᵀ = Bᵀ·Aᵀ.
        // SAFETY: the handle is live; the operands are matrices of these shapes and types on its device, `C` borrowed
        // for this call, and their buffers are freed after the work queued here; the scalars are read during the call.
        let status = unsafe {
            cb::cublasGemmEx(
                self.handle,
                as_is,
                as_is,
                n,
                m,
                k,
                ptr::from_ref(&alpha).cast(),
                pointer(b.buffer().address()).cast_const(),
                operands,
                ldb,
                pointer(a.buffer().address()).cast_const(),
                operands,
                lda,
                ptr::from_ref(&beta).cast(),
                pointer(c.buffer().address()),
                result,
                ldc,
                compute,
                cb::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        };
        called("cublasGemmEx", status, &SUCCESS)
    }
}

impl Drop for CuBlas {
    fn drop(&mut self) {
        if !self.handle.is_null() && stream_of(&self.device).is_ok() {
            // SAFETY: created by `load`, destroyed only here. Errors have nobody to go to.
            let _ = unsafe { cb::cublasDestroy_v2(self.handle) };
        }
    }
}

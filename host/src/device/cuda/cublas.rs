//! Dense products by cuBLAS, which is loaded at run time where it is.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublas::sys as cb;
use windrow_kernels::output::OutputType;

use super::gpu::Gpu;
use crate::device::dense_library::{DenseLibrary, DenseProduct};
use crate::device::queue::Queue;
use crate::error::DeviceError;
use crate::num::index;
use crate::options::Precision;

const SUCCESS: cb::cublasStatus_t = cb::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
/// Everything that is called below. The one with sizes of 64 bits came with CUDA 12.
const FUNCTIONS: [&str; 7] = [
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasSetMathMode",
    "cublasGetVersion_v2",
    "cublasGemmEx_64",
];

/// The library, set up for one GPU.
pub(super) struct CuBlas {
    gpu: Arc<Gpu>,
    /// Locked while a product is queued: stream and scratch memory belong to the handle.
    handle: Mutex<Handle>,
    name: String,
}

struct Handle(cb::cublasHandle_t);

// SAFETY: a handle may be used from any thread with its context current, by one at a time: the lock is for that.
unsafe impl Send for Handle {}

/// A call's status as an error.
fn called(call: &'static str, status: cb::cublasStatus_t) -> Result<(), DeviceError> {
    match status {
        SUCCESS => Ok(()),
        status => Err(DeviceError::Library { call, status: format!("{status:?}") }),
    }
}

/// Why the library cannot be used, if so. cudarc panics where the library or a function is missing, so this comes
/// before any other call of it.
fn missing() -> Option<String> {
    // SAFETY: loads the library, whose initialisers are meant for that, and keeps it only where it is there. No symbol
    // is called through the type given here.
    let absent = unsafe {
        match cb::is_culib_present() {
            true => FUNCTIONS.iter().find(|name| cb::culib().get::<unsafe extern "C" fn()>(**name).is_err()),
            false => {
                return Some(
                    "no libcublas.so, nor one with a version of CUDA 12 behind the name, could be loaded; install it, \
                     or name its folder in LD_LIBRARY_PATH (/usr/local/cuda/lib64 where the toolkit is)"
                        .to_owned(),
                );
            }
        }
    };
    absent.map(|name| format!("its libcublas.so has no function {name}; install that of CUDA 12 or 13"))
}

impl CuBlas {
    /// Loads the library and sets it up. The GPU's context is current.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn load(gpu: &Arc<Gpu>) -> Result<Self, String> {
        if let Some(reason) = missing() {
            return Err(reason);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the functions exist; the pointer is to a live variable; a context is current.
        let status = unsafe { cb::cublasCreate_v2(&raw mut handle) };
        called("cublasCreate", status).map_err(|error| error.to_string())?;
        let mut cublas =
            Self { gpu: Arc::clone(gpu), handle: Mutex::new(Handle(handle)), name: String::new() };
        // Sums of parts of a product are not rounded to f16 or bf16 before they are added.
        let mode = cb::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        let mut version: c_int = 0;
        // SAFETY: the handle is live, the pointer is to a live variable.
        let statuses = unsafe {
            [
                ("cublasSetMathMode", cb::cublasSetMathMode(handle, mode)),
                ("cublasGetVersion", cb::cublasGetVersion_v2(handle, &raw mut version)),
            ]
        };
        for (call, status) in statuses {
            called(call, status).map_err(|error| error.to_string())?;
        }
        // 120804 is 12.8.4; before CUDA 12 there was another way to count, but no function of 64 bits.
        let [major, minor, patch] = [version / 10_000, version % 10_000 / 100, version % 100];
        cublas.name = format!("cuBLAS {major}.{minor}.{patch}");
        Ok(cublas)
    }

    /// Queues a product in a stream. The context is current.
    ///
    /// # Safety
    /// As for [`DenseLibrary::multiply`].
    unsafe fn queue(&self, stream: cb::cudaStream_t, product: &DenseProduct) -> Result<(), DeviceError> {
        let of_operands = type_of(product.precision);
        let compute = match product.precision {
            Precision::F32 | Precision::F64 => cb::cublasComputeType_t::CUBLAS_COMPUTE_32F_PEDANTIC,
            Precision::Tf32 => cb::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Precision::F16 | Precision::Bf16 => cb::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let of_result = match product.output {
            OutputType::Sums => cb::cudaDataType::CUDA_R_32F,
            OutputType::F16 => cb::cudaDataType::CUDA_R_16F,
            OutputType::Bf16 => cb::cudaDataType::CUDA_R_16BF,
        };
        let as_is = cb::cublasOperation_t::CUBLAS_OP_N;
        let of_a = if product.a_transposed { cb::cublasOperation_t::CUBLAS_OP_T } else { as_is };
        let (scratch, scratch_bytes) = product.scratch;
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // The library's matrices are column-major: to it these are the transposes, and Cᵀ = Bᵀ·Aᵀ.
        // SAFETY: the handle is live, and nobody else's as long as it is locked; the operands are the caller's promise;
        // the scalars are read during the call.
        unsafe {
            called("cublasSetStream", cb::cublasSetStream_v2(handle.0, stream))?;
            // Behind the stream, which takes the workspace away.
            let status = cb::cublasSetWorkspace_v2(handle.0, pointer(scratch), index(scratch_bytes));
            called("cublasSetWorkspace", status)?;
            let status = cb::cublasGemmEx_64(
                handle.0,
                as_is,
                of_a,
                i64::from(product.n),
                i64::from(product.m),
                i64::from(product.k),
                ptr::from_ref(&product.alpha).cast(),
                pointer(product.b).cast_const(),
                of_operands,
                i64::from(product.ldb),
                pointer(product.a).cast_const(),
                of_operands,
                i64::from(product.lda),
                ptr::from_ref(&product.beta).cast(),
                pointer(product.c),
                of_result,
                i64::from(product.ldc),
                compute,
                cb::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            );
            called("cublasGemmEx", status)
        }
    }
}

/// A device address as the library takes it.
fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(index(address))
}

/// The library's name of a type.
fn type_of(precision: Precision) -> cb::cudaDataType {
    match precision {
        Precision::F32 | Precision::Tf32 | Precision::F64 => cb::cudaDataType::CUDA_R_32F,
        Precision::F16 => cb::cudaDataType::CUDA_R_16F,
        Precision::Bf16 => cb::cudaDataType::CUDA_R_16BF,
    }
}

impl DenseLibrary for CuBlas {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn multiply(&self, queue: &dyn Queue, product: &DenseProduct) -> Result<(), DeviceError> {
        let Some(stream) = queue.raw() else {
            let (operation, remedy) = ("run cuBLAS on it", "a stream of the plan's GPU");
            return Err(DeviceError::NotAvailable { device: self.gpu.name.clone(), operation, remedy });
        };
        let stream = ptr::with_exposed_provenance_mut(stream);
        // SAFETY: the stream is the queue's, of this GPU's context; the rest is the caller's promise.
        self.gpu.with_context(|| unsafe { self.queue(stream, product) })
    }
}

impl Drop for CuBlas {
    fn drop(&mut self) {
        // Errors have nobody to go to.
        if self.gpu.bind().is_ok() {
            let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: created by `load`, destroyed only here.
            let _ = unsafe { cb::cublasDestroy_v2(handle.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_for_the_library_never_panics() {
        // Whether it is there or not, and whatever it lacks.
        if let Some(reason) = missing() {
            assert!(reason.contains("libcublas.so") && reason.contains("install"), "{reason}");
        }
        let error = called("cublasGemmEx", cb::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED).unwrap_err();
        assert_eq!(error.to_string(), "cublasGemmEx failed: CUBLAS_STATUS_NOT_SUPPORTED");
    }
}

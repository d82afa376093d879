//! cuBLAS, loaded at run time and set to a stream of windrow's: dense products in the order of its work there.

use std::ffi::c_void;
use std::ptr;

use cudarc::cublas::sys as cb;
use windrow::interop::cuda_handles;
use windrow::{Device, DeviceBuffer, DeviceMatrix, Stream};

use super::Result;
use super::gemm::{DenseMath, Form};

/// Everything that is called below.
const FUNCTIONS: [&str; 5] =
    ["cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx"];
/// Bytes of its workspace, given to it so that it allocates none in a graph: as many as its documentation names for an
/// H100.
const WORKSPACE_BYTES: usize = 32 << 20;
/// What to do where the library is missing.
const REMEDY: &str = "install cuBLAS of CUDA 12 or 13 (pip install nvidia-cublas, or the CUDA toolkit) and name the \
                      folder of libcublas.so in LD_LIBRARY_PATH, or run with --device cpu";

/// The library, set up for one device.
#[derive(Debug)]
pub(crate) struct CuBlas {
    handle: cb::cublasHandle_t,
    device: Device,
    /// Its own from `load` to `drop`.
    _workspace: DeviceBuffer<u8>,
    compute: cb::cublasComputeType_t,
}

impl CuBlas {
    /// Loads the library, for products in this stream.
    ///
    /// # Errors
    /// If it is not there, lacks a function or does not start.
    pub(crate) fn load(stream: &Stream, math: DenseMath) -> Result<Self> {
        let device = stream.device();
        cuda_handles(device)?; // makes the context current
        let raw = stream.raw().ok_or_else(|| format!("{device} is no CUDA device"))?;
        let workspace = DeviceBuffer::<u8>::alloc_zeroed(device, WORKSPACE_BYTES)?;
        // SAFETY: loads the library, whose initialisers are meant for that; `culib` is only called once it is known to
        // be there. No symbol is called through the type given here.
        unsafe {
            if !cb::is_culib_present() {
                return Err(format!("no cuBLAS could be loaded: {REMEDY}").into());
            }
            let lacking = |name: &&&str| cb::culib().get::<unsafe extern "C" fn()>(**name).is_err();
            if let Some(missing) = FUNCTIONS.iter().find(lacking) {
                return Err(format!("the cuBLAS found has no function {missing}: {REMEDY}").into());
            }
        }
        let compute = match math {
            DenseMath::F32 => cb::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            DenseMath::Tf32 => cb::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        };
        let address = ptr::with_exposed_provenance_mut(usize::try_from(workspace.address())?);
        let mut cublas =
            Self { handle: ptr::null_mut(), device: device.clone(), _workspace: workspace, compute };
        // SAFETY: the functions exist; the pointer is to a live variable; the stream is of the primary context, which
        // `cuda_handles` made current, and lives as long as the model that has it; the workspace is freed after the
        // handle is destroyed, which waits for its work.
        unsafe {
            called("cublasCreate", cb::cublasCreate_v2(&raw mut cublas.handle))?;
            called("cublasSetStream", cb::cublasSetStream_v2(cublas.handle, raw.cast()))?;
            let set = cb::cublasSetWorkspace_v2(cublas.handle, address, WORKSPACE_BYTES);
            called("cublasSetWorkspace", set)?;
        }
        Ok(cublas)
    }

    /// Queues `C[m×n] ← A·B + beta·C` with `k` terms for each element, and the operand transposed that `form` says; the
    /// caller has compared the shapes.
    ///
    /// # Errors
    /// If a size does not fit 31 bits, or the library refuses.
    pub(crate) fn run(
        &self,
        form: Form,
        (m, n, k): (usize, usize, usize),
        [a, b]: [&DeviceMatrix<f32>; 2],
        (beta, c): (f32, &mut DeviceMatrix<f32>),
    ) -> Result<()> {
        if m == 0 || n == 0 || k == 0 {
            return Err("cuBLAS multiplies no empty matrices".into());
        }
        if ![a.device(), b.device(), c.device()].into_iter().all(|device| device.is_same(&self.device)) {
            return Err(format!("an operand is not on {}", self.device).into());
        }
        let size = |x: usize| i32::try_from(x).map_err(|_| format!("{x} does not fit cuBLAS's 31 bits"));
        let operation = |transposed| match transposed {
            false => cb::cublasOperation_t::CUBLAS_OP_N,
            true => cb::cublasOperation_t::CUBLAS_OP_T,
        };
        let alpha = 1.0f32;
        let real = cb::cudaDataType::CUDA_R_32F;
        // The library's matrices are column-major: to it these are the transposes, and Cᵀ = Bᵀ·Aᵀ.
        // SAFETY: the handle is live; the operands are f32 matrices of these shapes on its device, `C` borrowed for
        // this call, and their buffers are freed after the work queued here; the scalars are read during the call.
        let status = unsafe {
            cb::cublasGemmEx(
                self.handle,
                operation(form == Form::Second),
                operation(form == Form::First),
                size(n)?,
                size(m)?,
                size(k)?,
                ptr::from_ref(&alpha).cast(),
                pointer(b).cast_const(),
                real,
                size(b.ld())?,
                pointer(a).cast_const(),
                real,
                size(a.ld())?,
                ptr::from_ref(&beta).cast(),
                pointer(c),
                real,
                size(c.ld())?,
                self.compute,
                cb::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        };
        called("cublasGemmEx", status)
    }
}

impl Drop for CuBlas {
    fn drop(&mut self) {
        if !self.handle.is_null() && cuda_handles(&self.device).is_ok() {
            // SAFETY: created by `load`, destroyed only here. Errors have nobody to go to.
            let _ = unsafe { cb::cublasDestroy_v2(self.handle) };
        }
    }
}

/// A device address as C functions take it.
fn pointer(matrix: &DeviceMatrix<f32>) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(matrix.buffer().address()).unwrap_or(usize::MAX))
}

/// A call's status as an error.
fn called(call: &str, status: cb::cublasStatus_t) -> Result<()> {
    match status {
        cb::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        failed => Err(format!("{call} failed: {failed:?}").into()),
    }
}

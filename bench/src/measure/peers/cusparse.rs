//! cuSPARSE's SpMM over CSR.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

use cudarc::cusparse::sys as cs;
use cudarc::driver;
use windrow::{Device, DeviceBuffer, DeviceMatrix, Element, Precision};

use super::algorithm::CsrAlgorithm;
use super::operands::{Borrowed, DeviceCsr, check_on, check_product, pointer, stream_of};
use super::{called, require};
use crate::measure::error::{BenchError, driver_error};

pub(super) const LIBRARY: &str = "cuSPARSE";
pub(super) const SUCCESS: cs::cusparseStatus_t = cs::cusparseStatus_t::CUSPARSE_STATUS_SUCCESS;
/// Everything that is called below.
const FUNCTIONS: [&str; 11] = [
    "cusparseCreate",
    "cusparseDestroy",
    "cusparseSetStream",
    "cusparseGetVersion",
    "cusparseCreateCsr",
    "cusparseDestroySpMat",
    "cusparseCreateDnMat",
    "cusparseDestroyDnMat",
    "cusparseSpMM_bufferSize",
    "cusparseSpMM_preprocess",
    "cusparseSpMM",
];

pub(super) fn data_type(precision: Precision) -> Result<cs::cudaDataType, BenchError> {
    match precision {
        Precision::F16 => Ok(cs::cudaDataType::CUDA_R_16F),
        Precision::Bf16 => Ok(cs::cudaDataType::CUDA_R_16BF),
        Precision::F32 => Ok(cs::cudaDataType::CUDA_R_32F),
        Precision::F64 => Ok(cs::cudaDataType::CUDA_R_64F),
        found @ Precision::Tf32 => {
            Err(BenchError::Operands { math: "cuSPARSE here", expected: Precision::F32, found })
        }
    }
}

/// The library, set up for one device: its work is queued with the device's.
#[derive(Debug)]
pub struct CuSparse {
    handle: cs::cusparseHandle_t,
    device: Device,
    version: String,
    /// Where its work is queued, if not with the device's.
    own_stream: Option<driver::sys::CUstream>,
}

impl CuSparse {
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
            let present = cs::is_culib_present();
            let has = |name: &str| cs::culib().get::<unsafe extern "C" fn()>(name).is_ok();
            require(LIBRARY, present, has, &FUNCTIONS)?;
        }
        let (handle, device, version) = (ptr::null_mut(), device.clone(), String::new());
        let mut cusparse = Self { handle, device, version, own_stream: None };
        let mut version = 0;
        // SAFETY: the functions exist; the pointers are to live variables; the stream is of the primary context,
        // which `stream_of` made current, and lives as long as the device.
        unsafe {
            called("cusparseCreate", cs::cusparseCreate(&raw mut cusparse.handle), &SUCCESS)?;
            let status = cs::cusparseSetStream(cusparse.handle, stream.cast());
            called("cusparseSetStream", status, &SUCCESS)?;
            let status = cs::cusparseGetVersion(cusparse.handle, &raw mut version);
            called("cusparseGetVersion", status, &SUCCESS)?;
        }
        cusparse.version = format!("{}.{}.{}", version / 1000, version % 1000 / 100, version % 100);
        Ok(cusparse)
    }

    /// Loads the library with a stream of its own: its products run beside the device's work, and nothing orders one
    /// with the other. [`finish`](Self::finish) waits for them.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_beside(device: &Device) -> Result<Self, BenchError> {
        let mut cusparse = Self::load(device)?;
        let created = driver::result::stream::create(driver::result::stream::StreamKind::NonBlocking);
        let stream = created.map_err(|error| driver_error("cuStreamCreate", error))?;
        cusparse.own_stream = Some(stream);
        // SAFETY: the handle is live; the stream, of the context that `load` made current, lives as long as it.
        let status = unsafe { cs::cusparseSetStream(cusparse.handle, stream.cast()) };
        called("cusparseSetStream", status, &SUCCESS)?;
        Ok(cusparse)
    }

    /// Waits until all of the library's work is done.
    ///
    /// # Errors
    /// [`BenchError::Device`] if some of it failed.
    pub(crate) fn finish(&self) -> Result<(), BenchError> {
        let Some(stream) = self.own_stream else { return Ok(self.device.synchronize()?) };
        stream_of(&self.device)?; // its context is the current one now
        // SAFETY: created by `load_beside`, destroyed only in `drop`.
        let waited = unsafe { driver::result::stream::synchronize(stream) };
        Ok(waited.map_err(|error| driver_error("cuStreamSynchronize", error))?)
    }

    pub(super) fn handle(&self) -> cs::cusparseHandle_t {
        self.handle
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The library's own version, such as `12.6.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Prepares `C[m×n] ← A[m×k]·B[k×n]`, row-major, with sums and a `C` of f32, of f64 where the operands
    /// are: descriptors, workspace, and `cusparseSpMM_preprocess`, whose time is kept.
    ///
    /// # Errors
    /// - [`BenchError::Product`] if the shapes do not fit, [`BenchError::Device`] if an operand is elsewhere;
    /// - [`BenchError::Library`] if cuSPARSE refuses.
    pub fn prepare<'a, T: Element>(
        &'a self,
        algorithm: CsrAlgorithm,
        a: &'a DeviceCsr<T>,
        b: &'a DeviceMatrix<T>,
        c: &'a mut DeviceMatrix<T::Sum>,
    ) -> Result<CuSparseSpmm<'a, T>, BenchError> {
        check_on(&self.device, "A", a.row_offsets.device())?;
        check_product(&self.device, (a.rows, a.cols), b, c)?;
        self.device.synchronize()?; // what was asked for before is none of this preparation
        let started = Instant::now();
        let mut spmm = CuSparseSpmm {
            library: self,
            algorithm,
            a: ptr::null_mut(),
            b: ptr::null_mut(),
            c: ptr::null_mut(),
            workspace: DeviceBuffer::alloc_zeroed(&self.device, 0)?,
            preprocess_us: 0.0,
            operands: PhantomData,
        };
        spmm.describe(a, b, c)?;
        spmm.preprocess()?;
        self.finish()?;
        spmm.preprocess_us = started.elapsed().as_secs_f64() * 1e6;
        Ok(spmm)
    }
}

impl Drop for CuSparse {
    fn drop(&mut self) {
        if self.handle.is_null() || stream_of(&self.device).is_err() {
            return;
        }
        // SAFETY: created by `load`, destroyed only here. Errors have nobody to go to.
        let _ = unsafe { cs::cusparseDestroy(self.handle) };
        if let Some(stream) = self.own_stream {
            // SAFETY: created by `load_beside`, destroyed only here; the handle that used it is gone.
            let _ = unsafe { driver::result::stream::destroy(stream) };
        }
    }
}

/// An SpMM of cuSPARSE that is ready to run on operands that it borrows.
#[derive(Debug)]
pub struct CuSparseSpmm<'a, T: Element> {
    library: &'a CuSparse,
    algorithm: CsrAlgorithm,
    a: cs::cusparseSpMatDescr_t,
    b: cs::cusparseDnMatDescr_t,
    c: cs::cusparseDnMatDescr_t,
    workspace: DeviceBuffer<u8>,
    preprocess_us: f64,
    /// The descriptors hold the addresses of these.
    operands: PhantomData<Borrowed<'a, T>>,
}

/// `C ← 1·A·B + 0·C`: statics, since their addresses are handed over.
static FACTORS: [f32; 2] = [1.0, 0.0];
static FACTORS_F64: [f64; 2] = [1.0, 0.0];

/// `α` and `β` as the interface takes them, in the type of the sums of products with such elements.
pub(super) fn factors<T: Element>() -> [*const c_void; 2] {
    match <T::Sum as Element>::PRECISION {
        Precision::F64 => FACTORS_F64.each_ref().map(|factor| ptr::from_ref(factor).cast()),
        _ => FACTORS.each_ref().map(|factor| ptr::from_ref(factor).cast()),
    }
}

/// The type of those sums.
pub(super) fn sums<T: Element>() -> Result<cs::cudaDataType, BenchError> {
    data_type(<T::Sum as Element>::PRECISION)
}

pub(super) const AS_IS: cs::cusparseOperation_t = cs::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

impl<T: Element> CuSparseSpmm<'_, T> {
    fn describe(
        &mut self,
        a: &DeviceCsr<T>,
        b: &DeviceMatrix<T>,
        c: &DeviceMatrix<T::Sum>,
    ) -> Result<(), BenchError> {
        let size = |x: usize| i64::try_from(x).unwrap_or(i64::MAX);
        let (values, row_major) = (data_type(T::PRECISION)?, cs::cusparseOrder_t::CUSPARSE_ORDER_ROW);
        self.a = describe_csr(a)?;
        // SAFETY: the addresses are of live arrays of these sizes and types on the library's device: a `DeviceMatrix`
        // holds `rows` rows up to `ld`. They stay borrowed as long as `self` lives.
        unsafe {
            let dense = |descriptor, rows, cols, ld, memory: u64, kind| {
                let status = cs::cusparseCreateDnMat(
                    descriptor,
                    size(rows),
                    size(cols),
                    size(ld),
                    pointer(memory),
                    kind,
                    row_major,
                );
                called("cusparseCreateDnMat", status, &SUCCESS)
            };
            dense(&raw mut self.b, b.rows(), b.cols(), b.ld(), b.buffer().address(), values)?;
            dense(&raw mut self.c, c.rows(), c.cols(), c.ld(), c.buffer().address(), sums::<T>()?)
        }
    }

    fn preprocess(&mut self) -> Result<(), BenchError> {
        let ([alpha, beta], sums) = (factors::<T>(), sums::<T>()?);
        let (handle, algorithm) = (self.library.handle, self.algorithm.raw());
        let mut bytes = 0;
        // SAFETY: handle and descriptors are live; scalars are read during the calls; the workspace has the size
        // that the library asked for, and outlives its use.
        unsafe {
            let status = cs::cusparseSpMM_bufferSize(
                handle,
                AS_IS,
                AS_IS,
                alpha,
                self.a.cast_const(),
                self.b.cast_const(),
                beta,
                self.c,
                sums,
                algorithm,
                &raw mut bytes,
            );
            called("cusparseSpMM_bufferSize", status, &SUCCESS)?;
            self.workspace = DeviceBuffer::alloc_zeroed(&self.library.device, bytes.max(16))?;
            let status = cs::cusparseSpMM_preprocess(
                handle,
                AS_IS,
                AS_IS,
                alpha,
                self.a.cast_const(),
                self.b.cast_const(),
                beta,
                self.c,
                sums,
                algorithm,
                pointer(self.workspace.address()),
            );
            called("cusparseSpMM_preprocess", status, &SUCCESS)
        }
    }

    /// Queues the product.
    ///
    /// # Errors
    /// [`BenchError::Library`].
    pub fn run(&self) -> Result<(), BenchError> {
        let ([alpha, beta], sums) = (factors::<T>(), sums::<T>()?);
        // SAFETY: as in `preprocess`; `C` is borrowed for this value alone.
        let status = unsafe {
            cs::cusparseSpMM(
                self.library.handle,
                AS_IS,
                AS_IS,
                alpha,
                self.a.cast_const(),
                self.b.cast_const(),
                beta,
                self.c,
                sums,
                self.algorithm.raw(),
                pointer(self.workspace.address()),
            )
        };
        called("cusparseSpMM", status, &SUCCESS)
    }

    /// Time to prepare it, in microseconds on the host's clock: descriptors, workspace and
    /// `cusparseSpMM_preprocess`.
    #[must_use]
    pub fn preprocess_us(&self) -> f64 {
        self.preprocess_us
    }
}

impl<T: Element> Drop for CuSparseSpmm<'_, T> {
    fn drop(&mut self) {
        // The workspace and the operands must outlive queued work: their buffers are freed after the device's, and a
        // stream of its own is waited for here.
        if self.library.own_stream.is_some() {
            let _ = self.library.finish();
        }
        // SAFETY: each descriptor was created by `describe`, or is null and left alone; destroyed only here. Errors
        // have nobody to go to.
        unsafe {
            for dense in [self.b, self.c] {
                if !dense.is_null() {
                    let _ = cs::cusparseDestroyDnMat(dense.cast_const());
                }
            }
            if !self.a.is_null() {
                let _ = cs::cusparseDestroySpMat(self.a.cast_const());
            }
        }
    }
}

/// A descriptor of a CSR matrix, which must stay alive as long as the descriptor is used.
pub(super) fn describe_csr<T: Element>(a: &DeviceCsr<T>) -> Result<cs::cusparseSpMatDescr_t, BenchError> {
    let size = |x: usize| i64::try_from(x).unwrap_or(i64::MAX);
    let index_type = cs::cusparseIndexType_t::CUSPARSE_INDEX_32I;
    let mut descriptor = ptr::null_mut();
    // SAFETY: the addresses are of live arrays of these sizes and types: `DeviceCsr` is made of a valid matrix whose
    // numbers fit 31 bits. Nothing is read here.
    let status = unsafe {
        cs::cusparseCreateCsr(
            &raw mut descriptor,
            size(a.rows),
            size(a.cols),
            size(a.values.len()),
            pointer(a.row_offsets.address()),
            pointer(a.col_indices.address()),
            pointer(a.values.address()),
            index_type,
            index_type,
            cs::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO,
            data_type(T::PRECISION)?,
        )
    };
    called("cusparseCreateCsr", status, &SUCCESS)?;
    Ok(descriptor)
}

//! cuSPARSE's product with a vector: what a product of one column is for it.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

use cudarc::cusparse::sys as cs;
use windrow::{DeviceBuffer, DeviceMatrix, Element, PlanError};

use super::cusparse::{AS_IS, CuSparse, LIBRARY, SUCCESS, data_type, describe_csr, factors, sums};
use super::operands::{Borrowed, DeviceCsr, check_on, check_product, pointer};
use super::{called, require};
use crate::measure::error::BenchError;

/// What is called beside the functions of an SpMM.
const FUNCTIONS: [&str; 5] = [
    "cusparseCreateDnVec",
    "cusparseDestroyDnVec",
    "cusparseSpMV_bufferSize",
    "cusparseSpMV_preprocess",
    "cusparseSpMV",
];

/// cuSPARSE's algorithms for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VectorAlgorithm {
    /// `CUSPARSE_SPMV_CSR_ALG1`, its default for CSR.
    Alg1,
    /// `CUSPARSE_SPMV_CSR_ALG2`, the same bits from run to run.
    Alg2,
}

impl VectorAlgorithm {
    pub(crate) const ALL: [Self; 2] = [Self::Alg1, Self::Alg2];

    fn raw(self) -> cs::cusparseSpMVAlg_t {
        match self {
            Self::Alg1 => cs::cusparseSpMVAlg_t::CUSPARSE_SPMV_CSR_ALG1,
            Self::Alg2 => cs::cusparseSpMVAlg_t::CUSPARSE_SPMV_CSR_ALG2,
        }
    }
}

impl fmt::Display for VectorAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alg1 => "SPMV_CSR_ALG1",
            Self::Alg2 => "SPMV_CSR_ALG2",
        })
    }
}

/// A product with a vector of cuSPARSE's that is ready to run on operands that it borrows.
#[derive(Debug)]
pub(crate) struct CuSparseSpmv<'a, T: Element> {
    library: &'a CuSparse,
    algorithm: VectorAlgorithm,
    a: cs::cusparseSpMatDescr_t,
    x: cs::cusparseDnVecDescr_t,
    y: cs::cusparseDnVecDescr_t,
    workspace: DeviceBuffer<u8>,
    preprocess_us: f64,
    /// The descriptors hold the addresses of these.
    operands: PhantomData<Borrowed<'a, T>>,
}

impl CuSparse {
    /// Prepares `y ← A·x` with sums and a `y` of f32, of f64 where the operands are, both matrices of one column
    /// without padding: descriptors, workspace, and `cusparseSpMV_preprocess`, whose time is kept.
    ///
    /// # Errors
    /// - [`BenchError::Absent`] if the library lacks the functions;
    /// - [`BenchError::Product`] if the shapes do not fit or vectors are padded, [`BenchError::Device`] if an operand
    ///   is elsewhere;
    /// - [`BenchError::Library`] if cuSPARSE refuses.
    pub(crate) fn prepare_spmv<'a, T: Element>(
        &'a self,
        algorithm: VectorAlgorithm,
        a: &'a DeviceCsr<T>,
        x: &'a DeviceMatrix<T>,
        y: &'a mut DeviceMatrix<T::Sum>,
    ) -> Result<CuSparseSpmv<'a, T>, BenchError> {
        // SAFETY: the library is there, or there were no handle; no symbol is called through the type given here.
        let has = |name: &str| unsafe { cs::culib().get::<unsafe extern "C" fn()>(name).is_ok() };
        require(LIBRARY, true, has, &FUNCTIONS)?;
        check_on(self.device(), "A", a.row_offsets.device())?;
        check_product(self.device(), (a.rows, a.cols), x, y)?;
        for (operand, rows, cols, ld) in [("x", a.cols, x.cols(), x.ld()), ("y", a.rows, y.cols(), y.ld())] {
            if (cols, ld) != (1, 1) {
                let (found, expected) = ((rows, cols.max(ld)), (rows, 1));
                return Err(PlanError::OperandShape { operand, found, expected }.into());
            }
        }
        self.device().synchronize()?; // what was asked for before is none of this preparation
        let started = Instant::now();
        let mut spmv = CuSparseSpmv {
            library: self,
            algorithm,
            a: ptr::null_mut(),
            x: ptr::null_mut(),
            y: ptr::null_mut(),
            workspace: DeviceBuffer::alloc_zeroed(self.device(), 0)?,
            preprocess_us: 0.0,
            operands: PhantomData,
        };
        spmv.describe(a, x, y)?;
        spmv.preprocess()?;
        self.finish()?;
        spmv.preprocess_us = started.elapsed().as_secs_f64() * 1e6;
        Ok(spmv)
    }
}

impl<T: Element> CuSparseSpmv<'_, T> {
    fn describe(
        &mut self,
        a: &DeviceCsr<T>,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T::Sum>,
    ) -> Result<(), BenchError> {
        self.a = describe_csr(a)?;
        let values = data_type(T::PRECISION)?;
        // SAFETY: the addresses are of live arrays of these sizes and types on the library's device; they stay borrowed
        // as long as `self` lives.
        unsafe {
            let vector = |descriptor, len: usize, memory: u64, kind| {
                let len = i64::try_from(len).unwrap_or(i64::MAX);
                let status = cs::cusparseCreateDnVec(descriptor, len, pointer(memory), kind);
                called("cusparseCreateDnVec", status, &SUCCESS)
            };
            vector(&raw mut self.x, x.rows(), x.buffer().address(), values)?;
            vector(&raw mut self.y, y.rows(), y.buffer().address(), sums::<T>()?)
        }
    }

    fn preprocess(&mut self) -> Result<(), BenchError> {
        let (a, x, algorithm) = (self.a.cast_const(), self.x.cast_const(), self.algorithm.raw());
        let (handle, [alpha, beta], sums) = (self.library.handle(), factors::<T>(), sums::<T>()?);
        let mut bytes = 0;
        // SAFETY: handle and descriptors are live; scalars are read during the calls; the workspace has the size that
        // the library asked for, and outlives its use.
        unsafe {
            let status = cs::cusparseSpMV_bufferSize(
                handle,
                AS_IS,
                alpha,
                a,
                x,
                beta,
                self.y,
                sums,
                algorithm,
                &raw mut bytes,
            );
            called("cusparseSpMV_bufferSize", status, &SUCCESS)?;
            self.workspace = DeviceBuffer::alloc_zeroed(self.library.device(), bytes.max(16))?;
            let workspace = pointer(self.workspace.address());
            let status = cs::cusparseSpMV_preprocess(
                handle, AS_IS, alpha, a, x, beta, self.y, sums, algorithm, workspace,
            );
            called("cusparseSpMV_preprocess", status, &SUCCESS)
        }
    }

    /// Queues the product.
    ///
    /// # Errors
    /// [`BenchError::Library`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let ([alpha, beta], sums) = (factors::<T>(), sums::<T>()?);
        // SAFETY: as in `preprocess`; `y` is borrowed for this value alone.
        let status = unsafe {
            cs::cusparseSpMV(
                self.library.handle(),
                AS_IS,
                alpha,
                self.a.cast_const(),
                self.x.cast_const(),
                beta,
                self.y,
                sums,
                self.algorithm.raw(),
                pointer(self.workspace.address()),
            )
        };
        called("cusparseSpMV", status, &SUCCESS)
    }

    /// Time to prepare it, in microseconds on the host's clock: descriptors, workspace and `cusparseSpMV_preprocess`.
    #[must_use]
    pub(crate) fn preprocess_us(&self) -> f64 {
        self.preprocess_us
    }
}

impl<T: Element> Drop for CuSparseSpmv<'_, T> {
    fn drop(&mut self) {
        // The workspace and the operands outlive queued work: their buffers are freed after it.
        // SAFETY: each descriptor was created by `describe`, or is null and left alone; destroyed only here. Errors
        // have nobody to go to.
        unsafe {
            for vector in [self.x, self.y] {
                if !vector.is_null() {
                    let _ = cs::cusparseDestroyDnVec(vector.cast_const());
                }
            }
            if !self.a.is_null() {
                let _ = cs::cusparseDestroySpMat(self.a.cast_const());
            }
        }
    }
}

//! cuSPARSE's SDDMM over CSR.

use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

use cudarc::cusparse::sys as cs;
use windrow::{DeviceBuffer, DeviceMatrix, Element, PlanError};

use super::cusparse::{AS_IS, CuSparse, LIBRARY, SUCCESS, data_type, factors, sums};
use super::operands::{DeviceCsr, check_on, pointer};
use super::{called, require};
use crate::measure::error::BenchError;

/// What is called beside the functions of an SpMM.
const FUNCTIONS: [&str; 3] = ["cusparseSDDMM_bufferSize", "cusparseSDDMM_preprocess", "cusparseSDDMM"];
const ALGORITHM: cs::cusparseSDDMMAlg_t = cs::cusparseSDDMMAlg_t::CUSPARSE_SDDMM_ALG_DEFAULT;

/// An SDDMM of cuSPARSE that is ready to run on operands that it borrows.
#[derive(Debug)]
pub(crate) struct CuSparseSddmm<'a, T: Element> {
    library: &'a CuSparse,
    x: cs::cusparseDnMatDescr_t,
    y: cs::cusparseDnMatDescr_t,
    out: cs::cusparseSpMatDescr_t,
    workspace: DeviceBuffer<u8>,
    preprocess_us: f64,
    /// The descriptors hold the addresses of these.
    operands: PhantomData<(&'a DeviceMatrix<T>, &'a mut DeviceCsr<T::Sum>)>,
}

impl CuSparse {
    /// Prepares `out ← (X[m×d]·Y[n×d]ᵀ) ⊙ pattern(out)` with sums of f32, of f64 where
    /// the operands are: descriptors, workspace, and
    /// `cusparseSDDMM_preprocess`, whose time is kept. `Y` is passed as a column-major d × n.
    ///
    /// # Errors
    /// - [`BenchError::Absent`] if the library lacks the functions;
    /// - [`BenchError::Product`] if the shapes do not fit, [`BenchError::Device`] if an operand is elsewhere;
    /// - [`BenchError::Library`] if cuSPARSE refuses.
    pub(crate) fn prepare_sddmm<'a, T: Element>(
        &'a self,
        x: &'a DeviceMatrix<T>,
        y: &'a DeviceMatrix<T>,
        out: &'a mut DeviceCsr<T::Sum>,
    ) -> Result<CuSparseSddmm<'a, T>, BenchError> {
        // SAFETY: the library is there, or there were no handle; no symbol is called through the type given here.
        let has = |name: &str| unsafe { cs::culib().get::<unsafe extern "C" fn()>(name).is_ok() };
        require(LIBRARY, true, has, &FUNCTIONS)?;
        let device = self.device();
        check_on(device, "X", x.device())?;
        check_on(device, "Y", y.device())?;
        check_on(device, "the result", out.row_offsets.device())?;
        let inner = x.cols();
        for (operand, matrix, rows) in [("X", x, out.rows), ("Y", y, out.cols)] {
            let (found, expected) = ((matrix.rows(), matrix.cols()), (rows, inner));
            if found != expected {
                return Err(PlanError::OperandShape { operand, found, expected }.into());
            }
        }
        device.synchronize()?; // what was asked for before is none of this preparation
        let started = Instant::now();
        let mut sddmm = CuSparseSddmm {
            library: self,
            x: ptr::null_mut(),
            y: ptr::null_mut(),
            out: ptr::null_mut(),
            workspace: DeviceBuffer::alloc_zeroed(device, 0)?,
            preprocess_us: 0.0,
            operands: PhantomData,
        };
        sddmm.describe(x, y, out)?;
        sddmm.preprocess()?;
        self.finish()?;
        sddmm.preprocess_us = started.elapsed().as_secs_f64() * 1e6;
        Ok(sddmm)
    }
}

impl<T: Element> CuSparseSddmm<'_, T> {
    fn describe(
        &mut self,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T>,
        out: &DeviceCsr<T::Sum>,
    ) -> Result<(), BenchError> {
        let size = |x: usize| i64::try_from(x).unwrap_or(i64::MAX);
        let (rows, columns) =
            (cs::cusparseOrder_t::CUSPARSE_ORDER_ROW, cs::cusparseOrder_t::CUSPARSE_ORDER_COL);
        let values = data_type(T::PRECISION)?;
        // SAFETY: the addresses are of live arrays of these sizes and types on the library's device, as for an SpMM;
        // they stay borrowed as long as `self` lives.
        unsafe {
            let dense = |descriptor, shape: (usize, usize), matrix: &DeviceMatrix<T>, order| {
                let memory = pointer(matrix.buffer().address());
                let (rows, cols, ld) = (size(shape.0), size(shape.1), size(matrix.ld()));
                let status = cs::cusparseCreateDnMat(descriptor, rows, cols, ld, memory, values, order);
                called("cusparseCreateDnMat", status, &SUCCESS)
            };
            dense(&raw mut self.x, (x.rows(), x.cols()), x, rows)?;
            dense(&raw mut self.y, (y.cols(), y.rows()), y, columns)?;
        }
        self.out = super::cusparse::describe_csr(out)?;
        Ok(())
    }

    fn preprocess(&mut self) -> Result<(), BenchError> {
        let ([alpha, beta], sums) = (factors::<T>(), sums::<T>()?);
        let mut bytes = 0;
        // SAFETY: handle and descriptors are live; scalars are read during the calls; the workspace has the size that
        // the library asked for, and outlives its use.
        unsafe {
            let status = cs::cusparseSDDMM_bufferSize(
                self.library.handle(),
                AS_IS,
                AS_IS,
                alpha,
                self.x.cast_const(),
                self.y.cast_const(),
                beta,
                self.out,
                sums,
                ALGORITHM,
                &raw mut bytes,
            );
            called("cusparseSDDMM_bufferSize", status, &SUCCESS)?;
            self.workspace = DeviceBuffer::alloc_zeroed(self.library.device(), bytes.max(16))?;
            let status = cs::cusparseSDDMM_preprocess(
                self.library.handle(),
                AS_IS,
                AS_IS,
                alpha,
                self.x.cast_const(),
                self.y.cast_const(),
                beta,
                self.out,
                sums,
                ALGORITHM,
                pointer(self.workspace.address()),
            );
            called("cusparseSDDMM_preprocess", status, &SUCCESS)
        }
    }

    /// Queues the product.
    ///
    /// # Errors
    /// [`BenchError::Library`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let ([alpha, beta], sums) = (factors::<T>(), sums::<T>()?);
        // SAFETY: as in `preprocess`; the result is borrowed for this value alone.
        let status = unsafe {
            cs::cusparseSDDMM(
                self.library.handle(),
                AS_IS,
                AS_IS,
                alpha,
                self.x.cast_const(),
                self.y.cast_const(),
                beta,
                self.out,
                sums,
                ALGORITHM,
                pointer(self.workspace.address()),
            )
        };
        called("cusparseSDDMM", status, &SUCCESS)
    }

    /// Time to prepare it, in microseconds on the host's clock: descriptors, workspace and
    /// `cusparseSDDMM_preprocess`.
    #[must_use]
    pub(crate) fn preprocess_us(&self) -> f64 {
        self.preprocess_us
    }
}

impl<T: Element> Drop for CuSparseSddmm<'_, T> {
    fn drop(&mut self) {
        // SAFETY: each descriptor was created by `describe`, or is null and left alone; destroyed only here. Errors
        // have nobody to go to.
        unsafe {
            for dense in [self.x, self.y] {
                if !dense.is_null() {
                    let _ = cs::cusparseDestroyDnMat(dense.cast_const());
                }
            }
            if !self.out.is_null() {
                let _ = cs::cusparseDestroySpMat(self.out.cast_const());
            }
        }
    }
}

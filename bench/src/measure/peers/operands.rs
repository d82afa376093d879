//! What the peers' products take: a CSR matrix on the device, and operands that fit.

use std::ffi::c_void;
use std::ptr;

use windrow::interop::cuda_handles;
use windrow::{Csr, Device, DeviceBuffer, DeviceError, DeviceMatrix, Element, PlanError, SpmmError, Value};

use super::signed;
use crate::measure::error::BenchError;

/// A CSR matrix in device memory, with the 32-bit offsets and columns that cuSPARSE takes.
#[derive(Debug)]
pub struct DeviceCsr<T: Element> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_offsets: DeviceBuffer<u32>,
    pub(super) col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<T>,
}

/// `A`, `B` and `C` of a product that holds their addresses.
pub(super) type Borrowed<'a, T> =
    (&'a DeviceCsr<T>, &'a DeviceMatrix<T>, &'a mut DeviceMatrix<<T as Element>::Sum>);

impl<T: Element> DeviceCsr<T> {
    /// Uploads `csr`, values rounded once to `T`.
    ///
    /// # Errors
    /// - [`BenchError::TooLarge`] for 2³¹ or more rows, columns or entries;
    /// - [`BenchError::Device`].
    pub fn upload<V: Value>(device: &Device, csr: &Csr<V>) -> Result<Self, BenchError> {
        for (what, found) in [("rows", csr.rows()), ("columns", csr.cols()), ("entries", csr.nnz())] {
            signed("cuSPARSE", what, found)?;
        }
        // At most the number of entries, which was just checked.
        let row_offsets: Vec<u32> =
            csr.row_offsets().iter().map(|&offset| u32::try_from(offset).unwrap_or(u32::MAX)).collect();
        let values: Vec<T> = csr.values().iter().map(|value| T::from_f64(value.to_f64())).collect();
        Ok(Self {
            rows: csr.rows(),
            cols: csr.cols(),
            row_offsets: DeviceBuffer::from_slice(device, &row_offsets)?,
            col_indices: DeviceBuffer::from_slice(device, csr.col_indices())?,
            values: DeviceBuffer::from_slice(device, &values)?,
        })
    }
}

impl<T: Element> DeviceCsr<T> {
    /// The arrays as a matrix of windrow's, of which nothing was checked.
    pub(crate) fn matrix(&self) -> Result<windrow::DeviceCsr<'_, T>, PlanError> {
        windrow::DeviceCsr::new(self.rows, self.cols, &self.row_offsets, &self.col_indices, &self.values)
    }

    /// The values, one for each entry in CSR order: what an SDDMM writes.
    #[must_use]
    pub(crate) fn values(&self) -> &DeviceBuffer<T> {
        &self.values
    }
}

/// The stream of a CUDA device, its context made current.
pub(super) fn stream_of(device: &Device) -> Result<*mut c_void, BenchError> {
    let (operation, remedy) = ("run CUDA libraries", "a CUDA device");
    let missing = || DeviceError::NotAvailable { device: device.to_string(), operation, remedy };
    Ok(cuda_handles(device)?.ok_or_else(missing)?.stream)
}

/// Checks that `C` may become the product of an `a`-sized matrix on `device` and `B`.
pub(super) fn check_product<T: Element, C: Element>(
    device: &Device,
    a: (usize, usize),
    b: &DeviceMatrix<T>,
    c: &DeviceMatrix<C>,
) -> Result<(), BenchError> {
    check_on(device, "B", b.device())?;
    check_on(device, "C", c.device())?;
    if b.rows() != a.1 {
        return Err(SpmmError::InnerDim { a_cols: a.1, b_rows: b.rows() }.into());
    }
    if (c.rows(), c.cols()) != (a.0, b.cols()) {
        let (rows, cols, expected_rows, expected_cols) = (c.rows(), c.cols(), a.0, b.cols());
        return Err(PlanError::OutputShape { rows, cols, expected_rows, expected_cols }.into());
    }
    Ok(())
}

pub(super) fn check_on(device: &Device, what: &'static str, found: &Device) -> Result<(), BenchError> {
    if found.is_same(device) {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), device.to_string());
    Err(DeviceError::OtherDevice { what, found, expected }.into())
}

/// A device address as C functions take it.
pub(super) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX))
}

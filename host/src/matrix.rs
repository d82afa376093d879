//! Dense matrices in the memory of a device.

use std::fmt;

use windrow_formats::Value;
use windrow_formats::memory::try_zeroed;

use crate::dense::{DenseMut, DenseRef, MatRef, check_shape};
use crate::device::{Device, DeviceBuffer};
use crate::error::PlanError;
use crate::num::wide;
use crate::plan::operand;

/// A row-major matrix in the memory of a [`Device`]: row `r` is elements `r·ld .. r·ld + cols`.
///
/// Invariants: `ld ≥ cols`; the buffer holds all rows up to their leading dimension, `rows·ld` elements.
///
/// # Examples
/// ```
/// use windrow::{DenseRef, Device, DeviceMatrix};
///
/// let device = Device::cpu();
/// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?)?;
/// assert_eq!((b.rows(), b.cols(), b.ld()), (2, 3, 4)); // rows begin at multiples of 16 bytes
/// assert_eq!(b.download()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// # Ok::<(), windrow::PlanError>(())
/// ```
pub struct DeviceMatrix<T: Value> {
    buffer: DeviceBuffer<T>,
    rows: usize,
    cols: usize,
    ld: usize,
}

impl<T: Value> DeviceMatrix<T> {
    /// A matrix of zeros whose rows begin at multiples of 16 bytes; one of a single column, a vector, has no padding.
    ///
    /// # Errors
    /// - [`PlanError::TooLarge`] if there are more elements than can be counted;
    /// - [`PlanError::Device`].
    pub fn zeros(device: &Device, rows: usize, cols: usize) -> Result<Self, PlanError> {
        Self::with_ld(device, rows, cols, aligned_ld::<T>(cols))
    }

    /// A matrix of zeros with `ld` elements from row to row. Kernels read `B` fastest if `ld` elements are a
    /// multiple of 16 bytes.
    ///
    /// # Errors
    /// Those of [`zeros`](Self::zeros), and [`PlanError::LeadingDimension`] if `ld < cols`.
    pub fn with_ld(device: &Device, rows: usize, cols: usize, ld: usize) -> Result<Self, PlanError> {
        let len = elements(rows, cols, ld)?;
        Ok(Self { buffer: DeviceBuffer::alloc_zeroed(device, len)?, rows, cols, ld })
    }

    /// A copy of `from` on the device, in rows, laid out as [`zeros`](Self::zeros) is. `from` is a [`MatRef`], a
    /// [`DenseRef`], a [`Dense`](crate::Dense), or with the feature `ndarray` an array of two dimensions.
    ///
    /// # Errors
    /// Those of [`zeros`](Self::zeros); [`PlanError::Strides`] if `from` cannot be read.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceMatrix, MatRef};
    ///
    /// let columns = MatRef::col_major(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?;
    /// assert_eq!(DeviceMatrix::upload(&Device::cpu(), columns)?.download()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), windrow::PlanError>(())
    /// ```
    pub fn upload<'a>(
        device: &Device,
        from: impl TryInto<MatRef<'a, T>, Error: Into<PlanError>>,
    ) -> Result<Self, PlanError> {
        let from = operand(from)?;
        let mut matrix = Self::zeros(device, from.rows(), from.cols())?;
        matrix.copy_from(from)?;
        Ok(matrix)
    }

    /// The matrix that lies in `buffer`, padding between the rows as it is.
    ///
    /// # Errors
    /// - [`PlanError::LeadingDimension`] if `ld < cols`;
    /// - [`PlanError::DenseTooShort`] if the buffer has fewer than `rows·ld` elements.
    pub fn from_buffer(
        buffer: DeviceBuffer<T>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, PlanError> {
        let needed = elements(rows, cols, ld)?;
        if buffer.len() < needed {
            return Err(PlanError::DenseTooShort { len: buffer.len(), needed, rows, cols, ld });
        }
        Ok(Self { buffer, rows, cols, ld })
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: elements of a row, without padding.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from the start of a row to the start of the next.
    #[must_use]
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// The memory, padding included.
    #[must_use]
    pub fn buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.buffer
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Overwrites all elements, after all work asked for before; padding becomes zero, and so does what a
    /// [buffer](Self::from_buffer) holds behind the matrix.
    ///
    /// # Errors
    /// - [`PlanError::OutputShape`] unless `from` has the same shape, [`PlanError::Strides`] if it cannot be read;
    /// - [`PlanError::Device`].
    pub fn copy_from<'a>(
        &mut self,
        from: impl TryInto<MatRef<'a, T>, Error: Into<PlanError>>,
    ) -> Result<(), PlanError> {
        let from = operand(from)?;
        self.check_same_shape(from.rows(), from.cols())?;
        let rows = from.as_rows();
        if let Some(rows) = rows.filter(|rows| rows.ld() == self.ld && self.ld == self.cols)
            && self.buffer.len() == self.rows * self.cols
        {
            return Ok(self.buffer.copy_from_slice(&rows.data()[..self.buffer.len()])?);
        }
        let mut padded = try_zeroed::<T>(self.buffer.len(), "a matrix with its padding")?;
        match rows {
            Some(from) => {
                for r in 0..self.rows {
                    padded[r * self.ld..][..self.cols].copy_from_slice(from.row(r));
                }
            }
            None => from.copy_rows(0, self.ld, &mut padded[..self.rows * self.ld], |x| x),
        }
        Ok(self.buffer.copy_from_slice(&padded)?)
    }

    /// The elements row after row without padding, after all work asked for before.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    pub fn download(&self) -> Result<Vec<T>, PlanError> {
        let mut elements = self.buffer.to_vec()?;
        if self.ld != self.cols {
            for r in 1..self.rows {
                elements.copy_within(r * self.ld..r * self.ld + self.cols, r * self.cols);
            }
        }
        elements.truncate(self.rows * self.cols);
        Ok(elements)
    }

    /// Copies the elements to the host, after all work asked for before; padding of `to` is left alone.
    ///
    /// # Errors
    /// - [`PlanError::OutputShape`] unless `to` has the same shape;
    /// - [`PlanError::Device`].
    pub fn download_into(&self, mut to: DenseMut<'_, T>) -> Result<(), PlanError> {
        if (to.rows(), to.cols()) != (self.rows, self.cols) {
            let (expected_rows, expected_cols) = (self.rows, self.cols);
            return Err(PlanError::OutputShape {
                rows: to.rows(),
                cols: to.cols(),
                expected_rows,
                expected_cols,
            });
        }
        if to.data().len() == self.buffer.len() && (to.ld(), self.ld) == (self.cols, self.cols) {
            return Ok(self.buffer.copy_to_slice(to.data_mut())?);
        }
        let elements = self.buffer.to_vec()?;
        for r in 0..self.rows {
            to.row_mut(r).copy_from_slice(&elements[r * self.ld..][..self.cols]);
        }
        Ok(())
    }

    fn check_same_shape(&self, rows: usize, cols: usize) -> Result<(), PlanError> {
        if (rows, cols) == (self.rows, self.cols) {
            return Ok(());
        }
        Err(PlanError::OutputShape { rows, cols, expected_rows: self.rows, expected_cols: self.cols })
    }

    /// The matrix, if it is in host memory: on the CPU.
    #[must_use]
    pub fn host(&self) -> Option<DenseRef<'_, T>> {
        DenseRef::try_new(self.buffer.host()?, self.rows, self.cols, self.ld).ok()
    }

    /// The matrix, if it is in host memory: on the CPU.
    #[must_use]
    pub fn host_mut(&mut self) -> Option<DenseMut<'_, T>> {
        DenseMut::try_new(self.buffer.host_mut()?, self.rows, self.cols, self.ld).ok()
    }
}

impl<T: Value> fmt::Debug for DeviceMatrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, ld, .. } = self;
        write!(f, "DeviceMatrix<{}>({rows} × {cols}, ld {ld}, on {})", T::NAME, self.device())
    }
}

/// Elements of `rows` full rows.
pub(crate) fn elements(rows: usize, cols: usize, ld: usize) -> Result<usize, PlanError> {
    let len = rows.checked_mul(ld).filter(|&len| len.checked_mul(16).is_some());
    let len = len.ok_or_else(|| PlanError::TooLarge {
        what: "elements of a dense matrix",
        found: wide(rows).saturating_mul(wide(ld)),
        limit: wide(usize::MAX / 16),
        remedy: "lower the width or the number of rows",
    })?;
    check_shape(len, rows, cols, ld)?;
    Ok(len)
}

/// The least leading dimension for which rows begin at multiples of 16 bytes; for a vector 1, so that gathers of its
/// elements share lines.
pub(crate) fn aligned_ld<T>(cols: usize) -> usize {
    if cols == 1 {
        return 1;
    }
    cols.checked_next_multiple_of((16 / size_of::<T>()).max(1)).unwrap_or(cols)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn rows_are_padded_to_vectors_and_come_back_packed() {
        let device = Device::cpu();
        let data: Vec<f16> = (0u8..10).map(|i| f16::from_f32(f32::from(i))).collect();
        let matrix = DeviceMatrix::upload(&device, DenseRef::packed(&data, 2, 5).unwrap()).unwrap();
        assert_eq!((matrix.ld(), matrix.buffer().len()), (8, 16));
        assert_eq!(matrix.download().unwrap(), data);
        assert!(matrix.buffer().to_vec().unwrap()[5..8].iter().all(|&x| x == f16::ZERO));
    }

    #[test]
    fn vectors_are_not_padded() {
        let vector = DeviceMatrix::<f32>::zeros(&Device::cpu(), 5, 1).unwrap();
        assert_eq!((vector.ld(), vector.buffer().len()), (1, 5));
        assert_eq!(DeviceMatrix::<f32>::zeros(&Device::cpu(), 5, 2).unwrap().ld(), 4);
    }

    #[test]
    fn shapes_are_checked() {
        let device = Device::cpu();
        let too_narrow = DeviceMatrix::<f32>::with_ld(&device, 2, 3, 2);
        assert!(matches!(too_narrow, Err(PlanError::LeadingDimension { ld: 2, cols: 3 })));
        let buffer = DeviceBuffer::<f32>::alloc_zeroed(&device, 7).unwrap();
        let too_short = DeviceMatrix::from_buffer(buffer, 2, 3, 4).map(|_| ());
        let expected = PlanError::DenseTooShort { len: 7, needed: 8, rows: 2, cols: 3, ld: 4 };
        assert_eq!(too_short, Err(expected));
        assert!(matches!(
            DeviceMatrix::<f32>::zeros(&device, usize::MAX, 9),
            Err(PlanError::TooLarge { .. })
        ));
        for (rows, cols) in [(0, 0), (0, 4), (4, 0)] {
            let empty = DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
            assert!(empty.download().unwrap().is_empty());
        }
    }

    #[test]
    fn a_buffer_may_be_longer_than_the_matrix_in_it() {
        for (rows, cols, ld) in [(2, 3, 3), (2, 3, 4), (3, 3, 3), (0, 3, 3)] {
            let buffer = DeviceBuffer::from_slice(&Device::cpu(), &[9.0f32; 10]).unwrap();
            let mut matrix = DeviceMatrix::from_buffer(buffer, rows, cols, ld).unwrap();
            // As long as the matrix, or longer as well.
            for len in [rows * cols, rows * cols + 7] {
                let data: Vec<f32> = (0..len).map(|i| i as f32).collect();
                matrix.copy_from(DenseRef::try_new(&data, rows, cols, cols).unwrap()).unwrap();
                assert_eq!(matrix.download().unwrap(), data[..rows * cols]);
            }
            assert!(matrix.buffer().to_vec().unwrap()[rows * ld..].iter().all(|&x| x == 0.0));
        }
    }
}

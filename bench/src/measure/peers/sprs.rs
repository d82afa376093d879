//! The crate `sprs`: CSR times dense on the CPU, on one thread.

use ndarray::{Array2, ArrayView2};
use sprs::{CsMatI, MulAcc};
use windrow::{Csr, DenseRef, DeviceMatrix, Real, Value};

use crate::measure::error::BenchError;

/// `C ← A·B` by the crate `sprs` (`csr_mulacc_dense_rowmaj`), with operands of its own in host memory. It has no
/// threads, and adds to `C`: that is zeroed first, as part of the product.
#[derive(Debug)]
pub struct SprsSpmm<T> {
    a: CsMatI<T, u32, u64>,
    b: Array2<T>,
    c: Array2<T>,
}

impl SprsSpmm<f32> {
    /// Release of the crate that this is built with.
    pub const VERSION: &'static str = "0.11";
    /// Its function, and what it runs on.
    pub const ALGORITHM: &'static str = "csr_mulacc_dense_rowmaj, 1 thread";
}

impl<T: Real + MulAcc> SprsSpmm<T> {
    /// Takes a copy of `A`, values rounded once to `T`, and of `B`; `C` is full of `unwritten` until the first run.
    ///
    /// # Errors
    /// [`BenchError::Product`] if `B` cannot be read, [`BenchError::Library`] unless it has a row for each column of
    /// `A`.
    pub fn new<V: Value>(csr: &Csr<V>, b: &DeviceMatrix<T>, unwritten: T) -> Result<Self, BenchError> {
        let refused = |call| move |status: String| BenchError::Library { call, status };
        let values: Vec<T> = csr.values().iter().map(|value| T::from_f64(value.to_f64())).collect();
        let (offsets, columns) = (csr.row_offsets().to_vec(), csr.col_indices().to_vec());
        let a = CsMatI::try_new((csr.rows(), csr.cols()), offsets, columns, values)
            .map_err(|(.., error)| refused("sprs::CsMatI::try_new")(error.to_string()))?;
        if b.rows() != csr.cols() {
            let status = format!("A has {} columns but B has {} rows", csr.cols(), b.rows());
            return Err(refused("sprs::prod::csr_mulacc_dense_rowmaj")(status));
        }
        let shaped = ArrayView2::from_shape((b.rows(), b.cols()), &b.download()?).map(|view| view.to_owned());
        let b = shaped.map_err(|error| refused("ndarray::ArrayView2::from_shape")(error.to_string()))?;
        let c = Array2::from_elem((csr.rows(), b.ncols()), unwritten);
        Ok(Self { a, b, c })
    }

    /// Computes `C`, on the thread that calls.
    pub fn run(&mut self) {
        let Self { a, b, c } = self;
        c.fill(T::ZERO);
        sprs::prod::csr_mulacc_dense_rowmaj(a.view(), b.view(), c.view_mut());
    }

    /// Copies `C` to a matrix of its shape.
    ///
    /// # Errors
    /// [`BenchError::Product`] for a matrix of another shape.
    pub fn copy_to(&self, c: &mut DeviceMatrix<T>) -> Result<(), BenchError> {
        let elements = self.c.as_standard_layout();
        let elements = elements.as_slice().unwrap_or_default();
        Ok(c.copy_from(DenseRef::packed(elements, self.c.nrows(), self.c.ncols())?)?)
    }
}

#[cfg(test)]
mod tests {
    use windrow::Device;

    use super::*;
    use crate::measure::operands::{poisoned_matrix, random_matrix};

    #[test]
    fn the_product_is_written_and_not_added_to() {
        let device = Device::cpu();
        let a = Csr::try_from_parts(2, 3, vec![0, 2, 2], vec![0, 2], vec![2.0f32, 3.0]).unwrap();
        let b = DeviceMatrix::upload(
            &device,
            DenseRef::packed(&[1.0f64, 2.0, 4.0, 8.0, 16.0, 32.0], 3, 2).unwrap(),
        )
        .unwrap();
        let mut spmm = SprsSpmm::new(&a, &b, 7.0).unwrap();
        let mut c = poisoned_matrix::<f64>(&device, 2, 2).unwrap();
        spmm.copy_to(&mut c).unwrap();
        assert_eq!(c.download().unwrap(), [7.0; 4], "nothing was computed yet");
        for _ in 0..2 {
            spmm.run();
            spmm.copy_to(&mut c).unwrap();
            assert_eq!(c.download().unwrap(), [50.0, 100.0, 0.0, 0.0]);
        }
        let error = SprsSpmm::new(&a, &random_matrix::<f64>(&device, 2, 2, 1).unwrap(), 0.0).unwrap_err();
        assert!(error.to_string().contains("A has 3 columns but B has 2 rows"), "{error}");
    }
}

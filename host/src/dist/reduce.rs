//! Sums over ranks of what each of them has.

use windrow_formats::Value;

use super::communicator::Communicator;
use crate::dense::DenseRef;
use crate::error::DistError;
use crate::matrix::DeviceMatrix;

impl Communicator {
    /// `X ← Σ X` over all ranks: gradients of weights that every rank has, of which each knows the part of its rows.
    ///
    /// Elements are added in f64 in the order of the ranks, and rounded once: all ranks have the same bits. The
    /// matrices are copied through host memory; they are waited for.
    ///
    /// # Errors
    /// - [`DistError::Disagreement`] for matrices of other shapes or types;
    /// - those of [`all_gather`](Self::all_gather), and of the device.
    ///
    /// # Examples
    /// ```
    /// use windrow::dist::Communicator;
    /// use windrow::{DenseRef, Device, DeviceMatrix, DistError};
    ///
    /// let of_rank = |rank: Communicator| {
    ///     let own = [rank.rank() as f32, 1.0];
    ///     let mut x = DeviceMatrix::upload(&Device::cpu(), DenseRef::packed(&own, 1, 2)?)?;
    ///     rank.all_reduce(&mut x)?;
    ///     Ok::<_, DistError>(x.download()?)
    /// };
    /// std::thread::scope(|scope| {
    ///     let ranks = Communicator::threads(3)?.into_iter().map(|rank| scope.spawn(|| of_rank(rank)));
    ///     for rank in ranks.collect::<Vec<_>>() {
    ///         assert_eq!(rank.join().unwrap()?, [3.0, 3.0]);
    ///     }
    ///     Ok::<_, DistError>(())
    /// })?;
    /// # Ok::<(), DistError>(())
    /// ```
    pub fn all_reduce<T: Value>(&self, matrix: &mut DeviceMatrix<T>) -> Result<(), DistError> {
        self.told(self.reduced(matrix))
    }

    fn reduced<T: Value>(&self, matrix: &mut DeviceMatrix<T>) -> Result<(), DistError> {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        self.agree("rows, columns and type of a sum", &(rows, cols, T::NAME))?;
        if self.size() == 1 {
            return Ok(());
        }
        let own = matrix.download()?;
        for to in self.others() {
            self.send_slice(to, &own);
        }
        let mut sums = vec![0.0; own.len()];
        for theirs in self.with_others(own)? {
            sums.iter_mut().zip(&theirs).for_each(|(sum, x): (&mut f64, &T)| *sum += x.to_f64());
        }
        let sums: Vec<T> = sums.into_iter().map(T::from_f64).collect();
        Ok(matrix.copy_from(DenseRef::packed(&sums, rows, cols)?)?)
    }
}

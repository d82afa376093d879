//! Products with a column-major `B`.

use windrow_formats::memory::try_with_room;
use windrow_formats::{OutOfMemory, Value};

use super::operands::Operands;
use super::plan::{Body, SpmmPlan};
use crate::activation::Epilogue;
use crate::cpu;
use crate::dense::DenseRef;
use crate::device::Stream;
use crate::element::Element;
use crate::error::SpmmError;
use crate::matrix::DeviceMatrix;
use crate::plan::On;
use crate::view::{DeviceView, DeviceViewMut};

impl SpmmPlan {
    /// `C ← α·A·B + β·C` for a column-major `B`, given as the row-major `Bᵀ`: row `j` of `b_transposed` is column `j`
    /// of `B`. As [`run_into`](Self::run_into) otherwise; `C` is row-major.
    ///
    /// On a GPU only plans of [`Algorithm::MatricizedRows`](crate::Algorithm::MatricizedRows) have kernels for it,
    /// which read `B` element by element: on an H200 that took 1.6 to 13 times as long as products of the same
    /// algorithm with a row-major `B`, at widths from 64 on. The CPU makes a transposed copy for each product.
    ///
    /// # Shapes
    /// - `b_transposed`: n × k, of the plan's precision;
    /// - `c`: m × n, f32, f16 or bf16; not read if β = 0.
    ///
    /// # Errors
    /// - those of [`run_into`](Self::run_into);
    /// - [`SpmmError::Unsupported`] for a GPU plan of another algorithm.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Algorithm, Csr, DenseRef, Device, DeviceMatrix, Precision, Spmm, f16};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(1, 3, &[1.0f32, 0.0, 2.0])?);
    /// let builder = Spmm::builder(&a).width(2).precision(Precision::F16);
    /// let plan = builder.algorithm(Algorithm::MatricizedRows).build(&device)?;
    /// // Two columns of three elements.
    /// let columns = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32);
    /// let b_transposed = DeviceMatrix::upload(&device, DenseRef::packed(&columns, 2, 3)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
    /// plan.run_column_major_into(1.0, &b_transposed, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [7.0, 16.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_column_major_into<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b_transposed: &DeviceMatrix<B>,
        beta: B::Sum,
        c: &mut DeviceMatrix<C>,
    ) -> Result<(), SpmmError> {
        self.run_column_major_into_on(&self.device.stream(), alpha, b_transposed, beta, c)
    }

    /// [`run_column_major_into`](Self::run_column_major_into) on a [`Stream`], for matrices in memory of any origin, as
    /// [`run_into_on`](Self::run_into_on).
    ///
    /// # Errors
    /// Those of [`run_column_major_into`](Self::run_column_major_into) and [`run_into_on`](Self::run_into_on).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Algorithm, Csr, DenseRef, Device, DeviceMatrix, Precision, Spmm, Stream, f16};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(1, 2, &[1.0f32, 2.0])?);
    /// let builder = Spmm::builder(&a).width(1).precision(Precision::F16);
    /// let plan = builder.algorithm(Algorithm::MatricizedRows).build(&device)?;
    /// let column = [3.0, 4.0].map(f16::from_f32);
    /// let b_transposed = DeviceMatrix::upload(&device, DenseRef::packed(&column, 1, 2)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 1, 1)?;
    /// plan.run_column_major_into_on(&Stream::new(&device)?, 1.0, &b_transposed, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [11.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::too_many_arguments, reason = "those of `run_column_major_into`, and where")]
    pub fn run_column_major_into_on<'a, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        alpha: B::Sum,
        b_transposed: impl Into<DeviceView<'a, B>>,
        beta: B::Sum,
        c: impl Into<DeviceViewMut<'a, C>>,
    ) -> Result<(), SpmmError> {
        let (b, c) = (b_transposed.into(), c.into());
        let run = Epilogue::linear(alpha, beta);
        self.fit().check_views(on, &run, (b, (b.cols(), b.rows())), &c)?;
        match &self.body {
            Body::Cpu(a) => {
                // Both are in host memory: they are on the CPU, as was just checked.
                if let (Some(a), Some(b), Some(c)) = (a.get(), b.host(), c.into_host()) {
                    let rows = transpose(b)?;
                    cpu::spmm(a, alpha, DenseRef::packed(&rows, b.cols(), b.rows())?, beta, c);
                }
                Ok(())
            }
            Body::Gpu(plan) if !plan.takes_column_major() => Err(SpmmError::Unsupported {
                algorithm: self.report.algorithm,
                precision: self.precision,
                remedy: "a column-major B needs algorithm matricized-rows and precision f16; or transpose it",
            }),
            Body::Gpu(plan) => {
                let operands = Operands { column_major: true, ..Operands::of(&run, b, b.rows(), &c)? };
                let on = On::of(on, &self.device, b.is_owned() || c.is_owned())?;
                // SAFETY: as in `run_into_on`, with rows of `b_transposed` in place of those of `b`.
                unsafe { plan.run(&on, operands, self.budget())? };
                Ok(())
            }
        }
    }
}

/// The elements of `Bᵀ`, row after row without padding.
fn transpose<B: Value>(b: DenseRef<'_, B>) -> Result<Vec<B>, OutOfMemory> {
    let (rows, cols) = (b.rows(), b.cols());
    let mut transposed = try_with_room(rows.saturating_mul(cols), "B, row after row")?;
    transposed.extend((0..cols).flat_map(|column| (0..rows).map(move |row| b.row(row)[column])));
    Ok(transposed)
}

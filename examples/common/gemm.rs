//! Dense products: cuBLAS on a GPU, `matrixmultiply` on the CPU.

use std::borrow::Cow;

use rayon::prelude::*;
use windrow::{DenseRef, DeviceKind, DeviceMatrix, Stream};

use super::Result;
use super::cublas::CuBlas;

/// Rows of a task on the CPU, at most.
const TASK_ROWS: usize = 1024;
/// Rows that are added up at a time in `Aᵀ·B`: fixed, so that results do not depend on the number of threads.
const SUMMED_ROWS: usize = 4096;

/// Which operand is transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `A·B`, both as they are stored.
    Plain,
    /// `Aᵀ·B`, with `A` stored as k × m.
    First,
    /// `A·Bᵀ`, with `B` stored as n × k.
    Second,
}

/// How f32 are multiplied on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DenseMath {
    /// Not rounded before they are multiplied.
    F32,
    /// Rounded to tf32, by Tensor Cores.
    Tf32,
}

/// What computes dense products.
#[derive(Debug)]
pub(crate) enum Gemm {
    /// The processor, which does it when all that the stream was asked for is done.
    Host(Stream),
    CuBlas(CuBlas),
}

/// Rows and columns of a factor as it is multiplied, and elements to the next row and to the next column of that.
#[derive(Debug, Clone, Copy)]
struct Factor<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Factor<'a> {
    fn new(matrix: &DenseRef<'a, f32>, transposed: bool) -> Self {
        let (rows, cols, ld) = (matrix.rows(), matrix.cols(), matrix.ld());
        let data = matrix.data();
        match transposed {
            false => Self { data, rows, cols, row_stride: ld, col_stride: 1 },
            true => Self { data, rows: cols, cols: rows, row_stride: 1, col_stride: ld },
        }
    }

    /// The columns `range` of it.
    fn columns(&self, range: std::ops::Range<usize>) -> Self {
        let data = &self.data[(range.start * self.col_stride).min(self.data.len())..];
        Self { data, cols: range.len(), ..*self }
    }

    /// The rows `range` of it.
    fn of_rows(&self, range: std::ops::Range<usize>) -> Self {
        let data = &self.data[(range.start * self.row_stride).min(self.data.len())..];
        Self { data, rows: range.len(), ..*self }
    }

    /// Whether every element lies in the data.
    fn is_whole(&self) -> bool {
        let last =
            self.rows.saturating_sub(1) * self.row_stride + self.cols.saturating_sub(1) * self.col_stride;
        self.rows == 0 || self.cols == 0 || last < self.data.len()
    }
}

/// `c ← a·b`, `ld` elements from row to row of `c`.
fn multiply(a: Factor<'_>, b: Factor<'_>, c: &mut [f32], ld: usize) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    if m == 0 || n == 0 {
        return;
    }
    let fits = (m - 1) * ld + n <= c.len() && b.rows == k && a.is_whole() && b.is_whole();
    assert!(fits, "{m} × {k} times {} × {n} does not fit", b.rows);
    let stride = |elements: usize| isize::try_from(elements).unwrap_or(isize::MAX);
    // SAFETY: every element of the three matrices lies in its slice, as was just asserted; `c` is borrowed for itself.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.data.as_ptr(),
            stride(a.row_stride),
            stride(a.col_stride),
            b.data.as_ptr(),
            stride(b.row_stride),
            stride(b.col_stride),
            0.0,
            c.as_mut_ptr(),
            stride(ld),
            1,
        );
    }
}

impl Gemm {
    /// What computes dense products in the order of this stream.
    ///
    /// # Errors
    /// If it is one of a GPU and there is no cuBLAS.
    pub(crate) fn new(stream: &Stream, math: DenseMath) -> Result<Self> {
        Ok(match stream.device().kind() {
            DeviceKind::Cuda => Self::CuBlas(CuBlas::load(stream, math)?),
            _ => Self::Host(stream.clone()),
        })
    }

    /// `C ← A·B`, with the operand transposed that `form` says.
    ///
    /// # Errors
    /// If the shapes do not fit, or the device fails.
    pub(crate) fn run(
        &self,
        form: Form,
        a: &DeviceMatrix<f32>,
        b: &DeviceMatrix<f32>,
        c: &mut DeviceMatrix<f32>,
    ) -> Result<()> {
        self.run_into(form, [a, b], 0.0, c)
    }

    /// `C ← A·B + beta·C`; with a `beta` of 0 what is in `C` does not matter.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(crate) fn run_into(
        &self,
        form: Form,
        [a, b]: [&DeviceMatrix<f32>; 2],
        beta: f32,
        c: &mut DeviceMatrix<f32>,
    ) -> Result<()> {
        let shape = |matrix: &DeviceMatrix<f32>, transposed: bool| match transposed {
            false => (matrix.rows(), matrix.cols()),
            true => (matrix.cols(), matrix.rows()),
        };
        let (m, k) = shape(a, form == Form::First);
        let (k_of_b, n) = shape(b, form == Form::Second);
        if k != k_of_b || (c.rows(), c.cols()) != (m, n) {
            let (rows, cols) = (c.rows(), c.cols());
            return Err(format!("{m} × {k} times {k_of_b} × {n} is no {rows} × {cols}").into());
        }
        match self {
            Self::CuBlas(cublas) => cublas.run(form, (m, n, k), [a, b], (beta, c)),
            Self::Host(stream) => {
                stream.synchronize()?;
                on_host(form, (m, n, k), [a, b], (beta, c))
            }
        }
    }
}

/// The product on the CPU; of matrices that are elsewhere by way of copies.
fn on_host(
    form: Form,
    (m, n, k): (usize, usize, usize),
    [a, b]: [&DeviceMatrix<f32>; 2],
    (beta, c): (f32, &mut DeviceMatrix<f32>),
) -> Result<()> {
    let (a_elements, b_elements) = (elements(a)?, elements(b)?);
    let a = Factor::new(&dense(a, &a_elements)?, form == Form::First);
    let b = Factor::new(&dense(b, &b_elements)?, form == Form::Second);
    let mut product = match form {
        // Few elements, many terms: parts of the sums side by side, then added in order.
        Form::First => {
            let part = |first: usize| {
                let range = first..k.min(first + SUMMED_ROWS);
                let mut part = vec![0.0; m * n];
                multiply(a.columns(range.clone()), b.of_rows(range), &mut part, n);
                part
            };
            let parts: Vec<Vec<f32>> = (0..k).into_par_iter().step_by(SUMMED_ROWS).map(part).collect();
            let mut sum = vec![0.0; m * n];
            for part in parts {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            sum
        }
        Form::Plain | Form::Second => {
            let mut product = vec![0.0; m * n];
            // A task for each thread even where there are few rows; an element is added up in the same order.
            let task_rows = m.div_ceil(rayon::current_num_threads()).clamp(1, TASK_ROWS);
            product.par_chunks_mut((task_rows * n).max(1)).enumerate().for_each(|(i, rows)| {
                let range = task_rows * i..m.min(task_rows * (i + 1));
                multiply(a.of_rows(range), b, rows, n);
            });
            product
        }
    };
    if beta != 0.0 {
        product.iter_mut().zip(c.download()?).for_each(|(product, c)| *product += beta * c);
    }
    Ok(c.copy_from(DenseRef::packed(&product, m, n)?)?)
}

/// The elements of a matrix, with the padding where it is in host memory.
fn elements(matrix: &DeviceMatrix<f32>) -> Result<Cow<'_, [f32]>> {
    Ok(match matrix.host() {
        Some(host) => Cow::Borrowed(host.data()),
        None => Cow::Owned(matrix.download()?),
    })
}

/// The matrix with these elements of it.
fn dense<'a>(matrix: &DeviceMatrix<f32>, elements: &'a [f32]) -> Result<DenseRef<'a, f32>> {
    let ld = if matrix.host().is_some() { matrix.ld() } else { matrix.cols() };
    Ok(DenseRef::try_new(elements, matrix.rows(), matrix.cols(), ld)?)
}

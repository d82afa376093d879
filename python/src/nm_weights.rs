//! Weights with N:M sparsity.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use windrow::{NmPattern, VectorNm, VectorNmParts, prune_magnitude};

use crate::array::{Array, told};
use crate::dtype::Dtype;
use crate::error::{Class, Fault};
use crate::numpy::{Item, empty, lend, numpy};
use crate::options::Size;
use crate::outside::outside;

/// Weights `k × n` of which in every `M` rows `N` are kept, in vectors of `L` columns: a pruned layer, of f32.
///
/// `NmWeights.prune(W, (N, M, L))` keeps the largest, `NmWeights.of_dense(W, (N, M, L))` takes a matrix that has the
/// pattern already; `W` has a row for each input.
///
/// >>> W = windrow.NmWeights.prune(numpy.arange(16.0).reshape(4, 4), (1, 2, 4))
/// >>> W
/// windrow.NmWeights(4 × 4, 1:2 in vectors of 4)
/// >>> W.to_dense()[0]
/// array([0., 0., 0., 0.], dtype=float32)
#[pyclass(frozen, weakref, name = "NmWeights", module = "windrow")]
pub(crate) struct PyNmWeights(pub(crate) Arc<VectorNm<f32>>);

/// A dense matrix as packed rows of f32.
fn dense<'py>(matrix: &Bound<'py, PyAny>) -> PyResult<(Array<'py>, usize, usize)> {
    let packed = numpy(matrix.py())?.call_method1("ascontiguousarray", (matrix, "f4"))?;
    let array = Array::host("the weights", &packed)?;
    match array.shape[..] {
        [rows, cols] => Ok((array, rows, cols)),
        _ => Err(told(
            Class::Shape,
            format!(
                "weights have two dimensions, not {}; give a matrix, a row for each input",
                array.shape.len()
            ),
        )),
    }
}

type Given = (Size, Size, Size);

fn pattern((n, m, l): Given) -> PyResult<NmPattern> {
    Ok(NmPattern::new(n.0, m.0, l.0).map_err(Fault::from)?)
}

#[pymethods]
impl PyNmWeights {
    /// The weights of which the magnitudes are largest: of each group of `M` rows `N`, for every `L` columns.
    #[staticmethod]
    #[pyo3(name = "prune", signature = (dense, pattern))]
    fn pruned(py: Python<'_>, dense: &Bound<'_, PyAny>, pattern: Given) -> PyResult<Self> {
        let ((array, rows, cols), pattern) = (self::dense(dense)?, self::pattern(pattern)?);
        // SAFETY: packed, of f32, in host memory.
        let elements = unsafe { array.elements::<f32>() };
        outside(py, || prune_magnitude(elements, rows, cols, pattern)).map(|weights| Self(Arc::new(weights)))
    }

    /// The weights of a dense matrix that has the pattern already.
    #[staticmethod]
    #[pyo3(signature = (dense, pattern))]
    fn of_dense(py: Python<'_>, dense: &Bound<'_, PyAny>, pattern: Given) -> PyResult<Self> {
        let ((array, rows, cols), pattern) = (self::dense(dense)?, self::pattern(pattern)?);
        // SAFETY: as above.
        let elements = unsafe { array.elements::<f32>() };
        outside(py, || VectorNm::from_dense(elements, rows, cols, pattern))
            .map(|weights| Self(Arc::new(weights)))
    }

    /// The weights of their arrays: `values`, w × n, and `indices`, w × q, the rows of the values in their groups.
    #[staticmethod]
    #[pyo3(signature = (values, indices, shape, pattern))]
    fn of_parts(
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        shape: (Size, Size),
        pattern: Given,
    ) -> PyResult<Self> {
        let pattern = self::pattern(pattern)?;
        let values = numpy(py)?.call_method1("asarray", (values, "f4"))?.call_method0("ravel")?;
        let values = Array::host("values", &values)?.to_vec::<f32>()?;
        let indices = numpy(py)?.call_method1("asarray", (indices,))?.call_method0("ravel")?;
        let indices = Array::host("indices", &indices)?.whole_numbers::<u8>()?;
        let parts = VectorNmParts { rows: shape.0.0, cols: shape.1.0, pattern, values, indices };
        outside(py, || VectorNm::try_from_parts(parts)).map(|weights| Self(Arc::new(weights)))
    }

    /// Reads weights from a safetensors file or a `.npz`, as `write` writes them, or those called `name` from a model,
    /// as `windrow prune` writes it.
    #[staticmethod]
    #[pyo3(signature = (path, name=None))]
    fn read(py: Python<'_>, path: std::path::PathBuf, name: Option<String>) -> PyResult<Self> {
        let read = || {
            let options = windrow::io::ReadOptions { tensor: name.as_deref(), ..Default::default() };
            windrow::io::read_vector_nm::<f32>(&path, &options)
        };
        outside(py, read).map(|weights| Self(Arc::new(weights)))
    }

    /// Writes the weights as `.safetensors` or `.npz`.
    fn write(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        outside(py, || windrow::io::write_vector_nm(&path, &self.0, windrow::io::NmIndices::Auto))
    }

    /// The dense matrix, with its zeros.
    fn to_dense<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dense = outside(py, || self.0.to_dense())?;
        let made = empty(py, &[self.0.rows(), self.0.cols()], Dtype::F32)?;
        let mut to = Array::host("the matrix", &made)?;
        // SAFETY: just made, packed, and of as many elements.
        unsafe { to.elements_mut::<f32>() }.copy_from_slice(&dense);
        Ok(made)
    }

    /// Inputs and outputs: rows and columns of the dense matrix.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.rows(), self.0.cols())
    }

    /// The pattern as `(N, M, L)`.
    #[getter]
    fn pattern(&self) -> (usize, usize, usize) {
        let pattern = self.0.pattern();
        (pattern.n(), pattern.m(), pattern.l())
    }

    /// What is kept, w × n: not a copy, and cannot be written.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let weights = &slf.get().0;
        let shape = [weights.kept_rows(), weights.cols()];
        let owner = slf.clone().into_any().unbind();
        lend(slf.py(), owner, weights.values(), &shape, Item::Value(Dtype::F32))
    }

    /// Rows of the values in their groups, w × q, as uint8: not a copy, and cannot be written.
    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let weights = &slf.get().0;
        let shape = [weights.kept_rows(), weights.vectors()];
        lend(slf.py(), slf.clone().into_any().unbind(), weights.indices(), &shape, Item::U8)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let remake = slf.get_type().getattr("of_parts")?;
        let this = slf.get();
        (remake, (Self::values(slf)?, Self::indices(slf)?, this.shape(), this.pattern()))
            .into_pyobject(slf.py())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().expose_provenance()
    }

    fn __repr__(&self) -> String {
        let ((k, n), (kept, of, l)) = (self.shape(), self.pattern());
        format!("windrow.NmWeights({k} × {n}, {kept}:{of} in vectors of {l})")
    }
}

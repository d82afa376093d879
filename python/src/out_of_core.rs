//! Plans for products whose operands need not fit in a device's memory.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{DenseMut, Device, Element, MatRef, OutOfCoreSpmm, Precision, Spmm, SpmmError};

use crate::any::each;
use crate::array::{Array, Place};
use crate::csr::{AnyCsr, as_csr, permutation};
use crate::device::{PyDevice, Where, live};
use crate::error::{Class, Fault};
use crate::outside::{Shared, outside};
use crate::product::{HostProduct, Run, on_host, ordered};
use crate::report::{Said, report};
use crate::result::check_beta;
use crate::spmm::options_for;

/// A sparse matrix for products `C ← alpha·A·B + beta·C` whose operands are in host memory, and together may be larger
/// than the memory of the device: out of core.
///
/// `OutOfCoreSpmm(A, device, width=128, precision="f32", memory_limit=…)` takes the keywords of `Spmm`; the limit is of
/// all that products take on the device, nine tenths of what is free unless told. Rows of `A` come to the device in
/// blocks, columns of `B` in slices of as many as fit, rows of `C` go back, beside the products. Arrays in page-locked
/// memory (`torch.Tensor.pin_memory`) go as they are, others by way of such memory.
///
/// >>> A = windrow.Csr(([1.0, 2.0, 3.0], [0, 2, 1], [0, 2, 3]), shape=(2, 3))
/// >>> plan = windrow.OutOfCoreSpmm(A, "cpu", width=2)
/// >>> plan.mm(numpy.ones((3, 2)))
/// array([[3., 3.],
///        [3., 3.]])
#[pyclass(frozen, weakref, name = "OutOfCoreSpmm", module = "windrow")]
pub(crate) struct PyOutOfCoreSpmm {
    plan: Shared<OutOfCoreSpmm>,
    device: &'static Device,
}

impl HostProduct for Shared<OutOfCoreSpmm> {
    fn made(&self) -> (Precision, usize) {
        let plan = self.read();
        (plan.report().precision, plan.report().rows)
    }

    fn run_host<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: MatRef<'_, B>,
        beta: B::Sum,
        c: DenseMut<'_, C>,
    ) -> Result<(), SpmmError> {
        self.write().run_host(alpha, b, beta, c)
    }
}

#[pymethods]
impl PyOutOfCoreSpmm {
    #[new]
    #[pyo3(signature = (a, device = None, *, order = None, **options))]
    fn new(
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        device: Option<Where>,
        order: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let a = as_csr(a)?;
        let plain = options_for(a.get(), options)?;
        let order = order.map(|order| permutation("order", order)).transpose()?;
        let device = a.get().device_for(py, device)?;
        let matrix = a.get().on_host(py)?;
        let plan = outside(py, || {
            live(device)?;
            each!(AnyCsr, &matrix, a => {
                let builder = ordered(Spmm::builder(&**a).options(plain), order.as_ref());
                Ok::<_, Fault>(builder.build_out_of_core(device)?)
            })
        })?;
        Ok(Self { plan: Shared::new(plan), device })
    }

    /// `C ← alpha·A·B + beta·C`, and returns `C`: `out`, or a new array.
    ///
    /// `B` is `k × n` or a vector of `k`: an array in host memory, in any order of elements and of any of the four
    /// types. `C` is `m × n`, with consecutive elements in its rows; it has the type of `B` unless `out` has another.
    #[pyo3(signature = (b, out = None, *, alpha = 1.0, beta = 0.0))]
    fn mm<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        check_beta("C", out, beta)?;
        let b = Array::of("B", b, None)?.forward()?;
        if let Place::Device(_) = b.place {
            let text =
                "B is on a device; out of core, operands are in host memory: give Spmm what is on a device";
            return Err(Fault::new(Class::Device, text.to_owned()).into());
        }
        on_host(py, &self.plan, &b, &Run { out, alpha, beta, ..Run::default() })
    }

    fn __matmul__<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.mm(py, b, None, 1.0, 0.0)
    }

    fn __call__<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.mm(py, b, None, 1.0, 0.0)
    }

    /// Blocks and slices, and how many bytes go which way.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.plan.read().report())?;
        report(py, "OutOfCoreSpmm", said)
    }

    /// Rows and columns of `A`.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let plan = self.plan.read();
        (plan.report().rows, plan.report().cols)
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.plan.read().report().nnz
    }

    #[getter]
    fn precision(&self) -> String {
        self.plan.read().report().precision.to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __repr__(&self) -> String {
        format!("windrow.{:?}", **self.plan.read())
    }
}

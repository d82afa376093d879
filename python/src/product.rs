//! Products of a plan with operands wherever they are.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use pyo3::prelude::*;
use windrow::{
    DenseMut, Device, Element, MatRef, Permutation, Precision, Spmm, SpmmBuilder, SpmmError, SpmmOptions,
    SpmmPlan,
};

use crate::array::{Array, Place};
use crate::csr::{PyCsr, planned};
use crate::device::live;
use crate::dtype::{Dtype, factor, with_dtype, with_pair};
use crate::error::Fault;
use crate::matrix::{PyArray, zeros};
use crate::numpy::numpy;
use crate::outside::{Shared, outside};
use crate::result::{Turn, check_beta, in_host_memory};

/// A plan and where it is.
pub(crate) struct Product {
    pub(crate) plan: Shared<SpmmPlan>,
    pub(crate) device: &'static Device,
}

/// What a product is asked for.
pub(crate) struct Run<'a, 'py> {
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) stream: Option<usize>,
    /// Whether the result has the type of the plan, and not that of `B`.
    pub(crate) to_precision: bool,
}

impl Default for Run<'_, '_> {
    fn default() -> Self {
        Self { out: None, alpha: 1.0, beta: 0.0, stream: None, to_precision: false }
    }
}

impl Product {
    pub(crate) fn build(
        py: Python<'_>,
        a: &PyCsr,
        device: &'static Device,
        options: SpmmOptions,
        order: Option<&Permutation>,
    ) -> PyResult<Self> {
        let plan = planned!(py, a, device, a, on => {
            ordered(Spmm::builder(&**a).options(options), order).build(device),
            ordered(Spmm::builder(&**a).options(options), order).build_on(on)
        })?;
        Ok(Self { plan: Shared::new(plan), device })
    }

    /// `C ← α·A·B + β·C`, and `C`.
    pub(crate) fn mm<'py>(
        &self,
        py: Python<'py>,
        b: Array<'py>,
        run: &Run<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        check_beta("C", run.out, run.beta)?;
        match b.place {
            Place::Host => on_host(py, &self.plan, &b, run),
            Place::Device(_) => self.on_device(py, &b, run),
        }
    }

    fn on_device<'py>(
        &self,
        py: Python<'py>,
        b: &Array<'py>,
        run: &Run<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (device, of_b, ((_, n), _)) = (self.device, b.dtype()?, b.matrix()?);
        let (alpha, beta, stream) = (run.alpha, run.beta, run.stream);
        let Some(out) = run.out else {
            // Of what is made here the library keeps the order, whatever the stream.
            let turn = Turn::new(device, stream, &[b]);
            let made = with_dtype!(of_b, B => {
                // SAFETY: what the owner of B promises; it is kept, and has its turn.
                let view = unsafe { b.view::<B>(device)? };
                turn.take(py, |on| {
                    let plan = self.plan.read();
                    let mut c = zeros::<B>(device, plan.shape().0, n)?;
                    plan.run_into_on(on, factor::<B>(alpha), view, factor::<B>(beta), &mut c)?;
                    Ok(c.into())
                })?
            });
            return Ok(Bound::new(py, PyArray::new(made, device, b.is_vector()))?.into_any());
        };
        let mut to = Array::of("C", out, stream)?;
        let turn = Turn::new(device, stream, &[b, &to]);
        with_pair!((of_b, to.dtype()?), "C", B, C => {
            // SAFETY: what the owners of B and C promise; they are kept, and have their turn.
            let (view, c) = unsafe { (b.view::<B>(device)?, to.view_mut::<C>(device)?) };
            turn.take(py, |on| {
                Ok(self.plan.read().run_into_on(on, factor::<B>(alpha), view, factor::<B>(beta), c)?)
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(out.clone())
    }
}

/// A plan whose operands may be in host memory.
pub(crate) trait HostProduct: Sync {
    /// What values and `B` are rounded to, and the rows of `A`.
    fn made(&self) -> (Precision, usize);

    /// `C ← α·A·B + β·C`.
    fn run_host<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: MatRef<'_, B>,
        beta: B::Sum,
        c: DenseMut<'_, C>,
    ) -> Result<(), SpmmError>;
}

impl HostProduct for Shared<SpmmPlan> {
    fn made(&self) -> (Precision, usize) {
        // One look at a time: of a second one behind a thread that waits to write, all three would wait for ever.
        let plan = self.read();
        (plan.precision(), plan.shape().0)
    }

    fn run_host<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        alpha: B::Sum,
        b: MatRef<'_, B>,
        beta: B::Sum,
        c: DenseMut<'_, C>,
    ) -> Result<(), SpmmError> {
        self.read().run_host(alpha, b, beta, c)
    }
}

/// A product of operands in host memory, and its `C`.
pub(crate) fn on_host<'py>(
    py: Python<'py>,
    plan: &impl HostProduct,
    b: &Array<'py>,
    run: &Run<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (of_b, ((_, n), _)) = (b.dtype()?, b.matrix()?);
    let (made, rows) = plan.made();
    let of_c = if run.to_precision { Dtype::of(made) } else { of_b };
    let (shape, dims) = ([rows, n], if b.is_vector() { 1 } else { 2 });
    let (c, mut to) = in_host_memory(py, "C", run.out, (&shape[..dims], of_c), &[b])?;
    let of_c = to.dtype()?;
    // Sums of a plan of f64 are not rounded on the way to C, whatever B holds.
    let widened = (of_c == Dtype::F64 && of_b != Dtype::F64).then(|| widen(py, b)).transpose()?;
    let b = widened.as_ref().unwrap_or(b);
    let of_b = b.dtype()?;
    let ((c_rows, c_cols), ld) = to.rows()?;
    let (alpha, beta) = (run.alpha, run.beta);
    with_pair!((of_b, of_c), "C", B, C => {
        // SAFETY: of these types, in host memory, and apart; B was made to go forward, and rows of C do.
        let (b, c) = unsafe { (b.mat_ref::<B>()?, to.elements_mut::<C>()) };
        let (alpha, beta) = (factor::<B>(alpha), factor::<B>(beta));
        outside(py, || {
            let c = DenseMut::try_new(c, c_rows, c_cols, ld)?;
            Ok::<_, Fault>(plan.run_host(alpha, b, beta, c)?)
        })?;
        Ok::<_, Fault>(())
    })?;
    Ok(c)
}

pub(crate) fn ordered<'a, A>(
    builder: SpmmBuilder<'a, A>,
    order: Option<&'a Permutation>,
) -> SpmmBuilder<'a, A> {
    match order {
        Some(order) => builder.order(order),
        None => builder,
    }
}

/// A copy of an array in host memory in f64.
fn widen<'py>(py: Python<'py>, array: &Array<'py>) -> PyResult<Array<'py>> {
    Array::host("B", &numpy(py)?.call_method1("asarray", (&array.object, "f8"))?)?.forward()
}

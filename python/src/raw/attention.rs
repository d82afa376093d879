//! Attention over patterns at addresses.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{
    AttentionBackward, AttentionGradients, AttentionOperands, AttentionOptions, AttentionPlan,
    AttentionScores, Device, DeviceSlice, DeviceSliceMut, Dropout, Element, GraphAttention, Value,
};

use super::arrays::AnyDeviceCsr;
use super::csr::RawCsr;
use super::operand::Operand;
use crate::any::each;
use crate::device::on_stream;
use crate::dtype::Dtype;
use crate::error::{Outcome, dtype};
use crate::options::read_options;
use crate::outside::Kept;

/// Attention over the entries of a sparse matrix at addresses, laid out on the host of a copy. Keywords are the options
/// of `windrow::AttentionOptions`.
#[pyclass(frozen, name = "GraphAttention", module = "windrow._windrow.raw")]
pub(super) struct RawAttention {
    plan: Kept<AttentionPlan>,
    device: &'static Device,
}

/// What forward and backward passes read alike: `Q`, `K` and `V`, the vector and the bias as `(address, length)`, and
/// `(rate, seed)` of dropout.
#[derive(FromPyObject)]
struct Given {
    #[pyo3(item)]
    operands: [Operand; 3],
    #[pyo3(item)]
    vector: Option<(u64, usize)>,
    #[pyo3(item)]
    bias: Option<(u64, usize)>,
    #[pyo3(item)]
    dropout: Option<(f32, u32)>,
    #[pyo3(item)]
    scale: f32,
}

impl Given {
    /// # Safety
    /// That of [`Operand::view`], of all.
    unsafe fn read<T: Value, S: Value>(
        &self,
        device: &'static Device,
    ) -> Outcome<AttentionOperands<'static, T, S>> {
        let [q, k, v] = self.operands;
        // SAFETY: the caller's promise.
        let mut operands = unsafe {
            AttentionOperands::new(q.view("Q", device)?, k.view("K", device)?, v.view::<T>("V", device)?)
        };
        if let Some((address, len)) = self.vector {
            // SAFETY: the caller's promise.
            operands = operands.vector(unsafe { DeviceSlice::<f32>::from_raw(device, address, len)? });
        }
        if let Some((address, len)) = self.bias {
            // SAFETY: the caller's promise.
            operands = operands.bias(unsafe { DeviceSlice::<f32>::from_raw(device, address, len)? });
        }
        Ok(self.dropout.into_iter().fold(operands, |all, (rate, seed)| all.dropout(Dropout { rate, seed })))
    }

    /// The type of V and of `like_v`, and whether `Q`, `K` and `like_scores` are of it, too: of f32 instead they are
    /// where scores are additive.
    fn dtype(&self, additive: bool, like_v: &[Operand], like_scores: &[Operand]) -> Outcome<Dtype> {
        let [q, k, v] = self.operands;
        let of_scores = if additive { Dtype::F32 } else { v.3 };
        let expect =
            |of: Dtype| move |operand: &Operand| (operand.3.name() != of.name()).then_some((*operand, of));
        let others = like_v.iter().find_map(expect(v.3));
        match others.or_else(|| [q, k].iter().chain(like_scores).find_map(expect(of_scores))) {
            Some((found, of)) => dtype(format!(
                "an operand of attention holds {} but must hold {}; convert it",
                found.3.name(),
                of.name()
            )),
            None => Ok(v.3),
        }
    }
}

/// An expression for the types of V and of scores: `of_attention!(dtype, additive, T, S => expression)`.
macro_rules! of_attention {
    ($dtype:expr, $additive:expr, $element:ident, $score:ident => $run:expr) => {
        of_operands!($dtype, $element => {
            if $additive {
                type $score = f32;
                $run
            } else {
                type $score = $element;
                $run
            }
        })
    };
}

/// An expression for the type of operands: `of_operands!(dtype, T => expression)`, an [`Outcome`].
macro_rules! of_operands {
    ($dtype:expr, $element:ident => $run:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $element = f32;
                $run
            }
            Dtype::F16 => {
                type $element = windrow::f16;
                $run
            }
            Dtype::Bf16 => {
                type $element = windrow::bf16;
                $run
            }
            Dtype::F64 => {
                dtype("this is computed in f32, f16 and bf16; convert the operands to f32".to_owned())
            }
        }
    };
}
pub(super) use of_operands;

#[pymethods]
impl RawAttention {
    #[new]
    #[pyo3(signature = (a, stream = None, negative_slope = None, gatv2 = false, **options))]
    fn new(
        py: Python<'_>,
        a: &RawCsr,
        stream: Option<usize>,
        negative_slope: Option<f32>,
        gatv2: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = match options {
            Some(given) => read_options::<AttentionOptions>(given)?,
            None => AttentionOptions::default(),
        };
        if let Some(negative_slope) = negative_slope {
            options.scores = match gatv2 {
                false => AttentionScores::Additive { negative_slope },
                true => AttentionScores::Gatv2 { negative_slope },
            };
        }
        // SAFETY: the promise of who gives the stream.
        let plan = unsafe {
            on_stream(py, a.device, stream, |on| {
                Ok(
                    each!(AnyDeviceCsr, &*a.matrix, a => GraphAttention::builder(&**a).options(options).build_on(on)?),
                )
            })?
        };
        Ok(Self { plan: Kept::new(plan), device: a.device })
    }

    /// Queues `out ← softmax(scale · Q·Kᵀ + bias) · V`. `given` is a dictionary: `operands` of Q, K and V as
    /// `(address, shape, strides, dtype)`, `vector` and `bias` as `(address, length)` or None, `dropout` as
    /// `(rate, seed)` or None, and `scale`. `states` is where two numbers for each head and row go, as
    /// `(address, length)`.
    fn forward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        given: Given,
        out: Operand,
        states: Option<(u64, usize)>,
    ) -> PyResult<()> {
        let additive = self.is_additive();
        let of = given.dtype(additive, &[out], &[])?;
        // SAFETY: the promise of who gives addresses and the stream; what the driver knows of them is checked.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                of_attention!(of, additive, T, S => {
                    let mut operands = given.read::<T, S>(self.device)?;
                    if let Some((address, len)) = states {
                        operands = operands.states(DeviceSliceMut::from_raw(self.device, address, len)?);
                    }
                    let out = out.view_mut::<T>("the result", self.device)?;
                    Ok(self.plan.forward_on(on, given.scale, operands, out)?)
                })
            })
        }
    }

    /// Queues the gradients of Q, K and V, and of the vector and the bias at `(address, length)`. `read` is the result
    /// and its gradient, `states` what the forward pass has left. Gradients are of the type of V, or all of f32 where
    /// scores are additive.
    fn backward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        given: Given,
        states: (u64, usize),
        read: [Operand; 2],
        found: [Operand; 3],
        of_numbers: [Option<(u64, usize)>; 2],
    ) -> PyResult<()> {
        let additive = self.is_additive();
        let of = given.dtype(additive, &read, &found)?;
        // SAFETY: as above.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                of_attention!(of, additive, T, S => {
                    self.backward_as::<T, S>(on, &given, (states, read), (found, of_numbers))
                })
            })
        }
    }

    /// Makes what runs and gradients on `stream` need, so that they can be captured into a graph.
    fn prepare(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe { on_stream(py, self.device, stream, |on| Ok(self.plan.prepare_on(on)?)) }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", *self.plan)
    }
}

impl RawAttention {
    fn is_additive(&self) -> bool {
        self.plan.report().options.scores.are_additive()
    }

    /// # Safety
    /// That of [`Operand::view`] and [`Operand::view_mut`], of all.
    unsafe fn backward_as<T: Element<Sum = f32>, S: Element<Sum = f32>>(
        &self,
        on: &windrow::Stream,
        given: &Given,
        ((states, len), [out, gradient]): ((u64, usize), [Operand; 2]),
        ([q, k, v], [of_vector, of_bias]): ([Operand; 3], [Option<(u64, usize)>; 2]),
    ) -> Outcome<()> {
        let device = self.device;
        // SAFETY: the caller's promise.
        unsafe {
            let states = DeviceSlice::<f32>::from_raw(device, states, len)?;
            let (out, gradient) =
                (out.view::<T>("the result", device)?, gradient.view("the gradient", device)?);
            let read = AttentionBackward::new(given.read::<T, S>(device)?, states, out, gradient);
            let [q, k, v] = [
                q.view_mut::<S>("the gradient of Q", device)?,
                k.view_mut::<S>("the gradient of K", device)?,
                v.view_mut::<S>("the gradient of V", device)?,
            ];
            let mut found = AttentionGradients::new(q, k, v);
            if let Some((address, len)) = of_vector {
                found = found.vector(DeviceSliceMut::<f32>::from_raw(device, address, len)?);
            }
            if let Some((address, len)) = of_bias {
                found = found.bias(DeviceSliceMut::<f32>::from_raw(device, address, len)?);
            }
            Ok(self.plan.backward_on(on, given.scale, read, found)?)
        }
    }
}

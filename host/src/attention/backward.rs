//! The gradients of attention with respect to its dense operands and its bias.

use windrow_formats::Value;

use super::gpu::gradient::GradientOperands;
use super::host::gradient::{HostForward, HostGradients};
use super::host::{HostAttention, HostOperands};
use super::operands::{AttentionOperands, Extent};
use super::plan::{AttentionPlan, Body};
use crate::device::Stream;
use crate::element::{Element, output_type};
use crate::error::AttentionError;
#[cfg(doc)]
use crate::error::PlanError;
use crate::plan::{On, check_count, check_device, check_element, pointer_or_null};
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut};

/// What the gradient of attention reads: the operands of the forward pass, what that has left, and the gradient of its
/// result.
///
/// # Shapes
/// `out` and `gradient` are of the shape of the result, `states` has `2 · heads · m` numbers.
#[derive(Debug)]
pub struct AttentionBackward<'a, T: Value, O: Value, S: Value = T> {
    operands: AttentionOperands<'a, T, S>,
    states: DeviceSlice<'a, f32>,
    out: DeviceView<'a, O>,
    gradient: DeviceView<'a, T>,
}

impl<'a, T: Value, O: Value, S: Value> AttentionBackward<'a, T, O, S> {
    /// `operands` are those of the forward pass, with its bias and its dropout; where they would leave states is not
    /// looked at. `states` is what that pass has [kept](AttentionOperands::states), `out` its result, `gradient` the
    /// gradient of a loss with respect to that, in the type of `V`.
    pub fn new(
        operands: AttentionOperands<'a, T, S>,
        states: impl Into<DeviceSlice<'a, f32>>,
        out: impl Into<DeviceView<'a, O>>,
        gradient: impl Into<DeviceView<'a, T>>,
    ) -> Self {
        Self { operands, states: states.into(), out: out.into(), gradient: gradient.into() }
    }
}

/// Where the gradients of attention go: those of `Q`, `K` and `V`, of the shapes of these, of f32, f16 or bf16.
#[derive(Debug)]
pub struct AttentionGradients<'a, R: Value> {
    q: DeviceViewMut<'a, R>,
    k: DeviceViewMut<'a, R>,
    v: DeviceViewMut<'a, R>,
    vector: Option<DeviceSliceMut<'a, f32>>,
    bias: Option<DeviceSliceMut<'a, f32>>,
}

impl<'a, R: Value> AttentionGradients<'a, R> {
    /// Without those of the vector and the bias.
    pub fn new(
        q: impl Into<DeviceViewMut<'a, R>>,
        k: impl Into<DeviceViewMut<'a, R>>,
        v: impl Into<DeviceViewMut<'a, R>>,
    ) -> Self {
        Self { q: q.into(), k: k.into(), v: v.into(), vector: None, bias: None }
    }

    /// Where the gradient of the vector of [`GATv2`](super::AttentionBuilder::gatv2) goes: as many numbers as it has.
    #[must_use]
    pub fn vector(mut self, vector: impl Into<DeviceSliceMut<'a, f32>>) -> Self {
        self.vector = Some(vector.into());
        self
    }

    /// Where the gradient of the bias goes: as many numbers as the bias has. Of a bias that all heads have it is the
    /// sum over these.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<DeviceSliceMut<'a, f32>>) -> Self {
        self.bias = Some(bias.into());
        self
    }
}

impl AttentionPlan {
    /// The gradients of a loss with respect to `Q`, `K`, `V` and the bias, on a [`Stream`], given that with respect to
    /// `O`, for a plan that was built with [`gradients`](super::AttentionBuilder::gradients).
    ///
    /// ```text
    /// dV[j] = Σ_i w·p[i, j] · dO[i]                     w: 0 for a weight that was dropped, else 1 / (1 − rate)
    /// ds    = p[i, j] · (w · dO[i]·V[j] − dO[i]·O[i])   = dbias[i, j]
    /// dQ[i] = scale · Σ_j ds · K[j]                     dK[j] = scale · Σ_i ds · Q[i]
    /// ```
    ///
    /// Of additive scores `dQ[i] = scale · Σ_j dz`, `dK[j] = scale · Σ_i dz` and `dbias = scale · dz`, with
    /// `dz = ds · leaky_relu'(Q[i] + K[j] + bias[i, j])`.
    ///
    /// Of scores of `GATv2`, with `z = Q[i, c] + K[j, c]` and `dz = ds · a[c] · leaky_relu'(z)`, they are
    /// `dQ[i, c] = scale · Σ_j dz`, `dK[j, c] = scale · Σ_i dz`, `da[c] = scale · Σ_ij ds · leaky_relu(z)` and
    /// `dbias = ds`. The workspace then also has as many numbers of f32 as `Q` has elements.
    ///
    /// Weights `p` are computed anew of the `states` that the forward pass has kept, so that memory does not grow with
    /// the number of entries: a workspace of four numbers for each row and head is the plan's, for the device's own
    /// stream, and is made by the first run on another. That with respect to `scale` is `Σ Q ⊙ dQ / scale` where scores
    /// are products.
    ///
    /// # Precision
    /// Products and sums are taken in f32, in f64 on the CPU, and gradients are rounded once. On Tensor Cores each
    /// slope and weight is two numbers of 16 bits, the nearest and what that leaves: 22 bits of it in f16, fewer of
    /// what is below 2⁻¹¹ of the largest of its row, and 16 in bf16. `O` is read as it is: if it was rounded to 16
    /// bits, so is the number that each row's slopes are relative to. Every sum is taken in one order: two runs on a
    /// device, with operands of the same alignment, give the same bits.
    ///
    /// # Not-a-number
    /// As IEEE arithmetic has it. A row without entries gives zeros, and so does an entry of weight zero whose operands
    /// are finite.
    ///
    /// # Errors
    /// - [`AttentionError::NoGradients`] of a plan that was built without;
    /// - those of [`forward_on`](Self::forward_on), for the gradients, too: no two of them have bytes in common, nor
    ///   with what is read; [`AttentionError::NoBias`] for the gradient of a bias that there is not,
    ///   [`AttentionError::NeedlessVector`] for that of a vector.
    ///
    /// # Examples
    /// ```
    /// use windrow::{AttentionBackward, AttentionGradients, AttentionOperands, Csr, DenseRef, Device};
    /// use windrow::{DeviceBuffer, DeviceMatrix, GraphAttention};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = GraphAttention::builder(&a).columns(1).gradients(true).build(&device)?;
    /// let on_device = |data: &[f32], rows| DeviceMatrix::upload(&device, DenseRef::packed(data, rows, 1)?);
    /// let zeros = |rows| DeviceMatrix::<f32>::zeros(&device, rows, 1);
    /// let (q, k, v) = (on_device(&[1.0], 1)?, on_device(&[2.0, 2.0], 2)?, on_device(&[5.0, 7.0], 2)?);
    /// let mut states = DeviceBuffer::<f32>::alloc_zeroed(&device, 2)?;
    /// let mut out = zeros(1)?;
    /// let stream = device.stream();
    /// plan.forward_on(&stream, 1.0, AttentionOperands::new(&q, &k, &v).states(&mut states), &mut out)?;
    /// assert_eq!(out.download()?, [6.0]); // both weights are 1/2
    ///
    /// let gradient = on_device(&[4.0], 1)?;
    /// let (mut of_q, mut of_k, mut of_v) = (zeros(1)?, zeros(2)?, zeros(2)?);
    /// let given = AttentionBackward::new(AttentionOperands::new(&q, &k, &v), &states, &out, &gradient);
    /// let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
    /// plan.backward_on(&stream, 1.0, given, found)?;
    /// assert_eq!(of_v.download()?, [2.0, 2.0]);
    /// assert_eq!(of_k.download()?, [-2.0, 2.0]); // 1/2 · (4·5 − 4·6) and 1/2 · (4·7 − 4·6), times q
    /// assert_eq!(of_q.download()?, [0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backward_on<'a, T, O, S, R>(
        &self,
        on: &Stream,
        scale: f32,
        given: AttentionBackward<'a, T, O, S>,
        found: AttentionGradients<'a, R>,
    ) -> Result<(), AttentionError>
    where
        T: Element<Sum = f32>,
        O: Element<Sum = f32>,
        S: Element<Sum = f32>,
        R: Element<Sum = f32>,
    {
        check_device("the stream", on.device(), &self.device)?;
        self.check_backward(&given, &found)?;
        let AttentionBackward { operands: AttentionOperands { q, k, v, vector, bias, dropout, .. }, .. } =
            given;
        let AttentionBackward { states, out, gradient, .. } = given;
        let extents @ [of_q, of_k, of_v, of_out] = self.extents();
        let options = self.options();
        match &self.body {
            Body::Cpu { pattern, transposed } => {
                // All are in host memory: they are on the CPU, as was just checked.
                if let (Some(transposed), Some(q), Some(k), Some(v)) =
                    (transposed, q.host(), k.host(), v.host())
                    && let (Some(states), Some(out), Some(gradient)) =
                        (states.host(), out.host(), gradient.host())
                    && let (Some(to_q), Some(to_k), Some(to_v)) =
                        (found.q.into_host(), found.k.into_host(), found.v.into_host())
                {
                    let [vector, bias] =
                        [vector, bias].map(|numbers| numbers.and_then(|numbers| numbers.host()));
                    let [of_vector, of_bias] = [found.vector, found.bias]
                        .map(|numbers| numbers.and_then(|numbers| numbers.into_host()));
                    let operands = HostOperands { q, k, v, vector, bias, dropout };
                    let forward = HostForward { transposed, states, out, gradient };
                    let found = HostGradients { q: to_q, k: to_k, v: to_v, vector: of_vector, bias: of_bias };
                    let attention = HostAttention { pattern, options, extents };
                    attention.backward(scale, &operands, &forward, found)?;
                }
                Ok(())
            }
            Body::Gpu(plan) => {
                let shares = q.is_owned() || k.is_owned() || v.is_owned() || gradient.is_owned();
                let shares = shares || out.is_owned() || states.is_owned();
                let written = [&found.q, &found.k, &found.v];
                let shares = shares || written.iter().any(|view| view.is_owned());
                let written = found.bias.iter().chain(&found.vector);
                let slices = bias.iter().chain(&vector).any(DeviceSlice::is_owned)
                    || written.into_iter().any(|numbers| numbers.as_slice().is_owned());
                let on = On::of(on, &self.device, shares || slices)?;
                let kernel = |extent: Extent, address, ld| extent.of_kernel(options, address, ld);
                let to_kernel =
                    |extent, view: &DeviceViewMut<'_, R>| kernel(extent, view.address(), view.ld());
                let operands = GradientOperands {
                    q: kernel(of_q, q.address(), q.ld())?,
                    k: kernel(of_k, k.address(), k.ld())?,
                    v: kernel(of_v, v.address(), v.ld())?,
                    out: kernel(of_out, out.address(), out.ld())?,
                    out_type: output_type::<O>(),
                    gradient: kernel(of_out, gradient.address(), gradient.ld())?,
                    vector: pointer_or_null(vector.map(|vector| vector.address())),
                    bias: self.bias_of_kernel(bias.as_ref()),
                    states: pointer_or_null(Some(states.address())),
                    scale,
                    dropout,
                    found: [
                        to_kernel(of_q, &found.q)?,
                        to_kernel(of_k, &found.k)?,
                        to_kernel(of_v, &found.v)?,
                    ],
                    found_type: output_type::<R>(),
                    of_vector: pointer_or_null(found.vector.map(|vector| vector.address())),
                    of_bias: pointer_or_null(found.bias.map(|bias| bias.address())),
                    aligned: self.is_aligned([&q, &k], &v)
                        && of_out.is_aligned::<T>(options, gradient.address(), gradient.ld(), 16),
                };
                // SAFETY: shapes, types and device were checked; a `DeviceMatrix` frees its memory after the work that
                // was queued before; of other memory the views were promised that it lives. What is written has nothing
                // in common with anything else, and is borrowed for itself.
                unsafe { plan.run_gradient(&on, &operands)? };
                Ok(())
            }
        }
    }

    /// Checks that all is where it must be, of the sizes and the types that it must have, and apart.
    fn check_backward<T: Element, O: Element, S: Element, R: Element>(
        &self,
        given: &AttentionBackward<'_, T, O, S>,
        found: &AttentionGradients<'_, R>,
    ) -> Result<(), AttentionError> {
        if !self.options().gradients {
            return Err(AttentionError::NoGradients);
        }
        let AttentionBackward { operands, states, out, gradient } = given;
        let [of_q, of_k, of_v, of_out] = self.extents();
        let options = self.options();
        self.check_read(operands)?;
        check_device("the states", states.device(), &self.device)?;
        check_count("the states", states.len(), 2 * options.heads * self.report.rows)?;
        check_device("the result", out.device(), &self.device)?;
        of_out.check(options, (out.rows(), out.cols()))?;
        let of_gradient = Extent { name: "the gradient of the result", ..of_out };
        check_device(of_gradient.name, gradient.device(), &self.device)?;
        check_element::<T>(of_gradient.name, options.precision)?;
        of_gradient.check(options, (gradient.rows(), gradient.cols()))?;
        let mut read = vec![
            (of_q.name, operands.q.bytes()),
            (of_k.name, operands.k.bytes()),
            (of_v.name, operands.v.bytes()),
            ("the states", states.bytes()),
            ("the result", out.bytes()),
            (of_gradient.name, gradient.bytes()),
        ];
        read.extend(operands.bias.as_ref().map(|bias| ("the bias", bias.bytes())));
        read.extend(operands.vector.as_ref().map(|vector| ("the vector", vector.bytes())));
        let mut written = Vec::new();
        for (name, extent, view) in [
            ("the gradient of Q", of_q, &found.q),
            ("the gradient of K", of_k, &found.k),
            ("the gradient of V", of_v, &found.v),
        ] {
            check_device(name, view.device(), &self.device)?;
            Extent { name, ..extent }.check(options, (view.rows(), view.cols()))?;
            written.push((name, view.bytes()));
        }
        if let Some(of_bias) = &found.bias {
            let name = "the gradient of the bias";
            let bias = operands.bias.as_ref().ok_or(AttentionError::NoBias)?;
            check_device(name, of_bias.as_slice().device(), &self.device)?;
            check_count(name, of_bias.as_slice().len(), bias.len())?;
            written.push((name, of_bias.as_slice().bytes()));
        }
        if let Some(of_vector) = &found.vector {
            let name = "the gradient of the vector";
            let vector = operands.vector.as_ref().ok_or(AttentionError::NeedlessVector)?;
            check_device(name, of_vector.as_slice().device(), &self.device)?;
            check_count(name, of_vector.as_slice().len(), vector.len())?;
            written.push((name, of_vector.as_slice().bytes()));
        }
        for (at, (name, bytes)) in written.iter().enumerate() {
            for (other, of_other) in read.iter().chain(&written[..at]) {
                bytes.check_apart(name, other, *of_other)?;
            }
        }
        Ok(())
    }
}

//! Attention in one pass, and its gradients, for layers of one width.

use windrow::{
    AttentionBackward, AttentionBuilder, AttentionError, AttentionGradients, AttentionOperands,
    AttentionPlan, Csr, Device, DeviceBuffer, DeviceMatrix, Element, GraphAttention, PlanError, Precision,
};

use super::Result;
use super::clock::Work;
use super::lane::Lane;
use super::model::{Operand, Tools, Typed, Width};

/// A plan with gradients, and where those are that it found last.
pub(crate) struct Attention {
    plan: AttentionPlan,
    /// Gradients with respect to `Q`, `K` and `V`, until another layer's take their place.
    pub(crate) found: [DeviceMatrix<f32>; 3],
    /// The gradient with respect to a layer's result.
    gradient: Operand,
}

/// What a layer's forward pass leaves for its gradient.
pub(crate) struct Attended {
    states: DeviceBuffer<f32>,
    pub(crate) out: DeviceMatrix<f32>,
}

/// `Q`, `K` and `V`, as a layer has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operands<'a> {
    /// All of one type.
    DotProduct([Typed<'a>; 3]),
    /// A number of `Q` and of `K` for each head.
    Additive([&'a DeviceMatrix<f32>; 2], Typed<'a>),
}

impl Attended {
    /// For a graph of so many nodes.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn new(device: &Device, rows: usize, width: Width) -> Result<Self> {
        let states = DeviceBuffer::alloc_zeroed(device, 2 * width.heads * rows)?;
        Ok(Self { states, out: DeviceMatrix::zeros(device, rows, width.all())? })
    }
}

/// A plan with gradients for such layers, but for what else is to be said of it.
pub(crate) fn builder(
    graph: &Csr<f32>,
    precision: Precision,
    width: Width,
) -> AttentionBuilder<'_, Csr<f32>> {
    let builder = GraphAttention::builder(graph).heads(width.heads).columns(width.columns);
    builder.precision(precision).gradients(true)
}

impl Attention {
    /// # Errors
    /// If the plan or the device refuses: there is no attention in tf32.
    pub(crate) fn new(builder: &AttentionBuilder<'_, Csr<f32>>, device: &Device) -> Result<Self> {
        let plan = builder.build(device)?;
        let report = plan.report();
        let (rows, options) = (report.rows, &report.options);
        let [of_scores, of_values] =
            [options.score_columns(), options.value_columns()].map(|columns| options.heads * columns);
        let zeros = |cols| DeviceMatrix::zeros(device, rows, cols);
        let found = [zeros(of_scores)?, zeros(of_scores)?, zeros(of_values)?];
        let gradient = Operand::new(device, options.precision, rows, of_values)?;
        Ok(Self { plan, found, gradient })
    }

    /// What the plan says of itself.
    pub(crate) fn report(&self) -> String {
        self.plan.report().to_string()
    }

    /// `softmax(scale · scores) · V` over the entries of each row.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn forward(
        &self,
        tools: &mut Tools,
        scale: f32,
        operands: Operands<'_>,
        attended: &mut Attended,
    ) -> Result<()> {
        let Tools { lane, clock, .. } = tools;
        let pass = Pass { lane, plan: &self.plan, scale };
        clock.time(Work::Attention, || match operands {
            Operands::DotProduct([Typed::F32(q), Typed::F32(k), Typed::F32(v)]) => {
                pass.forward([q, k], v, attended)
            }
            Operands::DotProduct([Typed::F16(q), Typed::F16(k), Typed::F16(v)]) => {
                pass.forward([q, k], v, attended)
            }
            Operands::DotProduct([Typed::Bf16(q), Typed::Bf16(k), Typed::Bf16(v)]) => {
                pass.forward([q, k], v, attended)
            }
            Operands::Additive(scores, Typed::F32(v)) => pass.forward(scores, v, attended),
            Operands::Additive(scores, Typed::F16(v)) => pass.forward(scores, v, attended),
            Operands::Additive(scores, Typed::Bf16(v)) => pass.forward(scores, v, attended),
            Operands::DotProduct(_) => Err(mixed()),
        })
    }

    /// Gradients with respect to `Q`, `K` and `V`, from that with respect to the result of
    /// [`forward`](Self::forward). Elements of the result that have a gradient of zero may have become zero since.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn backward(
        &mut self,
        tools: &mut Tools,
        (scale, operands): (f32, Operands<'_>),
        attended: &Attended,
        of_result: &DeviceMatrix<f32>,
    ) -> Result<()> {
        let Tools { lane, clock, .. } = tools;
        let Self { plan, found, gradient } = self;
        gradient.set(lane, 1.0, of_result)?;
        let pass = Pass { lane, plan, scale };
        clock.time(Work::Attention, || match (operands, gradient.of(of_result)) {
            (Operands::DotProduct([Typed::F32(q), Typed::F32(k), Typed::F32(v)]), Typed::F32(g)) => {
                pass.backward([q, k], [v, g], attended, found)
            }
            (Operands::DotProduct([Typed::F16(q), Typed::F16(k), Typed::F16(v)]), Typed::F16(g)) => {
                pass.backward([q, k], [v, g], attended, found)
            }
            (Operands::DotProduct([Typed::Bf16(q), Typed::Bf16(k), Typed::Bf16(v)]), Typed::Bf16(g)) => {
                pass.backward([q, k], [v, g], attended, found)
            }
            (Operands::Additive(scores, Typed::F32(v)), Typed::F32(g)) => {
                pass.backward(scores, [v, g], attended, found)
            }
            (Operands::Additive(scores, Typed::F16(v)), Typed::F16(g)) => {
                pass.backward(scores, [v, g], attended, found)
            }
            (Operands::Additive(scores, Typed::Bf16(v)), Typed::Bf16(g)) => {
                pass.backward(scores, [v, g], attended, found)
            }
            _ => Err(mixed()),
        })
    }
}

/// What is said of operands of more than one type.
fn mixed() -> AttentionError {
    PlanError::ElementType { operand: "an operand", found: "another type", expected: Precision::F32 }.into()
}

/// A pass with operands of some types.
#[derive(Clone, Copy)]
struct Pass<'a> {
    lane: &'a Lane,
    plan: &'a AttentionPlan,
    scale: f32,
}

impl Pass<'_> {
    fn forward<T: Element<Sum = f32>, S: Element<Sum = f32>>(
        self,
        [q, k]: [&DeviceMatrix<S>; 2],
        v: &DeviceMatrix<T>,
        Attended { states, out }: &mut Attended,
    ) -> std::result::Result<(), AttentionError> {
        let Self { lane, plan, scale } = self;
        let operands = AttentionOperands::new(lane.read(q), lane.read(k), lane.read(v));
        plan.forward_on(&lane.stream, scale, operands.states(lane.write_array(states)), lane.write(out))
    }

    fn backward<T: Element<Sum = f32>, S: Element<Sum = f32>>(
        self,
        [q, k]: [&DeviceMatrix<S>; 2],
        [v, gradient]: [&DeviceMatrix<T>; 2],
        Attended { states, out }: &Attended,
        [of_q, of_k, of_v]: &mut [DeviceMatrix<f32>; 3],
    ) -> std::result::Result<(), AttentionError> {
        let Self { lane, plan, scale } = self;
        let operands = AttentionOperands::new(lane.read(q), lane.read(k), lane.read(v));
        let given =
            AttentionBackward::new(operands, lane.read_array(states), lane.read(out), lane.read(gradient));
        let found = AttentionGradients::new(lane.write(of_q), lane.write(of_k), lane.write(of_v));
        plan.backward_on(&lane.stream, scale, given, found)
    }
}

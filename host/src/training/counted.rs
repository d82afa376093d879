//! Steps of Adam that the device counts.

use windrow_formats::memory::try_collect;
use windrow_kernels::training::AdamParams;
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::adam::{Adam, Moments, Step, launch};
use super::operands::{entry, is_empty};
use crate::device::{Device, DeviceBuffer, Queue, Stream};
use crate::error::{DeviceError, PlanError, TrainingError};
use crate::options::Precision;
use crate::plan::{Index, On, Rounding, Target, Turn, check_device};
use crate::view::{DeviceView, DeviceViewMut};

/// Steps whose numbers may differ.
const MOST_STEPS: u32 = 1 << 22;
/// Names of the arrays of a table.
const NUMBERS: &str = "numbers of Adam's steps";
const SUCCESSORS: &str = "order of Adam's steps";

/// [`Adam`] for graphs: the device counts the steps, so that each launch of a captured step is the next one, with the
/// bits that [`Adam::step_on`] gives.
///
/// The two numbers of a step that depend on `t`, `α/(1 − β₁ᵗ)` and `1/√(1 − β₂ᵗ)`, are in a table on the device. To
/// [begin](Self::begin_on) a step takes three small launches, once for all of its parameters.
///
/// Operands that are to be captured are lent: see [`Stream`](Stream#graphs). [`Moments::steps`] counts none of these
/// steps.
///
/// # Memory
/// 16 bytes of device memory for each step until the numbers stay the same in f32, about `17.4/(1 − β)` steps for the
/// larger `β`: 280 KB for 0.999.
///
/// # Examples
/// ```
/// use windrow::training::{Adam, CountedAdam, Moments};
/// use windrow::{DenseRef, Device, DeviceMatrix};
///
/// let device = Device::best()?;
/// let mut p = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 1.0], 1, 2)?)?;
/// let gradient = DeviceMatrix::upload(&device, DenseRef::packed(&[5.0f32, -0.1], 1, 2)?)?;
/// let mut moments = Moments::of(&p)?;
/// let mut adam = CountedAdam::new(&device, Adam { learning_rate: 0.5, ..Adam::default() })?;
/// let stream = device.stream(); // or one that is captured
/// let mut step = adam.begin_on(&stream)?;
/// step.update(&mut p, &gradient, &mut moments)?; // and the other parameters
/// approx::assert_relative_eq!(p.download()?[..], [0.5, 1.5][..], max_relative = 1e-5);
/// assert_eq!(adam.steps()?, 1);
/// # Ok::<(), windrow::TrainingError>(())
/// ```
#[derive(Debug)]
pub struct CountedAdam {
    adam: Adam,
    device: Device,
    /// The step from which on the numbers stay the same.
    last: u32,
    counter: Counter,
    turn: Turn,
}

/// A step of [`CountedAdam`] that was begun: the parameters are still to be updated.
#[derive(Debug)]
pub struct CountedStep<'a> {
    adam: &'a mut CountedAdam,
    on: &'a Stream,
}

#[derive(Debug)]
enum Counter {
    Host(u32),
    Device(Box<Walk>),
}

/// A walk through a table, a row in each step: elements `2t` and `2t + 1` are row `t`, that of step `t`.
#[derive(Debug)]
struct Walk {
    /// The two numbers of each step.
    table: DeviceBuffer<f32>,
    /// Which elements follow on each, those of the last row on themselves.
    successors: DeviceBuffer<u32>,
    /// The elements of the row of the current step.
    at: Index,
    /// Those of the step that begins.
    next: DeviceBuffer<u32>,
    /// The numbers of the current step.
    numbers: DeviceBuffer<f32>,
}

impl CountedAdam {
    /// Before the first step.
    ///
    /// # Errors
    /// Those of [`after`](Self::after).
    pub fn new(device: &Device, adam: Adam) -> Result<Self, TrainingError> {
        Self::after(device, adam, 0)
    }

    /// After so many steps, for a training that is taken up again.
    ///
    /// # Errors
    /// - [`PlanError::TooLarge`] for a `β` above about 1 − 4·10⁻⁶, whose table would have more than 2²² steps;
    /// - [`PlanError::Device`].
    pub fn after(device: &Device, adam: Adam, steps: u32) -> Result<Self, TrainingError> {
        let last = settled(&adam)?;
        let steps = steps.min(last);
        let counter = match device.machine() {
            None => Counter::Host(steps),
            Some(machine) => {
                // What a step runs is compiled now: the first may be in a graph, which cannot hold that.
                for kernel in [Walk::entry()?, entry(Variant::Adam)?] {
                    machine.load(kernel)?;
                }
                Counter::Device(Box::new(Walk::new(device, &adam, last, steps)?))
            }
        };
        Ok(Self { adam, device: device.clone(), last, counter, turn: Turn::default() })
    }

    /// Begins the next step on a stream, `t ← t + 1`: its parameters are then [updated](CountedStep::update) there. In
    /// a graph it is begun by each launch.
    ///
    /// # Errors
    /// What is said of [streams](crate::training#streams).
    pub fn begin_on<'a>(&'a mut self, on: &'a Stream) -> Result<CountedStep<'a>, TrainingError> {
        check_device("the stream", on.device(), &self.device)?;
        match &mut self.counter {
            Counter::Host(steps) => *steps = (*steps + 1).min(self.last),
            Counter::Device(walk) => {
                let on = On::of(on, &self.device, false)?;
                // SAFETY: the arrays are those of this value, which `turn` orders all uses of, and which free their
                // memory after the work.
                self.turn.run(&on, [Walk::entry()?], |queue| unsafe { walk.advance(queue) })?;
            }
        }
        Ok(CountedStep { adam: self, on })
    }

    /// Steps that were begun, as far as the numbers of later ones differ: what [`after`](Self::after) takes to go on.
    /// Waits for the last; who launches a graph of steps waits for its stream first.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    pub fn steps(&self) -> Result<u32, TrainingError> {
        match (&self.counter, self.device.machine()) {
            (Counter::Device(walk), Some(machine)) => {
                self.turn.before_reading(&**machine.own())?;
                walk.step()
            }
            (Counter::Host(steps), _) => Ok(*steps),
            (Counter::Device(_), None) => Ok(0), // not reached: a counter is where its device is
        }
    }
}

impl CountedStep<'_> {
    /// Changes a parameter by the step.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors): gradient and moments have the parameter's shape; and what is said of
    /// [streams](crate::training#streams).
    pub fn update<'a>(
        &mut self,
        parameter: impl Into<DeviceViewMut<'a, f32>>,
        gradient: impl Into<DeviceView<'a, f32>>,
        moments: &mut Moments,
    ) -> Result<(), TrainingError> {
        let CountedAdam { adam, device, counter, .. } = &*self.adam;
        let (means, turn) = moments.means();
        let step = Step { parameter: parameter.into(), gradient: gradient.into(), means };
        check_device("the parameter", step.parameter.device(), device)?;
        let operands = step.check(self.on)?;
        if is_empty(step.gradient) {
            return Ok(());
        }
        match (counter, operands.queued()?) {
            (Counter::Device(walk), Some(on)) => {
                let numbers = AdamParams { numbers: walk.numbers.pointer().cast(), ..adam.params(1) };
                let (kernel, params) = (entry(Variant::Adam)?, step.params(numbers)?);
                // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued
                // before, and of other memory the views were promised that it lives; those that are written are
                // borrowed for themselves, the means ordered by `turn`. The numbers were written in this stream, which
                // the value has been in since the step was begun.
                turn.run(&on, [kernel], |queue| unsafe { launch(queue, kernel, &params) })?;
            }
            (Counter::Host(t), _) => {
                let numbers = adam.params(*t);
                step.run_on_cpu(&numbers);
            }
            (Counter::Device(_), None) => {} // not reached: a counter is where its device is
        }
        Ok(())
    }
}

impl Walk {
    fn new(device: &Device, adam: &Adam, last: u32, steps: u32) -> Result<Self, TrainingError> {
        // No step has number 0.
        let numbers = (0..last + 1).map(|t| adam.params(t.max(1)));
        let table = try_collect(numbers.map(|step| [step.step_size, step.correction]), NUMBERS)?;
        let next = (0..last + 1).map(|t| (t + 1).min(last));
        let successors = try_collect(next.map(|t| [2 * t, 2 * t + 1]), SUCCESSORS)?;
        Ok(Self {
            table: DeviceBuffer::named(device, table.as_flattened(), NUMBERS)?,
            successors: DeviceBuffer::named(device, successors.as_flattened(), SUCCESSORS)?,
            at: Index::Gather(DeviceBuffer::from_slice(device, &[2 * steps, 2 * steps + 1])?),
            next: DeviceBuffer::alloc_zeroed(device, 2)?,
            numbers: DeviceBuffer::alloc_zeroed(device, 2)?,
        })
    }

    /// The kernel that takes elements from where an index says.
    fn entry() -> Result<&'static Entry, DeviceError> {
        entry(Variant::PlaceValues { value_bytes: 4 })
    }

    /// Queues the way to the next row. Numbers of elements are moved as the bits of f32, with which nothing is
    /// computed.
    ///
    /// # Safety
    /// Nothing else uses the arrays meanwhile.
    unsafe fn advance(&self, queue: &dyn Queue) -> Result<(), DeviceError> {
        let Index::Gather(at) = &self.at else { return Ok(()) };
        let rounding = Rounding { precision: Precision::F32, overflowed: GlobalPtr::NULL };
        let target = |out: GlobalPtr<u32>| Target { out, count: 2 };
        let (successors, next) = (self.successors.pointer(), self.next.pointer());
        // SAFETY: each array has the two elements that are read or written, the table and the successors one for every
        // number that there is in them; no two are one.
        unsafe {
            self.at.place(queue, rounding, successors, target(next))?;
            Index::InOrder.place(queue, rounding, next, target(at.pointer()))?;
            self.at.place(queue, rounding, self.table.pointer().cast(), target(self.numbers.pointer().cast()))
        }
    }

    /// The number of the current step.
    fn step(&self) -> Result<u32, TrainingError> {
        match &self.at {
            Index::Gather(at) => Ok(at.to_vec()?.first().map_or(0, |first| first / 2)),
            Index::InOrder | Index::Scatter(_) => Ok(0), // not reached: it is made with an index
        }
    }
}

/// The first step from which on both numbers stay the same in f32: they fall until then.
///
/// # Errors
/// [`PlanError::TooLarge`] if there are too many before.
fn settled(adam: &Adam) -> Result<u32, PlanError> {
    let numbers = |t: u32| {
        let AdamParams { step_size, correction, .. } = adam.params(t);
        (step_size.to_bits(), correction.to_bits())
    };
    let end = numbers(u32::MAX);
    let (mut low, mut high) = (1, MOST_STEPS + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if numbers(middle) == end { high = middle } else { low = middle + 1 }
    }
    if low <= MOST_STEPS {
        return Ok(low);
    }
    let (what, remedy) = ("steps with numbers of their own", "take a smaller beta, or steps of `Adam`");
    Err(PlanError::TooLarge { what, found: u64::from(low), limit: u64::from(MOST_STEPS), remedy })
}

//! Many small products of threads and streams, every one of them checked, while memory stays as it is.
//!
//! Each stream has a chain `C ← A·B − C`, with one of a few `B` in turn. Numbers are whole and so small that sums are
//! exact: a product that is wrong, lost, or done out of its order leaves a difference that no later one takes away. So
//! one comparison at the end of a link checks all products of it.

use std::time::Instant;

use windrow::{
    Algorithm, Csr, DenseRef, Device, DeviceKind, DeviceMatrix, DeviceView, DeviceViewMut, Precision,
    RowDivision, Schedule, Spmm, SpmmPlan, Stream,
};

use super::Result;

/// Extents of `A`, and columns of `B`: no multiples of what a block takes.
const ROWS: usize = 83;
const COLS: usize = 90;
const WIDTH: usize = 20;
/// How many `B` there are.
const OPERANDS: usize = 3;
/// Products of a chain between two comparisons. What a chain comes to is a sum of three products at most, for three
/// `B` in turn.
const LINK: usize = 64;
/// What free memory of a GPU may fall by between two looks: the step in which a driver gives it away.
pub(crate) const STEP: u64 = 2 << 20;

/// How much is asked of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    /// Streams of each of the threads.
    pub(crate) streams: usize,
    /// Of all threads; each does a whole number.
    pub(crate) products: usize,
    /// Whether each product is one of several plans' in turn, or all are of one plan.
    pub(crate) several: bool,
}

/// Memory of a device at some moment, when no work is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// As the device tells it: of a GPU, what no process has; none on the CPU, whose memory is everybody's.
    pub(crate) free: Option<u64>,
    /// What windrow holds for the plans.
    pub(crate) held: u64,
}

/// What was seen of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Products that were compared, all of them.
    pub(crate) products: usize,
    pub(crate) seconds: f64,
    /// Before the first product, when every stream has had one from each plan, after a tenth, and in the end.
    pub(crate) memory: [Memory; 4],
}

impl Seen {
    /// Whether windrow's own account is in the end what it was when every stream had had its first products.
    pub(crate) fn is_account_flat(&self) -> bool {
        let [_, first, tenth, end] = self.memory;
        first.held == tenth.held && tenth.held == end.held
    }

    /// Whether so is the account, and what is free what it was after a tenth of the products, but for a driver's step.
    pub(crate) fn is_flat(&self) -> bool {
        let [_, _, tenth, end] = self.memory;
        let fell = tenth.free.zip(end.free).is_some_and(|(from, to)| to + STEP < from);
        self.is_account_flat() && !fell
    }
}

/// A matrix of small whole numbers with a row that is cut, short ones and empty ones.
fn matrix() -> Result<Csr<f32>> {
    let mut dense = vec![0.0f32; ROWS * COLS];
    for row in 0..ROWS {
        let each = if row == 5 { 1 } else { 2 + (row * 7) % 40 };
        for col in (row % 11..COLS).step_by(each).filter(|_| row % 13 != 4) {
            dense[row * COLS + col] = [-2.0, -1.0, 1.0, 2.0][(row + 3 * col) % 4];
        }
    }
    Ok(Csr::from_dense(ROWS, COLS, &dense)?)
}

/// The elements of `B` number `number`.
fn elements(number: usize) -> Vec<f32> {
    let small = [-2.0, 1.0, 0.0, 2.0, -1.0, 1.0, 2.0];
    (0..COLS * WIDTH).map(|i| small[(i * (number + 2) + i / 5) % 7]).collect()
}

/// `A·B` in host memory.
fn product(a: &Csr<f32>, b: &[f32]) -> Vec<f32> {
    let mut c = vec![0.0f32; ROWS * WIDTH];
    for (row, sums) in c.chunks_exact_mut(WIDTH).enumerate() {
        let (columns, values) = a.row(row);
        for (&column, value) in columns.iter().zip(values) {
            let from = &b[column as usize * WIDTH..][..WIDTH];
            sums.iter_mut().zip(from).for_each(|(sum, x)| *sum += value * x);
        }
    }
    c
}

/// Plans of one matrix by different kernels, in f32 and in a precision that these numbers are exact in, too.
fn plans(device: &Device, a: &Csr<f32>, several: bool) -> Result<Vec<SpmmPlan>> {
    let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
    let builder = || Spmm::builder(a).width(WIDTH);
    let mut builders = vec![builder().algorithm(Algorithm::RowSplit).row_division(cut)];
    if several {
        builders.push(builder().algorithm(Algorithm::ShortRows));
        builders.push(builder().algorithm(Algorithm::SegmentGroup));
        builders.push(builder().algorithm(Algorithm::TileStream).precision(Precision::Tf32));
        let hybrid = builder().algorithm(Algorithm::Hybrid).precision(Precision::Tf32);
        builders.push(hybrid.schedule(Schedule::MultiStream));
    }
    Ok(builders.iter().map(|builder| builder.build(device)).collect::<std::result::Result<_, _>>()?)
}

/// A stream of one thread and its chain.
struct Chain {
    stream: Stream,
    c: DeviceMatrix<f32>,
    /// What `c` must be.
    want: Vec<f32>,
    /// Whether memory is lent, so that nothing but the stream orders it, or windrow's, which the device's own stream
    /// has to do with.
    lent: bool,
    done: usize,
}

/// What all threads share.
struct Shared<'a> {
    plans: &'a [SpmmPlan],
    operands: Vec<DeviceMatrix<f32>>,
    products: Vec<Vec<f32>>,
}

impl Chain {
    fn new(device: &Device, lent: bool) -> Result<Self> {
        let c = DeviceMatrix::zeros(device, ROWS, WIDTH)?;
        Ok(Self { stream: Stream::new(device)?, c, want: vec![0.0; ROWS * WIDTH], lent, done: 0 })
    }

    /// Queues a product with this plan, after the one before.
    fn step(&mut self, shared: &Shared<'_>, plan: usize) -> Result<()> {
        let number = self.done % OPERANDS;
        let plan = &shared.plans[plan % shared.plans.len()];
        let b: DeviceView<'_, f32> = (&shared.operands[number]).into();
        let c: DeviceViewMut<'_, f32> = (&mut self.c).into();
        match self.lent {
            // SAFETY: `B` is only read; `C` is used in this stream alone until `check` has waited for it.
            true => unsafe { plan.run_into_on(&self.stream, 1.0, b.lent(), -1.0, c.lent())? },
            false => plan.run_into_on(&self.stream, 1.0, b, -1.0, c)?,
        }
        self.want
            .iter_mut()
            .zip(&shared.products[number])
            .for_each(|(want, product)| *want = product - *want);
        self.done += 1;
        Ok(())
    }

    /// Compares what the chain has come to.
    fn check(&mut self, who: &str) -> Result<()> {
        self.stream.synchronize()?;
        let found = self.c.download()?;
        match found.iter().zip(&self.want).position(|(found, want)| found != want) {
            None => Ok(()),
            Some(at) => {
                let (row, column) = (at / WIDTH, at % WIDTH);
                let (found, want, done) = (found[at], self.want[at], self.done);
                Err(format!("{who}: C[{row}, {column}] is {found} after {done} products, not {want}").into())
            }
        }
    }
}

/// Queues `products` of one thread on its streams in turn, and compares.
fn work(thread: usize, chains: &mut [Chain], shared: &Shared<'_>, products: usize) -> Result<()> {
    let name = |stream: usize| format!("thread {thread}, stream {stream}");
    let streams = chains.len();
    for product in 0..products {
        let at = product % streams;
        let plan = thread + product / streams;
        chains[at].step(shared, plan)?;
        if chains[at].done.is_multiple_of(LINK) {
            chains[at].check(&name(at))?;
        }
    }
    chains.iter_mut().enumerate().try_for_each(|(at, chain)| chain.check(&name(at)))
}

/// Does it, and compares every product.
///
/// # Errors
/// What the device says, and of the first element that is wrong where it is.
pub(crate) fn run(device: &Device, load: Load) -> Result<Seen> {
    let a = matrix()?;
    let plans = plans(device, &a, load.several)?;
    let operands: Vec<Vec<f32>> = (0..OPERANDS).map(elements).collect();
    let products = operands.iter().map(|b| product(&a, b)).collect();
    let upload = |b: &Vec<f32>| Ok(DeviceMatrix::upload(device, DenseRef::packed(b, COLS, WIDTH)?)?);
    let operands = operands.iter().map(upload).collect::<Result<_>>()?;
    let shared = Shared { plans: &plans, operands, products };
    // Of half of the threads the memory is lent.
    let chains = |thread: usize| {
        (0..load.streams).map(move |_| Chain::new(device, thread.is_multiple_of(2))).collect()
    };
    let mut threads: Vec<Vec<Chain>> = (0..load.threads).map(chains).collect::<Result<_>>()?;
    device.synchronize()?; // the operands are there for all streams
    let memory = || -> Result<Memory> {
        device.synchronize()?;
        let held = plans.iter().map(SpmmPlan::device_bytes).sum();
        let free = if device.kind() == DeviceKind::Cpu { None } else { device.memory_free()? };
        Ok(Memory { free, held })
    };
    let all = |threads: &mut [Vec<Chain>], each: usize| -> Result<()> {
        std::thread::scope(|scope| {
            let (shared, mut running) = (&shared, Vec::new());
            for (thread, chains) in threads.iter_mut().enumerate() {
                running.push(scope.spawn(move || work(thread, chains, shared, each)));
            }
            let mut ended =
                running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into())));
            ended.try_for_each(|outcome| outcome)
        })
    };
    let before = memory()?;
    // What first runs make on a stream, and the kernels of all plans.
    let first = load.streams * plans.len();
    all(&mut threads, first)?;
    let warm = memory()?;
    let each = load.products.div_ceil(load.threads.max(1));
    let tenth = each.div_ceil(10);
    let start = Instant::now();
    all(&mut threads, tenth)?;
    let after_tenth = memory()?;
    all(&mut threads, each - tenth)?;
    let seconds = start.elapsed().as_secs_f64();
    let products = (first + each) * load.threads;
    Ok(Seen { products, seconds, memory: [before, warm, after_tenth, memory()?] })
}

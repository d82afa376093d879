//! Cases of attention, their f64 reference, and one way to run them.

use half::{bf16, f16};
use windrow::{
    AttentionAlgorithm, AttentionOperands, AttentionOptions, AttentionPlan, AttentionScores, Csr, Device,
    DeviceBuffer, DeviceKind, DeviceMatrix, Dropout, Element, GraphAttention, HeadLayout, Precision, Value,
};
use windrow_testkit::{Comparison, Pattern, SplitMix64, UNIT_FMA, UNIT_MMA, Values};

use crate::common::{by_turns, kernel_devices};

/// A kind of plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kind {
    pub(crate) algorithm: AttentionAlgorithm,
    pub(crate) window_rows: Option<u32>,
    pub(crate) precision: Precision,
}

pub(crate) const fn kind(
    algorithm: AttentionAlgorithm,
    window_rows: Option<u32>,
    precision: Precision,
) -> Kind {
    Kind { algorithm, window_rows, precision }
}

/// Every algorithm in every precision that it has.
pub(crate) fn kinds() -> Vec<Kind> {
    let mut kinds = vec![kind(AttentionAlgorithm::Rows, None, Precision::F32)];
    for precision in [Precision::F16, Precision::Bf16] {
        kinds.push(kind(AttentionAlgorithm::Rows, None, precision));
        for rows in [Some(4), Some(8)] {
            kinds.push(kind(AttentionAlgorithm::Entries, rows, precision));
            kinds.push(kind(AttentionAlgorithm::Columns, rows, precision));
        }
    }
    kinds
}

/// All of them on the CPU and the GPU, and on the emulator under its schedules by turns.
pub(crate) fn kinds_on_devices() -> Vec<(Device, Kind)> {
    let on = |(turn, kind): (usize, Kind)| {
        let devices = [Device::cpu()].into_iter().chain(kernel_devices(turn));
        devices.map(move |device| (device, kind))
    };
    kinds().into_iter().enumerate().flat_map(on).collect()
}

/// What scores are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scores {
    /// Products of reals in −1..1.
    Reals,
    /// So large that one entry has nearly all of the weight.
    Large,
    /// All far below zero.
    Negative,
    /// All zero: a row is a mean.
    Zero,
}

/// Operands of all heads, packed in the layout.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) a: Csr<f32>,
    pub(crate) heads: usize,
    pub(crate) columns: usize,
    pub(crate) value_columns: usize,
    pub(crate) layout: HeadLayout,
    pub(crate) scores: AttentionScores,
    pub(crate) scale: f32,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    /// Of all heads, of scores of `GATv2`.
    pub(crate) vector: Option<Vec<f32>>,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Case {
    pub(crate) fn new(
        name: &str,
        a: &Csr<f32>,
        [heads, columns, value_columns]: [usize; 3],
        scores: Scores,
    ) -> Self {
        let mut rng = SplitMix64::new(41);
        let (low, high) = match scores {
            Scores::Reals => (1.0, 1.0),
            Scores::Large => (20.0, 20.0),
            Scores::Negative => (6.0, -6.0),
            Scores::Zero => (0.0, 1.0),
        };
        let mut numbers = |count: usize, factor: f32, one_sign: bool| -> Vec<f32> {
            let real = |rng: &mut SplitMix64| if one_sign { rng.real().abs() } else { rng.real() };
            (0..count).map(|_| factor * real(&mut rng)).collect()
        };
        let one_sign = scores == Scores::Negative;
        Self {
            name: format!("{name}, {heads} heads of {columns} and {value_columns} columns, {scores:?}"),
            a: a.clone(),
            heads,
            columns,
            value_columns,
            layout: HeadLayout::Columns,
            scores: AttentionScores::DotProduct,
            scale: 1.0 / (columns as f32).sqrt(),
            q: numbers(heads * a.rows() * columns, low, one_sign),
            k: numbers(heads * a.cols() * columns, high, one_sign),
            v: numbers(heads * a.cols() * value_columns, 1.0, false),
            vector: None,
            bias: None,
        }
    }

    /// With scores of `GATv2`.
    pub(crate) fn gatv2(mut self, negative_slope: f32) -> Self {
        let mut rng = SplitMix64::new(45);
        self.scores = AttentionScores::Gatv2 { negative_slope };
        self.vector = Some((0..self.heads * self.columns).map(|_| rng.real()).collect());
        self.name += ", of GATv2";
        self
    }

    /// With additive scores, of one number a row or column and head; the columns of `Q` and `K` are forgotten.
    pub(crate) fn additive(mut self, negative_slope: f32) -> Self {
        self.scores = AttentionScores::Additive { negative_slope };
        self.columns = 1;
        self.q.truncate(self.heads * self.a.rows());
        self.k.truncate(self.heads * self.a.cols());
        self.scale = 1.5;
        self.name += ", additive";
        self
    }

    pub(crate) fn stacked(mut self) -> Self {
        self.layout = HeadLayout::Rows;
        self.name += ", stacked";
        self
    }

    /// With a bias for each entry, of each head or of all.
    pub(crate) fn biased(mut self, heads: usize) -> Self {
        let mut rng = SplitMix64::new(43);
        let bias = (0..heads * self.a.nnz()).map(|i| if i % 7 == 3 { f32::NEG_INFINITY } else { rng.real() });
        self.bias = Some(bias.collect());
        self.name += ", biased";
        self
    }

    pub(crate) fn options(&self, kind: Kind) -> AttentionOptions {
        AttentionOptions {
            heads: self.heads,
            layout: self.layout,
            scores: self.scores,
            // Additive scores have one column whatever is said here.
            columns: if self.scores.are_additive() { 77 } else { self.columns },
            value_columns: Some(self.value_columns),
            precision: kind.precision,
            algorithm: kind.algorithm,
            window_rows: kind.window_rows,
            biased: self.bias.is_some(),
            gradients: false,
            memory_limit: None,
        }
    }

    pub(crate) fn plan(&self, kind: Kind, device: &Device) -> AttentionPlan {
        let builder = GraphAttention::builder(&self.a).options(self.options(kind));
        builder.build(device).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Rows and columns of an operand.
    pub(crate) fn shape(&self, rows: usize, columns: usize) -> (usize, usize) {
        match self.layout {
            HeadLayout::Rows => (self.heads * rows, columns),
            _ => (rows, self.heads * columns),
        }
    }

    /// Where an operand has an element, in elements from the first.
    pub(crate) fn at(
        &self,
        (rows, columns): (usize, usize),
        head: usize,
        row: usize,
        column: usize,
    ) -> usize {
        match self.layout {
            HeadLayout::Rows => (head * rows + row) * columns + column,
            _ => (row * self.heads + head) * columns + column,
        }
    }

    /// Whether rows of all heads begin at multiples of 16 bytes.
    pub(crate) fn is_aligned<T>(&self) -> bool {
        let vector = 16 / size_of::<T>();
        (self.scores.are_additive() || self.columns.is_multiple_of(vector))
            && self.value_columns.is_multiple_of(vector)
    }

    /// The score of an entry, what it may be off by for sums of unit roundoff `unit`, and the slope of its rectifier.
    pub(crate) fn score<T: Value>(&self, (head, row, entry): (usize, usize, usize), unit: f64) -> [f64; 3] {
        let (m, n) = (self.a.rows(), self.a.cols());
        let column = self.a.col_indices()[entry] as usize;
        let bias = self.bias.as_ref().map_or(0.0, |bias| {
            let of_head = if bias.len() > self.a.nnz() { head * self.a.nnz() } else { 0 };
            f64::from(bias[of_head + entry])
        });
        let scale = f64::from(self.scale);
        let at_q = |c| self.q[self.at((m, self.columns), head, row, c)];
        let at_k = |c| self.k[self.at((n, self.columns), head, column, c)];
        let number = |x: f32| T::from_f32(x).to_f64();
        let (score, size, slope) = match self.scores {
            AttentionScores::Gatv2 { .. } => {
                let products = (0..self.columns).map(|c| {
                    let (q, k) = (number(at_q(c)), number(at_k(c)));
                    let of_vector = f64::from(self.vector.as_ref().unwrap()[head * self.columns + c]);
                    (of_vector * self.rectified(q + k)[0], of_vector.abs() * (q.abs() + k.abs()))
                });
                let (product, size) =
                    products.fold((0.0, 0.0), |(sum, all), (x, size)| (sum + x, all + size));
                (scale * product + bias, size, 1.0)
            }
            AttentionScores::Additive { negative_slope } => {
                let (q, k) = (f64::from(at_q(0)), f64::from(at_k(0)));
                let sum = q + k + bias;
                let slope = if sum > 0.0 { 1.0 } else { f64::from(negative_slope) };
                (scale * sum * slope, q.abs() + k.abs() + bias.abs(), slope)
            }
            _ => {
                let products = (0..self.columns).map(|c| number(at_q(c)) * number(at_k(c)));
                let (product, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                (scale * product + bias, size, 1.0)
            }
        };
        let off = (self.columns + 6) as f64 * unit * scale * size + 4.0 * UNIT_FMA * score.abs();
        [score, if score.is_finite() { off } else { 0.0 }, slope]
    }

    /// What the rectifier of scores of `GATv2` makes of a sum, and its slope there.
    pub(crate) fn rectified(&self, sum: f64) -> [f64; 2] {
        let AttentionScores::Gatv2 { negative_slope } = self.scores else { panic!("no scores of GATv2") };
        let slope = if sum > 0.0 { 1.0 } else { f64::from(negative_slope) };
        [slope * sum, slope]
    }

    /// The result, in the layout, and what each element may be off by.
    pub(crate) fn reference<T: Value>(&self, unit: f64) -> (Vec<f64>, Vec<f64>) {
        let (m, n) = (self.a.rows(), self.a.cols());
        let number = |x: f32| T::from_f32(x).to_f64();
        let elements = self.heads * m * self.value_columns;
        let (mut want, mut bounds) = (vec![0.0; elements], vec![0.0; elements]);
        let split = if T::NAME == "bf16" { 1.0 / 65_536.0 } else { 1.0 / 2_097_152.0 };
        for (head, row) in (0..self.heads).flat_map(|head| (0..m).map(move |row| (head, row))) {
            let entries = self.a.row_range(row);
            let (mut scores, mut off) = (Vec::new(), 0.0f64);
            for entry in entries.clone() {
                let [score, of_score, _] = self.score::<T>((head, row, entry), unit);
                scores.push(score);
                off = off.max(of_score);
            }
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            let relative = 2.5 * off + (scores.len() + 24) as f64 * unit + split;
            for c in 0..self.value_columns {
                let at = self.at((m, self.value_columns), head, row, c);
                for (entry, score) in entries.clone().zip(&scores) {
                    let column = self.a.col_indices()[entry] as usize;
                    let weight = (score - max).exp() / sum;
                    let value = number(self.v[self.at((n, self.value_columns), head, column, c)]);
                    want[at] += weight * value;
                    bounds[at] += relative * weight * value.abs();
                }
                bounds[at] += 1e-30;
            }
        }
        (want, bounds)
    }
}

/// `data` on the device, rows one after the other.
pub(crate) fn on_device<T: Value>(
    device: &Device,
    data: &[f32],
    (rows, cols): (usize, usize),
) -> DeviceMatrix<T> {
    let elements: Vec<T> = data.iter().map(|&x| T::from_f32(x)).collect();
    DeviceMatrix::from_buffer(DeviceBuffer::from_slice(device, &elements).unwrap(), rows, cols, cols).unwrap()
}

/// What a device makes of a case; result and states. Scores are of `S`.
pub(crate) fn run<T: Element<Sum = f32>, S: Element<Sum = f32>>(
    plan: &AttentionPlan,
    case: &Case,
    dropout: Option<Dropout>,
) -> [Vec<f32>; 2] {
    let device = plan.device();
    let (m, n) = (case.a.rows(), case.a.cols());
    let (of_keys, of_values) = (case.shape(n, case.columns), case.shape(n, case.value_columns));
    let q = on_device::<S>(device, &case.q, case.shape(m, case.columns));
    let (k, v) = (on_device::<S>(device, &case.k, of_keys), on_device::<T>(device, &case.v, of_values));
    let (rows, cols) = case.shape(m, case.value_columns);
    let mut out = on_device::<f32>(device, &vec![f32::NAN; rows * cols], (rows, cols));
    let mut states = DeviceBuffer::from_slice(device, &vec![f32::NAN; 2 * case.heads * m]).unwrap();
    let numbers = |of: &Option<Vec<f32>>| of.as_ref().map(|of| DeviceBuffer::from_slice(device, of).unwrap());
    let (vector, bias) = (numbers(&case.vector), numbers(&case.bias));
    let mut operands = AttentionOperands::new(&q, &k, &v).states(&mut states);
    if let Some(vector) = &vector {
        operands = operands.vector(vector);
    }
    if let Some(bias) = &bias {
        operands = operands.bias(bias);
    }
    if let Some(dropout) = dropout {
        operands = operands.dropout(dropout);
    }
    plan.forward_on(&device.stream(), case.scale, operands, &mut out)
        .unwrap_or_else(|error| panic!("{} on {device}: {error}\n{}", case.name, plan.report()));
    let of_states = states.to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name));
    [out.download().unwrap(), of_states]
}

pub(crate) fn run_kind(
    plan: &AttentionPlan,
    kind: Kind,
    case: &Case,
    dropout: Option<Dropout>,
) -> [Vec<f32>; 2] {
    match (kind.precision, case.scores.are_additive()) {
        (Precision::F16, false) => run::<f16, f16>(plan, case, dropout),
        (Precision::F16, true) => run::<f16, f32>(plan, case, dropout),
        (Precision::Bf16, false) => run::<bf16, bf16>(plan, case, dropout),
        (Precision::Bf16, true) => run::<bf16, f32>(plan, case, dropout),
        _ => run::<f32, f32>(plan, case, dropout),
    }
}

/// Compares all of a result, and the states with the entries of their rows.
pub(crate) fn check(device: &Device, kind: Kind, case: &Case) -> (Comparison, &'static str) {
    let plan = case.plan(kind, device);
    let [got, states] = run_kind(&plan, kind, case, None);
    let unit = if device.kind() == DeviceKind::Cpu { UNIT_FMA } else { UNIT_MMA };
    let (want, bounds) = match kind.precision {
        Precision::F16 => case.reference::<f16>(unit),
        Precision::Bf16 => case.reference::<bf16>(unit),
        _ => case.reference::<f32>(unit),
    };
    let mut comparison = Comparison { elements: want.len(), ..Comparison::default() };
    for (i, ((&got, &want), &bound)) in got.iter().zip(&want).zip(&bounds).enumerate() {
        let ratio = if f64::from(got) == want { 0.0 } else { (f64::from(got) - want).abs() / bound };
        let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
        comparison.failures += usize::from(ratio > 1.0);
        if ratio > comparison.worst_ratio || comparison.worst_at.is_none() {
            (comparison.worst_ratio, comparison.worst_at) = (ratio, Some((0, i)));
            (comparison.got, comparison.want) = (f64::from(got), want);
        }
    }
    assert!(comparison.passed(), "{} on {device}, {kind:?}: {comparison}\n{}", case.name, plan.report());
    for (at, state) in states.chunks_exact(2).enumerate() {
        let entries = case.a.row_len(at % case.a.rows());
        let sum = f64::from(state[1]);
        let empty = entries == 0 || sum == 0.0 && case.bias.is_some();
        assert!(
            empty == (sum == 0.0) && sum <= 65.0 * entries as f64,
            "{} on {device}: {state:?}",
            case.name
        );
    }
    (comparison, plan.report().entry)
}

/// Every precision that attention has.
pub(crate) const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Bf16];

/// Compares cases in every precision, by the algorithm that is chosen for them, on every device.
pub(crate) fn check_all(what: &str, cases: &[Case]) {
    for precision in PRECISIONS {
        let kind = kind(AttentionAlgorithm::Auto, None, precision);
        by_turns(&format!("{what}, {precision}"), cases.len(), |device, turn, ran| {
            let case = &cases[turn];
            let (comparison, entry) = check(device, kind, case);
            let aligned = match precision {
                Precision::F32 => case.is_aligned::<f32>(),
                _ => case.is_aligned::<f16>(),
            };
            ran.note(device, turn, (!entry.is_empty()).then_some((entry, aligned)));
            comparison
        });
    }
}

/// Rows of every length around what steps, windows and blocks take.
pub(crate) fn lengths() -> Csr<f32> {
    let lengths = [0, 1, 2, 3, 15, 16, 17, 0, 0, 0, 0, 0, 31, 33, 64, 65, 5, 130, 7, 1, 0, 2, 9];
    Pattern::from_lengths(150, lengths, &mut SplitMix64::new(5))
        .with_values(Values::Integers, &mut SplitMix64::new(6))
}

/// A row that several blocks share, one that is a block's, and short ones.
pub(crate) fn long_rows() -> Csr<f32> {
    let lengths = [3, 1500, 0, 700, 2, 40, 1, 1, 9];
    Pattern::from_lengths(1600, lengths, &mut SplitMix64::new(7))
        .with_values(Values::Integers, &mut SplitMix64::new(8))
}

/// Rows that share their columns.
pub(crate) fn shared() -> Csr<f32> {
    Pattern::dense(19, 43).with_values(Values::Integers, &mut SplitMix64::new(9))
}

pub(crate) fn no_rows() -> Csr<f32> {
    Csr::try_from_parts(0, 7, vec![0], vec![], vec![]).unwrap()
}

pub(crate) fn no_entries() -> Csr<f32> {
    Csr::try_from_parts(11, 7, vec![0; 12], vec![], vec![]).unwrap()
}

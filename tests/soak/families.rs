//! One turn of each family: a plan for a random shape, products, new values.

use std::error::Error;

use windrow::{
    Algorithm, AttentionError, AttentionPlan, Coo3, Csf3, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix,
    Element, Epilogue, GraphAttention, Mttkrp, NmPattern, NmSpmm, Precision, RowSoftmax, Sddmm, SddmmForm,
    Spmm, Ttm, Value, Verification, bf16, f16, prune_magnitude, with_element,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

type Outcome = Result<u64, Box<dyn Error>>;

/// What a turn goes by.
pub(crate) struct Turn<'a> {
    pub(crate) device: &'a Device,
    pub(crate) rng: &'a mut SplitMix64,
    /// Most rows and columns.
    pub(crate) largest: usize,
    /// How many turns the family had.
    pub(crate) round: u64,
    /// Whether results are compared.
    pub(crate) verify: bool,
}

pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// The number of products that were computed.
    pub(crate) run: fn(Turn<'_>) -> Outcome,
}

pub(crate) const FAMILIES: &[Family] = &[
    Family { name: "SpMM", run: spmm },
    Family { name: "SDDMM", run: sddmm },
    Family { name: "row softmax", run: softmax },
    Family { name: "attention", run: attention },
    Family { name: "N:M", run: nm },
    Family { name: "MTTKRP", run: mttkrp },
    Family { name: "TTM", run: ttm },
];

impl Turn<'_> {
    /// From 1 to `most`.
    fn size(&mut self, most: usize) -> usize {
        1 + self.rng.below(most)
    }

    /// The next of several, round after round.
    fn by_round<T: Copy>(&self, of: &[T]) -> T {
        of[usize::try_from(self.round).unwrap() % of.len()]
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.rng.real()).collect()
    }

    /// Rows of 0 to 20 entries, and now and then a long one.
    fn matrix(&mut self) -> Csr<f32> {
        let (rows, cols) = (self.size(self.largest), self.size(self.largest));
        let lengths: Vec<usize> = (0..rows)
            .map(|_| if self.rng.below(50) == 0 { cols } else { self.rng.below(21).min(cols) })
            .collect();
        Pattern::from_lengths(cols, lengths, self.rng).with_values(Values::Reals, self.rng)
    }

    fn dense<T: Element>(&mut self, rows: usize, cols: usize) -> Result<DeviceMatrix<T>, Box<dyn Error>> {
        let values: Vec<T> = self.values(rows * cols).into_iter().map(T::from_f32).collect();
        Ok(DeviceMatrix::upload(self.device, DenseRef::packed(&values, rows, cols)?)?)
    }

    fn tensor(&mut self) -> Result<Csf3<f32>, Box<dyn Error>> {
        let dims = [(); 3].map(|()| self.size(self.largest));
        let entry = |_| {
            let index = dims.map(|dim| u32::try_from(self.rng.below(dim)).unwrap());
            (index, self.rng.real())
        };
        let entries: Vec<_> = (0..4 * self.largest).map(entry).collect();
        Ok(Csf3::try_from_coo(&Coo3::from_entries(dims, entries)?, [0, 1, 2])?)
    }
}

/// That a result was right.
#[track_caller]
fn passed(what: &str, found: &Verification) {
    assert!(found.passed(), "{what}: {found}");
}

fn spmm(mut turn: Turn<'_>) -> Outcome {
    const WAYS: [(Algorithm, Precision); 11] = [
        (Algorithm::Auto, Precision::F32),
        (Algorithm::Hybrid, Precision::F16),
        (Algorithm::RowSplit, Precision::F64),
        (Algorithm::TileStream, Precision::Bf16),
        (Algorithm::SegmentGroup, Precision::F32),
        (Algorithm::Auto, Precision::F16),
        (Algorithm::ShortRows, Precision::F32),
        (Algorithm::MergePath, Precision::F32),
        (Algorithm::TileStream, Precision::Tf32),
        (Algorithm::MatricizedRows, Precision::F16),
        (Algorithm::RowPanels, Precision::F32),
    ];
    let (algorithm, precision) = turn.by_round(&WAYS);
    let (mut a, n) = (turn.matrix(), turn.size(40));
    with_element!(precision, T => {
        let mut plan = Spmm::builder(&a).width(n).algorithm(algorithm).precision(precision).build(turn.device)?;
        let b = turn.dense::<T>(a.cols(), n)?;
        let mut c = DeviceMatrix::<<T as Element>::Sum>::zeros(turn.device, a.rows(), n)?;
        let [zero, one] = [0.0, 1.0].map(<T as Element>::Sum::from_f32);
        for _ in 0..3 {
            plan.run_into(one, &b, zero, &mut c)?;
        }
        let values = turn.values(a.nnz());
        plan.replace_values(&values)?;
        a = a.with_values(values)?;
        plan.run_into(one, &b, zero, &mut c)?;
        turn.device.synchronize()?;
        if turn.verify {
            passed(&format!("{algorithm} {precision}"), &plan.verify(&a, &b, &c)?);
        }
    });
    Ok(4)
}

fn sddmm(mut turn: Turn<'_>) -> Outcome {
    let precision = turn.by_round(&[Precision::F32, Precision::F16, Precision::F64, Precision::Tf32]);
    let (mut a, inner) = (turn.matrix(), turn.size(40));
    let builder = Sddmm::builder(&a).inner(inner).precision(precision).form(SddmmForm::Scale);
    with_element!(precision, T => {
        let mut plan = builder.build(turn.device)?;
        let (x, y) = (turn.dense::<T>(a.rows(), inner)?, turn.dense::<T>(a.cols(), inner)?);
        let mut out = DeviceBuffer::<<T as Element>::Sum>::alloc_zeroed(turn.device, a.nnz())?;
        let one = <T as Element>::Sum::from_f32(1.0);
        plan.run_into(one, &x, &y, &mut out)?;
        let values = turn.values(a.nnz());
        plan.replace_values(&values)?;
        a = a.with_values(values)?;
        plan.run_into(one, &x, &y, &mut out)?;
        turn.device.synchronize()?;
        if turn.verify {
            passed(&format!("SDDMM {precision}"), &plan.verify(&a, &x, &y, &out)?);
        }
    });
    Ok(2)
}

/// Attention with operands of a plan's type.
fn attend<T: Element<Sum = f32>>(
    plan: &AttentionPlan,
    operands: [&[f32]; 3],
) -> Result<Vec<f32>, AttentionError> {
    let [q, k, v] = operands.map(|data| data.iter().map(|&x| T::from_f32(x)).collect::<Vec<_>>());
    plan.run(0.5, &q, &k, &v)
}

fn attention(mut turn: Turn<'_>) -> Outcome {
    let a = turn.matrix();
    let heads = turn.size(3);
    let columns = turn.by_round(&[8, 24, 40, 7]);
    let precision = turn.by_round(&[Precision::F16, Precision::F32, Precision::Bf16]);
    let plan =
        GraphAttention::builder(&a).heads(heads).columns(columns).precision(precision).build(turn.device)?;
    let mut numbers =
        |rows: usize| -> Vec<f32> { (0..rows * heads * columns).map(|_| turn.rng.real()).collect() };
    let (q, k) = (numbers(a.rows()), numbers(a.cols()));
    // Means of ones, whatever the weights.
    let v = vec![1.0f32; k.len()];
    let operands = [&q[..], &k, &v];
    let found = match precision {
        Precision::F16 => attend::<f16>(&plan, operands)?,
        Precision::Bf16 => attend::<bf16>(&plan, operands)?,
        _ => attend::<f32>(&plan, operands)?,
    };
    turn.device.synchronize()?;
    if turn.verify {
        for (row, of_row) in found.chunks_exact(heads * columns).enumerate() {
            let expected = if a.row_len(row) == 0 { 0.0 } else { 1.0 };
            assert!(of_row.iter().all(|x| (x - expected).abs() < 2e-4), "row {row}: {of_row:?}");
        }
    }
    Ok(1)
}

fn softmax(mut turn: Turn<'_>) -> Outcome {
    let a = turn.matrix();
    let softmax = RowSoftmax::new(&a, turn.device)?;
    let scores = DeviceBuffer::from_slice(turn.device, a.values())?;
    let mut out = DeviceBuffer::alloc_zeroed(turn.device, a.nnz())?;
    softmax.forward(1.0, &scores, &mut out)?;
    let found = out.to_vec()?;
    let mut gradient = DeviceBuffer::alloc_zeroed(turn.device, a.nnz())?;
    softmax.backward(1.0, &out, &scores, &mut gradient)?;
    turn.device.synchronize()?;
    if turn.verify {
        let found = a.with_values(found)?;
        for row in (0..a.rows()).filter(|&row| !found.row(row).1.is_empty()) {
            let sum: f64 = found.row(row).1.iter().map(|&x| f64::from(x)).sum();
            assert!((sum - 1.0).abs() < 1e-4, "row {row}: {sum}");
        }
    }
    Ok(2)
}

fn nm(mut turn: Turn<'_>) -> Outcome {
    let precision = turn.by_round(&[Precision::F32, Precision::F16, Precision::Bf16, Precision::Tf32]);
    let most = turn.largest.min(600);
    let (rows, inner, cols) = (turn.size(most), turn.size(most), turn.size(most));
    let pattern = turn.by_round(&[(2, 4, 32), (1, 8, 16), (2, 8, 64)]);
    let pattern = NmPattern::new(pattern.0, pattern.1, pattern.2)?;
    let weights = prune_magnitude(&turn.values(inner * cols), inner, cols, pattern)?;
    let plan = NmSpmm::builder(&weights).rows(rows).precision(precision).build(turn.device)?;
    macro_rules! product {
        ($T:ty) => {{
            let a = turn.dense::<$T>(rows, inner)?;
            let mut c = DeviceMatrix::<f32>::zeros(turn.device, rows, cols)?;
            plan.run_into(&Epilogue::default(), &a, &mut c)?;
            turn.device.synchronize()?;
            if turn.verify {
                let found = plan.verify(&weights, &Epilogue::default(), &a, &c)?;
                passed(&format!("N:M {precision}"), &found);
            }
        }};
    }
    match precision {
        Precision::F16 => product!(windrow::f16),
        Precision::Bf16 => product!(windrow::bf16),
        _ => product!(f32),
    }
    Ok(1)
}

fn mttkrp(mut turn: Turn<'_>) -> Outcome {
    let precision = turn.by_round(&[Precision::F32, Precision::F16, Precision::F64]);
    let (a, n) = (turn.tensor()?, turn.size(24));
    let mut plan = Mttkrp::builder(&a).width(n).precision(precision).build(turn.device)?;
    with_element!(precision, T => {
        let [rows, of_b, of_c] = a.dims();
        let (b, c) = (turn.dense::<T>(of_b, n)?, turn.dense::<T>(of_c, n)?);
        let mut y = DeviceMatrix::<<T as Element>::Sum>::zeros(turn.device, rows, n)?;
        let [zero, one] = [0.0, 1.0].map(<T as Element>::Sum::from_f32);
        plan.replace_values(a.values())?;
        plan.run_into(one, [&b, &c], zero, &mut y)?;
        turn.device.synchronize()?;
        if turn.verify {
            passed(&format!("MTTKRP {precision}"), &plan.verify(&a, [&b, &c], &y)?);
        }
    });
    Ok(1)
}

fn ttm(mut turn: Turn<'_>) -> Outcome {
    let precision = turn.by_round(&[Precision::F32, Precision::F16, Precision::F64]);
    let (a, n) = (turn.tensor()?, turn.size(24));
    let mut plan = Ttm::builder(&a).width(n).precision(precision).build(turn.device)?;
    with_element!(precision, T => {
        let b = turn.dense::<T>(a.dims()[2], n)?;
        let mut y = DeviceMatrix::<<T as Element>::Sum>::zeros(turn.device, a.fibers(), n)?;
        let [zero, one] = [0.0, 1.0].map(<T as Element>::Sum::from_f32);
        plan.replace_values(a.values())?;
        plan.run_into(one, &b, zero, &mut y)?;
        turn.device.synchronize()?;
        if turn.verify {
            passed(&format!("TTM {precision}"), &plan.verify(&a, &b, &y)?);
        }
    });
    Ok(1)
}

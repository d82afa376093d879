//! Products with N:M weights in which what must not be seen is not a number.

use half::{bf16, f16};
use windrow::{
    ActivationLayout, DenseRef, Device, DeviceKind, DeviceMatrix, Element, Epilogue, NmPattern, NmSpmm,
    NmSpmmPlan, Precision, VectorNm, prune_magnitude,
};

pub(crate) fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
    NmPattern::new(n, m, l).unwrap()
}

/// Small integers: sums of products with them are exact, whatever their order.
pub(crate) fn integers(len: usize, seed: usize, most: usize) -> Vec<f32> {
    let numbers = (0..len).map(|i| ((i + seed) * 104_729 + (i + seed) / 13) % (2 * most + 1));
    numbers.map(|x| x as f32 - most as f32).collect()
}

/// The `entry` of every instance whose name begins so.
pub(crate) fn entries(prefix: &str) -> impl Iterator<Item = &'static str> {
    windrow_kernels::ENTRIES.iter().map(|entry| entry.name).filter(move |name| name.starts_with(prefix))
}

/// A product with what must not be seen made NaN: rows of `A` that no vector keeps, and what `C` held. One row that
/// some vector keeps is NaN, too, and must be seen in its columns.
pub(crate) struct Case {
    pub(crate) weights: VectorNm<f32>,
    pub(crate) m: usize,
    pub(crate) layout: ActivationLayout,
    /// As it is stored, without padding.
    pub(crate) a: Vec<f32>,
    pub(crate) want: Vec<f32>,
}

impl Case {
    pub(crate) fn new(shape: (usize, usize, usize), pattern: NmPattern, layout: ActivationLayout) -> Self {
        let case = Self::with(shape, pattern, layout, f32::NAN);
        let nans = case.want.iter().filter(|x| x.is_nan()).count();
        assert!(shape.1 == 0 || (1..case.want.len()).contains(&nans), "some must be seen, and some not");
        case
    }

    /// With a number in place of each NaN of `A`.
    pub(crate) fn with(
        (m, k, n): (usize, usize, usize),
        pattern: NmPattern,
        layout: ActivationLayout,
        unseen: f32,
    ) -> Self {
        let mut dense = integers(k * n, m, 4);
        // No vector keeps the first row of any group, if it may leave one.
        for row in (0..k).step_by(pattern.m()) {
            dense[row * n..][..n].fill(0.0);
        }
        let weights = prune_magnitude(&dense, k, n, pattern).unwrap();
        let mut vectors = vec![0; k];
        for u in 0..weights.kept_rows() {
            (0..weights.vectors()).for_each(|v| vectors[weights.source_row(u, v)] += 1);
        }
        let vectors_of = |row: usize| vectors[row];
        let mut a = integers(m * k, 7, 3);
        let seen = (0..k).filter(|&row| vectors_of(row) > 0).min_by_key(|&row| vectors_of(row));
        for row in (0..k).filter(|&row| vectors_of(row) == 0).chain(seen) {
            for i in 0..m {
                let at = if layout == ActivationLayout::RowMajor { i * k + row } else { row * m + i };
                if vectors_of(row) == 0 || i == m / 2 {
                    a[at] = unseen;
                }
            }
        }
        let want = NmSpmm::builder(&weights).layout(layout).build(&Device::cpu()).unwrap().run(&a).unwrap();
        Self { weights, m, layout, a, want }
    }

    /// Runs a plan for the case over a `C` of NaN.
    #[track_caller]
    pub(crate) fn check(&self, plan: &NmSpmmPlan) {
        match plan.precision() {
            Precision::F16 => self.check_typed::<f16>(plan),
            Precision::Bf16 => self.check_typed::<bf16>(plan),
            _ => self.check_typed::<f32>(plan),
        }
    }

    #[track_caller]
    fn check_typed<E: Element<Sum = f32>>(&self, plan: &NmSpmmPlan) {
        let (rows, cols) = self.layout.stored(self.m, self.weights.rows());
        let a: Vec<E> = self.a.iter().map(|&x| E::from_f32(x)).collect();
        let a = DeviceMatrix::upload(plan.device(), DenseRef::packed(&a, rows, cols).unwrap()).unwrap();
        let old = vec![f32::NAN; self.want.len()];
        let n = self.weights.cols();
        let mut c = DeviceMatrix::upload(plan.device(), DenseRef::packed(&old, self.m, n).unwrap()).unwrap();
        plan.run_into(&Epilogue::default(), &a, &mut c)
            .and_then(|()| Ok(c.download()?))
            .map(|got| {
                for (at, (got, want)) in got.iter().zip(&self.want).enumerate() {
                    let same = got == want || (got.is_nan() && want.is_nan());
                    assert!(same, "C[{}, {}]: {got} instead of {want}\n{}", at / n, at % n, plan.report());
                }
            })
            .unwrap_or_else(|error| panic!("{error}\n{}", plan.report()));
    }
}

/// Whether a device runs an entry: no GPU of another architecture runs those for one alone. Counts where it does not.
pub(crate) fn runs_on(device: &Device, entry: &str) -> bool {
    let arch = windrow_kernels::ENTRIES.iter().find(|known| known.name == entry).unwrap().arch;
    let runs = match (device.kind(), device.compute_capability()) {
        (DeviceKind::Cuda, Some((major, minor))) => arch.runs_on(10 * major + minor),
        _ => true,
    };
    if !runs {
        windrow_testkit::announce_skip(entry, 1, &format!("it is not for {device}"));
    }
    runs
}

pub(crate) fn layout(at: usize) -> ActivationLayout {
    ActivationLayout::ALL[at % 2]
}

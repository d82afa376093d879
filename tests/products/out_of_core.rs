//! Products out of core, on every device: small matrices under limits that are smaller.

use half::{bf16, f16};
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, Csr, DenseMut, Device, DeviceKind, Element, MatRef, OutOfCoreSpmm, Permutation, PinnedBuffer,
    PlanError, Precision, Spmm, SpmmError, SpmmOptions, Value,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::subjects::{Outcome, Subject, bits, matrix, reals};

/// What rows of `C` have behind their columns, where nothing may be written.
const UNTOUCHED: f32 = 77.0;

/// A product with whole numbers, so that sums are exact in any order and in any type.
struct Case {
    a: Csr<f32>,
    n: usize,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Case {
    fn new(pattern: &Pattern, n: usize, rng: &mut SplitMix64) -> Self {
        let a = pattern.with_values(Values::Integers, rng);
        let mut whole = |count: usize| (0..count).map(|_| rng.below(5) as f32 - 2.0).collect::<Vec<f32>>();
        let (b, c) = (whole(a.cols() * n), whole(a.rows() * n));
        Self { a, n, b, c }
    }

    /// What comes out: `2·A·B + beta·C`.
    fn want(&self, beta: f32) -> Vec<f32> {
        let mut want: Vec<f32> = self.c.iter().map(|c| beta * c).collect();
        for row in 0..self.a.rows() {
            let (columns, values) = self.a.row(row);
            for (&column, &value) in columns.iter().zip(values) {
                for j in 0..self.n {
                    want[row * self.n + j] += 2.0 * value * self.b[column as usize * self.n + j];
                }
            }
        }
        want
    }

    /// `2·A·B + beta·C` by a plan, with a column-major `B` and a `C` with gaps if `odd`.
    fn run<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        plan: &mut OutOfCoreSpmm,
        beta: f32,
        odd: bool,
    ) -> Result<Vec<f32>, SpmmError> {
        let (m, k, n) = (self.a.rows(), self.a.cols(), self.n);
        let to_b = |x: f32| <B as Value>::from_f32(x);
        let b: Vec<B> = match odd {
            true => (0..n).flat_map(|j| (0..k).map(move |row| to_b(self.b[row * n + j]))).collect(),
            false => self.b.iter().map(|&x| to_b(x)).collect(),
        };
        let b = if odd { MatRef::col_major(&b, k, n)? } else { MatRef::row_major(&b, k, n)? };
        let ld = if odd { n + 3 } else { n };
        let mut c = vec![<C as Value>::from_f32(UNTOUCHED); m * ld];
        for (row, old) in c.chunks_mut(ld.max(1)).zip(self.c.chunks(n.max(1))) {
            row.iter_mut().zip(old).for_each(|(to, &x)| *to = <C as Value>::from_f32(x));
        }
        let (alpha, beta) = (Value::from_f32(2.0), Value::from_f32(beta));
        plan.run_host(alpha, b, beta, DenseMut::try_new(&mut c, m, n, ld)?)?;
        let mut got = Vec::new();
        for row in c.chunks(ld.max(1)) {
            got.extend(row[..n].iter().map(|x| x.to_f32()));
            assert!(row[n..].iter().all(|x| x.to_f32() == UNTOUCHED), "a gap was written");
        }
        Ok(got)
    }
}

/// Rows of all sorts: none, short ones, one that is longer than a block would have them, an empty end; nothing at all.
fn patterns(rng: &mut SplitMix64) -> Vec<Pattern> {
    vec![
        Pattern::random(400, 90, 24, rng).with_dense_row(40),
        Pattern::power_law(500, 60, 40, rng).without_rows(450..500),
        Pattern::diagonal(70, 130),
        Pattern::empty(50, 10),
        Pattern::empty(0, 7),
        Pattern::empty(9, 0),
    ]
}

const fn options(algorithm: Algorithm, precision: Precision) -> SpmmOptions {
    SpmmOptions { algorithm, precision, ..SpmmOptions::DEFAULT }
}

/// Kinds of plans that blocks have.
fn kinds() -> Vec<SpmmOptions> {
    let threshold = VectorThreshold::try_new(0.25).unwrap();
    vec![
        options(Algorithm::Auto, Precision::F32),
        options(Algorithm::Auto, Precision::F16),
        options(Algorithm::RowSplit, Precision::F64),
        options(Algorithm::TileStream, Precision::Bf16),
        options(Algorithm::SegmentGroup, Precision::F32),
        options(Algorithm::MergePath, Precision::F32),
        options(Algorithm::MatricizedRows, Precision::F16),
        SpmmOptions {
            partition: Some(PartitionRule::ColumnVectors { threshold }),
            ..options(Algorithm::Hybrid, Precision::Tf32)
        },
    ]
}

#[test]
fn products_are_those_of_the_whole_matrix() {
    let mut rng = SplitMix64::new(71);
    let mut streamed = [0; 2];
    for (p, pattern) in patterns(&mut rng).iter().enumerate() {
        for (k, kind) in kinds().into_iter().enumerate() {
            let case = Case::new(pattern, [80, 1, 96, 9][(p + k) % 4], &mut rng);
            let beta = if k % 2 == p % 2 { 0.0 } else { -1.0 };
            let odd = (p + k) % 3 == 1;
            for device in kernel_devices(p + k).iter().chain([&Device::cpu()]) {
                let limit = [62, 76, 2000][(p + 2 * k) % 3] << 10;
                let kind = SpmmOptions { width: case.n, memory_limit: Some(limit), ..kind };
                let what = format!("{device}, pattern {p}, {kind:?}, beta {beta}, odd {odd}");
                let builder = Spmm::builder(&case.a).options(kind);
                let mut plan = builder.build_out_of_core(device).unwrap_or_else(|e| panic!("{what}: {e}"));
                if device.kind() != DeviceKind::Cpu {
                    assert!(plan.report().device_bytes <= limit, "{what}: {:?}", plan.report());
                    streamed[0] += usize::from(plan.report().a_bytes_up > 0);
                    streamed[1] += usize::from(plan.report().slices > 1);
                }
                for _ in 0..2 {
                    let got = match (kind.precision, k % 3) {
                        (Precision::F64, _) => case.run::<f64, f64>(&mut plan, beta, odd),
                        (_, 0) => case.run::<f32, f32>(&mut plan, beta, odd),
                        (_, 1) => case.run::<f16, f16>(&mut plan, beta, odd),
                        _ => case.run::<f16, bf16>(&mut plan, beta, odd),
                    };
                    let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
                    // Rounding to 8 or 11 bits, of sums of at most some hundreds, is the same here and there.
                    let round = |x: f32| match (kind.precision, k % 3) {
                        (Precision::F64, _) | (_, 0) => x,
                        (_, 1) => f16::from_f32(x).to_f32(),
                        _ => bf16::from_f32(x).to_f32(),
                    };
                    let want: Vec<f32> = case.want(beta).into_iter().map(round).collect();
                    assert_eq!(got, want, "{what}");
                }
            }
        }
    }
    assert!(streamed[0] > 5 && streamed[1] > 2, "blocks that came, and several slices: {streamed:?} cases");
    report_missing_gpu("products out of core", 48);
}

/// A matrix of which little stays on the device under `limit`.
fn streamed(device: &Device, options: SpmmOptions) -> (Case, OutOfCoreSpmm) {
    let mut rng = SplitMix64::new(72);
    let case = Case::new(&Pattern::random(400, 64, 30, &mut rng), options.width, &mut rng);
    let plan = Spmm::builder(&case.a).options(options).build_out_of_core(device).unwrap();
    (case, plan)
}

const SMALL: SpmmOptions =
    SpmmOptions { width: 32, memory_limit: Some(64 << 10), ..options(Algorithm::RowSplit, Precision::F32) };

#[test]
fn the_report_says_what_goes_which_way() {
    for device in kernel_devices(0) {
        let (case, plan) = streamed(&device, SMALL);
        let report = plan.report();
        assert!(report.blocks > 4 && report.resident_blocks < report.blocks, "{report:?}");
        assert_eq!(report.b_bytes_up, 64 * 32 * 4);
        assert_eq!(report.c_bytes_down, 400 * 32 * 4);
        // Columns, values and segments of all that does not stay, for each slice.
        let most = (case.a.nnz() * 8 + 16 * 400 + 1024 * report.blocks) * report.slices;
        assert!(report.a_bytes_up > 0 && report.a_bytes_up <= most as u64, "{report:?}");
        assert_eq!(report.device_bytes, report.arrays.iter().map(|array| array.bytes).sum::<u64>());
        let roomy = SpmmOptions { memory_limit: Some(1 << 20), ..SMALL };
        let (_, plan) = streamed(&device, roomy);
        assert_eq!((plan.report().a_bytes_up, plan.report().blocks), (0, plan.report().resident_blocks));
        assert!(plan.report().to_string().contains("stay on the device"));
    }
}

#[test]
fn other_widths_than_the_planned_are_sliced_alike() {
    for device in devices() {
        let (_, mut plan) = streamed(&device, SMALL);
        let mut rng = SplitMix64::new(73);
        for n in [0, 1, 33, 70] {
            let pattern = Pattern::random(400, 64, 30, &mut SplitMix64::new(72));
            let mut case = Case::new(&pattern, n, &mut rng);
            case.a = streamed(&Device::cpu(), SMALL).0.a;
            assert_eq!(
                case.run::<f32, f32>(&mut plan, 0.0, false).unwrap(),
                case.want(0.0),
                "{n} on {device}"
            );
        }
    }
}

#[test]
fn page_locked_operands_give_the_same_bits() {
    for device in devices() {
        for (precision, limit) in
            [(Precision::F32, 64 << 10), (Precision::F32, 1 << 20), (Precision::Tf32, 96 << 10)]
        {
            let (case, mut plan) = streamed(
                &device,
                SpmmOptions { precision, algorithm: Algorithm::Auto, memory_limit: Some(limit), ..SMALL },
            );
            let b = PinnedBuffer::from_slice(&device, &case.b).unwrap();
            for (ld, beta) in [(32, 0.0), (37, 3.0)] {
                let mut c = PinnedBuffer::from_slice(&device, &vec![UNTOUCHED; 400 * ld]).unwrap();
                for (row, old) in c.chunks_mut(ld).zip(case.c.chunks(32)) {
                    row[..32].copy_from_slice(old);
                }
                let b = MatRef::row_major(&b, 64, 32).unwrap();
                plan.run_host(2.0, b, beta, DenseMut::try_new(&mut c, 400, 32, ld).unwrap()).unwrap();
                let got: Vec<f32> = c.chunks(ld).flat_map(|row| row[..32].to_vec()).collect();
                assert_eq!(got, case.want(beta), "{device}, {precision}");
                assert!(c.chunks(ld).all(|row| row[32..].iter().all(|&x| x == UNTOUCHED)));
            }
        }
    }
}

#[test]
fn values_that_overflow_are_told() {
    let a = Csr::from_dense(2, 2, &[1e6f32, 1.0, -1e30, 0.0]).unwrap();
    for device in devices() {
        let plan = Spmm::builder(&a).precision(Precision::F16).build_out_of_core(&device).unwrap();
        assert_eq!(plan.report().overflowed_values, 2);
        assert!(plan.report().to_string().contains("2 values are infinite in f16"), "{}", plan.report());
    }
}

#[test]
fn an_order_of_all_rows_is_one_within_blocks() {
    let order = Permutation::try_from_new_to_old((0..400).map(|row| row * 7 % 400).collect()).unwrap();
    for device in kernel_devices(1) {
        let mut rng = SplitMix64::new(74);
        let case = Case::new(&Pattern::random(400, 64, 30, &mut rng), 32, &mut rng);
        let builder = Spmm::builder(&case.a).options(SMALL).order(&order);
        let mut plan = builder.build_out_of_core(&device).unwrap();
        assert!(plan.report().blocks > 1);
        assert_eq!(case.run::<f32, f32>(&mut plan, 1.0, false).unwrap(), case.want(1.0), "{device}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    for device in kernel_devices(2) {
        let mut rng = SplitMix64::new(75);
        // 64 rows of B in slices of eight columns, 32 bytes each, are 2 KiB; twelve arrays of 4 KiB are more.
        let case = Case::new(&Pattern::random(400, 64, 30, &mut rng), 32, &mut rng);
        let build = |options| Spmm::builder(&case.a).options(options).build_out_of_core(&device).map(|_| ());
        let error = build(SpmmOptions { memory_limit: Some(30 << 10), ..SMALL }).unwrap_err();
        let SpmmError::Plan(PlanError::MemoryLimit { needed, limit, .. }) = error else { panic!("{error}") };
        assert!(limit == 30 << 10 && needed > limit);
        build(SpmmOptions { memory_limit: Some(needed), ..SMALL }).unwrap();
        let order = Permutation::identity(3).unwrap();
        let error = Spmm::builder(&case.a).order(&order).build_out_of_core(&device).unwrap_err();
        assert!(error.to_string().contains("one for each row"), "{error}");
        let mut plan = Spmm::builder(&case.a).options(SMALL).build_out_of_core(&device).unwrap();
        let (b, mut c) = ([0.0f32; 63 * 32], vec![0.0f32; 400 * 32]);
        let b = MatRef::row_major(&b, 63, 32).unwrap();
        let error = plan.run_host(1.0, b, 0.0, DenseMut::packed(&mut c, 400, 32).unwrap()).unwrap_err();
        assert!(matches!(error, SpmmError::InnerDim { a_cols: 64, b_rows: 63 }), "{error}");
    }
}

/// For what is promised of all families: blocks that stay and others, slices that come beside products.
pub(crate) fn subject(device: &Device) -> Outcome<Box<dyn Subject>> {
    let a = matrix(Values::Reals);
    let options = SpmmOptions { width: 24, memory_limit: Some(76 << 10), ..SMALL };
    let plan = Spmm::builder(&a).options(options).build_out_of_core(device)?;
    Ok(Box::new(OutOfCore { plan, rows: a.rows(), cols: a.cols() }))
}

struct OutOfCore {
    plan: OutOfCoreSpmm,
    rows: usize,
    cols: usize,
}

impl Subject for OutOfCore {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let (b, mut c) = (reals(self.cols * 24, 9), vec![0.0; self.rows * 24]);
        let b = MatRef::row_major(&b, self.cols, 24)?;
        self.plan.run_host(1.0, b, 0.0, DenseMut::packed(&mut c, self.rows, 24)?)?;
        Ok(bits(&c))
    }
}

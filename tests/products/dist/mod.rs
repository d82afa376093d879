//! Products of matrices that several ranks have, on every device, against those of one.

mod links;
mod processes;
mod training;

use std::time::{Duration, Instant};

use half::f16;
use windrow::dist::{
    Communicator, DistCsr, DistReport, DistSddmm, DistSpmm, DistSpmmPlan, Ownership, Scheme,
};
use windrow::{
    Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, DistError, Element, PlanError, Precision, SddmmForm,
    SpmmError,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{gpu, report_missing_gpu, takes_turn};

/// What each rank of a group makes.
fn ranks<T: Send>(size: usize, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    at_once(Communicator::threads(size).unwrap(), work)
}

/// The same by turns: ranks that know each other, and ranks that meet as processes do.
fn ranks_by_turns<T: Send>(turn: usize, size: usize, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    if turn.is_multiple_of(2) { ranks(size, work) } else { processes::ranks(size, work) }
}

/// What a thread for each makes of some things.
fn at_once<I: Send, T: Send>(things: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = things.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A product with whole numbers, so that sums are exact in any order.
struct Case {
    name: String,
    a: Csr<f32>,
    n: usize,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Case {
    fn new(name: &str, pattern: &Pattern, n: usize, rng: &mut SplitMix64) -> Self {
        let a = pattern.with_values(Values::Integers, rng);
        let mut whole = |count: usize| (0..count).map(|_| rng.below(9) as f32 - 4.0).collect::<Vec<f32>>();
        let (b, c) = (whole(a.cols() * n), whole(a.rows() * n));
        Self { name: format!("{name}, {n} columns"), a, n, b, c }
    }

    /// `2·A·B − C`, of all ranks together.
    fn want(&self) -> Vec<f32> {
        let mut want: Vec<f32> = self.c.iter().map(|c| -c).collect();
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
}

/// Rows `rows` and columns `columns` of a matrix with `n` columns.
fn block<T: Element>(
    device: &Device,
    data: &[f32],
    n: usize,
    (rows, columns): (std::ops::Range<usize>, std::ops::Range<usize>),
) -> DeviceMatrix<T> {
    let part: Vec<T> = rows
        .clone()
        .flat_map(|row| data[row * n + columns.start..row * n + columns.end].iter().map(|&x| T::from_f32(x)))
        .collect();
    DeviceMatrix::upload(device, DenseRef::packed(&part, rows.len(), columns.len()).unwrap()).unwrap()
}

/// Runs a plan on this rank's part of a case; where it lies in `C`, and what it is.
fn run<T: Element<Sum = f32>>(
    plan: &DistSpmmPlan<'_>,
    part: &DistCsr<f32>,
    case: &Case,
) -> Result<[Vec<f32>; 2], DistError> {
    let (rank, all) = (plan.report().rank, 0..case.n);
    let (of_b, of_c) = match plan.columns() {
        Some(columns) => {
            let own = columns.range(rank);
            ((0..case.a.cols(), own.clone()), (0..case.a.rows(), own))
        }
        None => ((part.columns().range(rank), all.clone()), (part.rows().range(rank), all)),
    };
    let b = block::<T>(plan.device(), &case.b, case.n, of_b);
    let mut c = block::<f32>(plan.device(), &case.c, case.n, of_c.clone());
    assert_eq!((b.rows(), b.cols()), plan.operand_shape());
    assert_eq!((c.rows(), c.cols()), plan.result_shape());
    plan.run_into(2.0, &b, -1.0, &mut c)?;
    let want = block::<f32>(&Device::cpu(), &case.want(), case.n, of_c);
    Ok([c.download()?, want.download()?])
}

fn cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(22);
    let rng = &mut rng;
    let patterns = [
        ("nothing", Pattern::empty(0, 0)),
        ("no entries", Pattern::empty(5, 5)),
        ("one place", Pattern::dense(1, 1)),
        ("random", Pattern::random(60, 60, 9, rng)),
        ("power law", Pattern::power_law(90, 90, 80, rng)),
        ("wide", Pattern::random(20, 70, 12, rng)),
        ("tall", Pattern::random(70, 11, 6, rng)),
        ("diagonal", Pattern::diagonal(33, 33)),
        ("dense", Pattern::dense(16, 16)),
        ("band", band(80)),
    ];
    let widths = [8, 3, 1, 32, 17, 8, 5, 64, 2, 12];
    patterns.iter().zip(widths).map(|((name, pattern), n)| Case::new(name, pattern, n, rng)).collect()
}

/// Five neighbours each: ranks need few rows of others, for few rows.
fn band(rows: u32) -> Pattern {
    let near = |row: u32| (row.saturating_sub(2)..(row + 3).min(rows)).collect();
    Pattern { cols: rows as usize, rows: (0..rows).map(near).collect() }
}

fn devices() -> Vec<Device> {
    crate::common::devices()
}

/// Every scheme and number of ranks gives what one device does, to the bit: more ranks than rows, too.
#[test]
fn every_scheme_is_the_product() {
    let mut turn = 0;
    for case in cases() {
        for size in [1, 2, 3, 7] {
            for scheme in Scheme::ALL {
                turn += 1;
                let precision = [Precision::F32, Precision::F16][turn / 3 % 2];
                for device in devices().iter().filter(|device| takes_turn(device, turn)) {
                    let found = ranks_by_turns(turn / 2, size, |rank| {
                        let part = DistCsr::of(&rank, &case.a)?;
                        let builder = DistSpmm::builder(&rank, &part).scheme(scheme).width(case.n);
                        let plan = builder.precision(precision).build(device)?;
                        let pair = match precision {
                            Precision::F16 => run::<f16>(&plan, &part, &case)?,
                            _ => run::<f32>(&plan, &part, &case)?,
                        };
                        Ok::<_, DistError>((pair, plan.report().clone()))
                    });
                    for found in found {
                        let ([got, want], report) = found
                            .unwrap_or_else(|error| panic!("{}, {scheme} of {size}: {error}", case.name));
                        assert_eq!(got, want, "{}, {report} on {device}", case.name);
                        check_report(&report, scheme);
                    }
                }
            }
        }
    }
    report_missing_gpu("products of several ranks", turn);
}

fn check_report(report: &DistReport, asked: Scheme) {
    match report.scheme {
        Scheme::Halo => assert_eq!(report.received_rows, report.needed_rows, "{report}"),
        Scheme::AllGather => assert!(report.received_rows >= report.needed_rows, "{report}"),
        Scheme::Columns => assert_eq!((report.received_rows, report.sent_rows), (0, 0), "{report}"),
        _ => panic!("{report}"),
    }
    let is_as_asked = match asked {
        Scheme::Rows => matches!(report.scheme, Scheme::Halo | Scheme::AllGather),
        asked => report.scheme == asked,
    };
    assert!(is_as_asked && !report.to_string().is_empty(), "{asked}: {report}");
}

/// A band needs the rows next to one's own; a dense matrix needs all.
#[test]
fn the_scheme_follows_what_ranks_need() {
    let mut rng = SplitMix64::new(4);
    for (pattern, scheme, needed) in
        [(band(400), Scheme::Halo, 4), (Pattern::dense(40, 40), Scheme::AllGather, 30)]
    {
        let a = pattern.with_values(Values::Integers, &mut rng);
        let reports = ranks(4, |rank| {
            let part = DistCsr::of(&rank, &a).unwrap();
            DistSpmm::builder(&rank, &part).width(8).build(&Device::cpu()).unwrap().report().clone()
        });
        assert!(reports.iter().all(|report| report.scheme == scheme), "{reports:?}");
        assert_eq!(reports.iter().map(|report| report.needed_rows).max(), Some(needed));
        // Every row that somebody gets was sent.
        let sum = |of: fn(&DistReport) -> usize| reports.iter().map(of).sum::<usize>();
        assert_eq!(sum(|report| report.received_rows), sum(|report| report.sent_rows));
    }
}

/// Scores of one device, to the bit of exact sums, by either way of exchanging rows.
#[test]
fn sampled_products_are_those_of_one_device() {
    let mut turn = 0;
    for case in cases() {
        let (a, d) = (&case.a, case.n);
        let mut rng = SplitMix64::new(41);
        let mut whole = |count: usize| (0..count).map(|_| rng.below(9) as f32 - 4.0).collect::<Vec<f32>>();
        let (x, y) = (whole(a.rows() * d), whole(a.cols() * d));
        let mut want = Vec::new();
        for row in 0..a.rows() {
            for (&column, &value) in a.row(row).0.iter().zip(a.row(row).1) {
                let terms = x[row * d..][..d].iter().zip(&y[column as usize * d..][..d]);
                want.push(value * terms.map(|(x, y)| x * y).sum::<f32>());
            }
        }
        for (size, scheme) in
            [1, 2, 5].into_iter().flat_map(|size| [(size, Scheme::Halo), (size, Scheme::AllGather)])
        {
            turn += 1;
            for device in devices().iter().filter(|device| takes_turn(device, turn)) {
                let found = ranks_by_turns(turn / 2, size, |rank| {
                    let part = DistCsr::of(&rank, a)?;
                    let builder = DistSddmm::builder(&rank, &part).scheme(scheme).inner(d);
                    let plan = builder.precision(Precision::F16).form(SddmmForm::Scale).build(device)?;
                    let of_x = block::<f16>(device, &x, d, (part.rows().range(rank.rank()), 0..d));
                    let of_y = block::<f16>(device, &y, d, (part.columns().range(rank.rank()), 0..d));
                    let mut out = DeviceBuffer::<f32>::alloc_zeroed(device, part.local().nnz())?;
                    plan.run_into(1.0, &of_x, &of_y, &mut out)?;
                    check_report(plan.report(), scheme);
                    Ok::<_, DistError>(out.to_vec()?)
                });
                let found: Result<Vec<Vec<f32>>, DistError> = found.into_iter().collect();
                let found =
                    found.unwrap_or_else(|error| panic!("{}, {scheme} of {size}: {error}", case.name));
                assert_eq!(found.concat(), want, "{}, {scheme} of {size} on {device}", case.name);
            }
        }
    }
    let refused = ranks(1, |rank| {
        let part = DistCsr::of(&rank, &Csr::<f32>::identity(2).unwrap()).unwrap();
        DistSddmm::builder(&rank, &part)
            .scheme(Scheme::Columns)
            .build(&Device::cpu())
            .map(|_| ())
            .unwrap_err()
    });
    assert_eq!(refused, [DistError::NotByColumns]);
    report_missing_gpu("sampled products of several ranks", turn);
}

/// Rank 0 alone has the matrix, or reads it; the others have the parts that they would have of their own copy.
#[test]
fn one_rank_has_the_matrix_and_the_others_their_parts() {
    let mut rng = SplitMix64::new(11);
    let path = std::env::temp_dir().join(format!("windrow-dist-read-{}.mtx", std::process::id()));
    for (turn, (rows, cols)) in [(50, 50), (13, 40), (3, 9)].into_iter().enumerate() {
        let a = Pattern::random(rows, cols, 7, &mut rng).with_values(Values::Integers, &mut rng);
        windrow::io::write_csr(&path, &a, &windrow::io::WriteOptions::default()).unwrap();
        for size in [1, 3, 5] {
            let same = ranks_by_turns(turn, size, |rank| {
                let want = DistCsr::of(&rank, &a)?;
                let scattered = DistCsr::scattered(&rank, (rank.rank() == 0).then_some(&a))?;
                let read = DistCsr::<f32>::read(&rank, &path)?;
                let parts = [&want, &scattered, &read];
                let of = |of: fn(&DistCsr<f32>) -> &Ownership| parts.map(of);
                assert_eq!(parts.map(DistCsr::rank), [rank.rank(); 3]);
                Ok::<_, DistError>(
                    parts.iter().all(|part| part.local() == want.local())
                        && of(DistCsr::rows).iter().all(|rows| *rows == want.rows())
                        && of(DistCsr::columns).iter().all(|columns| *columns == want.columns()),
                )
            });
            assert!(same.iter().all(|same| *same == Ok(true)), "{same:?}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    let a = Csr::<f32>::identity(4).unwrap();
    for given in [[false, false], [true, true], [false, true]] {
        let texts = ranks(2, |rank| {
            DistCsr::scattered(&rank, given[rank.rank()].then_some(&a)).unwrap_err().to_string()
        });
        assert!(
            texts.iter().any(|text| text.contains("the whole matrix, which rank 0 alone gives")),
            "{texts:?}"
        );
    }
    let unread = ranks(2, |rank| DistCsr::<f32>::read(&rank, &path).unwrap_err().to_string());
    assert!(unread[0].starts_with(&path.display().to_string()), "{unread:?}");
    assert!(unread[1].contains("rank 0 failed") && unread[1].contains("No such file"), "{unread:?}");
}

/// No rank has the whole matrix, and the transposed one is owned by columns; there and back it is the same.
#[test]
fn parts_are_a_matrix_and_have_a_transpose() {
    let mut rng = SplitMix64::new(9);
    for (rows, cols) in [(50, 50), (13, 40), (40, 3)] {
        let a = Pattern::random(rows, cols, 7.min(cols), &mut rng).with_values(Values::Integers, &mut rng);
        for size in [1, 3, 5] {
            let owned = Ownership::even(rows, size);
            let parts = ranks(size, |rank| {
                let whole =
                    DistCsr::with_ownership(&rank, &a, owned.clone(), Ownership::even(cols, size)).unwrap();
                let joined = DistCsr::from_local(&rank, whole.local().clone(), None).unwrap();
                assert_eq!(joined.rows(), &owned);
                let transposed = joined.transpose(&rank).unwrap();
                let back = transposed.transpose(&rank).unwrap();
                assert!(back.local().bitwise_eq(whole.local()));
                transposed
            });
            let transposed = a.transpose().unwrap();
            for part in parts {
                let range = part.rows().range(part.rank());
                for (row, found) in range.zip(part.local().rows_iter()) {
                    assert_eq!(found, transposed.row(row));
                }
            }
        }
    }
}

/// The next product takes the result of the one before: `A·(A·B)`, with bits that no run changes.
#[test]
fn products_follow_one_another_and_repeat() {
    let mut rng = SplitMix64::new(31);
    let a = Pattern::power_law(120, 120, 60, &mut rng).with_values(Values::Reals, &mut rng);
    let b: Vec<f32> = (0..120 * 24).map(|_| rng.real()).collect();
    let device = gpu().unwrap_or_else(Device::cpu);
    let twice = || {
        ranks(3, |rank| {
            let part = DistCsr::of(&rank, &a).unwrap();
            let plan = DistSpmm::builder(&rank, &part).width(24).build(&device).unwrap();
            let own = part.columns().range(rank.rank());
            let b = block::<f32>(&device, &b, 24, (own, 0..24));
            let (rows, n) = plan.result_shape();
            let [mut once, mut twice] =
                [(); 2].map(|()| DeviceMatrix::<f32>::zeros(&device, rows, n).unwrap());
            plan.run_into(1.0, &b, 0.0, &mut once).unwrap();
            plan.run_into(1.0, &once, 0.0, &mut twice).unwrap();
            twice.download().unwrap()
        })
        .concat()
    };
    let found = twice();
    let times = |b: &[f64]| -> Vec<f64> {
        let row = |row: usize| {
            let (columns, values) = a.row(row);
            let term = move |j: usize, at: usize| f64::from(values[at]) * b[columns[at] as usize * 24 + j];
            (0..24).map(move |j| (0..columns.len()).map(|at| term(j, at)).sum::<f64>())
        };
        (0..120).flat_map(row).collect()
    };
    let want = times(&times(&b.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()));
    assert!(found.iter().zip(&want).all(|(x, y)| (f64::from(*x) - y).abs() <= 1e-4 * (1.0 + y.abs())));
    assert!(twice() == found, "other bits");
    report_missing_gpu("products that follow one another", 1);
}

/// What one rank does wrong is an error that names it on every other, and nobody hangs.
#[test]
fn a_rank_that_fails_is_named_by_the_others() {
    let a = Csr::<f32>::identity(12).unwrap();
    let begun = Instant::now();
    // Ranks that want different things.
    let found = ranks(3, |rank| {
        let part = DistCsr::of(&rank, &a).unwrap();
        let width = if rank.rank() == 1 { 9 } else { 8 };
        DistSpmm::builder(&rank, &part).width(width).build(&Device::cpu()).map(|_| ()).unwrap_err()
    });
    assert_eq!(
        found[0].to_string(),
        "ranks disagree on scheme, width and precision: rank 1 has [\"rows\",9,\"f32\"], rank 0 has [\"rows\",8,\"f32\"]"
    );
    // A plan that one cannot make.
    let found = ranks(3, |rank| {
        let part = DistCsr::of(&rank, &a).unwrap();
        let options = windrow::SpmmOptions {
            memory_limit: (rank.rank() == 2).then_some(1),
            width: 8,
            ..windrow::SpmmOptions::default()
        };
        let plan =
            DistSpmm::builder(&rank, &part).scheme(Scheme::Halo).options(options).build(&Device::cpu());
        plan.and_then(|plan| run::<f32>(&plan, &part, &Case { n: 8, ..empty(&a, 8) }))
            .map(|_| ())
            .unwrap_err()
    });
    assert!(
        matches!(&found[2], DistError::Spmm(SpmmError::Plan(PlanError::MemoryLimit { .. }))),
        "{found:?}"
    );
    for error in &found[..2] {
        assert!(
            matches!(error, DistError::RankFailed { rank: 2, reason, .. } if reason.contains("limit")),
            "{error}"
        );
    }
    // An operand of another shape.
    let a = Csr::from_dense(12, 12, &[1.0f32; 144]).unwrap();
    let found = ranks(2, |rank| {
        let part = DistCsr::of(&rank, &a).unwrap();
        let plan = DistSpmm::builder(&rank, &part).width(4).build(&Device::cpu()).unwrap();
        let rows = if rank.rank() == 0 { 5 } else { 6 };
        let b = DeviceMatrix::<f32>::zeros(&Device::cpu(), rows, 4).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&Device::cpu(), 6, 4).unwrap();
        plan.run_into(1.0, &b, 0.0, &mut c).unwrap_err()
    });
    assert!(matches!(found[0], DistError::Spmm(SpmmError::InnerDim { a_cols: 6, b_rows: 5 })), "{found:?}");
    assert!(matches!(found[1], DistError::RankFailed { rank: 0, waiting: 1, .. }), "{found:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "somebody waited");
}

/// A case of zeros.
fn empty(a: &Csr<f32>, n: usize) -> Case {
    Case { name: String::new(), a: a.clone(), n, b: vec![0.0; a.cols() * n], c: vec![0.0; a.rows() * n] }
}

#[test]
fn what_does_not_fit_the_group_is_refused() {
    let a = Csr::<f32>::identity(6).unwrap();
    let found = ranks(2, |rank| {
        let owned = Ownership::even(6, 2);
        let wrong = [Ownership::even(5, 2), Ownership::even(6, 3)];
        let of =
            |rows: &Ownership| DistCsr::with_ownership(&rank, &a, rows.clone(), owned.clone()).unwrap_err();
        wrong.each_ref().map(of)
    });
    for [rows, parts] in found {
        assert_eq!(rows.to_string(), "the division is of 5 rows among 2 ranks; there are 6 among 2");
        assert_eq!(parts.to_string(), "the division is of 6 rows among 3 ranks; there are 6 among 2");
    }
    let other = Csr::<f32>::identity(7).unwrap();
    let found = ranks(2, |rank| DistCsr::of(&rank, if rank.rank() == 0 { &a } else { &other }).unwrap_err());
    assert!(matches!(found[0], DistError::Disagreement { rank: 1, own_rank: 0, .. }), "{found:?}");
}

//! What every order of the rows promises.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use windrow_formats::synthetic::{SplitMix64, Synthetic};
use windrow_formats::{Coo, Csr, Permutation};

use super::*;

fn matrix(rows: usize, cols: usize, entries: &[(u32, u32)]) -> Csr<f32> {
    let (r, c): (Vec<u32>, Vec<u32>) = entries.iter().copied().unzip();
    let ones = vec![1.0; r.len()];
    Csr::try_from_coo(&Coo::try_new(rows, cols, r, c, ones).unwrap()).unwrap()
}

/// Any small matrix: random, or with a full row, a full column, or rows of a few kinds.
fn matrices() -> impl Strategy<Value = Csr<f32>> {
    (0..60usize, 1..50usize, 0..4u32).prop_flat_map(|(rows, cols, kind)| {
        let cell = (0..rows.max(1), 0..cols);
        prop::collection::vec(cell, if rows == 0 { 0..1 } else { 0..200 }).prop_map(move |cells| {
            let mut entries: Vec<(u32, u32)> = Vec::new();
            for (r, c) in cells.into_iter().filter(|_| rows > 0) {
                entries.push((narrow(r), narrow(c)));
                if kind == 3 {
                    entries.extend((r % 3..rows).step_by(3).map(|r| (narrow(r), narrow(c))));
                }
            }
            if rows > 0 {
                match kind {
                    1 => entries.extend((0..narrow(cols)).map(|c| (narrow(rows / 2), c))),
                    2 => entries.extend((0..narrow(rows)).map(|r| (r, narrow(cols / 2)))),
                    _ => {}
                }
            }
            matrix(rows, cols, &entries)
        })
    })
}

/// Rows in random order, columns along with them if the matrix is square.
fn shuffled(a: &Csr<f32>, seed: u64) -> Csr<f32> {
    let mut random = SplitMix64::new(seed);
    let mut order: Vec<u32> = (0..narrow(a.rows())).collect();
    for i in (1..narrow(a.rows())).rev() {
        order.swap(i as usize, random.below(i + 1) as usize);
    }
    let order = Permutation::try_from_new_to_old(order).unwrap();
    let moved = a.permute_rows(&order).unwrap();
    if a.rows() != a.cols() {
        return moved;
    }
    let (offsets, columns, values) = moved.into_parts();
    let columns = columns.iter().map(|&column| order.old_to_new()[column as usize]).collect();
    Csr::try_from_parts(a.rows(), a.cols(), offsets, columns, values).unwrap()
}

/// Column vectors of windows of 8 rows with entries, one set after another.
fn column_vectors(a: &Csr<f32>, order: &Permutation) -> u64 {
    let filled: Vec<u32> =
        order.new_to_old().iter().copied().filter(|&r| a.row_len(r as usize) > 0).collect();
    let distinct = |window: &[u32]| {
        window.iter().flat_map(|&r| a.row(r as usize).0).collect::<BTreeSet<_>>().len() as u64
    };
    filled.chunks(8).map(distinct).sum()
}

fn with(method: Method, similarity: SimilarityOptions) -> Options {
    Options { method, similarity }
}

/// Stages switched on by the bits of a number.
fn stages(bits: u32) -> SimilarityOptions {
    let on = |bit: u32| bits >> bit & 1 == 1;
    SimilarityOptions {
        forest: on(0),
        two_opt: on(1),
        isolated: on(2),
        windows: on(3),
        exchange: on(4),
        arrangement: on(5),
        ..SimilarityOptions::default()
    }
}

#[track_caller]
fn check(a: &Csr<f32>, options: &Options) -> Reordering {
    let found = reorder(a, options, &()).unwrap();
    let order = &found.permutation;
    assert_eq!(order.len(), a.rows());
    if options.method != Method::Identity && !found.kept_original {
        let lengths: Vec<bool> = order.new_to_old().iter().map(|&r| a.row_len(r as usize) > 0).collect();
        assert!(lengths.is_sorted_by(|a, b| a >= b), "rows without entries are last");
    }
    let Quality { before, after } = found.quality;
    let identity = Permutation::identity(a.rows()).unwrap();
    assert_eq!(before.column_vectors, column_vectors(a, &identity));
    assert_eq!(after.column_vectors, column_vectors(a, order));
    if options.method == Method::Similarity {
        assert!(after.column_vectors <= before.column_vectors, "{options:?}");
    }
    if found.kept_original || options.method == Method::Identity {
        assert!(order.is_identity() && before == after);
    }
    found
}

/// The same, and again with other numbers of threads.
#[track_caller]
fn check_threads(a: &Csr<f32>, options: &Options) {
    let found = check(a, options);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let again = pool.install(|| reorder(a, options, &()).unwrap());
        assert_eq!(again.permutation, found.permutation, "{threads} threads, {options:?}");
        assert_eq!(again.quality, found.quality, "{threads} threads, {options:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_method_permutes_any_matrix(a in matrices(), bits in 0..64u32) {
        for method in Method::ALL {
            check(&a, &with(method, stages(bits)));
        }
    }

    #[test]
    fn any_numbers_are_accepted(
        a in matrices(),
        alpha in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -10.0..10.0f64],
        counts in prop::array::uniform3(prop_oneof![Just(0usize), Just(1), 0..100usize, Just(usize::MAX)]),
    ) {
        let [neighbours, candidates, representatives] = counts;
        let options = SimilarityOptions {
            alpha,
            neighbours,
            candidates,
            representatives,
            ..SimilarityOptions::default()
        };
        check(&a, &with(Method::Similarity, options));
    }
}

#[test]
fn edges_of_shape() {
    let mut cases: Vec<Csr<f32>> =
        [(0, 0), (0, 5), (5, 0), (1, 1), (100, 7)].map(|(m, k)| Csr::zeros(m, k).unwrap()).to_vec();
    let all = |rows: u32, cols: u32| (0..rows).flat_map(move |r| (0..cols).map(move |c| (r, c)));
    cases.push(matrix(1, 300, &all(1, 300).collect::<Vec<_>>()));
    cases.push(matrix(300, 1, &all(300, 1).collect::<Vec<_>>()));
    cases.push(matrix(50, 30, &all(50, 30).collect::<Vec<_>>()));
    cases.push(Csr::identity(100).unwrap());
    let far = vec![0, 4_000_000_000, 7, u32::MAX - 1, 0];
    cases.push(Csr::try_from_parts(3, u32::MAX as usize, vec![0, 2, 4, 5], far, vec![1.0; 5]).unwrap());
    for a in &cases {
        for method in Method::ALL {
            check(a, &with(method, SimilarityOptions::default()));
        }
    }
}

/// A star: the first row and the first column are full, every row has one more column that two rows share.
fn star(n: u32) -> Csr<f32> {
    let rays = (0..n).flat_map(|i| [(0, i), (i, 0), (i, i / 2)]);
    matrix(n as usize, n as usize, &rays.collect::<Vec<_>>())
}

/// Six entries anywhere in each of 10,000 rows.
fn scattered() -> Vec<(u32, u32)> {
    let mut random = SplitMix64::new(3);
    (0..60_000).map(|i| (i / 6, random.below(10_000))).collect()
}

#[test]
fn the_order_does_not_depend_on_threads() {
    let entries = scattered();
    let uniform = matrix(10_000, 10_000, &entries);
    let tall = matrix(10_000, 500, &entries.iter().map(|&(r, c)| (r, c % 500)).collect::<Vec<_>>());
    for a in [&uniform, &tall, &star(5000)] {
        for method in Method::ALL {
            check_threads(a, &with(method, SimilarityOptions::default()));
        }
    }
    for bits in 0..64 {
        check_threads(&star(300), &with(Method::Similarity, stages(bits)));
    }
}

#[test]
fn hubs_cost_no_more_than_their_entries() {
    // Each of these would take minutes if something were quadratic in a row or column.
    let hub = star(200_000);
    let n = 100_000;
    // Two full rows; the others all different, one column each shared by all.
    let rows = (0..n).flat_map(|r| if r < 2 { vec![] } else { vec![(r, 0), (r, r)] });
    let two = matrix(
        n as usize,
        n as usize,
        &rows.chain((0..n).flat_map(|c| [(0, c), (1, c)])).collect::<Vec<_>>(),
    );
    // Rows of one kind, another kind that shares its columns, and many rows beside.
    let alike =
        (0..n).flat_map(|r| if r % 2 == 0 { vec![(r, 1), (r, 2)] } else { vec![(r, 2), (r, 3 + r / 64)] });
    let alike = matrix(n as usize, n as usize, &alike.collect::<Vec<_>>());
    let start = Instant::now();
    for a in [&hub, &two, &alike] {
        check(a, &Options::default());
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn shuffled_structure_is_found_again() {
    for kind in [Synthetic::Community60k, Synthetic::Fem100k] {
        let a = kind.generate::<f32>(1).unwrap();
        let original = reorder(&a, &with(Method::Identity, SimilarityOptions::default()), &()).unwrap();
        let mixed = shuffled(&a, 7);
        let found = |options| reorder(&mixed, &with(Method::Similarity, options), &()).unwrap().quality;
        let (want, all) = (original.quality.after, found(SimilarityOptions::default()));
        assert!(all.before.entries_per_vector < 1.01, "{kind} is shuffled");
        assert!(all.after.entries_per_vector > want.entries_per_vector, "{kind}: {all:?}");
        // The paper's own parameters take the most time of all: once.
        if kind == Synthetic::Community60k {
            let paper = found(SimilarityOptions::as_in_paper()).after.entries_per_vector;
            assert!(paper > want.entries_per_vector, "{kind}: {paper:?}");
            assert!(all.after.entries_per_vector > 1.03 * paper, "{kind}: {all:?}");
        }
        assert!(all.after.dissimilarity < 1.1 * want.dissimilarity, "{kind}: {all:?}");
        // Large-scale locality comes back too, to nine tenths.
        assert!(9 * all.after.block_columns < 10 * want.block_columns, "{kind}: {all:?} {want:?}");
    }
}

#[test]
fn an_order_that_is_good_stays_or_gets_better() {
    // Blocks of 8 rows that share all their columns: nothing can be gained.
    let blocks = (0..800u32).flat_map(|r| (0..6).map(move |c| (r, r / 8 * 6 + c)));
    let a = matrix(800, 600, &blocks.collect::<Vec<_>>());
    let found = check(&a, &Options::default());
    assert_eq!(found.quality.after.column_vectors, 600);
    assert!(found.permutation.is_identity(), "ties go to the original order");
}

/// Notes how long the one thread that works did not ask whether to go on, and whether stages keep to their totals.
struct Stopwatch {
    state: Mutex<Noted>,
    begun: Instant,
}

impl Stopwatch {
    /// For how long this thread has run. On Linux that is the time it had a core: a machine that is busy with other
    /// things makes nothing look slow.
    fn now(&self) -> Duration {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let run = stat.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok());
        run.map_or_else(|| self.begun.elapsed(), Duration::from_nanos)
    }
}

#[derive(Default)]
struct Noted {
    stages: Vec<(&'static str, u64, u64)>,
    asked: Option<Duration>,
    longest: Duration,
}

impl Watch for Stopwatch {
    fn begin(&self, stage: &'static str, total: u64) {
        self.state.lock().unwrap().stages.push((stage, total, 0));
    }

    fn step(&self, steps: u64) {
        self.state.lock().unwrap().stages.last_mut().unwrap().2 += steps;
    }

    fn cancelled(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let now = self.now();
        let since = state.asked.replace(now).map_or(Duration::ZERO, |asked| now - asked);
        state.longest = state.longest.max(since);
        false
    }
}

#[test]
fn the_watcher_is_asked_often_and_told_the_truth() {
    let a = shuffled(&Synthetic::Rmat17.generate(1).unwrap(), 5);
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    for method in Method::ALL {
        let watch = Stopwatch { state: Mutex::default(), begun: Instant::now() };
        let options = with(method, SimilarityOptions::default());
        one_thread.install(|| reorder(&a, &options, &watch)).unwrap();
        let noted = watch.state.into_inner().unwrap();
        for (stage, total, done) in noted.stages {
            assert!(done <= total && total <= 1000, "{stage}: {done} of {total}");
        }
        assert!(noted.longest < Duration::from_secs(1), "{method}: {:?} without a question", noted.longest);
    }
}

/// Ends the work at the n-th question.
struct Limited(AtomicU64);

impl Watch for Limited {
    fn cancelled(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn a_cancelled_reordering_ends_whenever_it_is_cancelled() {
    for a in [&matrix(10_000, 10_000, &scattered()), &star(20_000)] {
        let questions = Limited(AtomicU64::new(u64::MAX));
        reorder(a, &Options::default(), &questions).unwrap();
        let questions = u64::MAX - questions.0.into_inner();
        assert!(questions > 20, "{questions}");
        for tenth in [0, 1, 4, 8] {
            let watch = Limited(AtomicU64::new(questions * tenth / 10));
            assert_eq!(reorder(a, &Options::default(), &watch), Err(Stopped::Cancelled));
        }
    }
}

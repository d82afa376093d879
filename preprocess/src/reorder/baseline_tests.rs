//! What the orders to compare with promise: degree, reverse Cuthill–McKee, communities.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use windrow_formats::synthetic::SplitMix64;
use windrow_formats::{Coo, Csr, Permutation};

use super::pattern::narrow;
use super::watch::{Stopped, Watch};
use super::{community, degree, rcm};

type Order = fn(&Csr<f32>, &dyn Watch) -> Result<Vec<u32>, Stopped>;

const ORDERS: [(&str, Order); 3] =
    [("degree", degree::order), ("rcm", rcm::order), ("community", community::order)];

fn matrix(rows: usize, cols: usize, entries: &[(u32, u32)]) -> Csr<f32> {
    let (r, c): (Vec<u32>, Vec<u32>) = entries.iter().copied().unzip();
    let ones = vec![1.0; r.len()];
    Csr::try_from_coo(&Coo::try_new(rows, cols, r, c, ones).unwrap()).unwrap()
}

/// A random order of `0 .. len`.
fn shuffled(len: u32, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let mut order: Vec<u32> = (0..len).collect();
    for i in (1..len).rev() {
        order.swap(i as usize, random.below(i + 1) as usize);
    }
    order
}

/// Grid of `width × height` points, each joined to itself and to the four beside it, numbered at random.
fn shuffled_grid(width: u32, height: u32, seed: u64) -> Csr<f32> {
    let name = shuffled(width * height, seed);
    let at = |x: u32, y: u32| name[(y * width + x) as usize];
    let mut entries = Vec::new();
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        entries.push((at(x, y), at(x, y)));
        for (u, v) in [(x + 1, y), (x, y + 1)] {
            if u < width && v < height {
                entries.extend([(at(x, y), at(u, v)), (at(u, v), at(x, y))]);
            }
        }
    }
    matrix(name.len(), name.len(), &entries)
}

/// `max |i − j|` over the entries of the matrix with rows and columns in the new order.
fn bandwidth(a: &Csr<f32>, order: Vec<u32>) -> u32 {
    let order = Permutation::try_from_new_to_old(order).unwrap();
    let entries = (0..a.rows()).flat_map(|r| a.row(r).0.iter().map(move |&c| (r, c)));
    entries.map(|(r, c)| order.old_to_new()[r].abs_diff(order.old_to_new()[c as usize])).max().unwrap_or(0)
}

/// Which of `communities` a row belongs to, and a matrix with `inside` entries a row in the columns of its
/// community, `outside` elsewhere; rows in random order, columns of a community next to each other if
/// there are not as many as rows.
fn planted(communities: u32, rows: u32, cols: u32, (inside, outside): (u32, u32)) -> (Vec<u32>, Csr<f32>) {
    let mut random = SplitMix64::new(7);
    let order = shuffled(rows, 8);
    let of_row: Vec<u32> = order.iter().map(|&r| r % communities).collect();
    let columns: Vec<Vec<u32>> = (0..communities)
        .map(|i| {
            (0..cols)
                .filter(|&c| i == if rows == cols { of_row[c as usize] } else { c * communities / cols })
                .collect()
        })
        .collect();
    let mut entries = Vec::new();
    for r in 0..rows {
        let own = &columns[of_row[r as usize] as usize];
        entries.extend((0..inside).map(|_| (r, own[random.below(narrow(own.len())) as usize])));
        entries.extend((0..outside).map(|_| (r, random.below(cols))));
    }
    (of_row, matrix(rows as usize, cols as usize, &entries))
}

/// Share of neighbouring rows that belong to one community.
fn together(of_row: &[u32], order: &[u32]) -> f64 {
    let pairs = order.windows(2).filter(|pair| of_row[pair[0] as usize] == of_row[pair[1] as usize]);
    pairs.count() as f64 / (order.len() - 1) as f64
}

#[test]
fn cuthill_mckee_restores_the_band_of_a_path() {
    let order = rcm::order(&shuffled_grid(500, 1, 1), &()).unwrap();
    assert_eq!(bandwidth(&shuffled_grid(500, 1, 1), order), 1);
}

#[test]
fn cuthill_mckee_restores_the_band_of_a_grid() {
    for seed in 0..5 {
        let a = shuffled_grid(20, 70, seed);
        let before = bandwidth(&a, (0..1400).collect());
        let after = bandwidth(&a, rcm::order(&a, &()).unwrap());
        assert!(before > 1000 && after <= 21, "{before} became {after}; the grid is 20 wide");
    }
}

#[test]
fn cuthill_mckee_keeps_components_apart() {
    // Two paths, interleaved: even rows, odd rows; and row 8 alone.
    let entries: Vec<(u32, u32)> = (0..6).map(|i| (i, i + 2)).chain([(7, 7), (6, 6), (8, 8)]).collect();
    let order = rcm::order(&matrix(9, 9, &entries), &()).unwrap();
    let mut paths = [order[..4].to_vec(), order[4..8].to_vec()];
    paths.iter_mut().for_each(|path| {
        if path[0] > path[3] {
            path.reverse()
        }
    });
    assert_eq!(paths, [[0, 2, 4, 6], [1, 3, 5, 7]]);
    assert_eq!(order[8], 8);
}

#[test]
fn cuthill_mckee_walks_a_rectangular_matrix_through_its_columns() {
    // Row i has columns i and i + 1 of a path, the last column is a hub that every row has.
    let rows = 300;
    let name = shuffled(rows, 3);
    let path = (0..rows).flat_map(|i| [i, i + 1, rows + 1].map(|c| (name[i as usize], c)));
    let order = rcm::order(&matrix(300, 302, &path.collect::<Vec<_>>()), &()).unwrap();
    let mut want = name;
    if order[0] != want[0] {
        want.reverse();
    }
    assert_eq!(order, want);
}

#[test]
fn communities_come_together() {
    for (rows, cols, mix) in [(3000, 3000, (12, 4)), (3000, 2000, (12, 4)), (2000, 5000, (16, 2))] {
        let (of_row, a) = planted(60, rows, cols, mix);
        let before = together(&of_row, &(0..rows).collect::<Vec<_>>());
        let after = together(&of_row, &community::order(&a, &()).unwrap());
        assert!(before < 0.05 && after > 0.9, "{rows} x {cols}: {before} became {after}");
    }
}

#[test]
fn communities_of_two_cliques() {
    let clique = |rows: [u32; 4]| rows.into_iter().flat_map(move |r| rows.map(|c| (r, c)));
    let entries: Vec<_> = clique([0, 3, 4, 6]).chain(clique([1, 2, 5, 7])).chain([(0, 1)]).collect();
    let order = community::order(&matrix(8, 8, &entries), &()).unwrap();
    let in_first: Vec<bool> = order.iter().map(|r| [0, 3, 4, 6].contains(r)).collect();
    assert!(
        in_first == [[true; 4], [false; 4]].concat() || in_first == [[false; 4], [true; 4]].concat(),
        "{order:?}"
    );
}

/// Any small matrix, square ones among them, with full rows and columns now and then.
fn any_matrix() -> impl Strategy<Value = Csr<f32>> {
    let side = 0..40usize;
    (side.clone(), side, any::<bool>()).prop_flat_map(|(rows, cols, square)| {
        let cols = if square { rows } else { cols };
        let most = if rows * cols == 0 { 0 } else { 150 };
        let (r, c) = (0..narrow(rows.max(1)), 0..narrow(cols.max(1)));
        let entries = prop::collection::vec((r.clone(), c.clone()), 0..=most);
        (entries, prop::option::of(r), prop::option::of(c)).prop_map(move |(mut entries, row, column)| {
            if rows * cols > 0 {
                entries.extend(row.into_iter().flat_map(|r| (0..narrow(cols)).map(move |c| (r, c))));
                entries.extend(column.into_iter().flat_map(|c| (0..narrow(rows)).map(move |r| (r, c))));
            }
            matrix(rows, cols, &entries)
        })
    })
}

proptest! {
    #[test]
    fn every_order_permutes_the_rows_and_puts_empty_ones_last(a in any_matrix()) {
        for (name, order) in ORDERS {
            let new_to_old = order(&a, &()).unwrap();
            prop_assert_eq!(new_to_old.len(), a.rows(), "{}", name);
            let filled: Vec<bool> = new_to_old.iter().map(|&r| !a.row(r as usize).0.is_empty()).collect();
            prop_assert!(filled.is_sorted_by(|a, b| a >= b), "{}: {:?}", name, filled);
            prop_assert!(Permutation::try_from_new_to_old(new_to_old).is_ok(), "{}", name);
        }
    }

    #[test]
    fn every_order_is_the_same_again(a in any_matrix()) {
        for (name, order) in ORDERS {
            prop_assert_eq!(order(&a, &()).unwrap(), order(&a, &()).unwrap(), "{}", name);
        }
    }
}

#[test]
fn orders_do_not_depend_on_the_number_of_threads() {
    let (_, a) = planted(40, 20_000, 20_000, (10, 10));
    let (_, b) = planted(40, 20_000, 9_000, (10, 10));
    for (name, order) in ORDERS {
        for a in [&a, &b] {
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| order(a, &()).unwrap())
            };
            let one = with(1);
            assert!(one == with(2) && one == with(7), "{name}");
        }
    }
}

/// Counts what it is told, and cancels from some question on; never if that is 0.
#[derive(Default)]
struct Witness {
    promised: AtomicU64,
    done: AtomicU64,
    asked: AtomicU64,
    cancel_at: u64,
}

impl Watch for Witness {
    fn begin(&self, _: &'static str, total: u64) {
        assert_eq!(self.promised.fetch_add(total, Ordering::Relaxed), self.done.load(Ordering::Relaxed));
    }

    fn step(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.cancel_at != 0 && asked >= self.cancel_at
    }
}

#[test]
fn watchers_hear_of_every_step_and_may_cancel_at_any() {
    let (_, square) = planted(40, 20_000, 20_000, (20, 20));
    let (_, wide) = planted(40, 16_000, 30_000, (20, 20));
    for (name, order) in ORDERS {
        for a in [&square, &wide] {
            let witness = Witness::default();
            order(a, &witness).unwrap();
            assert_eq!(witness.done.into_inner(), witness.promised.into_inner(), "{name}");
            let questions = witness.asked.into_inner();
            assert!(questions >= if name == "degree" { 2 } else { 20 }, "{name}: {questions} questions");
            // Several threads may have asked before one of them stops.
            let threads = rayon::current_num_threads() as u64;
            for cancel_at in (1..=questions).step_by(7) {
                let witness = Witness { cancel_at, ..Witness::default() };
                assert_eq!(order(a, &witness), Err(Stopped::Cancelled), "{name}");
                let asked = witness.asked.into_inner();
                assert!(asked <= cancel_at + threads, "{name} goes on: {asked} questions, {cancel_at}");
            }
        }
    }
}

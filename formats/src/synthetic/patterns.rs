//! The eight patterns. Every draw is in a statement of its own: the order of the draws is the matrix.

use super::{SplitMix64, Synthetic};
use crate::memory::{try_collect, try_push, try_zeroed};
use crate::{Coo, Csr, FormatError, OutOfMemory};

/// What memory is for.
const DRAWN: &str = "places of entries";

/// Coordinates as they are drawn, duplicates included; values are of no concern yet.
#[derive(Default)]
struct Draws {
    rows: Vec<u32>,
    cols: Vec<u32>,
}

impl Draws {
    fn push(&mut self, row: u32, column: u32) -> Result<(), OutOfMemory> {
        try_push(&mut self.rows, row, DRAWN)?;
        try_push(&mut self.cols, column, DRAWN)
    }

    /// `(i, j)` and `(j, i)`.
    fn push_both(&mut self, i: u32, j: u32) -> Result<(), OutOfMemory> {
        self.push(i, j)?;
        self.push(j, i)
    }

    /// The `n × n` pattern, duplicates removed.
    fn into_csr(self, n: u32) -> Result<Csr<f32>, FormatError> {
        let values = try_zeroed(self.rows.len(), "values")?;
        Coo::try_new(n as usize, n as usize, self.rows, self.cols, values)?.to_csr()
    }
}

/// The pattern of `kind`; the values are zeros.
pub(super) fn pattern(kind: Synthetic) -> Result<Csr<f32>, FormatError> {
    match kind {
        Synthetic::Rmat17 => rmat(SplitMix64::new(1), 17),
        Synthetic::Uniform200k => uniform(SplitMix64::new(2), 200_000, 16),
        Synthetic::Fem100k => finite_elements(SplitMix64::new(3), 33_334),
        Synthetic::Molbatch300k => molecules(SplitMix64::new(4), 300_000),
        Synthetic::Powerlaw100k => power_law(SplitMix64::new(5), 100_000),
        Synthetic::Pruned4096 => pruned(SplitMix64::new(6), 4096),
        Synthetic::Roadlike500k => roads(SplitMix64::new(7), 500_000),
        Synthetic::Community60k => communities(SplitMix64::new(8), 60_000),
    }
}

/// `2^scale` vertices, 16 edges drawn for each; every bit of both ends is drawn together.
fn rmat(mut random: SplitMix64, scale: u32) -> Result<Csr<f32>, FormatError> {
    let n = 1 << scale;
    let mut draws = Draws::default();
    for _ in 0..16 * n {
        let (mut row, mut column) = (0, 0);
        for _ in 0..scale {
            let (row_bit, column_bit) = match random.next_f64() {
                q if q < 0.57 => (0, 0),
                q if q < 0.76 => (0, 1),
                q if q < 0.95 => (1, 0),
                _ => (1, 1),
            };
            row = 2 * row + row_bit;
            column = 2 * column + column_bit;
        }
        draws.push(row, column)?;
    }
    draws.into_csr(n)
}

/// `per_row` different columns in each row, uniform over the matrix.
fn uniform(mut random: SplitMix64, n: u32, per_row: usize) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    for row in 0..n {
        let first = draws.cols.len();
        while draws.cols.len() < first + per_row {
            let column = random.below(n);
            if !draws.cols[first..].contains(&column) {
                draws.push(row, column)?;
            }
        }
    }
    draws.into_csr(n)
}

/// A symmetric band of nodes, near neighbours likelier; every node is a dense 3 × 3 block with each neighbour.
fn finite_elements(mut random: SplitMix64, nodes: u32) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    for i in 0..nodes {
        draws.push(i, i)?;
        let neighbours = 6 + random.below(4);
        for _ in 0..neighbours {
            let u = random.next_f64();
            let j = i + 1 + truncate(u * u * 120.0);
            if j < nodes {
                draws.push_both(i, j)?;
            }
        }
    }
    let neighbours = draws.into_csr(nodes)?;
    let mut blocks = Draws::default();
    for (node, (cols, _)) in (0..nodes).zip(neighbours.rows_iter()) {
        for unknown in 0..3 {
            for &column in cols {
                (0..3).try_for_each(|q| blocks.push(3 * node + unknown, 3 * column + q))?;
            }
        }
    }
    blocks.into_csr(3 * nodes)
}

/// Diagonal blocks of 20 to 40 atoms: a random tree, a few ring closures, the diagonal.
fn molecules(mut random: SplitMix64, n: u32) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    let mut first = 0;
    while first < n {
        let atoms = (20 + random.below(21)).min(n - first);
        for i in 0..atoms {
            draws.push(first + i, first + i)?;
            if i > 0 {
                let parent = i - 1 - random.below(i.min(3));
                draws.push_both(first + i, first + parent)?;
            }
        }
        for _ in 0..atoms / 8 {
            let x = random.below(atoms);
            let y = random.below(atoms);
            if x != y {
                draws.push_both(first + x, first + y)?;
            }
        }
        first += atoms;
    }
    draws.into_csr(n)
}

/// Row lengths `50 000 / i^0.9`, the first four longer still, dealt to rows at random; columns lean to 0.
fn power_law(mut random: SplitMix64, n: u32) -> Result<Csr<f32>, FormatError> {
    let mut rows: Vec<u32> = try_collect(0..n, DRAWN)?;
    for i in (1..n).rev() {
        rows.swap(i as usize, random.below(i + 1) as usize);
    }
    let mut draws = Draws::default();
    for (i, row) in (0..).zip(rows) {
        let len = match i {
            0..4 => 60_000 - 10_000 * i,
            _ => truncate(50_000.0 / f64::from(i + 1).powf(0.9)).max(2),
        };
        for _ in 0..len {
            let z = random.next_f64().powf(1.5);
            draws.push(row, truncate(z * f64::from(n)))?;
        }
    }
    draws.into_csr(n)
}

/// Every entry kept with probability 0.1.
fn pruned(mut random: SplitMix64, n: u32) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    for row in 0..n {
        for column in 0..n {
            if random.next_f64() < 0.1 {
                draws.push(row, column)?;
            }
        }
    }
    draws.into_csr(n)
}

/// One to three edges from each vertex to one of the next 600.
fn roads(mut random: SplitMix64, n: u32) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    for i in 0..n {
        let edges = 1 + random.below(3);
        for _ in 0..edges {
            let j = i + 1 + random.below(600);
            if j < n {
                draws.push_both(i, j)?;
            }
        }
    }
    draws.into_csr(n)
}

/// From each vertex 30 edges into its community of 300 and 10 anywhere.
fn communities(mut random: SplitMix64, n: u32) -> Result<Csr<f32>, FormatError> {
    let mut draws = Draws::default();
    for i in 0..n {
        let community = i / 300 * 300;
        for _ in 0..30 {
            let j = community + random.below(300);
            draws.push_both(i, j)?;
        }
        for _ in 0..10 {
            let j = random.below(n);
            draws.push_both(i, j)?;
        }
    }
    draws.into_csr(n)
}

/// The integer part of a number in `[0, 2³²)`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the integer part is what is wanted, of numbers that are never negative"
)]
pub(super) fn truncate(x: f64) -> u32 {
    x as u32
}

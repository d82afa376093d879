//! Made-up matrices of many structures, beside the eight that have names everywhere: so that what costs are fitted to
//! has more than a few of each. The same name gives the same pattern everywhere.

use std::fmt;
use std::str::FromStr;

use windrow::synthetic::{SplitMix64, seeded_values};
use windrow::{Coo, Csr};

use crate::measure::BenchError;

/// A made-up matrix, by its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Family {
    name: &'static str,
    structure: Structure,
}

/// How a matrix is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Structure {
    /// So many columns for each row, anywhere.
    Uniform { rows: u32, per_row: u32 },
    /// So many for each row, at most so far from the diagonal.
    Band { rows: u32, per_row: u32, reach: u32 },
    /// A grid with so many points a side, and which of a point's neighbours differ in how many coordinates at most.
    Grid { side: u32, dimensions: u32, differ: u32, shuffled: bool },
    /// Graphs side by side, of `least` vertices and up to `more` more, of whose pairs a share are edges.
    Graphs { rows: u32, least: u32, more: u32, share: f64, shuffled: bool },
    /// From each vertex so many edges into its community, and so many anywhere.
    Communities { rows: u32, size: u32, inside: u32, outside: u32 },
    /// Triangles of a strip of a mesh: three neighbours and their diagonal.
    Dual { rows: u32, width: u32 },
    /// Stars of so many vertices, in a chain.
    Stars { rows: u32, size: u32 },
    /// A graph of 2^scale vertices, for each of which so many edges are drawn as R-MAT does.
    Rmat { scale: u32, edges: u32 },
    /// Weights of which a share is kept, in rows of which some keep several times as much as others.
    Pruned { rows: u32, cols: u32, share: f64 },
    /// Rows of `least` entries and more, whose lengths have a long tail; `popular` columns are drawn oftener.
    Tail { rows: u32, cols: u32, least: f64, tail: Tail, popular: bool },
    /// Short rows, and one with entries in half the columns.
    LongRow { rows: u32, per_row: u32 },
}

/// What lengths of rows follow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tail {
    /// `least / u^(1/a)`, with `u` uniform.
    Pareto(f64),
    /// `least · exp(σ·z)`, `z` normal.
    LogNormal(f64),
}

const fn of(name: &'static str, structure: Structure) -> Family {
    Family { name, structure }
}

impl Family {
    /// All of them, in no order.
    #[rustfmt::skip]
    pub(crate) const ALL: [Self; 32] = {
        use Structure::{Band, Communities, Dual, Graphs, Grid, LongRow, Pruned, Rmat, Stars, Tail as Tailed, Uniform};
        [
            of("band25", Band { rows: 100_000, per_row: 25, reach: 37 }),
            of("band60", Band { rows: 40_000, per_row: 60, reach: 193 }),
            of("band80", Band { rows: 60_000, per_row: 80, reach: 2500 }),
            of("regular40", Uniform { rows: 30_000, per_row: 40 }),
            of("regular6", Uniform { rows: 500_000, per_row: 6 }),
            of("small20", Uniform { rows: 2000, per_row: 20 }),
            of("small100", Uniform { rows: 1000, per_row: 100 }),
            of("tiny30", Uniform { rows: 300, per_row: 30 }),
            of("grid5", Grid { side: 400, dimensions: 2, differ: 1, shuffled: false }),
            of("grid9", Grid { side: 300, dimensions: 2, differ: 2, shuffled: false }),
            of("grid9-shuffled", Grid { side: 300, dimensions: 2, differ: 2, shuffled: true }),
            of("grid27", Grid { side: 40, dimensions: 3, differ: 3, shuffled: false }),
            of("grid27-shuffled", Grid { side: 40, dimensions: 3, differ: 3, shuffled: true }),
            of("graphs16", Graphs { rows: 125_000, least: 20, more: 60, share: 0.3, shuffled: false }),
            of("graphs110", Graphs { rows: 100_000, least: 50, more: 350, share: 0.45, shuffled: false }),
            of("cliques", Graphs { rows: 28_000, least: 40, more: 80, share: 1.0, shuffled: false }),
            of("cliques-shuffled", Graphs { rows: 28_000, least: 40, more: 80, share: 1.0, shuffled: true }),
            of("communities16k", Communities { rows: 16_000, size: 200, inside: 42, outside: 12 }),
            of("dual200k", Dual { rows: 200_000, width: 447 }),
            of("stars50k", Stars { rows: 50_000, size: 100 }),
            of("rmat14", Rmat { scale: 14, edges: 40 }),
            of("rmat16", Rmat { scale: 16, edges: 9 }),
            of("rmat18", Rmat { scale: 18, edges: 6 }),
            of("pruned1024x8192", Pruned { rows: 1024, cols: 8192, share: 0.1 }),
            of("pruned4096x11008", Pruned { rows: 4096, cols: 11_008, share: 0.1 }),
            of("pruned2048x2048", Pruned { rows: 2048, cols: 2048, share: 0.2 }),
            of("pruned4096x1024", Pruned { rows: 4096, cols: 1024, share: 0.05 }),
            of("pruned512x512", Pruned { rows: 512, cols: 512, share: 0.3 }),
            of("pareto20k", Tailed { rows: 20_000, cols: 20_000, least: 5.0, tail: Tail::Pareto(1.5), popular: false }),
            of("lognormal8k", Tailed { rows: 8000, cols: 8000, least: 24.0, tail: Tail::LogNormal(0.8), popular: false }),
            of("users60k", Tailed { rows: 60_000, cols: 2500, least: 8.0, tail: Tail::LogNormal(0.8), popular: true }),
            of("longrow20k", LongRow { rows: 20_000, per_row: 8 }),
        ]
    };

    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// The matrix, with values of a seed.
    pub(crate) fn generate(self, value_seed: u64) -> Result<Csr<f32>, BenchError> {
        // Of its name, so that none changes where others come or go.
        let seed = self.name.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
        let pattern = self.structure.drawn(&mut SplitMix64::new(seed)).into_csr()?;
        let values = seeded_values(pattern.nnz(), value_seed)?;
        Ok(pattern.with_values(values)?)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ALL.iter();
        let known = || all().map(|family| family.name).collect::<Vec<_>>().join(", ");
        all().find(|of| of.name == name).copied().ok_or_else(|| format!("unknown; families are {}", known()))
    }
}

/// Places of entries as they are drawn, some twice.
struct Draws {
    rows: u32,
    cols: u32,
    places: Vec<[u32; 2]>,
}

impl Draws {
    const fn new(rows: u32, cols: u32) -> Self {
        Self { rows, cols, places: Vec::new() }
    }

    fn push(&mut self, row: u32, col: u32) {
        self.places.push([row, col]);
    }

    fn push_both(&mut self, i: u32, j: u32) {
        self.push(i, j);
        self.push(j, i);
    }

    /// Vertices by other numbers.
    fn shuffle(&mut self, random: &mut SplitMix64) {
        let mut number: Vec<u32> = (0..self.rows).collect();
        for i in (1..self.rows).rev() {
            number.swap(i as usize, random.below(i + 1) as usize);
        }
        self.places.iter_mut().flatten().for_each(|vertex| *vertex = number[*vertex as usize]);
    }

    fn into_csr(self) -> Result<Csr<f32>, BenchError> {
        let (rows, cols) = self.places.iter().map(|&[row, col]| (row, col)).unzip();
        let values = vec![0.0; self.places.len()];
        Ok(Coo::try_new(self.rows as usize, self.cols as usize, rows, cols, values)?.to_csr()?)
    }
}

impl Structure {
    fn drawn(self, random: &mut SplitMix64) -> Draws {
        match self {
            Self::Uniform { rows, per_row } => {
                rows_of(random, [rows, rows], |_, _| per_row, |random, _| random.below(rows))
            }
            Self::Band { rows, per_row, reach } => {
                let near = |random: &mut SplitMix64, row: u32| {
                    (row + random.below(2 * reach + 1)).saturating_sub(reach).min(rows - 1)
                };
                rows_of(random, [rows, rows], |_, _| per_row, near)
            }
            Self::Grid { side, dimensions, differ, shuffled } => {
                let mut draws = grid(side, dimensions, differ);
                if shuffled {
                    draws.shuffle(random);
                }
                draws
            }
            Self::Graphs { rows, least, more, share, shuffled } => {
                let mut draws = graphs(random, rows, least, more, share);
                if shuffled {
                    draws.shuffle(random);
                }
                draws
            }
            Self::Communities { rows, size, inside, outside } => {
                let mut draws = Draws::new(rows, rows);
                for i in 0..rows {
                    for _ in 0..inside {
                        draws.push_both(i, (i / size * size + random.below(size)).min(rows - 1));
                    }
                    for _ in 0..outside {
                        draws.push_both(i, random.below(rows));
                    }
                }
                draws
            }
            Self::Dual { rows, width } => {
                let mut draws = Draws::new(rows, rows);
                for i in 0..rows {
                    draws.push(i, i);
                    if i + 1 < rows {
                        draws.push_both(i, i + 1);
                    }
                    if i % 2 == 0 && i + 2 * width + 1 < rows {
                        draws.push_both(i, i + 2 * width + 1);
                    }
                }
                draws
            }
            Self::Stars { rows, size } => {
                let mut draws = Draws::new(rows, rows);
                for i in 0..rows {
                    draws.push(i, i);
                    let hub = i / size * size;
                    match i == hub {
                        true if hub > 0 => draws.push_both(hub, hub - size),
                        true => {}
                        false => draws.push_both(i, hub),
                    }
                }
                draws
            }
            Self::Rmat { scale, edges } => rmat(random, scale, edges),
            Self::Pruned { rows, cols, share } => {
                let mut draws = Draws::new(rows, cols);
                for row in 0..rows {
                    let kept = (share * exponential(random)).min(5.0 * share);
                    for col in 0..cols {
                        if random.next_f64() < kept {
                            draws.push(row, col);
                        }
                    }
                }
                draws
            }
            Self::Tail { rows, cols, least, tail, popular } => {
                let length =
                    |random: &mut SplitMix64, _| truncate(tail.length(random, least)).clamp(1, cols / 4);
                rows_of(random, [rows, cols], length, |random, _| {
                    let u = random.next_f64();
                    truncate(f64::from(cols) * if popular { u * u } else { u })
                })
            }
            Self::LongRow { rows, per_row } => {
                let length = |_: &mut SplitMix64, row| if row == rows / 3 { rows * 3 / 4 } else { per_row };
                rows_of(random, [rows, rows], length, |random, _| random.below(rows))
            }
        }
    }
}

/// Rows of which each has as many draws as `length` says, of columns that `column` draws.
fn rows_of(
    random: &mut SplitMix64,
    [rows, cols]: [u32; 2],
    mut length: impl FnMut(&mut SplitMix64, u32) -> u32,
    column: impl Fn(&mut SplitMix64, u32) -> u32,
) -> Draws {
    let mut draws = Draws::new(rows, cols);
    for row in 0..rows {
        for _ in 0..length(random, row) {
            let col = column(random, row);
            draws.push(row, col);
        }
    }
    draws
}

/// The points of a grid, each with those that are beside it in so many coordinates at most.
fn grid(side: u32, dimensions: u32, differ: u32) -> Draws {
    let points = side.pow(dimensions);
    let mut draws = Draws::new(points, points);
    for point in 0..points {
        for neighbour in 0..3_u32.pow(dimensions) {
            let (mut at, mut place, mut differing) = (0, 1, 0);
            let is_inside = (0..dimensions).all(|axis| {
                let (own, step) = (point / side.pow(axis) % side, neighbour / 3_u32.pow(axis) % 3);
                if !(1..=side).contains(&(own + step)) {
                    return false;
                }
                differing += u32::from(step != 1);
                at += place * (own + step - 1);
                place *= side;
                true
            });
            if is_inside && differing <= differ {
                draws.push(point, at);
            }
        }
    }
    draws
}

/// Graphs side by side.
fn graphs(random: &mut SplitMix64, rows: u32, least: u32, more: u32, share: f64) -> Draws {
    let mut draws = Draws::new(rows, rows);
    let mut first = 0;
    while first < rows {
        let end = rows.min(first + least + random.below(more));
        for i in first..end {
            draws.push(i, i);
            for j in first..i {
                if random.next_f64() < share {
                    draws.push_both(i, j);
                }
            }
        }
        first = end;
    }
    draws
}

/// Every bit of both ends of an edge is drawn together.
fn rmat(random: &mut SplitMix64, scale: u32, edges: u32) -> Draws {
    let vertices = 1 << scale;
    let mut draws = Draws::new(vertices, vertices);
    for _ in 0..edges * vertices {
        let [mut row, mut col] = [0, 0];
        for _ in 0..scale {
            let (row_bit, col_bit) = match random.next_f64() {
                q if q < 0.57 => (0, 0),
                q if q < 0.76 => (0, 1),
                q if q < 0.95 => (1, 0),
                _ => (1, 1),
            };
            (row, col) = (2 * row + row_bit, 2 * col + col_bit);
        }
        draws.push(row, col);
    }
    draws
}

impl Tail {
    fn length(self, random: &mut SplitMix64, least: f64) -> f64 {
        let u = 1.0 - random.next_f64();
        match self {
            Self::Pareto(a) => least * u.powf(-1.0 / a),
            Self::LogNormal(sigma) => {
                let angle = std::f64::consts::TAU * random.next_f64();
                least * (sigma * (-2.0 * u.ln()).sqrt() * angle.cos()).exp()
            }
        }
    }
}

/// A number of mean 1.
fn exponential(random: &mut SplitMix64) -> f64 {
    -(1.0 - random.next_f64()).ln()
}

/// The integer part of a number in `[0, 2³²)`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the integer part is wanted")]
fn truncate(x: f64) -> u32 {
    x as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are not those of others, and give what they say.
    #[test]
    fn families_have_the_structure_that_they_are_named_for() {
        for (at, family) in Family::ALL.iter().enumerate() {
            assert_eq!(family.name.parse(), Ok(*family));
            assert!(Family::ALL[..at].iter().all(|other| other.name != family.name), "{family}");
            assert!(family.name.parse::<windrow::synthetic::Synthetic>().is_err(), "{family}");
        }
        let longest = |a: &Csr<f32>| (0..a.rows()).map(|row| a.row_len(row)).max();
        let a = |name: &str| name.parse::<Family>().unwrap().generate(1).unwrap();
        assert_eq!((a("tiny30").rows(), longest(&a("tiny30"))), (300, Some(30)));
        // All neighbours but those beyond the border.
        assert_eq!(a("grid9").nnz(), 9 * 300 * 300 - 3 * 4 * 300 + 4);
        assert_eq!(a("grid9-shuffled").nnz(), a("grid9").nnz());
        assert_eq!(a("grid27").nnz(), (3 * 40_usize - 2).pow(3));
        assert_eq!(a("stars50k").nnz(), 3 * 50_000 - 2);
        let band = a("band25");
        let reach = |row: usize| band.row(row).0.iter().map(|&col| row.abs_diff(col as usize)).max();
        assert_eq!((0..band.rows()).map(reach).max().flatten(), Some(37));
        assert!(longest(&a("longrow20k")) > Some(10_000) && longest(&a("pareto20k")) > Some(500));
        assert_eq!(a("users60k").cols(), 2500);
    }
}

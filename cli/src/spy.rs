//! A picture of where a matrix has entries, in Braille characters.

use std::str::FromStr;

use serde::Serialize;
use windrow::{Csr, Value};

/// Dots of one character.
const DOTS_WIDE: usize = 2;
const DOTS_HIGH: usize = 4;

/// Largest picture in either direction, in characters.
const MAX_CHARACTERS: usize = 1000;

/// More of the dots lit than this, and a dot stands for how many entries there are, not for whether there are any.
const CROWDED_SHARE: f64 = 0.5;

/// Thresholds of an ordered dither, in sixteenths (Bayer 1973).
const DITHER: [[u8; 4]; 4] = [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]];

/// Width and height of a picture in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpySize {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl SpySize {
    /// As large as the terminal that standard output goes to, or 80 × 24; some lines are left for text.
    pub(crate) fn of_terminal() -> Self {
        let (height, width) = ::console::Term::stdout().size_checked().unwrap_or((24, 80));
        Self {
            width: usize::from(width).saturating_sub(2).clamp(8, MAX_CHARACTERS),
            height: usize::from(height).saturating_sub(4).clamp(4, MAX_CHARACTERS),
        }
    }
}

impl FromStr for SpySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=MAX_CHARACTERS).contains(side));
        text.split_once(['x', 'X', '×'])
            .and_then(|(width, height)| Some(Self { width: side(width)?, height: side(height)? }))
            .ok_or_else(|| {
                format!("{text:?} is no size; write width x height in characters, each 1 to {MAX_CHARACTERS}: 60x30")
            })
    }
}

/// A picture: lines of Braille characters, and what a dot stands for.
#[derive(Debug, Serialize)]
pub(crate) struct Spy {
    /// Rows of the matrix that one dot covers, not a whole number as a rule.
    pub(crate) rows_a_dot: f64,
    /// Columns that one dot covers.
    pub(crate) cols_a_dot: f64,
    /// Whether dots are thinned out by density; else every dot with an entry is lit.
    pub(crate) dithered: bool,
    /// The most entries that a dot covers.
    pub(crate) most_a_dot: u64,
    /// The picture.
    pub(crate) lines: Vec<String>,
}

/// Numbers of entries per dot.
struct Grid {
    wide: usize,
    high: usize,
    counts: Vec<u64>,
}

impl Spy {
    /// A picture of `a`, at most `size` large, in the proportions of the matrix.
    pub(crate) fn of<V: Value>(a: &Csr<V>, size: SpySize) -> Self {
        let grid = Grid::of(a, size);
        let lit = grid.counts.iter().filter(|&&count| count > 0).count();
        let dithered = lit as f64 > CROWDED_SHARE * grid.counts.len() as f64 && !grid.shows_every_entry(a);
        let most = grid.counts.iter().copied().max().unwrap_or(0);
        let is_lit = |x: usize, y: usize| {
            let count = grid.counts[y * grid.wide + x];
            let threshold = f64::from(DITHER[y % 4][x % 4]) / 16.0;
            count > 0 && (!dithered || level(count, most) > threshold)
        };
        let lines = (0..grid.high.div_ceil(DOTS_HIGH))
            .map(|line| {
                (0..grid.wide.div_ceil(DOTS_WIDE))
                    .map(|column| {
                        braille(|x, y| {
                            let (x, y) = (column * DOTS_WIDE + x, line * DOTS_HIGH + y);
                            x < grid.wide && y < grid.high && is_lit(x, y)
                        })
                    })
                    .collect()
            })
            .collect();
        let a_dot = |length: usize, dots: usize| if dots == 0 { 0.0 } else { length as f64 / dots as f64 };
        Self {
            rows_a_dot: a_dot(a.rows(), grid.high),
            cols_a_dot: a_dot(a.cols(), grid.wide),
            dithered,
            most_a_dot: most,
            lines,
        }
    }
}

impl Grid {
    fn of<V: Value>(a: &Csr<V>, size: SpySize) -> Self {
        let (high, wide) = dots(a.rows(), a.cols(), size);
        let mut counts = vec![0; high * wide];
        if high * wide > 0 {
            for (row, (cols, _)) in a.rows_iter().enumerate() {
                let line = scale(row, a.rows(), high) * wide;
                for &col in cols {
                    counts[line + scale(col as usize, a.cols(), wide)] += 1;
                }
            }
        }
        Self { wide, high, counts }
    }

    /// Whether a dot stands for one place of the matrix.
    fn shows_every_entry<V: Value>(&self, a: &Csr<V>) -> bool {
        (self.high, self.wide) == (a.rows(), a.cols())
    }
}

/// Dots for a matrix: as many as fit, square ones if the picture allows, and no more than rows and columns.
fn dots(rows: usize, cols: usize, size: SpySize) -> (usize, usize) {
    let (most_high, most_wide) = (size.height * DOTS_HIGH, size.width * DOTS_WIDE);
    if rows == 0 || cols == 0 {
        return (0, 0);
    }
    if rows <= most_high && cols <= most_wide {
        return (rows, cols);
    }
    // The side that is too long by more fills the picture; the other keeps the proportion, and one character.
    let shrink = (rows as f64 / most_high as f64).max(cols as f64 / most_wide as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `most`, and positive"
    )]
    let side = |length: usize, most: usize, least: usize| {
        ((length as f64 / shrink).round() as usize).clamp(least.min(length), most)
    };
    (side(rows, most_high, DOTS_HIGH), side(cols, most_wide, DOTS_WIDE))
}

/// The dot of place `at` when `length` places share `dots` dots.
fn scale(at: usize, length: usize, dots: usize) -> usize {
    // Below 2^32 places and 4000 dots, the product is far below 2^64.
    at * dots / length
}

/// How dark a dot is, 0 to 1, on a logarithmic scale.
fn level(count: u64, most: u64) -> f64 {
    (1.0 + count as f64).ln() / (1.0 + most as f64).ln()
}

/// The character with the dots lit for which `lit(x, y)`; `x` is below 2 and `y` below 4.
fn braille(lit: impl Fn(usize, usize) -> bool) -> char {
    // Unicode numbers the dots down the left column, down the right one, and then the bottom two.
    const BITS: [[u32; DOTS_WIDE]; DOTS_HIGH] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let mut bits = 0;
    for (y, row) in BITS.iter().enumerate() {
        for (x, bit) in row.iter().enumerate() {
            if lit(x, y) {
                bits |= bit;
            }
        }
    }
    char::from_u32(0x2800 + bits).unwrap_or(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SpySize = SpySize { width: 10, height: 5 };

    #[test]
    fn a_small_matrix_has_a_dot_for_each_place() {
        let spy = Spy::of(&Csr::<f32>::identity(8).unwrap(), SMALL);
        assert_eq!(spy.lines, ["⠑⢄⠀⠀", "⠀⠀⠑⢄"]);
        assert_eq!((spy.rows_a_dot, spy.cols_a_dot, spy.dithered), (1.0, 1.0, false));
        let full = Csr::from_dense(4, 4, &[1.0f32; 16]).unwrap();
        assert_eq!(Spy::of(&full, SMALL).lines, ["⣿⣿"]);
        let corner = Csr::try_from_parts(3, 3, vec![0, 0, 0, 1], vec![2], vec![1.0f32]).unwrap();
        assert_eq!(Spy::of(&corner, SMALL).lines, ["⠀⠄"]);
    }

    #[test]
    fn a_large_matrix_keeps_its_diagonal_and_its_proportions() {
        let spy = Spy::of(&Csr::<f32>::identity(1000).unwrap(), SMALL);
        assert_eq!(spy.lines.len(), 5);
        assert!(spy.lines.iter().all(|line| line.chars().count() == 10));
        assert_eq!((spy.rows_a_dot, spy.cols_a_dot), (50.0, 50.0));
        for (at, line) in spy.lines.iter().enumerate() {
            let lit: Vec<usize> =
                line.chars().enumerate().filter(|(_, c)| *c != '\u{2800}').map(|(x, _)| x).collect();
            assert_eq!(lit, [2 * at, 2 * at + 1], "line {at}");
        }
        // Ten times as high as wide, and the other way round.
        assert_eq!(dots(1000, 100, SMALL), (20, 2));
        assert_eq!(dots(100, 10_000, SMALL), (4, 20));
        assert_eq!(dots(1, 10_000, SMALL), (1, 20));
    }

    #[test]
    fn a_crowded_picture_shows_density() {
        // 200 × 200, full on the left half, one entry in ten on the right one.
        let dense: Vec<f32> = (0..40_000)
            .map(|at| if at % 200 < 100 || (at / 200 + at) % 10 == 0 { 1.0 } else { 0.0 })
            .collect();
        let spy = Spy::of(&Csr::from_dense(200, 200, &dense).unwrap(), SMALL);
        assert!(spy.dithered);
        let dots = |range: std::ops::Range<usize>| -> u32 {
            let lines = spy.lines.iter().flat_map(|line| line.chars().skip(range.start).take(range.len()));
            lines.map(|c| (c as u32 - 0x2800).count_ones()).sum()
        };
        let (left, right) = (dots(0..5), dots(5..10));
        assert_eq!(left, 200);
        assert!((20..160).contains(&right), "{right}");
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        for (rows, cols) in [(0, 5), (5, 0), (0, 0)] {
            assert!(Spy::of(&Csr::<f32>::zeros(rows, cols).unwrap(), SMALL).lines.is_empty());
        }
        let blank = Spy::of(&Csr::<f32>::zeros(1_000_000, 3).unwrap(), SMALL);
        assert!(blank.lines.iter().flat_map(|line| line.chars()).all(|c| c == '\u{2800}'));
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!("60x30".parse(), Ok(SpySize { width: 60, height: 30 }));
        for text in ["", "60", "x", "60x", "0x5", "5x0", "1001x5", "-1x5", "60x30x2"] {
            assert!(text.parse::<SpySize>().is_err(), "{text}");
        }
    }
}

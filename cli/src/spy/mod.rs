//! Pictures of where a matrix has entries: in Braille characters here, as SVG in [`svg`].

mod grid;
pub(crate) mod svg;

use std::str::FromStr;

use serde::Serialize;
use windrow::{Csr, Value};

use grid::{Extent, Grid};

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
    /// The picture, from its first line to its last.
    pub(crate) lines: Vec<String>,
}

impl Spy {
    /// A picture of `a`, at most `size` large, in the proportions of the matrix.
    pub(crate) fn of<V: Value>(a: &Csr<V>, size: SpySize) -> Self {
        let most = Extent { high: size.height * DOTS_HIGH, wide: size.width * DOTS_WIDE };
        let grid = Grid::of(a, most, Extent { high: DOTS_HIGH, wide: DOTS_WIDE });
        let lit = grid.counts.iter().filter(|&&count| count > 0).count();
        let dithered = lit as f64 > CROWDED_SHARE * grid.counts.len() as f64 && !grid.shows_every_entry(a);
        let is_lit = |x: usize, y: usize| {
            let count = grid.counts[y * grid.wide + x];
            let threshold = f64::from(DITHER[y % 4][x % 4]) / 16.0;
            count > 0 && (!dithered || grid.level(count) > threshold)
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
        let (rows_a_dot, cols_a_dot) = grid.places(a);
        Self { rows_a_dot, cols_a_dot, dithered, most_a_dot: grid.most, lines }
    }
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

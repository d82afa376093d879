//! Spy plots as SVG: one panel for each order of the rows, side by side.
//!
//! A panel is a grid of cells, darker where there are more entries. Colours are of middle lightness and the
//! background is left out, so the picture can be read on a light page and on a dark one; labels are text.

use std::fmt::Write as _;

use windrow::{Csr, Value};

use super::grid::{Extent, Grid};

/// Shades of a cell that has entries.
const SHADES: usize = 5;
/// How opaque the lightest shade is, so that a single entry can be seen.
const LIGHTEST: f64 = 0.3;
/// Pixels between panels, and around them.
const GAP: usize = 16;
/// Pixels of a line of text.
const LINE: usize = 20;
/// Pixels of the longer side of a panel, as nearly as whole pixels a cell allow.
const SIDE: usize = 384;

/// One matrix of a picture, and what is written below it.
#[derive(Debug)]
pub(crate) struct Panel<'a, V> {
    pub(crate) matrix: &'a Csr<V>,
    pub(crate) labels: Vec<String>,
}

/// A picture that is ready to be written.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The content of the file, from tag to tag.
    pub(crate) text: String,
    /// Cells of each panel, rows by columns.
    pub(crate) cells: (usize, usize),
    /// Rows and columns of the matrix that a cell covers.
    pub(crate) places: (f64, f64),
}

impl Picture {
    /// Draws the panels, all of one size, from left to right, each with at most `side` cells in either direction.
    ///
    /// The shade of a cell with `e` entries is `log(1 + e) / log(1 + most)` in steps, `most` taken over all panels.
    pub(crate) fn of<V: Value>(title: &str, panels: &[Panel<'_, V>], side: usize) -> Self {
        let (most, least) = (Extent { high: side, wide: side }, Extent { high: 1, wide: 1 });
        let mut grids: Vec<Grid> = panels.iter().map(|panel| Grid::of(panel.matrix, most, least)).collect();
        let most = grids.iter().map(|grid| grid.most).max().unwrap_or(0);
        grids.iter_mut().for_each(|grid| grid.most = most);
        let (high, wide) = grids.first().map_or((0, 0), |grid| (grid.high, grid.wide));
        let pixels = (SIDE / high.max(wide).max(1)).max(1);
        let (panel_wide, panel_high) = ((wide * pixels).max(GAP), (high * pixels).max(GAP));
        let lines = panels.iter().map(|panel| panel.labels.len()).max().unwrap_or(0);
        let total_wide = GAP + panels.len() * (panel_wide + GAP);
        let total_high = GAP + panel_high + LINE * lines + GAP;

        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total_wide} {total_high}\" \
             width=\"{total_wide}\" height=\"{total_high}\" role=\"img\">\n\
             <title>{}</title>\n\
             <g font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"middle\" fill=\"#7d7d7d\">\n",
            escaped(title)
        );
        for (at, (panel, grid)) in panels.iter().zip(&grids).enumerate() {
            let left = GAP + at * (panel_wide + GAP);
            text.push_str(&format!("<g transform=\"translate({left} {GAP})\">\n"));
            text.push_str(&format!(
                "<rect x=\"-.5\" y=\"-.5\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#7d7d7d\"/>\n",
                panel_wide + 1,
                panel_high + 1
            ));
            cells(&mut text, grid, pixels);
            for (line, label) in panel.labels.iter().enumerate() {
                let (x, y) = (panel_wide / 2, panel_high + LINE * (line + 1) - 2);
                text.push_str(&format!("<text x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(label)));
            }
            text.push_str("</g>\n");
        }
        text.push_str("</g>\n</svg>\n");
        let places = panels.first().zip(grids.first()).map_or((0.0, 0.0), |(p, grid)| grid.places(p.matrix));
        Self { text, cells: (high, wide), places }
    }
}

/// The cells with entries: a path for each shade, whose horizontal strokes are runs of cells.
fn cells(text: &mut String, grid: &Grid, pixels: usize) {
    text.push_str(&format!(
        "<g transform=\"scale({pixels})\" stroke=\"#3f83d1\" stroke-width=\"1\" fill=\"none\" \
         shape-rendering=\"crispEdges\">\n"
    ));
    for shade in 1..=SHADES {
        let mut strokes = String::new();
        let mut end_of_last: Option<(usize, usize)> = None;
        for y in 0..grid.high {
            let line = &grid.counts[y * grid.wide..][..grid.wide];
            let mut x = 0;
            while x < grid.wide {
                let run = line[x..].iter().take_while(|&&count| shade_of(grid, count) == shade).count();
                if run > 0 {
                    // Relative moves are the shorter ones. Writing to a string cannot fail.
                    let _ = match end_of_last {
                        None => write!(strokes, "M{x} {y}.5h{run}"),
                        Some((from_x, from_y)) if from_y == y => write!(strokes, "m{} 0h{run}", x - from_x),
                        Some((from_x, from_y)) => {
                            let sign = if x < from_x { "-" } else { "" };
                            write!(strokes, "m{sign}{} {}h{run}", x.abs_diff(from_x), y - from_y)
                        }
                    };
                    end_of_last = Some((x + run, y));
                }
                x += run.max(1);
            }
        }
        if !strokes.is_empty() {
            let opacity = LIGHTEST + (1.0 - LIGHTEST) * (shade - 1) as f64 / (SHADES - 1) as f64;
            text.push_str(&format!("<path stroke-opacity=\"{opacity:.2}\" d=\"{strokes}\"/>\n"));
        }
    }
    text.push_str("</g>\n");
}

/// The shade of a cell, from 1 on; 0 without entries.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a level is from 0 to 1, so the shade is from 0 to SHADES"
)]
fn shade_of(grid: &Grid, count: u64) -> usize {
    if count == 0 { 0 } else { ((grid.level(count) * SHADES as f64).ceil() as usize).clamp(1, SHADES) }
}

/// Text as it stands between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(matrices: &[&Csr<f32>], side: usize) -> Picture {
        let panels: Vec<Panel<'_, f32>> =
            matrices.iter().map(|&matrix| Panel { matrix, labels: vec!["a < b & c".to_owned()] }).collect();
        Picture::of("two > one", &panels, side)
    }

    #[test]
    fn cells_are_strokes() {
        let a =
            Csr::from_dense(3, 4, &[1.0f32, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]).unwrap();
        let picture = picture(&[&a], 10);
        assert_eq!((picture.cells, picture.places), ((3, 4), (1.0, 1.0)));
        // One entry a cell is as dark as it gets: a run of two, one on the same line, one two lines below.
        assert!(picture.text.contains("d=\"M0 0.5h2m1 0h1m-4 2h1\""), "{}", picture.text);
        assert_eq!(picture.text.matches("<path").count(), 1);
        assert!(picture.text.contains("stroke-opacity=\"1.00\""));
    }

    #[test]
    fn shades_are_the_same_in_all_panels() {
        let (full, one) = (Csr::from_dense(8, 8, &[1.0f32; 64]).unwrap(), Csr::<f32>::identity(8).unwrap());
        let picture = picture(&[&full, &one], 2);
        assert_eq!(picture.cells, (2, 2));
        // 16 entries a cell: the darkest; 4: log 5 / log 17 = 0.57, the third of five.
        assert!(picture.text.contains("<path stroke-opacity=\"1.00\" d=\"M0 0.5h2m-2 1h2\"/>"));
        assert!(picture.text.contains("<path stroke-opacity=\"0.65\" d=\"M0 0.5h1m0 1h1\"/>"));
        assert_eq!(picture.text.matches("<rect").count(), 2);
    }

    #[test]
    fn text_is_escaped() {
        let text = picture(&[&Csr::<f32>::identity(3).unwrap()], 4).text;
        assert!(text.contains("<title>two &gt; one</title>") && text.contains("a &lt; b &amp; c</text>"));
    }

    #[test]
    fn nothing_to_draw_is_a_frame() {
        for (rows, cols) in [(0, 5), (5, 0), (3, 3)] {
            let text = picture(&[&Csr::<f32>::zeros(rows, cols).unwrap()], 4).text;
            assert!(text.contains("<rect") && !text.contains("<path"), "{text}");
        }
        assert!(picture(&[], 4).text.ends_with("</svg>\n"));
    }
}

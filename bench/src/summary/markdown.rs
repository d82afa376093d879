//! Tables in Markdown.

use std::fmt;

/// A table, row by row.
pub(crate) struct Grid {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn new(titles: impl IntoIterator<Item = impl ToString>) -> Self {
        Self { titles: titles.into_iter().map(|title| title.to_string()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.titles.join(" | "))?;
        writeln!(f, "|{}", " --- |".repeat(self.titles.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

/// A number with so many decimals, or a dash.
pub(crate) fn number(x: Option<f64>, decimals: usize) -> String {
    x.map_or_else(|| "–".to_owned(), |x| format!("{x:.decimals$}"))
}

/// `exp(mean(ln x))`; `None` without numbers.
pub(crate) fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    let sum: f64 = numbers.iter().map(|x| x.ln()).sum();
    (!numbers.is_empty()).then(|| (sum / numbers.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_a_table() {
        let mut grid = Grid::new(["a", "b"]);
        grid.row(["1".to_owned(), number(None, 2)]);
        assert_eq!(grid.to_string(), "| a | b |\n| --- | --- |\n| 1 | – |\n");
    }

    #[test]
    fn means_are_geometric() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[1.0, 4.0, 2.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(number(Some(1.256), 2), "1.26");
    }
}

//! Tables in Markdown, and lines with geometric means of their ratios.

use std::fmt;

pub(crate) use crate::measure::statistics::{geometric_mean, number};

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

/// Text that stands in a cell as it is.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A line with the geometric mean of ratios; nothing without any.
pub(crate) fn mean_of(name: &str, ratios: &[f64]) -> String {
    let below = ratios.iter().filter(|x| **x < 1.0).count();
    geometric_mean(ratios).map_or_else(String::new, |mean| {
        format!("\nGeometric mean, {name}: {mean:.3} over {}, {below} of them below 1.\n", ratios.len())
    })
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
}

//! Text of two shapes: labelled lines, and tables.

use std::fmt;

/// Lines `label  text` with the texts below each other.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    lines: Vec<(&'static str, String)>,
}

impl Listing {
    /// Adds a line; a label of "" continues the one above.
    pub(crate) fn add(&mut self, label: &'static str, text: impl Into<String>) {
        self.lines.push((label, text.into()));
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        for (at, (label, text)) in self.lines.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            // Lines of a text that has several stand below its first.
            let indented = text.replace('\n', &format!("\n{:width$}  ", ""));
            write!(f, "{}", format_args!("{label:width$}  {indented}"))?;
        }
        Ok(())
    }
}

/// How a table's column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table whose rows are written one by one, as they come to be known, so widths are given.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, usize, Align)>,
}

impl Table {
    /// Columns: title, least width, and how it stands. The last left column takes what it needs.
    pub(crate) fn new(columns: &[(&'static str, usize, Align)]) -> Self {
        let wide = |&(title, width, align): &(&'static str, usize, Align)| {
            (title, width.max(title.chars().count()), align)
        };
        Self { columns: columns.iter().map(wide).collect() }
    }

    /// The line of titles.
    pub(crate) fn titles(&self) -> String {
        self.row(&self.columns.iter().map(|&(title, ..)| title.to_owned()).collect::<Vec<_>>())
    }

    /// One line; missing cells are empty.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (at, &(_, width, align)) in self.columns.iter().enumerate() {
            let cell = cells.get(at).map_or("", String::as_str);
            if at > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match align {
                Align::Left => line.extend([cell, &pad]),
                Align::Right => line.extend([&pad, cell]),
            }
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_below_each_other() {
        let mut listing = Listing::default();
        listing.add("a", "1");
        listing.add("label", "2\n3");
        assert_eq!(listing.to_string(), "a      1\nlabel  2\n       3");
        assert_eq!(Listing::default().to_string(), "");
    }

    #[test]
    fn cells_align() {
        let table = Table::new(&[("name", 6, Align::Left), ("µs", 5, Align::Right)]);
        assert_eq!(table.titles(), "name       µs");
        assert_eq!(table.row(&["a".into(), "1.5".into()]), "a         1.5");
        assert_eq!(table.row(&["longer than that".into(), "1".into()]), "longer than that      1");
        assert_eq!(table.row(&["a".into()]), "a");
    }
}

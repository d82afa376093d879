//! Times of other libraries that were measured elsewhere, to compare with.

use std::collections::HashMap;

use crate::measure::BenchError;

/// The shortest published time of each matrix and width.
///
/// The text form is a line `matrix,width,microseconds,library` for each; empty lines and lines that begin with `#` say
/// nothing. Of several lines for a matrix and width the shortest time counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Published {
    times: HashMap<(String, usize), (f64, String)>,
}

impl Published {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`BenchError::Published`] for the first line that has another form, or a time that is not positive.
    pub(crate) fn parse(text: &str) -> Result<Self, BenchError> {
        let mut times: HashMap<(String, usize), (f64, String)> = HashMap::new();
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let broken = |problem: String| BenchError::Published { line: at + 1, problem };
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let [matrix, width, us, library] = cells[..] else {
                return Err(broken(format!("{} cells instead of 4", cells.len())));
            };
            if matrix.is_empty() || library.is_empty() {
                return Err(broken("a name is missing".to_owned()));
            }
            let width: usize = width.parse().map_err(|_| broken(format!("{width:?} is no width")))?;
            let us = us.parse().ok().filter(|us: &f64| us.is_finite() && *us > 0.0);
            let us = us.ok_or_else(|| broken("the time is no positive number".to_owned()))?;
            let shortest = times.entry((matrix.to_owned(), width)).or_insert((us, library.to_owned()));
            if us < shortest.0 {
                *shortest = (us, library.to_owned());
            }
        }
        Ok(Self { times })
    }

    /// The time in microseconds and the library's name.
    pub(crate) fn get(&self, matrix: &str, width: usize) -> Option<(f64, &str)> {
        let (us, library) = self.times.get(&(matrix.to_owned(), width))?;
        Some((*us, library))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_time_counts() {
        let times = Published::parse("# one GPU\nDD,128,148.1,FlashSparse\nDD,128,140.6,RoDe\n").unwrap();
        assert_eq!(times.get("DD", 128), Some((140.6, "RoDe")));
        assert_eq!(times.get("DD", 64), None);
    }

    #[test]
    fn broken_lines_are_named() {
        for (text, message) in [
            ("a,1,2", "line 1: 3 cells instead of 4"),
            ("# x\n\na,b,2,c", "line 3: \"b\" is no width"),
            ("a,1,0,c", "line 1: the time is no positive number"),
            ("a,1,nan,c", "line 1: the time is no positive number"),
            ("a,1,2,c\n,1,2,c", "line 2: a name is missing"),
        ] {
            let error = Published::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn the_committed_table_is_whole() {
        let times = Published::parse(include_str!("../../../../data/published-h200.csv")).unwrap();
        assert_eq!(times.times.len(), 120);
        for synthetic in windrow::synthetic::Synthetic::ALL {
            for width in [64, 128, 256, 512] {
                assert!(times.get(synthetic.name(), width).is_some(), "{synthetic}, {width}");
            }
        }
        assert_eq!(times.get("DD", 128), Some((140.6, "RoDe")));
    }
}

//! What pruning a model tells: a line for each layer, and what all of it came to.

use std::fmt;

use serde::Serialize;
use windrow::Value;

use crate::listing::{Align, Listing, Table};
use crate::units::{bytes, count, percent};

/// What `windrow prune` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) model: String,
    /// Absent where nothing was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
    pub(super) n: usize,
    pub(super) m: usize,
    pub(super) files: usize,
    pub(super) tensors: usize,
    pub(super) pruned: usize,
    /// Bytes of all tensors of the model.
    pub(super) bytes_before: u64,
    /// Bytes of the files that were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_after: Option<u64>,
    pub(super) layers: Vec<Layer>,
}

/// What became of a tensor whose name matches.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: String,
    /// Outputs that keep the same inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vector: Option<usize>,
    /// Share of the elements that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<f64>,
    /// Share of the sum of squares that is lost; none if the sum is no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost_squares: Option<f64>,
    /// NaN and infinite elements.
    pub(super) non_finite: usize,
    /// Why it was copied as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
}

impl Layer {
    pub(super) fn of(name: String, shape: Vec<usize>, dtype: String) -> Self {
        Self { name, shape, dtype, vector: None, kept: None, lost_squares: None, non_finite: 0, left: None }
    }

    /// Compares what is kept with all.
    pub(super) fn measure<V: Value>(&mut self, all: &[V], kept: &[V]) {
        let squares = |values: &[V]| values.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>();
        let (sum, left) = (squares(all), squares(kept));
        self.non_finite = all.iter().filter(|x| !x.to_f64().is_finite()).count();
        self.kept = Some(kept.len() as f64 / all.len().max(1) as f64);
        self.lost_squares = match sum {
            sum if !sum.is_finite() || self.non_finite > 0 => None,
            sum if sum > 0.0 => Some((1.0 - left / sum).max(0.0)),
            _ => Some(0.0),
        };
    }

    /// The cells of its line in the table.
    fn cells(&self) -> Vec<String> {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        let kept = self.kept.filter(|_| self.left.is_none()).map_or_else(String::new, percent);
        let (lost, remark) = match (&self.left, self.kept, self.lost_squares) {
            (Some(left), ..) => (String::new(), format!("left as it is: {left}")),
            (None, Some(_), None) => ("-".to_owned(), format!("{} NaN or infinite", count(self.non_finite))),
            (None, _, lost) => (lost.map_or_else(String::new, percent), String::new()),
        };
        let name = self.name.escape_debug().to_string();
        vec![name, shape.join(" × "), self.dtype.to_lowercase(), kept, lost, remark]
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<Vec<String>> = self.layers.iter().map(Layer::cells).collect();
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let table = Table::new(&[
            ("layer", width(0), Align::Left),
            ("shape", width(1), Align::Right),
            ("type", width(2), Align::Left),
            ("kept", width(3), Align::Right),
            ("squares lost", width(4), Align::Right),
            ("", 0, Align::Left),
        ]);
        writeln!(f, "{}", table.titles())?;
        rows.iter().try_for_each(|row| writeln!(f, "{}", table.row(row)))?;
        writeln!(f)?;
        let mut listing = Listing::default();
        let of = |number: usize, one: &str| {
            format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
        };
        listing.add(
            "model",
            format!("{}, {} in {}", self.model, of(self.tensors, "tensor"), of(self.files, "file")),
        );
        let mut vectors: Vec<usize> = self.layers.iter().filter_map(|layer| layer.vector).collect();
        vectors.sort_unstable();
        vectors.dedup();
        let vectors: Vec<String> = vectors.iter().map(ToString::to_string).collect();
        let pruned =
            format!("{} of {}, {}:{}", count(self.pruned), of(self.layers.len(), "layer"), self.n, self.m);
        listing.add(
            "pruned",
            match vectors.is_empty() {
                true => pruned,
                false => format!("{pruned} in vectors of {}", vectors.join(" and ")),
            },
        );
        match (&self.output, self.bytes_after) {
            (Some(output), Some(after)) => {
                listing.add(
                    "written",
                    format!("{output}, {} instead of {}", bytes(after), bytes(self.bytes_before)),
                );
            }
            _ => listing.add("written", "nothing"),
        }
        write!(f, "{listing}")
    }
}

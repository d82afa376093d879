//! What pruning a model tells: a line for each layer, and what all of it came to.

use std::fmt;

use serde::Serialize;
use windrow::Value;

use crate::command::nm::{kept_squares, non_finite};
use crate::listing::{Align, Listing, Table};
use crate::units::{bytes, count, percent};

/// Longest name that a table shows, in bytes.
const LONGEST_NAME: usize = 100;
/// Most extents that it shows.
const MOST_EXTENTS: usize = 6;

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
    /// Bytes of the files of the model that have tensors.
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
    /// How many of them are kept.
    pub(super) non_finite_kept: usize,
    /// Why it was copied as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
}

impl Layer {
    pub(super) fn of(name: String, shape: Vec<usize>, dtype: String) -> Self {
        let (non_finite, non_finite_kept) = (0, 0);
        let (vector, kept, lost_squares, left) = (None, None, None, None);
        Self { name, shape, dtype, vector, kept, lost_squares, non_finite, non_finite_kept, left }
    }

    /// Compares what is kept with all.
    pub(super) fn measure<V: Value>(&mut self, all: &[V], kept: &[V]) {
        (self.non_finite, self.non_finite_kept) = (non_finite(all), non_finite(kept));
        self.kept = Some(kept.len() as f64 / all.len().max(1) as f64);
        self.lost_squares = kept_squares(all, kept).map(|share| (1.0 - share).max(0.0));
    }

    /// The cells of its line in the table.
    fn cells(&self) -> Vec<String> {
        let kept = self.kept.filter(|_| self.left.is_none()).map_or_else(String::new, percent);
        let (lost, remark) = match (&self.left, self.kept, self.lost_squares) {
            (Some(left), ..) => (String::new(), format!("left as it is: {left}")),
            (None, Some(_), None) => {
                let kept = match self.non_finite - self.non_finite_kept {
                    0 => "kept".to_owned(),
                    dropped => format!("{} of them dropped", count(dropped)),
                };
                ("-".to_owned(), format!("{} NaN or infinite, {kept}", count(self.non_finite)))
            }
            (None, _, lost) => (lost.map_or_else(String::new, percent), String::new()),
        };
        vec![name_of(&self.name), extents(&self.shape), self.dtype.to_lowercase(), kept, lost, remark]
    }
}

/// A name as it can be shown in a table, whatever a file calls its tensors.
pub(super) fn name_of(name: &str) -> String {
    let shown = &name[..name.floor_char_boundary(LONGEST_NAME)];
    format!("{}{}", shown.escape_debug(), if shown.len() < name.len() { "…" } else { "" })
}

/// Extents as they can be shown in a table.
pub(super) fn extents(shape: &[usize]) -> String {
    let mut extents: Vec<String> = shape.iter().take(MOST_EXTENTS).map(ToString::to_string).collect();
    if extents.len() < shape.len() {
        extents.push("…".to_owned());
    }
    extents.join(" × ")
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

//! One layer: where its elements come from, what is kept of it, and what it says of those that cannot be.

use windrow::io::{BitmaskWeights, Model, NmTensor, ReadOptions};
use windrow::memory::try_with_room;
use windrow::{FormatError, Value, VectorNm, prune_magnitude};

use super::report::{Layer, name_of};
use crate::failure::{Exit, Failure};
use crate::units::count;

/// Where the dense elements of a layer come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The tensor, pruned by magnitude.
    Magnitude,
    /// The tensor, whose zeros are the mask.
    Zeros,
    /// The tensor, and the name of its mask.
    Mask(String),
    /// Three tensors in the layout of compressed-tensors.
    Bitmask(BitmaskWeights),
}

/// A layer that may be pruned.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The tensor in whose place the weights go.
    pub(super) tensor: String,
    pub(super) weights: NmTensor,
    pub(super) source: Source,
    /// Tensors that are left out if the layer is pruned.
    pub(super) parts: Vec<String>,
    /// Number of its line in the table.
    pub(super) line: usize,
}

/// Why a layer was not pruned.
pub(super) enum Refused {
    /// For what it holds.
    Layer(String),
    /// For a reason that no other layer would be spared.
    All(Failure),
}

impl Refused {
    /// What ends the command, where a layer called `name` was checked before.
    pub(super) fn into_failure(self, name: &str) -> Failure {
        match self {
            Self::Layer(why) => Failure::new(Exit::File, format!("{}: {why}", name_of(name))),
            Self::All(failure) => failure,
        }
    }
}

impl<E: Into<Failure>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

/// The model, its masks, and how they are read.
pub(super) struct Pruner<'a> {
    pub(super) model: &'a Model,
    /// What holds the masks.
    pub(super) masks: &'a Model,
    pub(super) options: ReadOptions<'a>,
}

impl Pruner<'_> {
    /// Reads a layer and prunes it; `line` is told what it lost.
    pub(super) fn prune<V: Value>(&self, job: &Job, line: &mut Layer) -> Result<VectorNm<V>, Refused> {
        let NmTensor { rows, cols, pattern, transposed, .. } = job.weights;
        let mut dense = match &job.source {
            Source::Bitmask(weights) => self.model.read_bitmask::<V>(weights, &self.options)?,
            _ => self.model.read::<V>(&job.tensor, &self.options)?,
        };
        if transposed {
            dense = dense.transposed()?;
        }
        let weights = match &job.source {
            Source::Magnitude => prune_magnitude(dense.values(), rows, cols, pattern),
            Source::Zeros | Source::Bitmask(_) => VectorNm::from_dense(dense.values(), rows, cols, pattern),
            Source::Mask(mask) => {
                let mask = self.masks.read_mask(mask, &self.options)?;
                let mask = if transposed { turned(&mask, cols, rows)? } else { mask };
                VectorNm::from_mask(dense.values(), &mask, (rows, cols), pattern)
            }
        };
        let weights = weights.map_err(|error| refused(error, job))?;
        line.vector = Some(pattern.l());
        line.measure(dense.values(), weights.values());
        Ok(weights)
    }
}

/// What an error says of a layer: where its own tensor, which may be turned round, has not the pattern.
fn refused(error: FormatError, job: &Job) -> Refused {
    let FormatError::NmGroup { rows, columns, found, limit, .. } = error else { return error.into() };
    let of = |name: &str, (first, end): (usize, usize)| match end - first {
        1 => format!("{name} {first}"),
        _ => format!("{name}s {first} to {}", end - 1),
    };
    // Groups lie along the inputs, vectors along the outputs.
    let (place, inputs, output) = match job.weights.transposed {
        true => (format!("{}, {}", of("row", columns), of("column", rows)), "columns", "row"),
        false => (format!("{}, {}", of("row", rows), of("column", columns)), "rows", "column"),
    };
    let is_mask = matches!(job.source, Source::Mask(_));
    let (found, is_single) = (count(found), columns.1 - columns.0 == 1);
    Refused::Layer(match (is_single, is_mask) {
        (true, true) => format!("{place}: the mask keeps {found}, the pattern {limit}"),
        (true, false) => format!("{place}: {found} elements are not zero, the pattern keeps {limit}"),
        (false, _) => {
            let what = if is_mask { "are kept by the mask" } else { "have elements that are not zero" };
            format!(
                "{place}: {found} {inputs} {what}, the pattern keeps {limit} for all of them; with --vector 1 \
                 each {output} has its own"
            )
        }
    })
}

/// The transpose of a mask of so many rows and columns.
fn turned(mask: &[bool], rows: usize, cols: usize) -> Result<Vec<bool>, FormatError> {
    let mut turned = try_with_room(mask.len(), "the transposed mask")?;
    turned.extend((0..cols).flat_map(|col| (0..rows).map(move |row| mask[row * cols + col])));
    Ok(turned)
}

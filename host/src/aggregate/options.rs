//! What a caller chooses for reductions.

use windrow_formats::names;

use crate::options::Precision;

/// How the messages of a row become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reduce {
    /// The sum of all of them.
    #[default]
    Sum,
    /// Their sum, divided by how many there are.
    Mean,
    /// The largest of them in each column; NaN if there is one.
    Max,
    /// The least of them in each column; NaN if there is one.
    Min,
}

impl Reduce {
    /// Every reduction, the default first.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Mean, Self::Max, Self::Min];

    /// Whether each element of the result is one of the messages.
    #[must_use]
    pub const fn picks(self) -> bool {
        matches!(self, Self::Max | Self::Min)
    }
}

names!(Reduce, "reduction"; Sum => "sum", Mean => "mean", Max => "max", Min => "min");

/// What an entry of the matrix and a row of `X` make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Message {
    /// The row, whatever the entry's value.
    #[default]
    Copy,
    /// The entry's value times the row.
    Mul,
    /// The value, added to each element of the row.
    Add,
}

impl Message {
    /// Every message, the default first.
    pub const ALL: [Self; 3] = [Self::Copy, Self::Mul, Self::Add];

    /// Whether the values of entries matter.
    #[must_use]
    pub const fn has_values(self) -> bool {
        !matches!(self, Self::Copy)
    }
}

names!(Message, "message"; Copy => "copy", Mul => "mul", Add => "add");

/// The options of a plan as one plain value: what [`AggregateBuilder`](super::AggregateBuilder) sets one by one. As
/// JSON a missing field has its default, and a field that there is not is an error.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AggregateOptions {
    /// How the messages of a row become one.
    pub reduce: Reduce,
    /// What entries and rows make.
    pub message: Message,
    /// Columns of `X` and of the result.
    pub columns: usize,
    /// Type of `X`: f32, f16 or bf16.
    pub precision: Precision,
    /// Whether the plan computes gradients, too.
    pub gradients: bool,
    /// Device memory that the plan may take, in bytes.
    pub memory_limit: Option<u64>,
}

impl Default for AggregateOptions {
    fn default() -> Self {
        Self {
            reduce: Reduce::Sum,
            message: Message::Copy,
            columns: 64,
            precision: Precision::F32,
            gradients: false,
            memory_limit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for reduce in Reduce::ALL {
            assert_eq!(reduce.to_string().parse::<Reduce>().unwrap(), reduce);
        }
        for message in Message::ALL {
            assert_eq!(message.to_string().parse::<Message>().unwrap(), message);
        }
        let error = "median".parse::<Reduce>().unwrap_err();
        assert_eq!(error.to_string(), "\"median\" is no reduction; there are sum, mean, max and min");
    }
}

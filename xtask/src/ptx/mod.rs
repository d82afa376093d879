//! PTX text as a list of functions and other lines: just enough structure to edit and to count.

mod edit;
mod labels;
mod parse;

pub(crate) use edit::{launch_bounds, only, prune_unreachable, unresolved_calls};
pub(crate) use labels::number_locally;
pub(crate) use parse::{Function, FunctionKind, Item, Ptx};

/// The identifiers of a line of PTX (opcodes come out in pieces: a dot separates).
pub(crate) fn tokens(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !in_identifier(c)).filter(|token| !token.is_empty())
}

fn in_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

//! PTX text as a list of functions and other lines: just enough structure to edit and to count.

mod edit;
mod parse;

pub(crate) use edit::{launch_bounds, prune_unreachable, unresolved_calls};
pub(crate) use parse::{Function, FunctionKind, Item, Ptx};

/// The identifiers of a line of PTX (opcodes come out in pieces: a dot separates).
pub(crate) fn tokens(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')))
        .filter(|token| !token.is_empty())
}

//! The commands, one module each: `run` takes the arguments and writes the result.

pub(crate) mod attention;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod info;
#[cfg(any(test, feature = "man"))]
pub(crate) mod man;
pub(crate) mod nm;
pub(crate) mod prune;
pub(crate) mod reorder;
pub(crate) mod sddmm;
pub(crate) mod spmm;
pub(crate) mod spy;
pub(crate) mod tensor;
pub(crate) mod tune;
mod tune_product;
pub(crate) mod verify;

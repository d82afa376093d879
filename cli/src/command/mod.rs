//! The commands, one module each: `run` takes the arguments and writes the result.

pub(crate) mod convert;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod nm;
pub(crate) mod reorder;
pub(crate) mod sddmm;
pub(crate) mod spmm;
pub(crate) mod spy;
pub(crate) mod tensor;
pub(crate) mod tune;
mod tune_product;
pub(crate) mod verify;

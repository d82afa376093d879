//! Sparse-matrix formats that are valid by construction, and their readers and writers.
//!
//! ```text
//! file --io--> Coo --> Csr --> RsTile          (Permutation, RowAssignment decide order and path of rows)
//! file --io--> dense weights --> VectorNm      (vector-wise N:M sparsity)
//! file --io--> Coo3 --> Csf3                   (tensors of three modes)
//! ```
//!
//! A value of any type here satisfies the invariants that its documentation lists as formulas: fields are
//! private and every constructor checks. What depends on user data returns a [`FormatError`] that names
//! the place; nothing panics on it, and no allocation is sized by a number that was not checked.
//!
//! With the features `sprs`, `faer` and `nalgebra-sparse`, [`Csr`] and [`Coo`] are made from the sparse matrices of
//! those crates, and they from these, by `TryFrom`.
//!
//! Nothing here knows of GPUs; the order of rows and the split between tiles and residual are decided
//! elsewhere and only carried out here.
#![forbid(unsafe_code)]

mod coo;
mod coo3;
mod csf3;
mod csr;
mod error;
#[cfg(any(feature = "faer", feature = "nalgebra-sparse", feature = "sprs"))]
mod interop;
mod machine;
mod names;
mod permutation;
mod rs_tile;
mod sampled;
mod structure;
mod value;
mod value_type;
mod vector_nm;

pub mod io;
pub mod memory;
pub mod synthetic;

pub use coo::Coo;
pub use coo3::{Coo3, mode_dimensions};
pub use csf3::{Csf3, Csf3Parts, check_mode_order};
pub use csr::{Canonicalised, Csr, Pattern};
pub use error::FormatError;
pub use machine::{machine_memory, machine_memory_free};
pub use memory::{ByteSizes, OutOfMemory};
pub use names::UnknownName;
pub use permutation::Permutation;
pub use rs_tile::{
    Bucket, EntrySources, Residual, RowAssignment, RowPath, RsTile, RsTileParts, TILE_COLS, Tile,
    WINDOW_ROWS, merge_columns,
};
pub use sampled::{SAMPLED_COLS, SampledTile, SampledTiles};
pub use structure::{RowLengths, Structure};
pub use value::Value;
pub use value_type::ValueType;
pub use vector_nm::{NmPattern, VectorNm, VectorNmParts};

#[doc(no_inline)]
pub use half::{bf16, f16};

/// Marks a missing column where a tile has fewer than 8; no column has this number, since a matrix has at
/// most `u32::MAX` of them.
pub const NO_COLUMN: u32 = u32::MAX;

/// Marks a missing row where a window has fewer than 8; no row has this number, since a matrix has at most
/// `u32::MAX` of them.
pub const NO_ROW: u32 = u32::MAX;

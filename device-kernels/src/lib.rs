//! windrow's GPU kernels, written in Rust.
//!
//! Every kernel is one function, generic over the machine ([`windrow_simt::Simt`]) and over its variant. The same
//! source becomes PTX (`cargo xtask build-ptx`, committed under `ptx/`) and runs on the CPU emulator in tests. The
//! crate knows neither matrix formats nor launch policy: a kernel sees its parameter struct, and the host reads the
//! launch numbers (threads, shared memory, parameter size) from the same constants that the kernel is compiled with.
//!
//! | module | computes | runs on |
//! | --- | --- | --- |
//! | [`spmm::row_split`] | `C = α·A·B + β·C`, `A` in CSR cut into row segments | CUDA cores |
//! | [`spmm::row_panels`] | the same in f32, panels of rows that share `B` in shared memory | CUDA cores |
//! | [`spmm::short_rows`] | the same, rows of equal length without a row pointer | CUDA cores |
//! | [`spmm::tile_stream`] | the same, `A` in 8 × 8 tiles | Tensor Cores |
//! | [`spmm::segment_group`] | the same from CSR for few columns of `B`, and MTTKRP, divided as a point of Sgap's space says | CUDA cores |
//! | [`spmm::matricized_rows`] | the same from CSR, rows matricised | Tensor Cores |
//! | [`spmm::merge_path`] | the same from CSR, a column of `B` at a time, rows merged by path | CUDA cores |
//! | [`spmm::combine`] | the sums of rows that these cut, in a fixed order | CUDA cores |
//! | [`sddmm`] | `out = α·(X·Yᵀ) ⊙ pattern` | Tensor Cores, or CUDA cores |
//! | [`row_softmax`] | softmax over the rows of such a result, and its gradient | CUDA cores |
//! | [`aggregate`] | reductions over rows: sums, means, maxima, minima of messages | CUDA cores |
//! | [`attention`] | attention over the entries of a sparse matrix in one pass | Tensor Cores, or CUDA cores |
//! | [`nm`] | `C = act(α·A·W + β·C + bias)`, `W` vector-wise N:M sparse | CUDA cores, or Tensor Cores |
//! | [`atomic_entries`] | products of tensors by atomic additions, for comparison | CUDA cores |
//! | [`training`] | dense operations of training: activations, loss, optimiser, sums | memory |
//! | [`place_values`] | puts new values of `A` where a plan keeps them | memory |
//! | [`preprocess`] | the tiles of a matrix, from CSR | CUDA cores |
//! | [`deal`] | which warp of a tile stream has which windows | CUDA cores |
//! | [`csr`] | a matrix that is on the GPU already: checked, counted, its rows cut | memory |
//! | [`reorder`] | an order of a matrix's rows in which neighbours share columns | CUDA cores |
//! | [`groups`] | the entries of such a matrix in groups of equal number | CUDA cores |
//! | [`hybrid`] | rows or entries of such a matrix divided between tiles and CUDA cores | CUDA cores |
//! | [`paths`] | the path of a matrix that is on the GPU, cut into shares | CUDA cores |
//! | [`patterns`] | plans of sampled products and of softmax, from a pattern that is on the GPU | CUDA cores |
//! | [`tensors`] | a tensor that is on the GPU as a list of coordinates: checked, its fibers laid out | memory |
//! | [`scan`] | prefix sums of an array | CUDA cores |
//! | [`sort`] | stable sort of keys by their bits | CUDA cores |
//! | [`check`] | compares a product with an f64 reference, entry by entry | CUDA cores |
//! | [`gather_probe`] | measures how fast rows of a table can be gathered | memory |
//!
//! [`ENTRIES`] is the table of all entry points, read by the device build, the host and the tests.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, asm_experimental_arch))]
#![expect(
    clippy::cast_possible_truncation,
    reason = "counters of unrolled loops and tile extents are a few dozen at most"
)]

pub mod aggregate;
mod arch;
pub mod atomic_entries;
pub mod attention;
pub mod check;
pub mod csr;
pub mod deal;
mod element;
mod entries;
pub mod gather_probe;
pub mod groups;
pub mod hybrid;
mod kernel;
#[cfg(not(target_arch = "nvptx64"))]
mod modules;
pub mod nm;
pub mod output;
pub mod panels;
pub mod paths;
pub mod patterns;
mod pieces;
pub mod place_values;
pub mod preprocess;
mod real;
pub mod reduce;
pub mod reorder;
pub mod row_softmax;
pub mod scan;
pub mod sddmm;
pub mod sort;
pub mod spmm;
mod sums;
pub mod tensors;
pub mod training;
mod unroll;
mod variant;
mod ways;

pub use arch::Arch;
pub use element::{Bf16, Dtype, Element, F16, F32, F64, Gather, Scalars, Sum, Tf32, Vectors};
#[cfg(all(feature = "emulator", not(target_arch = "nvptx64")))]
pub use entries::emulated;
pub use entries::{ENTRIES, body, entry};
pub use kernel::{Entry, Family, Kernel};
#[cfg(not(target_arch = "nvptx64"))]
pub use modules::{MODULES, Module};
pub use real::{Factor, Real};
pub use spmm::{
    combine, dense, matricized_rows, merge_based, row_panels, row_split, segment_group, short_rows,
    tile_stream,
};
pub use variant::Variant;

/// Marks a slot of the partial-sum workspace that is not used: the piece is a whole row or window.
pub const NO_SLOT: u32 = u32::MAX;
/// Marks, in place of a slot, a piece that is a whole row and is added to what `C` holds of it, whatever `β`: an
/// earlier launch has written the product of the row's other entries.
pub const ADD_TO_C: u32 = u32::MAX - 1;
/// Marks a pad column of a tile: nothing of `B` is read for it.
pub const NO_COLUMN: u32 = u32::MAX;
/// Marks a place for a row that holds none: a pad row of a window, of which nothing of `C` is written, or a slot of an
/// N:M product's stage, into which no row of `A` is brought.
pub const NO_ROW: u32 = u32::MAX;

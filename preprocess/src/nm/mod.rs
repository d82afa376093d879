//! Vector-wise N:M sparsity: which vectors of dense weights are kept, and how products with them are cut into blocks.

mod banks;
mod blocks;
mod prune;

pub use banks::Banked;
pub use blocks::{BlockShape, Blocks};
pub use prune::prune_magnitude;

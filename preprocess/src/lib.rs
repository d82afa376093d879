//! What decides the order and the assignment of a sparse matrix's rows before anything multiplies it.
//!
//! - [`partition`]: which rows, or which of their entries, become tiles and which stay scalar work;
//! - [`reorder`]: an order of the rows in which neighbours share columns;
//! - [`balance`]: how work is cut into pieces of equal size, and where the partial sums of what was cut go;
//! - [`nm`]: which vectors of dense weights are kept for vector-wise N:M sparsity.
//!
//! Everything here is a pure function of the matrix: the same input gives the same pieces, so a product
//! planned twice adds its terms in the same order twice. Each invariant is stated as a formula and tested
//! on generated input.
#![forbid(unsafe_code)]

pub mod balance;
pub mod nm;
pub mod partition;
pub mod reorder;

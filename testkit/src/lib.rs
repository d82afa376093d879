//! References, cases and error bounds: what every product kernel is tested with.
//!
//! A test is data. It takes [`Case`]s from [`edge_cases`], [`shape_cases`], [`value_cases`] or
//! [`random_case`], runs what it tests on each, and hands the result to [`assert_matches`]:
//!
//! ```
//! use windrow_testkit::{Case, Tally, UNIT_FMA, assert_matches, edge_cases};
//!
//! // The product under test; here the plainest one that could be written.
//! fn product(case: &Case) -> Vec<f32> {
//!     let mut c = case.c.clone();
//!     for (r, (cols, values)) in case.a.rows_iter().enumerate() {
//!         for j in 0..case.n {
//!             let terms = cols.iter().zip(values).map(|(&k, &v)| v * case.b[k as usize * case.ldb + j]);
//!             let sum = case.alpha * terms.sum::<f32>();
//!             let out = &mut c[r * case.ldc + j];
//!             *out = if case.beta == 0.0 { sum } else { sum + case.beta * *out };
//!         }
//!     }
//!     c
//! }
//!
//! let mut tally = Tally::new("plain product");
//! for case in edge_cases() {
//!     tally.ran(&assert_matches(&case, &product(&case), case.ldc, UNIT_FMA));
//! }
//! tally.finish(); // fails if nothing ran
//! ```
//!
//! Two passes of values. *Integers* in −4..=4 make every sum exact in whatever order it is taken, so
//! the result must be the reference's number, not one near it. *Reals* are compared within a bound
//! per element that follows from the number of roundings ([`error_bound`]), never within a constant.
//!
//! Every case is hostile where it can be without changing the result: `C` is full of NaN when β = 0,
//! the elements between a row's end and the leading dimension are NaN in `B` and a marker in `C` that
//! must still be there afterwards, both arrays end with the last element of their last row, and rows
//! of `B` to which `A` never refers hold NaN and infinities in the cases made for that.
//!
//! [`ExactCase`] is for products of f64, whose reference is an integer.
//!
//! [`NmCase`] is the same for products with vector-wise N:M weights: [`nm_edge_cases`] and its like, compared by
//! [`assert_nm_matches`].
//!
//! [`TensorCase`] is the same for products of sparse tensors: [`tensor_cases`], compared by
//! [`TensorCase::assert_matches`].
//!
//! Panics here mean failed tests, so the crate is for `dev-dependencies` only.
#![forbid(unsafe_code)]

mod bound;
mod case;
mod cases;
mod compare;
mod exact;
mod nm;
mod pattern;
mod reference;
mod rng;
mod tally;
mod tensor;
mod tf32;

pub use bound::{Output, UNIT_FMA, UNIT_MMA, error_bound, within_bound};
pub use case::{Case, Operands, PADDING_MARK, Values};
pub use cases::{
    SCALARS, WIDTHS, edge_cases, edge_patterns, non_finite_cases, random_case, shape_cases, value_cases,
};
pub use compare::{Comparison, assert_matches, compare};
pub use exact::{ExactCase, ExactSum, whole};
pub use nm::{
    NmActivation, NmCase, NmLayout, NmOperands, NmReference, assert_nm_matches, compare_nm, nm_edge_cases,
    nm_error_bound, nm_non_finite_cases, nm_patterns, nm_random_case, nm_spmm, nm_value_cases, nm_weights,
};
pub use pattern::Pattern;
pub use reference::{Reference, spmm};
pub use rng::SplitMix64;
pub use tally::{Tally, announce, announce_skip};
pub use tensor::{TensorCase, TensorReference, tensor_cases};
pub use tf32::round_tf32;

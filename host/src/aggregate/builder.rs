//! The setters of a plan's options.

use super::options::{AggregateOptions, Message, Reduce};
use crate::options::Precision;

/// Options of a plan of reductions over the rows of a sparse matrix; made by
/// [`Aggregate::builder`](super::Aggregate::builder).
#[derive(Debug)]
pub struct AggregateBuilder<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: AggregateOptions,
}

impl<A> Clone for AggregateBuilder<'_, A> {
    fn clone(&self) -> Self {
        Self { a: self.a, options: self.options.clone() }
    }
}

impl<'a, A> AggregateBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        Self { a, options: AggregateOptions::default() }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: AggregateOptions) -> Self {
        self.options = options;
        self
    }

    /// How the messages of a row become one, [`Reduce::Sum`] unless told.
    #[must_use]
    pub fn reduce(mut self, reduce: Reduce) -> Self {
        self.options.reduce = reduce;
        self
    }

    /// What entries and rows of `X` make, [`Message::Copy`] unless told.
    #[must_use]
    pub fn message(mut self, message: Message) -> Self {
        self.options.message = message;
        self
    }

    /// Columns of `X` and of the result, 64 unless told.
    #[must_use]
    pub fn columns(mut self, columns: usize) -> Self {
        self.options.columns = columns;
        self
    }

    /// Type of `X`, [`Precision::F32`] unless told; f16 and bf16 are the others.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// Whether the plan computes [gradients](super::AggregatePlan::backward_on), too, for which it also has the
    /// transpose of the matrix; no unless told.
    #[must_use]
    pub fn gradients(mut self, gradients: bool) -> Self {
        self.options.gradients = gradients;
        self
    }

    /// Device memory that the plan may take, in bytes; operands are the caller's. No limit unless told. Every stream
    /// but the device's own takes what pieces of long rows leave once more.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }
}

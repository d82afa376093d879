//! Entry points: reductions over the rows of sparse matrices.

use crate::aggregate::{Aggregate, AggregateJoin, AggregateSlopes, Extremes, Gradients, Sums};
use crate::element::{Bf16, F16, F32, Scalars, Vectors};

entries! {
    Aggregate:
    @from Sm80:
    aggregate_f16 {
        aggregate_sums_f16_vectors => Aggregate<Sums, Vectors<F16>>,
        aggregate_extremes_f16_vectors => Aggregate<Extremes, Vectors<F16>>,
        aggregate_gradients_f16_vectors => Aggregate<Gradients, Vectors<F16>>,
        aggregate_slopes_f16_32 => AggregateSlopes<Vectors<F16>, 4>,
        aggregate_sums_f16_elements => Aggregate<Sums, Scalars<F16>>,
        aggregate_extremes_f16_elements => Aggregate<Extremes, Scalars<F16>>,
        aggregate_gradients_f16_elements => Aggregate<Gradients, Scalars<F16>>,
        aggregate_slopes_f16_elements => AggregateSlopes<Scalars<F16>, 32>,
    }
    aggregate_bf16 {
        aggregate_sums_bf16_vectors => Aggregate<Sums, Vectors<Bf16>>,
        aggregate_extremes_bf16_vectors => Aggregate<Extremes, Vectors<Bf16>>,
        aggregate_gradients_bf16_vectors => Aggregate<Gradients, Vectors<Bf16>>,
        aggregate_slopes_bf16_32 => AggregateSlopes<Vectors<Bf16>, 4>,
        aggregate_sums_bf16_elements => Aggregate<Sums, Scalars<Bf16>>,
        aggregate_extremes_bf16_elements => Aggregate<Extremes, Scalars<Bf16>>,
        aggregate_gradients_bf16_elements => Aggregate<Gradients, Scalars<Bf16>>,
        aggregate_slopes_bf16_elements => AggregateSlopes<Scalars<Bf16>, 32>,
    }
    aggregate_f32 {
        aggregate_sums_f32_vectors => Aggregate<Sums, Vectors<F32>>,
        aggregate_extremes_f32_vectors => Aggregate<Extremes, Vectors<F32>>,
        aggregate_gradients_f32_vectors => Aggregate<Gradients, Vectors<F32>>,
        aggregate_slopes_f32_32 => AggregateSlopes<Vectors<F32>, 8>,
        aggregate_sums_f32_elements => Aggregate<Sums, Scalars<F32>>,
        aggregate_extremes_f32_elements => Aggregate<Extremes, Scalars<F32>>,
        aggregate_gradients_f32_elements => Aggregate<Gradients, Scalars<F32>>,
        aggregate_slopes_f32_elements => AggregateSlopes<Scalars<F32>, 32>,
    }
    aggregate_join {
        aggregate_join => AggregateJoin,
    }
}

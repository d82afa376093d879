//! Entry points: attention over sparse matrices.

use crate::attention::{
    AttentionGradient, AttentionGradientJoin, AttentionJoin, AttentionRows, AttentionWindows, ByColumns, ByEntries,
    OverColumns, OverRows,
};
use crate::element::{Bf16, F16, F32, Scalars, Vectors};

entries! {
    Attention:
    @from Sm80:
    attention_f16_entries_32 {
        attention_f16_entries4_32 => AttentionWindows<F16, ByEntries<4>, 1>,
        attention_f16_entries8_32 => AttentionWindows<F16, ByEntries<8>, 1>,
    }
    attention_f16_entries_64 {
        attention_f16_entries4_64 => AttentionWindows<F16, ByEntries<4>, 2>,
        attention_f16_entries8_64 => AttentionWindows<F16, ByEntries<8>, 2>,
    }
    attention_f16_entries_128 {
        attention_f16_entries4_128 => AttentionWindows<F16, ByEntries<4>, 4>,
        attention_f16_entries8_128 => AttentionWindows<F16, ByEntries<8>, 4>,
    }
    attention_f16_entries_256 {
        attention_f16_entries4_256 => AttentionWindows<F16, ByEntries<4>, 8>,
        attention_f16_entries8_256 => AttentionWindows<F16, ByEntries<8>, 8>,
    }
    attention_f16_columns_32 {
        attention_f16_columns4_32 => AttentionWindows<F16, ByColumns<4>, 1>,
        attention_f16_columns8_32 => AttentionWindows<F16, ByColumns<8>, 1>,
    }
    attention_f16_columns_64 {
        attention_f16_columns4_64 => AttentionWindows<F16, ByColumns<4>, 2>,
        attention_f16_columns8_64 => AttentionWindows<F16, ByColumns<8>, 2>,
    }
    attention_f16_columns_128 {
        attention_f16_columns4_128 => AttentionWindows<F16, ByColumns<4>, 4>,
        attention_f16_columns8_128 => AttentionWindows<F16, ByColumns<8>, 4>,
    }
    attention_f16_columns_256 {
        attention_f16_columns4_256 => AttentionWindows<F16, ByColumns<4>, 8>,
        attention_f16_columns8_256 => AttentionWindows<F16, ByColumns<8>, 8>,
    }
    attention_bf16_entries_32 {
        attention_bf16_entries4_32 => AttentionWindows<Bf16, ByEntries<4>, 1>,
        attention_bf16_entries8_32 => AttentionWindows<Bf16, ByEntries<8>, 1>,
    }
    attention_bf16_entries_64 {
        attention_bf16_entries4_64 => AttentionWindows<Bf16, ByEntries<4>, 2>,
        attention_bf16_entries8_64 => AttentionWindows<Bf16, ByEntries<8>, 2>,
    }
    attention_bf16_entries_128 {
        attention_bf16_entries4_128 => AttentionWindows<Bf16, ByEntries<4>, 4>,
        attention_bf16_entries8_128 => AttentionWindows<Bf16, ByEntries<8>, 4>,
    }
    attention_bf16_entries_256 {
        attention_bf16_entries4_256 => AttentionWindows<Bf16, ByEntries<4>, 8>,
        attention_bf16_entries8_256 => AttentionWindows<Bf16, ByEntries<8>, 8>,
    }
    attention_bf16_columns_32 {
        attention_bf16_columns4_32 => AttentionWindows<Bf16, ByColumns<4>, 1>,
        attention_bf16_columns8_32 => AttentionWindows<Bf16, ByColumns<8>, 1>,
    }
    attention_bf16_columns_64 {
        attention_bf16_columns4_64 => AttentionWindows<Bf16, ByColumns<4>, 2>,
        attention_bf16_columns8_64 => AttentionWindows<Bf16, ByColumns<8>, 2>,
    }
    attention_bf16_columns_128 {
        attention_bf16_columns4_128 => AttentionWindows<Bf16, ByColumns<4>, 4>,
        attention_bf16_columns8_128 => AttentionWindows<Bf16, ByColumns<8>, 4>,
    }
    attention_bf16_columns_256 {
        attention_bf16_columns4_256 => AttentionWindows<Bf16, ByColumns<4>, 8>,
        attention_bf16_columns8_256 => AttentionWindows<Bf16, ByColumns<8>, 8>,
    }
    attention_f32 {
        attention_f32_32 => AttentionRows<Vectors<F32>, 8, 1>,
        attention_f32_64 => AttentionRows<Vectors<F32>, 16, 1>,
        attention_f32_128 => AttentionRows<Vectors<F32>, 32, 1>,
        attention_f32_256 => AttentionRows<Vectors<F32>, 32, 2>,
    }
    attention_f32_elements {
        attention_f32_elements_32 => AttentionRows<Scalars<F32>, 32, 1>,
        attention_f32_elements_256 => AttentionRows<Scalars<F32>, 32, 8>,
    }
    attention_f16_elements {
        attention_f16_elements_32 => AttentionRows<Scalars<F16>, 32, 1>,
        attention_f16_elements_256 => AttentionRows<Scalars<F16>, 32, 8>,
    }
    attention_bf16_elements {
        attention_bf16_elements_32 => AttentionRows<Scalars<Bf16>, 32, 1>,
        attention_bf16_elements_256 => AttentionRows<Scalars<Bf16>, 32, 8>,
    }
    attention_join {
        attention_join => AttentionJoin,
    }
    attention_gradient_f16_32 {
        attention_gradient_rows_f16_32 => AttentionGradient<OverRows, Vectors<F16>, 4, 1>,
        attention_gradient_columns_f16_32 => AttentionGradient<OverColumns, Vectors<F16>, 4, 1>,
    }
    attention_gradient_f16_64 {
        attention_gradient_rows_f16_64 => AttentionGradient<OverRows, Vectors<F16>, 8, 1>,
        attention_gradient_columns_f16_64 => AttentionGradient<OverColumns, Vectors<F16>, 8, 1>,
    }
    attention_gradient_f16_128 {
        attention_gradient_rows_f16_128 => AttentionGradient<OverRows, Vectors<F16>, 16, 1>,
        attention_gradient_columns_f16_128 => AttentionGradient<OverColumns, Vectors<F16>, 16, 1>,
    }
    attention_gradient_f16_256 {
        attention_gradient_rows_f16_256 => AttentionGradient<OverRows, Vectors<F16>, 32, 1>,
        attention_gradient_columns_f16_256 => AttentionGradient<OverColumns, Vectors<F16>, 32, 1>,
    }
    attention_gradient_f16_elements {
        attention_gradient_rows_f16_elements_32 => AttentionGradient<OverRows, Scalars<F16>, 32, 1>,
        attention_gradient_columns_f16_elements_32 => AttentionGradient<OverColumns, Scalars<F16>, 32, 1>,
        attention_gradient_rows_f16_elements_256 => AttentionGradient<OverRows, Scalars<F16>, 32, 8>,
        attention_gradient_columns_f16_elements_256 => AttentionGradient<OverColumns, Scalars<F16>, 32, 8>,
    }
    attention_gradient_bf16_32 {
        attention_gradient_rows_bf16_32 => AttentionGradient<OverRows, Vectors<Bf16>, 4, 1>,
        attention_gradient_columns_bf16_32 => AttentionGradient<OverColumns, Vectors<Bf16>, 4, 1>,
    }
    attention_gradient_bf16_64 {
        attention_gradient_rows_bf16_64 => AttentionGradient<OverRows, Vectors<Bf16>, 8, 1>,
        attention_gradient_columns_bf16_64 => AttentionGradient<OverColumns, Vectors<Bf16>, 8, 1>,
    }
    attention_gradient_bf16_128 {
        attention_gradient_rows_bf16_128 => AttentionGradient<OverRows, Vectors<Bf16>, 16, 1>,
        attention_gradient_columns_bf16_128 => AttentionGradient<OverColumns, Vectors<Bf16>, 16, 1>,
    }
    attention_gradient_bf16_256 {
        attention_gradient_rows_bf16_256 => AttentionGradient<OverRows, Vectors<Bf16>, 32, 1>,
        attention_gradient_columns_bf16_256 => AttentionGradient<OverColumns, Vectors<Bf16>, 32, 1>,
    }
    attention_gradient_bf16_elements {
        attention_gradient_rows_bf16_elements_32 => AttentionGradient<OverRows, Scalars<Bf16>, 32, 1>,
        attention_gradient_columns_bf16_elements_32 => AttentionGradient<OverColumns, Scalars<Bf16>, 32, 1>,
        attention_gradient_rows_bf16_elements_256 => AttentionGradient<OverRows, Scalars<Bf16>, 32, 8>,
        attention_gradient_columns_bf16_elements_256 => AttentionGradient<OverColumns, Scalars<Bf16>, 32, 8>,
    }
    attention_gradient_f32_32 {
        attention_gradient_rows_f32_32 => AttentionGradient<OverRows, Vectors<F32>, 8, 1>,
        attention_gradient_columns_f32_32 => AttentionGradient<OverColumns, Vectors<F32>, 8, 1>,
    }
    attention_gradient_f32_64 {
        attention_gradient_rows_f32_64 => AttentionGradient<OverRows, Vectors<F32>, 16, 1>,
        attention_gradient_columns_f32_64 => AttentionGradient<OverColumns, Vectors<F32>, 16, 1>,
    }
    attention_gradient_f32_128 {
        attention_gradient_rows_f32_128 => AttentionGradient<OverRows, Vectors<F32>, 32, 1>,
        attention_gradient_columns_f32_128 => AttentionGradient<OverColumns, Vectors<F32>, 32, 1>,
    }
    attention_gradient_f32_256 {
        attention_gradient_rows_f32_256 => AttentionGradient<OverRows, Vectors<F32>, 32, 2>,
        attention_gradient_columns_f32_256 => AttentionGradient<OverColumns, Vectors<F32>, 32, 2>,
    }
    attention_gradient_f32_elements {
        attention_gradient_rows_f32_elements_32 => AttentionGradient<OverRows, Scalars<F32>, 32, 1>,
        attention_gradient_columns_f32_elements_32 => AttentionGradient<OverColumns, Scalars<F32>, 32, 1>,
        attention_gradient_rows_f32_elements_256 => AttentionGradient<OverRows, Scalars<F32>, 32, 8>,
        attention_gradient_columns_f32_elements_256 => AttentionGradient<OverColumns, Scalars<F32>, 32, 8>,
    }
    attention_gradient_join {
        attention_gradient_join => AttentionGradientJoin,
    }
}

//! Entry points: attention over sparse matrices.

use crate::attention::{
    Additive, AttentionGradient as Gradient, AttentionGradientJoin,
    AttentionGradientWindows as GradientWindows, AttentionJoin, AttentionRows, AttentionWindows,
    ByColumns, ByEntries, DotProduct, Gatv2, OverColumns, OverRows,
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
        attention_f32_32 => AttentionRows<DotProduct, Vectors<F32>, 8, 1>,
        attention_f32_64 => AttentionRows<DotProduct, Vectors<F32>, 16, 1>,
        attention_f32_128 => AttentionRows<DotProduct, Vectors<F32>, 32, 1>,
        attention_f32_256 => AttentionRows<DotProduct, Vectors<F32>, 32, 2>,
    }
    attention_f32_elements {
        attention_f32_elements_32 => AttentionRows<DotProduct, Scalars<F32>, 32, 1>,
        attention_f32_elements_256 => AttentionRows<DotProduct, Scalars<F32>, 32, 8>,
    }
    attention_f16_elements {
        attention_f16_elements_32 => AttentionRows<DotProduct, Scalars<F16>, 32, 1>,
        attention_f16_elements_256 => AttentionRows<DotProduct, Scalars<F16>, 32, 8>,
    }
    attention_bf16_elements {
        attention_bf16_elements_32 => AttentionRows<DotProduct, Scalars<Bf16>, 32, 1>,
        attention_bf16_elements_256 => AttentionRows<DotProduct, Scalars<Bf16>, 32, 8>,
    }
    attention_join {
        attention_join => AttentionJoin,
    }
    attention_gradient_f16_32 {
        attention_gradient_rows_f16_32 => Gradient<DotProduct, OverRows, Vectors<F16>, 4, 1>,
        attention_gradient_columns_f16_32 => Gradient<DotProduct, OverColumns, Vectors<F16>, 4, 1>,
    }
    attention_gradient_f16_64 {
        attention_gradient_rows_f16_64 => Gradient<DotProduct, OverRows, Vectors<F16>, 8, 1>,
        attention_gradient_columns_f16_64 => Gradient<DotProduct, OverColumns, Vectors<F16>, 8, 1>,
    }
    attention_gradient_f16_128 {
        attention_gradient_rows_f16_128 => Gradient<DotProduct, OverRows, Vectors<F16>, 16, 1>,
        attention_gradient_columns_f16_128 => Gradient<DotProduct, OverColumns, Vectors<F16>, 16, 1>,
    }
    attention_gradient_f16_256 {
        attention_gradient_rows_f16_256 => Gradient<DotProduct, OverRows, Vectors<F16>, 32, 1>,
        attention_gradient_columns_f16_256 => Gradient<DotProduct, OverColumns, Vectors<F16>, 32, 1>,
    }
    attention_gradient_f16_elements {
        attention_gradient_rows_f16_elements_32 => Gradient<DotProduct, OverRows, Scalars<F16>, 32, 1>,
        attention_gradient_columns_f16_elements_32 => Gradient<DotProduct, OverColumns, Scalars<F16>, 32, 1>,
        attention_gradient_rows_f16_elements_256 => Gradient<DotProduct, OverRows, Scalars<F16>, 32, 8>,
        attention_gradient_columns_f16_elements_256 => Gradient<DotProduct, OverColumns, Scalars<F16>, 32, 8>,
    }
    attention_gradient_bf16_32 {
        attention_gradient_rows_bf16_32 => Gradient<DotProduct, OverRows, Vectors<Bf16>, 4, 1>,
        attention_gradient_columns_bf16_32 => Gradient<DotProduct, OverColumns, Vectors<Bf16>, 4, 1>,
    }
    attention_gradient_bf16_64 {
        attention_gradient_rows_bf16_64 => Gradient<DotProduct, OverRows, Vectors<Bf16>, 8, 1>,
        attention_gradient_columns_bf16_64 => Gradient<DotProduct, OverColumns, Vectors<Bf16>, 8, 1>,
    }
    attention_gradient_bf16_128 {
        attention_gradient_rows_bf16_128 => Gradient<DotProduct, OverRows, Vectors<Bf16>, 16, 1>,
        attention_gradient_columns_bf16_128 => Gradient<DotProduct, OverColumns, Vectors<Bf16>, 16, 1>,
    }
    attention_gradient_bf16_256 {
        attention_gradient_rows_bf16_256 => Gradient<DotProduct, OverRows, Vectors<Bf16>, 32, 1>,
        attention_gradient_columns_bf16_256 => Gradient<DotProduct, OverColumns, Vectors<Bf16>, 32, 1>,
    }
    attention_gradient_bf16_elements {
        attention_gradient_rows_bf16_elements_32 => Gradient<DotProduct, OverRows, Scalars<Bf16>, 32, 1>,
        attention_gradient_columns_bf16_elements_32 => Gradient<DotProduct, OverColumns, Scalars<Bf16>, 32, 1>,
        attention_gradient_rows_bf16_elements_256 => Gradient<DotProduct, OverRows, Scalars<Bf16>, 32, 8>,
        attention_gradient_columns_bf16_elements_256 => Gradient<DotProduct, OverColumns, Scalars<Bf16>, 32, 8>,
    }
    attention_gradient_f32_32 {
        attention_gradient_rows_f32_32 => Gradient<DotProduct, OverRows, Vectors<F32>, 8, 1>,
        attention_gradient_columns_f32_32 => Gradient<DotProduct, OverColumns, Vectors<F32>, 8, 1>,
    }
    attention_gradient_f32_64 {
        attention_gradient_rows_f32_64 => Gradient<DotProduct, OverRows, Vectors<F32>, 16, 1>,
        attention_gradient_columns_f32_64 => Gradient<DotProduct, OverColumns, Vectors<F32>, 16, 1>,
    }
    attention_gradient_f32_128 {
        attention_gradient_rows_f32_128 => Gradient<DotProduct, OverRows, Vectors<F32>, 32, 1>,
        attention_gradient_columns_f32_128 => Gradient<DotProduct, OverColumns, Vectors<F32>, 32, 1>,
    }
    attention_gradient_f32_256 {
        attention_gradient_rows_f32_256 => Gradient<DotProduct, OverRows, Vectors<F32>, 32, 2>,
        attention_gradient_columns_f32_256 => Gradient<DotProduct, OverColumns, Vectors<F32>, 32, 2>,
    }
    attention_gradient_f32_elements {
        attention_gradient_rows_f32_elements_32 => Gradient<DotProduct, OverRows, Scalars<F32>, 32, 1>,
        attention_gradient_columns_f32_elements_32 => Gradient<DotProduct, OverColumns, Scalars<F32>, 32, 1>,
        attention_gradient_rows_f32_elements_256 => Gradient<DotProduct, OverRows, Scalars<F32>, 32, 8>,
        attention_gradient_columns_f32_elements_256 => Gradient<DotProduct, OverColumns, Scalars<F32>, 32, 8>,
    }
    attention_gradient_f16_windows_32 {
        attention_gradient_rows_f16_windows_32 => GradientWindows<F16, OverRows, 1>,
        attention_gradient_columns_f16_windows_32 => GradientWindows<F16, OverColumns, 1>,
    }
    attention_gradient_f16_windows_64 {
        attention_gradient_rows_f16_windows_64 => GradientWindows<F16, OverRows, 2>,
        attention_gradient_columns_f16_windows_64 => GradientWindows<F16, OverColumns, 2>,
    }
    attention_gradient_f16_windows_128 {
        attention_gradient_rows_f16_windows_128 => GradientWindows<F16, OverRows, 4>,
        attention_gradient_columns_f16_windows_128 => GradientWindows<F16, OverColumns, 4>,
    }
    attention_gradient_bf16_windows_32 {
        attention_gradient_rows_bf16_windows_32 => GradientWindows<Bf16, OverRows, 1>,
        attention_gradient_columns_bf16_windows_32 => GradientWindows<Bf16, OverColumns, 1>,
    }
    attention_gradient_bf16_windows_64 {
        attention_gradient_rows_bf16_windows_64 => GradientWindows<Bf16, OverRows, 2>,
        attention_gradient_columns_bf16_windows_64 => GradientWindows<Bf16, OverColumns, 2>,
    }
    attention_gradient_bf16_windows_128 {
        attention_gradient_rows_bf16_windows_128 => GradientWindows<Bf16, OverRows, 4>,
        attention_gradient_columns_bf16_windows_128 => GradientWindows<Bf16, OverColumns, 4>,
    }
    attention_gradient_join {
        attention_gradient_join => AttentionGradientJoin,
    }
    attention_additive_f32 {
        attention_additive_f32_32 => AttentionRows<Additive, Vectors<F32>, 8, 1>,
        attention_additive_f32_64 => AttentionRows<Additive, Vectors<F32>, 16, 1>,
        attention_additive_f32_256 => AttentionRows<Additive, Vectors<F32>, 32, 2>,
    }
    attention_additive_f32_elements {
        attention_additive_f32_elements_32 => AttentionRows<Additive, Scalars<F32>, 32, 1>,
        attention_additive_f32_elements_256 => AttentionRows<Additive, Scalars<F32>, 32, 8>,
    }
    attention_additive_f16 {
        attention_additive_f16_32 => AttentionRows<Additive, Vectors<F16>, 4, 1>,
        attention_additive_f16_64 => AttentionRows<Additive, Vectors<F16>, 8, 1>,
        attention_additive_f16_256 => AttentionRows<Additive, Vectors<F16>, 32, 1>,
    }
    attention_additive_f16_elements {
        attention_additive_f16_elements_32 => AttentionRows<Additive, Scalars<F16>, 32, 1>,
        attention_additive_f16_elements_256 => AttentionRows<Additive, Scalars<F16>, 32, 8>,
    }
    attention_additive_bf16 {
        attention_additive_bf16_32 => AttentionRows<Additive, Vectors<Bf16>, 4, 1>,
        attention_additive_bf16_64 => AttentionRows<Additive, Vectors<Bf16>, 8, 1>,
        attention_additive_bf16_256 => AttentionRows<Additive, Vectors<Bf16>, 32, 1>,
    }
    attention_additive_bf16_elements {
        attention_additive_bf16_elements_32 => AttentionRows<Additive, Scalars<Bf16>, 32, 1>,
        attention_additive_bf16_elements_256 => AttentionRows<Additive, Scalars<Bf16>, 32, 8>,
    }
    attention_additive_gradient_f32 {
        attention_additive_gradient_rows_f32_32 => Gradient<Additive, OverRows, Vectors<F32>, 8, 1>,
        attention_additive_gradient_columns_f32_32 => Gradient<Additive, OverColumns, Vectors<F32>, 8, 1>,
        attention_additive_gradient_rows_f32_64 => Gradient<Additive, OverRows, Vectors<F32>, 16, 1>,
        attention_additive_gradient_columns_f32_64 => Gradient<Additive, OverColumns, Vectors<F32>, 16, 1>,
        attention_additive_gradient_rows_f32_256 => Gradient<Additive, OverRows, Vectors<F32>, 32, 2>,
        attention_additive_gradient_columns_f32_256 => Gradient<Additive, OverColumns, Vectors<F32>, 32, 2>,
    }
    attention_additive_gradient_f32_elements {
        attention_additive_gradient_rows_f32_elements_32 => Gradient<Additive, OverRows, Scalars<F32>, 32, 1>,
        attention_additive_gradient_columns_f32_elements_32 => Gradient<Additive, OverColumns, Scalars<F32>, 32, 1>,
        attention_additive_gradient_rows_f32_elements_256 => Gradient<Additive, OverRows, Scalars<F32>, 32, 8>,
        attention_additive_gradient_columns_f32_elements_256 => Gradient<Additive, OverColumns, Scalars<F32>, 32, 8>,
    }
    attention_additive_gradient_f16 {
        attention_additive_gradient_rows_f16_32 => Gradient<Additive, OverRows, Vectors<F16>, 4, 1>,
        attention_additive_gradient_columns_f16_32 => Gradient<Additive, OverColumns, Vectors<F16>, 4, 1>,
        attention_additive_gradient_rows_f16_64 => Gradient<Additive, OverRows, Vectors<F16>, 8, 1>,
        attention_additive_gradient_columns_f16_64 => Gradient<Additive, OverColumns, Vectors<F16>, 8, 1>,
        attention_additive_gradient_rows_f16_256 => Gradient<Additive, OverRows, Vectors<F16>, 32, 1>,
        attention_additive_gradient_columns_f16_256 => Gradient<Additive, OverColumns, Vectors<F16>, 32, 1>,
    }
    attention_additive_gradient_f16_elements {
        attention_additive_gradient_rows_f16_elements_32 => Gradient<Additive, OverRows, Scalars<F16>, 32, 1>,
        attention_additive_gradient_columns_f16_elements_32 => Gradient<Additive, OverColumns, Scalars<F16>, 32, 1>,
        attention_additive_gradient_rows_f16_elements_256 => Gradient<Additive, OverRows, Scalars<F16>, 32, 8>,
        attention_additive_gradient_columns_f16_elements_256 => Gradient<Additive, OverColumns, Scalars<F16>, 32, 8>,
    }
    attention_additive_gradient_bf16 {
        attention_additive_gradient_rows_bf16_32 => Gradient<Additive, OverRows, Vectors<Bf16>, 4, 1>,
        attention_additive_gradient_columns_bf16_32 => Gradient<Additive, OverColumns, Vectors<Bf16>, 4, 1>,
        attention_additive_gradient_rows_bf16_64 => Gradient<Additive, OverRows, Vectors<Bf16>, 8, 1>,
        attention_additive_gradient_columns_bf16_64 => Gradient<Additive, OverColumns, Vectors<Bf16>, 8, 1>,
        attention_additive_gradient_rows_bf16_256 => Gradient<Additive, OverRows, Vectors<Bf16>, 32, 1>,
        attention_additive_gradient_columns_bf16_256 => Gradient<Additive, OverColumns, Vectors<Bf16>, 32, 1>,
    }
    attention_additive_gradient_bf16_elements {
        attention_additive_gradient_rows_bf16_elements_32 => Gradient<Additive, OverRows, Scalars<Bf16>, 32, 1>,
        attention_additive_gradient_columns_bf16_elements_32 => Gradient<Additive, OverColumns, Scalars<Bf16>, 32, 1>,
        attention_additive_gradient_rows_bf16_elements_256 => Gradient<Additive, OverRows, Scalars<Bf16>, 32, 8>,
        attention_additive_gradient_columns_bf16_elements_256 => Gradient<Additive, OverColumns, Scalars<Bf16>, 32, 8>,
    }
    attention_gatv2_f32 {
        attention_gatv2_f32_32 => AttentionRows<Gatv2, Vectors<F32>, 8, 1>,
        attention_gatv2_f32_64 => AttentionRows<Gatv2, Vectors<F32>, 16, 1>,
        attention_gatv2_f32_256 => AttentionRows<Gatv2, Vectors<F32>, 32, 2>,
    }
    attention_gatv2_f32_elements {
        attention_gatv2_f32_elements_256 => AttentionRows<Gatv2, Scalars<F32>, 32, 8>,
    }
    attention_gatv2_gradient_f32 {
        attention_gatv2_gradient_rows_f32_32 => Gradient<Gatv2, OverRows, Vectors<F32>, 8, 1>,
        attention_gatv2_gradient_columns_f32_32 => Gradient<Gatv2, OverColumns, Vectors<F32>, 8, 1>,
        attention_gatv2_gradient_rows_f32_64 => Gradient<Gatv2, OverRows, Vectors<F32>, 16, 1>,
        attention_gatv2_gradient_columns_f32_64 => Gradient<Gatv2, OverColumns, Vectors<F32>, 16, 1>,
        attention_gatv2_gradient_rows_f32_256 => Gradient<Gatv2, OverRows, Vectors<F32>, 32, 2>,
        attention_gatv2_gradient_columns_f32_256 => Gradient<Gatv2, OverColumns, Vectors<F32>, 32, 2>,
    }
    attention_gatv2_gradient_f32_elements {
        attention_gatv2_gradient_rows_f32_elements_256 => Gradient<Gatv2, OverRows, Scalars<F32>, 32, 8>,
        attention_gatv2_gradient_columns_f32_elements_256 => Gradient<Gatv2, OverColumns, Scalars<F32>, 32, 8>,
    }
    attention_gatv2_f16 {
        attention_gatv2_f16_32 => AttentionRows<Gatv2, Vectors<F16>, 4, 1>,
        attention_gatv2_f16_64 => AttentionRows<Gatv2, Vectors<F16>, 8, 1>,
        attention_gatv2_f16_256 => AttentionRows<Gatv2, Vectors<F16>, 32, 1>,
    }
    attention_gatv2_f16_elements {
        attention_gatv2_f16_elements_256 => AttentionRows<Gatv2, Scalars<F16>, 32, 8>,
    }
    attention_gatv2_gradient_f16 {
        attention_gatv2_gradient_rows_f16_32 => Gradient<Gatv2, OverRows, Vectors<F16>, 4, 1>,
        attention_gatv2_gradient_columns_f16_32 => Gradient<Gatv2, OverColumns, Vectors<F16>, 4, 1>,
        attention_gatv2_gradient_rows_f16_64 => Gradient<Gatv2, OverRows, Vectors<F16>, 8, 1>,
        attention_gatv2_gradient_columns_f16_64 => Gradient<Gatv2, OverColumns, Vectors<F16>, 8, 1>,
        attention_gatv2_gradient_rows_f16_256 => Gradient<Gatv2, OverRows, Vectors<F16>, 32, 1>,
        attention_gatv2_gradient_columns_f16_256 => Gradient<Gatv2, OverColumns, Vectors<F16>, 32, 1>,
    }
    attention_gatv2_gradient_f16_elements {
        attention_gatv2_gradient_rows_f16_elements_256 => Gradient<Gatv2, OverRows, Scalars<F16>, 32, 8>,
        attention_gatv2_gradient_columns_f16_elements_256 => Gradient<Gatv2, OverColumns, Scalars<F16>, 32, 8>,
    }
    attention_gatv2_bf16 {
        attention_gatv2_bf16_32 => AttentionRows<Gatv2, Vectors<Bf16>, 4, 1>,
        attention_gatv2_bf16_64 => AttentionRows<Gatv2, Vectors<Bf16>, 8, 1>,
        attention_gatv2_bf16_256 => AttentionRows<Gatv2, Vectors<Bf16>, 32, 1>,
    }
    attention_gatv2_bf16_elements {
        attention_gatv2_bf16_elements_256 => AttentionRows<Gatv2, Scalars<Bf16>, 32, 8>,
    }
    attention_gatv2_gradient_bf16 {
        attention_gatv2_gradient_rows_bf16_32 => Gradient<Gatv2, OverRows, Vectors<Bf16>, 4, 1>,
        attention_gatv2_gradient_columns_bf16_32 => Gradient<Gatv2, OverColumns, Vectors<Bf16>, 4, 1>,
        attention_gatv2_gradient_rows_bf16_64 => Gradient<Gatv2, OverRows, Vectors<Bf16>, 8, 1>,
        attention_gatv2_gradient_columns_bf16_64 => Gradient<Gatv2, OverColumns, Vectors<Bf16>, 8, 1>,
        attention_gatv2_gradient_rows_bf16_256 => Gradient<Gatv2, OverRows, Vectors<Bf16>, 32, 1>,
        attention_gatv2_gradient_columns_bf16_256 => Gradient<Gatv2, OverColumns, Vectors<Bf16>, 32, 1>,
    }
    attention_gatv2_gradient_bf16_elements {
        attention_gatv2_gradient_rows_bf16_elements_256 => Gradient<Gatv2, OverRows, Scalars<Bf16>, 32, 8>,
        attention_gatv2_gradient_columns_bf16_elements_256 => Gradient<Gatv2, OverColumns, Scalars<Bf16>, 32, 8>,
    }
}

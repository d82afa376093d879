//! Entry points: attention over sparse matrices.

use crate::attention::{AttentionJoin, AttentionRows, AttentionWindows, ByColumns, ByEntries};
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
}

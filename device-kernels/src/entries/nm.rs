//! Entry points: products with N:M weights.

use crate::element::{Bf16, F16, F32, Tf32};
use crate::nm::{self, Bits16, Block, ByColumn, ByLane, ByMetadata, ByPicks, ByWarp, NmCombine, NmCudaCores, NmFewRows, NmKept, NmPacked, NmSparse, NmStage, NmTaken, NmTensorCores, NmTransposed, NmWeights, Single, Widened};

entries! {
    Nm:
    @from Sm80:
    nm_f32_128x128 {
        nm_f32_128x128 => NmCudaCores<ByWarp, 16, 8, 4>,
    }
    nm_f32_64x128 {
        nm_f32_64x128 => NmCudaCores<ByWarp, 8, 8, 4>,
    }
    nm_f32_64x64 {
        nm_f32_64x64 => NmCudaCores<ByWarp, 8, 8, 2>,
    }
    nm_f32_32x64 {
        nm_f32_32x64 => NmCudaCores<ByWarp, 4, 8, 2>,
    }
    nm_f32_32x32 {
        nm_f32_32x32 => NmCudaCores<ByWarp, 4, 4, 2>,
    }
    nm_f32_128x128_single {
        nm_f32_128x128_single => NmCudaCores<ByWarp, 16, 8, 4, Single>,
    }
    nm_f32_64x128_single {
        nm_f32_64x128_single => NmCudaCores<ByWarp, 8, 8, 4, Single>,
    }
    nm_f32_128x128_by8 {
        nm_f32_128x128_by8 => NmCudaCores<ByLane, 16, 8, 4>,
    }
    nm_f32_32x64_by8 {
        nm_f32_32x64_by8 => NmCudaCores<ByLane, 4, 8, 2>,
    }
    nm_f32_128x64_by4 {
        nm_f32_128x64_by4 => NmCudaCores<ByLane, 16, 4, 4>,
    }
    nm_f32_32x32_by4 {
        nm_f32_32x32_by4 => NmCudaCores<ByLane, 4, 4, 2>,
    }
    nm_f32_32x32_by1 {
        nm_f32_32x32_by1 => NmCudaCores<ByColumn, 4, 4, 2>,
    }
    nm_f16_64x512_128 {
        nm_f16_64x512_128 => NmTensorCores<F16, Block<16, 32, 128, 4>, 4>,
    }
    nm_f16_64x512_256 {
        nm_f16_64x512_256 => NmTensorCores<F16, Block<16, 32, 256, 3>, 4>,
    }
    nm_f16_64x512_by16 {
        nm_f16_64x512_by16 => NmTensorCores<F16, Block<16, 16, 256, 3>, 4>,
    }
    nm_f16_32x512_by8 {
        nm_f16_32x512_by8 => NmTensorCores<F16, Block<16, 8, 256, 3>, 2>,
    }
    nm_f16_64x256 {
        nm_f16_64x256 => NmTensorCores<F16, Block<8, 32, 256, 3>, 4>,
    }
    nm_f16_32x256 {
        nm_f16_32x256 => NmTensorCores<F16, Block<8, 32, 256, 3>, 2>,
    }
    nm_f16_16x128 {
        nm_f16_16x128 => NmTensorCores<F16, Block<4, 32, 128, 4>, 1>,
    }
    nm_bf16_64x512_128 {
        nm_bf16_64x512_128 => NmTensorCores<Bf16, Block<16, 32, 128, 4>, 4>,
    }
    nm_bf16_64x512_256 {
        nm_bf16_64x512_256 => NmTensorCores<Bf16, Block<16, 32, 256, 3>, 4>,
    }
    nm_bf16_64x512_by16 {
        nm_bf16_64x512_by16 => NmTensorCores<Bf16, Block<16, 16, 256, 3>, 4>,
    }
    nm_bf16_32x512_by8 {
        nm_bf16_32x512_by8 => NmTensorCores<Bf16, Block<16, 8, 256, 3>, 2>,
    }
    nm_bf16_64x256 {
        nm_bf16_64x256 => NmTensorCores<Bf16, Block<8, 32, 256, 3>, 4>,
    }
    nm_bf16_32x256 {
        nm_bf16_32x256 => NmTensorCores<Bf16, Block<8, 32, 256, 3>, 2>,
    }
    nm_bf16_16x128 {
        nm_bf16_16x128 => NmTensorCores<Bf16, Block<4, 32, 128, 4>, 1>,
    }
    nm_tf32_64x512_64 {
        nm_tf32_64x512_64 => NmTensorCores<Tf32, Block<16, 32, 64, 5>, 4>,
    }
    nm_tf32_64x512_128 {
        nm_tf32_64x512_128 => NmTensorCores<Tf32, Block<16, 32, 128, 4>, 4>,
    }
    nm_tf32_64x256 {
        nm_tf32_64x256 => NmTensorCores<Tf32, Block<8, 32, 128, 4>, 4>,
    }
    nm_tf32_64x256_by16 {
        nm_tf32_64x256_by16 => NmTensorCores<Tf32, Block<8, 16, 128, 4>, 4>,
    }
    nm_tf32_64x256_by8 {
        nm_tf32_64x256_by8 => NmTensorCores<Tf32, Block<8, 8, 128, 4>, 4>,
    }
    nm_tf32_32x128 {
        nm_tf32_32x128 => NmTensorCores<Tf32, Block<4, 32, 64, 4>, 2>,
    }
    nm_few_f16_8 {
        nm_few_f16_8x32 => NmFewRows<ByPicks<F16>, 1, 2>,
        nm_few_f16_8x16 => NmFewRows<ByPicks<F16>, 1, 1>,
    }
    nm_few_f16_16 {
        nm_few_f16_16x32 => NmFewRows<ByPicks<F16>, 2, 2>,
        nm_few_f16_16x16 => NmFewRows<ByPicks<F16>, 2, 1>,
    }
    nm_few_f16_32 {
        nm_few_f16_32x32 => NmFewRows<ByPicks<F16>, 4, 2>,
        nm_few_f16_32x16 => NmFewRows<ByPicks<F16>, 4, 1>,
    }
    nm_few_bf16_8 {
        nm_few_bf16_8x32 => NmFewRows<ByPicks<Bf16>, 1, 2>,
        nm_few_bf16_8x16 => NmFewRows<ByPicks<Bf16>, 1, 1>,
    }
    nm_few_bf16_16 {
        nm_few_bf16_16x32 => NmFewRows<ByPicks<Bf16>, 2, 2>,
        nm_few_bf16_16x16 => NmFewRows<ByPicks<Bf16>, 2, 1>,
    }
    nm_few_bf16_32 {
        nm_few_bf16_32x32 => NmFewRows<ByPicks<Bf16>, 4, 2>,
        nm_few_bf16_32x16 => NmFewRows<ByPicks<Bf16>, 4, 1>,
    }
    nm_few_sparse_f16 {
        nm_few_sparse_f16_8 => NmFewRows<ByMetadata<F16>, 1, 2>,
        nm_few_sparse_f16_16 => NmFewRows<ByMetadata<F16>, 2, 2>,
        nm_few_sparse_f16_32 => NmFewRows<ByMetadata<F16>, 4, 2>,
    }
    nm_few_sparse_bf16 {
        nm_few_sparse_bf16_8 => NmFewRows<ByMetadata<Bf16>, 1, 2>,
        nm_few_sparse_bf16_16 => NmFewRows<ByMetadata<Bf16>, 2, 2>,
        nm_few_sparse_bf16_32 => NmFewRows<ByMetadata<Bf16>, 4, 2>,
    }
    nm_combine {
        nm_combine => NmCombine,
    }
    nm_stage {
        nm_stage_16bit => NmStage<Bits16, true>,
        nm_stage_16bit_elements => NmStage<Bits16, false>,
        nm_stage_f32 => NmStage<Widened<F32>, true>,
        nm_stage_f32_elements => NmStage<Widened<F32>, false>,
        nm_stage_tf32 => NmStage<Widened<Tf32>, true>,
        nm_stage_tf32_elements => NmStage<Widened<Tf32>, false>,
        nm_stage_f16_to_f32 => NmStage<Widened<F16>, true>,
        nm_stage_f16_to_f32_elements => NmStage<Widened<F16>, false>,
        nm_stage_bf16_to_f32 => NmStage<Widened<Bf16>, true>,
        nm_stage_bf16_to_f32_elements => NmStage<Widened<Bf16>, false>,
    }
    nm_weights {
        nm_weights => NmWeights,
    }
    nm_gradient {
        nm_transposed => NmTransposed,
        nm_taken => NmTaken,
    }

    @from Sm90:
    nm_f32_128x128_bulk {
        nm_f32_128x128_bulk => NmCudaCores<ByWarp, 16, 8, 4, nm::Bulk>,
    }
    nm_f32_64x128_bulk {
        nm_f32_64x128_bulk => NmCudaCores<ByWarp, 8, 8, 4, nm::Bulk>,
    }

    @from Sm90a:
    nm_sparse_f16_256x128 {
        nm_sparse_f16_256x128 => NmSparse<F16, 1, 128, 5>,
    }
    nm_sparse_f16_176x256 {
        nm_sparse_f16_176x256 => NmSparse<F16, 2, 88, 5>,
    }
    nm_sparse_f16_128x128 {
        nm_sparse_f16_128x128 => NmSparse<F16, 1, 64, 4>,
    }
    nm_sparse_f16_64x128 {
        nm_sparse_f16_64x128 => NmSparse<F16, 1, 32, 5>,
    }
    nm_sparse_bf16_256x128 {
        nm_sparse_bf16_256x128 => NmSparse<Bf16, 1, 128, 5>,
    }
    nm_sparse_bf16_176x256 {
        nm_sparse_bf16_176x256 => NmSparse<Bf16, 2, 88, 5>,
    }
    nm_sparse_bf16_128x128 {
        nm_sparse_bf16_128x128 => NmSparse<Bf16, 1, 64, 4>,
    }
    nm_sparse_bf16_64x128 {
        nm_sparse_bf16_64x128 => NmSparse<Bf16, 1, 32, 5>,
    }
    nm_packed_f16_192x256 {
        nm_packed_f16_192x256 => NmPacked<F16, 2, 96, 4>,
    }
    nm_packed_f16_128x256 {
        nm_packed_f16_128x256 => NmPacked<F16, 2, 64, 5>,
    }
    nm_packed_f16_256x128 {
        nm_packed_f16_256x128 => NmPacked<F16, 1, 128, 4>,
    }
    nm_packed_f16_128x128 {
        nm_packed_f16_128x128 => NmPacked<F16, 1, 64, 7>,
    }
    nm_packed_f16_64x128 {
        nm_packed_f16_64x128 => NmPacked<F16, 1, 32, 8>,
    }
    nm_packed_bf16_192x256 {
        nm_packed_bf16_192x256 => NmPacked<Bf16, 2, 96, 4>,
    }
    nm_packed_bf16_128x256 {
        nm_packed_bf16_128x256 => NmPacked<Bf16, 2, 64, 5>,
    }
    nm_packed_bf16_256x128 {
        nm_packed_bf16_256x128 => NmPacked<Bf16, 1, 128, 4>,
    }
    nm_packed_bf16_128x128 {
        nm_packed_bf16_128x128 => NmPacked<Bf16, 1, 64, 7>,
    }
    nm_packed_bf16_64x128 {
        nm_packed_bf16_64x128 => NmPacked<Bf16, 1, 32, 8>,
    }
    nm_kept_f16_256x128 {
        nm_kept_f16_256x128 => NmKept<F16, 1, 128, 4>,
    }
    nm_kept_f16_128x256 {
        nm_kept_f16_128x256 => NmKept<F16, 2, 64, 4>,
    }
    nm_kept_f16_128x128 {
        nm_kept_f16_128x128 => NmKept<F16, 1, 64, 6>,
    }
    nm_kept_f16_64x128 {
        nm_kept_f16_64x128 => NmKept<F16, 1, 32, 8>,
    }
    nm_kept_bf16_256x128 {
        nm_kept_bf16_256x128 => NmKept<Bf16, 1, 128, 4>,
    }
    nm_kept_bf16_128x256 {
        nm_kept_bf16_128x256 => NmKept<Bf16, 2, 64, 4>,
    }
    nm_kept_bf16_128x128 {
        nm_kept_bf16_128x128 => NmKept<Bf16, 1, 64, 6>,
    }
    nm_kept_bf16_64x128 {
        nm_kept_bf16_64x128 => NmKept<Bf16, 1, 32, 8>,
    }
}

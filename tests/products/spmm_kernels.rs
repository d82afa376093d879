//! Every algorithm in every precision, on every device, against the f64 reference.

use crate::common::{Setup, check, every_case};
use windrow::{Algorithm, Precision, TilePipeline, TileValues};

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn row_split_f32() {
    check(Setup::new(Algorithm::RowSplit, Precision::F32), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn row_split_f16() {
    check(Setup::new(Algorithm::RowSplit, Precision::F16), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn row_split_tf32() {
    check(Setup::new(Algorithm::RowSplit, Precision::Tf32), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn row_split_bf16() {
    check(Setup::new(Algorithm::RowSplit, Precision::Bf16), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn short_rows_f32() {
    check(Setup::new(Algorithm::ShortRows, Precision::F32), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn short_rows_f16() {
    check(Setup::new(Algorithm::ShortRows, Precision::F16), &every_case(40));
}

#[test]
fn short_rows_tf32() {
    check(Setup::new(Algorithm::ShortRows, Precision::Tf32), &every_case(40));
}

#[test]
fn short_rows_bf16() {
    check(Setup::new(Algorithm::ShortRows, Precision::Bf16), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn tile_stream_f16() {
    check(Setup::new(Algorithm::TileStream, Precision::F16), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn tile_stream_bf16() {
    check(Setup::new(Algorithm::TileStream, Precision::Bf16), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn tile_stream_tf32() {
    check(Setup::new(Algorithm::TileStream, Precision::Tf32), &every_case(40));
}

/// Tiles with packed values.
fn packed(precision: Precision) -> Setup {
    Setup::new(Algorithm::TileStream, precision).told(|o| o.tile_values = TileValues::Packed)
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn packed_tiles_f16() {
    check(packed(Precision::F16), &every_case(40));
}

#[test]
fn packed_tiles_bf16() {
    check(packed(Precision::Bf16), &every_case(40));
}

#[test]
fn packed_tiles_tf32() {
    check(packed(Precision::Tf32), &every_case(40));
}

/// Tiles whose values are behind bitmaps.
fn behind_bitmaps(precision: Precision) -> Setup {
    Setup::new(Algorithm::TileStream, precision).told(|o| o.tile_values = TileValues::Bitmap)
}

#[test]
fn bitmap_tiles_f16() {
    check(behind_bitmaps(Precision::F16), &every_case(40));
}

#[test]
fn bitmap_tiles_bf16() {
    check(behind_bitmaps(Precision::Bf16), &every_case(40));
}

#[test]
fn bitmap_tiles_tf32() {
    check(behind_bitmaps(Precision::Tf32), &every_case(40));
}

/// Tiles in f16 whose rows of `B` come otherwise.
fn piped(tile_pipeline: TilePipeline, tile_values: TileValues) -> Setup {
    let setup = Setup::new(Algorithm::TileStream, Precision::F16);
    setup.told(|o| (o.tile_pipeline, o.tile_values) = (tile_pipeline, tile_values))
}

#[test]
fn two_stages_of_dense_tiles() {
    check(piped(TilePipeline::TwoStages, TileValues::Dense), &every_case(40));
}

#[test]
fn two_stages_of_packed_tiles() {
    check(piped(TilePipeline::TwoStages, TileValues::Packed), &every_case(40));
}

#[test]
fn two_stages_of_bitmap_tiles() {
    check(piped(TilePipeline::TwoStages, TileValues::Bitmap), &every_case(40));
}

#[test]
fn registers_and_dense_tiles() {
    check(piped(TilePipeline::Registers, TileValues::Dense), &every_case(40));
}

#[test]
fn registers_and_packed_tiles() {
    check(piped(TilePipeline::Registers, TileValues::Packed), &every_case(40));
}

#[test]
fn registers_and_bitmap_tiles() {
    check(piped(TilePipeline::Registers, TileValues::Bitmap), &every_case(40));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn hybrid_f16() {
    check(Setup::new(Algorithm::Hybrid, Precision::F16), &every_case(40));
}

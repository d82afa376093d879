//! Ways to the same product, side by side.

use windrow::{Algorithm, Precision, SpmmOptions, TilePipeline, TileValues};

use super::bench::{Bench, speed_up};
use super::facts::{AblationFacts, HybridFacts, Measurement, OtherFacts, PrintedFacts};
use crate::measure::SweepPath;

/// Windows dealt out evenly, and a warp for each.
pub(super) fn stream(bench: &mut Bench<'_>) -> AblationFacts {
    let path = SweepPath::new(Algorithm::TileStream, Precision::F16);
    let tile_stream = bench.measure(path, None, None);
    let with_windows = SpmmOptions { window_each: true, ..path.options };
    let window_each = bench.measure(with_windows.into(), None, None);
    let speed_up = speed_up(tile_stream.as_ref(), window_each.as_ref());
    AblationFacts::Stream { tile_stream, window_each, speed_up }
}

/// The tile stream with dense values, and with what RSH-SpMM prints in the place of its parts.
pub(super) fn printed(bench: &mut Bench<'_>) -> AblationFacts {
    let SweepPath { options, .. } = SweepPath::new(Algorithm::TileStream, Precision::F16);
    let dense = SpmmOptions { tile_values: TileValues::Dense, ..options };
    let built = bench.measure(dense.into(), None, None);
    let others = [
        SpmmOptions { tile_values: TileValues::Packed, ..dense },
        SpmmOptions { tile_values: TileValues::Bitmap, ..dense },
        SpmmOptions { tile_pipeline: TilePipeline::TwoStages, ..dense },
        SpmmOptions { tile_pipeline: TilePipeline::Registers, ..dense },
        // All of it at once.
        SpmmOptions {
            tile_values: TileValues::Bitmap,
            tile_pipeline: TilePipeline::Registers,
            window_each: true,
            ..dense
        },
    ];
    let measured = others.map(|options| {
        let path = SweepPath::from(options);
        let product = bench.measure(path, None, None);
        let slow_down = speed_up(built.as_ref(), product.as_ref());
        OtherFacts { path: path.to_string(), product, slow_down }
    });
    AblationFacts::Printed(PrintedFacts { built, others: measured.into() })
}

/// The hybrid, and all rows on one path.
pub(super) fn hybrid(bench: &mut Bench<'_>) -> AblationFacts {
    let mut measure = |algorithm| bench.measure(SweepPath::new(algorithm, Precision::F16), None, None);
    let hybrid = measure(Algorithm::Hybrid);
    let tile_stream = measure(Algorithm::TileStream);
    let row_split = measure(Algorithm::RowSplit);
    let short_rows = measure(Algorithm::ShortRows);
    let us = |measurement: &Option<Measurement>| measurement.as_ref().and_then(Measurement::us);
    let best = [&tile_stream, &row_split, &short_rows].into_iter().filter_map(us).min_by(f64::total_cmp);
    let loss_percent = us(&hybrid).zip(best).map(|(own, best)| 100.0 * (own / best - 1.0));
    let facts = HybridFacts { hybrid, tile_stream, row_split, short_rows, loss_percent };
    AblationFacts::Hybrid(Box::new(facts))
}

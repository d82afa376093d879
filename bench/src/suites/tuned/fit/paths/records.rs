//! The measured times of paths that a fit starts from: lines of the suites `spmm`, `tuned`, `sddmm` and `plans`.

use std::collections::BTreeMap;

use serde_json::Value;
use windrow::internal::{Asked, Division, GroupThresholds, Kind, MatrixCounts, PanelCounts, RowLengths};
use windrow::{Algorithm, Precision, SpmmOptions};

use crate::measure::SweepPath;

/// A path and the product that it was timed for, whose matrix is a checksum.
pub(super) type Timed = (String, Kind, Precision, usize);

/// A matrix of the records.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    pub(super) name: String,
    pub(super) counts: MatrixCounts,
}

/// What lines say of matrices and of times.
#[derive(Debug, Default)]
pub(crate) struct PathRecords {
    matrices: BTreeMap<String, (String, BTreeMap<&'static str, u64>)>,
    times: BTreeMap<Timed, f64>,
    /// Times of whatever division of segment groups an older tree answered.
    of_older_trees: BTreeMap<Timed, f64>,
    /// Times of the divisions of segment groups.
    divisions: Vec<(String, SweepPath, usize, f64)>,
}

impl PathRecords {
    /// Adds a line; one of something else, or of a cold L2 cache, says nothing.
    ///
    /// # Errors
    /// If it is no JSON.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), serde_json::Error> {
        let line: Value = serde_json::from_str(line)?;
        if line["l2"].get("cold").is_some() {
            return Ok(());
        }
        let Some(checksum) = line["matrix"]["checksum"].as_str() else { return Ok(()) };
        let known = self.matrices.entry(checksum.to_owned()).or_default();
        if let Some(name) = line["matrix"]["name"].as_str() {
            name.clone_into(&mut known.0);
        }
        for name in ["rows", "cols", "nnz", "longest_row", "empty_rows", "column_vectors", "batches"] {
            if let Some(count) = line["matrix"][name].as_u64() {
                known.1.insert(name, count);
            }
        }
        let path = line["path"].as_str().unwrap_or_default();
        if let ("tile-stream-f16" | "auto-f16", Some(vectors @ 1..)) =
            (path, line["plan"]["column_vectors"].as_u64())
        {
            known.1.insert("column_vectors", vectors);
        }
        for name in ["panel_columns", "panel_vectors"] {
            if let Some(count @ 1..) = line["plan"][name].as_u64() {
                known.1.insert(name, count);
            }
        }
        let of = |size: &str| line[size].as_u64().and_then(|size| usize::try_from(size).ok());
        let us = line["time"]["median_us"].as_f64().filter(|_| line["error"].is_null());
        let taken = line["plan"]["algorithm"].as_str().unwrap_or_default();
        if let (Some(inner), Some(us)) = (of("inner"), us) {
            self.add_sampled((checksum, inner), (path, taken), us);
        } else if let Some(width) = of("width") {
            let tried = line["tried"].as_array().into_iter().flatten();
            let tried = tried.filter_map(|of| Some((of["path"].as_str()?, of["median_us"].as_f64()?)));
            for (path, us) in tried.chain(us.map(|us| (path, us))) {
                self.add_product((checksum, width), (path, taken), us);
            }
        }
        Ok(())
    }

    fn add_sampled(&mut self, (matrix, inner): (&str, usize), (path, taken): (&str, &str), us: f64) {
        let Some((algorithm, precision)) = path.rsplit_once('-') else { return };
        let kind = match if algorithm == "auto" { taken } else { algorithm } {
            "entries" => Kind::SampledEntries,
            "groups" => Kind::SampledGroups,
            "tiles" => Kind::SampledTiles,
            "row-panels" => Kind::SampledPanels,
            _ => return,
        };
        if let Ok(precision) = precision.parse() {
            least(&mut self.times, (matrix.to_owned(), kind, precision, inner), us);
        }
    }

    fn add_product(&mut self, (matrix, width): (&str, usize), (path, taken): (&str, &str), us: f64) {
        let Ok(path) = path.parse::<SweepPath>() else { return };
        let SpmmOptions { algorithm, precision, parallelism, .. } = path.options;
        let plain = SpmmOptions { algorithm, precision, ..SpmmOptions::default() };
        let algorithm = match algorithm {
            Algorithm::Auto => taken.parse().unwrap_or(Algorithm::Auto),
            asked => asked,
        };
        let of = |kind| (matrix.to_owned(), kind, precision, width);
        match (algorithm, SweepPath::from(plain) == path) {
            (Algorithm::RowSplit, true) => least(&mut self.times, of(Kind::Rows), us),
            (Algorithm::RowPanels, true) => least(&mut self.times, of(Kind::Panels), us),
            (Algorithm::TileStream, true) => least(&mut self.times, of(Kind::Tiles), us),
            (Algorithm::SegmentGroup, true) => least(&mut self.of_older_trees, of(Kind::Groups), us),
            (Algorithm::SegmentGroup, false) if parallelism.is_some() => {
                self.divisions.push((matrix.to_owned(), path, width, us));
            }
            _ => {}
        }
    }

    /// The matrices of which everything is known, and the times of their products.
    pub(super) fn settle(self) -> (BTreeMap<String, Matrix>, BTreeMap<Timed, f64>) {
        let matrices: BTreeMap<_, _> = self
            .matrices
            .into_iter()
            .filter_map(|(checksum, (name, known))| {
                let count = |name| known.get(name).copied();
                let counts = MatrixCounts {
                    rows: count("rows")?,
                    cols: count("cols")?,
                    nnz: count("nnz")?,
                    empty_rows: count("empty_rows")?,
                    longest: count("longest_row")?,
                    vectors: count("column_vectors")?,
                    // Older records lack it: the last batch of a row is half full.
                    batches: count("batches").unwrap_or(count("nnz")?.div_ceil(8) + count("rows")? / 2),
                    // Where no plan of panels was recorded, none is weighed.
                    panels: PanelCounts {
                        columns: count("panel_columns").unwrap_or_default(),
                        vectors: count("panel_vectors").unwrap_or_default(),
                    },
                };
                Some((checksum, Matrix { name, counts }))
            })
            .collect();
        let mut times = self.times;
        for (matrix, path, width, us) in self.divisions {
            let Some(Matrix { counts, .. }) = matrices.get(&matrix) else { continue };
            let lengths = RowLengths {
                rows: counts.rows.max(1) as f64,
                nnz: counts.nnz as f64,
                longest: counts.longest as f64,
            };
            let Division { point, launch, .. } = lengths.division(width, &GroupThresholds::FITTED);
            let SpmmOptions { precision, parallelism, group_launch, .. } = path.options;
            let way = SpmmOptions {
                algorithm: Algorithm::SegmentGroup,
                precision,
                parallelism,
                group_launch,
                ..SpmmOptions::default()
            };
            let is_the_trees = parallelism == Some(point) && group_launch.unwrap_or_default() == launch;
            if is_the_trees && SweepPath::from(way) == path {
                least(&mut times, (matrix, Kind::Groups, precision, width), us);
            }
        }
        for (of, us) in self.of_older_trees {
            times.entry(of).or_insert(us);
        }
        times.retain(|(matrix, ..), _| matrices.contains_key(matrix));
        (matrices, times)
    }
}

fn least(times: &mut BTreeMap<Timed, f64>, of: Timed, us: f64) {
    let known = times.entry(of).or_insert(us);
    *known = known.min(us);
}

/// The path and the product of a time.
pub(super) fn asked(&(_, kind, precision, width): &Timed) -> Asked {
    Asked { kind, precision, width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_times_say_nothing() {
        let line = r#"{"schema":1,"matrix":{"name":"m","checksum":"c"},"width":4,"path":"row-split-f32","plan":null,"time":{"median_us":3.0},"error":null,L2}"#;
        let mut records = PathRecords::default();
        records.add(&line.replace("L2", r#""l2":{"cold":{"flushed_bytes":8,"cache":"told"}}"#)).unwrap();
        assert!(records.times.is_empty() && records.matrices.is_empty());
        records.add(&line.replace("L2", r#""l2":"warm""#)).unwrap();
        assert_eq!(records.times.len(), 1);
    }
}

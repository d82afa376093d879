//! Arguments of `windrow-bench nm`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::{ActivationLayout, Device, NmAlgorithm, NmPacking, NmPattern, Precision};

use super::shape::NmShape;
use super::summary::summarise;
use super::{Nm, NmRecord, Options};
use crate::program::{CacheArguments, Command, Common, Failure};

/// Products with vector-wise N:M weights: shapes, patterns and precisions.
///
/// On a CUDA device cuBLAS's dense product of the same shape and precision is measured beside. Of large results a
/// sample of rows is checked, from the first to the last.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    /// Sizes: `MxNxK`, paper (Table II of NM-SpMM) or llama (the linear layers of Llama-7B).
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', default_value = "paper")]
    shapes: Vec<String>,
    /// Patterns: rows kept of each group.
    #[arg(long, value_name = "N:M", value_delimiter = ',', default_value = "16:32,12:32,8:32,4:32")]
    patterns: Vec<String>,
    /// Columns that share their pattern.
    #[arg(long, value_name = "L", value_delimiter = ',', default_value = "32")]
    vectors: Vec<usize>,
    /// Types of activations and weights: f32, tf32, f16, bf16.
    #[arg(long, value_name = "PRECISION", value_delimiter = ',', default_value = "f32")]
    precisions: Vec<Precision>,
    /// How activations are stored: k-major, row-major.
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',', default_value = "k-major")]
    layouts: Vec<ActivationLayout>,
    /// Whether columns of A are packed: auto, packed, plain.
    #[arg(long, value_name = "PACKING", value_delimiter = ',', default_value = "auto")]
    packings: Vec<NmPacking>,
    /// The algorithm on a GPU: auto, cuda-cores, tensor-cores, sparse-tensor-cores, dense.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: NmAlgorithm,
    /// One kernel by its name, instead of the model's choice.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Promise plans that activations are finite, as they are here.
    #[arg(long)]
    finite: bool,
    /// Let plans run cuBLAS where a dense product is quicker.
    #[arg(long, conflicts_with = "kernel")]
    dense_fallback: bool,
    /// Let every plan try a few kernels.
    #[arg(long)]
    autotune: bool,
    /// Leave out cuBLAS's dense product.
    #[arg(long)]
    no_peers: bool,
}

impl Command for Arguments {
    type Suite = Nm;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.common.no_files()?;
        self.options().map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Nm, Failure> {
        Ok(Nm::open(device, self.options()?))
    }

    fn line(record: &NmRecord) -> String {
        let facts = &record.facts;
        let [n, m, l] = facts.pattern;
        let kernel = facts.plan.as_ref().map_or(String::new(), |plan| plan.entries.join("+"));
        let what = format!("{} {n}:{m} L {l} {} {} {kernel}", facts.shape, facts.precision, facts.layout);
        match (record.us(), facts.tflops, &record.error) {
            (Some(us), Some(tflops), _) => {
                let dense =
                    facts.dense_us.map_or(String::new(), |dense| format!(", {:.2} x dense", dense / us));
                format!("{what}: {us:.1} µs, {tflops:.1} TFLOP/s{dense}")
            }
            (.., error) => format!("{what}: {}", error.as_deref().unwrap_or("no time")),
        }
    }

    fn summarise(&self, records: &[NmRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}

impl Arguments {
    fn options(&self) -> Result<Options, Failure> {
        let shapes = self.shapes.iter().map(|text| NmShape::named(text).map_err(Failure::usage));
        let patterns =
            self.vectors.iter().flat_map(|&l| self.patterns.iter().map(move |text| pattern(text, l)));
        Ok(Options {
            shapes: shapes.collect::<Result<Vec<_>, _>>()?.concat(),
            patterns: patterns.collect::<Result<_, _>>()?,
            precisions: self.precisions.clone(),
            layouts: self.layouts.clone(),
            packings: self.packings.clone(),
            algorithm: self.algorithm,
            kernel: self.kernel.clone(),
            finite: self.finite,
            dense_fallback: self.dense_fallback,
            autotune: self.autotune,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            peers: !self.no_peers,
        })
    }
}

/// Reads `N:M`, a pattern of runs of `l` columns.
fn pattern(text: &str, l: usize) -> Result<NmPattern, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::usage(format!("{text:?}: {error}"));
    let numbers = text.split_once(':').and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
    let (n, m) = numbers.ok_or_else(|| usage(&"no pattern; write N:M, such as 2:8"))?;
    NmPattern::new(n, m, l).map_err(|error| usage(&error))
}

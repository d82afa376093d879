//! What `auto` would take for a product, from the decision of the library itself, and whether a dense product would be
//! quicker still.

use serde::Serialize;
use windrow::{Candidate, Csr, Precision, Profile, Sddmm, Spmm, Structure};

use crate::estimate::Gpu;
use crate::failure::Result;
use crate::units::{digits, time_us};

/// Precisions that are told of unless one is named.
const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Tf32, Precision::F16];

/// A product, and the paths that may serve it.
#[derive(Debug, Serialize)]
pub(crate) struct Predicted {
    /// Its kind, `spmm` or `sddmm`.
    product: &'static str,
    /// Columns of `B`, or of `X` and `Y`.
    width: usize,
    precision: Precision,
    /// The algorithm that auto takes, and in which precision.
    algorithm: String,
    served_in: Precision,
    reason: String,
    /// What was weighed, the quickest first; nothing where something else decides.
    candidates: Vec<Candidate>,
    /// Least time of a dense product on an H200, in microseconds; none for the costs of another GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    dense_us: Option<f64>,
}

/// Products of a matrix whose times shall be predicted.
pub(crate) struct Products<'a> {
    pub(crate) a: &'a Csr<f32>,
    pub(crate) structure: &'a Structure,
    pub(crate) width: Option<u32>,
    pub(crate) inner: Option<u32>,
    pub(crate) precision: Option<Precision>,
}

impl Products<'_> {
    /// What is predicted of them with the costs of a profile; `gpu` has the rates of dense products, if it is known.
    pub(crate) fn predict(&self, profile: &Profile, gpu: Option<&Gpu>) -> Result<Vec<Predicted>> {
        let precisions = self.precision.map_or(PRECISIONS.to_vec(), |precision| vec![precision]);
        let mut found = Vec::new();
        for precision in precisions {
            if let Some(width) = self.width.map(|width| width as usize) {
                let weighed = Spmm::builder(self.a).width(width).precision(precision).weigh(profile)?;
                found.push(Predicted {
                    product: "spmm",
                    width,
                    precision,
                    algorithm: weighed.algorithm.to_string(),
                    served_in: weighed.precision,
                    reason: weighed.reason,
                    candidates: weighed.candidates,
                    dense_us: gpu.map(|gpu| gpu.dense_us(self.structure, width, precision)),
                });
            }
            if let Some(width) = self.inner.map(|inner| inner as usize) {
                let weighed = Sddmm::builder(self.a).inner(width).precision(precision).weigh(profile)?;
                found.push(Predicted {
                    product: "sddmm",
                    width,
                    precision,
                    algorithm: weighed.algorithm.to_string(),
                    served_in: weighed.precision,
                    reason: weighed.reason,
                    candidates: weighed.candidates,
                    dense_us: gpu.map(|gpu| gpu.dense_sampled_us(self.structure, width, precision)),
                });
            }
        }
        Ok(found)
    }
}

impl Predicted {
    /// A line on what is taken, and one for each candidate.
    pub(crate) fn text(&self) -> String {
        let Self { product, width, precision, algorithm, served_in, .. } = self;
        let size = if *product == "spmm" { "columns" } else { "inner" };
        let mut lines =
            vec![format!("{product} {precision}, {size} {width}: auto takes {algorithm} in {served_in}")];
        if self.candidates.is_empty() {
            lines.push(format!("  not by predicted times: {}", self.reason));
        }
        lines.extend(self.candidates.iter().map(|candidate| format!("  {candidate}")));
        let sparse_us = self.candidates.first().map(|candidate| candidate.predicted_us);
        if let Some(dense_us) = self.dense_us {
            let against = match sparse_us {
                Some(sparse_us) if dense_us < sparse_us => ": would be quicker".to_owned(),
                Some(sparse_us) => format!(": {} times as long", digits(dense_us / sparse_us)),
                None => String::new(),
            };
            lines.push(format!("  dense: at least {}{against}", time_us(dense_us)));
        }
        lines.join("\n")
    }
}

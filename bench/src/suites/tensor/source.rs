//! Where the tensors of a measurement come from.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use windrow::synthetic::{seeded_power_law_tensor, seeded_tensor};
use windrow::{Coo3, io};

use crate::measure::BenchError;
use crate::suites::matrices::file_name;

/// A tensor that is loaded when its turn comes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TensorSource {
    /// A FROSTT `.tns` file, gzip seen through.
    File(PathBuf),
    Synthetic(SyntheticTensor),
}

impl TensorSource {
    /// The name in the records: of a file, its name without folder and endings.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => file_name(path),
            Self::Synthetic(kind) => kind.to_string(),
        }
    }

    /// The tensor; made-up ones get places and values of `seed`.
    ///
    /// # Errors
    /// [`BenchError::Read`], [`BenchError::Format`].
    pub(crate) fn load(&self, seed: u64) -> Result<Coo3<f32>, BenchError> {
        Ok(match self {
            Self::File(path) => io::read_tns(path, None, &io::ReadOptions::default())?,
            Self::Synthetic(SyntheticTensor { dims, draws, exponents, .. }) => match exponents {
                None => seeded_tensor(*dims, *draws, seed)?,
                Some(exponents) => seeded_power_law_tensor(*dims, *draws, *exponents, seed)?,
            },
        })
    }
}

/// A made-up tensor: places drawn at random, those that are drawn again once.
///
/// `nell2-like` has the dimensions of FROSTT's nell-2 and a tenth of its 77 million entries; `flickr-like` a tenth of
/// the dimensions of flickr-3d and of its 113 million entries. Their indices follow power laws whose exponents are
/// guesses, not fits: they stand for a tensor with long slices, and for one with short fibers and few slices that hold
/// most. A name may be followed by another number of draws, `nell2-like:1000000`. `IxJxK:N` has N uniform draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SyntheticTensor {
    name: Option<&'static str>,
    dims: [usize; 3],
    draws: usize,
    /// Of the power law of each mode; uniform if there are none.
    exponents: Option<[f64; 3]>,
}

impl SyntheticTensor {
    /// The tensors that have a name of their own; others are named by their dimensions.
    pub(crate) const ALL: [Self; 2] = [
        Self {
            name: Some("nell2-like"),
            dims: [12_092, 9_184, 28_818],
            draws: 7_700_000,
            exponents: Some([0.7, 0.7, 0.7]),
        },
        Self {
            name: Some("flickr-like"),
            dims: [31_969, 2_815_305, 160_719],
            draws: 11_300_000,
            exponents: Some([0.9, 0.4, 0.9]),
        },
    ];
}

impl fmt::Display for SyntheticTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [i, j, k] = self.dims;
        let name = self.name.map_or_else(|| format!("{i}x{j}x{k}"), str::to_owned);
        f.pad(&format!("{name}:{}", self.draws))
    }
}

impl FromStr for SyntheticTensor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no tensor; there are nell2-like and flickr-like, each also :DRAWS, and IxJxK:DRAWS"
            )
        };
        let (name, draws) = match text.split_once(':') {
            Some((name, draws)) => (name, Some(draws.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        if let Some(named) = Self::ALL.into_iter().find(|named| named.name == Some(name)) {
            return Ok(Self { draws: draws.unwrap_or(named.draws), ..named });
        }
        let dims: Option<Vec<usize>> = name.split('x').map(|dim| dim.parse().ok()).collect();
        match (dims.as_deref(), draws) {
            (Some(&[i, j, k]), Some(draws)) => {
                Ok(Self { name: None, dims: [i, j, k], draws, exponents: None })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_read_as_they_are_written() {
        for tensor in SyntheticTensor::ALL {
            assert_eq!(tensor.to_string().parse(), Ok(tensor));
        }
        let small: SyntheticTensor = "30x20x10:500".parse().unwrap();
        assert_eq!(small.to_string().parse(), Ok(small));
        let tensor = TensorSource::Synthetic(small).load(1).unwrap();
        assert!(tensor.dims() == [30, 20, 10] && tensor.nnz() > 400, "{}", tensor.nnz());
        let skewed = TensorSource::Synthetic("flickr-like:2000".parse().unwrap()).load(1).unwrap();
        assert_eq!(skewed.dims(), SyntheticTensor::ALL[1].dims);
        for wrong in ["", "nell2", "30x20:5", "30x20x10", "nell2-like:x"] {
            assert!(wrong.parse::<SyntheticTensor>().is_err(), "{wrong:?}");
        }
        assert_eq!(TensorSource::File("a/nell-2.tns.gz".into()).name(), "nell-2");
    }
}

//! Where the matrices of a sweep come from.

use std::path::{Path, PathBuf};

use windrow::synthetic::{Synthetic, seeded_values};
use windrow::{Csr, io};
use windrow_formats::names;

use crate::error::BenchError;

/// A matrix that is loaded when its turn comes.
#[derive(Debug, Clone)]
pub enum MatrixSource {
    /// A file in any format that windrow reads.
    File(PathBuf),
    /// A made-up matrix.
    Synthetic(Synthetic),
    /// A matrix that is there.
    InMemory {
        /// Its name in the records.
        name: String,
        /// The matrix.
        csr: Csr<f32>,
    },
}

impl MatrixSource {
    /// The name in the records: of a file, its name without folder and endings.
    ///
    /// # Examples
    /// ```
    /// use windrow_bench::MatrixSource;
    ///
    /// assert_eq!(MatrixSource::File("data/ct2010.mtx.gz".into()).name(), "ct2010");
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => file_name(path),
            Self::Synthetic(kind) => kind.name().to_owned(),
            Self::InMemory { name, .. } => name.clone(),
        }
    }

    /// The matrix; made-up ones get values of `seed`, and so do all for [`Values::Random`].
    ///
    /// # Errors
    /// [`BenchError::Read`], [`BenchError::Format`].
    pub fn load(&self, values: Values, seed: u64) -> Result<Csr<f32>, BenchError> {
        let csr = match self {
            Self::File(path) => io::read_csr(path)?,
            Self::Synthetic(kind) => kind.generate(seed)?,
            Self::InMemory { csr, .. } => csr.clone(),
        };
        match values {
            Values::File => Ok(csr),
            Values::Random => {
                // Multiples of 2⁻²³ in [−1, 1): the sum and the half are exact.
                let mut random = seeded_values::<f32>(csr.nnz(), seed)?;
                random.iter_mut().for_each(|x| *x = (*x + 1.0) / 2.0);
                Ok(csr.with_values(random)?)
            }
        }
    }
}

/// Where the values of a matrix come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Values {
    /// From its file; of made-up matrices, uniform in `[−1, 1)`.
    #[default]
    File,
    /// Uniform in `[0, 1)`, whatever the file says, as comparisons of sparse products use them: nothing overflows
    /// f16.
    Random,
}

names!(Values, "source of values", BenchError;
    File => "file", Random => "random");

/// Two endings at most go: compression and format.
pub(crate) fn file_name(path: &Path) -> String {
    let is_gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let path = if is_gzip { path.with_extension("") } else { path.to_owned() };
    path.file_stem().map_or_else(|| "unnamed".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_folder() {
        for (path, name) in [
            ("a/b/DD.mtx", "DD"),
            ("DD.mtx.gz", "DD"),
            ("lyra_conv_to_gates.smtx.GZ", "lyra_conv_to_gates"),
            ("com-Amazon.v1.txt", "com-Amazon.v1"),
            ("plain", "plain"),
            ("..", "unnamed"),
        ] {
            assert_eq!(MatrixSource::File(path.into()).name(), name, "{path}");
        }
        assert_eq!(MatrixSource::Synthetic(Synthetic::Rmat17).name(), "rmat17");
    }

    #[test]
    fn random_values_replace_those_of_the_matrix() {
        let csr = Csr::<f32>::identity(2000).unwrap();
        let source = MatrixSource::InMemory { name: "identity".to_owned(), csr: csr.clone() };
        assert_eq!(source.load(Values::File, 1).unwrap(), csr);
        let random = source.load(Values::Random, 1).unwrap();
        assert_eq!(random.col_indices(), csr.col_indices());
        assert!(random.values().iter().all(|x| (0.0..1.0).contains(x)));
        assert!(random.values().iter().any(|&x| x < 0.1) && random.values().iter().any(|&x| x > 0.9));
        assert_eq!(source.load(Values::Random, 1).unwrap(), random);
        assert_ne!(source.load(Values::Random, 2).unwrap(), random);
        for values in [Values::File, Values::Random] {
            assert_eq!(values.to_string().parse::<Values>().unwrap(), values);
        }
        let error = "ones".parse::<Values>().unwrap_err().to_string();
        assert_eq!(error, "\"ones\" is no source of values; there are file and random");
    }
}

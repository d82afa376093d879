//! The matrices that suites measure: where they come from, and the cases of each.

mod families;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rayon::prelude::*;
use windrow::names;
use windrow::synthetic::{Synthetic, seeded_values};
use windrow::{Csr, io};

use super::facts::MatrixFacts;
use crate::measure::operands::pattern_checksum;
use crate::measure::{BenchError, L2};
pub(crate) use families::Family;

/// A matrix that is loaded when its turn comes.
#[derive(Debug, Clone)]
pub(crate) enum MatrixSource {
    /// A file in any format that windrow reads.
    File(PathBuf),
    Synthetic(Synthetic),
    /// A made-up one of the many that costs are fitted to.
    Family(Family),
    /// A matrix that is there.
    #[cfg(test)]
    InMemory {
        /// Its name in the records.
        name: String,
        csr: Csr<f32>,
    },
}

impl MatrixSource {
    /// The name in the records: of a file, its name without folder and endings.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => file_name(path),
            Self::Synthetic(kind) => kind.name().to_owned(),
            Self::Family(family) => family.name().to_owned(),
            #[cfg(test)]
            Self::InMemory { name, .. } => name.clone(),
        }
    }

    /// The matrix; made-up ones get values of `seed`, and so do all for [`Values::Random`].
    ///
    /// # Errors
    /// [`BenchError::Read`], [`BenchError::Format`].
    pub(crate) fn load(&self, values: Values, seed: u64) -> Result<Csr<f32>, BenchError> {
        let csr = match self {
            Self::File(path) => io::read_csr(path)?,
            Self::Synthetic(kind) => kind.generate(seed)?,
            Self::Family(family) => family.generate(seed)?,
            #[cfg(test)]
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
pub(crate) enum Values {
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

/// The matrices of a suite, read before anything is measured.
pub(crate) struct Matrices(Vec<Loaded>);

/// A matrix, or why there is none.
struct Loaded {
    facts: MatrixFacts,
    matrix: Result<Matrix, String>,
}

/// A matrix that was read.
pub(crate) struct Matrix {
    pub(crate) csr: Csr<f32>,
    pub(crate) checksum: u64,
}

/// One matrix, width and path. A matrix that could not be had has one case, without a width or a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case<P> {
    /// Number of the matrix.
    pub(crate) matrix: usize,
    /// Columns of `B`, or the inner dimension.
    pub(crate) width: usize,
    pub(crate) path: Option<P>,
    /// What the L2 cache holds before each timed product.
    pub(crate) l2: L2,
}

/// What cases with the same operands and peers have in common: the matrix, the width, the state of the cache.
pub(crate) type Place = (usize, usize, L2);

impl<P> Case<P> {
    /// What all cases with the same operands and peers have in common.
    pub(crate) fn place(&self) -> Place {
        (self.matrix, self.width, self.l2)
    }
}

impl Matrices {
    /// Reads all, in parallel.
    pub(crate) fn load(sources: &[MatrixSource], values: Values, seed: u64, progress: fn(&str)) -> Self {
        let started = Instant::now();
        let load = |source: &MatrixSource| {
            let named = MatrixFacts::named(source.name());
            match source.load(values, seed) {
                Ok(csr) => {
                    let checksum = pattern_checksum(&csr);
                    Loaded { facts: named.of(&csr, checksum), matrix: Ok(Matrix { csr, checksum }) }
                }
                Err(error) => Loaded { facts: named, matrix: Err(error.to_string()) },
            }
        };
        let matrices: Vec<_> = sources.par_iter().map(load).collect();
        progress(&format!("{} matrices read in {:.1} s", matrices.len(), started.elapsed().as_secs_f64()));
        Self(matrices)
    }

    /// Every matrix with every width, state of the L2 cache and path, in this order.
    pub(crate) fn cases<P: Copy>(&self, widths: &[usize], l2s: &[L2], paths: &[P]) -> Vec<Case<P>> {
        let of_matrix = |(matrix, loaded): (usize, &Loaded)| match loaded.matrix {
            Err(_) => vec![Case { matrix, width: 0, path: None, l2: L2::Warm }],
            Ok(_) => widths
                .iter()
                .flat_map(|&width| l2s.iter().map(move |&l2| (width, l2)))
                .flat_map(|(width, l2)| {
                    paths.iter().map(move |&path| Case { matrix, width, path: Some(path), l2 })
                })
                .collect(),
        };
        self.0.iter().enumerate().flat_map(of_matrix).collect()
    }

    /// The matrix and the path of a case.
    ///
    /// # Errors
    /// [`BenchError::Unreadable`] of a matrix that could not be had.
    pub(crate) fn of<P: Copy>(&self, case: &Case<P>) -> Result<(&Matrix, P), BenchError> {
        match (&self.0[case.matrix].matrix, case.path) {
            (Ok(matrix), Some(path)) => Ok((matrix, path)),
            (Err(error), _) => Err(BenchError::Unreadable(error.clone())),
            (Ok(_), None) => Err(BenchError::Unreadable("a case without a path".to_owned())),
        }
    }

    /// What records tell of the matrix of a case.
    pub(crate) fn facts<P>(&self, case: &Case<P>) -> MatrixFacts {
        self.0[case.matrix].facts.clone()
    }

    /// The name of a case: `ct2010 at 64, auto-f16`, or `ct2010 at 64, auto-f16, cold L2`.
    pub(crate) fn name<P: fmt::Display>(&self, case: &Case<P>) -> String {
        let matrix = &self.0[case.matrix].facts.name;
        match &case.path {
            Some(path) => format!("{matrix} at {}, {path}{}", case.width, case.l2.suffix()),
            None => matrix.clone(),
        }
    }

    /// All matrices that could be read, with their numbers.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (usize, &Matrix)> {
        self.0.iter().enumerate().filter_map(|(at, loaded)| Some((at, loaded.matrix.as_ref().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_folder() {
        for (path, name) in [
            ("a/b/DD.mtx", "DD"),
            ("DD.mtx.gz", "DD"),
            ("data/ct2010.mtx.gz", "ct2010"),
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

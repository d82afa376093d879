//! Where the matrices of a sweep come from.

use std::path::{Path, PathBuf};

use windrow::synthetic::Synthetic;
use windrow::{Csr, io};

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

    /// The matrix; made-up ones get values of `seed`.
    ///
    /// # Errors
    /// [`BenchError::Read`], [`BenchError::Format`].
    pub fn load(&self, seed: u64) -> Result<Csr<f32>, BenchError> {
        match self {
            Self::File(path) => Ok(io::read_csr(path)?),
            Self::Synthetic(kind) => Ok(kind.generate(seed)?),
            Self::InMemory { csr, .. } => Ok(csr.clone()),
        }
    }
}

/// Two endings at most go: compression and format.
fn file_name(path: &Path) -> String {
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
}

//! Reads vector-wise N:M weights: safetensors files and NumPy archives.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::source::read_all;
use super::{Limits, Model, ReadError, ReadOptions, foreign, npz, safetensors, sniff};
use crate::{NmPattern, Value, VectorNm, VectorNmParts};

/// What a file of such weights calls itself.
pub(super) const FORMAT: &str = "vector-nm";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u64 = 1;

/// How indices lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexForm {
    /// A byte each, w × q.
    Bytes,
    /// `⌈log₂ M⌉` bits each, as [`VectorNm::packed_indices`] has them.
    Packed,
}

/// Sizes and pattern of weights, within the limits.
pub(super) struct Sizes {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) pattern: NmPattern,
}

impl Sizes {
    /// Checks what a file says of its rows and columns, and of N, M and L.
    pub(super) fn checked(
        place: &str,
        [rows, cols]: [u64; 2],
        pattern: [u64; 3],
        limits: &Limits,
    ) -> Result<Self, ReadError> {
        let (rows, cols) = limits.check_shape(place, rows, cols)?;
        let [n, m, l] = pattern.map(crate::memory::index);
        let sizes = Self { rows: rows as usize, cols: cols as usize, pattern: NmPattern::new(n, m, l)? };
        limits.check_nnz(place, (sizes.kept_rows() as u64).saturating_mul(u64::from(cols)))?;
        Ok(sizes)
    }

    pub(super) fn kept_rows(&self) -> usize {
        self.pattern.kept_rows(self.rows)
    }

    /// The shape that an array of indices must have.
    pub(super) fn index_shape(&self, form: IndexForm) -> Vec<usize> {
        let (kept, vectors) = (self.kept_rows(), self.pattern.vectors(self.cols));
        match form {
            IndexForm::Bytes => vec![kept, vectors],
            // No more vectors than columns, and so no more indices than entries, which were within their limit.
            IndexForm::Packed => {
                vec![crate::vector_nm::packed_len(kept.saturating_mul(vectors), self.pattern.index_bits())]
            }
        }
    }

    /// The weights of arrays whose shapes were checked.
    pub(super) fn assemble<V: Value>(
        self,
        values: Vec<V>,
        indices: Vec<u8>,
        form: IndexForm,
    ) -> Result<VectorNm<V>, ReadError> {
        let Self { rows, cols, pattern } = self;
        let parts = |indices| VectorNmParts { rows, cols, pattern, values, indices };
        Ok(match form {
            IndexForm::Bytes => VectorNm::try_from_parts(parts(indices))?,
            IndexForm::Packed => VectorNm::from_packed(parts(Vec::new()), &indices)?,
        })
    }
}

/// The error for a version that this reader does not know.
pub(super) fn unknown_version(place: &str, version: u64) -> ReadError {
    ReadError::Unsupported {
        place: place.to_owned(),
        what: format!("version {version} of {FORMAT}"),
        remedy: "read it with the version of windrow that wrote it, or write version 1",
    }
}

/// Reads the weights in the file at `path`, as [`write_vector_nm`](super::write_vector_nm) writes them; or from a model
/// as [`write_model`](super::write_model) writes it, which may be a folder or an index too, those that
/// [`tensor`](ReadOptions::tensor) names, or the only ones.
///
/// # Errors
/// [`ReadError::InFile`] around any of those of [`read_vector_nm_from`] and [`Model::open`].
///
/// # Examples
/// ```no_run
/// use windrow_formats::io;
///
/// let weights = io::read_vector_nm::<f32>("up_proj.safetensors", &io::ReadOptions::default())?;
/// println!("{} × {}, {}", weights.rows(), weights.cols(), weights.pattern());
/// # Ok::<(), io::ReadError>(())
/// ```
pub fn read_vector_nm<V: Value>(
    path: impl AsRef<Path>,
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    let path = path.as_ref();
    if Model::is_folder_or_index(path) || (options.tensor.is_some() && path.is_file()) {
        let model = Model::open(path)?;
        let name = options.tensor.map_or_else(|| model.only_vector_nm(), |name| Ok(name.to_owned()));
        let read = name.and_then(|name| model.read_vector_nm(&name, options));
        return read.map_err(|error| error.unless_in_file(path));
    }
    let opened = File::open(path).map_err(ReadError::from);
    opened.and_then(|file| read_vector_nm_from(file, options)).map_err(|error| error.in_file(path))
}

/// Reads the weights in the content that `reader` returns, for example a byte slice: a safetensors file or a `.npz`
/// archive, which is found out from the content. Values are rounded where `V` is narrower than their type.
///
/// Of `options`, limits and [`tensor`](ReadOptions::tensor) matter, which names the weights in a file of several;
/// values count as entries. The content is read into memory whole.
///
/// # Errors
/// - [`ReadError::Io`] if reading fails;
/// - [`ReadError::Archive`] if the content is neither, or breaks the rules of its format: a missing or oddly shaped
///   tensor, a size that is no number;
/// - [`ReadError::Matrix`] for a pattern that is none, and for an index that breaks the invariants of [`VectorNm`];
/// - [`ReadError::Unsupported`] for another version, or values that are no real numbers;
/// - [`ReadError::Limit`] if it exceeds `options.limits`.
///
/// # Examples
/// ```
/// use windrow_formats::{NmPattern, VectorNm, io};
///
/// let weights = VectorNm::from_dense(&[0.0f32, 1.0, 2.0, 0.0], 4, 1, NmPattern::new(1, 2, 1)?)?;
/// let mut file = Vec::new();
/// io::write_vector_nm_safetensors(&mut file, &weights, io::NmIndices::Auto)?;
/// assert_eq!(io::read_vector_nm_from::<f32>(&file[..], &io::ReadOptions::default())?, weights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_vector_nm_from<V: Value>(
    reader: impl Read,
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    let content = read_all(reader, &options.limits)?;
    if safetensors::is_safetensors(&content) {
        safetensors::read_vector_nm(&content, options)
    } else if content.starts_with(sniff::ZIP_MAGIC) {
        npz::read_vector_nm(content, options)
    } else {
        let found = foreign::described(&content);
        Err(ReadError::archive("content", "a safetensors file or an .npz archive", found))
    }
}

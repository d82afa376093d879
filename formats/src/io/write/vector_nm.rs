//! Vector-wise N:M weights and dense tensors: safetensors files, and NumPy archives.

use std::io::Write;
use std::path::Path;

use super::super::WriteError;
use super::super::safetensors::DenseTensor;
use super::super::vector_nm::{FORMAT, VERSION};
use super::header::Header;
use super::npz::Members;
use super::replacement::replace;
use crate::memory::try_with_room;
use crate::vector_nm::packed_len;
use crate::{Value, VectorNm};

/// Bytes handed to a writer at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// How indices are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NmIndices {
    /// Packed where that makes the file smaller by a twentieth or more, else a byte each.
    #[default]
    Auto,
    /// A byte each, w × q, which other programs understand most easily.
    Bytes,
    /// [Packed](VectorNm::packed_indices) to `⌈log₂ M⌉` bits.
    Packed,
}

impl NmIndices {
    /// Whether they are packed for these weights.
    fn packs<V>(self, weights: &VectorNm<V>) -> bool {
        let bits = weights.pattern().index_bits();
        self.packs_sizes(size_of_val(weights.values()), weights.indices().len(), bits)
    }

    /// Whether so many indices of so many bits are packed beside so many bytes of values.
    pub(super) fn packs_sizes(self, value_bytes: usize, indices: usize, bits: usize) -> bool {
        match self {
            Self::Bytes => false,
            Self::Packed => true,
            Self::Auto => {
                let saved = indices - packed_len(indices, bits);
                saved >= value_bytes.saturating_add(indices).div_ceil(20).max(1)
            }
        }
    }
}

/// Writes `weights` to the file at `path`, which is replaced if there is one: a safetensors file or a NumPy archive, as
/// the name says (`.safetensors` or `.npz`).
///
/// What [`read_vector_nm`](super::super::read_vector_nm) makes of the file is the same matrix, bit by bit; from a NumPy
/// archive but for the payloads of NaN.
///
/// # Errors
/// [`WriteError::InFile`] around
/// - [`WriteError::UnknownNmExtension`] for any other name;
/// - [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::{NmPattern, VectorNm, io};
///
/// let path = std::env::temp_dir().join("windrow-write-vector-nm-example.safetensors");
/// let weights = VectorNm::from_dense(&[0.0f32, 1.0, 2.0, 0.0], 4, 1, NmPattern::new(1, 2, 1)?)?;
/// io::write_vector_nm(&path, &weights, io::NmIndices::Auto)?;
/// assert_eq!(io::read_vector_nm::<f32>(&path, &io::ReadOptions::default())?, weights);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_vector_nm<V: Value>(
    path: impl AsRef<Path>,
    weights: &VectorNm<V>,
    indices: NmIndices,
) -> Result<(), WriteError> {
    let path = path.as_ref();
    let write = |format: NmFormat| {
        replace(path, |mut file| match format {
            NmFormat::Safetensors => safetensors(&mut file, weights, indices),
            NmFormat::Npz => npz(&mut file, weights, indices),
        })
    };
    NmFormat::of_name(path).and_then(write).map_err(|error| error.in_file(path))
}

/// A kind of file that holds weights with N:M sparsity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NmFormat {
    /// A safetensors file, see [`write_vector_nm_safetensors`].
    Safetensors,
    /// A NumPy archive, see [`write_vector_nm_npz`].
    Npz,
}

impl NmFormat {
    /// What the name of the file tells: it ends in `.safetensors` or `.npz`.
    ///
    /// # Errors
    /// [`WriteError::UnknownNmExtension`].
    pub fn of_name(path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let extension = path.as_ref().extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("npz") => Ok(Self::Npz),
            _ => Err(WriteError::UnknownNmExtension),
        }
    }
}

/// Writes `weights` as a safetensors file: tensors `values` (w × n, in their own type) and `indices` (U8, w × q, or
/// packed in one dimension), metadata `format` = `vector-nm`, `version` = `1`, `rows`, `cols`, `N`, `M`, `L`, and
/// `indices` = `bytes` or `packed`.
///
/// The same weights give the same bytes.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_vector_nm_safetensors<V: Value>(
    mut writer: impl Write,
    weights: &VectorNm<V>,
    indices: NmIndices,
) -> Result<(), WriteError> {
    safetensors(&mut writer, weights, indices)
}

/// Writes `weights` as a NumPy archive, compressed: arrays `format`, `version`, `shape` (k, n), `pattern` (N, M, L),
/// `values` (w × n) and `indices` (`|u1`, w × q) or `packed_indices`. `numpy.load` reads it.
///
/// Values are `<f2`, `<f4` or `<f8`; bf16, which NumPy does not know, becomes `<f4`, which holds it exactly.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_vector_nm_npz<V: Value>(
    mut writer: impl Write + Send,
    weights: &VectorNm<V>,
    indices: NmIndices,
) -> Result<(), WriteError> {
    npz(&mut writer, weights, indices)
}

/// Writes dense tensors of two dimensions as a safetensors file.
///
/// The same tensors give the same bytes.
///
/// # Errors
/// [`WriteError::Io`], also for two tensors of one name, and for one called `__metadata__`, which is no name of a
/// tensor in this format; nothing is written then.
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let mut file = Vec::new();
/// io::write_tensors(&mut file, &[io::DenseTensor::new("bias", 1, 2, vec![0.5f32, 0.25])?])?;
/// let bias = io::read_tensor_from::<f32>(&file[..], Some("bias"), &io::ReadOptions::default())?;
/// assert_eq!(bias.values(), [0.5, 0.25]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_tensors<V: Value>(mut writer: impl Write, tensors: &[DenseTensor<V>]) -> Result<(), WriteError> {
    let mut header = Header::new(&[]);
    for tensor in tensors {
        let bytes = size_of_val(tensor.values());
        header.tensor(tensor.name(), dtype_of::<V>(), &[tensor.rows(), tensor.cols()], bytes)?;
    }
    header.write(&mut writer)?;
    tensors.iter().try_for_each(|tensor| write_values(&mut writer, tensor.values()))
}

/// The type's name in safetensors.
pub(super) fn dtype_of<V: Value>() -> &'static str {
    match V::NAME {
        "f64" => "F64",
        "f16" => "F16",
        "bf16" => "BF16",
        _ => "F32",
    }
}

/// Little-endian bytes of the values.
pub(super) fn write_values<V: Value>(
    writer: &mut (impl Write + ?Sized),
    values: &[V],
) -> Result<(), WriteError> {
    let size = size_of::<V>();
    let mut buffer = try_with_room(CHUNK_BYTES, "elements to write")?;
    for values in values.chunks(CHUNK_BYTES / size) {
        buffer.clear();
        buffer.extend_from_slice(bytemuck::cast_slice(values));
        if cfg!(target_endian = "big") {
            buffer.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        writer.write_all(&buffer)?;
    }
    Ok(())
}

fn safetensors<V: Value>(
    writer: &mut impl Write,
    weights: &VectorNm<V>,
    indices: NmIndices,
) -> Result<(), WriteError> {
    let (packs, pattern) = (indices.packs(weights), weights.pattern());
    let packed = if packs { weights.packed_indices()? } else { Vec::new() };
    let (kept, cols) = (weights.kept_rows(), weights.cols());
    let mut header = Header::new(&[
        ("format", FORMAT.to_owned()),
        ("version", VERSION.to_string()),
        ("rows", weights.rows().to_string()),
        ("cols", cols.to_string()),
        ("N", pattern.n().to_string()),
        ("M", pattern.m().to_string()),
        ("L", pattern.l().to_string()),
        ("indices", if packs { "packed" } else { "bytes" }.to_owned()),
    ]);
    header.tensor("values", dtype_of::<V>(), &[kept, cols], size_of_val(weights.values()))?;
    if packs {
        header.tensor("indices", "U8", &[packed.len()], packed.len())?;
    } else {
        header.tensor("indices", "U8", &[kept, weights.vectors()], weights.indices().len())?;
    }
    header.write(writer)?;
    write_values(writer, weights.values())?;
    Ok(writer.write_all(if packs { &packed } else { weights.indices() })?)
}

fn npz<V: Value>(
    writer: &mut (impl Write + Send),
    weights: &VectorNm<V>,
    indices: NmIndices,
) -> Result<(), WriteError> {
    let pattern = weights.pattern();
    let [kept, cols, vectors] =
        [weights.kept_rows(), weights.cols(), weights.vectors()].map(|size| size as u64);
    let mut members = Members::new(writer);
    members.start("format", &format!("|S{}", FORMAT.len()), &[], FORMAT.len() as u64)?;
    members.zip.write_all(FORMAT.as_bytes())?;
    let mut numbers = |name: &str, shape: &[u64], numbers: &[usize]| {
        members.array(name, "<i8", (shape, numbers), |&number| (number as u64).to_le_bytes())
    };
    numbers("version", &[], &[1])?;
    numbers("shape", &[2], &[weights.rows(), weights.cols()])?;
    numbers("pattern", &[3], &[pattern.n(), pattern.m(), pattern.l()])?;
    let values = (&[kept, cols][..], weights.values());
    match V::NAME {
        "f64" => members.array("values", "<f8", values, |value| value.to_f64().to_le_bytes())?,
        "f16" => {
            let half = |value: &V| half::f16::from_f32(value.to_f32()).to_le_bytes();
            members.array("values", "<f2", values, half)?;
        }
        _ => members.array("values", "<f4", values, |value| value.to_f32().to_le_bytes())?,
    }
    if indices.packs(weights) {
        let packed = weights.packed_indices()?;
        members.array("packed_indices", "|u1", (&[packed.len() as u64], &packed[..]), |&byte| [byte])?;
    } else {
        members.array("indices", "|u1", (&[kept, vectors], weights.indices()), |&byte| [byte])?;
    }
    members.zip.finish().map_err(std::io::Error::from)?;
    Ok(())
}

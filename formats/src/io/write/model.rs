//! A model written again, with some of its tensors as weights with N:M sparsity.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::super::line::name_of;
use super::super::model::{METADATA_PREFIX, Model, ModelTensor, NmEntry, NmTensor, Shard};
use super::super::vector_nm::VERSION;
use super::super::{Progress, ProgressFn, ReadError, Stage, WriteError};
use super::folder::NewFolder;
use super::header::Header;
use super::replacement::replace;
use super::vector_nm::{NmIndices, write_values};
use crate::memory::try_filled;
use crate::vector_nm::packed_len;
use crate::{Value, ValueType, VectorNm};

/// Bytes copied at a time, and collected before the system is asked to take them.
const BUFFER_BYTES: usize = 1 << 20;

/// What becomes of a tensor where a model is written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// It is left out.
    Omit,
    /// Weights with N:M sparsity take its place, under the name that they have there.
    Weights(NmTensor),
}

impl NmTensor {
    fn kept_rows(&self) -> usize {
        self.pattern.kept_rows(self.rows)
    }

    /// Bytes of the values.
    fn value_bytes(&self) -> usize {
        self.kept_rows().saturating_mul(self.cols).saturating_mul(self.value_type.bytes())
    }

    /// How many indices there are.
    fn index_len(&self) -> usize {
        self.kept_rows().saturating_mul(self.pattern.vectors(self.cols))
    }

    fn is_packed(&self) -> bool {
        NmIndices::Auto.packs_sizes(self.value_bytes(), self.index_len(), self.pattern.index_bits())
    }

    /// Shape of the tensor of indices.
    fn index_shape(&self) -> Vec<usize> {
        match self.is_packed() {
            true => vec![packed_len(self.index_len(), self.pattern.index_bits())],
            false => vec![self.kept_rows(), self.pattern.vectors(self.cols)],
        }
    }

    fn dtype(&self) -> &'static str {
        match self.value_type {
            ValueType::F16 => "F16",
            ValueType::Bf16 => "BF16",
            ValueType::F32 => "F32",
            ValueType::F64 => "F64",
        }
    }

    /// What the metadata of the file say of it.
    fn description(&self) -> Result<String, WriteError> {
        let entry = NmEntry {
            version: VERSION,
            rows: self.rows as u64,
            cols: self.cols as u64,
            n: self.pattern.n() as u64,
            m: self.pattern.m() as u64,
            l: self.pattern.l() as u64,
            indices: if self.is_packed() { "packed" } else { "bytes" }.to_owned(),
            transposed: self.transposed,
        };
        serde_json::to_string(&entry).map_err(|error| io::Error::from(error).into())
    }
}

/// Where weights go that [`write_model`] asks for.
pub struct NmSink<'a> {
    writer: &'a mut dyn Write,
    wanted: &'a NmTensor,
    written: bool,
}

impl NmSink<'_> {
    /// Writes the weights that were asked for.
    ///
    /// # Errors
    /// [`WriteError::Io`], also if they are not of the shape, pattern and type that were announced.
    pub fn write<V: Value>(&mut self, weights: &VectorNm<V>) -> Result<(), WriteError> {
        let wanted = self.wanted;
        let found = (weights.rows(), weights.cols(), weights.pattern(), ValueType::of::<V>());
        if found != (wanted.rows, wanted.cols, wanted.pattern, wanted.value_type) || self.written {
            let what = name_of(&wanted.name);
            return Err(invalid(format!(
                "the weights {what} are not what was announced, or are there already"
            )));
        }
        self.written = true;
        write_values(self.writer, weights.values())?;
        match wanted.is_packed() {
            true => self.writer.write_all(&weights.packed_indices()?)?,
            false => self.writer.write_all(weights.indices())?,
        }
        Ok(())
    }
}

impl std::fmt::Debug for NmSink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NmSink").field("wanted", &self.wanted).field("written", &self.written).finish()
    }
}

/// Writes `model` to `out`, each tensor that `rewrites` names as that says, and every other byte for byte: a file if
/// the model was opened as one file, else a new folder with files of the same names and an index, if there was one.
///
/// For each tensor that weights take the place of, `make` is called once, with its name and where the weights go, in
/// the order of [`Model::tensors`]. No more than one tensor is in memory at a time but for what `make` holds. Metadata
/// of the files are kept; of the index `total_size` is counted again.
///
/// The weights NAME are tensors `NAME.values` (w × n, in their own type) and `NAME.indices` (U8, w × q, or
/// [packed](VectorNm::packed_indices) in one dimension where that makes them smaller by a twentieth) and an entry
/// `vector-nm.NAME` of the file's metadata, JSON text with `version`, `rows`, `cols`, `N`, `M`, `L`, `indices` and
/// `transposed`: [`read_vector_nm`](super::super::read_vector_nm) reads them by name.
///
/// A file that is there is replaced; a folder that is there must be empty. Both appear whole or not at all, see
/// [`replace_file`](super::replace_file) and [`remove_unfinished`](super::remove_unfinished); into an empty folder the
/// files come one after another once all are written, the index last. Other files in the folder of the model are not
/// copied.
///
/// Returns how many bytes the files of tensors have.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`], also if `rewrites` names a tensor that the model has not, two
/// tensors would have one name, or a header would be longer than readers take; [`WriteError::Read`] if a tensor cannot
/// be read; those of `make`.
pub fn write_model(
    model: &Model,
    out: impl AsRef<Path>,
    rewrites: &BTreeMap<String, Rewrite>,
    mut make: impl FnMut(&str, &mut NmSink<'_>) -> Result<(), WriteError>,
    progress: Option<ProgressFn<'_>>,
) -> Result<u64, WriteError> {
    let out = out.as_ref();
    let total = model.tensors().map(ModelTensor::bytes).sum();
    let mut job =
        Job { rewrites, make: &mut make, progress, done: 0, total, written: 0, files: BTreeMap::new() };
    let mut write = || -> Result<u64, WriteError> {
        if let Some(unknown) = rewrites.keys().find(|name| model.tensor(name).is_none()) {
            return Err(invalid(format!("the model has no tensor {}", name_of(unknown))));
        }
        let [shard] = model.shards() else { return job.folder(model, out) };
        if model.is_folder() {
            return job.folder(model, out);
        }
        replace(out, |writer| job.shard(model, shard, writer))?;
        Ok(job.written)
    };
    write().map_err(|error| match error {
        named @ WriteError::InFile { .. } => named,
        WriteError::Read(error) => WriteError::Read(error),
        other => other.in_file(out),
    })
}

/// A model that is being written.
struct Job<'a> {
    rewrites: &'a BTreeMap<String, Rewrite>,
    make: &'a mut dyn FnMut(&str, &mut NmSink<'_>) -> Result<(), WriteError>,
    progress: Option<ProgressFn<'a>>,
    /// Bytes of the model's tensors that are done with.
    done: u64,
    total: u64,
    /// Bytes of files that were written.
    written: u64,
    /// The file of each tensor that was written.
    files: BTreeMap<String, String>,
}

impl Job<'_> {
    fn folder(&mut self, model: &Model, out: &Path) -> Result<u64, WriteError> {
        let folder = NewFolder::new(out)?;
        let mut tensor_bytes = 0;
        for shard in model.shards() {
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, folder.file(&shard.name())?);
            tensor_bytes += self.shard(model, shard, &mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        }
        if let Some((path, index)) = model.index() {
            let mut metadata = index.metadata().clone();
            metadata.insert("total_size".to_owned(), tensor_bytes.into());
            let names = std::mem::take(&mut self.files);
            let map: Map<String, Json> = names.into_iter().map(|(name, file)| (name, file.into())).collect();
            let mut all = Map::new();
            all.insert("metadata".to_owned(), metadata.into());
            all.insert("weight_map".to_owned(), map.into());
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let mut file = BufWriter::new(folder.file(&name)?);
            serde_json::to_writer_pretty(&mut file, &all).map_err(io::Error::from)?;
            file.write_all(b"\n")?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        }
        folder.finish()?;
        Ok(self.written)
    }

    /// Writes a file; returns the bytes of its tensors.
    fn shard(&mut self, model: &Model, shard: &Shard, writer: &mut dyn Write) -> Result<u64, WriteError> {
        let mut metadata = Vec::new();
        let mut weights = Vec::new();
        for tensor in &shard.header.tensors {
            if let Some(Rewrite::Weights(of)) = self.rewrites.get(&tensor.name) {
                weights.push((format!("{METADATA_PREFIX}{}", of.name), of.description()?));
            }
        }
        let taken: HashSet<&str> = weights.iter().map(|(key, _)| key.as_str()).collect();
        for (key, text) in &shard.header.metadata {
            if taken.contains(key.as_str()) {
                return Err(invalid(format!("the metadata have {} already", name_of(key))));
            }
            metadata.push((key.as_str(), text.clone()));
        }
        metadata.extend(weights.iter().map(|(key, text)| (key.as_str(), text.clone())));
        let mut header = Header::new(&metadata);
        for tensor in &shard.header.tensors {
            match self.rewrites.get(&tensor.name) {
                None => {
                    let bytes = crate::memory::index(tensor.place.end - tensor.place.start);
                    header.tensor(&tensor.name, &tensor.dtype.to_string(), &tensor.shape, bytes)?;
                    self.note(&tensor.name, shard)?;
                }
                Some(Rewrite::Omit) => {}
                Some(Rewrite::Weights(of)) => {
                    let [values, indices] = of.tensors();
                    header.tensor(&values, of.dtype(), &[of.kept_rows(), of.cols], of.value_bytes())?;
                    let shape = of.index_shape();
                    header.tensor(&indices, "U8", &shape, shape.iter().product())?;
                    self.note(&values, shard)?;
                    self.note(&indices, shard)?;
                }
            }
        }
        let tensor_bytes = header.tensor_bytes();
        self.written += header.write(writer)? + tensor_bytes;
        for tensor in &shard.header.tensors {
            match self.rewrites.get(&tensor.name) {
                None => self.copy(model.find(&tensor.name)?, writer)?,
                Some(Rewrite::Omit) => self.tell(tensor.place.end - tensor.place.start),
                Some(Rewrite::Weights(of)) => {
                    let mut sink = NmSink { writer, wanted: of, written: false };
                    (self.make)(&tensor.name, &mut sink)?;
                    if !sink.written {
                        return Err(invalid(format!("no weights were given for {}", name_of(&of.name))));
                    }
                    self.tell(tensor.place.end - tensor.place.start);
                }
            }
        }
        Ok(tensor_bytes)
    }

    /// Remembers the file of a tensor.
    fn note(&mut self, name: &str, shard: &Shard) -> Result<(), WriteError> {
        match self.files.insert(name.to_owned(), shard.name()) {
            None => Ok(()),
            Some(_) => Err(invalid(format!("two tensors would be called {}", name_of(name)))),
        }
    }

    fn copy(&mut self, tensor: ModelTensor<'_>, writer: &mut dyn Write) -> Result<(), WriteError> {
        let in_file = |error: ReadError| WriteError::from(error.in_file(tensor.file()));
        let mut reader = tensor.reader().map_err(in_file)?;
        let mut buffer = try_filled(BUFFER_BYTES, 0u8, "a part of a tensor")?;
        let mut left = tensor.bytes();
        while left > 0 {
            let read = reader.read(&mut buffer).map_err(|error| in_file(error.into()))?;
            if read == 0 {
                let place = format!("tensor {}", name_of(tensor.name()));
                let (wanted, found) = (tensor.bytes(), tensor.bytes() - left);
                return Err(in_file(ReadError::archive(
                    place,
                    format!("{wanted} bytes"),
                    format!("{found}"),
                )));
            }
            writer.write_all(&buffer[..read])?;
            left -= read as u64;
            self.tell(read as u64);
        }
        Ok(())
    }

    /// Says that so many bytes more of the model are done with.
    fn tell(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(progress) = self.progress {
            progress(Progress {
                stage: Stage::Writing,
                done_bytes: self.done,
                total_bytes: Some(self.total),
            });
        }
    }
}

fn invalid(why: String) -> WriteError {
    io::Error::new(io::ErrorKind::InvalidInput, why).into()
}

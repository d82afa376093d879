//! Models: the tensors of a safetensors file, or of several with an index.

mod bitmask;
mod index;
mod weights;

pub use bitmask::BitmaskWeights;
pub(super) use index::EXTENSION;
pub use index::ModelIndex;
pub(super) use weights::{Entry as NmEntry, METADATA_PREFIX, of_file as named_weights};
pub use weights::{NmTensor, vector_nm_type};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::line::name_of;
use super::safetensors::{self as files, Header, HeaderEntry, Tensor};
use super::source::read_to_end;
use super::{DenseTensor, ReadError, ReadOptions, foreign};
use crate::memory::{index as as_index, make_room};
use crate::{Value, ValueType};

/// The index of a model that others write.
const INDEX: &str = "model.safetensors.index.json";
/// How an index of another name ends.
const INDEX_EXTENSION: &str = ".safetensors.index.json";

/// The tensors of a model, by name: where they lie is known, they are read one at a time.
///
/// # Examples
/// ```no_run
/// use windrow_formats::io::{Model, ReadOptions};
///
/// let model = Model::open("Llama-3.2-1B")?; // the folder, its index, or one .safetensors file
/// for tensor in model.tensors() {
///     println!("{} {:?} {}", tensor.name(), tensor.shape(), tensor.dtype());
/// }
/// let up = model.read::<f32>("model.layers.0.mlp.up_proj.weight", &ReadOptions::default())?;
/// # Ok::<(), windrow_formats::io::ReadError>(())
/// ```
#[derive(Debug)]
pub struct Model {
    index: Option<(PathBuf, ModelIndex)>,
    /// Whether it was opened as a folder or an index, and not as one file.
    is_folder: bool,
    shards: Vec<Shard>,
    /// Number of the shard, and of the tensor in it.
    places: BTreeMap<String, (usize, usize)>,
}

/// One of the files of a model.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// Bytes of the file.
    bytes: u64,
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, ReadError> {
        let read = || {
            // Whoever opens a pipe waits for somebody to write to it.
            let metadata = fs::metadata(&path)?;
            if !metadata.is_file() {
                return Err(ReadError::archive("model", "a file", "something else of that name"));
            }
            let mut file = File::open(&path)?;
            let mut beginning = Vec::new();
            (&mut file).take(BEGINNING).read_to_end(&mut beginning)?;
            files::check_beginning(&beginning)?;
            file.seek(SeekFrom::Start(0))?;
            Ok((files::read_header(&mut file, metadata.len())?, metadata.len()))
        };
        let (header, bytes) = read().map_err(|error| error.in_file(&path))?;
        Ok(Self { path, header, bytes })
    }

    /// The file's name without its folder.
    pub(super) fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

/// Bytes that tell what a file is.
const BEGINNING: u64 = 64;

/// A tensor of a [`Model`]: what its file says of it.
#[derive(Debug, Clone, Copy)]
pub struct ModelTensor<'a> {
    shard: &'a Shard,
    entry: &'a HeaderEntry,
}

impl<'a> ModelTensor<'a> {
    /// Its name, which no other tensor of the model has.
    pub fn name(self) -> &'a str {
        &self.entry.name
    }

    /// Its type, as safetensors files call it, for example `BF16`.
    pub fn dtype(self) -> String {
        self.entry.dtype.to_string()
    }

    /// Its type, if that is one of the types of [`Value`].
    pub fn value_type(self) -> Option<ValueType> {
        files::value_type(self.entry.dtype)
    }

    /// Its extents, the last of which is that of neighbouring elements.
    pub fn shape(self) -> &'a [usize] {
        &self.entry.shape
    }

    /// Bytes of its elements.
    pub fn bytes(self) -> u64 {
        self.entry.place.end - self.entry.place.start
    }

    /// The file that it is in.
    pub fn file(self) -> &'a Path {
        &self.shard.path
    }
}

impl Model {
    /// Looks at the model at `path`: a folder with an index (`model.safetensors.index.json`) or with one
    /// `.safetensors` file, an index, or a `.safetensors` file. Headers are read, and no tensor.
    ///
    /// Every file that the index names is there and holds exactly the tensors that the index says.
    ///
    /// # Errors
    /// [`ReadError::InFile`] around
    /// - [`ReadError::Io`] if something cannot be read;
    /// - [`ReadError::Archive`] if the folder has no model or several, the index breaks the rules of [`ModelIndex`], a
    ///   file is missing or no valid safetensors file, or index and files contradict each other;
    /// - [`ReadError::Matrix`] if there is not enough memory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let found = if path.is_dir() {
            in_folder(path).map_err(|error| error.in_file(path))?
        } else {
            path.to_owned()
        };
        if !is_index(&found) {
            let shards = vec![Shard::open(found)?];
            return Ok(Self { index: None, is_folder: path.is_dir(), places: places(&shards), shards });
        }
        let opened = File::open(&found).map_err(ReadError::from);
        let index = opened.and_then(ModelIndex::read_from).map_err(|error| error.in_file(&found))?;
        let shards = shards(&found, &index).map_err(|error| error.in_file(&found))?;
        Ok(Self { places: places(&shards), index: Some((found, index)), is_folder: true, shards })
    }

    /// Whether `path` can be a model of more than one file: a folder, or an index by its name.
    pub fn is_folder_or_index(path: impl AsRef<Path>) -> bool {
        path.as_ref().is_dir() || is_index(path.as_ref())
    }

    /// All tensors, file by file in the order of their names, in each in the order in which they lie.
    pub fn tensors(&self) -> impl Iterator<Item = ModelTensor<'_>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.header.tensors.iter().map(move |entry| ModelTensor { shard, entry }))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<ModelTensor<'_>> {
        let &(shard, at) = self.places.get(name)?;
        let shard = &self.shards[shard];
        Some(ModelTensor { shard, entry: &shard.header.tensors[at] })
    }

    /// Metadata of its files, keys and texts, file by file.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.shards.iter().flat_map(|shard| &shard.header.metadata);
        entries.map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// How many files it has.
    pub fn files(&self) -> usize {
        self.shards.len()
    }

    /// Bytes of the files of tensors.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes).sum()
    }

    /// Whether it was opened as a folder or an index, and not as one file: what [`write_model`](super::write_model)
    /// makes of it then is a folder.
    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// The files that it was read from: that of the index, if there is one, and those of tensors.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let index = self.index.iter().map(|(path, _)| path.as_path());
        index.chain(self.shards.iter().map(|shard| shard.path.as_path()))
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(super) fn index(&self) -> Option<(&Path, &ModelIndex)> {
        self.index.as_ref().map(|(path, index)| (path.as_path(), index))
    }

    /// Reads a tensor of one dimension or two, as [`read_tensor`](super::read_tensor) does; no other is read.
    ///
    /// # Errors
    /// Those of [`read_tensor`](super::read_tensor).
    pub fn read<V: Value>(&self, name: &str, options: &ReadOptions<'_>) -> Result<DenseTensor<V>, ReadError> {
        self.with_tensor(name, options, |tensor| tensor.into_dense(options))
    }

    /// Reads a tensor of 0 and 1, or of truth values: of the types BOOL, U8, I8, F16, BF16, F32 or F64.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`ReadError::Archive`] for an element that is neither 0 nor 1.
    pub fn read_mask(&self, name: &str, options: &ReadOptions<'_>) -> Result<Vec<bool>, ReadError> {
        self.with_tensor(name, options, |tensor| tensor.mask())
    }

    /// Reads a tensor and hands it to `take`.
    fn with_tensor<T>(
        &self,
        name: &str,
        options: &ReadOptions<'_>,
        take: impl FnOnce(Tensor<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let tensor = self.find(name)?;
        let read = || {
            if tensor.bytes() > options.limits.max_bytes {
                return Err(options.limits.too_many_bytes(tensor.bytes()));
            }
            let data = tensor.read_bytes()?;
            take(Tensor::of(tensor.entry, &data)?)
        };
        read().map_err(|error| error.in_file(tensor.file()))
    }

    /// The tensor of this name, or the error that there is none.
    pub(super) fn find(&self, name: &str) -> Result<ModelTensor<'_>, ReadError> {
        self.tensor(name).ok_or_else(|| {
            let found = format!("none of that name, but {}", self.listed());
            ReadError::archive(self.what(), format!("a tensor {}", name_of(name)), found)
        })
    }

    /// The name of the only tensor.
    pub(super) fn only(&self) -> Result<String, ReadError> {
        let mut names = self.tensors().map(|tensor| tensor.name().to_owned());
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            _ => {
                let found = format!("{}: {}; name the one to read", self.places.len(), self.listed());
                Err(ReadError::archive(self.what(), "one tensor", found))
            }
        }
    }

    /// How messages call it.
    fn what(&self) -> &'static str {
        if self.index.is_some() { "model" } else { "safetensors file" }
    }

    /// Names of tensors, for messages.
    fn listed(&self) -> String {
        let names: Vec<String> = self.tensors().map(|tensor| tensor.name().to_owned()).collect();
        files::listed(&names)
    }
}

impl ModelTensor<'_> {
    /// The bytes of the elements.
    fn read_bytes(self) -> Result<Vec<u8>, ReadError> {
        let (mut data, wanted) = (Vec::new(), self.bytes());
        make_room(&mut data, as_index(wanted), "a tensor")?;
        let read = read_to_end(self.reader()?, &mut data)? as u64;
        if read < wanted {
            let place = format!("tensor {}", name_of(self.name()));
            return Err(ReadError::archive(place, format!("{wanted} bytes"), format!("{read}")));
        }
        Ok(data)
    }

    /// What returns the bytes of the elements.
    pub(super) fn reader(self) -> Result<impl Read, ReadError> {
        let mut file = File::open(self.file())?;
        file.seek(SeekFrom::Start(self.entry.place.start))?;
        Ok(file.take(self.bytes()))
    }
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// The index, or the only file, of the model in a folder.
fn in_folder(folder: &Path) -> Result<PathBuf, ReadError> {
    let usual = folder.join(INDEX);
    if usual.exists() {
        return Ok(usual);
    }
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let ending = |end: &str| {
        names.iter().filter(|name| name.as_encoded_bytes().ends_with(end.as_bytes())).collect::<Vec<_>>()
    };
    let (indexes, files) = (ending(INDEX_EXTENSION), ending(EXTENSION));
    let candidates = if indexes.is_empty() { &files } else { &indexes };
    match &candidates[..] {
        [one] => Ok(folder.join(one)),
        [] => {
            let mut texts = names.iter().map(|name| name.to_string_lossy());
            // Models are often there in another form.
            let other = texts.find_map(|name| Some((foreign::by_name(&name)?, name_of(&name))));
            let found = other.map_or("neither".to_owned(), |(what, name)| format!("{name}, {what}"));
            Err(ReadError::archive("folder", format!("{INDEX} or a file *{EXTENSION}"), found))
        }
        many => {
            let texts: Vec<String> = many.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            let found = format!("{}: {}; name the one to read", many.len(), files::listed(&texts));
            Err(ReadError::archive("folder", format!("{INDEX}, or one file *{EXTENSION}"), found))
        }
    }
}

/// The files that an index names, in the order of their names, once they were compared with it.
fn shards(path: &Path, index: &ModelIndex) -> Result<Vec<Shard>, ReadError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut named: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (tensor, file) in index.iter() {
        named.entry(file).or_insert((tensor, 0)).1 += 1;
    }
    let mut shards = Vec::with_capacity(named.len());
    let mut holder: BTreeMap<&str, &str> = BTreeMap::new();
    for (file, (first, count)) in &named {
        let path = folder.join(file);
        if !path.exists() {
            let file = name_of(file);
            let of = format!("{count} tensors, the first {}", name_of(first));
            return Err(ReadError::archive(
                "index of a model",
                format!("the file {file} beside it, which it names for {of}"),
                "no such file; fetch it, or take these tensors out of the index",
            ));
        }
        shards.push(Shard::open(path)?);
    }
    for (shard, &named_file) in shards.iter().zip(named.keys()) {
        for tensor in &shard.header.tensors {
            let name = &tensor.name;
            let place = format!("tensor {}", name_of(name));
            let file = name_of(named_file);
            if let Some(other) = holder.insert(name, named_file) {
                let found = format!("it in {} and in {file}; remove one", name_of(other));
                return Err(ReadError::archive(place, "it in one file", found));
            }
            let Some(said) = index.file_of(name) else {
                let found = format!("none for it, though {file} has it; add it to weight_map");
                return Err(ReadError::archive(place, "a file in the index", found));
            };
            if shard.path != folder.join(said) {
                let expected = format!("it in {}, as the index says", name_of(said));
                return Err(ReadError::archive(place, expected, format!("it in {file}; correct weight_map")));
            }
        }
    }
    if let Some((name, file)) = index.iter().find(|(name, _)| !holder.contains_key(name)) {
        let place = format!("tensor {}", name_of(name));
        let expected = format!("it in {}, as the index says", name_of(file));
        return Err(ReadError::archive(
            place,
            expected,
            "none of that name in any file; fetch the file again",
        ));
    }
    Ok(shards)
}

fn places(shards: &[Shard]) -> BTreeMap<String, (usize, usize)> {
    let all = shards.iter().enumerate().flat_map(|(number, shard)| {
        shard.header.tensors.iter().enumerate().map(move |(at, tensor)| (tensor.name.clone(), (number, at)))
    });
    all.collect()
}

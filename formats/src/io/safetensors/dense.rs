//! Dense tensors by name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rayon::prelude::*;

use super::super::line::name_of;
use super::super::source::read_all;
use super::super::{Model, ReadError, ReadOptions};
use super::{Tensors, unsupported};
use crate::memory::try_zeroed;
use crate::{FormatError, Value, ValueType};

/// Rows and columns that are transposed together: both sides of a block stay in the L1 cache.
const TRANSPOSED_TOGETHER: usize = 32;

/// A dense matrix of a safetensors file.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseTensor<V> {
    name: String,
    rows: usize,
    cols: usize,
    values: Vec<V>,
}

impl<V: Value> DenseTensor<V> {
    /// The `rows × cols` matrix of `values`, row-major, with a name.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are `rows·cols` values; [`FormatError::DimensionTooLarge`].
    pub fn new(
        name: impl Into<String>,
        rows: usize,
        cols: usize,
        values: Vec<V>,
    ) -> Result<Self, FormatError> {
        crate::memory::dimension(rows, "rows")?;
        crate::memory::dimension(cols, "columns")?;
        let (found, expected) = (values.len(), rows.saturating_mul(cols));
        if found != expected {
            let (array, why) = ("the tensor", "one for each row and column");
            return Err(FormatError::LengthMismatch { array, found, expected, why });
        }
        Ok(Self { name: name.into(), rows, cols, values })
    }

    /// Name of the tensor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows; 1 if the tensor has one dimension.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns; that of a tensor of one dimension is its length.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The elements, row after row without padding.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// The elements, row after row without padding; the matrix is used up.
    pub fn into_values(self) -> Vec<V> {
        self.values
    }

    /// The transposed matrix: `W[k×n]` of weights that are stored n × k, as PyTorch's `Linear` keeps them (out × in).
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::io::DenseTensor;
    ///
    /// let tensor = DenseTensor::new("weight", 2, 3, vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(tensor.transposed()?.values(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn transposed(&self) -> Result<Self, FormatError> {
        let (rows, cols) = (self.cols, self.rows);
        let mut values = try_zeroed::<V>(self.values.len(), "the transposed tensor")?;
        if cols > 0 {
            let together = values.par_chunks_mut(TRANSPOSED_TOGETHER * cols).enumerate();
            together.for_each(|(block, to)| {
                let first = block * TRANSPOSED_TOGETHER;
                for start in (0..cols).step_by(TRANSPOSED_TOGETHER) {
                    let end = cols.min(start + TRANSPOSED_TOGETHER);
                    for (r, to) in to.chunks_exact_mut(cols).enumerate() {
                        for (to, c) in to[start..end].iter_mut().zip(start..) {
                            *to = self.values[c * rows + first + r];
                        }
                    }
                }
            });
        }
        Ok(Self { name: self.name.clone(), rows, cols, values })
    }
}

/// Reads a dense tensor of one dimension or two from the model at `path`, a safetensors file or what else [`Model`]
/// opens: the one called `name`, or the only one. Of the other tensors none is read.
///
/// # Errors
/// [`ReadError::InFile`] around any of those of [`read_tensor_from`] and [`Model::open`].
///
/// # Examples
/// ```no_run
/// use windrow_formats::io;
///
/// let name = "model.layers.0.mlp.up_proj.weight";
/// let weight = io::read_tensor::<f32>("model.safetensors", Some(name), &io::ReadOptions::default())?;
/// println!("{} × {}", weight.rows(), weight.cols());
/// # Ok::<(), io::ReadError>(())
/// ```
pub fn read_tensor<V: Value>(
    path: impl AsRef<Path>,
    name: Option<&str>,
    options: &ReadOptions<'_>,
) -> Result<DenseTensor<V>, ReadError> {
    let path = path.as_ref();
    if !Model::is_folder_or_index(path) && !path.is_file() {
        // A pipe has no place to go back to.
        let opened = File::open(path).map_err(ReadError::from);
        return opened
            .and_then(|file| read_tensor_from(file, name, options))
            .map_err(|error| error.in_file(path));
    }
    let model = Model::open(path)?;
    match name {
        Some(name) => model.read(name, options).map_err(|error| error.unless_in_file(path)),
        None => model.read(&model.only().map_err(|error| error.in_file(path))?, options),
    }
}

/// The type of the tensor that [`read_tensor`] would read from the file or folder at `path`, so that it can be read as
/// it is: [`with_value_type!`](crate::with_value_type) makes a type of it.
///
/// # Errors
/// Those of [`read_tensor`].
pub fn tensor_type(path: impl AsRef<Path>, name: Option<&str>) -> Result<ValueType, ReadError> {
    let path = path.as_ref();
    let model = Model::open(path)?;
    let find = || {
        let name = name.map_or_else(|| model.only(), |name| Ok(name.to_owned()))?;
        let tensor = model.find(&name)?;
        tensor.value_type().ok_or_else(|| unsupported(format!("tensor {}", name_of(&name)), tensor.dtype()))
    };
    find().map_err(|error| error.in_file(path))
}

/// Reads a dense tensor of one dimension or two from the safetensors content that `reader` returns, for example a byte
/// slice: the one called `name`, or the only one. Elements are f32, f16, bf16 or f64 and are rounded where `V` is
/// narrower.
///
/// Of `options`, only the limits matter. The content is read into memory whole.
///
/// # Errors
/// - [`ReadError::Io`] if reading fails;
/// - [`ReadError::Archive`] if the content is no valid safetensors file, has no such tensor, or not just one where no
///   name is given, or if the tensor has not one dimension or two;
/// - [`ReadError::Unsupported`] for elements of another type;
/// - [`ReadError::Limit`] if it exceeds `options.limits`; elements count as entries.
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let mut file = Vec::new();
/// io::write_tensors(&mut file, &[io::DenseTensor::new("weight", 2, 2, vec![1.0f32, 2.0, 3.0, 4.0])?])?;
/// let weight = io::read_tensor_from::<f32>(&file[..], Some("weight"), &io::ReadOptions::default())?;
/// assert_eq!((weight.rows(), weight.cols(), weight.values()[3]), (2, 2, 4.0));
/// let error = io::read_tensor_from::<f32>(&file[..], Some("bias"), &io::ReadOptions::default()).unwrap_err();
/// assert!(error.to_string().ends_with("none of that name, but `weight`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_tensor_from<V: Value>(
    reader: impl Read,
    name: Option<&str>,
    options: &ReadOptions<'_>,
) -> Result<DenseTensor<V>, ReadError> {
    let content = read_all(reader, &options.limits)?;
    let tensors = Tensors::parse(&content)?;
    let tensor = match name {
        Some(name) => tensors.tensor(name)?,
        None => tensors.only()?,
    };
    tensor.into_dense(options)
}

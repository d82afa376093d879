//! Dense operands that are read from files, and results that are written to them.

use std::path::Path;

use serde::Serialize;
use windrow::io::{self, DenseArray, DenseFormat, Limits, ReadOptions};
use windrow::memory::try_collect;
use windrow::{Device, DeviceMatrix, Element, MatRef, Value};

use crate::console::{Console, tell};
use crate::failure::{Failure, Result};
use crate::output::{Output, STANDARD};
use crate::units;

/// A dense matrix in a file, of which only the shape is known yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    path: &'a Path,
    /// What the formula calls it.
    name: &'static str,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    limits: Limits,
}

impl<'a> Input<'a> {
    /// The matrix `name` of the formula, in the file at `path`, if one is named.
    pub(crate) fn of(name: &'static str, path: Option<&'a Path>, limits: Limits) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        if path.as_os_str() == STANDARD {
            let message = format!("{name} is read twice, for its shape and its elements; name a file, not -");
            return Err(Failure::usage(message));
        }
        let (rows, cols) = io::dense_shape(path, &ReadOptions { limits, ..ReadOptions::default() })?;
        Ok(Some(Self { path, name, rows, cols, limits }))
    }

    /// An error unless it has so many rows and columns; `why` says where they come from.
    pub(crate) fn check(&self, rows: usize, cols: usize, why: &str) -> Result<()> {
        if (self.rows, self.cols) == (rows, cols) {
            return Ok(());
        }
        let (path, name) = (io::printable(self.path), self.name);
        Err(Failure::usage(format!(
            "{path}: {name} is {} × {} but must be {rows} × {cols}: {why}",
            self.rows, self.cols
        )))
    }

    pub(crate) fn printed(&self) -> String {
        io::printable(self.path)
    }

    /// Its elements as `T`; says so if they are rounded.
    pub(crate) fn read<T: Value>(&self, console: Console) -> Result<DenseArray<T>> {
        let bar = console.bytes_bar("reading");
        let show = |progress| tell(&bar, progress);
        let options = ReadOptions { limits: self.limits, progress: Some(&show), ..ReadOptions::default() };
        let read = io::read_dense::<T>(self.path, &options);
        bar.finish_and_clear();
        let array = read?;
        // A file may have been replaced since its shape was read.
        if (array.rows(), array.cols()) != (self.rows, self.cols) {
            return Err(Failure::usage(format!("{}: the file was changed meanwhile", self.printed())));
        }
        if array.element() != T::NAME {
            let (path, from) = (self.printed(), array.element());
            console.note(format_args!("note: {} of {path} is taken from {from} to {}", self.name, T::NAME));
        }
        if array.overflowed() > 0 {
            console.note(format_args!(
                "note: {} elements of {} are beyond {} and become infinite",
                units::count(array.overflowed()),
                self.printed(),
                T::NAME
            ));
        }
        Ok(array)
    }

    /// Its elements as `T`, on the device.
    pub(crate) fn upload<T: Element>(&self, device: &Device, console: Console) -> Result<DeviceMatrix<T>> {
        let array = self.read::<T>(console)?;
        Ok(DeviceMatrix::upload(device, view(&array)?)?)
    }
}

/// The elements of a file, in its order.
pub(crate) fn view<T>(array: &DenseArray<T>) -> Result<MatRef<'_, T>> {
    let (rows, cols) = (array.rows(), array.cols());
    Ok(match array.is_column_major() {
        true => MatRef::col_major(array.values(), rows, cols)?,
        false => MatRef::row_major(array.values(), rows, cols)?,
    })
}

/// The same elements as another type, each rounded once.
pub(crate) fn rounded<T: Element>(array: &DenseArray<f64>, device: &Device) -> Result<DeviceMatrix<T>> {
    let values = try_collect(array.values().iter().map(|&x| T::from_f64(x)), "a dense operand")?;
    let (rows, cols) = (array.rows(), array.cols());
    let view = match array.is_column_major() {
        true => MatRef::col_major(&values, rows, cols)?,
        false => MatRef::row_major(&values, rows, cols)?,
    };
    Ok(DeviceMatrix::upload(device, view)?)
}

/// The one of two numbers that is given; an error if both are and differ. `option` and `of_file` say which they are.
pub(crate) fn agreed(option: (&str, Option<usize>), of_file: (&str, Option<usize>)) -> Result<Option<usize>> {
    match (option.1, of_file.1) {
        (Some(asked), Some(found)) if asked != found => {
            let ((option, _), (file, _)) = (option, of_file);
            Err(Failure::usage(format!("{option} is {asked}, but {file} has {found}; leave {option} out")))
        }
        (asked, found) => Ok(asked.or(found)),
    }
}

/// Where a dense result goes, if it goes anywhere: a name that tells the format, and is none of `inputs`.
pub(crate) fn output<'a>(
    path: Option<&'a Path>,
    inputs: &[Option<&Path>],
    console: Console,
) -> Result<Option<Output<'a>>> {
    let Some(path) = path else { return Ok(None) };
    let inputs: Vec<&Path> = inputs.iter().copied().flatten().collect();
    let output = Output::of(path, &inputs, console)?;
    if !output.is_standard() {
        DenseFormat::of_name(path).map_err(|error| error.in_file(path))?;
    }
    Ok(Some(output))
}

/// A dense matrix that was written.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    output: String,
    rows: usize,
    cols: usize,
    /// Type of its elements.
    element: &'static str,
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} × {} of {}", self.output, self.rows, self.cols, self.element)
    }
}

/// Writes a matrix that is on a device: `.npy` to standard output.
pub(crate) fn write<T: Value>(output: Output<'_>, matrix: &DeviceMatrix<T>) -> Result<Written> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let elements = matrix.download()?;
    output.write(
        |path| io::write_dense(path, (rows, cols), &elements),
        |stream| io::write_dense_to(stream, DenseFormat::Npy, (rows, cols), &elements),
    )?;
    Ok(Written { output: output.name(), rows, cols, element: T::NAME })
}

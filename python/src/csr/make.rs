//! What matrices are made of.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use windrow::{Coo, Csr, Device};

use super::{AnyCsr, PyCsr};
use crate::any::each;
use crate::array::{Array, Place, told};
use crate::device::live;
use crate::dtype::{Dtype, IndexType, with_dtype};
use crate::error::{Class, Fault, dtype};
use crate::numpy::{Item, numpy};
use crate::outside::{Kept, outside};
use crate::raw::{Arrays, Made, RawCsr};

/// The matrix of whatever `Csr(…)` was given.
pub(super) fn of_object(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    shape: Option<(usize, usize)>,
    dtype: Option<Dtype>,
) -> PyResult<PyCsr> {
    if let Ok(own) = object.cast::<PyCsr>() {
        return match dtype {
            Some(to) => own.get().astype(py, to),
            None => Ok(own.get().on_host(py)?.into()),
        };
    }
    let parts =
        py.import("windrow._convert")?.call_method1("parts", (object, shape, dtype.map(Dtype::name)))?;
    let (kind, arrays, shape): (String, Vec<Bound<'_, PyAny>>, (usize, usize)) = parts.extract()?;
    let matrix: AnyCsr = match (&*kind, &arrays[..]) {
        ("csr" | "csc", [data, indices, row_offsets]) => {
            let offsets = Array::of("indptr", row_offsets, None)?;
            let columns = Array::of("indices", indices, None)?;
            let data = Array::of("data", data, None)?;
            if let (Place::Device(device), Place::Device(_), Place::Device(_)) =
                (offsets.place, columns.place, data.place)
            {
                if let Some(to) = dtype.filter(|to| data.dtype().is_ok_and(|of| of != *to)) {
                    let text = format!("data is on {device} and holds {}", data.item);
                    let to = format!("convert it to {} there, or leave dtype out", to.name());
                    return Err(told(Class::Dtype, format!("{text}; {to}")));
                }
                let parts = [&offsets, &columns, &data];
                return match &*kind {
                    "csr" => of_device_parts(py, shape, device, parts),
                    _ => of_device_parts(py, (shape.1, shape.0), device, parts)?.transpose(py),
                };
            }
            let [offsets, columns, data] =
                [offsets.on_host()?, columns.on_host()?, data.forward()?.on_host()?];
            let (offsets, columns) =
                (offsets.forward()?.whole_numbers()?, columns.forward()?.whole_numbers()?);
            match &*kind {
                "csr" => of_host_parts(py, shape, offsets, columns, &data)?,
                _ => {
                    let turned = of_host_parts(py, (shape.1, shape.0), offsets, columns, &data)?;
                    outside(py, || Ok::<AnyCsr, Fault>(each!(AnyCsr, &turned, a => a.transpose()?.into())))?
                }
            }
        }
        ("coo", [data, rows, columns]) => {
            let rows = Array::host("row", rows)?.forward()?.whole_numbers()?;
            let columns = Array::host("column", columns)?.forward()?.whole_numbers()?;
            let data = Array::host("data", data)?.forward()?;
            with_dtype!(data.dtype()?, V => {
                let values = data.to_vec::<V>()?;
                outside(py, || {
                    Ok::<AnyCsr, Fault>(Coo::try_new(shape.0, shape.1, rows, columns, values)?.to_csr()?.into())
                })?
            })
        }
        (_, [dense]) => {
            let dense = Array::host("the matrix", &numpy(py)?.call_method1("ascontiguousarray", (dense,))?)?;
            with_dtype!(dense.dtype()?, V => {
                // SAFETY: of this type, in host memory, and packed.
                let elements = unsafe { dense.elements::<V>() };
                outside(py, || Ok::<AnyCsr, Fault>(Csr::from_dense(shape.0, shape.1, elements)?.into()))?
            })
        }
        _ => return Err(told(Class::Internal, format!("{} arrays of {kind}", arrays.len()))),
    };
    Ok(match dtype {
        Some(to) => matrix.cast(to).into(),
        None => matrix.into(),
    })
}

fn of_host_parts(
    py: Python<'_>,
    (rows, cols): (usize, usize),
    offsets: Vec<u64>,
    columns: Vec<u32>,
    data: &Array<'_>,
) -> PyResult<AnyCsr> {
    with_dtype!(data.dtype()?, V => {
        let values = data.to_vec::<V>()?;
        outside(py, || Ok::<AnyCsr, Fault>(Csr::try_from_parts(rows, cols, offsets, columns, values)?.into()))
    })
}

/// The matrix of arrays in device memory.
fn of_device_parts(
    py: Python<'_>,
    shape: (usize, usize),
    device: &'static Device,
    [offsets, columns, values]: [&Array<'_>; 3],
) -> PyResult<PyCsr> {
    let index_type = |what: &str, of: Item| match of {
        Item::I32 | Item::U32 => Ok(IndexType::I32),
        Item::I64 | Item::U64 => Ok(IndexType::I64),
        other => dtype(format!("{what} holds {other} but must hold int32 or int64; convert it")),
    };
    let ends = offsets.consecutive(device)?;
    let (nnz, given) = (columns.consecutive(device)?, values.consecutive(device)?);
    for (what, found, wanted) in [("indptr", ends, shape.0 + 1), ("data", given, nnz)] {
        if found != wanted {
            return Err(told(Class::Shape, format!("{what} has {found} elements but must have {wanted}")));
        }
    }
    let arrays = Arrays {
        shape,
        nnz,
        offsets: (offsets.address, index_type("indptr", offsets.item)?),
        columns: (columns.address, index_type("indices", columns.item)?),
        values: Some(values.address),
        dtype: values.dtype()?,
    };
    let owners = [&offsets.owner, &columns.owner, &values.owner];
    let keep = PyTuple::new(py, owners)?.into_any().unbind();
    // SAFETY: the owners, which are kept, have promised that the arrays are there; that nobody writes them is the
    // promise of who makes such a matrix.
    let matrix = outside(py, || unsafe {
        live(device)?;
        arrays.matrix(device, Some(&device.stream()))
    })?;
    let raw = RawCsr { made: Made::Borrowed(arrays, Some(keep)), matrix: Kept::new(matrix), device };
    PyCsr::there(py, raw)
}

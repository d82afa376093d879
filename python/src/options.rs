//! Options by keyword: those of the library's option structs, under the names of their fields.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Value};
use windrow::SpmmOptions;

use crate::error::{Class, Fault, Outcome};

/// A number of rows, columns or whatever there is no less than none of.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub(crate) usize);

impl FromPyObject<'_, '_> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error: PyErr| {
            if !error.is_instance_of::<PyOverflowError>(object.py()) {
                return error;
            }
            let text = format!("{} is no size; give a whole number from 0 to {}", *object, usize::MAX);
            Fault::new(Class::Shape, text).into()
        })
    }
}

/// Options of keywords. What is not a field, or not a value of it, is refused with what there is.
pub(crate) fn spmm_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<SpmmOptions> {
    match given {
        Some(given) => Ok(read(&to_json(given)?)?),
        None => Ok(SpmmOptions::DEFAULT),
    }
}

/// [`spmm_options`] of another family.
pub(crate) fn read_options<T: serde::de::DeserializeOwned>(given: &Bound<'_, PyDict>) -> PyResult<T> {
    Ok(read(&to_json(given)?)?)
}

fn read<T: serde::de::DeserializeOwned>(given: &Value) -> Outcome<T> {
    T::deserialize(given).map_err(|error| {
        // The error does not say whose value it is: the one that is wrong by itself.
        let wrong = given.as_object().into_iter().flatten().find_map(|(key, value)| {
            let alone = Value::from(Map::from_iter([(key.clone(), value.clone())]));
            T::deserialize(&alone).err().map(|error| (key, error.to_string()))
        });
        let text = match wrong {
            Some((_, text)) if text.starts_with("unknown field") => text,
            Some((key, text)) => format!("{key}: {text}"),
            None => error.to_string(),
        };
        let text = WORDS.iter().fold(text, |text, (rust, plain)| text.replace(rust, plain));
        Fault::new(Class::Option, text)
    })
}

/// What texts about options call types, and what they are to who writes Python.
const WORDS: [(&str, &str); 7] = [
    ("expected usize", "expected a whole number from 0 on"),
    ("expected u64", "expected a whole number from 0 on"),
    ("expected u32", "expected a whole number from 0 on"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("expected a boolean", "expected True or False"),
    ("expected struct Options", "expected a dict such as {\"method\": \"rcm\"}"),
];

/// A plain Python value as JSON. Keywords that are `None` are left out: they say nothing.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(value) = value.cast::<PyBool>() {
        Ok(value.is_true().into())
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(text.to_cow()?.into_owned().into())
    } else if let Ok(number) = value.cast::<PyFloat>() {
        finite(number.value())
    } else if let Ok(number) = value.extract::<u64>() {
        Ok(number.into())
    } else if let Ok(number) = value.extract::<i64>() {
        Ok(number.into())
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in dict.iter().filter(|(_, value)| !value.is_none()) {
            let key: String = key.extract()?;
            let value = to_json(&value).map_err(|error| {
                PyErr::from(Fault::new(Class::Option, format!("{key}: {}", error.value(value.py()))))
            })?;
            map.insert(key, value);
        }
        Ok(map.into())
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        value.try_iter()?.map(|item| to_json(&item?)).collect::<PyResult<Vec<_>>>().map(Value::from)
    } else if value.is_instance_of::<PyInt>() {
        Err(Fault::new(Class::Option, format!("{value} is too large for an option; give a smaller number"))
            .into())
    } else if value.hasattr("__float__")? && !value.hasattr("__len__")? {
        // A single number of numpy's.
        finite(value.extract()?)
    } else {
        let of = value.get_type().name()?;
        let text = format!("a {of} is no value of an option; give text, a number, a bool or a dict");
        Err(Fault::new(Class::Option, text).into())
    }
}

fn finite(number: f64) -> PyResult<Value> {
    if number.is_finite() {
        return Ok(number.into());
    }
    let text = format!("{number} is no value of an option; give a finite number").to_lowercase();
    Err(Fault::new(Class::Option, text).into())
}

/// A report as JSON.
pub(crate) fn shown(report: &impl serde::Serialize) -> Outcome<Value> {
    serde_json::to_value(report).map_err(|error| Fault::new(Class::Internal, error.to_string()))
}

//! Options by keyword: those of the library's option structs, under the names of their fields.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};
use serde_json::{Map, Value};
use windrow::SpmmOptions;

use crate::error::{Class, Fault, Outcome};

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
    T::deserialize(given).map_err(|error| Fault::new(Class::Option, error.to_string()))
}

/// A plain Python value as JSON. Keywords that are `None` are left out: they say nothing.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(value) = value.cast::<PyBool>() {
        Ok(value.is_true().into())
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(text.to_cow()?.into_owned().into())
    } else if let Ok(number) = value.cast::<PyFloat>() {
        Ok(number.value().into())
    } else if let Ok(number) = value.extract::<u64>() {
        Ok(number.into())
    } else if let Ok(number) = value.extract::<i64>() {
        Ok(number.into())
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in dict.iter().filter(|(_, value)| !value.is_none()) {
            map.insert(key.extract()?, to_json(&value)?);
        }
        Ok(map.into())
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        value.try_iter()?.map(|item| to_json(&item?)).collect::<PyResult<Vec<_>>>().map(Value::from)
    } else {
        let text =
            format!("{} is no value of an option; give text, a number, a bool or a dict", value.get_type());
        Err(Fault::new(Class::Option, text).into())
    }
}

/// A report as JSON.
pub(crate) fn shown(report: &impl serde::Serialize) -> Outcome<Value> {
    serde_json::to_value(report).map_err(|error| Fault::new(Class::Internal, error.to_string()))
}

//! Work of the library without the interpreter: other Python threads go on meanwhile.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::error::{Class, Fault, Outcome};

/// Does `work` without the interpreter's lock. A panic is an exception like any other.
pub(crate) fn outside<T: Send, E: Into<Fault> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    Ok(py.detach(|| caught(|| work().map_err(Into::into)))?)
}

fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Fault::new(Class::Internal, told(&*panic))))
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("windrow has made a mistake, please report it: {}", text.unwrap_or("a panic without a text"))
}

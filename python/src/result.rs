//! Where products go, and who waits for them.

use pyo3::prelude::*;
use windrow::{Device, Stream};

use crate::array::Array;
use crate::device::on_stream;
use crate::dtype::Dtype;
use crate::error::{Class, Fault, Outcome, beyond_memory};
use crate::matrix::{AnyMatrix, PyArray};
use crate::numpy::empty;

/// That what is added to a product is there.
pub(crate) fn check_beta(what: &str, out: Option<&Bound<'_, PyAny>>, beta: f64) -> Outcome<()> {
    if out.is_none() && beta != 0.0 {
        let text = format!("beta = {beta} is a factor of what {what} held before; give {what} as out=");
        return Err(Fault::new(Class::Option, text));
    }
    Ok(())
}

/// `out`, or a new array of numpy, as it is returned and as it is written: apart from what is read.
pub(crate) fn in_host_memory<'py>(
    py: Python<'py>,
    what: &'static str,
    out: Option<&Bound<'py, PyAny>>,
    (shape, of): (&[usize], Dtype),
    operands: &[&Array<'py>],
) -> PyResult<(Bound<'py, PyAny>, Array<'py>)> {
    let made = out.map_or_else(|| empty(py, shape, of.in_numpy()), |out| Ok(out.clone()));
    let made =
        made.map_err(|error| beyond_memory(py, error, "the result", "fewer columns at a time, or out="))?;
    let to = Array::host(what, &made)?;
    to.check_writable()?;
    for operand in operands {
        operand.check_apart(&to)?;
    }
    Ok((made, to))
}

/// `out`, or a new array on a device, as it is returned and as it is written.
pub(crate) fn on_device<'py>(
    py: Python<'py>,
    what: &'static str,
    out: Option<&Bound<'py, PyAny>>,
    (device, stream, vector): (&'static Device, Option<usize>, bool),
    make: impl FnOnce() -> PyResult<AnyMatrix>,
) -> PyResult<(Bound<'py, PyAny>, Array<'py>)> {
    let made = match out {
        Some(out) => out.clone(),
        None => Bound::new(py, PyArray::new(make()?, device, vector))?.into_any(),
    };
    let to = Array::of(what, &made, stream)?;
    Ok((made, to))
}

/// The place of a call among the work of a device.
///
/// Arrays of windrow's are in the order of the device's own stream, and nobody waits for what only they are in. Memory
/// of others is waited for, unless the caller gave a stream and orders it: then windrow's own is waited for.
pub(crate) struct Turn {
    device: &'static Device,
    stream: Option<usize>,
    wait: bool,
}

impl Turn {
    pub(crate) fn new(device: &'static Device, stream: Option<usize>, operands: &[&Array<'_>]) -> Self {
        let waited_for = |operand: &&Array<'_>| operand.is_own() == stream.is_some();
        Self { device, stream, wait: operands.iter().any(waited_for) }
    }

    /// Queues `work`, and waits for it where somebody must.
    pub(crate) fn take<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Stream) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        // SAFETY: the promise of who gives the stream.
        unsafe {
            on_stream(py, self.device, self.stream, |on| {
                let done = work(on)?;
                if self.wait {
                    on.synchronize()?;
                }
                Ok(done)
            })
        }
    }
}

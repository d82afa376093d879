//! Errors of the library as exceptions of `windrow.errors`.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyType};
use windrow::io::{ReadError, WriteError};
use windrow::{
    AggregateError, AttentionError, DeviceError, FormatError, NmError, OutOfMemory, PlanError, SddmmError,
    SpmmError, TensorError, UnknownName,
};

/// The classes of `windrow.errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Shape,
    Dtype,
    Format,
    Option,
    Memory,
    Device,
    File,
    Parse,
    Internal,
}

/// An exception to be: made anywhere, raised where the interpreter is held.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    pub(crate) text: String,
}

/// The outcome of work that needs no interpreter.
pub(crate) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }
}

pub(crate) fn shape<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fault::new(Class::Shape, text))
}

pub(crate) fn dtype<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fault::new(Class::Dtype, text))
}

fn of_format(error: &FormatError) -> Class {
    match error {
        FormatError::OutOfMemory { .. } => Class::Memory,
        FormatError::LengthMismatch { .. } | FormatError::DimensionTooLarge { .. } => Class::Shape,
        FormatError::NmPattern { .. } | FormatError::UnknownSynthetic { .. } => Class::Option,
        _ => Class::Format,
    }
}

fn of_device(error: &DeviceError) -> Class {
    match error {
        DeviceError::OutOfMemory { .. } | DeviceError::HostMemory(_) => Class::Memory,
        DeviceError::CopyLength { .. } | DeviceError::Grid { .. } => Class::Shape,
        DeviceError::NoKernel { .. } | DeviceError::MissingEntry { .. } | DeviceError::Emulator { .. } => {
            Class::Internal
        }
        DeviceError::UnknownSelector { .. } => Class::Option,
        _ => Class::Device,
    }
}

fn of_plan(error: &PlanError) -> Class {
    match error {
        PlanError::MemoryLimit { .. } => Class::Memory,
        PlanError::WrongDevice { .. }
        | PlanError::NotDeviceMemory { .. }
        | PlanError::BeyondMemory { .. } => Class::Device,
        PlanError::ElementType { .. } => Class::Dtype,
        PlanError::Device(error) => of_device(error),
        PlanError::Format(error) => of_format(error),
        PlanError::MatrixChanged => Class::Format,
        _ => Class::Shape,
    }
}

macro_rules! faults {
    ($($error:ty => $class:expr;)+) => { $(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                let class: fn(&$error) -> Class = $class;
                Self::new(class(&error), error.to_string())
            }
        }
    )+ };
}
faults! {
    FormatError => of_format;
    OutOfMemory => |_| Class::Memory;
    UnknownName => |_| Class::Option;
    DeviceError => of_device;
    PlanError => of_plan;
    SpmmError => |error| match error {
        SpmmError::Plan(error) => of_plan(error),
        SpmmError::InnerDim { .. } | SpmmError::PackedLength { .. } => Class::Shape,
        _ => Class::Option,
    };
    SddmmError => |error| match error {
        SddmmError::Plan(error) => of_plan(error),
        _ => Class::Option,
    };
    AggregateError => |error| match error {
        AggregateError::Plan(error) => of_plan(error),
        _ => Class::Option,
    };
    AttentionError => |error| match error {
        AttentionError::Plan(error) => of_plan(error),
        _ => Class::Option,
    };
    NmError => |error| match error {
        NmError::Plan(error) => of_plan(error),
        NmError::PackedLength { .. } | NmError::OtherWeights { .. } | NmError::NoSuchRow { .. } => Class::Shape,
        _ => Class::Option,
    };
    TensorError => |error| match error {
        TensorError::Plan(error) => of_plan(error),
        _ => Class::Option,
    };
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        let class = match error.cause() {
            ReadError::Io(_) => Class::File,
            ReadError::Matrix(error) => of_format(error),
            ReadError::Limit { .. } => Class::Memory,
            _ => Class::Parse,
        };
        Self::new(class, error.to_string())
    }
}

impl From<WriteError> for Fault {
    fn from(error: WriteError) -> Self {
        let class = match error.cause() {
            WriteError::Io(_) => Class::File,
            WriteError::OutOfMemory(_) => Class::Memory,
            WriteError::Matrix(error) => of_format(error),
            _ => Class::Option,
        };
        Self::new(class, error.to_string())
    }
}

/// The class of this name in `windrow.errors`.
fn exception<'py>(py: Python<'py>, class: Class) -> PyResult<Bound<'py, PyType>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let errors = ERRORS.get_or_try_init(py, || PyModule::import(py, "windrow.errors").map(Bound::unbind))?;
    let name = match class {
        Class::Shape => "ShapeError",
        Class::Dtype => "DtypeError",
        Class::Format => "FormatError",
        Class::Option => "OptionError",
        Class::Memory => "OutOfMemoryError",
        Class::Device => "DeviceError",
        Class::File => "FileError",
        Class::Parse => "ParseError",
        Class::Internal => "InternalError",
    };
    Ok(errors.bind(py).getattr(name)?.cast_into()?)
}

/// What the library's texts name as Rust does, and Python otherwise.
const NAMES: [(&str, &str); 5] = [
    ("`prune_magnitude`", "`windrow.NmWeights.prune`"),
    ("`Device::cpu()`", "`windrow.Device.cpu()`"),
    (
        "Csr::try_from_parts sorts them with their values",
        "A.to_host() or windrow.Csr of arrays in host memory sorts them",
    ),
    ("raise Limits::", "give a larger "),
    ("set WriteOptions::format", "give format="),
];

fn in_python(text: String) -> String {
    NAMES.iter().fold(
        text,
        |text, (rust, python)| if text.contains(rust) { text.replace(rust, python) } else { text },
    )
}

impl From<Fault> for PyErr {
    fn from(Fault { class, text }: Fault) -> Self {
        Python::attach(|py| match exception(py, class) {
            Ok(class) => Self::from_type(class, (in_python(text),)),
            Err(error) => error,
        })
    }
}

/// What numpy has no memory for, as an exception of windrow's; others as they are.
pub(crate) fn beyond_memory(py: Python<'_>, error: PyErr, what: &str, give: &str) -> PyErr {
    if !error.is_instance_of::<PyMemoryError>(py) {
        return error;
    }
    let text = format!("there is no memory for {what}: {}; give {give}", error.value(py));
    Fault::new(Class::Memory, text).into()
}

//! Element types by their names.

use pyo3::prelude::*;
use windrow::{Element, Precision, Value};

use crate::error::{Class, Fault, Outcome, dtype};

/// A type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dtype {
    F32,
    F64,
    F16,
    Bf16,
}

/// A type of offsets and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexType {
    I32,
    I64,
}

impl Dtype {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    pub(crate) fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 | Precision::Tf32 => Self::F32,
            Precision::F64 => Self::F64,
            Precision::F16 => Self::F16,
            Precision::Bf16 => Self::Bf16,
        }
    }

    /// The precision in which nothing of this type is rounded.
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::F64 => Precision::F64,
            Self::F16 => Precision::F16,
            Self::Bf16 => Precision::Bf16,
        }
    }

    /// The type of results in arrays of numpy, which has no bf16: sums of that are f32.
    pub(crate) fn in_numpy(self) -> Self {
        if self == Self::Bf16 { Self::F32 } else { self }
    }
}

/// A factor in the type of the sums.
pub(crate) fn factor<B: Element>(x: f64) -> B::Sum {
    <B::Sum as Value>::from_f64(x)
}

impl FromPyObject<'_, '_> for Dtype {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let name = name_of(&object)?;
        // What numpy and PyTorch call them.
        match &*name {
            "f32" | "float32" | "torch.float32" => Ok(Self::F32),
            "f64" | "float64" | "torch.float64" => Ok(Self::F64),
            "f16" | "float16" | "torch.float16" => Ok(Self::F16),
            "bf16" | "bfloat16" | "torch.bfloat16" => Ok(Self::Bf16),
            _ => {
                let text = format!("{name:?} is no type of values; there are f32, f64, f16 and bf16");
                Err(Fault::new(Class::Dtype, text).into())
            }
        }
    }
}

/// The name of a type that was given as text, as a type of numpy's, or as PyTorch's.
fn name_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(name) = object.extract() {
        return Ok(name);
    }
    for attribute in ["name", "__name__"] {
        if let Some(Ok(name)) = object.getattr_opt(attribute)?.map(|name| name.extract()) {
            return Ok(name);
        }
    }
    Ok(object.str()?.to_string())
}

impl FromPyObject<'_, '_> for IndexType {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match &*object.extract::<std::borrow::Cow<'_, str>>()? {
            "i32" => Ok(Self::I32),
            "i64" => Ok(Self::I64),
            name => Err(Fault::new(
                Class::Dtype,
                format!("{name:?} is no type of indices; there are i32 and i64"),
            )
            .into()),
        }
    }
}

/// An expression for a type of values: `with_dtype!(dtype, T => expression)`.
macro_rules! with_dtype {
    ($dtype:expr, $element:ident => $run:expr) => {
        match $dtype {
            $crate::dtype::Dtype::F32 => {
                type $element = f32;
                $run
            }
            $crate::dtype::Dtype::F64 => {
                type $element = f64;
                $run
            }
            $crate::dtype::Dtype::F16 => {
                type $element = windrow::f16;
                $run
            }
            $crate::dtype::Dtype::Bf16 => {
                type $element = windrow::bf16;
                $run
            }
        }
    };
}
pub(crate) use with_dtype;

/// An expression for the types of an operand and of a result whose sums are f32: `with_pair!((b, c), "C", B, C =>
/// expression)`, an [`Outcome`](crate::error::Outcome).
macro_rules! with_narrow {
    (($b:expr, $c:expr), $what:expr, $of_b:ident, $of_c:ident => $run:expr) => {{
        macro_rules! arm {
            ($b_type:ty, $c_type:ty) => {{
                type $of_b = $b_type;
                type $of_c = $c_type;
                $run
            }};
        }
        use $crate::dtype::Dtype::{Bf16, F16, F32, F64};
        match ($b, $c) {
            (F32, F32) => arm!(f32, f32),
            (F32, F16) => arm!(f32, windrow::f16),
            (F32, Bf16) => arm!(f32, windrow::bf16),
            (F16, F32) => arm!(windrow::f16, f32),
            (F16, F16) => arm!(windrow::f16, windrow::f16),
            (F16, Bf16) => arm!(windrow::f16, windrow::bf16),
            (Bf16, F32) => arm!(windrow::bf16, f32),
            (Bf16, F16) => arm!(windrow::bf16, windrow::f16),
            (Bf16, Bf16) => arm!(windrow::bf16, windrow::bf16),
            (of_b @ F64, of_c) | (of_b, of_c @ F64) => $crate::dtype::no_pair($what, of_b, of_c),
        }
    }};
}
pub(crate) use with_narrow;

/// As `with_narrow`, or both f64.
macro_rules! with_pair {
    (($b:expr, $c:expr), $what:expr, $of_b:ident, $of_c:ident => $run:expr) => {
        match ($b, $c) {
            ($crate::dtype::Dtype::F64, $crate::dtype::Dtype::F64) => {
                type $of_b = f64;
                type $of_c = f64;
                $run
            }
            (of_b, of_c) => $crate::dtype::with_narrow!((of_b, of_c), $what, $of_b, $of_c => $run),
        }
    };
}
pub(crate) use with_pair;

/// Types of an operand and of a result that are never one product.
pub(crate) fn no_pair(what: &str, of_b: Dtype, of_c: Dtype) -> Outcome<()> {
    dtype(match (of_b, of_c) {
        (Dtype::F64, Dtype::F64) => "f64 is not multiplied here; convert the operands to f32".to_owned(),
        (Dtype::F64, of_c) => {
            format!(
                "{what} holds {} but products of f64 are summed in f64; give it an array of f64",
                of_c.name()
            )
        }
        (of_b, _) => format!(
            "{what} holds f64 but products of {} are summed in f32; give it an array of f32 or {0}, or convert the \
             operands to f64",
            of_b.name()
        ),
    })
}

//! Which type elements have, for what is known only when a file is read.

use crate::{Value, names};

/// One of the types of [`Value`], as a value of its own: what a file says of its elements.
///
/// # Examples
/// ```
/// use windrow_formats::ValueType;
///
/// assert_eq!(ValueType::of::<f32>(), ValueType::F32);
/// assert_eq!((ValueType::Bf16.to_string().as_str(), ValueType::Bf16.bytes()), ("bf16", 2));
/// assert_eq!("f16".parse(), Ok(ValueType::F16));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// [`half::f16`], 16 bits with 11 of them significant.
    F16,
    /// [`half::bf16`], 16 bits with 8 of them significant.
    Bf16,
    /// `f32`, 32 bits with 24 of them significant.
    F32,
    /// `f64`, 64 bits with 53 of them significant.
    F64,
}

names!(pub name; ValueType, String, |text, known| format!("{text:?} is no type of values; there are {known}");
    F16 => "f16", Bf16 => "bf16", F32 => "f32", F64 => "f64");

impl ValueType {
    /// What stands for the type `V`.
    pub fn of<V: Value>() -> Self {
        match V::NAME {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "f64" => Self::F64,
            _ => Self::F32,
        }
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// What an expression with a type `V` in it is for the type that a [`ValueType`] names.
///
/// # Examples
/// ```
/// use windrow_formats::{Value, ValueType, with_value_type};
///
/// let found = ValueType::Bf16;
/// assert_eq!(with_value_type!(found, V => V::from_f64(1.0 + 1e-4).to_f64()), 1.0);
/// ```
#[macro_export]
macro_rules! with_value_type {
    ($type:expr, $V:ident => $body:expr) => {
        match $type {
            $crate::ValueType::F16 => {
                type $V = $crate::f16;
                $body
            }
            $crate::ValueType::Bf16 => {
                type $V = $crate::bf16;
                $body
            }
            $crate::ValueType::F32 => {
                type $V = f32;
                $body
            }
            $crate::ValueType::F64 => {
                type $V = f64;
                $body
            }
        }
    };
}

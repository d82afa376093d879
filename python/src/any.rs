//! What holds values of any of the four types.

/// An enum with a variant for each type of values, which holds `Held<V>` and is made of one or more types by functions:
/// `any_type! { AnyCsr(Held) from Csr by Arc::new; }`.
macro_rules! any_type {
    ($(#[$about:meta])* $name:ident($held:ident) $(from $source:ident by $wrap:path;)+) => {
        $(#[$about])*
        pub(crate) enum $name {
            F32($held<f32>),
            F64($held<f64>),
            F16($held<windrow::f16>),
            Bf16($held<windrow::bf16>),
        }

        impl $name {
            pub(crate) fn dtype(&self) -> $crate::dtype::Dtype {
                match self {
                    Self::F32(_) => $crate::dtype::Dtype::F32,
                    Self::F64(_) => $crate::dtype::Dtype::F64,
                    Self::F16(_) => $crate::dtype::Dtype::F16,
                    Self::Bf16(_) => $crate::dtype::Dtype::Bf16,
                }
            }
        }

        $(
            $crate::any::any_from! { $name, $source, $wrap, F32(f32) }
            $crate::any::any_from! { $name, $source, $wrap, F64(f64) }
            $crate::any::any_from! { $name, $source, $wrap, F16(windrow::f16) }
            $crate::any::any_from! { $name, $source, $wrap, Bf16(windrow::bf16) }
        )+
    };
}
pub(crate) use any_type;

macro_rules! any_from {
    ($name:ident, $source:ident, $wrap:path, $kind:ident($value:ty)) => {
        impl From<$source<$value>> for $name {
            fn from(of: $source<$value>) -> Self {
                Self::$kind($wrap(of))
            }
        }
    };
}
pub(crate) use any_from;

/// An expression for whatever type it holds: `each!(AnyCsr, matrix, a => expression)`.
macro_rules! each {
    ($any:ident, $held:expr, $a:ident => $run:expr) => {
        match $held {
            $any::F32($a) => $run,
            $any::F64($a) => $run,
            $any::F16($a) => $run,
            $any::Bf16($a) => $run,
        }
    };
}
pub(crate) use each;

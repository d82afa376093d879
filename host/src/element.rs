//! The element types that kernels know.

use std::any::Any;
use std::ops::{Add, Mul};

use half::{bf16, f16};
use windrow_formats::Value;
use windrow_kernels::Factor;
use windrow_kernels::output::OutputType;

use crate::options::Precision;

mod sealed {
    use windrow_kernels::Factor;

    use crate::cpu::{Lanes, Multiplied, Storage};

    /// The types that kernels and the CPU product are written for.
    #[expect(private_bounds, reason = "nobody outside may implement or name these traits")]
    pub trait Element: Multiplied + Storage {}
    impl Element for f32 {}
    impl Element for f64 {}
    impl Element for half::f16 {}
    impl Element for half::bf16 {}

    #[expect(private_bounds, reason = "nobody outside may implement or name these traits")]
    pub trait Real: Lanes {
        fn to_factor(self) -> Factor;
    }
    impl Real for f32 {
        fn to_factor(self) -> Factor {
            Factor::new(self)
        }
    }
    impl Real for f64 {
        fn to_factor(self) -> Factor {
            Factor::new(self)
        }
    }
}

/// Element type of dense operands and results: f32, f64, [`half::f16`] or [`half::bf16`].
///
/// `B` has the one that the plan's precision names ([`Precision::Tf32`]: f32). `C` has any whose sums are of the same
/// type: they are rounded once when they are stored.
#[expect(private_bounds, reason = "nobody outside may implement it")]
pub trait Element: Value + sealed::Element<In = <Self as Element>::Sum> {
    /// The type in which products with such elements are summed: f32, for f64 it is f64.
    type Sum: Real;
    /// The precision of plans that take it as it is.
    const PRECISION: Precision;
}

impl Element for f32 {
    type Sum = f32;
    const PRECISION: Precision = Precision::F32;
}
impl Element for f64 {
    type Sum = f64;
    const PRECISION: Precision = Precision::F64;
}
impl Element for f16 {
    type Sum = f32;
    const PRECISION: Precision = Precision::F16;
}
impl Element for bf16 {
    type Sum = f32;
    const PRECISION: Precision = Precision::Bf16;
}

/// A type of sums, of factors like `α`, and of dense matrices in host memory: f32 or f64.
pub trait Real: Element<Sum = Self> + Add<Output = Self> + Mul<Output = Self> + sealed::Real {
    /// `self · factor + addend`, rounded once.
    #[must_use]
    fn fused(self, factor: Self, addend: Self) -> Self;
}

impl Real for f32 {
    fn fused(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }
}
impl Real for f64 {
    fn fused(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }
}

/// A factor as kernels take it.
pub(crate) fn kernel_factor<S: Real>(x: S) -> Factor {
    sealed::Real::to_factor(x)
}

/// What kernels are told of the type of a result.
pub(crate) const fn output_type<C: Element>() -> OutputType {
    match C::PRECISION {
        Precision::F16 => OutputType::F16,
        Precision::Bf16 => OutputType::Bf16,
        Precision::F32 | Precision::Tf32 | Precision::F64 => OutputType::Sums,
    }
}

/// Whether a result of this type keeps less of a sum than there is.
pub(crate) const fn is_narrow<C: Element>() -> bool {
    !matches!(output_type::<C>(), OutputType::Sums)
}

/// Something in the type of a plan's sums, which only the plan's precision tells.
pub(crate) struct BySum(Box<dyn Any + Send + Sync>);

impl BySum {
    pub(crate) fn new<T: Any + Send + Sync>(of_sums: T) -> Self {
        Self(Box::new(of_sums))
    }

    /// It, for operands that were found to be of the plan's element type; others find nothing.
    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// As [`get`](Self::get), to change it.
    pub(crate) fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

/// An expression for the element type of a precision: `with_element!(precision, T => expression)` has `T` stand for
/// `f32`, `f64`, [`f16`](crate::f16) or [`bf16`](crate::bf16) in the expression, as `B` and other operands of a plan of
/// that precision have it.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceMatrix, Precision, with_element};
///
/// fn zeros(precision: Precision, device: &Device) -> Result<u64, windrow::PlanError> {
///     Ok(with_element!(precision, T => DeviceMatrix::<T>::zeros(device, 3, 8)?.buffer().bytes()))
/// }
/// assert_eq!(zeros(Precision::Bf16, &Device::cpu())?, 3 * 8 * 2);
/// assert_eq!(zeros(Precision::Tf32, &Device::cpu())?, 3 * 8 * 4);
/// assert_eq!(zeros(Precision::F64, &Device::cpu())?, 3 * 8 * 8);
/// # Ok::<(), windrow::PlanError>(())
/// ```
#[macro_export]
macro_rules! with_element {
    ($precision:expr, $element:ident => $run:expr) => {
        match $precision {
            $crate::Precision::F32 | $crate::Precision::Tf32 => {
                type $element = f32;
                $run
            }
            $crate::Precision::F64 => {
                type $element = f64;
                $run
            }
            $crate::Precision::F16 => {
                type $element = $crate::f16;
                $run
            }
            $crate::Precision::Bf16 => {
                type $element = $crate::bf16;
                $run
            }
        }
    };
}

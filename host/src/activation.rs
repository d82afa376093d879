//! What becomes of the sums of a product.

use windrow_formats::names;
use windrow_kernels::output::Activate;

use crate::device::DeviceBuffer;
use crate::element::Real;

/// What is applied to each element of the result in the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Activation {
    /// `x` itself, nothing to compute.
    #[default]
    Identity,
    /// `max(x, 0)`; a NaN stays one.
    Relu,
    /// `½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, the tanh form (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x / (1 + e⁻ˣ)`, also called swish (Elfwing, Uchibe and Doya 2018).
    Silu,
}

names!(Activation, "activation";
    Identity => "identity", Relu => "relu", Gelu => "gelu", Silu => "silu");

impl Activation {
    /// Every activation, the default first.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Relu, Self::Gelu, Self::Silu];

    /// Whether it is computed in f32 alone: plans of f64 have none of these.
    pub(crate) const fn is_of_f32(self) -> bool {
        matches!(self, Self::Gelu | Self::Silu)
    }

    /// What kernels are told.
    pub(crate) const fn code(self) -> Activate {
        match self {
            Self::Identity => Activate::Identity,
            Self::Relu => Activate::Relu,
            Self::Gelu => Activate::Gelu,
            Self::Silu => Activate::Silu,
        }
    }

    /// The activation of `x`, in f32.
    ///
    /// # Examples
    /// ```
    /// use windrow::Activation;
    ///
    /// assert_eq!(Activation::Relu.apply(-2.0), 0.0);
    /// approx::assert_relative_eq!(Activation::Gelu.apply(1.0), 0.841192, max_relative = 1e-6);
    /// ```
    #[must_use]
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Self::Identity => x,
            Self::Relu => relu(x),
            Self::Gelu => gelu(x),
            Self::Silu => silu(x),
        }
    }

    /// [`apply`](Self::apply) to each element, in loops that compile to vector instructions.
    pub(crate) fn apply_to<S: Real>(self, elements: &mut [S]) {
        match self {
            Self::Identity => {}
            Self::Relu => elements.iter_mut().for_each(|x| *x = relu(*x)),
            // Of f32: plans of f64 have none.
            Self::Gelu => elements.iter_mut().for_each(|x| *x = S::from_f32(gelu(x.to_f32()))),
            Self::Silu => elements.iter_mut().for_each(|x| *x = S::from_f32(silu(x.to_f32()))),
        }
    }
}

/// What a run makes of the sums of a product: `C ← act(α·product + β·C + bias)`, or, [gated](Self::gated), that times
/// what `C` held. The default is the product alone.
///
/// `S` is the type of the sums, f32 or f64. `B` is where the bias is: `[S]` for host memory, [`DeviceBuffer<S>`] for
/// the memory of a device.
///
/// # Examples
/// ```
/// use windrow::{Activation, Epilogue};
///
/// let bias = [0.5f32, -0.5];
/// let run = Epilogue { bias: Some(&bias[..]), activation: Activation::Relu, ..Epilogue::default() };
/// assert_eq!((run.alpha, run.beta, run.gated), (1.0, 0.0, false));
/// ```
#[derive(Debug)]
pub struct Epilogue<'a, S: Real = f32, B: ?Sized = DeviceBuffer<S>> {
    /// Factor of the product.
    pub alpha: S,
    /// Factor of what `C` held and is added, 0 for nothing. `C` is not read if it is 0 and there is no gate.
    pub beta: S,
    /// One number for each column of `C`.
    pub bias: Option<&'a B>,
    /// What is applied to that.
    pub activation: Activation,
    /// Whether that is multiplied, element by element, by what `C` held: `C ← act(α·product + β·C + bias) ⊙ C`. Two
    /// runs into the same `C` are a gated linear unit, `SiLU(x·W₁) ⊙ (x·W₃)` (SwiGLU, Shazeer 2020): first `x·W₃`, then
    /// `x·W₁` with [`Activation::Silu`] and this. The first is rounded to the type of `C` on its way.
    pub gated: bool,
}

impl<S: Real, B: ?Sized> Default for Epilogue<'_, S, B> {
    fn default() -> Self {
        Self { alpha: S::ONE, beta: S::ZERO, bias: None, activation: Activation::Identity, gated: false }
    }
}

impl<S: Real, B: ?Sized> Clone for Epilogue<'_, S, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Real, B: ?Sized> Copy for Epilogue<'_, S, B> {}

impl<S: Real, B: ?Sized> Epilogue<'_, S, B> {
    /// `C ← α·product + β·C`.
    pub(crate) fn linear(alpha: S, beta: S) -> Self {
        Self { alpha, beta, ..Self::default() }
    }

    /// The same with its bias elsewhere.
    pub(crate) fn with_bias<'b, To: ?Sized>(&self, bias: Option<&'b To>) -> Epilogue<'b, S, To> {
        let Self { alpha, beta, activation, gated, .. } = *self;
        Epilogue { alpha, beta, bias, activation, gated }
    }

    /// Whether there is neither bias nor activation nor gate.
    pub(crate) fn is_linear(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::Identity && !self.gated
    }

    /// Whether what `C` held has a part in the result.
    pub(crate) fn reads_output(&self) -> bool {
        self.beta != S::ZERO || self.gated
    }
}

#[inline(always)]
fn relu<S: Real>(x: S) -> S {
    if x <= S::ZERO { S::ZERO } else { x }
}

/// `½·(1 + tanh(t)) = 1 / (1 + e^(−2t))`, which does not cancel where `t` is far below zero.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    /// `−2·√(2/π)`: the factor of `x + 0.044715·x³` in `−2t`, with GELU's tanh argument `t`.
    const FACTOR: f32 = -1.595_769;
    x / (1.0 + exp(FACTOR * (x + 0.044_715 * x * x * x)))
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `eˣ` without a branch, off by at most 2⁻²² of it for −87 ≤ x ≤ 88.37. Below it stays that of −87, about
/// 1.4·2⁻¹²⁶; from 88.38 on it is infinity, though f32 holds `eˣ` up to 88.72. A NaN stays one.
///
/// `x = n·ln 2 + r` with `|r| ≤ ½·ln 2`, and a polynomial for `eʳ` (Cephes, `expf`).
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Added to a small number, it leaves that rounded to a whole one, which is then in the lowest bits.
    const ROUNDER: f32 = 12_582_912.0;
    /// `ln 2` in two parts, the first of few bits, so that its product with a small whole number is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const POLYNOMIAL: [f32; 6] =
        [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];
    let x = x.clamp(-87.0, 89.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let series = POLYNOMIAL.iter().fold(0.0, |sum, coefficient| sum * r + coefficient);
    // 2ⁿ by its bits; the lowest nine of `rounded` are those of `n`, 128 makes infinity.
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    (series * r * r + r + 1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for activation in Activation::ALL {
            assert_eq!(activation.to_string().parse::<Activation>().unwrap(), activation);
        }
        let error = "tanh".parse::<Activation>().unwrap_err();
        assert_eq!(error.to_string(), "\"tanh\" is no activation; there are identity, relu, gelu and silu");
    }

    #[test]
    fn activations_keep_what_is_no_number() {
        for activation in Activation::ALL {
            assert!(activation.apply(f32::NAN).is_nan(), "{activation}");
            assert_eq!(activation.apply(0.0), 0.0);
            assert_eq!(activation.apply(f32::INFINITY), f32::INFINITY);
            let mut all = [f32::NAN, 0.0, f32::INFINITY, -3.0, 1e-30];
            let want = all.map(|x| activation.apply(x).to_bits());
            activation.apply_to(&mut all);
            assert_eq!(all.map(f32::to_bits)[1..], want[1..]);
            assert!(all[0].is_nan());
        }
        assert_eq!(Activation::Relu.apply(f32::NEG_INFINITY), 0.0);
        for activation in [Activation::Gelu, Activation::Silu] {
            assert_eq!(activation.apply(-1e30), 0.0);
            assert!(activation.apply(f32::NEG_INFINITY).is_nan(), "−∞·0, as the formula has it");
        }
    }

    #[test]
    fn the_exponential_is_near_that_of_the_library() {
        let mut worst = 0.0f64;
        for i in -87_000..=88_370 {
            let x = <f32 as windrow_formats::Value>::from_f64(f64::from(i) * 1e-3);
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2f64.powi(-22), "{worst:e}");
        assert_eq!((exp(0.0), exp(1000.0), exp(f32::INFINITY)), (1.0, f32::INFINITY, f32::INFINITY));
        assert_eq!(
            (exp(-1000.0), exp(f32::NEG_INFINITY), exp(88.38)),
            (exp(-87.0), exp(-87.0), f32::INFINITY)
        );
        assert!((exp(-87.0) / f32::MIN_POSITIVE - 1.4).abs() < 0.05 && exp(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_and_silu_are_within_a_few_units_of_their_argument() {
        for i in -20_000..20_000 {
            let x = <f32 as windrow_formats::Value>::from_f64(f64::from(i) * 1e-3);
            let wide = f64::from(x);
            let t = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide * wide * wide);
            let wants = [(gelu(x), 0.5 * wide * (1.0 + t.tanh())), (silu(x), wide / (1.0 + (-wide).exp()))];
            for (got, want) in wants {
                let error = (f64::from(got) - want).abs();
                assert!(error <= 4.0 * 2f64.powi(-24) * wide.abs(), "{x}: {error:e}");
            }
        }
    }
}

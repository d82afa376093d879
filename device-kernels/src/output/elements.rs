//! Elements of `C` of any type, read and written some at a time.

use windrow_simt::{GlobalPtr, Simt};

use super::TYPE_F16;
use crate::real::Real;
use crate::unroll::each;

/// Some neighbouring elements of `C`.
pub struct Span {
    /// Element of `C` at which it begins.
    pub(super) at: u64,
    /// How many of them there are.
    pub(super) present: u32,
    /// Whether all are there and may be moved at once.
    pub(super) whole: bool,
    /// The element type, as flags have it.
    pub(super) kind: u32,
}

impl Span {
    /// The element at `at` alone.
    #[inline(always)]
    pub(crate) const fn one(at: u64, kind: u32) -> Self {
        Self { at, present: 1, whole: true, kind }
    }
}

/// A type of sums that can become elements of `C`.
pub trait Summed: Real {
    /// Elements of `C`; what is beyond the present ones is zero.
    ///
    /// # Safety
    /// The obligations of [`Output`](super::Output).
    unsafe fn read<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span) -> [Self; W];

    /// Writes the present ones.
    ///
    /// # Safety
    /// The obligations of [`Output`](super::Output).
    unsafe fn write<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span, x: [Self; W]);

    /// `factors[0]·sums + factors[1]·C`, written to the present elements.
    ///
    /// # Safety
    /// The obligations of [`Output`](super::Output).
    unsafe fn store_linear<S: Simt, const W: usize>(
        s: &S,
        c: GlobalPtr<u32>,
        span: &Span,
        factors: [Self; 2],
        sums: [Self; W],
    );

    /// GELU of `x`, or SiLU where `is_silu`; plans of f64 have neither, and their sums stay as they are.
    fn gelu_or_silu<S: Simt>(s: &S, x: Self, is_silu: bool) -> Self;
}

impl Summed for f32 {
    #[inline(always)]
    unsafe fn read<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span) -> [Self; W] {
        // SAFETY: the span lies in `C`, which is as [`Output`] demands, of the type that `kind` says.
        unsafe {
            match span.kind {
                0 => read_numbers(s, c, span),
                kind => read_halves(s, c, span, kind == TYPE_F16),
            }
        }
    }

    #[inline(always)]
    unsafe fn write<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span, x: [Self; W]) {
        // SAFETY: the span lies in `C`, of the type that `kind` says, and is this thread's alone.
        unsafe {
            match span.kind {
                0 => write_numbers(s, c, span, x),
                kind => write_halves(s, c, span, x, kind == TYPE_F16),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_linear<S: Simt, const W: usize>(
        s: &S,
        c: GlobalPtr<u32>,
        span: &Span,
        factors: [Self; 2],
        sums: [Self; W],
    ) {
        // SAFETY: the span lies in `C`, of the type that `kind` says, and is this thread's alone.
        unsafe {
            match span.kind {
                0 => linear_numbers(s, c, span, factors, sums),
                _ => linear_halves(s, c, span, factors, sums),
            }
        }
    }

    /// `x / (1 + 2^(−2·log₂e·√(2/π)·(x + 0.044715·x³)))`, or `x / (1 + 2^(−log₂e·x))`.
    #[inline(always)]
    fn gelu_or_silu<S: Simt>(s: &S, x: Self, is_silu: bool) -> Self {
        const SILU: f32 = -core::f32::consts::LOG2_E;
        const GELU: f32 = 2.0 * SILU * 0.797_884_6;
        let cube = x * x * x;
        let power = if is_silu { SILU * x } else { GELU * s.fma(0.044_715, cube, x) };
        x / (1.0 + s.exp2(power))
    }
}

impl Summed for f64 {
    #[inline(always)]
    unsafe fn read<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span) -> [Self; W] {
        // SAFETY: the span lies in `C`, which is as [`Output`] demands: sums of f64 have no other type.
        unsafe { read_numbers(s, c, span) }
    }

    #[inline(always)]
    unsafe fn write<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span, x: [Self; W]) {
        // SAFETY: the span lies in `C`, of f64, and is this thread's alone.
        unsafe { write_numbers(s, c, span, x) }
    }

    #[inline(always)]
    unsafe fn store_linear<S: Simt, const W: usize>(
        s: &S,
        c: GlobalPtr<u32>,
        span: &Span,
        factors: [Self; 2],
        sums: [Self; W],
    ) {
        // SAFETY: the span lies in `C`, of f64, and is this thread's alone.
        unsafe { linear_numbers(s, c, span, factors, sums) }
    }

    /// There is no such instruction, and the host asks for none.
    #[inline(always)]
    fn gelu_or_silu<S: Simt>(_: &S, x: Self, _: bool) -> Self {
        x
    }
}

/// # Safety
/// `c` holds numbers of type `T` there.
#[inline(always)]
pub(super) unsafe fn read_numbers<S: Simt, T: Real, const W: usize>(
    s: &S,
    c: GlobalPtr<u32>,
    span: &Span,
) -> [T; W] {
    let from = c.cast::<T>().at_wide(span.at);
    let mut out = [T::ZERO; W];
    // SAFETY: the caller has numbers of `T` in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole {
            return T::load(s, from);
        }
        each::<W>(|i| {
            if (i as u32) < span.present {
                [out[i]] = T::load(s, from.at(i as u32));
            }
        });
    }
    out
}

/// # Safety
/// As for [`read_numbers`].
#[inline(always)]
unsafe fn write_numbers<S: Simt, T: Real, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span, x: [T; W]) {
    let to = c.cast::<T>().at_wide(span.at);
    // SAFETY: the caller has room for numbers of `T` in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole {
            return T::store(s, to, x, true);
        }
        each::<W>(|i| {
            if (i as u32) < span.present {
                T::store(s, to.at(i as u32), [x[i]], true);
            }
        });
    }
}

/// `alpha·sums + beta·C` -> `C`, the type of which is looked at once: this is what a kernel has many copies of.
///
/// # Safety
/// As for [`read_numbers`].
#[inline(always)]
unsafe fn linear_numbers<S: Simt, T: Real, const W: usize>(
    s: &S,
    c: GlobalPtr<u32>,
    span: &Span,
    [alpha, beta]: [T; 2],
    sums: [T; W],
) {
    let c = c.cast::<T>().at_wide(span.at);
    let mut out = sums;
    each::<W>(|i| out[i] = alpha * sums[i]);
    // SAFETY: the caller has numbers of `T` in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole {
            if beta != T::ZERO {
                let old: [T; W] = T::load(s, c);
                each::<W>(|i| out[i] = T::fma(s, beta, old[i], out[i]));
            }
            T::store(s, c, out, true);
            return;
        }
        each::<W>(|i| {
            if (i as u32) < span.present {
                let c = c.at(i as u32);
                if beta != T::ZERO {
                    let [old] = T::load(s, c);
                    out[i] = T::fma(s, beta, old, out[i]);
                }
                T::store(s, c, [out[i]], true);
            }
        });
    }
}

/// The same of f16.
///
/// # Safety
/// `c` holds f16 there.
#[inline(always)]
unsafe fn linear_halves<S: Simt, const W: usize>(
    s: &S,
    c: GlobalPtr<u32>,
    span: &Span,
    [alpha, beta]: [f32; 2],
    sums: [f32; W],
) {
    let c = c.cast::<u16>().at_wide(span.at);
    let mut out = sums;
    each::<W>(|i| out[i] = alpha * sums[i]);
    // SAFETY: the caller has f16 in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole && W > 1 {
            if beta != 0.0 {
                let pairs: [u32; 2] = match W {
                    4 => s.load(c.cast()),
                    _ => [s.load(c.cast()), 0],
                };
                each::<W>(|i| out[i] = s.fma(beta, s.f16x2_to_f32(pairs[i / 2])[i % 2], out[i]));
            }
            let low = s.f32x2_to_f16x2([out[0], out[1 % W]]);
            match W {
                4 => s.store_streaming(c.cast(), [low, s.f32x2_to_f16x2([out[2 % W], out[3 % W]])]),
                _ => s.store_streaming(c.cast(), low),
            }
            return;
        }
        each::<W>(|i| {
            if (i as u32) < span.present {
                let c = c.at(i as u32);
                if beta != 0.0 {
                    out[i] = s.fma(beta, s.f16_to_f32(s.load(c)), out[i]);
                }
                s.store(c, s.f32_to_f16(out[i]));
            }
        });
    }
}

/// # Safety
/// `c` holds numbers of 16 bits there: f16, or bf16.
#[inline(always)]
unsafe fn read_halves<S: Simt, const W: usize>(
    s: &S,
    c: GlobalPtr<u32>,
    span: &Span,
    is_f16: bool,
) -> [f32; W] {
    let from = c.cast::<u16>().at_wide(span.at);
    let mut pairs = [0; 2];
    // SAFETY: the caller has numbers of 16 bits in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole && W == 4 {
            pairs = s.load(from.cast::<[u32; 2]>());
        } else if span.whole && W == 2 {
            pairs[0] = s.load(from.cast::<u32>());
        } else {
            each::<W>(|i| {
                if (i as u32) < span.present {
                    let half: u16 = s.load(from.at(i as u32));
                    pairs[i / 2] |= u32::from(half) << (16 * (i as u32 % 2));
                }
            });
        }
    }
    let mut out = [0.0; W];
    each::<W>(|i| {
        let pair = pairs[i / 2];
        let two = match is_f16 {
            true => s.f16x2_to_f32(pair),
            false => [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)],
        };
        out[i] = two[i % 2];
    });
    out
}

/// # Safety
/// As for [`read_halves`].
#[inline(always)]
unsafe fn write_halves<S: Simt, const W: usize>(
    s: &S,
    c: GlobalPtr<u32>,
    span: &Span,
    x: [f32; W],
    is_f16: bool,
) {
    let to = c.cast::<u16>().at_wide(span.at);
    let pair = |low: usize| {
        let two = [x[low % W], x[(low + 1) % W]];
        if is_f16 { s.f32x2_to_f16x2(two) } else { s.f32x2_to_bf16x2(two) }
    };
    // SAFETY: the caller has room for 16-bit numbers in all of the span, aligned to a vector where it is whole.
    unsafe {
        if span.whole && W == 4 {
            s.store_streaming(to.cast(), [pair(0), pair(2)]);
        } else if span.whole && W == 2 {
            s.store_streaming(to.cast(), pair(0));
        } else {
            each::<W>(|i| {
                if (i as u32) < span.present {
                    let half = if is_f16 { s.f32_to_f16(x[i]) } else { s.f32_to_bf16(x[i]) };
                    s.store(to.at(i as u32), half);
                }
            });
        }
    }
}

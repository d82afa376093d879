//! How a product's sums reach `C`: the one epilogue of all products with a dense result.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::real::{Factor, Real};
use crate::unroll::each;

/// What `act` is in `C ← act(α·sum + β·C + bias)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activate {
    /// Nothing: the sum goes to `C` as it is.
    #[default]
    Identity,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, as `x / (1 + exp(−2·√(2/π)·(x + 0.044715·x³)))`. Sums in f32 only.
    Gelu,
}

/// Element type of `C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputType {
    /// That of the sums: IEEE binary32, or binary64 where kernels sum in f64.
    #[default]
    Sums,
    /// IEEE binary16. Sums in f32 only.
    F16,
    /// The upper half of an f32. Sums in f32 only.
    Bf16,
}

impl OutputType {
    /// As params have it.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Sums => 0,
            Self::F16 => TYPE_F16,
            Self::Bf16 => TYPE_BF16,
        }
    }

    /// Size of an element, given that of a sum.
    #[must_use]
    pub const fn bytes(self, sum_bytes: u32) -> u32 {
        match self {
            Self::Sums => sum_bytes,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// The `C` side of one launch of `C[m × n] ← act(α·sum + β·C + bias)`.
///
/// # Obligations
/// - `c`: `m × n` row-major with `ldc ≥ n`, of the type that `flags` name; if they allow vectors, rows are aligned to
///   four elements, or to 16 bytes where that is less.
/// - `bias`: `n` numbers of the sums' type, 16-byte aligned if `flags` allow vectors, or null for none.
/// - `alpha` and `beta` were made of numbers of the sums' type.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Output {
    /// `C`, cast to words. Read only if `beta` is not 0.
    pub c: GlobalPtr<u32>,
    /// What is added to every row, cast to words, or null.
    pub bias: GlobalPtr<u32>,
    /// Factor of the sum.
    pub alpha: Factor,
    /// Factor of what `C` held; 0 means that it is not read.
    pub beta: Factor,
    /// Rows of `C`: no row from here on is touched.
    pub m: u32,
    /// Columns of `C`: no column from here on is touched.
    pub n: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// Type of `C`, activation and width of stores, as [`Output::flags`] packs them.
    pub flags: u32,
}

const TYPE_MASK: u32 = 3;
const TYPE_F16: u32 = 1;
const TYPE_BF16: u32 = 2;
const ACTIVATE_MASK: u32 = 3 << 2;
const ACTIVATE_RELU: u32 = 1 << 2;
const ACTIVATE_GELU: u32 = 2 << 2;
const VECTORS: u32 = 1 << 4;

impl Output {
    /// The word that tells of the element type, the activation, and whether neighbouring elements of `C` may be stored
    /// at once.
    #[must_use]
    pub const fn flags(element: OutputType, activate: Activate, vectors: bool) -> u32 {
        let activate = match activate {
            Activate::Identity => 0,
            Activate::Relu => ACTIVATE_RELU,
            Activate::Gelu => ACTIVATE_GELU,
        };
        element.code() | activate | if vectors { VECTORS } else { 0 }
    }

    /// `C[row, column..column + W] ← act(α·sums + β·C + bias)`, masked at `m` and `n`. `column` is a multiple of `W`,
    /// which is 1, 2 or 4.
    ///
    /// Long: call it in few places, in loops that are not unrolled. [`store_linear`](Self::store_linear) is for kernels
    /// without registers to spare.
    ///
    /// # Safety
    /// The obligations of [`Output`]; no other thread touches these elements.
    #[inline(always)]
    pub unsafe fn store<S: Simt, T: Summed, const W: usize>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        sums: [T; W],
    ) {
        if row >= self.m || column >= self.n {
            return;
        }
        let span = self.span::<W>(row, column);
        // SAFETY: row < m; of the columns, only those below n are touched; vectors only where they are promised.
        unsafe {
            let mut out = self.linear(s, self.beta.get::<T>(), &span, sums);
            if self.bias != GlobalPtr::NULL {
                let bias = self.bias_of::<S, T, W>(s, column, &span);
                each::<W>(|i| out[i] = out[i] + bias[i]);
            }
            match self.flags & ACTIVATE_MASK {
                // -0 becomes 0, as on the CPU.
                ACTIVATE_RELU => each::<W>(|i| out[i] = if out[i] <= T::ZERO { T::ZERO } else { out[i] }),
                ACTIVATE_GELU => each::<W>(|i| out[i] = T::gelu(s, out[i])),
                _ => {}
            }
            T::write(s, self.c, &span, out);
        }
    }

    /// `C[row, column..column + W] ← α·sums + β·C`, masked as in [`store`](Self::store), for a `C` of any type: where
    /// there is neither bias nor activation.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub unsafe fn store_scaled<S: Simt, T: Summed, const W: usize>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        sums: [T; W],
    ) {
        if row >= self.m || column >= self.n {
            return;
        }
        let span = self.span::<W>(row, column);
        // SAFETY: as in `store`.
        unsafe {
            let out = self.linear(s, self.beta.get::<T>(), &span, sums);
            T::write(s, self.c, &span, out);
        }
    }

    /// `C[row, column..column + W] ← α·sums + beta·C`, masked as in [`store`](Self::store), for a `C` of the sums' type
    /// or f16: for kernels that have no registers left for more, or add to what an earlier launch has written.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub unsafe fn store_linear<S: Simt, T: Summed, const W: usize>(
        &self,
        s: &S,
        beta: T,
        (row, column): (u32, u32),
        sums: [T; W],
    ) {
        if column >= self.n {
            return;
        }
        let span = self.span::<W>(row, column);
        // SAFETY: as in `store`.
        unsafe { T::store_linear(s, self.c, &span, [self.alpha.get(), beta], sums) }
    }

    /// The elements of `C` in some columns of a row.
    #[inline(always)]
    fn span<const W: usize>(&self, row: u32, column: u32) -> Span {
        const { assert!(matches!(W, 1 | 2 | 4), "an element, half a vector, or one") }
        let present = self.n - column;
        Span {
            at: u64::from(row) * u64::from(self.ldc) + u64::from(column),
            present,
            whole: self.flags & VECTORS != 0 && present >= W as u32,
            kind: self.flags & TYPE_MASK,
        }
    }

    /// `α·sums + beta·C`.
    ///
    /// # Safety
    /// The obligations of [`Output`].
    #[inline(always)]
    unsafe fn linear<S: Simt, T: Summed, const W: usize>(
        &self,
        s: &S,
        beta: T,
        span: &Span,
        sums: [T; W],
    ) -> [T; W] {
        let alpha = self.alpha.get::<T>();
        let mut out = sums;
        each::<W>(|i| out[i] = alpha * sums[i]);
        if beta != T::ZERO {
            // SAFETY: the span lies in `C`, which is as [`Output`] demands, and no other thread touches it.
            let old = unsafe { T::read::<S, W>(s, self.c, span) };
            each::<W>(|i| out[i] = T::fma(s, beta, old[i], out[i]));
        }
        out
    }

    /// # Safety
    /// The obligations of [`Output`].
    #[inline(always)]
    unsafe fn bias_of<S: Simt, T: Real, const W: usize>(&self, s: &S, column: u32, span: &Span) -> [T; W] {
        let at = Span { at: u64::from(column), kind: 0, ..*span };
        // SAFETY: the caller's promise: columns below n, in the sums' type, and aligned where `C` is.
        unsafe { read_numbers(s, self.bias, &at) }
    }

    /// Whether `C ← α·sum` is all there is to do, for sums in f32, and rows of `C` are vectors of 16 bytes: what
    /// [`store_plain`](Self::store_plain) can do.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let element_bytes = if self.flags & TYPE_MASK == 0 { 4 } else { 2 };
        let aligned = (self.c.address() | (u64::from(self.ldc) * element_bytes)).is_multiple_of(16);
        let beta = self.beta.get::<f32>();
        aligned && beta == 0.0 && self.bias == GlobalPtr::NULL && self.flags & ACTIVATE_MASK == 0
    }

    /// `C[row, column..column + WIDTH] ← α·sums`, masked at `m`. `column` is a multiple of `WIDTH`, which is 4 or 8.
    ///
    /// # Safety
    /// As for [`store`](Self::store); moreover [`is_plain`](Self::is_plain), and `column + WIDTH ≤ n`.
    #[inline(always)]
    pub unsafe fn store_plain<S: Simt, const WIDTH: usize>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        sums: [f32; WIDTH],
    ) {
        const { assert!(matches!(WIDTH, 4 | 8), "one vector, or two") }
        if row >= self.m {
            return;
        }
        let at = u64::from(row) * u64::from(self.ldc) + u64::from(column);
        let alpha = self.alpha.get::<f32>();
        let x = |i: usize| alpha * sums[i % WIDTH];
        // SAFETY: the caller found the output plain and the columns inside of `C`, whose elements no other thread
        // touches.
        unsafe {
            if self.flags & TYPE_MASK == 0 {
                let c = self.c.cast::<f32>().at_wide(at);
                s.store_streaming(c.cast(), [x(0), x(1), x(2), x(3)]);
                if WIDTH == 8 {
                    s.store_streaming(c.at(4).cast(), [x(4), x(5), x(6), x(7)]);
                }
            } else {
                let pair = |i: usize| match self.flags & TYPE_MASK {
                    TYPE_F16 => s.f32x2_to_f16x2([x(i), x(i + 1)]),
                    _ => s.f32x2_to_bf16x2([x(i), x(i + 1)]),
                };
                let c = self.c.cast::<u16>().at_wide(at);
                match WIDTH {
                    4 => s.store_streaming(c.cast(), [pair(0), pair(2)]),
                    _ => s.store_streaming(c.cast(), [pair(0), pair(2), pair(4), pair(6)]),
                }
            }
        }
    }
}

/// Some neighbouring elements of `C`.
pub struct Span {
    /// Element of `C` at which it begins.
    at: u64,
    /// How many of them there are.
    present: u32,
    /// Whether all are there and may be moved at once.
    whole: bool,
    /// The element type, as flags have it.
    kind: u32,
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
    /// The obligations of [`Output`].
    unsafe fn read<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span) -> [Self; W];

    /// Writes the present ones.
    ///
    /// # Safety
    /// The obligations of [`Output`].
    unsafe fn write<S: Simt, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span, x: [Self; W]);

    /// `factors[0]·sums + factors[1]·C`, written to the present elements.
    ///
    /// # Safety
    /// The obligations of [`Output`].
    unsafe fn store_linear<S: Simt, const W: usize>(
        s: &S,
        c: GlobalPtr<u32>,
        span: &Span,
        factors: [Self; 2],
        sums: [Self; W],
    );

    /// [`Activate::Gelu`] of `x`; plans of f64 have none, and their sums stay as they are.
    fn gelu<S: Simt>(s: &S, x: Self) -> Self;
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

    /// `x / (1 + 2^(−2·log₂e·√(2/π)·(x + 0.044715·x³)))`.
    #[inline(always)]
    fn gelu<S: Simt>(s: &S, x: Self) -> Self {
        const FACTOR: f32 = -2.0 * core::f32::consts::LOG2_E * 0.797_884_6;
        let cube = x * x * x;
        x / (1.0 + s.exp2(FACTOR * s.fma(0.044_715, cube, x)))
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
    fn gelu<S: Simt>(_: &S, x: Self) -> Self {
        x
    }
}

/// # Safety
/// `c` holds numbers of type `T` there.
#[inline(always)]
unsafe fn read_numbers<S: Simt, T: Real, const W: usize>(s: &S, c: GlobalPtr<u32>, span: &Span) -> [T; W] {
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

#[cfg(test)]
mod tests;

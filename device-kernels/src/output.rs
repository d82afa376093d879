//! How a product's sums reach `C`: the one epilogue of all products with a dense result.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::real::{Factor, Real};
use crate::unroll::{each, each4};

mod elements;

use elements::read_numbers;
pub use elements::{Span, Summed};

/// What `act` is in `C ← act(α·sum + β·C + bias) [⊙ C]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activate {
    /// Nothing: the sum goes to `C` as it is.
    #[default]
    Identity,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, as `x / (1 + exp(−2·√(2/π)·(x + 0.044715·x³)))`. Sums in f32 only.
    Gelu,
    /// `x / (1 + exp(−x))`. Sums in f32 only.
    Silu,
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

    /// Writes a sum in f32 as an element of the type that [`code`](Self::code) says.
    ///
    /// # Safety
    /// `to` has an element `at`, and no other thread touches it.
    #[inline(always)]
    pub(crate) unsafe fn store_as<S: Simt>(s: &S, code: u32, to: GlobalPtr<u32>, at: u64, value: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            if code == Self::Sums.code() {
                s.store(to.cast().at_wide(at), value);
            } else {
                let bits = if code == Self::F16.code() { s.f32_to_f16(value) } else { s.f32_to_bf16(value) };
                s.store(to.cast().at_wide(at), bits);
            }
        }
    }

    /// Writes four successive sums in f32 as such elements: at once, where they lie at a multiple of their size.
    ///
    /// # Safety
    /// `to` has elements `at` to `at + 3`, and no other thread touches them.
    #[inline(always)]
    pub(crate) unsafe fn store_quad_as<S: Simt>(
        s: &S,
        code: u32,
        to: GlobalPtr<u32>,
        at: u64,
        quad: [f32; 4],
    ) {
        let bytes = if code == Self::Sums.code() { 16 } else { 8 };
        // SAFETY: the caller's promise.
        unsafe {
            if (to.address() + at * (bytes / 4)) & (bytes - 1) == 0 {
                Self::store_at_once_as(s, code, to, at, quad);
            } else {
                each4(|i| Self::store_as(s, code, to, at + i as u64, quad[i]));
            }
        }
    }

    /// The same by one store.
    ///
    /// # Safety
    /// As for [`store_quad_as`](Self::store_quad_as); they lie at a multiple of their size.
    #[inline(always)]
    pub(crate) unsafe fn store_at_once_as<S: Simt>(
        s: &S,
        code: u32,
        to: GlobalPtr<u32>,
        at: u64,
        quad: [f32; 4],
    ) {
        let [a, b, c, d] = quad;
        // SAFETY: the caller's promise.
        unsafe {
            if code == Self::Sums.code() {
                s.store(to.cast::<f32>().at_wide(at).cast(), quad);
            } else {
                let pairs = if code == Self::F16.code() {
                    [s.f32x2_to_f16x2([a, b]), s.f32x2_to_f16x2([c, d])]
                } else {
                    [s.f32x2_to_bf16x2([a, b]), s.f32x2_to_bf16x2([c, d])]
                };
                s.store(to.cast::<u16>().at_wide(at).cast(), pairs);
            }
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

/// The `C` side of one launch of `C[m × n] ← act(α·sum + β·C + bias)`, or of that times what `C` held,
/// `act(α·sum + β·C + bias) ⊙ C`, where `flags` have it gated.
///
/// # Obligations
/// - `c`: `m × n` row-major with `ldc ≥ n`, of the type that `flags` name; if they allow vectors, rows are aligned to
///   four elements, or to 16 bytes where that is less.
/// - `bias`: `n` numbers of the sums' type, 16-byte aligned if `flags` allow vectors, or null for none.
/// - `alpha` and `beta` were made of numbers of the sums' type.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Output {
    /// `C`, cast to words. Read only if `beta` is not 0 or `flags` have it gated.
    pub c: GlobalPtr<u32>,
    /// What is added to every row, cast to words, or null.
    pub bias: GlobalPtr<u32>,
    /// Factor of the sum.
    pub alpha: Factor,
    /// Factor of what `C` held; 0 means that nothing of it is added.
    pub beta: Factor,
    /// Rows of `C`: no row from here on is touched.
    pub m: u32,
    /// Columns of `C`: no column from here on is touched.
    pub n: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// Type of `C`, activation, gate and width of stores, as [`Output::flags`] packs them.
    pub flags: u32,
}

const TYPE_MASK: u32 = 3;
const TYPE_F16: u32 = 1;
const TYPE_BF16: u32 = 2;
const ACTIVATE_MASK: u32 = 3 << 2;
const ACTIVATE_RELU: u32 = 1 << 2;
/// GELU, or SiLU if [`SILU`] is set: of four values in one place the compiler makes a table of branches.
const ACTIVATE_SMOOTH: u32 = 2 << 2;
const VECTORS: u32 = 1 << 4;
const GATED: u32 = 1 << 5;
const SILU: u32 = 1 << 6;

impl Output {
    /// The word that tells of the element type, the activation, and whether neighbouring elements of `C` may be stored
    /// at once; with that of a [gate](Self::gate) for a result that is multiplied by what `C` held.
    #[must_use]
    pub const fn flags(element: OutputType, activate: Activate, vectors: bool) -> u32 {
        let activate = match activate {
            Activate::Identity => 0,
            Activate::Relu => ACTIVATE_RELU,
            Activate::Gelu => ACTIVATE_SMOOTH,
            Activate::Silu => ACTIVATE_SMOOTH | SILU,
        };
        element.code() | activate | if vectors { VECTORS } else { 0 }
    }

    /// What [flags](Self::flags) have of a gate, if there is one.
    #[must_use]
    pub const fn gate(gated: bool) -> u32 {
        if gated { GATED } else { 0 }
    }

    /// `C[row, column..column + W] ← act(α·sums + β·C + bias) [⊙ C]`, masked at `m` and `n`. `column` is a multiple of
    /// `W`, which is 1, 2 or 4.
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
                ACTIVATE_SMOOTH => each::<W>(|i| out[i] = T::gelu_or_silu(s, out[i], self.flags & SILU != 0)),
                _ => {}
            }
            if self.flags & GATED != 0 {
                // Read here, and again where β has read it: held from there, it would take registers for all of this.
                let old = T::read::<S, W>(s, self.c, &span);
                each::<W>(|i| out[i] = out[i] * old[i]);
            }
            T::write(s, self.c, &span, out);
        }
    }

    /// `C[row, column..column + W] ← α·sums + β·C`, masked as in [`store`](Self::store), for a `C` of any type: where
    /// there is neither bias nor activation nor gate.
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
        aligned && beta == 0.0 && self.bias == GlobalPtr::NULL && self.flags & (ACTIVATE_MASK | GATED) == 0
    }

    /// Whether that is all there is to do, and `C` is of this type.
    #[inline(always)]
    #[must_use]
    pub fn is_plain_as(&self, element: OutputType) -> bool {
        self.flags & TYPE_MASK == element.code() && self.is_plain()
    }

    /// `α·sums` as two successive elements of a type of 16 bits, the first in the low half.
    #[inline(always)]
    pub(crate) fn plain_pair<S: Simt>(&self, s: &S, element: OutputType, sums: [f32; 2]) -> u32 {
        let alpha = self.alpha.get::<f32>();
        let scaled = [alpha * sums[0], alpha * sums[1]];
        match element {
            OutputType::Bf16 => s.f32x2_to_bf16x2(scaled),
            _ => s.f32x2_to_f16x2(scaled),
        }
    }

    /// `C[row, column..column + 8] ← eight`, elements of 16 bits as they are, masked at `m`. `column` is a multiple of
    /// 8.
    ///
    /// # Safety
    /// As for [`store_plain`](Self::store_plain), with a `C` of a type of 16 bits.
    #[inline(always)]
    pub(crate) unsafe fn store_eight<S: Simt>(&self, s: &S, row: u32, column: u32, eight: [u32; 4]) {
        if row < self.m {
            let at = u64::from(row) * u64::from(self.ldc) + u64::from(column);
            // SAFETY: row < m; the caller found the columns inside of `C`, whose elements no other thread touches.
            unsafe { s.store_streaming(self.c.cast::<u16>().at_wide(at).cast(), eight) }
        }
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

#[cfg(test)]
mod tests;

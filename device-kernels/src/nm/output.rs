//! How a product's sums reach `C`.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, Word};

use crate::unroll::{each, each4};

/// What `act` is in `C ← act(α·sum + β·C + bias)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activate {
    /// Nothing.
    #[default]
    Identity,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, as `x / (1 + exp(−2·√(2/π)·(x + 0.044715·x³)))`.
    Gelu,
}

/// Element type of `C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputType {
    /// IEEE binary32.
    #[default]
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of an f32.
    Bf16,
}

/// The `C` side of one launch of `C[m × n] ← act(α·sum + β·C + bias)`.
///
/// # Obligations
/// - `c`: `m × n` row-major with `ldc ≥ n`, of the type that `flags` name; if they allow vectors, aligned to four
///   elements, and `ldc` a multiple of 4.
/// - `bias`: `n` f32, 16-byte aligned, or null for none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Output {
    /// `C`, cast to words. Read only if `beta` is not 0.
    pub c: GlobalPtr<u32>,
    /// What is added to every row, or null.
    pub bias: GlobalPtr<f32>,
    /// Rows of `C`.
    pub m: u32,
    /// Columns of `C`.
    pub n: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// Factor of the sum.
    pub alpha: f32,
    /// Factor of what `C` held; 0 means that it is not read.
    pub beta: f32,
    /// [`Output::flags`].
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
        let element = match element {
            OutputType::F32 => 0,
            OutputType::F16 => TYPE_F16,
            OutputType::Bf16 => TYPE_BF16,
        };
        let activate = match activate {
            Activate::Identity => 0,
            Activate::Relu => ACTIVATE_RELU,
            Activate::Gelu => ACTIVATE_GELU,
        };
        element | activate | if vectors { VECTORS } else { 0 }
    }

    /// `C[row, column..column + WIDTH] ← act(α·sums + β·C + bias)`, masked at `m` and `n`. `column` is a multiple of
    /// `WIDTH`, which is 2 or 4.
    ///
    /// Long: call it in one place, in a loop that is not unrolled.
    ///
    /// # Safety
    /// The obligations of [`Output`]; no other thread touches these elements.
    #[inline(always)]
    pub unsafe fn store<S: Simt, const WIDTH: usize>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        sums: [f32; WIDTH],
    ) {
        const { assert!(matches!(WIDTH, 2 | 4), "half a vector, or one") }
        if row >= self.m || column >= self.n {
            return;
        }
        let element = self.flags & TYPE_MASK;
        let at = u64::from(row) * u64::from(self.ldc) + u64::from(column);
        let present = self.n - column;
        let whole = self.flags & VECTORS != 0 && present >= WIDTH as u32;
        // SAFETY: row < m; of the columns, only those below n are touched; vectors only where they are promised.
        unsafe {
            if whole {
                let bias = self.bias_of::<S, WIDTH>(s, column);
                if element == 0 {
                    let c = self.c.cast::<f32>().at_wide(at);
                    self.store_whole::<S, f32, WIDTH>(s, c, bias, sums);
                } else if element == TYPE_F16 {
                    let c = self.c.cast::<Half>().at_wide(at);
                    self.store_whole::<S, Half, WIDTH>(s, c, bias, sums);
                } else {
                    let c = self.c.cast::<Brain>().at_wide(at);
                    self.store_whole::<S, Brain, WIDTH>(s, c, bias, sums);
                }
            } else {
                each::<WIDTH>(|i| {
                    if (i as u32) < present {
                        let bias = match self.bias == GlobalPtr::NULL {
                            true => 0.0,
                            false => s.load_readonly(self.bias.at(column + i as u32)),
                        };
                        let at = at + i as u64;
                        if element == 0 {
                            self.store_one::<S, f32>(s, self.c.cast().at_wide(at), bias, sums[i]);
                        } else if element == TYPE_F16 {
                            self.store_one::<S, Half>(s, self.c.cast().at_wide(at), bias, sums[i]);
                        } else {
                            self.store_one::<S, Brain>(s, self.c.cast().at_wide(at), bias, sums[i]);
                        }
                    }
                });
            }
        }
    }

    /// Whether `C ← α·sum` is all there is to do, and rows of `C` are vectors of 16 bytes: what
    /// [`store_plain`](Self::store_plain) can do.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let element_bytes = if self.flags & TYPE_MASK == 0 { 4 } else { 2 };
        let aligned = (self.c.address() | (u64::from(self.ldc) * element_bytes)).is_multiple_of(16);
        aligned && self.beta == 0.0 && self.bias == GlobalPtr::NULL && self.flags & ACTIVATE_MASK == 0
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
        let x = |i: usize| self.alpha * sums[i % WIDTH];
        // SAFETY: the caller's promise.
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
                let c = self.c.cast::<Half>().at_wide(at);
                match WIDTH {
                    4 => s.store_streaming(c.cast(), [pair(0), pair(2)]),
                    _ => s.store_streaming(c.cast(), [pair(0), pair(2), pair(4), pair(6)]),
                }
            }
        }
    }

    /// # Safety
    /// `column + WIDTH ≤ n`.
    #[inline(always)]
    unsafe fn bias_of<S: Simt, const WIDTH: usize>(&self, s: &S, column: u32) -> [f32; WIDTH] {
        let mut bias = [0.0; WIDTH];
        if self.bias != GlobalPtr::NULL {
            let from = self.bias.at(column);
            // SAFETY: the caller's promise; the bias is 16-byte aligned, and the column a multiple of WIDTH.
            unsafe {
                if WIDTH == 2 {
                    let [x, y] = s.load_readonly(from.cast::<[f32; 2]>());
                    (bias[0], bias[1]) = (x, y);
                } else {
                    let four = s.load_readonly(from.cast::<[f32; 4]>());
                    each4(|i| bias[i] = four[i]);
                }
            }
        }
        bias
    }

    /// # Safety
    /// `c` has `WIDTH` elements, aligned to them.
    #[inline(always)]
    unsafe fn store_whole<S: Simt, E: Stored, const WIDTH: usize>(
        &self,
        s: &S,
        c: GlobalPtr<E>,
        bias: [f32; WIDTH],
        sums: [f32; WIDTH],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if WIDTH == 2 {
                let to = c.cast::<E::Two>();
                let old = if self.beta == 0.0 { [0.0; 2] } else { E::widen_two(s, s.load(to)) };
                let first = self.finish(s, sums[0], old[0], bias[0]);
                let second = self.finish(s, sums[1], old[1], bias[1]);
                s.store_streaming(to, E::narrow_two(s, [first, second]));
            } else {
                let to = c.cast::<E::Four>();
                let old = if self.beta == 0.0 { [0.0; 4] } else { E::widen_four(s, s.load(to)) };
                let mut four = [0.0; 4];
                each4(|i| four[i] = self.finish(s, sums[i], old[i], bias[i]));
                s.store_streaming(to, E::narrow_four(s, four));
            }
        }
    }

    /// # Safety
    /// `c` is an element of `C`.
    #[inline(always)]
    unsafe fn store_one<S: Simt, E: Stored>(&self, s: &S, c: GlobalPtr<E>, bias: f32, sum: f32) {
        let to = c.cast::<E::One>();
        // SAFETY: the caller's promise.
        unsafe {
            let old = if self.beta == 0.0 { 0.0 } else { E::widen(s, s.load(to)) };
            s.store(to, E::narrow(s, self.finish(s, sum, old, bias)));
        }
    }

    /// `act(α·sum + β·old + bias)`; `old` counts only if `beta` is not 0.
    #[inline(always)]
    fn finish<S: Simt>(&self, s: &S, sum: f32, old: f32, bias: f32) -> f32 {
        let mut x = self.alpha * sum;
        if self.beta != 0.0 {
            x = s.fma(self.beta, old, x);
        }
        if self.bias != GlobalPtr::NULL {
            x += bias;
        }
        match self.flags & ACTIVATE_MASK {
            ACTIVATE_RELU => {
                // -0 becomes 0, as on the CPU.
                if x <= 0.0 { 0.0 } else { x }
            }
            ACTIVATE_GELU => gelu(s, x),
            _ => x,
        }
    }
}

/// `x / (1 + 2^(−2·log₂e·√(2/π)·(x + 0.044715·x³)))`.
#[inline(always)]
fn gelu<S: Simt>(s: &S, x: f32) -> f32 {
    const FACTOR: f32 = -2.0 * core::f32::consts::LOG2_E * 0.797_884_6;
    let cube = x * x * x;
    x / (1.0 + s.exp2(FACTOR * s.fma(0.044_715, cube, x)))
}

/// How elements of `C` are held, one, two and four of them.
trait Stored: 'static {
    type One: Word;
    type Two: Word;
    type Four: Word;
    fn widen<S: Simt>(s: &S, one: Self::One) -> f32;
    fn narrow<S: Simt>(s: &S, x: f32) -> Self::One;
    fn widen_two<S: Simt>(s: &S, two: Self::Two) -> [f32; 2];
    fn narrow_two<S: Simt>(s: &S, x: [f32; 2]) -> Self::Two;
    fn widen_four<S: Simt>(s: &S, four: Self::Four) -> [f32; 4];
    fn narrow_four<S: Simt>(s: &S, x: [f32; 4]) -> Self::Four;
}

impl Stored for f32 {
    type One = f32;
    type Two = [f32; 2];
    type Four = [f32; 4];
    #[inline(always)]
    fn widen<S: Simt>(_: &S, one: f32) -> f32 {
        one
    }
    #[inline(always)]
    fn narrow<S: Simt>(_: &S, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn widen_two<S: Simt>(_: &S, two: [f32; 2]) -> [f32; 2] {
        two
    }
    #[inline(always)]
    fn narrow_two<S: Simt>(_: &S, x: [f32; 2]) -> [f32; 2] {
        x
    }
    #[inline(always)]
    fn widen_four<S: Simt>(_: &S, four: [f32; 4]) -> [f32; 4] {
        four
    }
    #[inline(always)]
    fn narrow_four<S: Simt>(_: &S, x: [f32; 4]) -> [f32; 4] {
        x
    }
}

/// An IEEE binary16 in memory; only its size counts.
struct Half(#[expect(dead_code, reason = "moved as a word")] u16);
/// A bfloat16 in memory, likewise.
struct Brain(#[expect(dead_code, reason = "moved as a word")] u16);

macro_rules! stored_16bit {
    ($element:ty, $widen_two:expr, $narrow:ident, $narrow_two:ident) => {
        impl Stored for $element {
            type One = u16;
            type Two = u32;
            type Four = [u32; 2];
            #[inline(always)]
            fn widen<S: Simt>(s: &S, one: u16) -> f32 {
                Self::widen_two(s, u32::from(one))[0]
            }
            #[inline(always)]
            fn narrow<S: Simt>(s: &S, x: f32) -> u16 {
                s.$narrow(x)
            }
            #[inline(always)]
            fn widen_two<S: Simt>(s: &S, two: u32) -> [f32; 2] {
                $widen_two(s, two)
            }
            #[inline(always)]
            fn narrow_two<S: Simt>(s: &S, [low, high]: [f32; 2]) -> u32 {
                s.$narrow_two([low, high])
            }
            #[inline(always)]
            fn widen_four<S: Simt>(s: &S, [low, high]: [u32; 2]) -> [f32; 4] {
                let ([a, b], [c, d]) = (Self::widen_two(s, low), Self::widen_two(s, high));
                [a, b, c, d]
            }
            #[inline(always)]
            fn narrow_four<S: Simt>(s: &S, [a, b, c, d]: [f32; 4]) -> [u32; 2] {
                [Self::narrow_two(s, [a, b]), Self::narrow_two(s, [c, d])]
            }
        }
    };
}

stored_16bit!(Half, |s: &S, two| s.f16x2_to_f32(two), f32_to_f16, f32x2_to_f16x2);
stored_16bit!(
    Brain,
    |_: &S, two: u32| [f32::from_bits(two << 16), f32::from_bits(two & 0xffff_0000)],
    f32_to_bf16,
    f32x2_to_bf16x2
);

#[cfg(test)]
mod tests;

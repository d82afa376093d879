//! The dense side of every product: where `B` lies, and how a result reaches `C`.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::unroll::each4;

/// The dense operands of one launch of `C = α·A·B + β·C`, columns `0..n` of both.
///
/// # Obligations
/// - `n ≤ 2²⁰`: wider products are launched in blocks of columns.
/// - `b`: `k × n` row-major with `ldb ≥ n`; for kernels that read vectors, 16-byte aligned with
///   `ldb` a multiple of the elements in 16 bytes, and every row readable up to `n` rounded up to 16 bytes.
/// - `c`: `m × n` row-major with `ldc ≥ n`, f32 if `c_is_half` is 0, else f16. If `c_vectors` is not
///   0, `c` is 16-byte aligned and `ldc` a multiple of 4 (f16: `c` 8-byte aligned suffices).
/// - `partial`: rows of `ld_partial ≥ n` f32, `ld_partial` a multiple of 4, 16-byte aligned; as many
///   rows as the launch's slots name. With `accumulate` several partial sums may have one slot, and all
///   slots are zero before the launch; without, each has its own.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Dense {
    /// `B`, cast to words.
    pub b: GlobalPtr<u32>,
    /// `C`, cast to words. Read only if `beta` is not 0.
    pub c: GlobalPtr<u32>,
    /// Workspace for partial sums; may be null when nothing is split.
    pub partial: GlobalPtr<f32>,
    /// Columns of `B` and `C`.
    pub n: u32,
    /// Leading dimension of `B`, in elements.
    pub ldb: u32,
    /// Leading dimension of `C`, in elements.
    pub ldc: u32,
    /// Leading dimension of the workspace, in elements.
    pub ld_partial: u32,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what `C` held; 0 means that it is not read.
    pub beta: f32,
    /// 0: `C` is f32; 1: `C` is f16.
    pub c_is_half: u32,
    /// Whether four neighbouring elements of `C` may be stored at once.
    pub c_vectors: u32,
    /// Whether partial sums are added to the workspace, in whatever order they come, instead of stored.
    pub accumulate: u32,
    /// Zero.
    pub reserved: u32,
}

impl Dense {
    /// The operands with another factor of what `C` held: 1 to add to what an earlier launch has written.
    #[inline(always)]
    #[must_use]
    pub const fn with_beta(&self, beta: f32) -> Self {
        Self { beta, ..*self }
    }

    /// `C[row, column..column+4] ← α·sum + β·C`, masked at `n`. `column` is a multiple of 4.
    ///
    /// # Safety
    /// The obligations of [`Dense`]; `row < m`; no other thread touches these elements.
    #[inline(always)]
    pub unsafe fn finish_quad<S: Simt>(&self, s: &S, row: u32, column: u32, sum: [f32; 4]) {
        if column >= self.n {
            return;
        }
        let at = u64::from(row) * u64::from(self.ldc) + u64::from(column);
        let whole = self.c_vectors != 0 && column + 4 <= self.n;
        let mut out = sum.map(|x| self.alpha * x);
        // SAFETY: row < m, column < n ≤ ldc; the vector forms only where all four are below n and
        // the alignment is promised.
        unsafe {
            if self.c_is_half == 0 {
                let c = self.c.cast::<f32>().at_wide(at);
                if whole {
                    if self.beta != 0.0 {
                        let old = s.load(c.cast::<[f32; 4]>());
                        each4(|i| out[i] = s.fma(self.beta, old[i], out[i]));
                    }
                    s.store_streaming(c.cast::<[f32; 4]>(), out);
                } else {
                    each4(|i| {
                        if column + (i as u32) < self.n {
                            let to = c.at(i as u32);
                            if self.beta != 0.0 {
                                out[i] = s.fma(self.beta, s.load(to), out[i]);
                            }
                            s.store(to, out[i]);
                        }
                    });
                }
            } else {
                let c = self.c.cast::<u16>().at_wide(at);
                if whole {
                    if self.beta != 0.0 {
                        let [x, y] = s.load(c.cast::<[u32; 2]>());
                        let ([a, b], [d, e]) = (s.f16x2_to_f32(x), s.f16x2_to_f32(y));
                        let old = [a, b, d, e];
                        each4(|i| out[i] = s.fma(self.beta, old[i], out[i]));
                    }
                    let pack = |low: f32, high: f32| {
                        u32::from(s.f32_to_f16(low)) | u32::from(s.f32_to_f16(high)) << 16
                    };
                    s.store_streaming(c.cast::<[u32; 2]>(), [pack(out[0], out[1]), pack(out[2], out[3])]);
                } else {
                    each4(|i| {
                        if column + (i as u32) < self.n {
                            let to = c.at(i as u32);
                            if self.beta != 0.0 {
                                out[i] = s.fma(self.beta, s.f16_to_f32(s.load(to)), out[i]);
                            }
                            s.store(to, s.f32_to_f16(out[i]));
                        }
                    });
                }
            }
        }
    }

    /// `C[row, column] ← α·sum + β·C` for one element.
    ///
    /// # Safety
    /// As for [`finish_quad`](Self::finish_quad).
    #[inline(always)]
    pub unsafe fn finish_one<S: Simt>(&self, s: &S, row: u32, column: u32, sum: f32) {
        if column >= self.n {
            return;
        }
        let at = u64::from(row) * u64::from(self.ldc) + u64::from(column);
        let mut out = self.alpha * sum;
        // SAFETY: row < m, column < n ≤ ldc.
        unsafe {
            if self.c_is_half == 0 {
                let c = self.c.cast::<f32>().at_wide(at);
                if self.beta != 0.0 {
                    out = s.fma(self.beta, s.load(c), out);
                }
                s.store(c, out);
            } else {
                let c = self.c.cast::<u16>().at_wide(at);
                if self.beta != 0.0 {
                    out = s.fma(self.beta, s.f16_to_f32(s.load(c)), out);
                }
                s.store(c, s.f32_to_f16(out));
            }
        }
    }

    /// Row `slot` of the workspace, columns `column..column+4` ← `sum`, or `+= sum` with `accumulate`; whole, since the
    /// workspace is padded.
    ///
    /// # Safety
    /// The obligations of [`Dense`]; without `accumulate`, `slot` is this thread group's own; with it, others may
    /// add to it, nothing else.
    #[inline(always)]
    pub unsafe fn keep_quad<S: Simt>(&self, s: &S, slot: u32, column: u32, sum: [f32; 4]) {
        if column < self.n {
            let at = u64::from(slot) * u64::from(self.ld_partial) + u64::from(column);
            // SAFETY: column < n ≤ ld_partial, both multiples of 4 after rounding n up.
            unsafe {
                let to = self.partial.at_wide(at);
                if self.accumulate == 0 {
                    s.store(to.cast::<[f32; 4]>(), sum);
                } else {
                    each4(|i| s.reduce_add_f32(to.at(i as u32), sum[i]));
                }
            }
        }
    }

    /// Row `slot` of the workspace, one element.
    ///
    /// # Safety
    /// As for [`keep_quad`](Self::keep_quad).
    #[inline(always)]
    pub unsafe fn keep_one<S: Simt>(&self, s: &S, slot: u32, column: u32, sum: f32) {
        if column < self.n {
            let at = u64::from(slot) * u64::from(self.ld_partial) + u64::from(column);
            // SAFETY: column < n ≤ ld_partial.
            unsafe {
                let to = self.partial.at_wide(at);
                if self.accumulate == 0 { s.store(to, sum) } else { s.reduce_add_f32(to, sum) }
            }
        }
    }
}

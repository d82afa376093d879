//! Functions and conversions of numbers in registers.

use core::arch::asm;

#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    let out: f32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("ex2.approx.ftz.f32 {0}, {1};", out(reg32) out, in(reg32) x, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn log2(x: f32) -> f32 {
    let out: f32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("lg2.approx.ftz.f32 {0}, {1};", out(reg32) out, in(reg32) x, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn maximum(a: f32, b: f32) -> f32 {
    let out: f32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("max.NaN.f32 {0}, {1}, {2};", out(reg32) out, in(reg32) a, in(reg32) b, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn fma_where(bits: u32, a: f32, b: [f32; 4], mut c: [f32; 4]) -> [f32; 4] {
    let [c0, c1, c2, c3] = &mut c;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {5}, 0; @p fma.rn.f32 {0}, {4}, {6}, {0}; \
             @p fma.rn.f32 {1}, {4}, {7}, {1}; @p fma.rn.f32 {2}, {4}, {8}, {2}; @p fma.rn.f32 {3}, {4}, {9}, {3}; }}",
            inout(reg32) *c0,
            inout(reg32) *c1,
            inout(reg32) *c2,
            inout(reg32) *c3,
            in(reg32) a,
            in(reg32) bits,
            in(reg32) b[0],
            in(reg32) b[1],
            in(reg32) b[2],
            in(reg32) b[3],
            options(pure, nomem, nostack)
        );
    }
    c
}

#[inline(always)]
pub(super) fn sqrt(x: f32) -> f32 {
    let out: f32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("sqrt.rn.f32 {0}, {1};", out(reg32) out, in(reg32) x, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let out: f32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("cvt.f32.f16 {0}, {1};", out(reg32) out, in(reg16) bits, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f16x2_to_f32(bits: u32) -> [f32; 2] {
    let (low, high): (f32, f32);
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!(
            "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; cvt.f32.f16 {0}, l; cvt.f32.f16 {1}, h; }}",
            out(reg32) low, out(reg32) high, in(reg32) bits, options(pure, nomem, nostack)
        );
    }
    [low, high]
}

#[inline(always)]
pub(super) fn f32_to_f16(value: f32) -> u16 {
    let out: u16;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("cvt.rn.f16.f32 {0}, {1};", out(reg16) out, in(reg32) value, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    let out: u16;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("cvt.rn.bf16.f32 {0}, {1};", out(reg16) out, in(reg32) value, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f32x2_to_f16x2([low, high]: [f32; 2]) -> u32 {
    let out: u32;
    // SAFETY: arithmetic on registers; no memory, no other lane. The first operand becomes the high half.
    unsafe {
        asm!("cvt.rn.f16x2.f32 {0}, {1}, {2};", out(reg32) out, in(reg32) high, in(reg32) low, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f32x2_to_bf16x2([low, high]: [f32; 2]) -> u32 {
    let out: u32;
    // SAFETY: arithmetic on registers; no memory, no other lane. The first operand becomes the high half.
    unsafe {
        asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};", out(reg32) out, in(reg32) high, in(reg32) low, options(pure, nomem, nostack));
    }
    out
}

#[inline(always)]
pub(super) fn f32_to_tf32(value: f32) -> u32 {
    let out: u32;
    // SAFETY: arithmetic on registers; no memory, no other lane.
    unsafe {
        asm!("cvt.rna.tf32.f32 {0}, {1};", out(reg32) out, in(reg32) value, options(pure, nomem, nostack));
    }
    out
}

//! Products of a warp that are written as assembly: expressions of the four sums, for an `unsafe` block in which all
//! lanes are outside of divergent branches.

/// The product `mma.m16n8k16` of f16.
macro_rules! k16_f16 {
    ($a:expr, $b:expr, $acc:expr) => {{
        let (a, b, [mut c0, mut c1, mut c2, mut c3]) = ($a, $b, $acc);
        core::arch::asm!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
            inout(reg32) c0, inout(reg32) c1, inout(reg32) c2, inout(reg32) c3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
            options(pure, nomem, nostack)
        );
        [c0, c1, c2, c3]
    }};
}

/// The product `mma.m16n8k8` of f16.
macro_rules! k8_f16 {
    ($a:expr, $b:expr, $acc:expr) => {{
        let (a, [mut c0, mut c1, mut c2, mut c3]) = ($a, $acc);
        core::arch::asm!(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}}}, {{{6}}}, {{{0}, {1}, {2}, {3}}};",
            inout(reg32) c0, inout(reg32) c1, inout(reg32) c2, inout(reg32) c3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) $b,
            options(pure, nomem, nostack)
        );
        [c0, c1, c2, c3]
    }};
}

/// The product `mma.sp.m16n8k32` of a type.
macro_rules! sparse {
    ($type:literal, $a:expr, $b:expr, $acc:expr, $metadata:expr, $selector:expr) => {{
        let (a, b, [mut c0, mut c1, mut c2, mut c3]) = ($a, $b, $acc);
        core::arch::asm!(
            concat!(
                "mma.sp.sync.aligned.m16n8k32.row.col.f32.", $type, ".", $type, ".f32 ",
                "{{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}, {10}, {11}}}, {{{0}, {1}, {2}, {3}}}, ",
                "{12}, {13};",
            ),
            inout(reg32) c0, inout(reg32) c1, inout(reg32) c2, inout(reg32) c3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
            in(reg32) b[0], in(reg32) b[1], in(reg32) b[2], in(reg32) b[3],
            in(reg32) $metadata, const $selector,
            options(pure, nomem, nostack)
        );
        [c0, c1, c2, c3]
    }};
}

pub(super) use {k8_f16, k16_f16, sparse};

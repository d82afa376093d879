//! LLVM's NVPTX intrinsics that Rust can call, under readable names.

/// Four accumulator registers as LLVM returns them.
#[repr(C)]
pub(super) struct Accumulator(f32, f32, f32, f32);

impl From<Accumulator> for [f32; 4] {
    #[inline(always)]
    fn from(acc: Accumulator) -> Self {
        [acc.0, acc.1, acc.2, acc.3]
    }
}

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    pub(super) fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    pub(super) fn shfl_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub(super) fn shfl_bfly(mask: u32, value: u32, lane_mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    pub(super) fn shfl_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    pub(super) fn shfl_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.cp.async.commit.group"]
    pub(super) fn cp_async_commit_group();
    #[link_name = "llvm.nvvm.cp.async.wait.group"]
    pub(super) fn cp_async_wait_group(pending: u32);
    #[link_name = "llvm.fma.f32"]
    pub(super) fn fma(a: f32, b: f32, c: f32) -> f32;
    #[link_name = "llvm.fma.f64"]
    pub(super) fn fma_f64(a: f64, b: f64, c: f64) -> f64;
    #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
    fn mma_m16n8k16_bf16(
        a0: u32,
        a1: u32,
        a2: u32,
        a3: u32,
        b0: u32,
        b1: u32,
        c0: f32,
        c1: f32,
        c2: f32,
        c3: f32,
    ) -> Accumulator;
    #[link_name = "llvm.nvvm.mma.m16n8k8.row.col.bf16"]
    fn mma_m16n8k8_bf16(a0: u32, a1: u32, b0: u32, c0: f32, c1: f32, c2: f32, c3: f32) -> Accumulator;
    #[link_name = "llvm.nvvm.mma.m16n8k8.row.col.tf32"]
    fn mma_m16n8k8_tf32(
        a0: u32,
        a1: u32,
        a2: u32,
        a3: u32,
        b0: u32,
        b1: u32,
        c0: f32,
        c1: f32,
        c2: f32,
        c3: f32,
    ) -> Accumulator;
}

/// # Safety
/// Collective: full warp.
#[inline(always)]
pub(super) unsafe fn mma_k16_bf16(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    // SAFETY: the caller's lanes are all here; operands are registers.
    unsafe { mma_m16n8k16_bf16(a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]).into() }
}

/// # Safety
/// Collective: full warp.
#[inline(always)]
pub(super) unsafe fn mma_k8_bf16(a: [u32; 2], b: u32, c: [f32; 4]) -> [f32; 4] {
    // SAFETY: the caller's lanes are all here; operands are registers.
    unsafe { mma_m16n8k8_bf16(a[0], a[1], b, c[0], c[1], c[2], c[3]).into() }
}

/// # Safety
/// Collective: full warp.
#[inline(always)]
pub(super) unsafe fn mma_k8_tf32(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    // SAFETY: the caller's lanes are all here; operands are registers.
    unsafe { mma_m16n8k8_tf32(a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]).into() }
}

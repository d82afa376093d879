//! The GPU: every method of [`Simt`] as one or a few PTX instructions.
//!
//! Collectives are LLVM intrinsics wherever one can be called from Rust, because LLVM knows an
//! intrinsic as *convergent* and does not move it across a branch. The Rust compiler's own jump threading knows
//! nothing of that and would copy one into both arms of a condition that is tested twice: `build-ptx` turns it off.
//! An `asm!` block carries no such mark. Some collectives have no callable intrinsic (`ldmatrix`, whose address is a
//! shared-space pointer; the f16 `mma`, whose operands are `<2 x half>`; `vote`, whose predicate is an `i1`), and those
//! with a sparse operand are alike in both types; kernels call them outside divergent branches, and the golden test of
//! the PTX counts them.

mod entry;
mod intrinsics;
mod memory;
mod mma;
mod numbers;
mod warpgroup;

use core::arch::{asm, nvptx};

use crate::machine::Simt;
use crate::pointer::{GlobalPtr, Word};
use crate::warpgroup::{HalfElement, SharedOperand, TensorMap, WARPGROUP, WarpgroupSums, valid_registers};

/// The GPU thread that runs this code.
#[derive(Clone, Copy)]
pub struct Ptx {
    /// Address of the entry's params, which begin with a tensor map if the entry uses one.
    params: u64,
}

impl Ptx {
    /// The thread, in an entry whose params are at this address ([`address_of_params`](crate::address_of_params)); 0
    /// for entries that use no tensor map.
    #[inline(always)]
    #[must_use]
    pub const fn new(params: u64) -> Self {
        Self { params }
    }
}

const FULL_WARP: u32 = u32::MAX;

// SAFETY: each method is the instruction that the trait names.
unsafe impl Simt for Ptx {
    #[inline(always)]
    fn thread_idx(&self) -> u32 {
        // SAFETY: reads a special register that every thread has.
        unsafe { nvptx::_thread_idx_x() as u32 }
    }
    #[inline(always)]
    fn block_idx(&self) -> u32 {
        // SAFETY: reads a special register that every thread has.
        unsafe { nvptx::_block_idx_x() as u32 }
    }
    #[inline(always)]
    fn block_idx_y(&self) -> u32 {
        // SAFETY: reads a special register that every thread has.
        unsafe { nvptx::_block_idx_y() as u32 }
    }
    #[inline(always)]
    fn block_dim(&self) -> u32 {
        // SAFETY: reads a special register that every thread has.
        unsafe { nvptx::_block_dim_x() as u32 }
    }
    #[inline(always)]
    fn grid_dim(&self) -> u32 {
        // SAFETY: reads a special register that every thread has.
        unsafe { nvptx::_grid_dim_x() as u32 }
    }

    #[inline(always)]
    unsafe fn load<T: Word>(&self, from: GlobalPtr<T>) -> T {
        // SAFETY: the kernel that calls has `from` in bounds, aligned and not being written, as `Simt` asks.
        unsafe { memory::load(from.address()) }
    }
    #[inline(always)]
    unsafe fn load_readonly<T: Word>(&self, from: GlobalPtr<T>) -> T {
        // SAFETY: the kernel that calls has `from` in bounds and aligned; nothing writes it in this launch.
        unsafe { memory::load_readonly(from.address()) }
    }
    #[inline(always)]
    unsafe fn load_readonly_once<T: Word>(&self, from: GlobalPtr<T>) -> T {
        // SAFETY: the kernel that calls has `from` in bounds and aligned; nothing writes it in this launch.
        unsafe { memory::load_readonly_once(from.address()) }
    }
    #[inline(always)]
    unsafe fn store<T: Word>(&self, to: GlobalPtr<T>, value: T) {
        // SAFETY: the kernel that calls has `to` in bounds, aligned, and of this thread alone until a barrier.
        unsafe { memory::store(to.address(), value) }
    }
    #[inline(always)]
    unsafe fn store_streaming<T: Word>(&self, to: GlobalPtr<T>, value: T) {
        // SAFETY: the kernel that calls has `to` in bounds, aligned, and of this thread alone until a barrier.
        unsafe { memory::store_streaming(to.address(), value) }
    }
    #[inline(always)]
    unsafe fn reduce_add_f32(&self, to: GlobalPtr<f32>, value: f32) {
        // SAFETY: the kernel that calls has `to` in bounds and aligned; others only add to the word.
        unsafe {
            asm!("red.relaxed.gpu.global.add.f32 [{0}], {1};", in(reg64) to.address(), in(reg32) value, options(nostack));
        }
    }
    #[inline(always)]
    unsafe fn reduce_add_f64(&self, to: GlobalPtr<f64>, value: f64) {
        // SAFETY: the kernel that calls has `to` in bounds and aligned; others only add to the word.
        unsafe {
            asm!("red.relaxed.gpu.global.add.f64 [{0}], {1};", in(reg64) to.address(), in(reg64) value, options(nostack));
        }
    }
    #[inline(always)]
    unsafe fn atomic_add_u32(&self, to: GlobalPtr<u32>, value: u32) -> u32 {
        let old: u32;
        // SAFETY: the kernel that calls has `to` in bounds and aligned; others only add to the word.
        unsafe {
            asm!("atom.relaxed.gpu.global.add.u32 {0}, [{1}], {2};", out(reg32) old, in(reg64) to.address(), in(reg32) value, options(nostack));
        }
        old
    }
    #[inline(always)]
    unsafe fn reduce_max_u64(&self, to: GlobalPtr<u64>, value: u64) {
        // SAFETY: the kernel that calls has `to` in bounds and aligned; others only raise the word.
        unsafe {
            asm!("red.relaxed.gpu.global.max.u64 [{0}], {1};", in(reg64) to.address(), in(reg64) value, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn load_shared<T: Word>(&self, from: u32) -> T {
        // SAFETY: the kernel that calls has `from` inside the launch's shared bytes, aligned, and written before.
        unsafe { memory::load_shared(memory::shared(from)) }
    }
    #[inline(always)]
    unsafe fn store_shared<T: Word>(&self, to: u32, value: T) {
        // SAFETY: the kernel that calls has `to` inside the launch's shared bytes, aligned, and no other thread at it.
        unsafe { memory::store_shared(memory::shared(to), value) }
    }
    #[inline(always)]
    unsafe fn copy_async_16(&self, to_shared: u32, from: GlobalPtr<u32>, present: bool) {
        // SAFETY: the kernel that calls has 16 aligned bytes at either end; `from` is read only if `present`.
        unsafe {
            asm!(
                "{{ .reg .pred p; setp.eq.u32 p, {2}, 0; cp.async.cg.shared.global [{0}], [{1}], 16, p; }}",
                in(reg32) memory::shared(to_shared), in(reg64) from.address(), in(reg32) u32::from(present),
                options(nostack)
            );
        }
    }
    #[inline(always)]
    unsafe fn copy_async_commit(&self) {
        // SAFETY: has no operands: it closes the group of this thread's copies.
        unsafe { intrinsics::cp_async_commit_group() }
    }
    #[inline(always)]
    unsafe fn copy_async_wait<const PENDING: u32>(&self) {
        // SAFETY: the group count is an immediate in each arm.
        unsafe {
            match PENDING {
                0 => intrinsics::cp_async_wait_group(0),
                1 => intrinsics::cp_async_wait_group(1),
                2 => intrinsics::cp_async_wait_group(2),
                3 => intrinsics::cp_async_wait_group(3),
                4 => intrinsics::cp_async_wait_group(4),
                5 => intrinsics::cp_async_wait_group(5),
                _ => const { assert!(PENDING < 6, "at most five groups stay under way") },
            }
        }
    }

    #[inline(always)]
    unsafe fn copy_bulk_begin(&self, counter: u32, threads: u32) {
        // SAFETY: `counter` is 8 shared bytes that the kernel keeps for it. The fence shows it to the copy engine.
        unsafe {
            asm!(
                "mbarrier.init.shared::cta.b64 [{0}], {1};",
                in(reg32) memory::shared(counter), in(reg32) threads, options(nostack)
            );
            self.copy_bulk_fence();
        }
    }
    #[inline(always)]
    unsafe fn copy_bulk(&self, to_shared: u32, from: GlobalPtr<u32>, bytes: u32, counter: u32) {
        // SAFETY: the kernel that calls has `bytes` bytes at either end, multiples of 16, and begun `counter`.
        unsafe {
            asm!(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
                in(reg32) memory::shared(to_shared), in(reg64) from.address(), in(reg32) bytes,
                in(reg32) memory::shared(counter), options(nostack)
            );
        }
    }
    #[inline(always)]
    unsafe fn copy_bulk_commit(&self, counter: u32, bytes: u32) {
        // SAFETY: the kernel that calls has begun `counter` for as many threads as commit.
        unsafe {
            asm!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};",
                in(reg32) memory::shared(counter), in(reg32) bytes, options(nostack)
            );
        }
    }
    #[inline(always)]
    unsafe fn copy_bulk_wait(&self, counter: u32, round: u32) {
        let (counter, parity) = (memory::shared(counter), round & 1);
        let mut arrived = 0u32;
        while arrived == 0 {
            // SAFETY: the kernel that calls has begun `counter` and committed the round. The instruction waits itself.
            unsafe {
                asm!(
                    "{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                    out(reg32) arrived, in(reg32) counter, in(reg32) parity, options(nostack)
                );
            }
        }
    }
    #[inline(always)]
    unsafe fn copy_bulk_fence(&self) {
        // SAFETY: has no operands: it orders this thread's stores before bulk copies, and touches no memory.
        unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
    }

    #[inline(always)]
    unsafe fn copy_bulk_box(&self, to_shared: u32, _: &TensorMap, [column, row]: [u32; 2], counter: u32) {
        // The engine wants the map where the launch has put it. By the reference it could be a copy in local memory.
        // SAFETY: the kernel that calls has a box's bytes at `to_shared`, begun `counter`, and a map in its params.
        unsafe {
            asm!(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}}}], [{4}];",
                in(reg32) memory::shared(to_shared), in(reg64) self.params, in(reg32) column, in(reg32) row,
                in(reg32) memory::shared(counter), options(nostack)
            );
        }
    }

    #[inline(always)]
    unsafe fn sync_roles<const THREADS: u32>(&self) {
        // SAFETY: all threads of the block come to it, warps as a whole, by the caller's promise.
        unsafe { asm!("barrier.sync 1, {};", const THREADS, options(nostack)) }
    }
    #[inline(always)]
    unsafe fn sync_warpgroup(&self) {
        let number = self.thread_idx() / WARPGROUP + 2;
        // SAFETY: all threads of the warpgroup come to it, by the caller's promise; 0 and 1 are barriers of the block.
        unsafe { asm!("barrier.sync {0}, 128;", in(reg32) number, options(nostack)) }
    }
    #[inline(always)]
    unsafe fn warpgroup_fence(&self) {
        // SAFETY: all lanes are at this call, outside of divergent branches; it has no operands.
        unsafe { asm!("wgmma.fence.sync.aligned;", options(nostack)) }
    }
    #[inline(always)]
    unsafe fn warpgroup_take_registers<const N: u32>(&self) {
        const { assert!(valid_registers(N), "a multiple of 8, 24 to 256") }
        // SAFETY: all lanes are at this call, outside of divergent branches, by the caller's promise.
        unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const N, options(nostack)) }
    }
    #[inline(always)]
    unsafe fn warpgroup_give_registers<const N: u32>(&self) {
        const { assert!(valid_registers(N), "a multiple of 8, 24 to 256") }
        // SAFETY: as above.
        unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const N, options(nostack)) }
    }
    #[inline(always)]
    unsafe fn warpgroup_mma_sparse<
        E: HalfElement,
        const SELECTOR: u32,
        const TRANSPOSED: u32,
        const R: usize,
    >(
        &self,
        sums: &mut WarpgroupSums<R>,
        a: SharedOperand,
        b: SharedOperand,
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { warpgroup::mma_sparse::<E, SELECTOR, TRANSPOSED, R>(sums, [a, b], metadata) }
    }
    #[inline(always)]
    unsafe fn warpgroup_mma<E: HalfElement, const TRANSPOSED: u32, const R: usize>(
        &self,
        sums: &mut WarpgroupSums<R>,
        a: SharedOperand,
        b: SharedOperand,
    ) {
        // SAFETY: the caller's promise.
        unsafe { warpgroup::mma::<E, TRANSPOSED, R>(sums, [a, b]) }
    }
    #[inline(always)]
    unsafe fn warpgroup_commit(&self) {
        // SAFETY: all lanes are at this call, outside of divergent branches; it has no operands.
        unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
    }
    #[inline(always)]
    unsafe fn warpgroup_wait<const PENDING: u32, const H: usize>(&self, read: &mut [u32; H]) {
        // SAFETY: all lanes are at this call, outside of divergent branches; the count is an immediate.
        unsafe { asm!("wgmma.wait_group.sync.aligned {0};", const PENDING, options(nostack)) }
        let mut i = 0;
        while i < H {
            warpgroup::keep(&mut read[i]);
            i += 1;
        }
    }
    #[inline(always)]
    unsafe fn warpgroup_finish<const R: usize>(&self, sums: WarpgroupSums<R>) -> [f32; R] {
        // SAFETY: the caller's promise.
        unsafe { warpgroup::finished(sums) }
    }

    #[inline(always)]
    unsafe fn sync_block(&self) {
        // SAFETY: every thread of the block is at this call: kernels call collectives outside of divergent branches.
        unsafe { nvptx::_syncthreads() }
    }
    #[inline(always)]
    unsafe fn sync_warp(&self) {
        // SAFETY: all lanes are at this call: kernels call collectives outside of divergent branches.
        unsafe { intrinsics::bar_warp_sync(FULL_WARP) }
    }
    #[inline(always)]
    unsafe fn shuffle(&self, value: u32, source_lane: u32) -> u32 {
        // SAFETY: all lanes are at this call: kernels call collectives outside of divergent branches.
        unsafe { intrinsics::shfl_idx(FULL_WARP, value, source_lane, 0x1f) }
    }
    #[inline(always)]
    unsafe fn shuffle_xor(&self, value: u32, lane_mask: u32) -> u32 {
        // SAFETY: all lanes are at this call: kernels call collectives outside of divergent branches.
        unsafe { intrinsics::shfl_bfly(FULL_WARP, value, lane_mask, 0x1f) }
    }
    #[inline(always)]
    unsafe fn shuffle_up(&self, value: u32, delta: u32) -> u32 {
        // SAFETY: all lanes are at this call, outside of divergent branches; the clamp of `up` is 0.
        unsafe { intrinsics::shfl_up(FULL_WARP, value, delta, 0) }
    }
    #[inline(always)]
    unsafe fn shuffle_down(&self, value: u32, delta: u32) -> u32 {
        // SAFETY: all lanes are at this call: kernels call collectives outside of divergent branches.
        unsafe { intrinsics::shfl_down(FULL_WARP, value, delta, 0x1f) }
    }
    #[inline(always)]
    unsafe fn ballot(&self, predicate: bool) -> u32 {
        let votes: u32;
        // SAFETY: all lanes are at this call: kernels call collectives outside of divergent branches.
        unsafe {
            asm!(
                "{{ .reg .pred p; setp.ne.u32 p, {1}, 0; vote.sync.ballot.b32 {0}, p, 0xffffffff; }}",
                out(reg32) votes, in(reg32) u32::from(predicate), options(nostack)
            );
        }
        votes
    }
    #[inline(always)]
    unsafe fn load_matrix_x4(&self, row_address: u32) -> [u32; 4] {
        // SAFETY: all lanes are here with 16 aligned bytes each, inside the launch's shared bytes and written.
        unsafe { memory::load_matrix_x4(memory::shared(row_address)) }
    }
    #[inline(always)]
    unsafe fn load_matrix_x4_trans(&self, row_address: u32) -> [u32; 4] {
        // SAFETY: as above.
        unsafe { memory::load_matrix_x4_trans(memory::shared(row_address)) }
    }
    #[inline(always)]
    unsafe fn store_matrix_x4_trans(&self, row_address: u32, matrices: [u32; 4]) {
        // SAFETY: all lanes are here with 16 aligned bytes each, inside the launch's shared bytes.
        unsafe { memory::store_matrix_x4_trans(memory::shared(row_address), matrices) }
    }
    #[inline(always)]
    unsafe fn mma_m16n8k16_f16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe { mma::k16_f16!(a, b, acc) }
    }
    #[inline(always)]
    unsafe fn mma_sparse_m16n8k32<E: HalfElement, const SELECTOR: u32>(
        &self,
        a: [u32; 4],
        b: [u32; 4],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe {
            match E::BF16 {
                true => mma::sparse!("bf16", a, b, acc, metadata, SELECTOR),
                false => mma::sparse!("f16", a, b, acc, metadata, SELECTOR),
            }
        }
    }
    #[inline(always)]
    unsafe fn mma_m16n8k8_f16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe { mma::k8_f16!(a, b, acc) }
    }
    #[inline(always)]
    unsafe fn mma_m16n8k16_bf16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe { intrinsics::mma_k16_bf16(a, b, acc) }
    }
    #[inline(always)]
    unsafe fn mma_m16n8k8_bf16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe { intrinsics::mma_k8_bf16(a, b, acc) }
    }
    #[inline(always)]
    unsafe fn mma_m16n8k8_tf32(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        // SAFETY: all lanes are at this call, outside of divergent branches; operands are registers.
        unsafe { intrinsics::mma_k8_tf32(a, b, acc) }
    }

    #[inline(always)]
    fn permute_bytes(&self, low: u32, high: u32, selector: u32) -> u32 {
        let out: u32;
        // SAFETY: arithmetic on registers; no memory, no other lane.
        unsafe {
            asm!("prmt.b32 {0}, {1}, {2}, {3};", out(reg32) out, in(reg32) low, in(reg32) high, in(reg32) selector, options(pure, nomem, nostack));
        }
        out
    }
    #[inline(always)]
    fn in_register(&self, x: u64) -> u64 {
        let out: u64;
        // SAFETY: a move between registers; no memory, no other lane.
        unsafe {
            asm!("mov.b64 {0}, {1};", out(reg64) out, in(reg64) x, options(pure, nomem, nostack));
        }
        out
    }
    #[inline(always)]
    fn fma(&self, a: f32, b: f32, c: f32) -> f32 {
        // SAFETY: arithmetic on registers; no memory, no other lane.
        unsafe { intrinsics::fma(a, b, c) }
    }
    #[inline(always)]
    fn fma_where(&self, bits: u32, a: f32, b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        numbers::fma_where(bits, a, b, c)
    }
    #[inline(always)]
    fn fma_f64(&self, a: f64, b: f64, c: f64) -> f64 {
        // SAFETY: arithmetic on registers; no memory, no other lane.
        unsafe { intrinsics::fma_f64(a, b, c) }
    }
    #[inline(always)]
    fn maximum(&self, a: f32, b: f32) -> f32 {
        numbers::maximum(a, b)
    }
    #[inline(always)]
    fn exp2(&self, x: f32) -> f32 {
        numbers::exp2(x)
    }
    #[inline(always)]
    fn log2(&self, x: f32) -> f32 {
        numbers::log2(x)
    }
    #[inline(always)]
    fn sqrt(&self, x: f32) -> f32 {
        numbers::sqrt(x)
    }
    #[inline(always)]
    fn f16_to_f32(&self, bits: u16) -> f32 {
        numbers::f16_to_f32(bits)
    }
    #[inline(always)]
    fn f16x2_to_f32(&self, bits: u32) -> [f32; 2] {
        numbers::f16x2_to_f32(bits)
    }
    #[inline(always)]
    fn f32_to_f16(&self, value: f32) -> u16 {
        numbers::f32_to_f16(value)
    }
    #[inline(always)]
    fn f32_to_bf16(&self, value: f32) -> u16 {
        numbers::f32_to_bf16(value)
    }
    #[inline(always)]
    fn f32x2_to_f16x2(&self, pair: [f32; 2]) -> u32 {
        numbers::f32x2_to_f16x2(pair)
    }
    #[inline(always)]
    fn f32x2_to_bf16x2(&self, pair: [f32; 2]) -> u32 {
        numbers::f32x2_to_bf16x2(pair)
    }
    #[inline(always)]
    fn f32_to_tf32(&self, value: f32) -> u32 {
        numbers::f32_to_tf32(value)
    }
}

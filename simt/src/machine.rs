//! The trait [`Simt`]: the operations that one GPU thread may perform.

use crate::pointer::{GlobalPtr, Word};
use crate::warpgroup::{HalfElement, SharedOperand, TensorMap, WarpgroupSums};

/// Lanes of a warp, on every GPU.
pub const WARP: u32 = 32;

/// The operations that one GPU thread may perform.
///
/// Methods fall into four groups: where the thread is; memory; collectives, which a whole group of
/// threads executes together; arithmetic that has no plain Rust spelling.
///
/// # Safety
/// An implementation must perform exactly the operation that the method's documentation names:
/// kernels rely on it for memory safety (a load returns what was stored) and for convergence.
///
/// For callers, unless a method says more:
/// - a *memory* method's address must be inside one live allocation for its whole width, aligned to
///   the width, and not written by another thread since the last barrier that orders the two;
/// - a *collective* must be reached by every thread of the group that its documentation names, from
///   the same call site, with none of them exited.
pub unsafe trait Simt {
    // ---- Where the thread is -------------------------------------------------------------------

    /// `%tid.x`: the thread's number in its block. Blocks are one-dimensional.
    fn thread_idx(&self) -> u32;
    /// `%ctaid.x`, the fast axis of the grid.
    fn block_idx(&self) -> u32;
    /// `%ctaid.y`, the slow axis of the grid.
    fn block_idx_y(&self) -> u32;
    /// `%ntid.x`: threads per block.
    fn block_dim(&self) -> u32;
    /// Blocks of the grid along x: `%nctaid.x`.
    fn grid_dim(&self) -> u32;

    /// The thread's lane in its warp, `0..32`.
    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread_idx() % WARP
    }

    /// The warp's number in its block.
    #[inline(always)]
    fn warp(&self) -> u32 {
        self.thread_idx() / WARP
    }

    // ---- Global memory -------------------------------------------------------------------------

    /// Loads a word that may have been written in this launch.
    ///
    /// # Safety
    /// As for every memory method, see [`Simt`].
    unsafe fn load<T: Word>(&self, from: GlobalPtr<T>) -> T;

    /// Loads a word that nothing writes during this launch, through the read-only path.
    ///
    /// # Safety
    /// As for every memory method; moreover no thread of the grid may write the word.
    unsafe fn load_readonly<T: Word>(&self, from: GlobalPtr<T>) -> T;

    /// [`load_readonly`](Simt::load_readonly) for words that this SM reads once: it leaves no line
    /// in L1, so that lines worth keeping stay.
    ///
    /// # Safety
    /// As for [`load_readonly`](Simt::load_readonly).
    unsafe fn load_readonly_once<T: Word>(&self, from: GlobalPtr<T>) -> T;

    /// Stores a word.
    ///
    /// # Safety
    /// As for every memory method, see [`Simt`].
    unsafe fn store<T: Word>(&self, to: GlobalPtr<T>, value: T);

    /// Stores a word that nobody reads soon: it is the first that L2 evicts.
    ///
    /// # Safety
    /// As for every memory method, see [`Simt`].
    unsafe fn store_streaming<T: Word>(&self, to: GlobalPtr<T>, value: T);

    /// Adds to a float in memory, atomically, without reading it back (`red.add.f32`). The order
    /// among threads is not determined, so neither is the last bit of the sum. PTX flushes subnormal
    /// inputs and sums to zero; the emulator keeps them.
    ///
    /// # Safety
    /// As for every memory method, except that other threads may add to the same word.
    unsafe fn reduce_add_f32(&self, to: GlobalPtr<f32>, value: f32);

    /// [`reduce_add_f32`](Simt::reduce_add_f32) for an f64 (`red.add.f64`), which flushes nothing.
    ///
    /// # Safety
    /// As for [`reduce_add_f32`](Simt::reduce_add_f32).
    unsafe fn reduce_add_f64(&self, to: GlobalPtr<f64>, value: f64);

    /// Adds to an integer in memory, atomically, and returns what it was.
    ///
    /// # Safety
    /// As for [`reduce_add_f32`](Simt::reduce_add_f32).
    unsafe fn atomic_add_u32(&self, to: GlobalPtr<u32>, value: u32) -> u32;

    /// Raises an integer in memory to at least `value`, atomically.
    ///
    /// # Safety
    /// As for [`reduce_add_f32`](Simt::reduce_add_f32).
    unsafe fn reduce_max_u64(&self, to: GlobalPtr<u64>, value: u64);

    // ---- Shared memory: byte offsets into the block's dynamic allocation ------------------------

    /// Loads a word of shared memory.
    ///
    /// # Safety
    /// As for every memory method; the word must have been written in this block.
    unsafe fn load_shared<T: Word>(&self, from: u32) -> T;

    /// Stores a word to shared memory.
    ///
    /// # Safety
    /// As for every memory method, see [`Simt`].
    unsafe fn store_shared<T: Word>(&self, to: u32, value: T);

    /// Starts copying 16 bytes from global to shared memory (`cp.async.cg`, past L1); unless
    /// `present`, 16 zero bytes, and `from` is not read at all.
    ///
    /// The bytes may be read only after [`copy_async_wait`](Simt::copy_async_wait) covers the group
    /// that [`copy_async_commit`](Simt::copy_async_commit) closed over this copy, by the same
    /// thread; by another thread only after a barrier that follows that wait.
    ///
    /// # Safety
    /// As for every memory method; both addresses are multiples of 16 (`from` only if `present`);
    /// nothing writes the source during this launch.
    unsafe fn copy_async_16(&self, to_shared: u32, from: GlobalPtr<u32>, present: bool);

    /// Closes the group of this thread's copies since the last commit (possibly none).
    ///
    /// # Safety
    /// None beyond the trait's; unsafe because it is part of the `copy_async` protocol.
    unsafe fn copy_async_commit(&self);

    /// Waits until at most the `PENDING` youngest groups of this thread are still under way.
    ///
    /// # Safety
    /// None beyond the trait's; unsafe because it is part of the `copy_async` protocol.
    unsafe fn copy_async_wait<const PENDING: u32>(&self);

    // ---- Bulk copies to shared memory, from `sm_90` on -------------------------------------------
    //
    // They come in rounds, which a counter of arrivals in shared memory tells apart: in each, as many threads as the
    // counter was made for start copies, commit them and wait for them.

    /// Makes 8 bytes of shared memory a counter of arrivals for rounds of `threads` threads (`mbarrier.init`). One
    /// thread does; others know of it after a barrier. The bytes stay the counter's.
    ///
    /// # Safety
    /// As for every memory method; `counter` is a multiple of 8, `threads` at least 1 and at most those of the block.
    unsafe fn copy_bulk_begin(&self, counter: u32, threads: u32);

    /// Starts copying `bytes` bytes from global to shared memory (`cp.async.bulk`), in the round that this thread
    /// commits next.
    ///
    /// The bytes may be read only after [`copy_bulk_wait`](Simt::copy_bulk_wait) for that round by the same thread; by
    /// another thread only after a barrier that follows that wait. What was *stored* where they go must have been
    /// [fenced](Simt::copy_bulk_fence) off.
    ///
    /// # Safety
    /// As for every memory method; both addresses and `bytes`, which is not 0, are multiples of 16; nothing writes the
    /// source during this launch.
    unsafe fn copy_bulk(&self, to_shared: u32, from: GlobalPtr<u32>, bytes: u32, counter: u32);

    /// Closes this thread's part in a round (`mbarrier.arrive.expect_tx`), in which it started copies of `bytes` bytes
    /// in all, possibly none; less than 2²⁰ by all threads of the round.
    ///
    /// # Safety
    /// Part of the protocol; another round is begun only after all threads of this one have waited, and a barrier.
    unsafe fn copy_bulk_commit(&self, counter: u32, bytes: u32);

    /// Waits until all copies of round `round`, counted from 0, have arrived (`mbarrier.try_wait.parity`).
    ///
    /// # Safety
    /// Part of the protocol; the round is the last that was committed.
    unsafe fn copy_bulk_wait(&self, counter: u32, round: u32);

    /// Orders this thread's stores to shared memory, [copies](Simt::copy_async_16) that it has waited for among them,
    /// before bulk copies to the same bytes and products of a warpgroup that read them, which any thread starts after
    /// the next barrier (`fence.proxy.async`). Loads need no fence, only the barrier.
    ///
    /// Before products of a warpgroup its threads may call it instead, all of them and after that barrier.
    ///
    /// # Safety
    /// None beyond the trait's; unsafe because it is part of the protocol.
    unsafe fn copy_bulk_fence(&self);

    /// [`copy_bulk`](Simt::copy_bulk) of a box of the matrix that `map` tells of (`cp.async.bulk.tensor`): 64 columns
    /// from `column` and the map's number of rows from `row` on. A row of the box becomes 128 bytes,
    /// [mixed](crate::Swizzle::Bytes128); what lies outside of the matrix arrives as zeros, and counts as bytes.
    ///
    /// # Safety
    /// As for [`copy_bulk`](Simt::copy_bulk); `map` is the first field of the entry's params and tells of live memory;
    /// `to_shared` is a multiple of 1024, `column` and `row` are below 2³¹.
    unsafe fn copy_bulk_box(&self, to_shared: u32, map: &TensorMap, at: [u32; 2], counter: u32);

    // ---- Matrix products of a warpgroup, on compute capability 9.0 alone ---------------------------
    //
    // They go on while the thread does: [fence](Simt::warpgroup_fence), products, [commit](Simt::warpgroup_commit),
    // [wait](Simt::warpgroup_wait). The group of each is the warpgroup, four warps.

    /// Lets each thread of the warpgroup have `N` registers, which are no fewer than before (`setmaxnreg.inc`): waits
    /// until others of the block have [given up](Simt::warpgroup_give_registers) as many. A block begins with as many
    /// for each thread as fit, and a part of it that multiplies needs more of them than one that copies. The emulator
    /// does not count registers, and does nothing.
    ///
    /// # Safety
    /// Every thread of the warpgroup calls it, outside of divergent branches. `N` is a multiple of 8, 24 to 256, and no
    /// less than the kernel was compiled for; the others give up enough.
    unsafe fn warpgroup_take_registers<const N: u32>(&self);

    /// Leaves each thread of the warpgroup `N` registers, which are no more than before (`setmaxnreg.dec`).
    ///
    /// # Safety
    /// As for [`warpgroup_take_registers`](Simt::warpgroup_take_registers), but for what is said of others; the code
    /// that follows needs no more.
    unsafe fn warpgroup_give_registers<const N: u32>(&self);

    /// Orders what this thread has written to registers before the products that follow (`wgmma.fence`): before the
    /// first product of [sums](WarpgroupSums).
    ///
    /// # Safety
    /// Part of the protocol; every thread of the warpgroup calls it.
    unsafe fn warpgroup_fence(&self);

    /// Starts `sums ← sums + a·b` on 64 rows, elements of `E` in, f32 sums (`wgmma.mma_async.sp`, `m64nNk32`). Of each
    /// group of four successive inner elements of a row, `a` has the two that are kept, 16 elements for 32;
    /// [`metadata`](crate::fragment::warpgroup_metadata) says which, in the registers of the threads that `SELECTOR`, 0
    /// or 1, names. `b` has 32 inner elements in each of its `2·R` columns; it lies
    /// [transposed](crate::OperandLayout) if `TRANSPOSED` is 1 and not 0.
    ///
    /// Until a wait that covers the product's group, nothing writes its operands, nor the register that `metadata` is
    /// in: two of them are used in turn, and handed to that [wait](Simt::warpgroup_wait).
    ///
    /// # Safety
    /// Collective of the warpgroup, with the same operands but for `metadata`. Operands have been written, and either
    /// arrived by [bulk copies](Simt::copy_bulk) or were [fenced off](Simt::copy_bulk_fence), by who stored them before
    /// the barrier, or by all threads of the warpgroup behind it. Of each four bits of metadata the lower two are below
    /// the upper two.
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
    );

    /// The same with a whole `a` (`wgmma.mma_async`, `m64nNk16`): 16 inner elements in each of its rows, and in each of
    /// the columns of `b`.
    ///
    /// # Safety
    /// As for [`warpgroup_mma_sparse`](Simt::warpgroup_mma_sparse), without metadata.
    unsafe fn warpgroup_mma<E: HalfElement, const TRANSPOSED: u32, const R: usize>(
        &self,
        sums: &mut WarpgroupSums<R>,
        a: SharedOperand,
        b: SharedOperand,
    );

    /// Closes the group of the products since the last commit (`wgmma.commit_group`).
    ///
    /// # Safety
    /// Part of the protocol; every thread of the warpgroup calls it.
    unsafe fn warpgroup_commit(&self);

    /// Waits until at most the `PENDING` youngest groups of products are still under way (`wgmma.wait_group`). `read`
    /// are the registers of metadata that the groups which have ended read: until here they stay as they are.
    ///
    /// Operands of these products may be written again after a barrier.
    ///
    /// # Safety
    /// Part of the protocol; every thread of the warpgroup calls it.
    unsafe fn warpgroup_wait<const PENDING: u32, const H: usize>(&self, read: &mut [u32; H]);

    /// Waits until all products have ended, and gives out their sums.
    ///
    /// # Safety
    /// Part of the protocol; every thread of the warpgroup calls it, after a commit.
    unsafe fn warpgroup_finish<const R: usize>(&self, sums: WarpgroupSums<R>) -> [f32; R];

    // ---- Collectives ---------------------------------------------------------------------------

    /// Waits for every thread of the block and orders their memory accesses. Group: block.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn sync_block(&self);

    /// A [barrier of the block](Simt::sync_block) for warps that do different things, and come to it from different
    /// places of the kernel (`barrier.sync 1` with a number of threads, where `sync_block` is barrier 0).
    ///
    /// # Safety
    /// All `THREADS` threads of the block call it equally often, each warp as a whole; no `sync_block` is under way.
    unsafe fn sync_roles<const THREADS: u32>(&self);

    /// Waits for every lane of the warp and orders their memory accesses. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn sync_warp(&self);

    /// Waits for every thread of the warpgroup and orders their memory accesses (`barrier.sync` of a number of its own,
    /// from 2 on). Group: warpgroup.
    ///
    /// # Safety
    /// Collective, see [`Simt`]; blocks have whole warpgroups.
    unsafe fn sync_warpgroup(&self);

    /// The `value` of lane `source_lane % 32`. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn shuffle(&self, value: u32, source_lane: u32) -> u32;

    /// The `value` of lane `lane ^ lane_mask`, for `lane_mask < 32`. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn shuffle_xor(&self, value: u32, lane_mask: u32) -> u32;

    /// The `value` of lane `lane - delta`, for `delta < 32`; a lane with none below it keeps its own. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn shuffle_up(&self, value: u32, delta: u32) -> u32;

    /// The `value` of lane `lane + delta`, for `delta < 32`; a lane with none above it keeps its own. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn shuffle_down(&self, value: u32, delta: u32) -> u32;

    /// Bit `l` is lane `l`'s `predicate`. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn ballot(&self, predicate: bool) -> u32;

    /// Loads four 8 × 8 matrices of 16-bit elements from shared memory: matrix `i`'s row `r` is the
    /// 16 bytes at lane `8i + r`'s `row_address`. Element order: [`fragment::ldmatrix`]. Group: full
    /// warp.
    ///
    /// [`fragment::ldmatrix`]: crate::fragment::ldmatrix
    ///
    /// # Safety
    /// Collective and memory method, see [`Simt`]; 16 bytes per lane.
    unsafe fn load_matrix_x4(&self, row_address: u32) -> [u32; 4];

    /// [`load_matrix_x4`](Simt::load_matrix_x4) with each matrix transposed on the way. Element
    /// order: [`fragment::ldmatrix_trans`](crate::fragment::ldmatrix_trans). Group: full warp.
    ///
    /// # Safety
    /// As for [`load_matrix_x4`](Simt::load_matrix_x4).
    unsafe fn load_matrix_x4_trans(&self, row_address: u32) -> [u32; 4];

    /// Stores four 8 × 8 matrices of 16-bit elements to shared memory, each transposed on the way: what
    /// [`load_matrix_x4_trans`](Simt::load_matrix_x4_trans) would load from there again (`stmatrix`, from `sm_90` on).
    /// Group: full warp.
    ///
    /// # Safety
    /// As for [`load_matrix_x4`](Simt::load_matrix_x4).
    unsafe fn store_matrix_x4_trans(&self, row_address: u32, matrices: [u32; 4]);

    /// `acc + a·b`: (16 × 8) += (16 × 16)·(16 × 8), f16 in, f32 out. Group: full warp.
    /// Element order: [`fragment`](crate::fragment).
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn mma_m16n8k16_f16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4];

    /// `acc + a·b`: (16 × 8) += (16 × 16)·(16 × 8), bf16 in, f32 out. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn mma_m16n8k16_bf16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4];

    /// `acc + a·b`: (16 × 8) += (16 × 32)·(32 × 8), elements of `E` in, f32 out, where two of each four successive
    /// elements of a row of A are there: [`metadata`](crate::fragment::sparse_metadata) says which, in the registers of
    /// the lanes that `SELECTOR`, 0 or 1, names. Group: full warp. Element order: [`fragment`](crate::fragment).
    ///
    /// # Safety
    /// Collective, see [`Simt`]. Of each four bits of metadata the lower two are below the upper two.
    unsafe fn mma_sparse_m16n8k32<E: HalfElement, const SELECTOR: u32>(
        &self,
        a: [u32; 4],
        b: [u32; 4],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4];

    /// `acc + a·b`: (16 × 8) += (16 × 8)·(8 × 8), f16 in, f32 out. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn mma_m16n8k8_f16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4];

    /// `acc + a·b`: (16 × 8) += (16 × 8)·(8 × 8), bf16 in, f32 out. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn mma_m16n8k8_bf16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4];

    /// `acc + a·b`: (16 × 8) += (16 × 8)·(8 × 8), tf32 in (the low 13 bits of each word are
    /// ignored), f32 out. Group: full warp.
    ///
    /// # Safety
    /// Collective, see [`Simt`].
    unsafe fn mma_m16n8k8_tf32(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4];

    // ---- Arithmetic ----------------------------------------------------------------------------

    /// Picks four bytes out of eight (`prmt.b32`): nibble `i` of `selector`, in `0..8`, is the
    /// number of the byte that becomes byte `i` of the result; bytes 0 to 3 are `low`'s, 4 to 7
    /// `high`'s. Bit 3 of a nibble (sign replication) must be clear.
    fn permute_bytes(&self, low: u32, high: u32, selector: u32) -> u32;

    /// The same number, in a register from here on: a compiler that sees how it was made may make it anew, params read
    /// again, wherever it is used.
    #[inline(always)]
    fn in_register(&self, x: u64) -> u64 {
        x
    }

    /// `a·b + c`, rounded once.
    fn fma(&self, a: f32, b: f32, c: f32) -> f32;

    /// [`fma`](Self::fma) of `a` with each of `b` and `c` if a bit of `bits` is set, else `c`: without a branch, so
    /// that the sums of a loop stay in one register each, and with bits, since a test of some is one instruction and
    /// one of a condition that was made of them three.
    #[inline(always)]
    fn fma_where(&self, bits: u32, a: f32, b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        if bits == 0 {
            return c;
        }
        [self.fma(a, b[0], c[0]), self.fma(a, b[1], c[1]), self.fma(a, b[2], c[2]), self.fma(a, b[3], c[3])]
    }

    /// `a·b + c` in f64, rounded once.
    fn fma_f64(&self, a: f64, b: f64, c: f64) -> f64;

    /// The larger of two numbers, NaN if one of them is (`max.NaN.f32`); of zeros the positive one.
    fn maximum(&self, a: f32, b: f32) -> f32;

    /// 2 to the power `x` (`ex2.approx.ftz.f32`), off by at most 2⁻²² of itself, 2 ulp. Exactly 1 for zero and for
    /// subnormal `x`; zero instead of a subnormal result, so for every `x < −126`, minus infinity included; infinity
    /// from 128 on; NaN for NaN.
    fn exp2(&self, x: f32) -> f32;

    /// Binary logarithm of `x` (`lg2.approx.ftz.f32`), off by at most 2⁻²² for `x` between ½ and 2, else by 2⁻²² of
    /// itself. Minus infinity for zero and for subnormal `x`, infinity for infinity, NaN below zero and for NaN.
    fn log2(&self, x: f32) -> f32;

    /// The square root of `x`, rounded once; NaN below zero.
    fn sqrt(&self, x: f32) -> f32;

    /// The f32 equal to an f16's bits.
    fn f16_to_f32(&self, bits: u16) -> f32;

    /// The two f32 equal to the f16 in the low and the high half of `bits`.
    fn f16x2_to_f32(&self, bits: u32) -> [f32; 2];

    /// The bits of the f16 nearest to `value`, ties to even.
    fn f32_to_f16(&self, value: f32) -> u16;

    /// The bits of the bf16 nearest to `value`, ties to even.
    fn f32_to_bf16(&self, value: f32) -> u16;

    /// [`f32_to_f16`](Simt::f32_to_f16) of two values, the first in the low half.
    #[inline(always)]
    fn f32x2_to_f16x2(&self, [low, high]: [f32; 2]) -> u32 {
        u32::from(self.f32_to_f16(low)) | u32::from(self.f32_to_f16(high)) << 16
    }

    /// [`f32_to_bf16`](Simt::f32_to_bf16) of two values, the first in the low half.
    #[inline(always)]
    fn f32x2_to_bf16x2(&self, [low, high]: [f32; 2]) -> u32 {
        u32::from(self.f32_to_bf16(low)) | u32::from(self.f32_to_bf16(high)) << 16
    }

    /// `value` rounded to tf32 (10 explicit mantissa bits), ties away from zero, as f32 bits.
    fn f32_to_tf32(&self, value: f32) -> u32;

    /// Set bits of a word (`popc`).
    #[inline(always)]
    fn population(&self, bits: u64) -> u32 {
        bits.count_ones()
    }
}

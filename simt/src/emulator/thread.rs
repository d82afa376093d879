//! One emulated GPU thread: the implementation of [`Simt`].

mod collectives;
mod copies;
mod exit;
mod warpgroup;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;

use corosensei::Yielder;

use self::copies::Copy;
use self::warpgroup::Started;
use crate::emulator::access::Access;
use crate::emulator::block::Block;
use crate::emulator::bulk::Pieces;
use crate::emulator::mma;
use crate::emulator::spot::Operation;
use crate::emulator::violation::{Checked, Violation};
use crate::emulator::warpgroup::Kept;
use crate::warpgroup::{HalfElement, SharedOperand, TensorMap, WarpgroupSums, valid_registers};
use crate::{GlobalPtr, Simt, WARP, Word};

/// What a thread unwinds with after it has left a violation in its block.
pub(super) struct Abandon;

/// One emulated GPU thread. Kernels get it from [`Memory::launch`](super::Memory::launch) and use it
/// through [`Simt`].
pub struct Thread<'a> {
    block: &'a Block<'a>,
    yielder: &'a Yielder<(), ()>,
    index: u16,
    calls: Cell<u64>,
    copies: RefCell<VecDeque<Copy>>,
    /// The group that the next copy joins.
    group: Cell<u64>,
    bulk: RefCell<Pieces>,
    products: RefCell<Started>,
}

impl std::fmt::Debug for Thread<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y] = self.block.position();
        write!(f, "thread {} of block ({x}, {y})", self.index)
    }
}

impl<'a> Thread<'a> {
    pub(super) fn new(block: &'a Block<'a>, yielder: &'a Yielder<(), ()>, index: u16) -> Self {
        let (calls, copies, group) = (Cell::new(0), RefCell::default(), Cell::new(0));
        Self {
            block,
            yielder,
            index,
            calls,
            copies,
            group,
            bulk: RefCell::default(),
            products: RefCell::default(),
        }
    }

    /// Counts a call and describes it as an access.
    #[track_caller]
    fn step(&self, operation: Operation) -> Access {
        let access = self.block.access(self.index, operation, Location::caller());
        let calls = self.calls.get();
        let limit = self.block.step_limit();
        if calls >= limit {
            let by = self.block.spot(&access);
            self.fail(Box::new(Violation::StepLimit { by, limit }));
        }
        self.calls.set(calls + 1);
        access
    }

    /// Leaves the violation in the block and the kernel without returning.
    #[cold]
    fn fail(&self, violation: Box<Violation>) -> ! {
        self.block.report(violation);
        std::panic::resume_unwind(Box::new(Abandon))
    }

    fn accept<T>(&self, checked: Checked<T>) -> T {
        checked.unwrap_or_else(|violation| self.fail(violation))
    }

    #[cold]
    fn refuse(&self, who: &Access, reason: String) -> ! {
        self.fail(Box::new(Violation::InvalidOperand { by: self.block.spot(who), reason }))
    }

    fn expect<T>(&self, who: &Access, result: Result<T, String>) -> T {
        result.unwrap_or_else(|reason| self.refuse(who, reason))
    }

    #[track_caller]
    fn load_readonly_as<T: Word>(&self, operation: Operation, from: GlobalPtr<T>) -> T {
        let who = self.step(operation);
        let (view, recent) = self.block.global();
        word(self.accept(view.load_readonly(&who, recent, from.address(), (T::BYTES, T::BYTES))))
    }

    #[track_caller]
    fn store_as<T: Word>(&self, operation: Operation, to: GlobalPtr<T>, value: T) {
        let who = self.step(operation);
        let (view, recent) = self.block.global();
        self.accept(view.store(&who, recent, to.address(), (T::BYTES, words(value))));
    }

    #[track_caller]
    fn update<T: Word>(&self, operation: Operation, at: GlobalPtr<T>, function: impl FnOnce(T) -> T) -> T {
        let who = self.step(operation);
        let (view, recent) = self.block.global();
        let function = |before| words(function(word(before)));
        word(self.accept(view.update(&who, recent, at.address(), (T::BYTES, function))))
    }
}

/// A word's bytes, in the low bytes of four little-endian words.
fn words<T: Word>(value: T) -> [u32; 4] {
    let mut bytes = [0; 16];
    bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
    let (chunks, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(chunks[i]))
}

/// The inverse of [`words`].
fn word<T: Word>(words: [u32; 4]) -> T {
    let mut bytes = [0; 16];
    for (chunk, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
}

// SAFETY: every method performs the operation that the trait names, or ends the kernel with a report:
// loads return what the last ordered store left in emulated memory, and collectives return only after
// all threads of their group have called them from one place.
unsafe impl Simt for Thread<'_> {
    fn thread_idx(&self) -> u32 {
        u32::from(self.index)
    }

    fn block_idx(&self) -> u32 {
        self.block.position()[0]
    }

    fn block_idx_y(&self) -> u32 {
        self.block.position()[1]
    }

    fn block_dim(&self) -> u32 {
        self.block.threads()
    }

    fn grid_dim(&self) -> u32 {
        self.block.grid_x()
    }

    #[track_caller]
    unsafe fn load<T: Word>(&self, from: GlobalPtr<T>) -> T {
        let who = self.step(Operation::Load);
        let (view, recent) = self.block.global();
        word(self.accept(view.load(&who, recent, from.address(), T::BYTES)))
    }

    #[track_caller]
    unsafe fn load_readonly<T: Word>(&self, from: GlobalPtr<T>) -> T {
        self.load_readonly_as(Operation::LoadReadonly, from)
    }

    #[track_caller]
    unsafe fn load_readonly_once<T: Word>(&self, from: GlobalPtr<T>) -> T {
        self.load_readonly_as(Operation::LoadReadonlyOnce, from)
    }

    #[track_caller]
    unsafe fn store<T: Word>(&self, to: GlobalPtr<T>, value: T) {
        self.store_as(Operation::Store, to, value);
    }

    #[track_caller]
    unsafe fn store_streaming<T: Word>(&self, to: GlobalPtr<T>, value: T) {
        self.store_as(Operation::StoreStreaming, to, value);
    }

    #[track_caller]
    unsafe fn reduce_add_f32(&self, to: GlobalPtr<f32>, value: f32) {
        self.update(Operation::ReduceAddF32, to, |before| before + value);
    }

    #[track_caller]
    unsafe fn reduce_add_f64(&self, to: GlobalPtr<f64>, value: f64) {
        self.update(Operation::ReduceAddF64, to, |before| before + value);
    }

    #[track_caller]
    unsafe fn atomic_add_u32(&self, to: GlobalPtr<u32>, value: u32) -> u32 {
        self.update(Operation::AtomicAddU32, to, |before| before.wrapping_add(value))
    }

    #[track_caller]
    unsafe fn reduce_max_u64(&self, to: GlobalPtr<u64>, value: u64) {
        self.update(Operation::ReduceMaxU64, to, |before| before.max(value));
    }

    #[track_caller]
    unsafe fn load_shared<T: Word>(&self, from: u32) -> T {
        let who = self.step(Operation::LoadShared);
        word(self.accept(self.block.shared().read(&who, from, T::BYTES)))
    }

    #[track_caller]
    unsafe fn store_shared<T: Word>(&self, to: u32, value: T) {
        let who = self.step(Operation::StoreShared);
        self.accept(self.block.shared().write(&who, to, T::BYTES, words(value)));
    }

    #[track_caller]
    unsafe fn copy_async_16(&self, to_shared: u32, from: GlobalPtr<u32>, present: bool) {
        self.start_copy(to_shared, from, present);
    }

    #[track_caller]
    unsafe fn copy_async_commit(&self) {
        self.step(Operation::CopyAsyncCommit);
        self.group.set(self.group.get() + 1);
    }

    #[track_caller]
    unsafe fn copy_async_wait<const PENDING: u32>(&self) {
        self.wait_for_copies(u64::from(PENDING));
    }

    #[track_caller]
    unsafe fn copy_bulk_begin(&self, counter: u32, threads: u32) {
        self.begin_counter(counter, threads);
    }

    #[track_caller]
    unsafe fn copy_bulk(&self, to_shared: u32, from: GlobalPtr<u32>, bytes: u32, counter: u32) {
        self.start_bulk(to_shared, from, bytes, counter);
    }

    #[track_caller]
    unsafe fn copy_bulk_commit(&self, counter: u32, bytes: u32) {
        self.commit_bulk(counter, bytes);
    }

    #[track_caller]
    unsafe fn copy_bulk_wait(&self, counter: u32, round: u32) {
        self.wait_for_bulk(counter, round);
    }

    #[track_caller]
    unsafe fn copy_bulk_fence(&self) {
        self.step(Operation::CopyBulkFence);
        self.block.fence(self.index);
    }

    #[track_caller]
    unsafe fn copy_bulk_box(&self, to_shared: u32, map: &TensorMap, [column, row]: [u32; 2], counter: u32) {
        self.start_box(to_shared, map, [column, row], counter);
    }

    #[track_caller]
    unsafe fn warpgroup_fence(&self) {
        self.fence_products();
    }

    // Told to be called here, whatever the place: that is the difference.
    unsafe fn sync_roles<const THREADS: u32>(&self) {
        assert_eq!(THREADS, self.block.threads(), "all threads of the block take part");
        // SAFETY: the caller's promise.
        unsafe { self.sync_block() }
    }

    unsafe fn warpgroup_take_registers<const N: u32>(&self) {
        const { assert!(valid_registers(N), "a multiple of 8, 24 to 256") }
    }

    unsafe fn warpgroup_give_registers<const N: u32>(&self) {
        const { assert!(valid_registers(N), "a multiple of 8, 24 to 256") }
    }

    #[track_caller]
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
        let of = [Operation::WarpgroupMmaSparseF16, Operation::WarpgroupMmaSparseBf16];
        let kept = Some(Kept { metadata, selector: SELECTOR });
        self.product(of[usize::from(E::BF16)], sums, ([a, b], TRANSPOSED), kept);
    }

    #[track_caller]
    unsafe fn warpgroup_mma<E: HalfElement, const TRANSPOSED: u32, const R: usize>(
        &self,
        sums: &mut WarpgroupSums<R>,
        a: SharedOperand,
        b: SharedOperand,
    ) {
        let of = [Operation::WarpgroupMmaF16, Operation::WarpgroupMmaBf16];
        self.product(of[usize::from(E::BF16)], sums, ([a, b], TRANSPOSED), None);
    }

    #[track_caller]
    unsafe fn warpgroup_commit(&self) {
        self.commit_products();
    }

    #[track_caller]
    unsafe fn warpgroup_wait<const PENDING: u32, const H: usize>(&self, _: &mut [u32; H]) {
        self.wait_for_products(u64::from(PENDING));
    }

    #[track_caller]
    unsafe fn warpgroup_finish<const R: usize>(&self, sums: WarpgroupSums<R>) -> [f32; R] {
        self.finish_products(sums)
    }

    #[track_caller]
    unsafe fn sync_block(&self) {
        let [] = self.collect(Operation::SyncBlock, &[]);
    }

    #[track_caller]
    unsafe fn sync_warp(&self) {
        let [] = self.collect(Operation::SyncWarp, &[]);
    }

    #[track_caller]
    unsafe fn sync_warpgroup(&self) {
        let [] = self.collect(Operation::SyncWarpgroup, &[]);
    }

    #[track_caller]
    unsafe fn shuffle(&self, value: u32, source_lane: u32) -> u32 {
        self.shuffle_by(Operation::Shuffle, value, source_lane, None)
    }

    #[track_caller]
    unsafe fn shuffle_xor(&self, value: u32, lane_mask: u32) -> u32 {
        self.shuffle_by(Operation::ShuffleXor, value, lane_mask, Some(("lane_mask", WARP)))
    }

    #[track_caller]
    unsafe fn shuffle_up(&self, value: u32, delta: u32) -> u32 {
        self.shuffle_by(Operation::ShuffleUp, value, delta, Some(("delta", WARP)))
    }

    #[track_caller]
    unsafe fn shuffle_down(&self, value: u32, delta: u32) -> u32 {
        self.shuffle_by(Operation::ShuffleDown, value, delta, Some(("delta", WARP)))
    }

    #[track_caller]
    unsafe fn ballot(&self, predicate: bool) -> u32 {
        let [votes] = self.collect(Operation::Ballot, &[u32::from(predicate)]);
        votes
    }

    #[track_caller]
    unsafe fn load_matrix_x4(&self, row_address: u32) -> [u32; 4] {
        self.collect(Operation::LoadMatrixX4, &[row_address])
    }

    #[track_caller]
    unsafe fn load_matrix_x4_trans(&self, row_address: u32) -> [u32; 4] {
        self.collect(Operation::LoadMatrixX4Trans, &[row_address])
    }

    #[track_caller]
    unsafe fn store_matrix_x4_trans(&self, row_address: u32, [a, b, c, d]: [u32; 4]) {
        let [] = self.collect(Operation::StoreMatrixX4Trans, &[row_address, a, b, c, d]);
    }

    #[track_caller]
    unsafe fn mma_m16n8k16_f16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        self.mma(Operation::MmaM16n8k16F16, a, b, acc)
    }

    #[track_caller]
    unsafe fn mma_m16n8k16_bf16(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        self.mma(Operation::MmaM16n8k16Bf16, a, b, acc)
    }

    #[track_caller]
    unsafe fn mma_sparse_m16n8k32<E: HalfElement, const SELECTOR: u32>(
        &self,
        a: [u32; 4],
        b: [u32; 4],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4] {
        let of = [Operation::MmaSparseM16n8k32F16, Operation::MmaSparseM16n8k32Bf16];
        self.mma_sparse(of[usize::from(E::BF16)], (a, b, acc), metadata, SELECTOR)
    }

    #[track_caller]
    unsafe fn mma_m16n8k8_f16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4] {
        self.mma(Operation::MmaM16n8k8F16, [a[0], a[1], 0, 0], [b, 0], acc)
    }

    #[track_caller]
    unsafe fn mma_m16n8k8_bf16(&self, a: [u32; 2], b: u32, acc: [f32; 4]) -> [f32; 4] {
        self.mma(Operation::MmaM16n8k8Bf16, [a[0], a[1], 0, 0], [b, 0], acc)
    }

    #[track_caller]
    unsafe fn mma_m16n8k8_tf32(&self, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        self.mma(Operation::MmaM16n8k8Tf32, a, b, acc)
    }

    #[track_caller]
    fn permute_bytes(&self, low: u32, high: u32, selector: u32) -> u32 {
        if selector & 0x8888 != 0 {
            let who = self.step(Operation::PermuteBytes);
            self.refuse(&who, format!("selector is {selector:#06x}: bit 3 of a nibble is set"));
        }
        let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
        u32::from_le_bytes([0, 4, 8, 12].map(|shift| bytes[(selector >> shift & 7) as usize]))
    }

    fn fma(&self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    fn fma_f64(&self, a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    fn maximum(&self, a: f32, b: f32) -> f32 {
        match (a.is_nan() || b.is_nan(), a == b) {
            (true, _) => f32::NAN,
            // Bits of both: those of minus zero are the sign alone, and go unless both are.
            (false, true) => f32::from_bits(a.to_bits() & b.to_bits()),
            (false, false) => a.max(b),
        }
    }

    fn exp2(&self, x: f32) -> f32 {
        let power = x.exp2();
        if power < f32::MIN_POSITIVE { 0.0 } else { power }
    }

    fn log2(&self, x: f32) -> f32 {
        if x.is_subnormal() { f32::NEG_INFINITY } else { x.log2() }
    }

    fn sqrt(&self, x: f32) -> f32 {
        x.sqrt()
    }

    fn f16_to_f32(&self, bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }

    fn f16x2_to_f32(&self, bits: u32) -> [f32; 2] {
        mma::halves(bits).map(|half| self.f16_to_f32(half))
    }

    fn f32_to_f16(&self, value: f32) -> u16 {
        mma::f32_to_f16(value)
    }

    fn f32_to_bf16(&self, value: f32) -> u16 {
        mma::f32_to_bf16(value)
    }

    fn f32_to_tf32(&self, value: f32) -> u32 {
        mma::f32_to_tf32(value)
    }
}

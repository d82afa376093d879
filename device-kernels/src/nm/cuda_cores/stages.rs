//! Stages of a product: how they come to shared memory, and how one is multiplied while the next is on its way.

use windrow_simt::{GlobalPtr, Simt};

use super::{Block, Buffers, PICKS_AT_ONCE, Picks};
use crate::NO_ROW;
use crate::unroll::each4;

impl<S: Simt, P: Picks, const TM: usize, const TN: usize, const WARPS: u32> Block<'_, S, P, TM, TN, WARPS> {
    /// `acc += A·W` over so many stages, at least one.
    #[inline(always)]
    pub(super) unsafe fn multiply_stages<B: Buffers>(&self, stages: u32, acc: &mut [[f32; TN]; TM]) {
        let (s, p) = (self.s, self.p);
        // The stage that is multiplied is `now` bytes from the start of shared memory, the other `stage_bytes - now`.
        let stage_bytes = Self::TILE.stage_bytes(p.slots, p.depth);
        let next_rows = Self::next_rows(p);
        let rounds = p.depth / Self::ROWS_AT_ONCE;
        // SAFETY: the obligations of the params; copies are waited for and made known by a barrier before they are
        // read, and what they overwrite has been read before a barrier.
        unsafe {
            if B::BULK {
                self.begin_rounds::<B>();
            }
            // The rows of the first stage come to where the stage before would have brought them.
            self.bring_bytes(stage_bytes + next_rows, self.records, p.slots * 4);
            s.copy_async_commit();
            self.clear_zero_slots(stage_bytes);
            s.copy_async_wait::<0>();
            s.sync_block(); // RAW: rows of the first stage, the counter -> used
            self.bring_stage::<B>(0, (0, stage_bytes + next_rows));
            self.await_stage::<B>(0);
            s.sync_block(); // RAW: first stage, zero slots -> read
            if stages > 1 {
                self.bring_stage::<B>(1, (stage_bytes, next_rows));
            }

            let (mut stage, mut now) = (0, 0);
            let mut left = rounds; // of this stage
            let mut a = self.lane_a;
            let mut w = Self::slab_w(p) + self.lane_w;
            let mut list = self.lane_list;
            let mut picks = self.picks(list);
            let mut even = self.fragments(a, picks, 0, w);
            let last = loop {
                // 3. and 4. Four kept rows, the fragments of each read while those of the one before are multiplied;
                // and four before them, where so many are multiplied from one branch to the next.
                if Self::ROWS_AT_ONCE > PICKS_AT_ONCE {
                    let odd = self.fragments(a, picks, 1, w);
                    self.multiply(&even, acc);
                    even = self.fragments(a, picks, 2, w);
                    self.multiply(&odd, acc);
                    let odd = self.fragments(a, picks, 3, w);
                    list += 16;
                    picks = self.picks(list);
                    self.multiply(&even, acc);
                    w += PICKS_AT_ONCE * Self::W_ROW;
                    even = self.fragments(a, picks, 0, w);
                    self.multiply(&odd, acc);
                }
                let odd = self.fragments(a, picks, 1, w);
                self.multiply(&even, acc);
                even = self.fragments(a, picks, 2, w);
                self.multiply(&odd, acc);
                let odd = self.fragments(a, picks, 3, w);
                left -= 1;
                list += 16;
                picks = self.picks(list); // behind a stage's last something is read, too, and not used
                self.multiply(&even, acc);
                w += PICKS_AT_ONCE * Self::W_ROW;
                if left == 0 {
                    stage += 1;
                    if stage == stages {
                        break odd;
                    }
                    self.await_stage::<B>(stage);
                    s.sync_block(); // RAW: stage arrived -> read; WAR: stage before read -> next copies
                    now = stage_bytes - now;
                    list = now + self.lane_list;
                    picks = self.picks(list);
                    // 2. Global -> shared.
                    if stage + 1 < stages {
                        self.bring_stage::<B>(stage + 1, (stage_bytes - now, now + next_rows));
                    }
                    left = rounds;
                    a = now + self.lane_a;
                    w = now + Self::slab_w(p) + self.lane_w;
                }
                even = self.fragments(a, picks, 0, w);
                self.multiply(&odd, acc);
            };
            self.multiply(&last, acc);
        }
    }

    /// Starts bringing a stage, counted from the part's first, to `to`; the rows of it are at `rows`.
    #[inline(always)]
    unsafe fn bring_stage<B: Buffers>(&self, stage: u32, (to, rows): (u32, u32)) {
        // SAFETY: the caller names a stage that exists, whose rows have arrived at `rows`, and nobody reads what is at
        // `to`.
        unsafe {
            if B::BULK {
                self.bring_record_in_bulk::<B>(stage, to + Self::slab_w(self.p));
            }
            self.bring_rows(to, rows);
            if !B::BULK {
                self.bring_record(stage, to + Self::slab_w(self.p));
            }
            self.s.copy_async_commit();
        }
    }

    /// Waits for what this thread brought of a stage.
    #[inline(always)]
    unsafe fn await_stage<B: Buffers>(&self, stage: u32) {
        // SAFETY: the caller has begun to bring the stage, in this thread.
        unsafe {
            if B::BULK {
                self.await_record_in_bulk::<B>(stage);
            }
            self.s.copy_async_wait::<0>();
        }
    }

    /// Starts bringing the slab of `A` of a stage to `to`, whose rows are at `rows`.
    #[inline(always)]
    pub(super) unsafe fn bring_rows(&self, to: u32, rows: u32) {
        let (s, p) = (self.s, self.p);
        let groups = Self::THREADS / Self::ROW_THREADS; // of threads that copy a row together
        let (group, chunk) = (s.thread_idx() / Self::ROW_THREADS, s.thread_idx() % Self::ROW_THREADS);
        let to = to + chunk * 16;
        let mut slot = group * 4;
        // SAFETY: rows of the lists are rows of `A`, whose chunk is readable if it is present; nothing is read where
        // there is no row; the slab has room for all slots.
        unsafe {
            while slot < p.slots {
                let four: [u32; 4] = s.load_shared(rows + slot * 4);
                each4(|i| {
                    let from = self.from_a.at(four[i].wrapping_mul(p.row_vectors)).cast();
                    let present = self.present & (four[i] != NO_ROW);
                    s.copy_async_16(to + (slot + i as u32) * Self::A_ROW, from, present);
                });
                slot += groups * 4;
            }
        }
    }

    /// Bytes of a record.
    #[inline(always)]
    pub(super) fn record_bytes(&self) -> u32 {
        4 * Self::TILE.record_words(self.p.slots, self.p.depth)
    }

    /// Where in global memory the weights of a stage begin, and behind them its picks and the rows of the next.
    #[inline(always)]
    pub(super) fn weights_of(&self, stage: u32) -> GlobalPtr<u32> {
        let at = u64::from(stage) * u64::from(self.record_bytes());
        self.records.byte_add(at + u64::from(self.p.slots * 4))
    }

    /// Starts bringing a stage's weights, its picks and the rows of the next to `to`.
    #[inline(always)]
    pub(super) unsafe fn bring_record(&self, stage: u32, to: u32) {
        // SAFETY: as long as a record is what follows the rows of the stage up to those of the next, and there is room.
        unsafe { self.bring_bytes(to, self.weights_of(stage), self.record_bytes()) };
    }

    /// Starts bringing successive bytes, a multiple of 16.
    #[inline(always)]
    pub(super) unsafe fn bring_bytes(&self, to: u32, from: GlobalPtr<u32>, bytes: u32) {
        let step = Self::THREADS * 16;
        let mut at = self.s.thread_idx() * 16;
        while at < bytes {
            // Four at a time: one address, and offsets from it.
            let (to, from) = (to + at, from.byte_add(u64::from(at)));
            each4(|i| {
                let offset = i as u32 * step;
                if at + offset < bytes {
                    // SAFETY: the caller has so many bytes behind `from`, and room for them behind `to`, both in
                    // multiples of 16.
                    unsafe { self.s.copy_async_16(to + offset, from.byte_add(u64::from(offset)), true) };
                }
            });
            at += 4 * step;
        }
    }

    /// Zeros in the zero slot of both stages.
    #[inline(always)]
    pub(super) unsafe fn clear_zero_slots(&self, stage_bytes: u32) {
        let thread = self.s.thread_idx();
        // SAFETY: a thread's 16 bytes of the row behind the slots.
        unsafe {
            if thread < Self::ROW_THREADS {
                let at = self.p.slots * Self::A_ROW + thread * 16;
                self.s.store_shared(at, [0u32; 4]);
                self.s.store_shared(at + stage_bytes, [0u32; 4]);
            }
        }
    }
}

//! Stages one after the other, with nothing on its way meanwhile: what the pipeline is measured against.

use windrow_simt::Simt;

use super::{Block, PICKS_AT_ONCE, Picks};
use crate::unroll::each4;

impl<S: Simt, P: Picks, const TM: usize, const TN: usize, const WARPS: u32> Block<'_, S, P, TM, TN, WARPS> {
    /// `acc += A·W` over so many stages. Each is brought when that before it has been multiplied: first its rows, then
    /// what they name and the rest.
    ///
    /// Shared memory is divided as for two stages, so that stages and resident blocks are those of the pipeline.
    #[inline(always)]
    pub(super) unsafe fn multiply_one_by_one(&self, stages: u32, acc: &mut [[f32; TN]; TM]) {
        let (s, p) = (self.s, self.p);
        let stage_bytes = Self::TILE.stage_bytes(p.slots, p.depth);
        let (rows, slab_w) = (stage_bytes + Self::next_rows(p), Self::slab_w(p));
        let mut stage = 0;
        // SAFETY: the obligations of the params; copies are waited for and made known by a barrier before they are
        // read, and what they overwrite has been read before a barrier.
        unsafe {
            self.clear_zero_slots(stage_bytes);
            while stage < stages {
                // 2. Global -> shared.
                let record = self.records.byte_add(u64::from(stage) * u64::from(self.record_bytes()));
                self.bring_bytes(rows, record, p.slots * 4);
                s.copy_async_commit();
                s.copy_async_wait::<0>();
                s.sync_block(); // RAW: rows -> read
                self.bring_rows(0, rows);
                self.bring_record(stage, slab_w);
                s.copy_async_commit();
                s.copy_async_wait::<0>();
                s.sync_block(); // RAW: stage, zero slots -> read
                // 3. and 4. Four kept rows.
                let mut left = p.depth / PICKS_AT_ONCE;
                let (mut list, mut w) = (self.lane_list, slab_w + self.lane_w);
                while left > 0 {
                    let picks = self.picks(list);
                    each4(|i| {
                        let fragments = self.fragments(self.lane_a, picks, i, w);
                        self.multiply(&fragments, acc);
                    });
                    left -= 1;
                    list += 16;
                    w += PICKS_AT_ONCE * Self::W_ROW;
                }
                s.sync_block(); // WAR: stage and rows read -> next copies
                stage += 1;
            }
        }
    }
}

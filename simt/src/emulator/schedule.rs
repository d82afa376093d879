//! In which order blocks start and ready threads run.

/// The order in which blocks start, and in which the threads of a block that can run do run.
///
/// A thread runs until it reaches a collective; then the schedule picks the next. Blocks run in
/// parallel, so the schedule determines the order in which they start, not in which they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// The first block first; in it the first thread that can run.
    InOrder,
    /// The last block first; in it the last thread that can run.
    Reverse,
    /// A permutation of the blocks, and each time a thread at random, both determined by the seed.
    Seeded(u64),
}

impl Schedule {
    /// The schedules that every kernel test should run under.
    pub const STANDARD: [Self; 4] =
        [Self::InOrder, Self::Reverse, Self::Seeded(0x9e37_79b9), Self::Seeded(0x2545_f491)];

    /// The linear numbers of the grid's blocks, in the order in which they start.
    pub(super) fn blocks(self, blocks: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..blocks).collect();
        match self {
            Self::InOrder => {}
            Self::Reverse => order.reverse(),
            Self::Seeded(seed) => {
                let mut random = SplitMix::new(seed);
                // Fisher and Yates: every place gets one of those not yet placed.
                for (last, left) in (0..blocks).zip(1..).skip(1) {
                    order.swap(last as usize, random.below(left) as usize);
                }
            }
        }
        order
    }

    /// Whether what is launched beside runs before what it runs beside, where nothing says which comes first: it does
    /// under half of [`STANDARD`](Self::STANDARD).
    #[must_use]
    pub fn runs_beside_first(self) -> bool {
        match self {
            Self::InOrder => false,
            Self::Reverse => true,
            Self::Seeded(seed) => SplitMix::new(seed).below(2) == 1,
        }
    }

    /// What picks among the threads of one block.
    pub(super) fn picker(self, block: u32) -> Picker {
        match self {
            Self::InOrder => Picker::Lowest,
            Self::Reverse => Picker::Highest,
            Self::Seeded(seed) => {
                Picker::Random(SplitMix::new(seed ^ u64::from(block).wrapping_mul(0xd6e8_feb8_6659_fd93)))
            }
        }
    }
}

/// Which of the threads that could go on goes on, as a set bit of their mask.
pub(super) enum Picker {
    Lowest,
    Highest,
    Random(SplitMix),
}

impl Picker {
    /// The number of one set bit of `bits`, which has some.
    pub(super) fn pick(&mut self, bits: u32) -> u32 {
        match self {
            Self::Lowest => bits.trailing_zeros(),
            Self::Highest => 31 - bits.leading_zeros(),
            Self::Random(random) => {
                let mut left = bits;
                for _ in 0..random.below(bits.count_ones()) {
                    left &= left - 1;
                }
                left.trailing_zeros()
            }
        }
    }
}

/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`; its slight bias does not matter here.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schedule_starts_every_block_once() {
        for schedule in Schedule::STANDARD {
            for blocks in [0, 1, 2, 3, 100] {
                let mut order = schedule.blocks(blocks);
                order.sort_unstable();
                assert_eq!(order, (0..blocks).collect::<Vec<_>>(), "{schedule:?}");
            }
        }
        assert_eq!(Schedule::Reverse.blocks(3), [2, 1, 0]);
        assert_ne!(Schedule::Seeded(1).blocks(100), Schedule::Seeded(2).blocks(100));
    }

    #[test]
    fn either_stream_comes_first_under_half_of_the_schedules() {
        let beside_first = Schedule::STANDARD.map(Schedule::runs_beside_first);
        assert_eq!(beside_first.into_iter().filter(|&first| first).count(), 2, "{beside_first:?}");
        assert_ne!(beside_first[2], beside_first[3], "either kind has a seeded schedule");
    }

    #[test]
    fn pickers_pick_set_bits_and_random_ones_pick_all() {
        let bits = 0b1010_0110;
        assert_eq!(Schedule::InOrder.picker(0).pick(bits), 1);
        assert_eq!(Schedule::Reverse.picker(0).pick(bits), 7);
        let mut random = Schedule::Seeded(7).picker(3);
        let picked = (0..200).fold(0, |picked, _| picked | 1 << random.pick(bits));
        assert_eq!(picked, bits);
    }
}

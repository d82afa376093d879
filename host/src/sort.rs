//! Stable sort of u32 keys on a device that runs kernels, for the time in which something is laid out there.

use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_kernels::sort::{MOST_DIGIT_BITS, MOST_SORT_BLOCKS, SORT_TILE, SortParams};
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::Queue;
use crate::error::DeviceError;
use crate::num::wide;
use crate::plan::start;

/// What is sorted, and where it goes. Keys that are equal stay in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sort {
    /// Where the keys are, which stay as they are.
    pub(crate) keys: GlobalPtr<u32>,
    /// Words from one key to the next: 2 for keys of 8 bytes, of which the lower half is the key.
    pub(crate) key_words: u32,
    /// What goes with each key; null: its place among the keys, so that the result is the stable order.
    pub(crate) payloads: GlobalPtr<u32>,
    /// Where the keys go in their order.
    pub(crate) out_keys: GlobalPtr<u32>,
    /// Whether they are left there; else the array is memory like other.
    pub(crate) keys_wanted: bool,
    /// Where the payloads go; null: there are none.
    pub(crate) out_payloads: GlobalPtr<u32>,
    /// Number of keys, at most [`MOST_ITEMS`].
    pub(crate) len: u32,
    /// Low bits of a key by which it is sorted, at most 32; those above are carried along.
    pub(crate) bits: u32,
}

/// How the keys are divided.
#[derive(Debug, Clone, Copy)]
struct Division {
    passes: u32,
    blocks: u32,
    block_tiles: u32,
}

impl Division {
    fn of(len: u32, bits: u32) -> Self {
        let tiles = len.div_ceil(SORT_TILE);
        let block_tiles = tiles.div_ceil(MOST_SORT_BLOCKS).max(1);
        Self {
            passes: bits.div_ceil(MOST_DIGIT_BITS).max(1),
            blocks: tiles.div_ceil(block_tiles),
            block_tiles,
        }
    }

    /// Words for one value of the widest digit: a total, and a count for each block.
    fn words_of_digits(self) -> u64 {
        let is_one_tile = self.blocks <= 1 && self.block_tiles == 1;
        if is_one_tile { 0 } else { (u64::from(self.blocks) + 1) << MOST_DIGIT_BITS }
    }
}

impl Sort {
    /// Number of bits of the keys below `end`.
    pub(crate) fn bits_below(end: usize) -> u32 {
        (u64::BITS - wide(end.saturating_sub(1)).leading_zeros()).min(u32::BITS)
    }

    /// Words of memory that the sort needs beside its arrays.
    pub(crate) fn memory_words(len: u32, bits: u32) -> u64 {
        let division = Division::of(len, bits);
        division.words_of_digits() + if division.passes > 1 { 2 * u64::from(len) } else { 0 }
    }

    /// Words of memory for [`count`](Self::count) by a digit of so many bits.
    pub(crate) fn count_words(len: u32, digit_bits: u32) -> u64 {
        (u64::from(Division::of(len, 0).blocks) + 1) << digit_bits
    }

    /// Queues the first two launches of a single pass, by the `digit_bits` bits above `shift`: keys are counted. What
    /// [`SortScatter`](windrow_kernels::sort::SortScatter) or its like is to be told, for as many blocks as that says;
    /// in its `totals` are the keys with each digit.
    ///
    /// # Safety
    /// As for [`queue`](Self::queue), and `memory` has [`count_words`](Self::count_words).
    pub(crate) unsafe fn count(
        self,
        queue: &dyn Queue,
        (shift, digit_bits): (u32, u32),
        memory: GlobalPtr<u32>,
    ) -> Result<SortParams, DeviceError> {
        let Division { blocks, block_tiles, .. } = Division::of(self.len, 0);
        let params = SortParams {
            keys: self.keys,
            payloads: self.payloads,
            out_keys: self.out_keys,
            out_payloads: self.out_payloads,
            counts: memory.at(1 << digit_bits),
            totals: memory,
            len: self.len,
            key_words: self.key_words,
            shift,
            digit_bits,
            blocks,
            block_tiles,
        };
        // SAFETY: the caller's promise.
        unsafe {
            start(queue, entry_of(Variant::SortCount)?, blocks.into(), 1, &params)?;
            start(queue, entry_of(Variant::SortScan)?, 1 << digit_bits, 1, &params)?;
        }
        Ok(params)
    }

    /// Queues the sort: three launches for each 9 bits, one of up to [`SORT_TILE`] keys.
    ///
    /// # Safety
    /// The arrays have as many elements as their documentation says, `memory` has
    /// [`memory_words`](Self::memory_words), and none overlaps another but keys and payloads that are given; all live
    /// until the queue's machine has done this.
    pub(crate) unsafe fn queue(self, queue: &dyn Queue, memory: GlobalPtr<u32>) -> Result<(), DeviceError> {
        debug_assert!(self.len <= MOST_ITEMS && self.bits <= 32, "{self:?}");
        let division = Division::of(self.len, self.bits);
        let Division { passes, blocks, block_tiles } = division;
        let digits = division.words_of_digits();
        let has_counts = digits > 0;
        let totals = memory;
        let counts = if has_counts { memory.at(1 << MOST_DIGIT_BITS) } else { GlobalPtr::NULL };
        let between = memory.at_wide(digits);
        let has_payloads = self.out_payloads != GlobalPtr::NULL;
        let between_payloads = if has_payloads { between.at(self.len) } else { GlobalPtr::NULL };
        let (mut keys, mut key_words, mut payloads) = (self.keys, self.key_words, self.payloads);
        let mut shift = 0;
        for left in (1..=passes).rev() {
            // The last pass writes the output, the one before memory, and so on.
            let (out_keys, out_payloads) = match left % 2 {
                0 => (between, between_payloads),
                _ => (self.out_keys, self.out_payloads),
            };
            let params = SortParams {
                keys,
                payloads,
                out_keys: if left > 1 || self.keys_wanted { out_keys } else { GlobalPtr::NULL },
                out_payloads,
                counts,
                totals,
                len: self.len,
                key_words,
                shift,
                digit_bits: (self.bits.max(1) - shift).div_ceil(left),
                blocks,
                block_tiles,
            };
            let blocks = u64::from(blocks);
            // SAFETY: the caller's promise; each pass reads what the one before wrote, and writes elsewhere.
            unsafe {
                if has_counts {
                    start(queue, entry_of(Variant::SortCount)?, blocks, 1, &params)?;
                    start(queue, entry_of(Variant::SortScan)?, 1 << params.digit_bits, 1, &params)?;
                }
                start(queue, entry_of(Variant::SortScatter)?, blocks, 1, &params)?;
            }
            (keys, key_words, payloads) = (out_keys, 1, out_payloads);
            shift += params.digit_bits;
        }
        Ok(())
    }
}

fn entry_of(variant: Variant) -> Result<&'static Entry, DeviceError> {
    windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "a kernel that sorts" })
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use bytemuck::Zeroable;

    use super::*;
    use crate::device::{Device, DeviceBuffer};
    use crate::num::narrow;
    use crate::{DeviceKind, EmulatorSchedule};

    /// Sorts in every way and compares with the host's stable sort.
    #[track_caller]
    fn check(device: &Device, keys: &[u64], bits: u32) {
        let len = narrow(keys.len());
        let mask = (1_u64 << bits) - 1;
        let mut order: Vec<u32> = (0..len).collect();
        order.sort_by_key(|&i| keys[i as usize] & mask);
        let narrow_keys: Vec<u32> = keys.iter().map(|&key| (key & 0xffff_ffff) as u32).collect();
        let payloads: Vec<u32> = (0..len).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let want_keys: Vec<u32> = order.iter().map(|&i| narrow_keys[i as usize]).collect();
        let want_payloads: Vec<u32> = order.iter().map(|&i| payloads[i as usize]).collect();

        let wide_from = DeviceBuffer::from_slice(device, keys).unwrap();
        let from = DeviceBuffer::from_slice(device, &narrow_keys).unwrap();
        let with = DeviceBuffer::from_slice(device, &payloads).unwrap();
        let words = usize::try_from(Sort::memory_words(len, bits)).unwrap();
        let queue = &**device.machine().unwrap().own();
        let sort = |key_words, payloads, keys_wanted, has_payloads| {
            let memory = DeviceBuffer::<u32>::alloc(device, words, "memory of a sort").unwrap();
            let out_keys = DeviceBuffer::<u32>::alloc(device, keys.len(), "sorted keys").unwrap();
            let out_payloads = DeviceBuffer::<u32>::alloc(device, keys.len(), "payloads").unwrap();
            let sort = Sort {
                keys: if key_words == 1 { from.pointer() } else { wide_from.pointer().cast() },
                key_words,
                payloads,
                out_keys: out_keys.pointer(),
                keys_wanted,
                out_payloads: if has_payloads { out_payloads.pointer() } else { GlobalPtr::NULL },
                len,
                bits,
            };
            // SAFETY: arrays of these lengths, alive until the work is waited for.
            unsafe { sort.queue(queue, memory.pointer()).unwrap() };
            device.synchronize().unwrap();
            let found_keys = keys_wanted.then(|| out_keys.to_vec().unwrap());
            (found_keys, has_payloads.then(|| out_payloads.to_vec().unwrap()))
        };
        let what = format!("{len} keys by {bits} bits on {device}");
        assert!(
            sort(1, GlobalPtr::NULL, true, true) == (Some(want_keys.clone()), Some(order.clone())),
            "{what}"
        );
        if len > SORT_TILE && device.kind() == DeviceKind::Emulator {
            return; // where a tile takes long
        }
        assert!(sort(2, GlobalPtr::NULL, false, true) == (None, Some(order)), "{what}");
        assert!(
            sort(2, with.pointer(), true, true) == (Some(want_keys.clone()), Some(want_payloads)),
            "{what}"
        );
        assert!(sort(1, GlobalPtr::NULL, true, false) == (Some(want_keys), None), "{what}");
    }

    fn devices() -> Vec<Device> {
        let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
        devices.extend(Device::cuda(0));
        devices
    }

    fn random(len: u32) -> Vec<u64> {
        (0..u64::from(len)).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)).collect()
    }

    #[test]
    fn keys_of_any_number_and_width() {
        for device in devices() {
            for (len, bits) in [
                (0, 5),
                (1, 0),
                (1, 32),
                (31, 1),
                (33, 9),
                (500, 10),
                (513, 32),
                (SORT_TILE, 4),
                (SORT_TILE + 1, 24),
            ] {
                check(&device, &random(len), bits);
            }
        }
    }

    #[test]
    fn equal_and_ordered_keys() {
        for device in devices() {
            let len = u64::from(SORT_TILE) + 77;
            check(&device, &vec![0xffff_ffff_ffff_ffff; 600], 32);
            check(&device, &(0..len).rev().collect::<Vec<_>>(), 13);
            check(&device, &(0..len).map(|i| i / 1000).collect::<Vec<_>>(), 3);
        }
    }

    /// More tiles than blocks: a block takes several, one after the other.
    #[test]
    fn tiles_of_one_block() {
        let division = Division::of(MOST_SORT_BLOCKS * SORT_TILE + 1, 20);
        assert_eq!((division.blocks, division.block_tiles), (MOST_SORT_BLOCKS / 2 + 1, 2));
        assert_eq!(Division::of(MOST_ITEMS, 32).blocks * Division::of(MOST_ITEMS, 32).block_tiles, 1 << 19);
        for device in devices() {
            match device.kind() {
                DeviceKind::Cuda => check(&device, &random(5 * MOST_SORT_BLOCKS * SORT_TILE / 2 + 3), 20),
                _ => check_blocks_of_tiles(&device),
            }
        }
    }

    /// One pass over three blocks of two tiles, the last of one that is not full.
    fn check_blocks_of_tiles(device: &Device) {
        let len = 4 * SORT_TILE + 1234;
        let keys: Vec<u32> = random(len).iter().map(|&key| (key >> 9 & 0x1ff) as u32).collect();
        let from = DeviceBuffer::from_slice(device, &keys).unwrap();
        let [out_keys, out_payloads] =
            [(); 2].map(|()| DeviceBuffer::<u32>::alloc(device, keys.len(), "output").unwrap());
        let [counts, totals] =
            [3 << 9, 1 << 9].map(|len| DeviceBuffer::<u32>::alloc(device, len, "counts").unwrap());
        let params = SortParams {
            keys: from.pointer(),
            payloads: GlobalPtr::NULL,
            out_keys: out_keys.pointer(),
            out_payloads: out_payloads.pointer(),
            counts: counts.pointer(),
            totals: totals.pointer(),
            len,
            key_words: 1,
            shift: 0,
            digit_bits: 9,
            blocks: 3,
            block_tiles: 2,
        };
        let queue = &**device.machine().unwrap().own();
        for (variant, blocks) in
            [(Variant::SortCount, 3), (Variant::SortScan, 1 << 9), (Variant::SortScatter, 3)]
        {
            // SAFETY: arrays of these lengths, alive until they are read.
            unsafe { start(queue, entry_of(variant).unwrap(), blocks, 1, &params).unwrap() };
        }
        let mut order: Vec<u32> = (0..len).collect();
        order.sort_by_key(|&i| keys[i as usize]);
        assert!(out_payloads.to_vec().unwrap() == order, "on {device}");
        assert!(out_keys.to_vec().unwrap().is_sorted(), "on {device}");
    }

    /// Counts of nearly as many blocks as there may be.
    #[test]
    fn counts_are_summed_up() {
        let blocks = MOST_SORT_BLOCKS - 3;
        let given: Vec<u32> = (0..4 * blocks).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
        for device in devices() {
            let counts = DeviceBuffer::from_slice(&device, &given).unwrap();
            let totals = DeviceBuffer::<u32>::alloc(&device, 4, "totals").unwrap();
            let (counts_at, totals_at) = (counts.pointer(), totals.pointer());
            let params = SortParams {
                counts: counts_at,
                totals: totals_at,
                digit_bits: 2,
                blocks,
                ..Zeroable::zeroed()
            };
            let queue = &**device.machine().unwrap().own();
            // SAFETY: arrays of these lengths, alive until they are read.
            unsafe { start(queue, entry_of(Variant::SortScan).unwrap(), 4, 1, &params).unwrap() };
            let (counts, totals) = (counts.to_vec().unwrap(), totals.to_vec().unwrap());
            let by_digit = given.chunks(blocks as usize).zip(counts.chunks(blocks as usize));
            for ((given, found), &total) in by_digit.zip(&totals) {
                let mut sum = 0;
                for (&count, &before) in given.iter().zip(found) {
                    assert_eq!(before, sum, "on {device}");
                    sum += count;
                }
                assert_eq!(total, sum, "on {device}");
            }
        }
    }

    #[test]
    fn bits_of_keys() {
        let found = [0, 1, 2, 3, 256, 257, 1 << 32, usize::MAX].map(Sort::bits_below);
        assert_eq!(found, [0, 0, 1, 2, 8, 9, 32, 32]);
    }
}

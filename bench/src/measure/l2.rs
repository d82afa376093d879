//! The L2 cache before a timed call: as the call before left it, or full of other data.
//!
//! A cold call comes after the flush: a buffer of twice the cache's size is written, in the order of the device's own
//! work, before the first of the call's two marks. What was written is still to go to memory when the call begins, as
//! in a program that has just written something else. Marks around a single call also hold the time until its first
//! kernel begins, which calls in a batch hide from each other: every call of a cold measurement holds it, peers' too.

use std::hint::black_box;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use windrow::{Device, DeviceBuffer, DeviceError, DeviceKind, names};

use super::operands::set_words;

/// How often the cache's size is written: lines are not replaced strictly by age, so once would leave some.
const TIMES: u64 = 2;
/// Bytes of a cache whose size nobody tells: a GPU's whose driver does not, and all caches of a processor together.
const ASSUMED_BYTES: u64 = 64 << 20;
/// Bytes that are written on the emulator, which has no cache: the work of a flush without its size.
const EMULATED_BYTES: u64 = 64 << 10;
/// Words that a thread of the processor writes at a time.
const TASK_WORDS: usize = 1 << 15;

/// What the L2 cache holds when a timed call begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum L2 {
    /// What the call before left: calls follow each other in batches, and operands that fit stay.
    #[default]
    Warm,
    /// Other data, written before each call, which is timed alone.
    Cold,
}

names!(L2, "state of the L2 cache"; Warm => "warm", Cold => "cold");

impl L2 {
    /// What stands behind the name of a case: nothing of a warm one.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Warm => "",
            Self::Cold => ", cold L2",
        }
    }
}

/// What was done to the cache before each timed call, as records tell it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum L2Facts {
    /// Nothing: calls follow each other.
    #[default]
    Warm,
    /// A buffer was written.
    Cold {
        /// Bytes that were written before each call.
        flushed_bytes: u64,
        cache: Cache,
    },
}

/// Where the number of bytes is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cache {
    /// A GPU's L2 cache, whose size the driver tells.
    Told,
    /// A GPU's L2 cache, whose size is assumed.
    Assumed,
    /// The caches of a processor, whose size is assumed: a larger one keeps a part.
    Processor,
    /// The emulator has none: cold and warm differ in nothing but the work.
    None,
}

impl L2Facts {
    /// What calls on a device come after.
    pub(crate) fn of(device: &Device, state: L2) -> Self {
        match state {
            L2::Warm => Self::Warm,
            L2::Cold => Self::flushing(device.kind(), device.l2_bytes()),
        }
    }

    fn flushing(kind: DeviceKind, l2_bytes: Option<u64>) -> Self {
        let (flushed_bytes, cache) = match (kind, l2_bytes) {
            (DeviceKind::Cpu, _) => (TIMES * ASSUMED_BYTES, Cache::Processor),
            (DeviceKind::Cuda, Some(bytes)) => (TIMES * bytes, Cache::Told),
            (DeviceKind::Cuda, None) => (TIMES * ASSUMED_BYTES, Cache::Assumed),
            _ => (EMULATED_BYTES, Cache::None),
        };
        Self::Cold { flushed_bytes, cache }
    }

    pub(crate) const fn state(self) -> L2 {
        match self {
            Self::Warm => L2::Warm,
            Self::Cold { .. } => L2::Cold,
        }
    }
}

/// The buffer that fills the cache.
pub(crate) struct Flush {
    over: Over,
    /// What is written next: another word each time.
    word: u32,
}

enum Over {
    Device(DeviceBuffer<u32>),
    Processor(Vec<u32>),
}

impl Flush {
    /// What makes calls on a device cold; nothing for warm ones.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where there is no room for the buffer beside the operands.
    pub(crate) fn of(device: &Device, state: L2) -> Result<Option<Self>, DeviceError> {
        let L2Facts::Cold { flushed_bytes, cache } = L2Facts::of(device, state) else { return Ok(None) };
        let words = usize::try_from(flushed_bytes / 4).unwrap_or(usize::MAX);
        let over = match cache {
            Cache::Processor => Over::Processor(vec![0; words]),
            _ => Over::Device(DeviceBuffer::alloc_zeroed(device, words)?),
        };
        Ok(Some(Self { over, word: 1 }))
    }

    /// Queues a write of all of the buffer, behind all work asked for so far; on the CPU, on all threads, it is done
    /// when this returns.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn run(&mut self) -> Result<(), DeviceError> {
        let word = self.word;
        self.word = word.wrapping_add(1);
        match &mut self.over {
            Over::Device(buffer) => set_words(buffer, word),
            Over::Processor(words) => {
                words.par_chunks_mut(TASK_WORDS).for_each(|part| black_box(part).fill(word));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windrow::{EmulatorSchedule, Fault};

    use super::*;
    use crate::measure::{Sampling, measure};

    #[test]
    fn twice_the_cache_is_written_where_its_size_is_known() {
        let of = |kind, bytes| match L2Facts::flushing(kind, bytes) {
            L2Facts::Cold { flushed_bytes, cache } => (flushed_bytes, cache),
            L2Facts::Warm => panic!("{kind:?} is flushed"),
        };
        assert_eq!(of(DeviceKind::Cuda, Some(50 << 20)), (100 << 20, Cache::Told));
        assert_eq!(of(DeviceKind::Cuda, None), (128 << 20, Cache::Assumed));
        assert_eq!(of(DeviceKind::Cpu, None), (128 << 20, Cache::Processor));
        assert_eq!(of(DeviceKind::Emulator, None), (64 << 10, Cache::None));
        assert_eq!(L2Facts::of(&Device::cpu(), L2::Warm), L2Facts::Warm);
    }

    #[test]
    fn facts_are_words_in_json() {
        let cold = L2Facts::Cold { flushed_bytes: 104_857_600, cache: Cache::Told };
        for (facts, text) in
            [(L2Facts::Warm, r#""warm""#), (cold, r#"{"cold":{"flushed_bytes":104857600,"cache":"told"}}"#)]
        {
            assert_eq!(serde_json::to_string(&facts).unwrap(), text);
            assert_eq!(serde_json::from_str::<L2Facts>(text).unwrap(), facts);
        }
        assert_eq!(
            "hot".parse::<L2>().unwrap_err().to_string(),
            "\"hot\" is no state of the L2 cache; there are warm and cold"
        );
    }

    #[test]
    fn a_flush_writes_all_of_its_buffer() {
        for device in [Device::emulator(EmulatorSchedule::InOrder), Device::cpu()] {
            let mut flush = Flush::of(&device, L2::Cold).unwrap().unwrap();
            for word in [1, 2] {
                flush.run().unwrap();
                let words = match &flush.over {
                    Over::Device(buffer) => buffer.to_vec().unwrap(),
                    Over::Processor(words) => words.clone(),
                };
                let L2Facts::Cold { flushed_bytes, .. } = L2Facts::of(&device, L2::Cold) else { panic!() };
                assert_eq!(words.len() as u64 * 4, flushed_bytes);
                assert!(words.iter().all(|&found| found == word), "{device}: not all are {word}");
            }
            assert!(Flush::of(&device, L2::Warm).unwrap().is_none());
        }
    }

    /// Calls of a device that a measurement of nothing makes.
    fn asked(l2: L2, min_calls: u32) -> u64 {
        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        let sampling = Sampling { warm_up_calls: 3, min_batches: 2, min_calls, l2, ..Sampling::SMOKE };
        let timing = measure(&device, sampling, || Ok::<(), DeviceError>(())).unwrap();
        assert!(timing.calls >= min_calls);
        faults.calls()
    }

    #[test]
    fn a_write_is_queued_before_each_cold_call() {
        // Three more calls each: a write, and a mark on either side.
        assert_eq!(asked(L2::Cold, 9) - asked(L2::Cold, 5), 3 * 4);
        // Four of nine calls more are in the same two batches.
        assert_eq!(asked(L2::Warm, 20), asked(L2::Warm, 19));

        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        let sampling = Sampling { l2: L2::Cold, ..Sampling::SMOKE };
        let mut flush = Flush::of(&device, L2::Cold).unwrap().unwrap();
        faults.plan(0, Fault::Refused);
        assert!(flush.run().is_err(), "a write that fails is no flush");
        assert_eq!(faults.clear().len(), 1);
        faults.plan(0, Fault::Sticky);
        let mut ran = 0;
        let result = measure(&device, sampling, || {
            ran += 1;
            Ok::<(), DeviceError>(())
        });
        assert!(result.is_err() && ran == 0, "{ran} calls without room for the flush");
    }
}

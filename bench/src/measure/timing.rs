//! How long calls take, on the device's own clock.
//!
//! Calls are queued back to back in batches, a mark of the device before and after each batch
//! ([`Device::record`]): CUDA events on a GPU, the host's clock where a call returns when its work is done. A
//! batch's time divided by its calls is one sample. Batches are queued without waiting for the one before, so
//! that a GPU is never idle between them for want of work.
//!
//! With a cold cache ([`L2::Cold`]) every call is a batch of its own, and before its first mark the cache is filled
//! with other data.

use windrow::{Device, DeviceError};

use super::l2::{Flush, L2};
use super::statistics::Statistics;

/// Calls below this many microseconds are timed ten a batch.
const SHORT_US: f64 = 1_000.0;
/// Calls above this many microseconds are timed two a batch.
const LONG_US: f64 = 5_000.0;

/// How much is measured. The default is what published numbers should use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Calls before the first timed one.
    pub warm_up_calls: u32,
    /// Microseconds that further calls before the first timed one take, by what a call takes at first: the clock of a
    /// GPU that had nothing to do, while the host made a plan, needs some milliseconds to rise.
    pub warm_up_us: u32,
    /// Batches that are timed at least, however long they take.
    pub min_batches: u32,
    /// Timed calls at least, all batches together.
    pub min_calls: u32,
    /// What the L2 cache holds when a timed call begins.
    pub l2: L2,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { warm_up_calls: 5, warm_up_us: 20_000, min_batches: 9, min_calls: 20, l2: L2::Warm }
    }
}

impl Sampling {
    /// One batch after one warm-up call: enough to see that everything runs, not to compare.
    pub const SMOKE: Self =
        Self { warm_up_calls: 1, warm_up_us: 0, min_batches: 1, min_calls: 1, l2: L2::Warm };

    /// As much, of calls that begin with such a cache.
    #[must_use]
    pub const fn with_l2(self, l2: L2) -> Self {
        Self { l2, ..self }
    }

    /// Calls of a batch, for calls of about `call_us` microseconds: 10 below a millisecond, 5 up to five
    /// milliseconds, 2 above; never more than [`min_calls`](Self::min_calls). With a cold cache, 1.
    #[must_use]
    pub fn calls_per_batch(&self, call_us: f64) -> u32 {
        let calls = match (self.l2, call_us) {
            (L2::Cold, _) => 1,
            (_, us) if us < SHORT_US => 10,
            (_, us) if us <= LONG_US => 5,
            _ => 2,
        };
        calls.min(self.min_calls.max(1))
    }

    /// Calls that are still to be made before a timed one, of about `call_us` microseconds each, after the
    /// [first](Self::warm_up_calls); calls below a microsecond count as one.
    fn warm_up_after(&self, call_us: f64) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no more than microseconds"
        )]
        let calls = (f64::from(self.warm_up_us) / call_us.max(1.0)).ceil() as u32;
        calls
    }

    /// Batches of `calls` calls.
    #[must_use]
    pub fn batches(&self, calls: u32) -> u32 {
        self.min_batches.max(self.min_calls.div_ceil(calls.max(1))).max(1)
    }
}

/// The time of one call.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Timing {
    /// Median over the batches, in microseconds a call.
    pub median_us: f64,
    /// The quickest batch, in microseconds a call.
    pub min_us: f64,
    /// The slowest batch, in microseconds a call.
    pub max_us: f64,
    /// [`Statistics::noise`] of the batches.
    pub noise: f64,
    /// Batches that were timed.
    pub batches: u32,
    /// Timed calls, all batches together.
    pub calls: u32,
}

/// Times `call`, which queues one unit of work on `device`.
///
/// Warms up, with a short batch that tells how long a call takes, then takes the batches that `sampling` asks for.
/// Buffers stay the same from call to call, so that small problems run from a warm cache, unless [`Sampling::l2`] is
/// cold: then a buffer of twice the L2 cache's size is written before each timed call, outside of its time. The CPU's
/// caches are filled as far as 128 MiB do that; the emulator has none.
///
/// # Errors
/// The first error of `call`, or the device's: with a cold cache there must be room for that buffer.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceError};
/// use windrow_bench::measure::{Sampling, measure};
///
/// let mut sum = 0u64;
/// let timing = measure(&Device::cpu(), Sampling::default(), || {
///     sum += std::hint::black_box(1);
///     Ok::<(), DeviceError>(())
/// })?;
/// assert!(timing.calls >= 20 && timing.min_us <= timing.median_us);
/// # Ok::<(), DeviceError>(())
/// ```
pub fn measure<E: From<DeviceError>>(
    device: &Device,
    sampling: Sampling,
    mut call: impl FnMut() -> Result<(), E>,
) -> Result<Timing, E> {
    let mut flush = Flush::of(device, sampling.l2)?;
    for _ in 0..sampling.warm_up_calls {
        call()?;
    }
    let mut batch = |calls: u32| -> Result<_, E> {
        flush.as_mut().map_or(Ok(()), Flush::run)?;
        let start = device.record()?;
        for _ in 0..calls {
            call()?;
        }
        Ok((start, device.record()?))
    };
    let pilot_calls = 2.min(sampling.min_calls.max(1));
    let (start, end) = batch(pilot_calls)?;
    let pilot_us = start.elapsed_us(&end)? / f64::from(pilot_calls);
    batch(sampling.warm_up_after(pilot_us))?;
    let calls = sampling.calls_per_batch(pilot_us);
    let marks = (0..sampling.batches(calls)).map(|_| batch(calls)).collect::<Result<Vec<_>, E>>()?;
    let samples = marks
        .iter()
        .map(|(start, end)| Ok(start.elapsed_us(end)? / f64::from(calls)))
        .collect::<Result<Vec<f64>, DeviceError>>()?;
    let batches = sampling.batches(calls);
    let Statistics { median, min, max, noise } =
        Statistics::of(&samples).unwrap_or(Statistics { median: 0.0, min: 0.0, max: 0.0, noise: 0.0 });
    Ok(Timing { median_us: median, min_us: min, max_us: max, noise, batches, calls: batches * calls })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn batches_follow_the_length_of_a_call() {
        let sampling = Sampling::default();
        for (call_us, calls, batches) in
            [(0.0, 10, 9), (999.0, 10, 9), (1_000.0, 5, 9), (5_000.0, 5, 9), (5_001.0, 2, 10), (1e9, 2, 10)]
        {
            assert_eq!(
                (sampling.calls_per_batch(call_us), sampling.batches(calls)),
                (calls, batches),
                "{call_us}"
            );
            assert!(calls * batches >= 20);
        }
        assert_eq!((Sampling::SMOKE.calls_per_batch(1.0), Sampling::SMOKE.batches(1)), (1, 1));
        // A cold call is timed alone, and as many are.
        let cold = sampling.with_l2(L2::Cold);
        assert!([1.0, 2_000.0, 9_000.0].iter().all(|&us| cold.calls_per_batch(us) == 1));
        assert_eq!((cold.batches(1), Sampling::SMOKE.with_l2(L2::Cold).batches(1)), (20, 1));
    }

    #[test]
    fn calls_are_counted_and_their_time_is_seen() {
        let mut calls = 0;
        let wait = Duration::from_micros(200);
        let sampling = Sampling { warm_up_calls: 3, min_batches: 2, min_calls: 4, ..Sampling::SMOKE };
        let timing = measure(&Device::cpu(), sampling, || {
            calls += 1;
            let start = Instant::now();
            while start.elapsed() < wait {}
            Ok::<(), DeviceError>(())
        })
        .unwrap();
        assert_eq!((timing.batches, timing.calls), (2, 8));
        assert_eq!(calls, 3 + 2 + 8);
        assert!(
            timing.min_us >= 200.0 && timing.min_us <= timing.median_us && timing.median_us <= timing.max_us
        );
    }

    #[test]
    fn an_error_of_a_call_ends_the_measurement() {
        let failure = DeviceError::NoDriver;
        let result = measure(&Device::cpu(), Sampling::SMOKE, || Err::<(), _>(failure.clone()));
        assert_eq!(result, Err(failure));
    }
}

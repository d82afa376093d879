//! Pieces of work that may do for each other, timed on the device that will do it.

use crate::device::{Device, DeviceKind};
use crate::error::DeviceError;
use crate::predict::weigh::Candidate;

/// Microseconds that a batch of runs should take, the most runs of one, and batches.
const BATCH_US: f64 = 2000.0;
const MOST_RUNS: f64 = 50.0;
const BATCHES: u32 = 3;

/// Microseconds of each of `count` pieces of work, the least of a few batches, which take turns; nothing on a device
/// without time, where each is run once. `run` queues one piece in the device's own stream.
///
/// # Errors
/// Those of `run` and of the device.
pub(crate) fn in_turns<E: From<DeviceError>>(
    device: &Device,
    count: usize,
    mut run: impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let mut batch = |of: usize, runs: u32| -> Result<f64, E> {
        let start = device.record()?;
        for _ in 0..runs {
            run(of)?;
        }
        let end = device.record()?;
        Ok(start.elapsed_us(&end)? / f64::from(runs))
    };
    let mut least = vec![0.0; count];
    for of in 0..count {
        batch(of, 1)?; // loads the kernels
    }
    if device.kind() == DeviceKind::Emulator {
        return Ok(least);
    }
    for (of, least) in least.iter_mut().enumerate() {
        *least = batch(of, 1)?;
    }
    let runs: Vec<u32> = least.iter().copied().map(runs_of_batch).collect();
    for _ in 0..BATCHES {
        for (of, (least, &runs)) in least.iter_mut().zip(&runs).enumerate() {
            *least = batch(of, runs)?.min(*least);
        }
    }
    Ok(least)
}

/// Runs that fill a batch, if one takes so many microseconds.
fn runs_of_batch(us: f64) -> u32 {
    let runs = (BATCH_US / us.max(1.0)).clamp(1.0, MOST_RUNS);
    (1..=50).take_while(|&count| f64::from(count) <= runs).count().try_into().unwrap_or(1)
}

/// How many times as long as the quickest a path may be predicted to take, to be timed beside it. Predicted times are
/// within a factor of 1.1 to 1.3 of measured ones.
const WITHIN: f64 = 2.0;

/// The first two of predicted times, which ascend, if it is worth while to time both.
pub(crate) fn two_best(predicted_us: &[f64]) -> bool {
    matches!(predicted_us, [first, second, ..] if *second <= WITHIN * first)
}

/// The plan of the two best candidates that took less time, and how that is told.
pub(crate) fn quicker<P>([first, last]: [P; 2], weighed: &[Candidate], us: &[f64]) -> (P, String) {
    let told = |of: usize| {
        let Candidate { algorithm, precision, .. } = &weighed[of];
        format!("{algorithm} in {precision}: {:.1} µs", us[of])
    };
    let (plan, [taken, other]) = if us[1] < us[0] { (last, [1, 0]) } else { (first, [0, 1]) };
    (plan, format!("timed to be quickest: {}, {}", told(taken), told(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_short_and_never_empty() {
        assert_eq!([0.0, 30.0, 900.0, 5e6].map(runs_of_batch), [50, 50, 2, 1]);
    }

    #[test]
    fn what_is_far_behind_is_not_tried() {
        assert!(two_best(&[2.0, 4.0]) && two_best(&[2.0, 2.0, 9.0]));
        assert!(!two_best(&[2.0, 4.1]) && !two_best(&[2.0]) && !two_best(&[]));
    }

    #[test]
    fn each_is_run_and_the_first_error_ends_it() {
        let mut runs = [0; 3];
        let times = in_turns(&Device::cpu(), 3, |of| {
            runs[of] += 1;
            Ok::<_, DeviceError>(())
        });
        assert!(times.unwrap().iter().all(|us| us.is_finite()));
        assert!(runs.iter().all(|&runs| runs > 3), "{runs:?}");
        let error = DeviceError::NoDriver;
        let failed = in_turns(&Device::cpu(), 2, |of| if of == 1 { Err(error.clone()) } else { Ok(()) });
        assert_eq!(failed.unwrap_err(), error);
    }
}

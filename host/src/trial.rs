//! Pieces of work that may do for each other, timed on the device that will do it.

use crate::device::{Device, DeviceKind};
use crate::error::{DeviceError, FamilyError};
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

/// A trial of the two candidates that are predicted to be quickest.
pub(crate) struct Trial<'a> {
    /// Whether the caller asked for one.
    pub(crate) asked: bool,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) expected_runs: Option<u64>,
    /// Extent of the dense operands: the width of a product, or the inner dimension of a sampled one.
    pub(crate) columns: usize,
    /// What was weighed, the quickest first.
    pub(crate) weighed: &'a [Candidate],
}

/// What came of a trial.
pub(crate) enum Tried<P> {
    /// The plan that took less time, and the reason to take it: both times.
    Quicker(P, String),
    /// What decided without a trial stands; half a sentence to follow its reason, as [`Trial::obstacle`] has it.
    Untimed(String),
}

impl Trial<'_> {
    /// Why there is no trial, as half a sentence that follows the reason for a plan, and is empty where nobody asked
    /// for a trial; `None` if there is one.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if !self.asked {
            return Some(String::new());
        }
        let why = match self.weighed {
            _ if self.memory_limit.is_some() => "there is a memory limit".to_owned(),
            _ if self.expected_runs.is_some() => "the runs to expect are given".to_owned(),
            _ if self.columns == 0 => "products of 0 columns take no time".to_owned(),
            [] | [_] => "no other path was weighed".to_owned(),
            [first, second, ..] if second.predicted_us > WITHIN * first.predicted_us => {
                let times = second.predicted_us / first.predicted_us;
                format!("the next is predicted to take {times:.1} times as long")
            }
            _ => return None,
        };
        Some(format!("; not timed: {why}"))
    }

    /// Makes the plans of the two best candidates, times a product by each, and keeps the quicker.
    ///
    /// # Errors
    /// Those of `plan_of` and `time`. Want of memory, and what is too large for kernels, is none: a plan without a
    /// trial needs less, so that what decided without one stands.
    pub(crate) fn run<P, E: FamilyError>(
        &self,
        plan_of: impl Fn(&Candidate) -> Result<P, E>,
        time: impl FnOnce(&[P; 2]) -> Result<Vec<f64>, E>,
    ) -> Result<Tried<P>, E> {
        if let Some(untimed) = self.obstacle() {
            return Ok(Tried::Untimed(untimed));
        }
        let both = || {
            let plans = [plan_of(&self.weighed[0])?, plan_of(&self.weighed[1])?];
            let us = time(&plans)?;
            Ok((plans, us))
        };
        match both() {
            Ok((plans, us)) => {
                let (plan, reason) = quicker(plans, self.weighed, &us);
                Ok(Tried::Quicker(plan, reason))
            }
            Err(error) if E::lacks_room(&error) => {
                Ok(Tried::Untimed(format!("; not timed, for want of room: {error}")))
            }
            Err(error) => Err(error),
        }
    }
}

/// The plan of the two best candidates that took less time, and how that is told.
fn quicker<P>([first, last]: [P; 2], weighed: &[Candidate], us: &[f64]) -> (P, String) {
    let told = |of: usize| {
        let Candidate { algorithm, precision, .. } = &weighed[of];
        format!("{algorithm} in {precision}: {:.1} µs", us[of])
    };
    let (plan, [taken, other]) = if us[1] < us[0] { (last, [1, 0]) } else { (first, [0, 1]) };
    (plan, format!("timed to be quickest: {}, {}", told(taken), told(other)))
}

#[cfg(test)]
mod tests {
    use windrow_formats::{FormatError, OutOfMemory};

    use super::*;
    use crate::error::{PlanError, SddmmError};
    use crate::options::Precision;
    use crate::predict::Kind;
    use crate::predict::weigh::Known;

    #[test]
    fn batches_are_short_and_never_empty() {
        assert_eq!([0.0, 30.0, 900.0, 5e6].map(runs_of_batch), [50, 50, 2, 1]);
    }

    fn candidates(predicted_us: &[f64]) -> Vec<Candidate> {
        let of = |&predicted_us: &f64| Candidate {
            algorithm: "entries".to_owned(),
            precision: Precision::F32,
            predicted_us,
            known: Known::Exactly,
            kind: Kind::SampledEntries,
        };
        predicted_us.iter().map(of).collect()
    }

    fn trial(weighed: &[Candidate]) -> Trial<'_> {
        Trial { asked: true, memory_limit: None, expected_runs: None, columns: 4, weighed }
    }

    #[test]
    fn a_trial_that_is_not_made_says_why() {
        let why = |predicted_us: &[f64]| trial(&candidates(predicted_us)).obstacle();
        assert_eq!([why(&[2.0, 4.0]), why(&[2.0, 2.0, 9.0])], [None, None]);
        let far = "; not timed: the next is predicted to take 2.5 times as long";
        assert_eq!(why(&[2.0, 5.0]).as_deref(), Some(far));
        let alone = "; not timed: no other path was weighed";
        assert_eq!([why(&[2.0]).as_deref(), why(&[]).as_deref()], [Some(alone); 2]);
        let level = candidates(&[2.0, 2.0]);
        for (trial, why) in [
            (Trial { memory_limit: Some(1 << 30), ..trial(&level) }, "; not timed: there is a memory limit"),
            (Trial { expected_runs: Some(9), ..trial(&level) }, "; not timed: the runs to expect are given"),
            (Trial { columns: 0, ..trial(&level) }, "; not timed: products of 0 columns take no time"),
            (Trial { asked: false, ..trial(&level) }, ""),
        ] {
            assert_eq!(trial.obstacle().as_deref(), Some(why));
        }
    }

    /// What a trial makes of plans that are numbers, if the second cannot be made or they cannot be timed.
    fn tried(second: Result<u32, PlanError>, us: Result<Vec<f64>, PlanError>) -> Result<String, PlanError> {
        let weighed = candidates(&[2.0, 3.0]);
        let plan_of = |of: &Candidate| if of.predicted_us < 2.5 { Ok(1) } else { second.clone() };
        let both = trial(&weighed).run(
            |of| plan_of(of).map_err(SddmmError::from),
            |&plans| {
                assert_eq!(plans, [1, 2]);
                us.map_err(SddmmError::from)
            },
        );
        match both {
            Ok(Tried::Quicker(plan, why)) => Ok(format!("{plan}: {why}")),
            Ok(Tried::Untimed(why)) => Ok(why),
            Err(SddmmError::Plan(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_quicker_is_kept() {
        let timed = "timed to be quickest: entries in f32:";
        assert_eq!(
            tried(Ok(2), Ok(vec![7.0, 8.0])),
            Ok(format!("1: {timed} 7.0 µs, entries in f32: 8.0 µs"))
        );
        assert_eq!(
            tried(Ok(2), Ok(vec![7.0, 6.0])),
            Ok(format!("2: {timed} 6.0 µs, entries in f32: 7.0 µs"))
        );
    }

    #[test]
    fn only_want_of_room_leaves_a_trial_out() {
        let (what, device) = ("entries", "cuda:0".to_owned());
        let (call, name, message) = ("cuLaunchKernel", "CUDA_ERROR_OUT_OF_MEMORY", String::new());
        for room in [
            DeviceError::Driver { call, name: name.to_owned(), message }.into(),
            DeviceError::Jit { code: name.to_owned(), log: String::new() }.into(),
            PlanError::TooLarge { what, found: 9, limit: 8, remedy: "split them" },
            FormatError::TooManyTiles { tiles: 1 << 32 }.into(),
            OutOfMemory { what, bytes: 1 << 40 }.into(),
            DeviceError::OutOfMemory { what, asked: 9, free: 8, total: 10, device }.into(),
            DeviceError::HostMemory(OutOfMemory { what, bytes: 1 << 40 }).into(),
            DeviceError::Grid { kernel: "k", x: 1 << 31, y: 1 }.into(),
        ] {
            let told = Ok(format!("; not timed, for want of room: {room}"));
            assert_eq!(tried(Err(room.clone()), Ok(Vec::new())), told);
            assert_eq!(tried(Ok(2), Err(room)), told);
        }
        let (name, message) = ("CUDA_ERROR_UNKNOWN".to_owned(), "broken".to_owned());
        for error in [
            DeviceError::Jit { code: name.clone(), log: message.clone() }.into(),
            PlanError::MatrixChanged,
            DeviceError::NoDriver.into(),
            DeviceError::Driver { call, name: name.clone(), message: message.clone() }.into(),
            DeviceError::Lost { call, name, message }.into(),
            DeviceError::MissingEntry { name: "k" }.into(),
            FormatError::FirstOffset { found: 1 }.into(),
        ] {
            assert_eq!(tried(Err(error.clone()), Ok(Vec::new())), Err(error.clone()));
            assert_eq!(tried(Ok(2), Err(error.clone())), Err(error));
        }
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

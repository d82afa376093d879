//! Whether two times differ.

use std::fmt;

use serde::Serialize;

use crate::reading::Time;

/// The least relative noise of a record: batches of one run lie closer together than runs do. Of 248 pairs of the same
/// product in two places of one run (bench/results, ablation.jsonl) 22 % differ by more than two standard deviations of
/// the batches alone, and 3 % with this floor.
const FLOOR: f64 = 0.01;
/// Of a record that holds no noise.
const ASSUMED: f64 = 0.05;
/// Standard deviations to either side.
const DEVIATIONS: f64 = 2.0;

/// What a ratio and its interval say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Fast,
    Slow,
    Same,
    Undecided,
}

impl Verdict {
    pub(super) const ALL: [Self; 4] = [Self::Fast, Self::Slow, Self::Same, Self::Undecided];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fast => "FAST",
            Self::Slow => "SLOW",
            Self::Same => "SAME",
            Self::Undecided => "undecided",
        })
    }
}

/// The new time over the old one, and what noise leaves of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Judgement {
    pub(super) ratio: f64,
    /// Where the ratio may lie.
    pub(super) interval: [f64; 2],
    /// Whether a record holds no noise, so that it was assumed.
    pub(super) assumed: bool,
    pub(super) verdict: Verdict,
}

impl Judgement {
    /// Of two times; what is within the share `same` of 1 is no difference.
    pub(super) fn of(old: &Time, new: &Time, same: f64) -> Self {
        let ratio = new.us / old.us;
        let noise = |time: &Time| time.noise.map_or(ASSUMED, |noise| noise.max(FLOOR));
        let spread = (DEVIATIONS * noise(old).hypot(noise(new))).exp();
        let interval @ [low, high] = [ratio / spread, ratio * spread];
        let verdict = match () {
            () if low >= 1.0 / (1.0 + same) && high <= 1.0 + same => Verdict::Same,
            () if high < 1.0 => Verdict::Fast,
            () if low > 1.0 => Verdict::Slow,
            () => Verdict::Undecided,
        };
        Self { ratio, interval, assumed: old.noise.is_none() || new.noise.is_none(), verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(old: (f64, Option<f64>), new: (f64, Option<f64>)) -> Judgement {
        let time = |(us, noise)| Time { noise, ..Time::median(us) };
        Judgement::of(&time(old), &time(new), 0.05)
    }

    #[test]
    fn noise_decides() {
        let quiet = Some(0.0);
        let verdict = |us, noise| judged((100.0, quiet), (us, noise)).verdict;
        assert_eq!(verdict(100.0, quiet), Verdict::Same);
        assert_eq!(verdict(102.0, quiet), Verdict::Same);
        // 1.04 ± 2.9 % is above 1, and may be above 1.05.
        assert_eq!(verdict(104.0, quiet), Verdict::Slow);
        assert_eq!(verdict(96.0, quiet), Verdict::Fast);
        assert_eq!(verdict(104.0, Some(0.05)), Verdict::Undecided);
        assert_eq!(verdict(130.0, Some(0.05)), Verdict::Slow);
        assert_eq!(verdict(100.0, Some(0.05)), Verdict::Undecided);
    }

    #[test]
    fn the_interval_is_two_deviations_of_both() {
        let Judgement { ratio, interval, assumed, .. } = judged((10.0, Some(0.03)), (20.0, Some(0.04)));
        assert!(ratio == 2.0 && !assumed);
        assert!((interval[0] - 2.0 / 0.1f64.exp()).abs() < 1e-12, "{interval:?}");
        assert!((interval[1] - 2.0 * 0.1f64.exp()).abs() < 1e-12, "{interval:?}");
    }

    #[test]
    fn without_noise_much_is_undecided() {
        let judgement = judged((100.0, None), (110.0, Some(0.0)));
        assert_eq!((judgement.verdict, judgement.assumed), (Verdict::Undecided, true));
        assert_eq!(judged((100.0, None), (125.0, None)).verdict, Verdict::Slow);
    }
}

//! The descent to the thresholds that lose least.

use rayon::prelude::*;
use windrow::internal::GroupThresholds;

use super::FitCase;

/// One threshold: its name, where it is, and the values that are tried.
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) place: fn(&mut GroupThresholds) -> &mut f64,
    values: &'static [f64],
}

macro_rules! axes {
    ($($name:ident: $values:expr),+ $(,)?) => {
        pub(super) const AXES: &[Axis] = &[$(Axis {
            name: stringify!($name),
            place: |thresholds| &mut thresholds.$name,
            values: &$values,
        }),+];
    };
}

pub(super) const ALWAYS: f64 = f64::INFINITY;

axes! {
    entries_each: [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0],
    threads: [16e3, 32e3, 64e3, 96e3, 135e3, 190e3, 270e3, 400e3, 540e3, 1080e3],
    most_for_want: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    longest_each: [8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0],
    alike: [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
    longest_of_alike_each: [64.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0],
    groups: [8192.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0, 524288.0],
    most_each: [1.0, 2.0, 4.0, 8.0, 16.0],
    most_lanes: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    small_blocks: [0.0, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, ALWAYS],
    large_blocks: [0.0, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6, ALWAYS],
    widest_rows: [4.0, 8.0, 16.0, 32.0],
    widest_nonzeros: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
}

/// What is better by less than this is not better.
const BETTER: f64 = 1e-5;

/// The mean of `ln x + 2·ln² x` of the losses `x`: one case that is far behind weighs more than many that are a little.
fn objective(cases: &[&FitCase], thresholds: &GroupThresholds) -> f64 {
    let of_case = |case: &&FitCase| {
        let ln = case.loss(thresholds).ln();
        ln + 2.0 * ln * ln
    };
    cases.iter().map(of_case).sum::<f64>() / cases.len().max(1) as f64
}

/// The thresholds that lose least: from `start`, and from there with every number of lanes, which goes with most of the
/// others, two thresholds at a time to any of their values, as long as that is better.
pub(super) fn fit_cases(cases: &[&FitCase], start: &GroupThresholds) -> GroupThresholds {
    let lanes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|most_lanes| GroupThresholds { most_lanes, ..*start });
    let fits: Vec<_> = lanes.par_iter().chain([start]).map(|&from| descend(cases, from)).collect();
    let best = fits.into_iter().reduce(|best, next| if next.1 < best.1 - BETTER { next } else { best });
    best.map_or(*start, |(thresholds, _)| thresholds)
}

/// The thresholds at the end of the descent from some, and their objective.
fn descend(cases: &[&FitCase], from: GroupThresholds) -> (GroupThresholds, f64) {
    let mut best = (from, objective(cases, &from));
    loop {
        let before = best.1;
        for (at, first) in AXES.iter().enumerate() {
            for second in &AXES[at + 1..] {
                for &a in first.values {
                    for &b in second.values {
                        let mut next = best.0;
                        *(first.place)(&mut next) = a;
                        *(second.place)(&mut next) = b;
                        let loss = objective(cases, &next);
                        if loss < best.1 - BETTER {
                            best = (next, loss);
                        }
                    }
                }
            }
        }
        if best.1 >= before {
            return best;
        }
    }
}

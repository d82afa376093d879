//! The search against made-up times and a made-up clock.

use std::collections::HashMap;

use super::*;

type Candidate = (i32, i32);

/// Candidates on a grid, with a time each and a clock that every batch moves on.
struct Grid {
    us: fn(Candidate) -> f64,
    wrong: Vec<Candidate>,
    broken: Vec<Candidate>,
    clock: Duration,
    batches: HashMap<Candidate, u32>,
    verified: Vec<Candidate>,
}

const SIZE: i32 = 16;
const BATCH: Duration = Duration::from_millis(10);

fn grid(us: fn(Candidate) -> f64) -> Grid {
    let (wrong, broken, verified) = (Vec::new(), Vec::new(), Vec::new());
    Grid { us, wrong, broken, clock: Duration::ZERO, batches: HashMap::new(), verified }
}

impl Subject for Grid {
    type Candidate = Candidate;
    type Family = bool;

    fn family(&self, (_, y): Candidate) -> bool {
        y >= SIZE / 2
    }

    fn neighbours(&self, (x, y): Candidate) -> Vec<Candidate> {
        let near = [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)];
        near.into_iter().filter(|&(x, y)| (0..SIZE).contains(&x) && (0..SIZE).contains(&y)).collect()
    }

    fn sample(&mut self, candidate: Candidate, batches: u32) -> Result<Vec<f64>, BenchError> {
        if self.broken.contains(&candidate) {
            return Err(BenchError::Rates { what: "candidate", problem: "broken".to_owned() });
        }
        self.clock += BATCH * batches;
        *self.batches.entry(candidate).or_default() += batches;
        Ok(vec![(self.us)(candidate); batches as usize])
    }

    fn verify(&mut self, candidate: Candidate) -> Result<f64, BenchError> {
        self.clock += BATCH;
        self.verified.push(candidate);
        match self.wrong.contains(&candidate) {
            true => Err(BenchError::Wrong(windrow::Verification {
                worst_ratio: 7.0,
                worst_row: 0,
                worst_col: 0,
                failures: 1,
                checked: 1,
            })),
            false => Ok(0.5),
        }
    }

    fn elapsed(&self) -> Duration {
        self.clock
    }
}

/// A valley with its bottom at (11, 3).
fn valley((x, y): Candidate) -> f64 {
    10.0 + f64::from((x - 11).pow(2) + (y - 3).pow(2)) * 0.2
}

fn hour() -> Limits {
    Limits { budget: Duration::from_secs(3600), ..Limits::default() }
}

#[test]
fn the_bottom_of_a_valley_is_found() {
    let mut subject = grid(valley);
    let found = search(&mut subject, (2, 6), &[(4, 12)], &hour()).unwrap();
    let (winner, us) = found.winner.as_ref().unwrap();
    assert_eq!((*winner, us.median), ((11, 3), 10.0));
    assert!((found.speed_up() - 28.0 / 10.0).abs() < 1e-9 && found.default_us.median == 28.0);
    assert!(matches!(found.ended, Ended::Exhausted | Ended::Settled));
    assert!(found.tried.len() < 80, "{} of 256 tried", found.tried.len());
    assert_eq!(found.tried[0].candidate, (2, 6));
    assert_eq!(found.spent, subject.clock);
}

#[test]
fn nothing_is_tried_twice() {
    let found = search(&mut grid(valley), (2, 6), &[(2, 6), (4, 4), (4, 4)], &hour()).unwrap();
    let mut candidates: Vec<_> = found.tried.iter().map(|tried| tried.candidate).collect();
    candidates.sort_unstable();
    candidates.dedup();
    assert_eq!(candidates.len(), found.tried.len());
}

#[test]
fn the_budget_is_kept_whatever_it_is() {
    for millis in [0, 50, 300, 1000, 3000] {
        let limits = Limits { budget: Duration::from_millis(millis), ..Limits::default() };
        let mut subject = grid(valley);
        let found = search(&mut subject, (0, 15), &[(1, 14), (8, 8)], &limits).unwrap();
        // The default, one candidate more that was begun in time, and three rounds of four.
        let at_least = BATCH * (4 + 4 + 3 * 4);
        assert!(subject.clock <= limits.budget + at_least, "{millis} ms: {:?}", subject.clock);
        if millis < 1000 {
            assert_eq!(found.ended, Ended::Budget, "{millis} ms");
        }
    }
}

#[test]
fn the_hopeless_are_given_up_after_one_batch_and_not_verified() {
    // Beyond x = 3 everything takes twice as long and more.
    let mut subject = grid(|(x, y)| if x > 3 { 100.0 } else { 40.0 - f64::from(x + y) });
    let seeds: Vec<_> = (0..SIZE).map(|x| (x, 5)).collect();
    let found = search(&mut subject, (0, 0), &seeds, &hour()).unwrap();
    let abandoned: Vec<_> =
        found.tried.iter().filter(|tried| matches!(tried.outcome, Outcome::Abandoned { .. })).collect();
    assert!(abandoned.len() >= 12, "{abandoned:?}");
    for tried in abandoned {
        assert_eq!(tried.outcome, Outcome::Abandoned { first_us: 100.0 });
        assert!(tried.outcome.median_us().is_none());
        assert_eq!(subject.batches[&tried.candidate], 1);
        assert!(!subject.verified.contains(&tried.candidate));
    }
}

#[test]
fn each_family_has_a_time_however_slow_it_is() {
    let mut subject = grid(|(x, y)| if y >= SIZE / 2 { 900.0 } else { valley((x, y)) });
    let found = search(&mut subject, (10, 3), &[(0, 9)], &hour()).unwrap();
    let slow = found.tried.iter().find(|tried| tried.candidate == (0, 9)).unwrap();
    assert_eq!(slow.outcome.median_us(), Some(900.0));
    assert!(found.tried.iter().all(|tried| tried.candidate.1 < 9 || tried.candidate == (0, 9)));
}

#[test]
fn what_is_wrong_or_broken_never_wins() {
    let mut subject = grid(valley);
    subject.wrong = vec![(11, 3)];
    subject.broken = vec![(10, 3)];
    let found = search(&mut subject, (2, 6), &[], &hour()).unwrap();
    let (winner, _) = found.winner.unwrap();
    assert!(matches!(winner, (12, 3) | (11, 2 | 4)), "{winner:?}");
    assert!(subject.verified.contains(&winner));
    let outcome = |candidate| &found.tried.iter().find(|tried| tried.candidate == candidate).unwrap().outcome;
    assert!(matches!(outcome((11, 3)), Outcome::Wrong(why) if why.contains("wrong")));
    assert!(matches!(outcome((10, 3)), Outcome::Failed(why) if why.contains("broken")));
    for tried in &found.tried {
        assert!(tried.outcome.median_us().is_none() || subject.verified.contains(&tried.candidate));
    }
    let mut subject = grid(valley);
    subject.wrong = vec![(2, 6)];
    assert!(matches!(search(&mut subject, (2, 6), &[], &hour()), Err(BenchError::Wrong(_))));
}

#[test]
fn the_default_stays_unless_something_is_measurably_quicker() {
    assert!(search(&mut grid(valley), (11, 3), &[], &hour()).unwrap().winner.is_none());
    let flat = |(x, _): Candidate| if x == 3 { 9.9 } else { 10.0 };
    let found = search(&mut grid(flat), (2, 6), &[], &hour()).unwrap();
    assert!(found.winner.is_none() && found.speed_up() == 1.0, "one per cent is noise");
}

#[test]
fn a_search_settles_when_nothing_is_better_for_long() {
    let limits = Limits { patience: 5, ..hour() };
    let found = search(&mut grid(|_| 10.0), (8, 3), &[], &limits).unwrap();
    assert_eq!((found.ended, found.tried.len()), (Ended::Settled, 6));
}

#[test]
fn a_survey_times_everything() {
    let mut subject = grid(|(x, _)| if x > 3 { 100.0 } else { 10.0 });
    subject.wrong = vec![(2, 0)];
    let candidates: Vec<_> = (0..8).map(|x| (x, 0)).collect();
    let tried = survey(&mut subject, &candidates, 4);
    assert_eq!(tried.iter().filter(|tried| tried.outcome.median_us().is_some()).count(), 7);
    assert!(candidates.iter().all(|candidate| subject.batches[candidate] == 4));
}

//! The search itself: what is tried, in which order, when it is given up, and who wins. Pure: time comes from outside.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::measure::error::BenchError;
use crate::measure::statistics::Statistics;

/// What is searched: candidates that can be timed and checked, a clock, and who is next to whom.
pub(crate) trait Subject {
    type Candidate: Copy + PartialEq;
    /// What candidates are compared within before they are compared with all.
    type Family: Copy + Eq + Hash;

    fn family(&self, candidate: Self::Candidate) -> Self::Family;

    /// Candidates that differ in one step of one parameter.
    fn neighbours(&self, candidate: Self::Candidate) -> Vec<Self::Candidate>;

    /// Times of so many batches, in microseconds a call.
    fn sample(&mut self, candidate: Self::Candidate, batches: u32) -> Result<Vec<f64>, BenchError>;

    /// The worst error of the result in units of its bound; [`BenchError::Wrong`] beyond it.
    fn verify(&mut self, candidate: Self::Candidate) -> Result<f64, BenchError>;

    /// Time since the search began.
    fn elapsed(&self) -> Duration;

    /// Hears what is about to be timed for the first time.
    fn tell(&self, _candidate: Self::Candidate) {}
}

/// How long and how thoroughly is searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Time for the whole search, plans and checks included.
    pub budget: Duration,
    /// Times as long as the best of its family that the first batch of a candidate may take: it is given up beyond.
    pub hopeless: f64,
    /// Batches of a candidate.
    pub batches: u32,
    /// Candidates in a row that may fail to be better before the search ends.
    pub patience: u32,
    /// Quickest candidates that are timed once more, alternately with the default.
    pub finalists: usize,
    /// Rounds in which the finalists and the default are timed in turn.
    pub rounds: u32,
    /// How much quicker than the default a candidate must be to win, relative.
    pub margin: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(30),
            hopeless: 1.5,
            batches: 3,
            patience: 32,
            finalists: 3,
            rounds: 15,
            margin: 0.02,
        }
    }
}

/// Share of the budget after which nothing new is tried.
const SEARCH_SHARE: f64 = 0.8;
/// Rounds of the end that are made whatever the budget.
const LEAST_ROUNDS: u32 = 3;
/// What is better by less is not better.
const BETTER: f64 = 0.99;
/// Times as long as the best that a candidate may take to have its neighbours tried.
const WORTHWHILE: f64 = 1.15;

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its result is right, and this is its time.
    Timed {
        /// Median of its batches, in microseconds a call.
        median_us: f64,
        /// The quickest of its batches, in microseconds a call.
        min_us: f64,
        /// The worst error of its result in units of its bound.
        worst_ratio: f64,
    },
    /// It was given up after its first batch, which took this long. The result was not checked, so this counts for
    /// nothing.
    Abandoned {
        /// The first batch, in microseconds a call.
        first_us: f64,
    },
    /// Its result is wrong.
    Wrong(String),
    /// It could not be planned or run.
    Failed(String),
}

impl Outcome {
    /// The time that counts.
    #[must_use]
    pub fn median_us(&self) -> Option<f64> {
        match self {
            Self::Timed { median_us, .. } => Some(*median_us),
            _ => None,
        }
    }
}

/// A candidate, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried<C> {
    /// What was tried: for a product, a path.
    pub candidate: C,
    /// Its time, or why it has none.
    pub outcome: Outcome,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The time is spent.
    Budget,
    /// For long nothing was better.
    Settled,
    /// Everything near the best was tried.
    Exhausted,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Budget => "the time was spent",
            Self::Settled => "nothing was better for long",
            Self::Exhausted => "everything near the best was tried",
        })
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<C> {
    /// The default, timed beside the finalists.
    pub default_us: Statistics,
    /// The quickest, if it is measurably quicker than the default, timed beside it.
    pub winner: Option<(C, Statistics)>,
    /// Everything that was tried, in order; the default first.
    pub tried: Vec<Tried<C>>,
    /// Why the search ended.
    pub ended: Ended,
    /// Time that the search took.
    pub spent: Duration,
}

impl<C> Found<C> {
    /// Times as quick as the default that the winner is; 1 without one.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        self.winner.as_ref().map_or(1.0, |(_, us)| self.default_us.median / us.median)
    }
}

/// Tries `default`, then `seeds`, then what is near the best; times the best again beside the default.
///
/// # Errors
/// If the default fails or is wrong. Other candidates that do are noted and left.
pub(crate) fn search<S: Subject>(
    subject: &mut S,
    default: S::Candidate,
    seeds: &[S::Candidate],
    limits: &Limits,
) -> Result<Found<S::Candidate>, BenchError> {
    let mut search = Search::new(subject, limits);
    search.attempt(default)?;
    let ended = search.explore(seeds);
    let finalists = search.finalists(default);
    let (default_us, winner) = search.compare(default, &finalists)?;
    let spent = search.subject.elapsed();
    Ok(Found { default_us, winner, tried: search.tried, ended, spent })
}

/// Tries every candidate, and gives none up.
pub(crate) fn survey<S: Subject>(
    subject: &mut S,
    candidates: &[S::Candidate],
    batches: u32,
) -> Vec<Tried<S::Candidate>> {
    let limits = Limits { batches, hopeless: f64::INFINITY, ..Limits::default() };
    let mut search = Search::new(subject, &limits);
    for &candidate in candidates {
        search.note(candidate);
    }
    search.tried
}

struct Search<'a, S: Subject> {
    subject: &'a mut S,
    limits: &'a Limits,
    tried: Vec<Tried<S::Candidate>>,
    best: f64,
    best_of: HashMap<S::Family, f64>,
    /// Candidates since one was better.
    in_vain: u32,
}

impl<'a, S: Subject> Search<'a, S> {
    fn new(subject: &'a mut S, limits: &'a Limits) -> Self {
        let (tried, best_of) = (Vec::new(), HashMap::new());
        Self { subject, limits, tried, best: f64::INFINITY, best_of, in_vain: 0 }
    }

    /// Times a candidate, unless it is hopeless, and then checks its result.
    fn outcome(&mut self, candidate: S::Candidate) -> Result<Outcome, BenchError> {
        let mut samples = self.subject.sample(candidate, 1)?;
        let of_family = self.best_of.get(&self.subject.family(candidate)).copied();
        let first_us = samples.first().copied().unwrap_or(f64::INFINITY);
        if of_family.is_some_and(|best| first_us > self.limits.hopeless * best) {
            return Ok(Outcome::Abandoned { first_us });
        }
        if self.limits.batches > 1 {
            samples.extend(self.subject.sample(candidate, self.limits.batches - 1)?);
        }
        let worst_ratio = self.subject.verify(candidate)?;
        let Statistics { median, min, .. } = statistics(&samples);
        Ok(Outcome::Timed { median_us: median, min_us: min, worst_ratio })
    }

    /// [`outcome`](Self::outcome), noted; an error too, which is returned.
    fn attempt(&mut self, candidate: S::Candidate) -> Result<(), BenchError> {
        self.subject.tell(candidate);
        let (outcome, error) = match self.outcome(candidate) {
            Ok(outcome) => (outcome, None),
            Err(error @ BenchError::Wrong(_)) => (Outcome::Wrong(error.to_string()), Some(error)),
            Err(error) => (Outcome::Failed(error.to_string()), Some(error)),
        };
        self.in_vain += 1;
        if let Some(us) = outcome.median_us() {
            if us < self.best * BETTER {
                self.in_vain = 0;
            }
            self.best = self.best.min(us);
            let of_family = self.best_of.entry(self.subject.family(candidate)).or_insert(us);
            *of_family = of_family.min(us);
        }
        self.tried.push(Tried { candidate, outcome });
        error.map_or(Ok(()), Err)
    }

    /// [`attempt`](Self::attempt), once; a failure of the candidate ends nothing.
    fn note(&mut self, candidate: S::Candidate) {
        if self.tried.iter().all(|tried| tried.candidate != candidate) {
            // The error is in the list.
            let _ = self.attempt(candidate);
        }
    }

    fn is_late(&self) -> bool {
        self.subject.elapsed().as_secs_f64() > SEARCH_SHARE * self.limits.budget.as_secs_f64()
    }

    fn explore(&mut self, seeds: &[S::Candidate]) -> Ended {
        for &seed in seeds {
            if self.is_late() {
                return Ended::Budget;
            }
            self.note(seed);
        }
        self.in_vain = 0;
        let mut expanded = Vec::new();
        while let Some(from) = self.quickest_but(&expanded) {
            let best = self.best;
            for neighbour in self.subject.neighbours(from) {
                if self.is_late() {
                    return Ended::Budget;
                }
                if self.in_vain >= self.limits.patience {
                    return Ended::Settled;
                }
                self.note(neighbour);
                if self.best < best * BETTER {
                    break; // on from there; what is left here may come later
                }
            }
            if self.best >= best * BETTER {
                expanded.push(from);
            }
        }
        Ended::Exhausted
    }

    /// The quickest candidate that is not among `expanded`, if it is near the best.
    fn quickest_but(&self, expanded: &[S::Candidate]) -> Option<S::Candidate> {
        let (candidate, us) =
            self.ranked().into_iter().find(|(candidate, _)| !expanded.contains(candidate))?;
        (us <= WORTHWHILE * self.best).then_some(candidate)
    }

    /// All candidates with a time, the quickest first.
    fn ranked(&self) -> Vec<(S::Candidate, f64)> {
        let timed = |tried: &Tried<S::Candidate>| Some((tried.candidate, tried.outcome.median_us()?));
        let mut ranked: Vec<_> = self.tried.iter().filter_map(timed).collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranked
    }

    fn finalists(&self, default: S::Candidate) -> Vec<S::Candidate> {
        let others = self.ranked().into_iter().map(|(candidate, _)| candidate);
        others.filter(|&candidate| candidate != default).take(self.limits.finalists).collect()
    }

    /// Times the default and the finalists in turn. The winner is one that is quicker by the margin, and in three of
    /// four rounds.
    #[expect(clippy::type_complexity, reason = "the default's time, and perhaps a winner with its own")]
    fn compare(
        &mut self,
        default: S::Candidate,
        finalists: &[S::Candidate],
    ) -> Result<(Statistics, Option<(S::Candidate, Statistics)>), BenchError> {
        let mut of_default = Vec::new();
        let mut of_others = vec![Vec::new(); finalists.len()];
        for round in 0..self.limits.rounds.max(LEAST_ROUNDS) {
            if round >= LEAST_ROUNDS && self.subject.elapsed() >= self.limits.budget {
                break;
            }
            of_default.extend(self.subject.sample(default, 1)?);
            for (&candidate, samples) in finalists.iter().zip(&mut of_others) {
                samples.extend(self.subject.sample(candidate, 1)?);
            }
        }
        let default_us = statistics(&of_default);
        let wins = |samples: &Vec<f64>| {
            let rounds = samples.iter().zip(&of_default).filter(|(own, default)| own < default).count();
            let quicker = statistics(samples).median * (1.0 + self.limits.margin) < default_us.median;
            quicker && 4 * rounds >= 3 * of_default.len()
        };
        let winner = finalists
            .iter()
            .zip(&of_others)
            .filter(|(_, samples)| wins(samples))
            .map(|(&candidate, samples)| (candidate, statistics(samples)))
            .min_by(|a, b| a.1.median.total_cmp(&b.1.median));
        Ok((default_us, winner))
    }
}

fn statistics(samples: &[f64]) -> Statistics {
    Statistics::of(samples).unwrap_or(Statistics {
        median: f64::INFINITY,
        min: f64::INFINITY,
        max: f64::INFINITY,
        noise: 0.0,
    })
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;

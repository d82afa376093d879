//! Where messages for a rank lie until it fetches them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::DistError;

/// For how long a rank asks again and again before it sleeps: ranks that work alike are seldom apart for longer, and
/// waking one takes as long as a small product.
const BUSY: Duration = Duration::from_micros(100);

/// The messages for one rank, and which of the others have ended.
pub(super) struct Mailbox {
    /// The rank that fetches them.
    owner: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Of each rank, in the order in which they were sent.
    mail: Vec<VecDeque<Vec<u8>>>,
    /// Why a rank sends nothing more.
    ended: Vec<Option<String>>,
}

impl Mailbox {
    pub(super) fn new(owner: usize, ranks: usize) -> Self {
        let mail = std::iter::repeat_with(VecDeque::new).take(ranks).collect();
        Self { owner, state: Mutex::new(State { mail, ended: vec![None; ranks] }), changed: Condvar::new() }
    }

    /// A thread that panicked with the lock left whole messages behind: they are pushed and popped at once.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message of a rank.
    pub(super) fn put(&self, from: usize, message: Vec<u8>) {
        self.lock().mail[from].push_back(message);
        self.changed.notify_all();
    }

    /// A rank sends nothing more; of several reasons the first stays.
    pub(super) fn end(&self, rank: usize, reason: &str) {
        self.lock().ended[rank].get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    /// The next message of each of some ranks, which are waited for. What one sent before it ended still comes.
    ///
    /// # Errors
    /// [`DistError::RankFailed`] as soon as one of them has ended without a message, [`DistError::TimedOut`] when the
    /// time is up.
    pub(super) fn take(&self, from: &[usize], time_out: Duration) -> Result<Vec<Vec<u8>>, DistError> {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            let Some(&missing) = from.iter().find(|&&rank| state.mail[rank].is_empty()) else {
                return Ok(from.iter().filter_map(|&rank| state.mail[rank].pop_front()).collect());
            };
            let failed = |&rank: &usize| {
                let reason = state.ended[rank].as_ref().filter(|_| state.mail[rank].is_empty())?;
                Some(self.failed(rank, reason))
            };
            if let Some(error) = from.iter().find_map(failed) {
                return Err(error);
            }
            if begun.elapsed() < BUSY {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            let Some(left) = time_out.checked_sub(begun.elapsed()) else {
                return Err(DistError::TimedOut { rank: missing, waiting: self.owner, waited: time_out });
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The first of some ranks that has ended, as an error.
    pub(super) fn first_ended(&self, ranks: &[usize]) -> Option<DistError> {
        let state = self.lock();
        ranks.iter().find_map(|&rank| Some(self.failed(rank, state.ended[rank].as_ref()?)))
    }

    fn failed(&self, rank: usize, reason: &str) -> DistError {
        DistError::RankFailed { rank, waiting: self.owner, reason: reason.to_owned() }
    }
}

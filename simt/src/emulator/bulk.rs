//! Bulk copies: the counters that tell their rounds apart, and the copies of one thread.

use std::cell::RefCell;

use crate::emulator::access::Access;

/// A counter of arrivals in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// Its first byte, counted from the start of shared memory.
    pub(super) offset: u32,
    /// Threads that commit in each round.
    pub(super) threads: u32,
    /// Those that have in the round that is open.
    pub(super) committed: u32,
    /// The round that is open.
    round: u32,
}

/// The counters of a block.
#[derive(Default)]
pub(super) struct Counters(RefCell<Vec<Counter>>);

impl Counters {
    /// Adds a counter, or starts one anew.
    pub(super) fn begin(&self, offset: u32, threads: u32, block_threads: u32) -> Result<(), String> {
        if !(1..=block_threads).contains(&threads) {
            return Err(format!("threads is {threads}, which is not in 1..={block_threads}"));
        }
        let mut counters = self.0.borrow_mut();
        counters.retain(|counter| counter.offset != offset);
        counters.push(Counter { offset, threads, committed: 0, round: 0 });
        Ok(())
    }

    /// Whether there is a counter.
    pub(super) fn check(&self, offset: u32) -> Result<(), String> {
        match self.0.borrow().iter().any(|counter| counter.offset == offset) {
            true => Ok(()),
            false => Err(format!("there is no counter at byte {offset} of shared memory")),
        }
    }

    /// Counts a thread, and gives back the round that it is counted in.
    pub(super) fn commit(&self, offset: u32) -> Option<u32> {
        let mut counters = self.0.borrow_mut();
        let counter = counters.iter_mut().find(|counter| counter.offset == offset)?;
        let round = counter.round;
        counter.committed += 1;
        if counter.committed == counter.threads {
            (counter.committed, counter.round) = (0, round + 1);
        }
        Some(round)
    }

    /// A counter whose open round some threads have committed and others have not.
    pub(super) fn incomplete(&self) -> Option<Counter> {
        self.0.borrow().iter().find(|counter| counter.committed != 0).copied()
    }
}

/// 16 bytes of a copy that has not been waited for, with what it will deliver.
pub(super) struct Piece {
    pub(super) counter: u32,
    pub(super) to: u32,
    pub(super) value: [u32; 4],
    pub(super) issued: Access,
    /// `None` until it is committed.
    round: Option<u32>,
}

/// The bulk copies of one thread.
#[derive(Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    /// The last round that the thread committed, for each counter.
    last: Vec<(u32, u32)>,
}

impl Pieces {
    pub(super) fn push(&mut self, counter: u32, to: u32, value: [u32; 4], issued: Access) {
        self.pieces.push(Piece { counter, to, value, issued, round: None });
    }

    /// The oldest copy that was not waited for, and how many there are, in pieces.
    pub(super) fn unfinished(&self) -> Option<(&Access, usize)> {
        self.pieces.first().map(|first| (&first.issued, self.pieces.len()))
    }

    /// Puts what was started since the last commit into a round.
    pub(super) fn commit(&mut self, counter: u32, bytes: u32, round: u32) -> Result<(), String> {
        let open = self.pieces.iter_mut().filter(|piece| piece.counter == counter && piece.round.is_none());
        let started: u32 = open.map(|piece| piece.round = Some(round)).map(|()| 16).sum();
        if started != bytes {
            return Err(format!("bytes is {bytes}, but copies of {started} bytes were started"));
        }
        self.last.retain(|&(of, _)| of != counter);
        self.last.push((counter, round));
        Ok(())
    }

    /// Takes the copies of a round.
    pub(super) fn wait(&mut self, counter: u32, round: u32) -> Result<Vec<Piece>, String> {
        let last = self.last.iter().find(|&&(of, _)| of == counter).map(|&(_, round)| round);
        match last {
            None => return Err(format!("round is {round}, but this thread has committed none")),
            Some(last) if last != round => {
                return Err(format!("round is {round}, but this thread committed round {last} last"));
            }
            Some(_) => {}
        }
        let of_round = |piece: &mut Piece| piece.counter == counter && piece.round == Some(round);
        Ok(self.pieces.extract_if(.., of_round).collect())
    }
}

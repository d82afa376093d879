//! Ranks, and the messages between them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::mailbox::Mailbox;
use super::transport::{Channel, Transport};
use crate::error::DistError;

/// For how long a rank waits for another unless told otherwise.
pub(super) const TIME_OUT: Duration = Duration::from_secs(300);
/// Most ranks of a group: each two of them have a queue.
const MOST: usize = 1 << 10;

/// How the messages of a rank reach the others.
pub(super) trait Post: Send + Sync {
    /// Leaves a message for a rank; that one has ended is told by its mailbox.
    fn send(&self, to: usize, message: Vec<u8>);

    /// Tells all others that the rank sends nothing more, and why.
    fn tell_end(&self, reason: &str);

    /// For how long a rank may take to accept a message.
    fn set_time_out(&self, time_out: Duration);
}

/// One rank's end of a group: what it sends to the others and gets from them.
///
/// All ranks make the same calls in the same order; a call of one waits for those of the others. One that fails or
/// ends is told to the others, whose calls then end with [`DistError::RankFailed`] instead of waiting; a silent one is
/// waited for until the [time-out](Self::time_out).
///
/// # Examples
/// ```
/// use windrow::dist::Communicator;
///
/// let group = Communicator::threads(3)?;
/// let sums: Vec<u64> = std::thread::scope(|scope| {
///     let ranks: Vec<_> = group
///         .into_iter()
///         .map(|rank| scope.spawn(move || rank.all_gather(&(rank.rank() as u64 + 1)).map(|all| all.iter().sum())))
///         .collect();
///     ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Result<_, _>>()
/// })?;
/// assert_eq!(sums, [6, 6, 6]);
/// # Ok::<(), windrow::DistError>(())
/// ```
pub struct Communicator {
    member: Member,
    mailbox: Arc<Mailbox>,
    post: Box<dyn Post>,
    time_out: Duration,
    transport: Transport,
    /// Those that were opened, by what tells the devices of all ranks.
    channels: Mutex<Vec<(Vec<String>, Arc<Channel>)>>,
}

/// What a rank is of its group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) rank: usize,
    /// Ranks of the group.
    pub(super) size: usize,
    /// Ranks of the same host before this one.
    pub(super) local_rank: usize,
    /// Whether ranks are threads of one process.
    pub(super) is_one_process: bool,
}

/// Ranks that are threads of one process: messages are put where they are fetched.
struct Threads {
    rank: usize,
    mailboxes: Arc<[Arc<Mailbox>]>,
}

impl Post for Threads {
    fn send(&self, to: usize, message: Vec<u8>) {
        self.mailboxes[to].put(self.rank, message);
    }

    fn tell_end(&self, reason: &str) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.end(self.rank, reason));
    }

    fn set_time_out(&self, _: Duration) {}
}

/// Whether there are groups of so many ranks.
pub(super) fn check_size(ranks: usize) -> Result<(), DistError> {
    if ranks == 0 || ranks > MOST { Err(DistError::GroupSize { ranks }) } else { Ok(()) }
}

impl Communicator {
    /// A group of ranks in this process, one for each thread that takes one.
    ///
    /// # Errors
    /// [`DistError::GroupSize`] for no rank, or more than 1024.
    pub fn threads(ranks: usize) -> Result<Vec<Self>, DistError> {
        check_size(ranks)?;
        let mailboxes: Arc<[_]> = (0..ranks).map(|rank| Arc::new(Mailbox::new(rank, ranks))).collect();
        let of_rank = |rank| {
            let post = Box::new(Threads { rank, mailboxes: Arc::clone(&mailboxes) });
            let member = Member { rank, size: ranks, local_rank: rank, is_one_process: true };
            Self::new(member, Arc::clone(&mailboxes[rank]), post)
        };
        Ok((0..ranks).map(of_rank).collect())
    }

    pub(super) fn new(member: Member, mailbox: Arc<Mailbox>, post: Box<dyn Post>) -> Self {
        let transport = Transport::default();
        Self { member, mailbox, post, time_out: TIME_OUT, transport, channels: Mutex::default() }
    }

    /// Waits for another rank for so long at most, instead of five minutes.
    #[must_use]
    pub fn time_out(mut self, time_out: Duration) -> Self {
        self.time_out = time_out;
        self.post.set_time_out(time_out);
        self
    }

    /// Has rows go from device to device this way, the same for all ranks.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Number of this rank, from 0 on.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.member.rank
    }

    /// Ranks of the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.member.size
    }

    /// Number of this rank among those of its host, from 0 on: which of the host's GPUs it takes, if each takes one.
    #[must_use]
    pub fn local_rank(&self) -> usize {
        self.member.local_rank
    }

    /// Whether ranks are threads of one process.
    pub(super) fn is_one_process(&self) -> bool {
        self.member.is_one_process
    }

    /// What every rank gives, in the order of the ranks.
    ///
    /// # Errors
    /// [`DistError::RankFailed`] and [`DistError::TimedOut`] of another rank; [`DistError::Disagreement`] if another
    /// gave something of another type.
    pub fn all_gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, DistError> {
        let text = serde_json::to_vec(own).map_err(|error| self.unlike(self.rank(), &error))?;
        for to in self.others() {
            self.send(to, text.clone());
        }
        let parse = |(from, text): (usize, &Vec<u8>)| {
            serde_json::from_slice(text).map_err(|error| self.unlike(from, &error))
        };
        self.with_others(text)?.iter().enumerate().map(parse).collect()
    }

    /// Looks whether every rank has the same.
    pub(super) fn agree<T>(&self, what: &'static str, own: &T) -> Result<(), DistError>
    where
        T: Serialize,
    {
        let own = serde_json::to_string(own).map_err(|error| self.unlike(self.rank(), &error))?;
        for (rank, theirs) in self.all_gather(&own)?.into_iter().enumerate() {
            if theirs != own {
                let own_rank = self.rank();
                return Err(DistError::Disagreement { what, rank, theirs, own_rank, own });
            }
        }
        Ok(())
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    /// [`DistError::RankFailed`] and [`DistError::TimedOut`] of another rank.
    pub fn barrier(&self) -> Result<(), DistError> {
        self.all_gather(&()).map(|_| ())
    }

    /// Tells the other ranks that this one goes on no more, and why: their calls end with [`DistError::RankFailed`]. A
    /// call that fails does so by itself.
    pub fn abandon(&self, reason: &str) {
        self.post.tell_end(reason);
    }

    /// The transport that was asked for.
    pub(super) fn wanted(&self) -> Transport {
        self.transport
    }

    /// For how long another rank is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.time_out
    }

    /// The channel between some devices, opened by the first call that names them.
    pub(super) fn channel(
        &self,
        devices: Vec<String>,
        open: impl FnOnce() -> Result<Channel, DistError>,
    ) -> Result<Arc<Channel>, DistError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = channels.iter().find(|(known, _)| *known == devices) {
            return Ok(Arc::clone(known));
        }
        let channel = Arc::new(open()?);
        channels.push((devices, Arc::clone(&channel)));
        Ok(channel)
    }

    /// The first of some ranks that has ended, as an error.
    pub(super) fn first_ended(&self, ranks: &[usize]) -> Option<DistError> {
        self.mailbox.first_ended(ranks)
    }

    /// What comes of a call; a failure is told to the others.
    pub(super) fn told<T>(&self, outcome: Result<T, DistError>) -> Result<T, DistError> {
        if let Err(error) = &outcome {
            self.abandon(&error.to_string());
        }
        outcome
    }

    /// The other ranks, from the next one on, so that not all of them begin with the same.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank(), self.size());
        (1..size).map(move |step| (rank + step) % size)
    }

    /// Leaves elements for a rank.
    pub(super) fn send_slice<T: Pod>(&self, to: usize, elements: &[T]) {
        self.send(to, bytemuck::cast_slice(elements).to_vec());
    }

    /// The elements that each other rank has sent, in the order of the ranks with this one's among them.
    pub(super) fn with_others<T: Pod>(&self, own: Vec<T>) -> Result<Vec<Vec<T>>, DistError> {
        let others: Vec<usize> = (0..self.size()).filter(|&rank| rank != self.rank()).collect();
        let messages = self.receive_each(&others)?;
        let mut all: Vec<Vec<T>> = messages.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
        all.insert(self.rank(), own);
        Ok(all)
    }

    /// Leaves a message for a rank.
    pub(super) fn send(&self, to: usize, message: Vec<u8>) {
        self.post.send(to, message);
    }

    /// The elements that a rank has sent.
    pub(super) fn receive_vec<T: Pod>(&self, from: usize) -> Result<Vec<T>, DistError> {
        Ok(bytemuck::pod_collect_to_vec(&self.receive_each(&[from])?.swap_remove(0)))
    }

    /// The next message of each of some ranks.
    pub(super) fn receive_each(&self, from: &[usize]) -> Result<Vec<Vec<u8>>, DistError> {
        self.mailbox.take(from, self.time_out)
    }

    fn unlike(&self, from: usize, error: &serde_json::Error) -> DistError {
        DistError::Disagreement {
            what: "what they give",
            rank: from,
            theirs: format!("something else ({error})"),
            own_rank: self.rank(),
            own: "this".to_owned(),
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.abandon(if panicked { "its thread panicked" } else { "it has left the group" });
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// What each rank of a group of threads makes.
    fn ranks<T: Send>(size: usize, time_out: Duration, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
        let group = Communicator::threads(size).unwrap();
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                group.into_iter().map(|rank| scope.spawn(move || work(rank.time_out(time_out)))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_gets_what_all_of_them_give() {
        for size in [1, 2, 5] {
            let found = ranks(size, TIME_OUT, |rank| {
                rank.barrier().unwrap();
                rank.all_gather(&(rank.rank(), "x".repeat(rank.rank()))).unwrap()
            });
            let want: Vec<_> = (0..size).map(|rank| (rank, "x".repeat(rank))).collect();
            assert!(found.iter().all(|found| *found == want), "{found:?}");
        }
        assert_eq!(Communicator::threads(0).unwrap_err(), DistError::GroupSize { ranks: 0 });
        assert!(Communicator::threads(MOST + 1).is_err());
    }

    #[test]
    fn a_rank_that_ends_is_named() {
        let found = ranks(3, TIME_OUT, |rank| match rank.rank() {
            1 => None,
            2 => {
                rank.abandon("no memory");
                None
            }
            _ => rank.barrier().err().map(|error| error.to_string()),
        });
        // Which of both is found first depends on the threads; each is named with its reason.
        let error = found[0].as_ref().unwrap();
        assert!(
            error == "rank 1 failed while this rank, 0, waited for it: it has left the group"
                || error == "rank 2 failed while this rank, 0, waited for it: no memory",
            "{error}"
        );
    }

    #[test]
    fn what_was_sent_before_a_rank_ended_is_received() {
        let group = Communicator::threads(2).unwrap();
        let [zero, one] = <[_; 2]>::try_from(group).unwrap();
        one.send(0, vec![7]);
        drop(one);
        assert_eq!(zero.receive_each(&[1]).unwrap(), [[7]]);
        assert!(matches!(zero.receive_each(&[1]), Err(DistError::RankFailed { rank: 1, waiting: 0, .. })));
    }

    #[test]
    fn a_rank_that_ends_is_told_while_another_is_waited_for() {
        let group = Communicator::threads(3).unwrap();
        let [zero, _one, two] = <[_; 3]>::try_from(group).unwrap();
        two.send(0, b"null".to_vec());
        drop(two);
        // What it sent is enough of it for one call; for the next it is missed.
        let zero = zero.time_out(Duration::from_millis(20));
        assert!(matches!(zero.receive_each(&[1, 2]), Err(DistError::TimedOut { rank: 1, .. })));
        assert_eq!(zero.receive_each(&[2]).unwrap(), [b"null"]);
        assert!(matches!(zero.receive_each(&[1, 2]), Err(DistError::RankFailed { rank: 2, .. })));
    }

    #[test]
    fn a_silent_rank_is_waited_for_until_the_time_is_up() {
        let waited = Duration::from_millis(50);
        let group = Communicator::threads(2).unwrap();
        let mut group = group.into_iter().map(|rank| rank.time_out(waited));
        let (zero, _one) = (group.next().unwrap(), group.next().unwrap());
        let begun = Instant::now();
        assert_eq!(zero.barrier().unwrap_err(), DistError::TimedOut { rank: 1, waiting: 0, waited });
        assert!(begun.elapsed() >= waited);
    }

    #[test]
    fn ranks_that_give_other_things_are_told() {
        let found = ranks(2, TIME_OUT, |rank| match rank.rank() {
            0 => rank.all_gather(&5u32).map(|_| ()),
            _ => rank.all_gather(&"five".to_owned()).map(|_| ()),
        });
        assert!(matches!(found[0], Err(DistError::Disagreement { rank: 1, own_rank: 0, .. })), "{found:?}");
    }
}

//! The way that rows take from the device of one rank to that of another.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windrow_formats::names;

use super::communicator::Communicator;
use super::scheme::Rates;
use crate::device::link::{Link, LinkId, Message};
use crate::device::{Device, DeviceKind, Machine, Queue, Stream, Urgency};
use crate::error::{DeviceError, DistError};

/// How rows go from the device of one rank to that of another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Transport {
    /// By [`Nccl`](Self::Nccl) where each rank has a GPU of its own and the library is there, else through
    /// [`HostMemory`](Self::HostMemory). Plans report which, and why.
    #[default]
    Auto,
    /// From GPU to GPU by NCCL, which is loaded when a plan first asks for it; an error where it cannot be.
    Nccl,
    /// Through host memory, from any device to any other.
    HostMemory,
}

impl Transport {
    /// Every transport, the default first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Nccl, Self::HostMemory];

    /// Name and version of what brings rows from a device to others without host memory, `NCCL 2.28.9` of a GPU.
    ///
    /// # Errors
    /// Why nothing does, as the end of a sentence.
    ///
    /// # Examples
    /// ```
    /// use windrow::Device;
    /// use windrow::dist::Transport;
    ///
    /// assert_eq!(Transport::link_of(&Device::cpu()), Err("NCCL is for CUDA devices alone".to_owned()));
    /// ```
    pub fn link_of(device: &Device) -> Result<String, String> {
        let none = || Err("NCCL is for CUDA devices alone".to_owned());
        device.machine().map_or_else(none, Machine::link_name)
    }
}

names!(Transport, "transport"; Auto => "auto", Nccl => "nccl", HostMemory => "host-memory");

/// For how long a rank that has left may have left its last rows under way.
const GRACE: Duration = Duration::from_secs(2);
/// For how long a wait asks again and again; after that it sleeps between.
const BUSY: Duration = Duration::from_millis(5);

/// What a rank tells the others of its device.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    device: String,
    /// What no other device of the group has.
    identity: String,
    /// What brings messages from it to others, or why nothing does.
    link: Result<String, String>,
    wanted: Transport,
}

impl Place {
    fn of(device: &Device, communicator: &Communicator) -> Self {
        let wanted = communicator.wanted();
        let is_reached = device.kind() == DeviceKind::Cuda || communicator.is_one_process();
        let link = match Transport::link_of(device) {
            _ if wanted == Transport::HostMemory => Err("host memory was asked for".to_owned()),
            Ok(_) if !is_reached => Err("no other process reaches it".to_owned()),
            link => link,
        };
        let (device, identity) = (device.selector().to_owned(), device.identity());
        Self { device, identity, link, wanted }
    }
}

/// What links the devices of all ranks, or why nothing does.
fn link_of(places: &[Place]) -> Result<String, String> {
    if places.len() == 1 {
        return Err("there is one rank".to_owned());
    }
    let mut name = None;
    for (rank, place) in places.iter().enumerate() {
        match &place.link {
            Err(reason) => return Err(format!("rank {rank} is on {}: {reason}", place.device)),
            Ok(link) if name.get_or_insert(link) != &link => {
                return Err("ranks have other versions of NCCL".to_owned());
            }
            Ok(_) => {}
        }
        if let Some(other) = places[..rank].iter().position(|other| other.identity == place.identity) {
            return Err(format!("ranks {other} and {rank} share {}", place.device));
        }
    }
    Ok(name.map_or_else(String::new, String::clone))
}

/// The way of rows between the devices of a group, as one of its ranks has it.
pub(super) struct Channel {
    device: Device,
    /// None: through host memory.
    linked: Option<Linked>,
    /// What it is, in words.
    name: String,
}

struct Linked {
    link: Box<dyn Link>,
    /// Where messages are queued, beside what the device does otherwise.
    queue: Arc<dyn Queue>,
    /// The same, for what is done to rows before they go.
    stream: Stream,
}

impl Channel {
    /// The channel between the devices that the ranks name now; the same one for the same devices.
    pub(super) fn open(communicator: &Communicator, device: &Device) -> Result<Arc<Self>, DistError> {
        let places = communicator.all_gather(&Place::of(device, communicator))?;
        let own = &places[communicator.rank()];
        if let Some((rank, other)) = places.iter().enumerate().find(|(_, place)| place.wanted != own.wanted) {
            return Err(DistError::Disagreement {
                what: "the transport",
                rank,
                theirs: other.wanted.to_string(),
                own_rank: communicator.rank(),
                own: own.wanted.to_string(),
            });
        }
        let key: Vec<String> = places.iter().map(|place| place.identity.clone()).collect();
        communicator.channel(key, || match (link_of(&places), device.machine()) {
            (Ok(name), Some(machine)) => {
                let linked = Linked::join(communicator, device, machine)?;
                Ok(Self { device: device.clone(), linked: Some(linked), name: format!("by {name}") })
            }
            (found, _) => {
                let reason = found.err().unwrap_or_default();
                if own.wanted == Transport::Nccl && places.len() > 1 {
                    return Err(DistError::NoNccl { reason });
                }
                let name = match places.len() {
                    1 => format!("nothing is exchanged: {reason}"),
                    _ => format!("through host memory: {reason}"),
                };
                Ok(Self { device: device.clone(), linked: None, name })
            }
        })
    }

    /// What it is, in words.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it takes to bring rows this way.
    pub(super) fn rates(&self) -> Rates {
        if self.is_linked() { Rates::NCCL } else { Rates::HOST_MEMORY }
    }

    /// Whether rows go from device to device.
    pub(super) fn is_linked(&self) -> bool {
        self.linked.is_some()
    }

    /// Where messages are queued, after the work that the device's own queue was asked for so far; none where they go
    /// through host memory.
    pub(super) fn begin(&self) -> Result<Option<&Stream>, DeviceError> {
        let (Some(linked), Some(machine)) = (&self.linked, self.device.machine()) else { return Ok(None) };
        machine.own().mark()?;
        linked.queue.wait_for(machine.own().fence())?;
        Ok(Some(&linked.stream))
    }

    /// Queues messages there.
    ///
    /// # Safety
    /// As for [`Link::exchange`].
    pub(super) unsafe fn exchange(&self, sends: &[Message], receives: &[Message]) -> Result<(), DeviceError> {
        match &self.linked {
            // SAFETY: the caller's promise; the queue is this machine's.
            Some(Linked { link, queue, .. }) => unsafe { link.exchange(&**queue, sends, receives) },
            None => Ok(()),
        }
    }

    /// Has memory that what is queued there uses freed after it, and [`hold`](Self::hold) be for it.
    pub(super) fn mark(&self) -> Result<(), DeviceError> {
        self.linked.as_ref().map_or(Ok(()), |linked| linked.queue.mark())
    }

    /// What the device's own queue is asked for from here on comes after the messages.
    pub(super) fn hold(&self) -> Result<(), DeviceError> {
        match (&self.linked, self.device.machine()) {
            (Some(linked), Some(machine)) => machine.own().wait_for(linked.queue.fence()),
            _ => Ok(()),
        }
    }

    /// Waits until the messages are here; a rank that fails meanwhile, or is silent for too long, ends the link.
    pub(super) fn wait(&self, communicator: &Communicator, peers: &[usize]) -> Result<(), DistError> {
        let Some(Linked { link, queue, .. }) = &self.linked else { return Ok(()) };
        if queue.raw().is_none() {
            return Ok(queue.synchronize()?); // an emulator does what is waited for
        }
        let mut watch = Watch::begin(communicator, peers);
        let failed = loop {
            if queue.is_idle()? {
                return Ok(link.check()?);
            }
            if let Err(error) = link.check().map_err(DistError::from).and_then(|()| watch.look()) {
                break error;
            }
            match watch.begun.elapsed() < BUSY {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(50)),
            }
        };
        link.abort();
        Err(failed)
    }
}

impl Linked {
    /// Joins the group of all ranks, by what rank 0 makes.
    fn join(communicator: &Communicator, device: &Device, machine: &dyn Machine) -> Result<Self, DistError> {
        let queue = machine.create(Urgency::First)?;
        let id = if communicator.rank() == 0 { machine.new_link_id()?.to_vec() } else { Vec::new() };
        let ids = communicator.all_gather(&id)?;
        let id = LinkId::try_from(ids[0].as_slice()).map_err(|_| DeviceError::Library {
            call: "ncclGetUniqueId",
            status: format!("an id of {} bytes", ids[0].len()),
        })?;
        let link = joined(communicator, device, id)?;
        let stream = Stream::of_queue(device, Arc::clone(&queue));
        Ok(Self { link, queue, stream })
    }
}

/// This rank's end of the link. The library waits for all ranks without an end, so a thread of its own does, which is
/// left to itself if a rank has ended or the time is up.
fn joined(communicator: &Communicator, device: &Device, id: LinkId) -> Result<Box<dyn Link>, DistError> {
    let (rank, ranks) = (communicator.rank(), communicator.size());
    let (sender, receiver) = mpsc::channel();
    let its_device = device.clone();
    let join = move || {
        let link = its_device.machine().map(|machine| machine.join(id, ranks, rank));
        let _ = sender.send(link); // or nobody waits any more
    };
    let failed = |status: String| DeviceError::Library { call: "ncclCommInitRank", status };
    let thread = std::thread::Builder::new().name("windrow-join".to_owned()).spawn(join);
    thread.map_err(|error| failed(error.to_string()))?;
    let others: Vec<usize> = communicator.others().collect();
    let mut watch = Watch::begin(communicator, &others);
    loop {
        match receiver.recv_timeout(Duration::from_millis(1)) {
            Ok(Some(link)) => return Ok(link?),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                return Err(failed("its thread ended without one".to_owned()).into());
            }
            Err(RecvTimeoutError::Timeout) => watch.look()?,
        }
    }
}

/// What ends a wait for what other ranks do: one of them has ended, or the time is up.
struct Watch<'a> {
    communicator: &'a Communicator,
    peers: &'a [usize],
    begun: Instant,
    ended_since: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn begin(communicator: &'a Communicator, peers: &'a [usize]) -> Self {
        Self { communicator, peers, begun: Instant::now(), ended_since: None }
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`DistError::RankFailed`] some time after a rank has ended, [`DistError::TimedOut`].
    fn look(&mut self) -> Result<(), DistError> {
        if let Some(error) = self.communicator.first_ended(self.peers)
            && self.ended_since.get_or_insert_with(Instant::now).elapsed() > GRACE
        {
            return Err(error);
        }
        let waited = self.communicator.patience();
        if self.begun.elapsed() > waited {
            let (rank, waiting) = (self.peers.first().copied().unwrap_or(0), self.communicator.rank());
            return Err(DistError::TimedOut { rank, waiting, waited });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(identity: &str, link: Result<&str, &str>) -> Place {
        let link = link.map(str::to_owned).map_err(str::to_owned);
        let (device, identity) = (format!("cuda:{identity}"), identity.to_owned());
        Place { device, identity, link, wanted: Transport::Auto }
    }

    #[test]
    fn a_wait_ends_some_time_after_a_rank_has_and_when_the_time_is_up() {
        let [zero, one] = <[_; 2]>::try_from(Communicator::threads(2).unwrap()).unwrap();
        let waited = Duration::from_millis(20);
        let zero = zero.time_out(waited);
        let mut watch = Watch::begin(&zero, &[1]);
        assert_eq!(watch.look(), Ok(()));
        std::thread::sleep(waited);
        assert_eq!(watch.look(), Err(DistError::TimedOut { rank: 1, waiting: 0, waited }));
        let zero = zero.time_out(10 * GRACE);
        let mut watch = Watch::begin(&zero, &[1]);
        drop(one);
        assert_eq!(watch.look(), Ok(())); // its last rows may be under way
        std::thread::sleep(GRACE);
        assert!(matches!(watch.look(), Err(DistError::RankFailed { rank: 1, waiting: 0, .. })));
    }

    #[test]
    fn what_stands_in_the_way_of_a_link_is_told() {
        let found = |places: &[Place]| link_of(places).unwrap_err();
        assert_eq!(found(&[place("0", Ok("NCCL 2.28.3"))]), "there is one rank");
        let [zero, one] = ["0", "1"].map(|identity| place(identity, Ok("NCCL 2.28.3")));
        assert_eq!(link_of(&[zero.clone(), one.clone()]).unwrap(), "NCCL 2.28.3");
        assert_eq!(found(&[zero.clone(), one.clone(), zero.clone()]), "ranks 0 and 2 share cuda:0");
        assert_eq!(found(&[zero.clone(), place("1", Err("it is old"))]), "rank 1 is on cuda:1: it is old");
        assert_eq!(found(&[zero, place("1", Ok("NCCL 2.9.8"))]), "ranks have other versions of NCCL");
    }
}

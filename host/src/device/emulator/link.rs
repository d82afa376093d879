//! What stands for NCCL between emulated GPUs: the same calls, messages through the memory of this process.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use windrow_simt::GlobalPtr;
use windrow_simt::emulator::Memory;

use super::host_access;
use crate::device::link::{Link, LinkId, Message};
use crate::device::queue::Queue;
use crate::error::DeviceError;
use crate::num::index;

/// For how long a message is waited for that nobody sends: a GPU would for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Groups that some machine has joined.
static GROUPS: Mutex<Vec<(LinkId, Weak<Mail>)>> = Mutex::new(Vec::new());

/// Messages that were sent and not received.
#[derive(Default)]
struct Mail {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// From a rank to a rank.
    sent: HashMap<[usize; 2], VecDeque<Vec<u8>>>,
    is_aborted: bool,
}

impl Mail {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, way: [usize; 2], message: Vec<u8>) {
        self.lock().sent.entry(way).or_default().push_back(message);
        self.changed.notify_all();
    }

    fn receive(&self, way: [usize; 2]) -> Result<Vec<u8>, DeviceError> {
        let mut state = self.lock();
        loop {
            if let Some(message) = state.sent.get_mut(&way).and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if state.is_aborted {
                return Err(failed("the group was aborted"));
            }
            let (woken, waited) =
                self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() {
                return Err(failed("a message was not sent"));
            }
        }
    }
}

fn failed(status: &str) -> DeviceError {
    DeviceError::Library { call: "the emulator's link", status: status.to_owned() }
}

/// A number that no other group has.
pub(super) fn new_id() -> LinkId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = [0; 128];
    id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    id
}

/// A machine's end of a group.
pub(super) struct EmulatedLink {
    rank: usize,
    mail: Arc<Mail>,
}

impl EmulatedLink {
    pub(super) fn join(id: LinkId, rank: usize) -> Self {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|(_, mail)| mail.strong_count() > 0);
        let found = groups.iter().find(|(known, _)| *known == id).and_then(|(_, mail)| mail.upgrade());
        let mail = found.unwrap_or_else(|| {
            let mail = Arc::<Mail>::default();
            groups.push((id, Arc::downgrade(&mail)));
            mail
        });
        Self { rank, mail }
    }
}

impl Link for EmulatedLink {
    unsafe fn exchange(
        &self,
        queue: &dyn Queue,
        sends: &[Message],
        receives: &[Message],
    ) -> Result<(), DeviceError> {
        let (rank, mail) = (self.rank, Arc::clone(&self.mail));
        let (sends, receives) = (sends.to_vec(), receives.to_vec());
        queue.copy_by(Arc::new(move |memory: &Memory| {
            for &Message { rank: to, address, bytes } in &sends {
                let mut message = vec![0u8; index(bytes)];
                let read = memory.read_to(GlobalPtr::from_address(address), &mut message);
                read.map_err(|error| host_access(&error))?;
                mail.send([rank, to], message);
            }
            for &Message { rank: from, address, bytes } in &receives {
                let message = mail.receive([from, rank])?;
                if message.len() != index(bytes) {
                    return Err(failed("a message of another length"));
                }
                let written = memory.write(GlobalPtr::from_address(address), &message);
                written.map_err(|error| host_access(&error))?;
            }
            Ok(())
        }))
    }

    fn check(&self) -> Result<(), DeviceError> {
        if self.mail.lock().is_aborted { Err(failed("the group was aborted")) } else { Ok(()) }
    }

    fn abort(&self) {
        self.mail.lock().is_aborted = true;
        self.mail.changed.notify_all();
    }
}

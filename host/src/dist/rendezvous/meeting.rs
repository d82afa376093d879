//! The meeting: rank 0 waits for all others, tells them of each other, and these connect themselves.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::advert::{Advert, new_token};
use crate::dist::communicator::{Communicator, Member};
use crate::dist::mailbox::Mailbox;
use crate::dist::sockets::{Frame, LEAST_WAIT, Sockets};

/// For how long who has connected may say nothing; others wait meanwhile.
const GREETING: Duration = Duration::from_secs(5);
/// Between two looks whether somebody is there.
const PAUSE: Duration = Duration::from_millis(5);
/// For how much longer than rank 0 others wait, so that they hear from it who is missing.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Most bytes of what is said at a meeting.
const MOST_BYTES: u64 = 1 << 20;

/// Where the ranks of a group meet.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Address(String),
    File(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a process says first to another.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    version: String,
    token: u64,
    rank: usize,
    ranks: usize,
    /// What this process is known by, if it comes again.
    process: u64,
    /// What processes of one host have in common.
    host: String,
    /// Where it waits for ranks after it.
    waits_at: Option<SocketAddr>,
}

/// What rank 0 answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Welcome,
    /// The place is another group's, perhaps of an earlier one.
    Stranger,
    /// Nobody can join, for this reason.
    Refused(String),
    /// All ranks are there.
    Roster(Roster),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Roster {
    token: u64,
    hosts: Vec<String>,
    wait_at: Vec<Option<SocketAddr>>,
}

/// A rank among all others.
pub(super) struct Met {
    rank: usize,
    roster: Roster,
    streams: Vec<Option<TcpStream>>,
}

impl Met {
    pub(super) fn communicator(self) -> io::Result<Communicator> {
        let (rank, hosts) = (self.rank, self.roster.hosts);
        let member = Member {
            rank,
            size: hosts.len(),
            local_rank: hosts[..rank].iter().filter(|&host| *host == hosts[rank]).count(),
            is_one_process: false,
        };
        let mailbox = Arc::new(Mailbox::new(rank, hosts.len()));
        let sockets = Sockets::start(self.streams, &mailbox)?;
        Ok(Communicator::new(member, mailbox, Box::new(sockets)))
    }
}

/// Time that is left for a meeting.
#[derive(Clone, Copy)]
struct Left {
    begun: Instant,
    time_out: Duration,
}

impl Left {
    fn get(self) -> Duration {
        self.time_out.saturating_sub(self.begun.elapsed())
    }
}

/// Meets the others as the rank `rank` of `ranks`.
pub(super) fn meet(place: &Place, [rank, ranks]: [usize; 2], time_out: Duration) -> Result<Met, String> {
    let left = Left { begun: Instant::now(), time_out };
    match rank {
        0 => host(place, ranks, left),
        _ => {
            let (stream, listener) = find(place, [rank, ranks], left)?;
            connect(stream, &listener, [rank, ranks], left)
        }
    }
}

/// Rank 0's part: waits for all others.
fn host(place: &Place, ranks: usize, left: Left) -> Result<Met, String> {
    let token = new_token();
    let bound = match place {
        Place::Address(address) => TcpListener::bind(address.as_str()),
        Place::File(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
    };
    let listener = bound.map_err(|error| format!("rank 0 cannot wait there: {error}"))?;
    let (_written, asked) = match place {
        Place::Address(_) => (None, 0),
        Place::File(path) => {
            let address = listener.local_addr().map_err(in_words)?;
            (Some(Advert::write(path, address, token)?), token)
        }
    };
    let mut come: Vec<Option<(TcpStream, Greeting)>> = std::iter::repeat_with(|| None).take(ranks).collect();
    let outcome = gather(&listener, &mut come, asked, left);
    let own = (host_name(), None);
    let others =
        come.iter().skip(1).flatten().map(|(_, greeting)| (greeting.host.clone(), greeting.waits_at));
    let (hosts, wait_at) = std::iter::once(own).chain(others).unzip();
    let roster = Roster { token, hosts, wait_at };
    let answer = match &outcome {
        Ok(()) => Answer::Roster(roster.clone()),
        Err(reason) => Answer::Refused(reason.clone()),
    };
    let mut told = Ok(());
    for (rank, (stream, _)) in
        come.iter_mut().enumerate().filter_map(|(rank, one)| Some((rank, one.as_mut()?)))
    {
        let said = say(stream, &answer, left);
        told = told.and(said.map_err(|error| format!("rank {rank} ended while the ranks met: {error}")));
    }
    outcome.and(told)?;
    let streams = come.into_iter().map(|one| Some(one?.0)).collect();
    Ok(Met { rank: 0, roster, streams })
}

/// Waits until each other rank has greeted.
fn gather(
    listener: &TcpListener,
    come: &mut [Option<(TcpStream, Greeting)>],
    token: u64,
    left: Left,
) -> Result<(), String> {
    let missing = |come: &[Option<_>]| -> Vec<String> {
        come.iter()
            .enumerate()
            .skip(1)
            .filter(|(_, one)| one.is_none())
            .map(|(rank, _)| rank.to_string())
            .collect()
    };
    while !missing(come).is_empty() {
        let Some(mut stream) = accept(listener, left)? else {
            let (ranks, all) = (missing(come).join(", "), come.len());
            let seconds = left.time_out.as_secs_f64();
            return Err(format!("of {all} ranks, {ranks} had not come after {seconds} s"));
        };
        // Whoever says something else is none of the group.
        let Ok(greeting) = hear::<Greeting>(&mut stream, GREETING) else { continue };
        if greeting.token != token {
            // Whether it hears that or not, it is none of the group.
            let _ = say(&mut stream, &Answer::Stranger, left);
            continue;
        }
        if let Some(reason) = refusal(&greeting, come) {
            let _ = say(&mut stream, &Answer::Refused(reason.clone()), left);
            return Err(reason);
        }
        // Who is gone may come again.
        if say(&mut stream, &Answer::Welcome, left).is_ok() {
            let rank = greeting.rank;
            come[rank] = Some((stream, greeting));
        }
    }
    Ok(())
}

/// Why the group cannot be with this process.
fn refusal(greeting: &Greeting, come: &[Option<(TcpStream, Greeting)>]) -> Option<String> {
    let &Greeting { ref version, rank, ranks, process, .. } = greeting;
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        return Some(format!("rank {rank} has windrow {version}, rank 0 has {own}"));
    }
    if ranks != come.len() {
        return Some(format!("rank {rank} is one of {ranks}, rank 0 one of {}", come.len()));
    }
    let Some(seat) = come.get(rank) else { return Some(format!("rank {rank} is none of {ranks}")) };
    let is_there = seat.as_ref().is_some_and(|(_, known)| known.process != process);
    (rank == 0 || is_there).then(|| format!("there are two processes of rank {rank}"))
}

/// Another rank's part: finds rank 0, and says where it waits itself.
fn find(place: &Place, [rank, ranks]: [usize; 2], left: Left) -> Result<(TcpStream, TcpListener), String> {
    let process = new_token();
    let attempt = || -> Result<(Answer, TcpStream, TcpListener), String> {
        let (mut stream, token) = match place {
            Place::Address(address) => (connect_to(address.as_str(), left)?, 0),
            Place::File(path) => {
                let advert = Advert::read(path)?;
                (connect_to(advert.address(), left)?, advert.token())
            }
        };
        // Others reach this process as rank 0 does.
        let ip = stream.local_addr().map_err(in_words)?.ip();
        let listener = TcpListener::bind((ip, 0)).map_err(in_words)?;
        let waits_at = Some(listener.local_addr().map_err(in_words)?);
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), host_name());
        say(&mut stream, &Greeting { version, token, rank, ranks, process, host, waits_at }, left)?;
        Ok((hear(&mut stream, GREETING)?, stream, listener))
    };
    loop {
        let last = match attempt() {
            Ok((Answer::Welcome, stream, listener)) => return Ok((stream, listener)),
            Ok((Answer::Refused(reason), ..)) => return Err(reason),
            Ok((Answer::Stranger | Answer::Roster(_), ..)) => "another group's rank 0 is there".to_owned(),
            Err(reason) => reason,
        };
        if left.get().is_zero() {
            return Err(format!("rank 0 was not found in {} s: {last}", left.time_out.as_secs_f64()));
        }
        std::thread::sleep(PAUSE.min(left.get()));
    }
}

/// Waits until rank 0 says that all are there, and connects this rank to them.
fn connect(
    mut stream: TcpStream,
    listener: &TcpListener,
    [rank, ranks]: [usize; 2],
    left: Left,
) -> Result<Met, String> {
    let roster = match hear(&mut stream, left.get() + LAST_WORDS) {
        Ok(Answer::Roster(roster)) if roster.hosts.len() == ranks && roster.wait_at.len() == ranks => roster,
        Ok(Answer::Refused(reason)) => return Err(reason),
        Ok(answer) => return Err(format!("rank 0 said {answer:?}")),
        Err(reason) => return Err(format!("rank 0 has met this rank, and then: {reason}")),
    };
    let mut streams: Vec<Option<TcpStream>> = std::iter::repeat_with(|| None).take(ranks).collect();
    streams[0] = Some(stream);
    for (other, waits_at) in roster.wait_at.iter().enumerate().take(rank).skip(1) {
        let lost = |reason: String| format!("rank {other} cannot be reached: {reason}");
        let waits_at = waits_at.ok_or_else(|| lost("it has no address".to_owned()))?;
        let mut stream = connect_to(waits_at, left).map_err(lost)?;
        say(&mut stream, &(roster.token, rank), left).map_err(lost)?;
        streams[other] = Some(stream);
    }
    while let Some(other) = (rank + 1..ranks).find(|&other| streams[other].is_none()) {
        let Some(mut stream) = accept(listener, left)? else {
            let seconds = left.time_out.as_secs_f64();
            return Err(format!("rank {other} had not connected itself to rank {rank} after {seconds} s"));
        };
        match hear::<(u64, usize)>(&mut stream, GREETING) {
            Ok((token, from)) if token == roster.token && (rank + 1..ranks).contains(&from) => {
                streams[from] = Some(stream);
            }
            _ => {} // whoever says something else is none of the group
        }
    }
    Ok(Met { rank, roster, streams })
}

fn in_words(error: io::Error) -> String {
    error.to_string()
}

/// The first address that somebody waits at.
fn connect_to(addresses: impl ToSocketAddrs, left: Left) -> Result<TcpStream, String> {
    let mut last = "there is no such address".to_owned();
    for address in addresses.to_socket_addrs().map_err(in_words)? {
        match TcpStream::connect_timeout(&address, left.get().clamp(LEAST_WAIT, GREETING)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}

/// Whoever connects next; none when the time is up.
fn accept(listener: &TcpListener, left: Left) -> Result<Option<TcpStream>, String> {
    listener.set_nonblocking(true).map_err(in_words)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(in_words)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && left.get().is_zero() => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(PAUSE.min(left.get()));
            }
            // Somebody who was gone again before he was let in.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(in_words(error)),
        }
    }
}

fn say(stream: &mut TcpStream, what: &impl Serialize, left: Left) -> Result<(), String> {
    let text = serde_json::to_vec(what).map_err(|error| error.to_string())?;
    stream.set_write_timeout(Some(left.get().max(GREETING))).map_err(in_words)?;
    Frame::write(stream, &text).map_err(in_words)
}

fn hear<T: DeserializeOwned>(stream: &mut TcpStream, patience: Duration) -> Result<T, String> {
    stream.set_read_timeout(Some(patience.max(LEAST_WAIT))).map_err(in_words)?;
    match Frame::read(stream, MOST_BYTES).map_err(in_words)? {
        Frame::Message(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
        Frame::Last(_) | Frame::Closed => Err("the connection was closed".to_owned()),
    }
}

/// What processes of one host have in common, and those of others have not.
fn host_name() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    read("/proc/sys/kernel/hostname") + &read("/proc/sys/kernel/random/boot_id")
}

//! Messages between the processes of a group, each of which has a connection to each other one.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::communicator::Post;
use super::mailbox::Mailbox;

/// A message begins with eight bytes: its length, and in the highest bit whether it is the last one of the rank, whose
/// text says why.
const IS_LAST: u64 = 1 << 63;
/// Messages up to this size are sent in one piece with what they begin with.
const SMALL_BYTES: usize = 1 << 16;
/// For how long a last message may wait for a process that takes nothing.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A connection refuses to wait for no time at all.
pub(super) const LEAST_WAIT: Duration = Duration::from_millis(1);

/// What is said of a rank whose connection is gone, for whose process the system closed it.
const ENDED: &str = "its process has ended";

/// What an error says of the rank at the other end.
fn lost(otherwise: &str, error: &io::Error) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match error.kind() {
        BrokenPipe | ConnectionAborted | ConnectionReset => ENDED.to_owned(),
        _ => format!("{otherwise}: {error}"),
    }
}

/// What came by a connection.
pub(super) enum Frame {
    Message(Vec<u8>),
    /// The rank sends nothing more, for this reason.
    Last(String),
    /// The connection was closed.
    Closed,
}

impl Frame {
    /// Waits for the next one, of so many bytes at most.
    pub(super) fn read(from: &mut impl Read, most: u64) -> io::Result<Self> {
        let mut head = [0; 8];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Self::Closed),
            outcome => outcome?,
        }
        let head = u64::from_le_bytes(head);
        let len = head & !IS_LAST;
        let too_long = || {
            let text = format!("a message of {len} bytes, for which there is no memory");
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        };
        let room = usize::try_from(len).ok().filter(|_| len <= most).ok_or_else(too_long)?;
        let mut message = Vec::new();
        message.try_reserve_exact(room).map_err(|_| too_long())?;
        if from.take(len).read_to_end(&mut message)? < room {
            return Ok(Self::Closed);
        }
        Ok(match head & IS_LAST {
            0 => Self::Message(message),
            _ => Self::Last(String::from_utf8_lossy(&message).into_owned()),
        })
    }

    /// Sends a message, whole or with an error.
    pub(super) fn write(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
        write(to, message.len() as u64, message)
    }
}

fn write(to: &mut impl Write, head: u64, message: &[u8]) -> io::Result<()> {
    let head = head.to_le_bytes();
    if message.len() <= SMALL_BYTES {
        return to.write_all(&[&head, message].concat());
    }
    to.write_all(&head)?;
    to.write_all(message)
}

/// A process's connections to those of the other ranks.
pub(super) struct Sockets {
    /// To each rank but one's own.
    writers: Vec<Option<Mutex<TcpStream>>>,
    mailbox: Arc<Mailbox>,
}

impl Sockets {
    /// Takes connections over, one for each rank but one's own; what comes by them is put into the mailbox.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn start(streams: Vec<Option<TcpStream>>, mailbox: &Arc<Mailbox>) -> io::Result<Self> {
        let mut writers = Vec::new();
        for (rank, stream) in streams.into_iter().enumerate() {
            let Some(stream) = stream else {
                writers.push(None);
                continue;
            };
            stream.set_read_timeout(None)?;
            stream.set_nodelay(true)?;
            let (reader, mailbox) = (stream.try_clone()?, Arc::clone(mailbox));
            let thread = std::thread::Builder::new().name(format!("windrow-rank-{rank}"));
            // It ends with the connection.
            thread.spawn(move || read_all(reader, rank, &mailbox))?;
            writers.push(Some(Mutex::new(stream)));
        }
        Ok(Self { writers, mailbox: Arc::clone(mailbox) })
    }

    fn writers(&self) -> impl Iterator<Item = MutexGuard<'_, TcpStream>> {
        self.writers.iter().flatten().map(|writer| writer.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts what comes of a rank into a mailbox until the connection is closed.
fn read_all(stream: TcpStream, from: usize, mailbox: &Mailbox) {
    let mut stream = BufReader::new(stream);
    loop {
        match Frame::read(&mut stream, u64::MAX) {
            Ok(Frame::Message(message)) => mailbox.put(from, message),
            Ok(Frame::Last(reason)) => mailbox.end(from, &reason),
            Ok(Frame::Closed) => return mailbox.end(from, ENDED),
            Err(error) => return mailbox.end(from, &lost("the connection to it is lost", &error)),
        }
    }
}

impl Post for Sockets {
    fn send(&self, to: usize, message: Vec<u8>) {
        let Some(writer) = &self.writers[to] else { return };
        let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = Frame::write(&mut *stream, &message) {
            // Before the thread that reads says that the connection is closed.
            self.mailbox.end(to, &lost("it takes no messages", &error));
            // A message that is there in part is followed by none.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn tell_end(&self, reason: &str) {
        for mut stream in self.writers() {
            let waited = stream.write_timeout().ok().flatten().unwrap_or(LAST_WORDS);
            // An error has nobody to go to: whoever is not there needs not be told.
            let _ = stream.set_write_timeout(Some(waited.min(LAST_WORDS)));
            let _ = write(&mut *stream, IS_LAST | reason.len() as u64, reason.as_bytes());
        }
    }

    fn set_time_out(&self, time_out: Duration) {
        for stream in self.writers() {
            // Refused of a connection that is lost, which the next message tells.
            let _ = stream.set_write_timeout(Some(time_out.max(LEAST_WAIT)));
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for stream in self.writers() {
            // Behind what was sent; the thread that reads ends by it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

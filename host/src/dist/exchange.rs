//! Rows of a dense operand that ranks get from one another.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use windrow_formats::memory::try_zeroed;
use windrow_formats::{Csr, Value};

use super::communicator::Communicator;
use super::csr::DistCsr;
use super::ownership::Ownership;
use super::scheme::{DistReport, Scheme, better_of_rows};
use super::transport::Channel;
use crate::dense::DenseRef;
use crate::device::Device;
use crate::device::link::Message;
use crate::element::Element;
use crate::error::{DistError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::num::{narrow, wide};
use crate::options::{Algorithm, Precision};
use crate::spmm::{Spmm, SpmmOptions, SpmmPlan};

/// Exchanges of up to so many bytes are queued behind the product with one's own rows, larger ones before it. The
/// device has that product a few microseconds earlier so, but a large exchange waits for it. Between two H200s products
/// with halos of up to 0.6 MB took 0.91 to 1.01 times as long, those with 8 MB and more 0.99 to 1.33 times; what lies
/// between was not measured.
const SMALL_BYTES: usize = 1 << 20;

/// Rows of `B` that a rank needs and others own.
pub(super) struct Needed {
    /// Their numbers, ascending and each once.
    pub(super) rows: Vec<u32>,
    /// Entries that name them.
    pub(super) entries: usize,
}

impl Needed {
    pub(super) fn of<V: Value>(a: &DistCsr<V>) -> Self {
        let own = a.columns().range(a.rank());
        let columns = a.local().col_indices().iter().copied();
        let mut rows: Vec<u32> = columns.filter(|&column| !own.contains(&(column as usize))).collect();
        let entries = rows.len();
        rows.sort_unstable();
        rows.dedup();
        Self { rows, entries }
    }
}

/// Decides which rows of others come to a rank, and their way, where the report's scheme does not say it.
pub(super) fn decide<V: Value>(
    (communicator, device): (&Communicator, &Device),
    a: &DistCsr<V>,
    needed: Needed,
    (width, precision): (usize, Precision),
    report: &mut DistReport,
) -> Result<(Arc<Channel>, Vec<u32>), DistError> {
    let channel = Channel::open(communicator, device)?;
    report.transport = channel.name().to_owned();
    if report.scheme == Scheme::Rows {
        let costs = (channel.rates(), width * precision.bytes() as usize);
        (report.scheme, report.reason) = better_of_rows(communicator, a, &needed, costs)?;
    }
    let coming = if report.scheme == Scheme::Halo { needed.rows } else { others(a.columns(), a.rank()) };
    Ok((channel, coming))
}

/// All rows that a rank does not own.
fn others(owned: &Ownership, rank: usize) -> Vec<u32> {
    let own = owned.range(rank);
    (0..owned.rows()).filter(|row| !own.contains(row)).map(narrow).collect()
}

/// What a rank sends of its rows, and where those of others come.
pub(super) struct Exchange {
    rank: usize,
    channel: Arc<Channel>,
    device: Device,
    /// Packs the rows of one's own that others need, behind one another; without it all of them are sent.
    pack: Option<SpmmPlan>,
    /// For each rank, which rows of those it gets.
    sends: Vec<Range<usize>>,
    /// For each rank, where its rows come among all.
    receives: Vec<Range<usize>>,
    /// Where the rank's own rows are to lie among those that come, if they are to.
    own: Option<Range<usize>>,
    /// Number of the rows that come.
    coming: usize,
    /// A [`Room`] of the last run, for the next.
    room: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Memory for the rows of a run.
pub(super) struct Room<B: Value> {
    /// Rows that were chosen to go.
    packed: Option<DeviceMatrix<B>>,
    /// All rows of one's own, if their leading dimension is another than that of rows that come.
    aligned: Option<DeviceMatrix<B>>,
    /// Where rows of others come.
    coming: DeviceMatrix<B>,
}

impl<B: Value> Room<B> {
    /// The rows that came, with those of one's own if they are to lie among them.
    pub(super) fn rows(&self) -> &DeviceMatrix<B> {
        &self.coming
    }
}

/// What every message of rows begins with: columns, and the type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Head {
    width: u64,
    element: [u8; 8],
}

impl Head {
    fn of<B: Element>(width: usize) -> Self {
        let mut element = [0; 8];
        element.iter_mut().zip(B::NAME.as_bytes()).for_each(|(to, &from)| *to = from);
        Self { width: wide(width), element }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.element);
        write!(f, "{} of {}", self.width, name.trim_end_matches('\0'))
    }
}

impl Exchange {
    /// So that this rank gets the rows `coming`, ascending: each owner is told which, or with
    /// [`Scheme::AllGather`] sends all. With `among_own` the rank's own rows lie among them, in the order of all.
    pub(super) fn new(
        (communicator, channel, device): (&Communicator, Arc<Channel>, &Device),
        owned: &Ownership,
        (coming, among_own): (Vec<u32>, bool),
        scheme: Scheme,
        options: &SpmmOptions,
    ) -> Result<Self, DistError> {
        let rank = communicator.rank();
        let place = |row: usize| coming.partition_point(|&other| (other as usize) < row);
        let own_rows = owned.range(rank);
        let mut exchange = Self {
            rank,
            channel,
            device: device.clone(),
            pack: None,
            sends: Vec::new(),
            receives: Vec::new(),
            own: among_own.then(|| place(own_rows.start)..place(own_rows.start) + own_rows.len()),
            coming: coming.len(),
            room: Mutex::new(None),
        };
        let of_owner = |owner: usize| {
            let range = owned.range(owner);
            if owner == rank { 0..0 } else { place(range.start)..place(range.end) }
        };
        let chosen: Vec<Range<usize>> = (0..owned.ranks()).map(of_owner).collect();
        if scheme == Scheme::Halo {
            let packed = exchange.ask(communicator, owned, &coming, &chosen)?;
            exchange.pack = packing(device, &packed, own_rows.len(), options)?;
        } else {
            exchange.sends = vec![0..own_rows.len(); owned.ranks()];
            exchange.sends[rank] = 0..0;
        }
        let own_len = exchange.own.as_ref().map_or(0, ExactSizeIterator::len);
        let behind_own = |(owner, range): (usize, Range<usize>)| {
            let before = if owner > rank { own_len } else { 0 };
            range.start + before..range.end + before
        };
        exchange.receives = chosen.into_iter().enumerate().map(behind_own).collect();
        Ok(exchange)
    }

    /// Tells each owner which of its rows this rank needs; returns those that the others ask for, numbered from this
    /// rank's first on, rank after rank.
    fn ask(
        &mut self,
        communicator: &Communicator,
        owned: &Ownership,
        coming: &[u32],
        chosen: &[Range<usize>],
    ) -> Result<Vec<u32>, DistError> {
        for to in communicator.others() {
            let start = narrow(owned.range(to).start);
            let asked: Vec<u32> = coming[chosen[to].clone()].iter().map(|row| row - start).collect();
            communicator.send_slice(to, &asked);
        }
        let asked = communicator.with_others(Vec::new())?;
        for rows in &asked {
            let first = self.sends.last().map_or(0, |rows| rows.end);
            self.sends.push(first..first + rows.len());
        }
        Ok(asked.concat())
    }

    /// Number of the rows that this rank gets.
    pub(super) fn received_rows(&self) -> usize {
        self.coming
    }

    /// Rows that go, counted for each rank that gets them.
    pub(super) fn sent_rows(&self) -> usize {
        self.sends.iter().map(ExactSizeIterator::len).sum()
    }

    /// The product that packs rows, if some are chosen.
    pub(super) fn packing(&self) -> Option<&SpmmPlan> {
        self.pack.as_ref()
    }

    /// Memory for a run, that of the last one where it fits.
    pub(super) fn room<B: Element>(&self, width: usize) -> Result<Room<B>, DistError> {
        let rows = self.coming + self.own.as_ref().map_or(0, ExactSizeIterator::len);
        let kept = self.room.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept.map(<Box<dyn Any + Send>>::downcast::<Room<B>>) {
            Some(Ok(room)) if room.coming.cols() == width => Ok(*room),
            _ => {
                let coming = DeviceMatrix::zeros(&self.device, rows, width)?;
                Ok(Room { packed: None, aligned: None, coming })
            }
        }
    }

    /// Sends the rows that others get, does something `meanwhile`, and has what the device is asked for from here on
    /// come after the rows of others, which are in `room` then: from device to device without waiting, through host
    /// memory when they are here.
    pub(super) fn run<B: Element>(
        &self,
        communicator: &Communicator,
        b: &DeviceMatrix<B>,
        room: &mut Room<B>,
        meanwhile: impl FnOnce() -> Result<(), DistError>,
    ) -> Result<(), DistError> {
        if self.coming == 0 && self.sent_rows() == 0 && self.own.is_none() {
            return meanwhile();
        }
        if self.channel.is_linked() {
            return self.run_linked(communicator, b, room, meanwhile);
        }
        self.send(communicator, b, room)?;
        meanwhile()?;
        self.receive(communicator, b, room)
    }

    /// From device to device.
    fn run_linked<B: Element>(
        &self,
        communicator: &Communicator,
        b: &DeviceMatrix<B>,
        room: &mut Room<B>,
        meanwhile: impl FnOnce() -> Result<(), DistError>,
    ) -> Result<(), DistError> {
        // Memory is made before what others send is waited for: a driver may wait for all of its GPUs then.
        self.align(b, room)?;
        let rows = self.coming.max(self.sent_rows());
        let is_small = rows * room.coming.ld() * size_of::<B>() <= SMALL_BYTES;
        let (before, behind) = if is_small { (Some(meanwhile), None) } else { (None, Some(meanwhile)) };
        let queued = self.pack(b, room).and_then(|()| {
            before.map_or(Ok(()), |meanwhile| meanwhile())?;
            let head = Head::of::<B>(b.cols());
            peers(&self.sends).for_each(|(to, _)| communicator.send_slice(to, &[head]));
            let from: Vec<usize> = peers(&self.receives).map(|(from, _)| from).collect();
            for (from, theirs) in from.iter().zip(communicator.receive_each(&from)?) {
                self.check(*from, &theirs, head)?;
            }
            self.queue(b, room)?;
            behind.map_or(Ok(()), |meanwhile| meanwhile())
        });
        // Also behind an error: something may have been queued, and what is done with `b` from here on comes after it.
        let held = self.channel.mark().and_then(|()| self.channel.hold());
        queued.and(held.map_err(DistError::from))
    }

    /// Through host memory: sends the rows that others get.
    fn send<B: Element>(
        &self,
        communicator: &Communicator,
        b: &DeviceMatrix<B>,
        room: &mut Room<B>,
    ) -> Result<(), DistError> {
        let head = Head::of::<B>(b.cols());
        let rows = match self.sent_rows() {
            0 => Vec::new(),
            _ => {
                self.pack(b, room)?;
                room.packed.as_ref().unwrap_or(b).download()?
            }
        };
        let width = b.cols();
        for (to, part) in peers(&self.sends) {
            let mut message = bytemuck::bytes_of(&head).to_vec();
            message.extend_from_slice(bytemuck::cast_slice(&rows[part.start * width..part.end * width]));
            communicator.send(to, message);
        }
        Ok(())
    }

    /// Lays rows of one's own out as those that come, where they lie otherwise.
    fn align<B: Element>(&self, b: &DeviceMatrix<B>, room: &mut Room<B>) -> Result<(), DistError> {
        room.aligned = None;
        if b.ld() != room.coming.ld() {
            let (rows, width) = (b.download()?, b.cols());
            let rows = DenseRef::packed(&rows, b.rows(), width)?;
            room.aligned = Some(DeviceMatrix::upload(&self.device, rows)?);
        }
        Ok(())
    }

    /// Packs the rows that go, unless all of them do, where messages are queued.
    fn pack<B: Element>(&self, b: &DeviceMatrix<B>, room: &mut Room<B>) -> Result<(), DistError> {
        let (one, zero) = (B::Sum::from_f32(1.0), B::Sum::from_f32(0.0));
        let Some(pack) = &self.pack else { return Ok(self.channel.begin().map(|_| ())?) };
        let packed = match &mut room.packed {
            Some(packed) => packed,
            none => none.insert(DeviceMatrix::zeros(&self.device, pack.shape().0, b.cols())?),
        };
        match self.channel.begin()? {
            // SAFETY: the stream comes after what made and wrote both; `run` has what is done with them later come
            // after the stream, whose mark their memory is freed behind.
            Some(stream) => unsafe {
                pack.run_into_on(stream, one, b.view().lent(), zero, packed.view_mut().lent())?;
            },
            None => pack.run_into(one, b, zero, packed)?,
        }
        Ok(())
    }

    /// Queues the messages from device to device; rows of one's own that lie among those that come are one as well.
    fn queue<B: Element>(&self, b: &DeviceMatrix<B>, room: &mut Room<B>) -> Result<(), DistError> {
        let message = |rank: usize, matrix: &DeviceMatrix<B>, rows: &Range<usize>| {
            let row = wide(matrix.ld()) * wide(size_of::<B>());
            let address = matrix.buffer().address() + row * wide(rows.start);
            Message { rank, address, bytes: row * wide(rows.len()) }
        };
        let own = room.aligned.as_ref().unwrap_or(b);
        let going = room.packed.as_ref().unwrap_or(own);
        let mut sends: Vec<Message> = peers(&self.sends).map(|(to, rows)| message(to, going, rows)).collect();
        let mut receives: Vec<Message> =
            peers(&self.receives).map(|(from, rows)| message(from, &room.coming, rows)).collect();
        if let Some(rows) = self.own.as_ref().filter(|rows| !rows.is_empty()) {
            sends.push(message(self.rank, own, &(0..rows.len())));
            receives.push(message(self.rank, &room.coming, rows));
        }
        // SAFETY: the rows lie inside of the matrices, whose memory is freed behind the channel's mark; `run` has what
        // then uses `b` and the room come after the messages.
        Ok(unsafe { self.channel.exchange(&sends, &receives) }?)
    }

    /// Puts the rows that came through host memory where they are multiplied.
    fn receive<B: Element>(
        &self,
        communicator: &Communicator,
        b: &DeviceMatrix<B>,
        room: &mut Room<B>,
    ) -> Result<(), DistError> {
        let (head, width) = (Head::of::<B>(b.cols()), b.cols());
        let mut rows =
            try_zeroed::<B>(room.coming.rows() * width, "rows of other ranks").map_err(PlanError::from)?;
        let (from, parts): (Vec<usize>, Vec<_>) = peers(&self.receives).unzip();
        for ((from, part), message) in from.iter().zip(parts).zip(communicator.receive_each(&from)?) {
            let (theirs, elements) = message.split_at(size_of::<Head>().min(message.len()));
            self.check(*from, theirs, head)?;
            rows[part.start * width..part.end * width]
                .copy_from_slice(&bytemuck::pod_collect_to_vec::<u8, B>(elements));
        }
        if let Some(own) = &self.own {
            rows[own.start * width..own.end * width].copy_from_slice(&b.download()?);
        }
        Ok(room.coming.copy_from(DenseRef::packed(&rows, room.coming.rows(), width)?)?)
    }

    /// Waits until the rows of others are here, and keeps the memory for the next run.
    pub(super) fn finish<B: Element>(
        &self,
        communicator: &Communicator,
        room: Room<B>,
    ) -> Result<(), DistError> {
        let with: Vec<usize> =
            peers(&self.receives).chain(peers(&self.sends)).map(|(rank, _)| rank).collect();
        self.channel.wait(communicator, &with)?;
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(room));
        Ok(())
    }

    /// Whether another rank's message is of the same kind as this rank's.
    fn check(&self, from: usize, theirs: &[u8], own: Head) -> Result<(), DistError> {
        let theirs = bytemuck::try_pod_read_unaligned(theirs).ok();
        if theirs == Some(own) {
            return Ok(());
        }
        Err(DistError::Disagreement {
            what: "columns of B",
            rank: from,
            theirs: theirs.map_or_else(|| "nothing".to_owned(), |theirs| theirs.to_string()),
            own_rank: self.rank,
            own: own.to_string(),
        })
    }
}

/// Ranks that something goes to, or comes from.
fn peers(ranges: &[Range<usize>]) -> impl Iterator<Item = (usize, &Range<usize>)> {
    ranges.iter().enumerate().filter(|(_, range)| !range.is_empty())
}

/// A product with a selection of rows, which packs them; none if there are none.
fn packing(
    device: &Device,
    packed: &[u32],
    own: usize,
    options: &SpmmOptions,
) -> Result<Option<SpmmPlan>, DistError> {
    if packed.is_empty() {
        return Ok(None);
    }
    let offsets = (0..=packed.len() as u64).collect();
    let chosen =
        Csr::try_from_parts(packed.len(), own, offsets, packed.to_vec(), vec![1.0f32; packed.len()])?;
    let SpmmOptions { width, precision, memory_limit, .. } = *options;
    let options = SpmmOptions {
        width,
        precision,
        memory_limit,
        algorithm: Algorithm::RowSplit,
        ..SpmmOptions::default()
    };
    Ok(Some(Spmm::builder(&chosen).options(options).build(device)?))
}

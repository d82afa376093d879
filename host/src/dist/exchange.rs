//! Rows of a dense operand that ranks get from one another.

use std::ops::Range;

use windrow_formats::memory::try_zeroed;
use windrow_formats::{Csr, Value};

use super::communicator::Communicator;
use super::csr::DistCsr;
use super::ownership::Ownership;
use super::scheme::Scheme;
use crate::device::Device;
use crate::element::Element;
use crate::error::{DistError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::num::narrow;
use crate::options::Algorithm;
use crate::spmm::{Spmm, SpmmOptions, SpmmPlan};

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

/// All rows that a rank does not own.
pub(super) fn others(owned: &Ownership, rank: usize) -> Vec<u32> {
    let own = owned.range(rank);
    (0..owned.rows()).filter(|row| !own.contains(row)).map(narrow).collect()
}

/// What a rank sends of its rows, and where those of others come.
pub(super) struct Exchange {
    rank: usize,
    /// Packs the rows of one's own that others need, behind one another; without it all of them are sent.
    pack: Option<SpmmPlan>,
    /// For each rank, which rows of those it gets.
    sends: Vec<Range<usize>>,
    /// For each rank, where its rows come among all.
    receives: Vec<Range<usize>>,
    /// Number of the rows that come.
    coming: usize,
}

impl Exchange {
    /// So that this rank gets the rows `coming`, ascending: each owner is told which, or with
    /// [`Scheme::AllGather`] sends all.
    pub(super) fn new(
        (communicator, device): (&Communicator, &Device),
        owned: &Ownership,
        coming: Vec<u32>,
        scheme: Scheme,
        options: &SpmmOptions,
    ) -> Result<Self, DistError> {
        let rank = communicator.rank();
        let receives: Vec<Range<usize>> = (0..owned.ranks())
            .map(|owner| {
                let range = owned.range(owner);
                let place = |row: usize| coming.partition_point(|&other| (other as usize) < row);
                if owner == rank { 0..0 } else { place(range.start)..place(range.end) }
            })
            .collect();
        let mut exchange = Self { rank, pack: None, sends: Vec::new(), receives, coming: coming.len() };
        if scheme == Scheme::Halo {
            let packed = exchange.ask(communicator, owned, &coming)?;
            exchange.pack = packing(device, &packed, owned.range(rank).len(), options)?;
        } else {
            exchange.sends = vec![0..owned.range(rank).len(); owned.ranks()];
            exchange.sends[rank] = 0..0;
        }
        Ok(exchange)
    }

    /// Tells each owner which of its rows this rank needs; returns those that the others ask for, numbered from this
    /// rank's first on, rank after rank.
    fn ask(
        &mut self,
        communicator: &Communicator,
        owned: &Ownership,
        coming: &[u32],
    ) -> Result<Vec<u32>, DistError> {
        for to in communicator.others() {
            let start = narrow(owned.range(to).start);
            let asked: Vec<u32> = coming[self.receives[to].clone()].iter().map(|row| row - start).collect();
            communicator.send_slice(to, &asked);
        }
        let mut packed = Vec::new();
        for from in 0..owned.ranks() {
            let first = packed.len();
            if from != self.rank {
                packed.extend(communicator.receive_vec::<u32>(from)?);
            }
            self.sends.push(first..packed.len());
        }
        Ok(packed)
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

    /// Sends the rows that others get.
    pub(super) fn send<B: Element>(
        &self,
        communicator: &Communicator,
        b: &DeviceMatrix<B>,
    ) -> Result<(), DistError> {
        let width = b.cols();
        let rows = match &self.pack {
            _ if self.sent_rows() == 0 => Vec::new(),
            Some(pack) => {
                let mut packed = DeviceMatrix::<B>::zeros(b.device(), pack.shape().0, width)?;
                pack.run_into(B::Sum::from_f32(1.0), b, B::Sum::from_f32(0.0), &mut packed)?;
                packed.download()?
            }
            None => b.download()?,
        };
        for to in communicator.others() {
            let part = &self.sends[to];
            let mut message = (width as u64).to_le_bytes().to_vec();
            message.extend_from_slice(bytemuck::cast_slice(&rows[part.start * width..part.end * width]));
            communicator.send(to, message);
        }
        Ok(())
    }

    /// The rows of others, one after the other.
    pub(super) fn receive<B: Element>(
        &self,
        communicator: &Communicator,
        width: usize,
    ) -> Result<Vec<B>, DistError> {
        let mut rows =
            try_zeroed::<B>(self.coming * width, "rows of other ranks").map_err(PlanError::from)?;
        for from in communicator.others() {
            let message = communicator.receive(from)?;
            let (head, elements) = message.split_at(size_of::<u64>());
            let theirs = u64::from_le_bytes(head.try_into().unwrap_or_default());
            let elements: Vec<B> = bytemuck::pod_collect_to_vec(elements);
            let part = &self.receives[from];
            if theirs != width as u64 || elements.len() != part.len() * width {
                return Err(DistError::Disagreement {
                    what: "columns of B",
                    rank: from,
                    theirs: theirs.to_string(),
                    own_rank: self.rank,
                    own: width.to_string(),
                });
            }
            rows[part.start * width..part.end * width].copy_from_slice(&elements);
        }
        Ok(rows)
    }
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

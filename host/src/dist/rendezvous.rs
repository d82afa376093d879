//! How processes become a group: where they meet, and what they tell each other there.

mod advert;
mod meeting;

use std::path::PathBuf;
use std::time::Duration;

use super::communicator::{Communicator, TIME_OUT, check_size};
use crate::error::DistError;
use meeting::Place;

/// The variable that says where ranks meet, `HOST:PORT` or a file.
const VARIABLE: &str = "WINDROW_RENDEZVOUS";
/// Where launchers say a process's rank, and how many there are: torchrun, Open MPI, other MPIs, Slurm.
const RANKS: [[&str; 2]; 4] = [
    ["RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS"],
];

/// What a process joins a group by: its rank, and where the processes meet.
///
/// Each process calls [`join`](Self::join), and has a connection to each other one then, by which plans are compared
/// and failures told. Rows of GPUs go by NCCL; where that is not to be had, they take these connections, too.
///
/// Whoever can reach the address, or read the file, can join: they are for a network, and a folder, that nobody else
/// uses.
///
/// # Examples
/// One of two processes, here threads of one:
/// ```
/// use windrow::dist::Rendezvous;
///
/// let file = std::env::temp_dir().join(format!("windrow-doc-rendezvous-{}", std::process::id()));
/// std::thread::scope(|scope| {
///     let ranks = [0, 1].map(|rank| {
///         let rendezvous = Rendezvous::by_file(&file, rank, 2);
///         scope.spawn(move || rendezvous.join()?.all_gather(&rank))
///     });
///     ranks.map(|rank| assert_eq!(rank.join().unwrap(), Ok(vec![0, 1])));
/// });
/// assert!(!file.exists());
/// ```
#[derive(Debug, Clone)]
pub struct Rendezvous {
    rank: usize,
    ranks: usize,
    place: Place,
    time_out: Duration,
}

impl Rendezvous {
    /// At an address such as `node0:29400`: rank 0 waits there for the others, which may be on other hosts.
    #[must_use]
    pub fn at(address: impl Into<String>, rank: usize, ranks: usize) -> Self {
        Self { rank, ranks, place: Place::Address(address.into()), time_out: TIME_OUT }
    }

    /// By a file, for processes of one host: rank 0 writes where it is, and removes the file when all have come. One
    /// that an earlier group left is replaced; any other file is an error.
    #[must_use]
    pub fn by_file(path: impl Into<PathBuf>, rank: usize, ranks: usize) -> Self {
        Self { rank, ranks, place: Place::File(path.into()), time_out: TIME_OUT }
    }

    /// As the environment says, for programs that a launcher starts.
    ///
    /// - Rank and ranks: `RANK` and `WORLD_SIZE` (torchrun), `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`,
    ///   `PMI_RANK` and `PMI_SIZE`, or `SLURM_PROCID` and `SLURM_NTASKS`: the first two that are there.
    /// - Where: `WINDROW_RENDEZVOUS`, an address `HOST:PORT` or else a file; without it `MASTER_ADDR` and
    ///   `MASTER_PORT`, and the port after that where torchrun has its own store at this one.
    ///
    /// # Errors
    /// [`DistError::Rendezvous`] if something is missing or is no number.
    pub fn from_environment() -> Result<Self, DistError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, DistError> {
        let failed = |reason| DistError::Rendezvous { place: "the environment's place".to_owned(), reason };
        let number = |name: &str| {
            let text = variable(name).ok_or_else(|| failed(format!("{name} is not set")))?;
            text.trim().parse().map_err(|_| failed(format!("{name} is {text:?}, which is no number")))
        };
        let Some([rank, ranks]) = RANKS.into_iter().find(|[rank, _]| variable(rank).is_some()) else {
            let names = RANKS.map(|[rank, _]| rank).join(", ");
            return Err(failed(format!("none of {names} is set; start the program by a launcher")));
        };
        let (rank, ranks) = (number(rank)?, number(ranks)?);
        if let Some(place) = variable(VARIABLE) {
            let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            return Ok(if has_port {
                Self::at(place, rank, ranks)
            } else {
                Self::by_file(place, rank, ranks)
            });
        }
        let Some(host) = variable("MASTER_ADDR") else {
            return Err(failed(format!("neither {VARIABLE} nor MASTER_ADDR is set")));
        };
        let port = number("MASTER_PORT")?;
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text == "True");
        let port = port + usize::from(is_taken);
        Ok(Self::at(
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") },
            rank,
            ranks,
        ))
    }

    /// Waits for the others for so long at most, instead of five minutes; the same for the group's
    /// [time-out](Communicator::time_out).
    #[must_use]
    pub fn time_out(mut self, time_out: Duration) -> Self {
        self.time_out = time_out;
        self
    }

    /// Waits for all ranks, and becomes one of the group.
    ///
    /// # Errors
    /// - [`DistError::GroupSize`] for no rank, or more than 1024;
    /// - [`DistError::Rendezvous`] if they do not all come in time, which says who is missing; if another process has
    ///   this rank, another number of ranks or another version of windrow; if the place cannot be used.
    pub fn join(self) -> Result<Communicator, DistError> {
        check_size(self.ranks)?;
        let (rank, ranks, time_out) = (self.rank, self.ranks, self.time_out);
        let met = match rank < ranks {
            true => meeting::meet(&self.place, [rank, ranks], time_out),
            false => Err(format!("rank {rank} is none of {ranks}, which begin with 0")),
        };
        let joined = met.and_then(|met| met.communicator().map_err(|error| error.to_string()));
        let communicator =
            joined.map_err(|reason| DistError::Rendezvous { place: self.place.to_string(), reason })?;
        Ok(communicator.time_out(time_out))
    }
}

#[cfg(test)]
mod tests;

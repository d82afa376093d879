//! The ranks of an example: threads of it, or the process that a launcher started as one of them.

use std::time::Duration;

use windrow::dist::{Communicator, Rendezvous, Transport};
use windrow::{Device, DeviceSelector};

/// Whatever went wrong, which a thread can hand on.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(clap::Args)]
pub(crate) struct Group {
    /// Ranks, each a thread
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Be one rank of a group of processes, as its launcher says in the environment
    #[arg(long, conflicts_with = "ranks")]
    processes: bool,
    /// Seconds that another rank is waited for
    #[arg(long, default_value_t = 300.0)]
    time_out: f64,
    /// Devices that the ranks have by turns, on each host anew
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    devices: Vec<String>,
    /// The way of rows between devices: auto, nccl or host-memory
    #[arg(long, default_value = "auto")]
    transport: Transport,
}

impl Group {
    /// Has every rank of this process do something on its device; what came of the first.
    ///
    /// # Errors
    /// The first that one of them had; those of meeting, and of the devices.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl Fn(&Communicator, &Device) -> Result<T> + Sync,
    ) -> Result<T> {
        let time_out = Duration::try_from_secs_f64(self.time_out)?;
        let open = |name: &String| Ok(name.parse::<DeviceSelector>()?.open()?);
        if self.processes {
            let rank = Rendezvous::from_environment()?.time_out(time_out).join()?.transport(self.transport);
            return work(&rank, &open(&self.devices[rank.local_rank() % self.devices.len()])?);
        }
        let devices: Vec<Device> = self.devices.iter().map(open).collect::<Result<_>>()?;
        let group = Communicator::threads(self.ranks)?.into_iter().zip(devices.iter().cycle());
        let work =
            |rank: Communicator, device| work(&rank.time_out(time_out).transport(self.transport), device);
        let ended: Vec<Result<T>> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                group.map(|(rank, device)| scope.spawn(move || work(rank, device))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut all = ended.into_iter().collect::<Result<Vec<T>>>()?;
        Ok(all.swap_remove(0)) // a group has a rank
    }
}

//! Arguments about where and how long a product is run, common to the commands that run one.

use clap::Args;
use windrow::{Device, DeviceError, DeviceSelector};
use windrow_bench::measure::Sampling;

use crate::units::parse_bytes;

/// Where a product is computed.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Where to compute: best (a GPU if there is one, else the CPU), cpu, cuda:0, cuda:1, ...
    #[arg(long, short, value_name = "DEVICE", default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
}

impl DeviceArgs {
    pub(crate) fn open(&self) -> Result<Device, DeviceError> {
        self.device.open()
    }
}

/// How long a product is timed.
#[derive(Debug, Args)]
pub(crate) struct TimingArgs {
    /// Timed batches of runs; the time printed is their median.
    #[arg(long, value_name = "R", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
}

impl TimingArgs {
    /// As many batches. A few are after a warm-up that is no longer than they are.
    pub(crate) fn sampling(&self) -> Sampling {
        let (repeat, usual) = (self.repeat, Sampling::default());
        Sampling {
            warm_up_calls: repeat.min(usual.warm_up_calls),
            warm_up_us: if repeat < usual.min_batches { 0 } else { usual.warm_up_us },
            min_batches: repeat,
            min_calls: repeat,
            ..usual
        }
    }
}

/// How much memory a plan may take.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Refuse a plan that needs more device memory, for example 2GiB.
    #[arg(long = "memory-limit", value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) limit: Option<u64>,
}

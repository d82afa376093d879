//! windrow's measuring harness: verified timings, peers and the gather roofline.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`measure`] | times calls on the device's own clock: warm-up, batches, median, noise |
//! | [`peers`] | cuSPARSE and cuBLAS, loaded at run time where they are |
//! | [`DeviceRates`] | the gather roofline: what memory of the device at hand can do |
//! | [`sweep`] | matrices × widths × paths, each result verified in the run, JSON lines out |
//!
//! The program `windrow-sweep` is a sweep from the command line; `cargo bench -p windrow-bench` runs the criterion
//! suites, those for a GPU where there is one. No time is reported for a result that is not within its error bound.

mod error;
mod operands;
pub mod peers;
mod roofline;
mod sweep;
mod timing;

pub use error::BenchError;
pub use operands::{case_seed, fill, pattern_checksum, poisoned_matrix, random_matrix};
pub use roofline::{DeviceRates, GatherProbe, GatherRates, measure_copy};
pub use sweep::{
    CheckFacts, DeviceFacts, MatrixFacts, MatrixSource, PeerAttempt, PeerFacts, PlanFacts, Record, SCHEMA,
    SweepOptions, SweepPath, SweepSummary, Table, TimeFacts, revision, sweep,
};
pub use timing::{Sampling, Statistics, Timing, measure};

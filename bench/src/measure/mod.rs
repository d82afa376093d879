//! Measuring: calls timed on the device's own clock, operands, peers, the roofline, and the tuner.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`measure()`] | times calls: warm-up, batches, median, noise |
//! | [`L2`] | whether the cache is warm or cold when a timed call begins |
//! | [`random_matrix`], [`poisoned_matrix`] | operands: fresh numbers, and a result that is wrong until it is written |
//! | [`peers`] | cuSPARSE and cuBLAS, loaded at run time where they are |
//! | [`AttendedPath`] | a way to attention as text, made ready, run and compared |
//! | [`DeviceRates`] | the gather roofline: what memory of a device can do |
//! | [`SweepPath`] | a way to a product as text, and the builder of its plan |
//! | [`tune()`] | thresholds of a GPU model, from made-up matrices |
//! | [`tune_product`] | the quickest way to one product, each result verified |
//!
//! No time is told for a result that is not within its error bound.

pub(crate) mod attended;
mod error;
pub(crate) mod l2;
pub(crate) mod operands;
pub(crate) mod orders;
pub(crate) mod path;
pub mod peers;
pub(crate) mod product;
pub(crate) mod profile;
pub(crate) mod roofline;
pub(crate) mod sampled;
mod stages;
pub(crate) mod statistics;
mod tensor;
pub(crate) mod timing;
pub(crate) mod tuner;

pub use attended::{Attended, AttendedPath};
pub use error::BenchError;
pub use l2::L2;
pub use operands::{poisoned_matrix, random_matrix};
pub use path::SweepPath;
pub use profile::{ScheduleCase, ThresholdFit, ThresholdSource, Tuning, judgement, tune};
pub use roofline::{DeviceRates, GatherRates};
pub(crate) use stages::StageSamples;
pub use statistics::Statistics;
pub use tensor::TensorOperation;
pub use timing::{Sampling, Timing, measure};
pub use tuner::{
    Ended, Found, Limits, Outcome, PathFamily, ProductTuning, Telling, Tried, TuneRequest, tune_product,
};

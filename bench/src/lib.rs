//! windrow's measuring harness: verified timings, peers and the gather roofline.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`measure`] | times calls on the device's own clock: warm-up, batches, median, noise |
//! | [`peers`] | cuSPARSE and cuBLAS, loaded at run time where they are |
//! | [`DeviceRates`] | the gather roofline: what memory of the device at hand can do |
//! | [`sweep`] | matrices × widths × paths, each result verified in the run, JSON lines out |
//! | [`ablation()`] | what each component is worth: partition, balance, orders, formats, determinism |
//! | [`sampled_sweep`] | the same for sampled products (SDDMM) |
//! | [`nm_sweep`] | products with N:M weights, beside cuBLAS's dense ones |
//! | [`tensor_sweep`] | products of sparse tensors (MTTKRP, TTM), beside atomic additions |
//! | [`tune()`] | thresholds of a GPU model, from made-up matrices |
//! | [`tune_product`], [`tune_sweep`] | the quickest way to a product, each result verified; many of them |
//! | [`fit()`] | thresholds of the decision tree of segment groups, from measured times |
//! | [`summarise`], [`summarise_ablation`], [`summarise_sampled`], [`summarise_nm`], [`summarise_tensor`], [`summarise_tuning`] | the lines as Markdown |
//!
//! The programs `windrow-sweep`, `windrow-tuned`, `windrow-fit`, `windrow-sddmm`, `windrow-nm`, `windrow-tensor` and `windrow-ablation` do these from the command line; `cargo bench -p windrow-bench` runs the criterion
//! suites, those for a GPU where there is one. No time is reported for a result that is not within its error bound.

mod ablation;
pub mod command;
mod error;
mod fit;
mod operands;
mod orders;
pub mod peers;
mod product;
mod pruned;
mod roofline;
mod sampled;
mod schedules;
mod summary;
mod sweep;
mod tensor;
mod timing;
mod tune;
mod tuner;

pub use ablation::{
    ABLATION_SCHEMA, AblationFacts, AblationOptions, AblationPart, AblationRecord, AblationSummary,
    DeterminismFacts, FormatFacts, HybridFacts, Measurement, PlaceFacts, PreprocessFacts, ReorderFacts,
    ThresholdFacts, VectorFacts, ablation, summarise_ablation,
};
pub use error::BenchError;
pub use fit::{Fit, FitCase, FitData, Losses, fit};
pub use operands::{case_seed, fill, pattern_checksum, poisoned_matrix, random_matrix};
pub use pruned::{NM_SCHEMA, NmOptions, NmPlanFacts, NmRecord, NmShape, nm_sweep, summarise_nm};
pub use roofline::{DeviceRates, GatherProbe, GatherRates, measure_copy};
pub use sampled::{
    SAMPLED_SCHEMA, SampledOptions, SampledPath, SampledPlanFacts, SampledRecord, sampled_sweep,
    summarise_sampled,
};
pub use schedules::{ScheduleCase, fit_range, judgement};
pub use summary::{Published, summarise};
pub use sweep::{
    CheckFacts, DeviceFacts, MatrixFacts, MatrixSource, OrderFacts, PeerAttempt, PeerFacts, PlanFacts,
    Record, SCHEMA, SchedulingFacts, SweepOptions, SweepPath, SweepSummary, Table, TimeFacts, Values,
    revision, sweep,
};
pub use tensor::{
    SyntheticTensor, TENSOR_SCHEMA, TensorOperation, TensorOptions, TensorPlanFacts, TensorRecord,
    TensorSource, segment_points, summarise_tensor, tensor_sweep,
};
pub use timing::{Sampling, Statistics, Timing, measure};
pub use tune::{Tuning, tune};
pub use tuner::{
    Ended, FamilyFacts, Found, Limits, Outcome, PathFamily, ProductTuning, TUNING_SCHEMA, Tried, TriedFacts,
    TuneRequest, TuneSweepOptions, TuningRecord, summarise_tuning, tune_product, tune_sweep,
};

//! Sparse-dense products on NVIDIA GPUs and on the CPU: plan once, run many times.
//!
//! windrow multiplies a sparse matrix by dense ones, `C[m×n] ← α·A[m×k]·B[k×n] + β·C` with everything row-major. A
//! plan does the work that depends on `A` alone, once: it chooses a kernel, lays the matrix out for it, deals the
//! work out evenly and uploads it. Running the plan is then cheap, for any `B` of any width, and gives the same bits
//! every time, unless [`Determinism::Fast`] is asked for.
//!
//! ```
//! use windrow::{Csr, Device, Precision, Spmm};
//!
//! // 2 × 3:  [ 1 . 2 ]
//! //         [ . 3 . ]
//! let a = Csr::try_from_parts(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0f32, 2.0, 3.0])?;
//! let device = Device::best()?; // a GPU if there is one, else the CPU
//! let plan = Spmm::builder(&a).width(2).precision(Precision::F16).build(&device)?;
//! println!("{}", plan.report()); // kernel, bytes, time spent
//!
//! let b = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]; // 3 × 2
//! assert_eq!(plan.run(&b)?, [7.0, 70.0, 6.0, 60.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A matrix comes from a file ([`io`]: Matrix Market, edge lists, `.smtx`, `.npz`), from coordinates ([`Coo`]), from
//! CSR arrays or from a dense one ([`Csr`]).
//!
//! Dense operands in host memory are row-major slices, or a [`MatRef`] of any element type, row-major or column-major,
//! which `ndarray`'s arrays become; [`interop`] has the conversions from and to the matrices of other crates, each
//! behind a feature.
//!
//! # Matrices that stay on the device
//!
//! [`SpmmPlan::run`] copies from and to the host. Programs that keep their data on the GPU use [`DeviceMatrix`] and
//! [`SpmmPlan::run_into`], which queues the kernels and returns:
//!
//! ```
//! use windrow::{Algorithm, DenseRef, Device, DeviceMatrix, Precision, Spmm, f16};
//!
//! let device = Device::best()?;
//! let a = windrow::Csr::<f32>::identity(4)?;
//! let mut plan = Spmm::builder(&a)
//!     .precision(Precision::F16)
//!     .algorithm(Algorithm::TileStream) // instead of the choice that the plan makes
//!     .memory_limit(1 << 30)
//!     .build(&device)?;
//!
//! let ones = [f16::ONE; 4 * 2];
//! let b = DeviceMatrix::upload(&device, DenseRef::packed(&ones, 4, 2)?)?;
//! let mut c = DeviceMatrix::<f32>::zeros(&device, 4, 2)?;
//! plan.run_into(0.5, &b, 0.0, &mut c)?;
//! plan.replace_values(&[1.0f32, 2.0, 3.0, 4.0])?; // same pattern, new values
//! plan.run_into(1.0, &b, 1.0, &mut c)?; // C ← A·B + C
//! assert_eq!(c.download()?, [1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 4.5]);
//! assert_eq!(plan.report().precision, Precision::F16);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Attention over a graph, scores, softmax and sums in one pass, is [`GraphAttention`].
//!
//! Values that are computed on the device become those of a plan by [`SpmmPlan::replace_values_from`], without a way
//! through the host; a plan for `Aᵀ` takes them in the order of `A`'s entries ([`SpmmBuilder::value_order`]), which is
//! what a backward pass needs:
//!
//! ```
//! use windrow::{Csr, Device, DeviceBuffer, Spmm};
//!
//! let device = Device::best()?;
//! let a = Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0])?;
//! let (transposed, order) = (a.transpose()?, a.transpose_order()?);
//! let mut plan = Spmm::builder(&transposed).value_order(&order).values_from_device().build(&device)?;
//! let weights = DeviceBuffer::from_slice(&device, &[0.5f32, 0.25, 4.0])?; // of A, computed there
//! plan.replace_values_from(&weights)?;
//! assert_eq!(plan.run(&[8.0, 1.0])?, [4.0, 6.0]); // Aᵀ·[8, 1]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Streams, and matrices of other libraries
//!
//! Dense matrices that are on a GPU already, PyTorch's or anybody's, are operands where they are: a [`DeviceView`] of
//! an address, which the driver is asked about. A [`Stream`] that the other library queues its work in takes windrow's,
//! too, and nobody waits on the host:
//!
//! ```
//! use windrow::{DeviceView, DeviceViewMut, SpmmError, SpmmPlan, Stream};
//!
//! /// `C ← A·B` for packed tensors of f32 with `n` columns, in the order of `stream`.
//! ///
//! /// # Safety
//! /// Addresses and stream are of the plan's device, live until the work is done, and are used in its order.
//! unsafe fn multiply(plan: &SpmmPlan, stream: &Stream, b: u64, c: u64, n: usize) -> Result<(), SpmmError> {
//!     let (m, k) = plan.shape();
//!     // SAFETY: the caller's promise; what the driver knows is checked.
//!     let (b, c) = unsafe {
//!         (
//!             DeviceView::<f32>::from_raw(plan.device(), b, k, n, n)?,
//!             DeviceViewMut::<f32>::from_raw(plan.device(), c, m, n, n)?,
//!         )
//!     };
//!     plan.run_into_on(stream, 1.0, b, 0.0, c)
//! }
//! ```
//!
//! [`Stream`] says how work on different streams is ordered, and what can be captured into a CUDA graph.
//!
//! So are sparse matrices: a [`DeviceCsr`] of three arrays in device memory, with offsets and columns of 32 or 64 bits
//! as PyTorch and cuSPARSE have them, is checked and planned by kernels, without a way through the host:
//!
//! ```
//! use windrow::{CsrAddresses, DeviceCsr, Precision, Spmm, SpmmError, SpmmPlan, Stream};
//!
//! /// A plan for a few products with an `n × n` matrix of PyTorch's default types.
//! ///
//! /// # Safety
//! /// The addresses are of arrays of these lengths in memory of the stream's device, which nothing writes meanwhile.
//! unsafe fn plan(on: &Stream, n: usize, nnz: usize, arrays: CsrAddresses) -> Result<SpmmPlan, SpmmError> {
//!     // SAFETY: the caller's promise; whatever the arrays hold is checked.
//!     let a = unsafe { DeviceCsr::<f32>::from_raw::<i64, i64>(on.device(), (n, n), nnz, arrays)? };
//!     Spmm::builder(&a).precision(Precision::F16).width(64).expected_runs(4).build_on(on)
//! }
//! ```
//!
//! [`DeviceCsr::canonical`] takes entries in any order, and [`DeviceCsr::transposed`] makes the matrix of a backward
//! pass with the order of its entries, both on the device. [`DeviceCoo3`] is the same for sparse tensors of three
//! modes, [`DeviceVectorNm`] for N:M weights.
//!
//! # Sampled products
//!
//! [`Sddmm`] computes products of rows of two dense matrices where a sparse one has entries, `out = (X·Yᵀ) ⊙ A`: the
//! gradient of SpMM with respect to the values of `A`, and the scores of attention over a graph.
//!
//! ```
//! use windrow::{Csr, Device, Sddmm, SddmmForm};
//!
//! let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 3.0, 0.0])?;
//! let plan = Sddmm::builder(&a).inner(2).form(SddmmForm::Scale).build(&Device::best()?)?;
//! let (x, y) = ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0, 1.0]); // both 2 × 2
//! assert_eq!(plan.run(&x, &y)?, [4.0, 21.0]); // 2·(x₀·y₁), 3·(x₁·y₀)
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`RowSoftmax`] turns such scores into weights, `softmax(scale·s)` over the entries of each row, and gradients of
//! weights into gradients of scores:
//!
//! ```
//! use windrow::{Csr, Device, DeviceBuffer, RowSoftmax};
//!
//! let device = Device::best()?;
//! let a = Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0])?;
//! let mut weights = DeviceBuffer::from_slice(&device, &[3.0f32, 3.0, 8.0])?;
//! RowSoftmax::new(&a, &device)?.forward_in_place(1.0, &mut weights)?;
//! assert_eq!(weights.to_vec()?, [0.5, 0.5, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`training`] has the few dense operations that training a graph neural network needs beside these; the examples
//! `gcn`, `agnn`, `gat` and `graph_transformer` train models of five layers on any graph, forward and backward.
//!
//! # Tensors
//!
//! [`Mttkrp`] and [`Ttm`] are the products of a sparse tensor of three modes with dense matrices that CP and Tucker
//! decompositions spend their time in. A tensor comes from a FROSTT `.tns` file ([`io::read_tns`]) or from coordinates
//! ([`Coo3`]), and is multiplied as compressed fibers ([`Csf3`]), whose first mode is that of the result.
//!
//! # Weights with N:M sparsity
//!
//! [`NmSpmm`] multiplies dense activations by weights of which in every `M` rows `N` are kept, in vectors of `L`
//! columns: a pruned linear layer, `C = act(A·W + bias)`. [`prune_magnitude`] makes such weights of dense ones,
//! [`io`] reads and writes them as safetensors. [`NmGradients`] are those of the activations and of what is kept.
//!
//! ```
//! use windrow::{Device, NmPattern, NmSpmm, prune_magnitude};
//!
//! let dense: Vec<f32> = (0..16u8).map(f32::from).collect(); // 4 × 4
//! let weights = prune_magnitude(&dense, 4, 4, NmPattern::new(1, 2, 4)?)?; // rows 1 and 3 are the larger ones
//! let plan = NmSpmm::builder(&weights).build(&Device::cpu())?;
//! assert_eq!(plan.run(&[1.0, 1.0, 1.0, 1.0])?, [16.0, 18.0, 20.0, 22.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Devices
//!
//! | device | needs | runs |
//! | --- | --- | --- |
//! | [`Device::cuda`] | an NVIDIA driver and a GPU of compute capability 8.0 or later; no CUDA toolkit | kernels written in Rust, compiled to PTX that is part of this library |
//! | [`Device::cpu`] | nothing | the same plans on rayon's threads |
//! | `Device::emulator` (feature `emulator`) | nothing | the GPU's kernels thread by thread, every access checked; for tests |
//!
//! A missing driver is an error value, and [`Device::best`] then takes the CPU; a driver that is too old for the
//! kernels, or does not accept them, says so with versions and its log.
//!
//! # Errors
//!
//! What depends on data or device is an error of the family ([`SpmmError`], [`SddmmError`], [`NmError`],
//! [`TensorError`]), of any plan ([`PlanError`]) or of the device ([`DeviceError`]), with the numbers in it and what
//! to do about them; nothing panics on user data. [`SpmmPlan::verify`] compares a result with an f64 reference,
//! element by element and where the result is, within a bound that follows from the number of roundings.

mod activation;
mod aggregate;
mod attention;
mod cache;
#[cfg(all(test, feature = "emulator"))]
mod captured_tests;
mod cpu;
mod csr;
mod dense;
mod device;
mod element;
mod error;
#[cfg(all(test, feature = "emulator"))]
mod far_tests;
mod matrix;
mod nm;
mod num;
mod options;
mod panels;
mod parallelism;
mod plan;
mod predict;
mod profile;
mod row_lists;
mod sddmm;
#[cfg(debug_assertions)]
mod shared;
mod softmax;
mod sort;
mod spmm;
mod tensor;
mod tf32;
mod threads;
mod trial;
mod tuned;
mod view;

pub mod costs;
#[cfg(feature = "dist")]
pub mod dist;
#[doc(hidden)]
pub mod internal;
pub mod interop;
pub mod training;

pub use activation::{Activation, Epilogue};
pub use aggregate::{
    Aggregate, AggregateBackward, AggregateBuilder, AggregateGradients, AggregateOperands, AggregateOptions,
    AggregatePlan, AggregateReport, Message, Reduce,
};
pub use attention::{
    AttentionAlgorithm, AttentionBackward, AttentionBuilder, AttentionGradients, AttentionOperands,
    AttentionOptions, AttentionPlan, AttentionReport, AttentionScores, Dropout, GraphAttention, HeadLayout,
};
pub use csr::{CsrAddresses, DeviceCsr, DeviceIndices, Index, Transposed};
pub use dense::{Dense, DenseMut, DenseRef, MatRef};
pub use device::{
    Device, DeviceBuffer, DeviceKind, DeviceSelector, Event, KernelModule, PinnedBuffer, Stream,
};
#[cfg(feature = "emulator")]
pub use device::{Fault, Faults};
pub use element::{Element, Real};
#[cfg(feature = "dist")]
pub use error::DistError;
pub use error::{
    AggregateError, AttentionError, DeviceError, Error, NmError, PlanError, SddmmError, SpmmError,
    TensorError, TrainingError,
};
pub use matrix::DeviceMatrix;
pub use nm::{
    ActivationLayout, DeviceVectorNm, NmAddresses, NmAlgorithm, NmBlock, NmDense, NmGradientBuilder,
    NmGradientPlan, NmGradientReport, NmGradients, NmOptions, NmPacking, NmReport, NmSpmm, NmSpmmBuilder,
    NmSpmmPlan, NmWeights,
};
pub use options::{
    Algorithm, CpuTasks, Determinism, Precision, Preprocessing, Rates, RowDivision, TilePipeline, TileValues,
};
pub use parallelism::{
    AtomicParallelism, Bounds, DaSpmm, Family, GroupLaunch, IllegalPoint, MinimalData, Share,
};
pub use plan::{
    ArraySize, OccupancyRange, OccupancyThresholds, Scale, Schedule, Scheduling, StageTime, StreamRule,
    Verification,
};
pub use predict::weigh::{Candidate, Known};
pub use profile::{Profile, ProfileError};
pub use sddmm::{
    Sddmm, SddmmAlgorithm, SddmmBuilder, SddmmForm, SddmmGroup, SddmmOptions, SddmmPlan, SddmmReport,
    SddmmWeighed,
};
pub use softmax::RowSoftmax;
pub use spmm::{
    OutOfCoreReport, OutOfCoreSpmm, SparseMatrix, Spmm, SpmmBuilder, SpmmOptions, SpmmPlan, SpmmReport,
    Weighed,
};
pub use tensor::{
    Coo3Addresses, DeviceCoo3, DeviceCsf3, Mttkrp, MttkrpBuilder, MttkrpOptions, MttkrpPlan, MttkrpReport,
    SparseTensor, Ttm, TtmBuilder, TtmPlan,
};
pub use tuned::{ProductKey, Tuned, TunedError, TunedProduct};
pub use view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut};

/// The 16-bit element types, of the crate `half`.
pub use half::{bf16, f16};
pub use windrow_formats::{
    ByteSizes, Canonicalised, Coo, Coo3, Csf3, Csf3Parts, Csr, FormatError, NmPattern, OutOfMemory, Pattern,
    Permutation, RowAssignment, RowPath, RsTile, Structure, UnknownName, Value, ValueType, VectorNm,
    VectorNmParts, io, memory, names, synthetic, with_value_type,
};
/// Dense weights pruned to vector-wise N:M sparsity.
pub use windrow_preprocess::nm::prune_magnitude;
/// Orders of rows and divisions of rows between the paths, before a plan is made.
pub use windrow_preprocess::{partition, reorder};
#[cfg(feature = "emulator")]
pub use windrow_simt::emulator::Schedule as EmulatorSchedule;

/// The page whose sample is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../docs/out-of-core.md")]
mod out_of_core_page {}

/// The README, whose sample runs with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

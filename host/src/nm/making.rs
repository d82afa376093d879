//! How a plan for a machine that runs kernels is made: an algorithm and an instance are chosen, weights laid out for it.

use std::iter::once;

use windrow_formats::{Value, VectorNm};

use super::builder::NmSpmmBuilder;
use super::cuda_cores::{self, CudaCoresNm};
use super::fragments::{self, Form};
use super::gpu::Kernels;
use super::options::{NmAlgorithm, NmPacking};
use super::parts::Shared;
use super::report::NmReport;
use super::staging::{Bringing, ReadAs, Staging};
use super::tensor_cores::{self, TensorCoresNm};
use super::tiles::{self, Capacity, Sizes};
use super::tuning::{MOST_TRIED, Scratch};
use crate::checks::check_memory;
use crate::device::{Device, Machine};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::spmm::{ArraySize, Bits, StageClock, push};

/// What a plan is made of.
pub(super) struct Making<'a, 'b, V> {
    pub(super) request: &'a NmSpmmBuilder<'b, V>,
    pub(super) device: &'a Device,
    pub(super) machine: &'a dyn Machine,
    pub(super) sizes: Sizes,
    pub(super) capacity: Capacity,
    pub(super) inner: u32,
    pub(super) report: &'a mut NmReport,
    pub(super) clock: &'a mut StageClock,
}

/// An instance, and weights laid out for it.
enum Laid {
    CudaCores(tiles::Choice, cuda_cores::Layout),
    TensorCores(fragments::Choice, Form, tensor_cores::Layout),
}

impl Laid {
    fn name(&self) -> &'static str {
        match self {
            Self::CudaCores(choice, _) => choice.entry.name,
            Self::TensorCores(choice, ..) => choice.entry.name,
        }
    }

    fn algorithm(&self) -> NmAlgorithm {
        match self {
            Self::CudaCores(..) => NmAlgorithm::CudaCores,
            Self::TensorCores(..) => NmAlgorithm::TensorCores,
        }
    }

    fn read_as(&self) -> ReadAs {
        match self {
            Self::CudaCores(..) => ReadAs::F32,
            Self::TensorCores(..) => ReadAs::Stored,
        }
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::CudaCores(_, layout) => layout.bytes().to_vec(),
            Self::TensorCores(.., layout) => layout.bytes().to_vec(),
        }
    }

    /// Elements of partial sums.
    fn partial(&self, sizes: Sizes, capacity: Capacity) -> u64 {
        match self {
            Self::CudaCores(choice, _) => CudaCoresNm::partial_elements(choice, sizes, capacity),
            Self::TensorCores(.., layout) => TensorCoresNm::partial_elements(layout, sizes, capacity),
        }
    }
}

/// Instances for Tensor Cores, cheapest first, laid out as they are asked for.
fn on_tensor_cores<'a, V: Value>(
    weights: &'a VectorNm<V>,
    bits: &'a Bits,
    form: Form,
    found: Vec<fragments::Choice>,
) -> impl Iterator<Item = Laid> + 'a {
    found.into_iter().filter_map(move |choice| {
        let layout = tensor_cores::Layout::new(weights, bits, form, choice)?;
        Some(Laid::TensorCores(choice, form, layout))
    })
}

/// Instances for CUDA cores, likewise.
fn on_cuda_cores<'a, V: Value>(
    weights: &'a VectorNm<V>,
    bits: &'a Bits,
    found: Vec<tiles::Choice>,
) -> impl Iterator<Item = Laid> + 'a {
    let values = bits.to_f32();
    found
        .into_iter()
        .map(move |choice| Laid::CudaCores(choice, cuda_cores::Layout::new(weights, &values, choice)))
}

impl<V: Value> Making<'_, '_, V> {
    /// Chooses, lays out and uploads.
    ///
    /// # Errors
    /// As for [`GpuNm::build`](super::gpu::GpuNm::build).
    pub(super) fn kernels(mut self) -> Result<Kernels, SpmmError> {
        let request = self.request;
        let (weights, precision) = (request.weights, request.precision);
        let bits = Bits::of(precision, weights.values());
        let mut unsuitable = "Tensor Cores have no f32".to_owned();
        if let Some(form) = Form::of(precision).filter(|_| request.algorithm != NmAlgorithm::CudaCores) {
            let all = fragments::choices(precision, self.sizes, self.capacity);
            let any = !all.is_empty();
            let asked = all.into_iter().filter(|choice| self.is_asked(choice.entry.name)).collect();
            self.clock.end("choice");
            let mut laid = on_tensor_cores(weights, &bits, form, asked);
            if let Some(first) = laid.next() {
                self.note(NmAlgorithm::TensorCores, &format!("{precision} is multiplied on Tensor Cores"));
                return self.finish(first, laid);
            }
            let reason = self.unsuitable(any);
            if request.algorithm == NmAlgorithm::TensorCores {
                let pattern = self.sizes.pattern;
                return Err(match request.kernel {
                    Some(_) => self.no_such_kernel(),
                    None => SpmmError::NoTensorCores { precision, pattern, reason },
                });
            }
            unsuitable = format!("Tensor Cores have no kernel for these weights: {reason}");
        }
        let mut all = tiles::choices(self.sizes, self.capacity, request.packing);
        all.retain(|choice| match request.kernel {
            Some(asked) => choice.entry.name == asked,
            None => choice.is_pipelined(),
        });
        self.clock.end("choice");
        let mut laid = on_cuda_cores(weights, &bits, all);
        let Some(first) = laid.next() else { return Err(self.no_such_kernel()) };
        let reason = if request.kernel.is_some() { "as the kernel asked for" } else { &unsuitable };
        self.note(NmAlgorithm::CudaCores, reason);
        self.finish(first, laid)
    }

    /// Whether an instance is the one asked for.
    fn is_asked(&self, name: &str) -> bool {
        self.request.kernel.is_none_or(|asked| asked == name)
    }

    fn no_such_kernel(&self) -> SpmmError {
        let text = self.request.kernel.unwrap_or_default().to_owned();
        SpmmError::UnknownName {
            what: "kernel for these weights",
            text,
            known: "those whose strips divide vectors",
        }
    }

    /// Why Tensor Cores have no kernel, if `any` fits the pattern.
    fn unsuitable(&self, any: bool) -> String {
        let l = self.sizes.pattern.l();
        match any {
            true => "the rows that a stage keeps come from more than shared memory has slots for".to_owned(),
            false if !l.is_multiple_of(8) && wide(l) < u64::from(self.sizes.n) => {
                format!("vectors of {l} columns are no multiple of 8")
            }
            false => "the device has too little shared memory".to_owned(),
        }
    }

    fn note(&mut self, algorithm: NmAlgorithm, reason: &str) {
        if self.report.algorithm == NmAlgorithm::Auto {
            self.report.algorithm = algorithm;
            reason.clone_into(&mut self.report.reason);
        }
    }

    /// Uploads the first of the instances, or the quickest of a few, and notes what it is.
    fn finish(mut self, first: Laid, others: impl Iterator<Item = Laid>) -> Result<Kernels, SpmmError> {
        self.clock.end("layout");
        let laid = match self.request.autotune {
            true => self.tune(first, others.take(MOST_TRIED - 1))?,
            false => first,
        };
        self.report.arrays = self.arrays(&laid);
        self.report.device_bytes = check_memory(&self.report.arrays, self.request.memory_limit)?;
        let kernels = self.upload(&laid)?;
        self.clock.end("upload");
        self.describe(&laid);
        self.report.entries = kernels.entries();
        Ok(kernels)
    }

    fn bringing(&self, read_as: ReadAs) -> Bringing {
        let (precision, layout) = (self.request.precision, self.request.layout);
        Bringing { precision, layout, read_as, inner: self.inner }
    }

    /// The memory that a plan takes.
    fn arrays(&self, laid: &Laid) -> Vec<ArraySize> {
        let staged = self.bringing(laid.read_as()).bytes(self.sizes.m);
        let partial = 4 * laid.partial(self.sizes, self.capacity);
        let mut arrays = Vec::new();
        for (name, bytes) in laid.arrays().into_iter().chain([("staged_a", staged), ("partial", partial)]) {
            push(&mut arrays, name, bytes);
        }
        arrays
    }

    /// Uploads weights, and reserves what runs share.
    fn upload(&self, laid: &Laid) -> Result<Kernels, DeviceError> {
        let bringing = self.bringing(laid.read_as());
        let staging = Staging::new(self.device, bringing, bringing.bytes(self.sizes.m))?;
        let partial = laid.partial(self.sizes, self.capacity);
        let limited = self.request.memory_limit.is_some();
        let shared = Shared::new(self.device, staging, (partial, limited))?;
        let sizes = (self.sizes, self.capacity);
        Ok(match laid {
            Laid::CudaCores(_, layout) => {
                Kernels::CudaCores(CudaCoresNm::upload(self.device, layout, sizes, shared)?)
            }
            Laid::TensorCores(.., layout) => {
                Kernels::TensorCores(TensorCoresNm::upload(self.device, self.machine, layout, sizes, shared)?)
            }
        })
    }

    /// Runs a few instances on operands made up, those of them that fit into memory beside these, and gives back the
    /// quickest. Where there is no time, on the emulator, each is run, and the first is the quickest.
    fn tune(&mut self, first: Laid, others: impl Iterator<Item = Laid>) -> Result<Laid, SpmmError> {
        let limit = self.request.memory_limit;
        let scratch_bytes = Scratch::sizes(&self.bringing(ReadAs::Stored), self.sizes);
        let fits = |arrays: &[ArraySize]| check_memory(&[arrays, &scratch_bytes].concat(), limit).is_ok();
        let (mut scratch, mut best, mut untried) = (None, None::<(Laid, f64)>, None);
        for laid in once(first).chain(others) {
            let us = match fits(&self.arrays(&laid)) {
                true => self.try_on(&mut scratch, &laid)?,
                false => None,
            };
            let Some(us) = us else {
                untried = untried.or(Some(laid));
                continue;
            };
            self.report.tuned.push((laid.name().to_owned(), us));
            if best.as_ref().is_none_or(|&(_, least)| us < least) {
                best = Some((laid, us));
            }
        }
        self.clock.end("tuning");
        match (best, untried) {
            (Some((laid, _)), _) => {
                if self.report.tuned.len() > 1 && self.report.requested == NmAlgorithm::Auto {
                    self.report.reason.push_str("; the tile was the quickest of those tried");
                }
                Ok(laid)
            }
            (None, Some(laid)) => {
                self.report.reason.push_str("; there is no memory for operands to try tiles with");
                Ok(laid)
            }
            (None, None) => Err(self.no_such_kernel()), // at least the first is one or the other
        }
    }

    /// Microseconds of a product; `None` if the device has not enough memory.
    fn try_on(&self, scratch: &mut Option<Scratch>, laid: &Laid) -> Result<Option<f64>, SpmmError> {
        let mut time = || -> Result<f64, SpmmError> {
            let scratch = match scratch {
                Some(scratch) => scratch,
                None => {
                    scratch.insert(Scratch::new(self.device, &self.bringing(ReadAs::Stored), self.sizes)?)
                }
            };
            scratch.time(self.device, self.machine, &self.upload(laid)?)
        };
        match time() {
            Err(
                SpmmError::TooLarge { .. }
                | SpmmError::Device(DeviceError::OutOfMemory { .. } | DeviceError::Grid { .. }),
            ) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Notes what was chosen.
    fn describe(&mut self, laid: &Laid) {
        debug_assert_eq!(self.report.algorithm, laid.algorithm(), "noted when it was chosen");
        let packing = self.request.packing;
        let (tile, kept) = match laid {
            Laid::TensorCores(choice, form, layout) => {
                self.report.packing = NmPacking::Packed;
                self.report.packing_reason = format!(
                    "Tensor Cores read rows that were gathered; banks of shared memory are read {:.2} times",
                    layout.passes
                );
                (choice.tile, form.kept())
            }
            Laid::CudaCores(choice, _) => {
                let packed = choice.shape.packed;
                self.report.packing = if packed { NmPacking::Packed } else { NmPacking::Plain };
                if packing == NmPacking::Auto {
                    let sparsity = 100.0 * self.sizes.pattern.sparsity();
                    self.report.packing_reason = format!("the weights are {sparsity:.1} % sparse");
                } else if packing == NmPacking::Plain && packed {
                    "whole groups do not fit into shared memory".clone_into(&mut self.report.packing_reason);
                }
                (choice.tile, narrow(choice.shape.kept_per_stage))
            }
        };
        let (rows, columns, strip) = (tile.rows, tile.columns, tile.strip);
        self.report.tile = Some(format!("{rows} × {columns}, {kept} kept rows a stage, strips of {strip}"));
    }
}

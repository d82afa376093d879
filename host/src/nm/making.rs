//! How a plan for a machine that runs kernels is made: an algorithm and an instance are chosen, weights laid out for
//! it.

use std::iter;

use windrow_formats::{OutOfMemory, VectorNm};
use windrow_preprocess::nm::Filler;

use super::algorithm::Layout;
use super::fallback::lacks_room;
use super::kernels::{Kernels, Staged};
use super::model::{Capacity, Instance, Program, Sizes, Sums};
use super::options::{NmAlgorithm, NmOptions};
use super::parts::Shared;
use super::placing::{GivenBits, GivenNumbers};
use super::report::{NmBlock, NmReport};
use super::staging::{Bringing, ReadAs};
use super::tuning::{MOST_TRIED, Scratch};
use super::workspace::Need;
use super::{cuda_cores, few_rows, fragments, tensor_cores, tiles, warpgroups};
use crate::device::Runner;
use crate::error::{DeviceError, FamilyError, NmError};
use crate::num::{real, wide};
use crate::options::Precision;
use crate::plan::{ArraySize, StageClock, check_memory, push};

/// What to do about a plan that needs more memory than it may take: that of runs grows with their rows, and
/// row-major activations are transposed.
const MEMORY_REMEDY: &str = "raise the limit, plan for fewer rows, or give k-major activations";

/// What a plan is made of.
pub(super) struct Making<'a, V> {
    pub(super) weights: &'a VectorNm<V>,
    pub(super) values: GivenBits<'a>,
    pub(super) options: &'a NmOptions,
    pub(super) runner: Runner<'a>,
    pub(super) sizes: Sizes,
    pub(super) capacity: Capacity,
    pub(super) report: &'a mut NmReport,
    pub(super) clock: &'a mut StageClock,
}

pub(super) type Laid = Box<dyn Layout>;

/// An instance for Tensor Cores.
enum OnTensorCores {
    Gathered(fragments::Choice),
    FewRows(few_rows::Choice),
    Warpgroups(warpgroups::Candidate),
}

impl OnTensorCores {
    fn instance(&self) -> &dyn Instance {
        match self {
            Self::Gathered(choice) => choice,
            Self::FewRows(choice) => choice,
            Self::Warpgroups(candidate) => &candidate.choice,
        }
    }

    /// How it reads activations.
    fn read_as(&self) -> ReadAs {
        match self {
            Self::Gathered(_) => ReadAs::KMajor,
            Self::FewRows(_) => ReadAs::RowMajor,
            Self::Warpgroups(candidate) => candidate.choice.read_as(),
        }
    }

    /// Weights for it; none if the rows of some stage do not find slots, or values are of a type that it does not take.
    fn lay_out<V: Sync>(
        self,
        weights: &VectorNm<V>,
        bits: GivenBits<'_>,
    ) -> Result<Option<Laid>, OutOfMemory> {
        Ok(match self {
            Self::Gathered(choice) => {
                tensor_cores::Layout::new(weights, bits, choice)?.map(|layout| Box::new(layout) as Laid)
            }
            Self::FewRows(choice) => {
                few_rows::Layout::new(weights, bits, choice)?.map(|layout| Box::new(layout) as Laid)
            }
            Self::Warpgroups(candidate) => {
                warpgroups::Layout::new(weights, bits, candidate)?.map(|layout| Box::new(layout) as Laid)
            }
        })
    }
}

/// Instances for Tensor Cores, cheapest first, laid out as they are asked for.
fn on_tensor_cores<'a, V: Sync>(
    weights: &'a VectorNm<V>,
    bits: GivenBits<'a>,
    found: Vec<OnTensorCores>,
) -> impl Iterator<Item = Result<Laid, OutOfMemory>> + 'a {
    found.into_iter().filter_map(move |choice| choice.lay_out(weights, bits).transpose())
}

/// Instances for CUDA cores, likewise.
fn on_cuda_cores<'a, V: Sync>(
    weights: &'a VectorNm<V>,
    values: GivenNumbers<'a>,
    found: Vec<tiles::Choice>,
) -> impl Iterator<Item = Result<Laid, OutOfMemory>> + 'a {
    let layouts = found.into_iter().map(move |choice| cuda_cores::Layout::new(weights, values, choice));
    layouts.map(|layout| Ok(Box::new(layout?) as Laid))
}

impl<V: Sync> Making<'_, V> {
    /// Chooses, lays out and uploads.
    ///
    /// # Errors
    /// As for [`GpuNm::build`](super::gpu::GpuNm::build).
    pub(super) fn kernels(self) -> Result<Kernels, NmError> {
        let (weights, options) = (self.weights, self.options);
        let (precision, kernel) = (options.precision, options.kernel.as_deref());
        let bits = self.values;
        if options.algorithm == NmAlgorithm::Dense {
            let laid = self.dense()?;
            return self.finish(laid, iter::empty(), "as asked");
        }
        let mut unsuitable = "Tensor Cores have no f32".to_owned();
        // Instances whose tiles suit the weights.
        let mut known = Vec::new();
        if precision != Precision::F32 && options.algorithm != NmAlgorithm::CudaCores {
            let mut found = self.found_on_tensor_cores()?;
            known.extend(found.iter().map(|choice| choice.instance().program().name()));
            found.retain(|choice| self.is_asked(choice.instance().program().name()));
            let one_of_these = kernel.is_none() || !found.is_empty();
            self.clock.end("choice");
            let mut laid = on_tensor_cores(weights, bits, found);
            if let Some(first) = laid.next() {
                return self.finish(first?, laid, &format!("{precision} is multiplied on Tensor Cores"));
            }
            let reason = self.unsuitable(!known.is_empty());
            let algorithm = options.algorithm;
            if (algorithm != NmAlgorithm::Auto || kernel.is_some()) && one_of_these {
                return Err(NmError::NoTensorCores {
                    algorithm,
                    precision,
                    pattern: weights.pattern(),
                    reason,
                });
            }
            unsuitable = format!("Tensor Cores have no kernel for these weights: {reason}");
        }
        let mut found = match options.algorithm {
            NmAlgorithm::TensorCores | NmAlgorithm::SparseTensorCores | NmAlgorithm::Dense => Vec::new(),
            NmAlgorithm::Auto | NmAlgorithm::CudaCores => {
                tiles::choices(self.sizes, self.capacity, options.packing)
            }
        };
        known.extend(found.iter().map(|choice| choice.entry.name));
        found.retain(|choice| match kernel {
            Some(_) => self.is_asked(choice.entry.name),
            None => choice.is_pipelined(),
        });
        self.clock.end("choice");
        let numbers;
        let values = match bits {
            GivenBits::OnHost(bits) => {
                numbers = bits.numbers::<f32>()?;
                GivenNumbers::OnHost(&numbers)
            }
            GivenBits::OnDevice(given, _) => GivenNumbers::OnDevice(given),
        };
        let mut laid = on_cuda_cores(weights, values, found);
        let Some(first) = laid.next() else {
            let name = kernel.unwrap_or_default().to_owned();
            let known = known.join(", ");
            return Err(NmError::NoKernel { name, precision, pattern: weights.pattern(), known });
        };
        let reason = if kernel.is_some() { "as the kernel asked for" } else { &unsuitable };
        self.finish(first?, laid, reason)
    }

    /// Instances for the Tensor Cores that may be used, cheapest first.
    fn found_on_tensor_cores(&self) -> Result<Vec<OnTensorCores>, OutOfMemory> {
        let (algorithm, precision) = (self.options.algorithm, self.options.precision);
        let (sizes, capacity) = (self.sizes, self.capacity);
        let mut found = Vec::new();
        // Unless they are asked for, what is not finite in a row of A that is dropped must not be seen.
        let is_asked = algorithm == NmAlgorithm::SparseTensorCores || self.options.kernel.is_some();
        let finite = self.options.finite_activations;
        let exact = warpgroups::fills_two_of_four(sizes.pattern) || warpgroups::may_be_ordered(sizes.pattern);
        let sparse = is_asked || algorithm == NmAlgorithm::Auto && (exact || finite);
        if sparse && self.sizes.inner > 0 {
            let any = finite || algorithm == NmAlgorithm::SparseTensorCores;
            let filler = if any { Filler::Any } else { Filler::Empty };
            let runs = |entry| {
                let may_pay = is_asked || any || warpgroups::may_pay(entry, sizes.pattern);
                may_pay && self.runner.machine.has(entry)
            };
            let all = warpgroups::sparse_choices(precision, (sizes, capacity), (self.weights, filler), runs)?;
            found.extend(all.into_iter().map(OnTensorCores::Warpgroups));
        }
        if algorithm != NmAlgorithm::SparseTensorCores {
            let gathered = fragments::choices(precision, sizes, capacity);
            found.extend(gathered.into_iter().map(OnTensorCores::Gathered));
            if sizes.kept_rows() > 0 {
                let runs = |entry| self.runner.machine.has(entry);
                let kept = warpgroups::kept_choices(precision, (sizes, capacity), runs);
                found.extend(kept.into_iter().map(OnTensorCores::Warpgroups));
            }
        }
        let of_few_rows = [algorithm != NmAlgorithm::SparseTensorCores, sparse];
        let all = few_rows::choices(precision, sizes, capacity, of_few_rows);
        found.extend(all.into_iter().map(OnTensorCores::FewRows));
        let cost = |choice: &OnTensorCores| {
            choice.instance().least_cost(sizes, capacity) + self.bringing_ns(choice.read_as())
        };
        found.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        Ok(found)
    }

    /// Nanoseconds of the pass that brings activations, which is a launch more; none if they are read as they are.
    pub(super) fn bringing_ns(&self, read_as: ReadAs) -> f64 {
        match self.bringing(read_as).bytes(self.sizes.m) {
            0 => 0.0,
            bytes => self.capacity.launch_ns(2.0 * real(bytes)),
        }
    }

    /// Whether an instance is the one asked for.
    pub(super) fn is_asked(&self, name: &str) -> bool {
        self.options.kernel.as_deref().is_none_or(|asked| asked == name)
    }

    /// Why Tensor Cores have no kernel, if `any` fits the pattern.
    fn unsuitable(&self, any: bool) -> String {
        let l = self.sizes.pattern.l();
        if self.options.algorithm == NmAlgorithm::SparseTensorCores {
            let pattern = self.sizes.pattern;
            return match (warpgroups::keeps_two_of_four(pattern), warpgroups::may_be_ordered(pattern)) {
                (false, false) => "it keeps more than half of the rows".to_owned(),
                (false, true) => "of four rows more than two may be kept, and orders of the rows in which that is not \
                                  so are for f16 and bf16, a GPU of compute capability 9.0, a driver for CUDA 12.2 or \
                                  later, and weights that have rows, of which 128 columns reach into eight vectors at \
                                  most"
                    .to_owned(),
                (true, _) => "the device has too little shared memory".to_owned(),
            };
        }
        match any {
            true => "the rows that a stage keeps come from more than shared memory has slots for".to_owned(),
            false if !l.is_multiple_of(8) && wide(l) < u64::from(self.sizes.n) => {
                format!("vectors of {l} columns are no multiple of 8")
            }
            false => "the device has too little shared memory".to_owned(),
        }
    }

    /// Uploads the first of the instances, a dense product in its place, or the quickest of a few, and notes what it
    /// is.
    fn finish(
        mut self,
        first: Laid,
        others: impl Iterator<Item = Result<Laid, OutOfMemory>>,
        reason: &str,
    ) -> Result<Kernels, NmError> {
        if self.report.algorithm == NmAlgorithm::Auto {
            reason.clone_into(&mut self.report.reason);
        }
        self.compare(&*first);
        let dense = self.fallback(&*first)?;
        self.clock.end("layout");
        let (dense, library) = dense.unzip();
        let (laid, other) = match (self.options.autotune, dense) {
            (true, dense) => {
                let others = dense.into_iter().map(Ok).chain(others.take(MOST_TRIED - 1));
                (self.tune(first, others)?, None)
            }
            (false, Some(dense)) => (dense, Some(first)),
            (false, None) => (first, None),
        };
        let kernels = match (self.place(&*laid), other) {
            (Err(error), Some(other)) if lacks_room(&error) => {
                self.report.dense_refused = Some(error.to_string());
                self.place(&*other)?
            }
            (placed, _) => {
                let kernels = placed?;
                if let Some(library) = library {
                    self.note_fallback(&*laid, &library);
                }
                kernels
            }
        };
        self.clock.end("upload");
        self.report.entries = kernels.entries();
        Ok(kernels)
    }

    /// Uploads weights and notes what they are.
    fn place(&mut self, laid: &dyn Layout) -> Result<Kernels, NmError> {
        let bytes = self.check_memory(laid)?;
        let kernels = self.upload(laid)?;
        (self.report.arrays, self.report.device_bytes) = (self.arrays(laid), bytes);
        self.describe(laid);
        Ok(kernels)
    }

    /// Bytes of a plan, if that is not too much.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`](crate::error::PlanError::MemoryLimit).
    pub(super) fn check_memory(&self, laid: &dyn Layout) -> Result<u64, NmError> {
        Ok(check_memory(&self.arrays(laid), self.options.memory_limit, MEMORY_REMEDY)?)
    }

    fn bringing(&self, read_as: ReadAs) -> Bringing {
        let (precision, layout) = (self.options.precision, self.options.layout);
        Bringing { precision, layout, read_as, inner: self.sizes.inner }
    }

    /// The memory that a plan takes.
    fn arrays(&self, laid: &dyn Layout) -> Vec<ArraySize> {
        let staged = self.bringing(laid.read_as()).bytes(self.sizes.m);
        let instance = laid.instance();
        let sums = Sums::of(instance.parts_log2(self.sizes, self.capacity), instance.finishes(None));
        let partial = Shared::partial_elements(self.sizes, sums);
        let need = Need { staged: staged.div_ceil(4), partial, scratch: instance.scratch_bytes() };
        let mut arrays = Vec::new();
        for (name, bytes) in laid.arrays() {
            push(&mut arrays, name, bytes);
        }
        arrays.extend(need.sizes());
        arrays
    }

    /// Uploads weights, and reserves what runs share.
    fn upload(&self, laid: &dyn Layout) -> Result<Kernels, DeviceError> {
        let bringing = self.bringing(laid.read_as());
        let needed = self.arrays(laid).iter().map(|array| array.bytes).sum();
        let spare = self.options.memory_limit.map(|limit| limit.saturating_sub(needed));
        Kernels::upload(self.runner, laid, self.sizes, self.capacity, Staged { bringing, spare })
    }

    /// Runs a few instances on operands made up, those of them that fit into memory beside these, and gives back the
    /// quickest. Where there is no time, on the emulator, each is run, and the first is the quickest.
    fn tune(
        &mut self,
        first: Laid,
        others: impl Iterator<Item = Result<Laid, OutOfMemory>>,
    ) -> Result<Laid, NmError> {
        let mut scratch = None;
        let mut least = self.try_on(&mut scratch, &*first)?;
        let mut best = first;
        // One that the host has no memory for is not tried.
        for laid in others.flatten() {
            if let Some(us) = self.try_on(&mut scratch, &*laid)?
                && least.is_none_or(|least| us < least)
            {
                (best, least) = (laid, Some(us));
            }
        }
        self.clock.end("tuning");
        if least.is_none() {
            self.report.reason.push_str("; there is no memory for operands to try tiles with");
        } else if self.report.tuned.len() > 1 && self.report.requested == NmAlgorithm::Auto {
            self.report.reason.push_str("; the tile was the quickest of those tried");
        }
        Ok(best)
    }

    /// Microseconds of a product, which are noted; `None` if there is not enough memory for it.
    fn try_on(&mut self, scratch: &mut Option<Scratch>, laid: &dyn Layout) -> Result<Option<f64>, NmError> {
        let bringing = self.bringing(laid.read_as());
        let arrays = [self.arrays(laid), Scratch::sizes(&bringing, self.sizes)].concat();
        if check_memory(&arrays, self.options.memory_limit, MEMORY_REMEDY).is_err() {
            return Ok(None);
        }
        let mut time = || -> Result<f64, NmError> {
            let scratch = match scratch {
                Some(scratch) => scratch,
                None => scratch.insert(Scratch::new(self.runner.device, &bringing, self.sizes)?),
            };
            scratch.time(self.runner, &self.upload(laid)?)
        };
        match time() {
            Err(error) if error.lacks_room() => Ok(None),
            Err(error) => Err(error),
            Ok(us) => {
                self.report.tuned.push((laid.instance().program().name().to_owned(), us));
                Ok(Some(us))
            }
        }
    }

    /// Notes what was chosen.
    fn describe(&mut self, laid: &dyn Layout) {
        self.report.algorithm = laid.algorithm();
        laid.note_packing(self.options.packing, self.sizes.pattern, self.report);
        let [kept_rows, brought] = laid.stage();
        self.report.block = match laid.instance().program() {
            Program::Kernel { tile, .. } => {
                let (rows, columns, strip) = (tile.rows, tile.columns, tile.strip);
                Some(NmBlock { rows, columns, strip, kept_rows, brought })
            }
            Program::Library { .. } => None,
        };
        self.compare(laid);
    }
}

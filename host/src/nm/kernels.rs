//! The kernels of a plan: an instance, the weights that were laid out for it, and what its runs share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use windrow_kernels::output::Output;

use super::cuda_cores::{self, CudaCoresNm};
use super::launch::Launch;
use super::model::{Capacity, Instance, Sizes};
use super::operands::Operands;
use super::options::NmAlgorithm;
use super::parts::Shared;
use super::staging::{Bringing, ReadAs, Staging};
use super::tensor_cores::{self, TensorCoresNm};
use crate::device::{Queue, Runner};
use crate::error::{DeviceError, NmError};

/// Weights laid out for an instance of one of the algorithms.
pub(super) enum Laid {
    CudaCores(cuda_cores::Layout),
    TensorCores(tensor_cores::Layout),
}

impl Laid {
    pub(super) fn instance(&self) -> &dyn Instance {
        match self {
            Self::CudaCores(layout) => &layout.choice,
            Self::TensorCores(layout) => &layout.choice,
        }
    }

    pub(super) fn algorithm(&self) -> NmAlgorithm {
        match self {
            Self::CudaCores(_) => NmAlgorithm::CudaCores,
            Self::TensorCores(_) => NmAlgorithm::TensorCores,
        }
    }

    /// The type that the instance reads activations as.
    pub(super) fn read_as(&self) -> ReadAs {
        match self {
            Self::CudaCores(_) => ReadAs::F32,
            Self::TensorCores(_) => ReadAs::Stored,
        }
    }

    /// Names and bytes of the arrays.
    pub(super) fn arrays(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::CudaCores(layout) => layout.bytes().to_vec(),
            Self::TensorCores(layout) => layout.bytes().to_vec(),
        }
    }
}

/// How activations come to an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    pub(super) bringing: Bringing,
    /// Bytes that runs may take beyond those of the plan, if its memory is limited.
    pub(super) spare: Option<u64>,
}

/// An instance with its weights in device memory, and what runs share.
pub(super) struct Kernels {
    weights: Weights,
    /// Those that the plan was made for, and into how many parts their product is best divided, as a power of two: most
    /// runs are of these, and need not ask the model.
    sizes: Sizes,
    parts_log2: u32,
    capacity: Capacity,
    /// Held while the launches of a run are queued.
    shared: Mutex<Shared>,
}

enum Weights {
    CudaCores(CudaCoresNm),
    TensorCores(TensorCoresNm),
}

impl Weights {
    fn instance(&self) -> &dyn Instance {
        match self {
            Self::CudaCores(kernel) => &kernel.choice,
            Self::TensorCores(kernel) => &kernel.choice,
        }
    }
}

impl Kernels {
    /// Uploads weights, and reserves what runs share.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(
        Runner { device, machine }: Runner<'_>,
        laid: &Laid,
        sizes: Sizes,
        capacity: Capacity,
        Staged { bringing, spare }: Staged,
    ) -> Result<Self, DeviceError> {
        let staging = Staging::new(device, bringing, bringing.bytes(sizes.m))?;
        let parts_log2 = laid.instance().parts_log2(sizes, capacity);
        let partial = Shared::partial_elements(sizes, parts_log2);
        let shared = Mutex::new(Shared::new(device, staging, partial, spare.map(|bytes| bytes / 4))?);
        let weights = match laid {
            Laid::CudaCores(layout) => Weights::CudaCores(CudaCoresNm::upload(device, layout)?),
            Laid::TensorCores(layout) => {
                Weights::TensorCores(TensorCoresNm::upload(device, machine, layout)?)
            }
        };
        Ok(Self { weights, sizes, parts_log2, capacity, shared })
    }

    /// Entry points that a run of as many rows as the plan was made for launches, if its activations are packed.
    pub(super) fn entries(&self) -> Vec<&'static str> {
        self.shared().entries(self.sizes.m, self.weights.instance().entry(), self.parts_log2)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `C ← act(α·A·W + β·C + bias)`; `output` is the operands' side of `C`.
    ///
    /// # Errors
    /// [`DeviceError`]; [`PlanError::TooLarge`] for activations of 64 GiB, or rows of 4 GiB of k-major ones.
    ///
    /// # Safety
    /// As for [`GpuNm::run`](super::gpu::GpuNm::run).
    pub(super) unsafe fn run(
        &self,
        queue: &dyn Queue,
        operands: &Operands,
        output: Output,
    ) -> Result<(), NmError> {
        let sizes = Sizes { m: operands.m, ..self.sizes };
        if sizes.m == 0 || sizes.n == 0 {
            return Ok(());
        }
        let best = match sizes.m == self.sizes.m {
            true => self.parts_log2,
            false => self.weights.instance().parts_log2(sizes, self.capacity),
        };
        let mut shared = self.shared();
        let parts_log2 = shared.affordable(sizes, best);
        // SAFETY: the caller's promise; the lock is held until all is queued.
        let a = unsafe { shared.bring(queue, operands)? };
        let (of_kernel, part_elements) = shared.output(output, parts_log2)?;
        let launch = Launch { a, output: of_kernel, part_elements, parts_log2 };
        // SAFETY: activations are aligned and readable up to their leading dimension; `C` is the caller's promise. What
        // the plan owns is freed after the machine's work, and the lock keeps other runs off what they share.
        unsafe {
            match &self.weights {
                Weights::CudaCores(kernel) => kernel.launch(queue, &launch)?,
                Weights::TensorCores(kernel) => kernel.launch(queue, &launch)?,
            }
            shared.combine(queue, output, part_elements, parts_log2)?;
        }
        Ok(())
    }
}

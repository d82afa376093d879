//! Devices: a GPU, the CPU, or the emulator of a GPU.

mod array_memory;
mod buffer;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;
mod dense_library;
#[cfg(feature = "emulator")]
mod emulator;
mod event;
#[cfg(feature = "emulator")]
mod faults;
mod fence;
mod kind;
#[cfg(feature = "dist")]
pub(crate) mod link;
mod machine;
mod pinned;
mod queue;
mod stream;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub(crate) use array_memory::{ArrayMemory, BlockLayout};
pub use buffer::DeviceBuffer;
pub(crate) use buffer::SharedBlock;
pub(crate) use dense_library::{DenseLibrary, DenseProduct};
pub use event::Event;
#[cfg(feature = "emulator")]
pub use faults::{Fault, Faults};
pub use kind::{DeviceKind, KernelModule};
pub(crate) use machine::{Lies, Machine, Prepared};
pub use pinned::PinnedBuffer;
#[cfg(feature = "dist")]
pub(crate) use queue::Urgency;
pub(crate) use queue::{CopyWay, HostAddress, Queue, RowCopy};
pub use stream::Stream;

use crate::error::DeviceError;
use machine::Description;

/// Where a product is computed and where matrices lie: a GPU or the CPU. A cheap handle; clones are the same
/// device.
///
/// All work of one device is done in the order in which it is asked for, also from several threads, unless it is asked
/// of another [`Stream`] than [the device's own](Device::stream). On a GPU it is asynchronous: a call returns when the
/// work is queued. So an error of a kernel is told by a later call; after some, such as an access to an illegal
/// address, the driver does nothing more for the process, and every call is [`DeviceError::Lost`].
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceKind};
///
/// let device = Device::best()?; // a GPU if there is one, else the CPU
/// println!("{device}: {} multiprocessors", device.multiprocessors());
/// assert_eq!(Device::cpu().kind(), DeviceKind::Cpu);
/// # Ok::<(), windrow::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    description: Description,
    /// What runs kernels; none for the CPU, which has code of its own.
    machine: Option<Box<dyn Machine>>,
}

/// What the driver tells of a GPU's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speeds {
    pub(crate) multiprocessors: u32,
    pub(crate) clock_hz: Option<f64>,
    pub(crate) memory_rate: Option<f64>,
}

/// A device that runs kernels.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) device: &'a Device,
    pub(crate) machine: &'a dyn Machine,
}

/// Handles of open GPUs, so that opening one twice is the same device with its kernels compiled once.
static OPEN_GPUS: Mutex<Vec<(u32, Weak<Inner>)>> = Mutex::new(Vec::new());

impl Device {
    /// The first GPU if there is one, else the CPU.
    ///
    /// Only a missing driver and a driver without devices lead to the CPU. A GPU that is there and cannot be
    /// used (an old driver, an unsupported model, a broken installation) is an error, so that nobody wonders
    /// why the program is slow.
    ///
    /// # Errors
    /// As [`Device::cuda`], but for the two reasons above.
    pub fn best() -> Result<Self, DeviceError> {
        match Self::cuda(0) {
            Err(DeviceError::NoDriver | DeviceError::NoSuchDevice { count: 0, .. }) => Ok(Self::cpu()),
            other => other,
        }
    }

    /// GPU number `index`, counted as `CUDA_VISIBLE_DEVICES` leaves them.
    ///
    /// Kernels are compiled for the GPU by its driver, a [module](KernelModule) when something of it is first used:
    /// some tenths of a second each the first time, a few milliseconds from the driver's cache after that.
    ///
    /// # Errors
    /// - [`DeviceError::NoDriver`], [`DeviceError::NoSuchDevice`];
    /// - [`DeviceError::DriverTooOld`], [`DeviceError::ComputeCapability`]: what is there does not suffice;
    /// - [`DeviceError::Driver`].
    ///
    /// Whatever uses a kernel for the first time may return [`DeviceError::Jit`], with the log of the driver's
    /// compiler.
    pub fn cuda(index: u32) -> Result<Self, DeviceError> {
        let mut open = OPEN_GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) = open.iter().find(|(i, _)| *i == index).and_then(|(_, device)| device.upgrade())
        {
            return Ok(Self(device));
        }
        let (description, machine) = cuda::open(index)?;
        let device = Arc::new(Inner { description, machine: Some(machine) });
        open.push((index, Arc::downgrade(&device)));
        Ok(Self(device))
    }

    /// The processor that this program runs on, with as many threads as rayon's pool has.
    #[must_use]
    pub fn cpu() -> Self {
        Self(Arc::new(Inner { description: cpu::describe(), machine: None }))
    }

    /// A GPU emulated on the CPU, thread by thread and very slowly, with every access checked. It runs the
    /// same kernels through the same code as a real GPU, in the order that `schedule` says.
    ///
    /// Launches of two streams that nothing orders run one way round under half of the schedules and the other way
    /// under the rest, and a launch beside others without a fork is an error.
    ///
    /// It poses as a GPU of 2 multiprocessors with 2 resident blocks each, so that work is split even on the
    /// small matrices that it is good for.
    #[cfg(feature = "emulator")]
    #[must_use]
    pub fn emulator(schedule: windrow_simt::emulator::Schedule) -> Self {
        let (description, machine) = emulator::open(schedule);
        Self(Arc::new(Inner { description, machine: Some(machine) }))
    }

    /// The emulator, whose calls fail where the other value says: for tests of what becomes of plans, memory and
    /// results when a device fails.
    #[cfg(feature = "emulator")]
    #[must_use]
    pub fn emulator_with_faults(schedule: windrow_simt::emulator::Schedule) -> (Self, Faults) {
        let (description, machine) = emulator::open(schedule);
        let faults = Faults::default();
        let machine: Box<dyn Machine> = Box::new(faults::FaultyMachine::new(machine, faults.clone()));
        (Self(Arc::new(Inner { description, machine: Some(machine) })), faults)
    }

    /// [`emulator`](Self::emulator) with so many bytes of memory. Arrays of more than 1 GiB take only what is touched.
    #[cfg(all(test, feature = "emulator"))]
    pub(crate) fn emulator_with_memory(
        schedule: windrow_simt::emulator::Schedule,
        memory_total: u64,
    ) -> Self {
        let (description, machine) = emulator::open_with(schedule, memory_total);
        Self(Arc::new(Inner { description, machine: Some(machine) }))
    }

    /// [`emulator`](Self::emulator) with what stands for a library for dense products.
    #[cfg(all(test, feature = "emulator"))]
    pub(crate) fn emulator_with_library(schedule: windrow_simt::emulator::Schedule) -> Self {
        let (description, machine) = emulator::open_with_library(schedule);
        Self(Arc::new(Inner { description, machine: Some(machine) }))
    }

    /// How many GPUs the driver reports; 0 without a driver.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] for a driver that does not start.
    pub fn cuda_count() -> Result<u32, DeviceError> {
        cuda::count()
    }

    /// CUDA version of the driver, major and minor; `None` without a driver.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] for a driver that does not answer.
    pub fn cuda_driver_version() -> Result<Option<(u32, u32)>, DeviceError> {
        cuda::driver_version()
    }

    /// Name of the model as the driver reports it, such as `NVIDIA H200`, or the CPU's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.description.name
    }

    /// What sort of device it is.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.0.description.kind
    }

    /// Compute capability of a GPU, major and minor.
    #[must_use]
    pub fn compute_capability(&self) -> Option<(u32, u32)> {
        self.0.description.compute_capability
    }

    /// Streaming multiprocessors of a GPU; threads of the CPU.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.0.description.multiprocessors
    }

    /// What the driver tells of a GPU's speed; none of the CPU and the emulator.
    pub(crate) fn speeds(&self) -> Option<Speeds> {
        let Description { kind, multiprocessors, clock_hz, memory_rate, .. } = self.0.description;
        (kind == DeviceKind::Cuda).then_some(Speeds { multiprocessors, clock_hz, memory_rate })
    }

    /// Size of a GPU's L2 cache in bytes.
    #[must_use]
    pub fn l2_bytes(&self) -> Option<u64> {
        self.0.description.l2_bytes
    }

    /// Memory of the device in bytes, if it is known.
    #[must_use]
    pub fn memory_total(&self) -> Option<u64> {
        self.0.description.memory_total
    }

    /// Free memory of the device in bytes, if it is known.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        self.machine().map_or_else(|| Ok(windrow_formats::machine_memory_free()), Machine::memory_free)
    }

    /// CUDA version that a GPU's driver supports, major and minor.
    #[must_use]
    pub fn driver_version(&self) -> Option<(u32, u32)> {
        self.0.description.driver_version
    }

    /// The modules of kernels that this GPU's driver has compiled so far, and how long each took; none on the CPU.
    #[must_use]
    pub fn kernel_modules(&self) -> Vec<KernelModule> {
        self.machine().map_or_else(Vec::new, Machine::kernel_modules)
    }

    /// Has the driver compile every kernel that this GPU runs, so that nothing waits for that later; no work on the
    /// CPU. Plans do without it: what they run is compiled when it first runs.
    ///
    /// # Errors
    /// [`DeviceError::Jit`], with the log of the driver's compiler; [`DeviceError::Driver`].
    pub fn load_kernels(&self) -> Result<(), DeviceError> {
        self.machine().map_or(Ok(()), Machine::load_kernels)
    }

    /// Waits until all work asked for so far is done: that of the device's own [stream](Self::stream), and of others
    /// what that one waits for.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if some of that work failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.machine().map_or(Ok(()), |machine| machine.own().synchronize())
    }

    /// Sets a mark behind all work asked for so far, for [`Event::elapsed_us`].
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn record(&self) -> Result<Event, DeviceError> {
        self.machine().map_or_else(|| Ok(Event::now()), |machine| machine.own().record())
    }

    /// Whether memory of one is memory of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.kind(), other.kind()) == (DeviceKind::Cpu, DeviceKind::Cpu)
    }

    /// What no other device has, in any process; CPUs are all the same one.
    #[cfg(feature = "dist")]
    pub(crate) fn identity(&self) -> String {
        let Some(machine) = self.machine() else { return "cpu".to_owned() };
        let of_process =
            || format!("{}@{:p} of {}", self.selector(), Arc::as_ptr(&self.0), std::process::id());
        machine.uuid().unwrap_or_else(of_process)
    }

    pub(crate) fn machine(&self) -> Option<&dyn Machine> {
        self.0.machine.as_deref()
    }

    /// The device, if it runs kernels.
    pub(crate) fn runner(&self) -> Option<Runner<'_>> {
        self.machine().map(|machine| Runner { device: self, machine })
    }

    /// The name with which the device is selected, `cpu` or `cuda:0`.
    #[must_use]
    pub fn selector(&self) -> &str {
        &self.0.description.selector
    }

    pub(crate) fn out_of_memory(&self, what: &'static str, asked: u64, free: Option<u64>) -> DeviceError {
        let total = self.memory_total().unwrap_or(0);
        let free = free.or_else(|| self.memory_free().ok().flatten()).unwrap_or(total);
        DeviceError::OutOfMemory { what, asked, free, total, device: self.to_string() }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.selector(), self.name())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

/// A device by name: `best`, `cpu` or `cuda:N` (`cuda` is `cuda:0`).
///
/// # Examples
/// ```
/// use windrow::{DeviceKind, DeviceSelector};
///
/// let device = "cpu".parse::<DeviceSelector>()?.open()?;
/// assert_eq!(device.kind(), DeviceKind::Cpu);
/// # Ok::<(), windrow::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceSelector {
    /// What [`Device::best`] finds: the first GPU, else the CPU.
    #[default]
    Best,
    /// The CPU: [`Device::cpu`], whatever GPUs there are.
    Cpu,
    /// [`Device::cuda`] with this number.
    Cuda(u32),
}

impl DeviceSelector {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of [`Device::best`] and [`Device::cuda`].
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            Self::Best => Device::best(),
            Self::Cpu => Ok(Device::cpu()),
            Self::Cuda(index) => Device::cuda(index),
        }
    }
}

impl FromStr for DeviceSelector {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "best" => Ok(Self::Best),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| DeviceError::UnknownSelector { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.pad("best"),
            Self::Cpu => f.pad("cpu"),
            Self::Cuda(index) => f.pad(&format!("cuda:{index}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_round_trip_and_reject_nonsense() {
        for selector in [DeviceSelector::Best, DeviceSelector::Cpu, DeviceSelector::Cuda(3)] {
            assert_eq!(selector.to_string().parse::<DeviceSelector>().unwrap(), selector);
        }
        assert_eq!("cuda".parse::<DeviceSelector>().unwrap(), DeviceSelector::Cuda(0));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:4294967296", "CPU"] {
            let error = text.parse::<DeviceSelector>().unwrap_err();
            assert_eq!(error, DeviceError::UnknownSelector { text: text.to_owned() });
        }
    }

    #[test]
    fn every_cpu_is_the_same_device() {
        assert!(Device::cpu().is_same(&Device::cpu()));
        assert!(Device::cpu().multiprocessors() > 0);
    }

    #[test]
    fn a_missing_gpu_is_an_error_value() {
        match Device::cuda_count() {
            Ok(count) => {
                let error = Device::cuda(count).map(|_| ()).unwrap_err();
                assert!(
                    matches!(error, DeviceError::NoDriver)
                        || error == DeviceError::NoSuchDevice { index: count, count },
                    "{error}"
                );
                assert!(!error.to_string().is_empty());
            }
            Err(error) => assert!(matches!(error, DeviceError::Driver { .. }), "{error}"),
        }
    }
}

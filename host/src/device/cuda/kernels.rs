//! The kernels of one GPU: its modules of PTX, each compiled when something of it is first used.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys;
use windrow_kernels::{Arch, ENTRIES, Entry, Module};

use super::module::{Loaded, needed_cuda};
use crate::device::KernelModule;
use crate::error::DeviceError;

/// The modules that a GPU runs, and where each entry is.
pub(super) struct Kernels {
    modules: Vec<Slot>,
    /// By the entry's name.
    places: HashMap<&'static str, Place>,
    /// CUDA version of the driver.
    driver: (u32, u32),
}

/// A module, compiled or not.
struct Slot {
    source: &'static Module,
    entries: Vec<&'static Entry>,
    loaded: Lazy<Loaded>,
}

/// Where an entry's function is.
struct Place {
    /// Position in [`Kernels::modules`], compiled or not.
    module: usize,
    /// In the module's entries.
    entry: usize,
}

/// A function of a loaded module.
pub(super) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Whether it waits by itself for the launch before it, so that the host may let the two overlap.
    pub(super) overlaps_launches: bool,
}

impl Kernels {
    /// Finds what a GPU of that compute capability runs; compiles nothing.
    ///
    /// # Errors
    /// [`DeviceError::DriverTooOld`]; [`DeviceError::Jit`] for PTX that is broken.
    pub(super) fn of_gpu(capability: (u32, u32), driver: (u32, u32)) -> Result<Self, DeviceError> {
        let sm = 10 * capability.0 + capability.1;
        let mut kernels = Self { modules: Vec::new(), places: HashMap::new(), driver };
        let mut reads_sm90a = None;
        for entry in ENTRIES {
            let Some(source) = Module::of(entry, sm) else { continue };
            // Those for compute capability 9.0 alone are a later version of PTX, and drivers that lack it do without.
            if source.arch() == Arch::Sm90a && !*reads_sm90a.get_or_insert(is_read(source, driver)?) {
                continue;
            }
            let known = kernels.modules.iter().position(|slot| std::ptr::eq(slot.source, source));
            let module = known.unwrap_or_else(|| {
                kernels.modules.push(Slot { source, entries: Vec::new(), loaded: Lazy::default() });
                kernels.modules.len() - 1
            });
            let entries = &mut kernels.modules[module].entries;
            kernels.places.insert(entry.name, Place { module, entry: entries.len() });
            entries.push(entry);
        }
        // All other modules are the same version: the shortest tells whether the driver reads it.
        let of_all =
            kernels.modules.iter().map(|slot| slot.source).filter(|source| source.arch() != Arch::Sm90a);
        if let Some(shortest) = of_all.min_by_key(|source| source.bytes()) {
            needed_cuda(&text(shortest)?, driver)?;
        }
        Ok(kernels)
    }

    /// The function of an entry, compiled now unless it is already. The context is current.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`] if the GPU does not run it, or this build does not carry its family;
    /// [`DeviceError::Jit`], [`DeviceError::Driver`].
    pub(super) fn function(&self, entry: &Entry) -> Result<Function, DeviceError> {
        let missing = DeviceError::MissingEntry { name: entry.name };
        let Some(place) = self.places.get(entry.name) else { return Err(missing) };
        let slot = &self.modules[place.module];
        let handle = self.load(slot)?.functions[place.entry].ok_or(missing)?;
        Ok(Function { handle, overlaps_launches: slot.source.arch() != Arch::Sm80 })
    }

    /// Whether there is an entry for this GPU and driver.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.places.contains_key(entry.name)
    }

    /// Whether nothing has to be compiled to start an entry.
    pub(super) fn is_loaded(&self, entry: &Entry) -> bool {
        let place = self.places.get(entry.name);
        place.is_some_and(|place| self.modules[place.module].loaded.get().is_some())
    }

    /// Compiles every module that is not yet. The context is current.
    pub(super) fn load_all(&self) -> Result<(), DeviceError> {
        self.modules.iter().try_for_each(|slot| self.load(slot).map(|_| ()))
    }

    fn load<'a>(&self, slot: &'a Slot) -> Result<&'a Loaded, DeviceError> {
        slot.loaded.get_or_load(|| Loaded::load(slot.source, &slot.entries, self.driver))
    }

    /// What is compiled so far.
    pub(super) fn loaded(&self) -> Vec<KernelModule> {
        let told = |slot: &Slot| {
            let loaded = slot.loaded.get()?;
            Some(KernelModule {
                name: slot.source.name(),
                architecture: slot.source.arch().name(),
                entries: slot.entries.len(),
                milliseconds: loaded.milliseconds,
            })
        };
        self.modules.iter().filter_map(told).collect()
    }

    /// Unloads every module; functions are invalid from now on. The context is current.
    pub(super) fn unload(&mut self) {
        for slot in &mut self.modules {
            if let Some(loaded) = slot.loaded.take() {
                loaded.unload();
            }
        }
    }
}

fn text(source: &Module) -> Result<String, DeviceError> {
    source.text().map_err(|error| super::module::broken(&error))
}

/// Whether the driver reads the version of PTX that a module is.
fn is_read(source: &Module, driver: (u32, u32)) -> Result<bool, DeviceError> {
    match needed_cuda(&text(source)?, driver) {
        Err(DeviceError::DriverTooOld { .. }) => Ok(false),
        other => other.map(|_| true),
    }
}

/// A value that the first who needs it makes, while others who need it wait. What fails is tried again by the next: a
/// driver without memory may have some later.
struct Lazy<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> Lazy<T> {
    fn get(&self) -> Option<&T> {
        self.value.get()
    }

    fn get_or_load<E>(&self, load: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = load()?;
        Ok(self.value.get_or_init(|| value))
    }

    fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_that_come_together_make_it_once() {
        let (lazy, made, start) = (Lazy::default(), AtomicUsize::new(0), Barrier::new(8));
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let make = || {
                            std::thread::sleep(std::time::Duration::from_millis(20));
                            Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst) + 1)
                        };
                        *lazy.get_or_load(make).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((seen, made.into_inner()), (vec![1; 8], 1));
    }

    #[test]
    fn what_failed_is_tried_again() {
        let mut lazy = Lazy::default();
        assert_eq!(lazy.get_or_load(|| Err("no memory")), Err("no memory"));
        assert_eq!(lazy.get(), None);
        assert_eq!(lazy.get_or_load(|| Ok::<_, &str>(7)), Ok(&7));
        assert_eq!(lazy.get_or_load(|| Err("not called")), Ok(&7));
        assert_eq!((lazy.take(), lazy.get()), (Some(7), None));
    }

    #[test]
    fn every_gpu_has_a_place_for_what_it_runs_and_none_for_the_rest() {
        for capability in [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)] {
            let sm = 10 * capability.0 + capability.1;
            let kernels = Kernels::of_gpu(capability, (13, 0)).unwrap();
            for entry in ENTRIES {
                let place = kernels.places.get(entry.name);
                let expected = entry.family.is_carried() && entry.arch.runs_on(sm);
                assert_eq!(place.is_some(), expected, "{} on {sm}", entry.name);
                if let Some(place) = place {
                    let slot = &kernels.modules[place.module];
                    assert_eq!(slot.entries[place.entry].name, entry.name);
                    assert_eq!(slot.source.name(), entry.module);
                    assert!(slot.source.arch().runs_on(sm));
                }
            }
            assert!(kernels.loaded().is_empty(), "nothing is compiled before it is used");
        }
    }

    #[test]
    fn an_old_driver_is_refused_with_both_versions() {
        let error = Kernels::of_gpu((9, 0), (11, 8)).map(|_| ()).unwrap_err();
        let expected = DeviceError::DriverTooOld { has: (11, 8), needs: (12, 0), ptx: (8, 0) };
        assert_eq!(error, expected);
        assert!(Kernels::of_gpu((8, 0), (11, 8)).is_ok());
    }

    #[test]
    fn a_driver_without_the_ptx_of_some_kernels_does_without_them() {
        let sparse = ENTRIES.iter().find(|entry| entry.arch == Arch::Sm90a).unwrap();
        for (driver, has) in [((12, 0), false), ((12, 1), false), ((12, 2), true), ((13, 0), true)] {
            let kernels = Kernels::of_gpu((9, 0), driver).unwrap();
            assert_eq!(kernels.has(sparse), has && sparse.family.is_carried(), "{driver:?}");
            assert!(ENTRIES.iter().any(|entry| kernels.has(entry)));
        }
    }

    #[test]
    fn an_entry_that_the_gpu_does_not_run_is_an_error() {
        let kernels = Kernels::of_gpu((8, 0), (13, 0)).unwrap();
        let newer = ENTRIES.iter().find(|entry| entry.arch == Arch::Sm90).unwrap();
        let error = kernels.function(newer).map(|_| ()).unwrap_err();
        assert_eq!(error, DeviceError::MissingEntry { name: newer.name });
    }
}

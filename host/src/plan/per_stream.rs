//! What the runs of a plan on one stream share and those on others have for themselves, and when arrays may be read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use windrow_kernels::Entry;

use super::on::On;
use crate::device::Queue;
use crate::error::{DeviceError, PlanError};

/// What to do about what cannot be captured.
pub(crate) const PREPARE: &str = "prepare the plan for the stream, or run it there once, before the capture";

/// What a graph cannot wait for.
const WRITTEN_OUTSIDE: &str = "a wait for values that were written outside of it";

/// A state for each stream that a plan runs on: that of the device's own stream is made with the plan, others by the
/// first run there.
pub(crate) struct PerStream<S> {
    own: Mutex<OfStream<S>>,
    elsewhere: Mutex<Vec<Elsewhere<S>>>,
    /// How often the plan's arrays were written, which the device's own stream comes after.
    written: u64,
}

/// The state of a stream. Its lock is held while the launches of a run are queued.
pub(crate) struct OfStream<S> {
    pub(crate) held: S,
    /// Which of the plan's [writings](PerStream::written) the stream comes after, and all that was written to what is
    /// held.
    seen: u64,
}

/// That of another stream than the device's own.
struct Elsewhere<S> {
    queue: Arc<dyn Queue>,
    /// Gone when nobody can run anything there any more; none if that is never known.
    handles: Option<Weak<()>>,
    state: Arc<Mutex<OfStream<S>>>,
}

impl<S> Elsewhere<S> {
    fn is_over(&self) -> bool {
        self.handles.as_ref().is_some_and(|handles| handles.strong_count() == 0)
    }
}

impl<S> OfStream<S> {
    fn new(held: S) -> Self {
        Self { held, seen: 0 }
    }

    /// Says that the own stream was asked to write to what is held.
    pub(crate) fn was_written(&mut self) {
        self.seen = 0;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> PerStream<S> {
    /// For a plan whose arrays were just made.
    pub(crate) fn new(own: S) -> Self {
        Self { own: Mutex::new(OfStream::new(own)), elsewhere: Mutex::default(), written: 1 }
    }

    /// That of the device's own stream.
    #[cfg(all(test, feature = "emulator"))]
    pub(crate) fn own(&self) -> MutexGuard<'_, OfStream<S>> {
        locked(&self.own)
    }

    /// Queues a run: with its stream's state, after what was written for it, and with a mark behind it. What is missing
    /// `make` makes of nothing, and `complete` for this run, unless the stream is captured: then it checks that
    /// nothing is missing.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what a graph cannot hold; those of the functions and of the device.
    pub(crate) fn run(
        &self,
        on: &On<'_>,
        make: impl FnOnce(&mut dyn Iterator<Item = S>) -> Result<S, PlanError>,
        complete: impl FnOnce(&mut OfStream<S>, bool) -> Result<(), PlanError>,
        queue: impl FnOnce(&dyn Queue, &mut S) -> Result<(), DeviceError>,
    ) -> Result<(), PlanError> {
        if on.is_own {
            let mut state = locked(&self.own);
            complete(&mut state, false)?;
            return Ok(queue(on.queue, &mut state.held)?);
        }
        let captured = on.is_captured()?;
        let state = self.state_on(on, captured, make)?;
        let mut state = locked(&state);
        if captured {
            on.check_graph()?;
            // The own stream comes after all that was written. A graph needs not wait for what is done.
            if state.seen != self.written && !on.own_is_idle()? {
                return Err(DeviceError::Captured { what: WRITTEN_OUTSIDE, remedy: PREPARE }.into());
            }
            complete(&mut state, true)?;
            return Ok(queue(on.queue, &mut state.held)?);
        }
        complete(&mut state, false)?;
        self.catch_up(&mut state, on)?;
        Ok(on.leave(queue(on.queue, &mut state.held))?)
    }

    /// Does what the first runs on a stream do before they queue anything, and waits until it is done.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured; those of the functions and of the device.
    pub(crate) fn prepare(
        &self,
        on: &On<'_>,
        make: impl FnOnce(&mut dyn Iterator<Item = S>) -> Result<S, PlanError>,
        complete: impl FnOnce(&mut OfStream<S>) -> Result<(), PlanError>,
    ) -> Result<(), PlanError> {
        if on.is_captured()? {
            let remedy = "prepare the plan before the capture";
            return Err(DeviceError::Captured { what: "what a plan prepares", remedy }.into());
        }
        let elsewhere = if on.is_own { None } else { Some(self.state_on(on, false, make)?) };
        let mut state = locked(elsewhere.as_deref().unwrap_or(&self.own));
        complete(&mut state)?;
        if !on.is_own {
            self.catch_up(&mut state, on)?;
        }
        // What was written is there for graphs in any stream.
        Ok(on.machine.own().synchronize()?)
    }

    /// Puts another state in the place of that of a stream, which is given back, if there was one.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured; those of `make`, which says how, before anything is
    /// changed.
    pub(crate) fn set(
        &self,
        on: &On<'_>,
        make: impl FnOnce(&dyn Queue) -> Result<S, PlanError>,
    ) -> Result<Option<S>, PlanError> {
        if on.is_captured()? {
            let remedy = "give the plan its workspace before the capture";
            return Err(DeviceError::Captured { what: "the change of a workspace", remedy }.into());
        }
        if on.shares {
            on.after_own()?;
        }
        let new = make(on.queue)?;
        if on.shares {
            on.leave(Ok(()))?;
        }
        if on.is_own {
            return Ok(Some(std::mem::replace(&mut locked(&self.own).held, new)));
        }
        let mut elsewhere = locked(&self.elsewhere);
        if let Some(found) = elsewhere.iter().find(|other| other.queue.key() == on.queue.key()) {
            let state = Arc::clone(&found.state);
            drop(elsewhere);
            return Ok(Some(std::mem::replace(&mut locked(&state).held, new)));
        }
        let queue = Arc::clone(on.stream.shared_queue().unwrap_or_else(|| on.machine.own()));
        let state = Arc::new(Mutex::new(OfStream::new(new)));
        elsewhere.push(Elsewhere { queue, handles: on.stream.handles(), state });
        Ok(None)
    }

    /// The state of another stream than the own one, made unless there is one. What streams that are gone have held is
    /// given to `make`.
    fn state_on(
        &self,
        on: &On<'_>,
        captured: bool,
        make: impl FnOnce(&mut dyn Iterator<Item = S>) -> Result<S, PlanError>,
    ) -> Result<Arc<Mutex<OfStream<S>>>, PlanError> {
        let key = on.queue.key();
        let mut elsewhere = locked(&self.elsewhere);
        if let Some(found) = elsewhere.iter().find(|other| other.queue.key() == key) {
            return Ok(Arc::clone(&found.state));
        }
        let what = "the making of a workspace";
        let queue = match on.stream.shared_queue() {
            Some(queue) if !captured => Arc::clone(queue),
            _ => return Err(DeviceError::Captured { what, remedy: PREPARE }.into()),
        };
        let over: Vec<_> = elsewhere.extract_if(.., |other| other.is_over()).collect();
        // Nobody else has the state of a stream that nobody has.
        let mut left = over.into_iter().filter_map(|over| {
            let state = Arc::into_inner(over.state)?;
            Some(state.into_inner().unwrap_or_else(PoisonError::into_inner).held)
        });
        let held = make(&mut left)?;
        let state = Arc::new(Mutex::new(OfStream::new(held)));
        elsewhere.push(Elsewhere { queue, handles: on.stream.handles(), state: Arc::clone(&state) });
        Ok(state)
    }

    /// Has the stream go on after all that was written for it, and what else the own stream was asked for if they share
    /// memory.
    fn catch_up(&self, state: &mut OfStream<S>, on: &On<'_>) -> Result<(), DeviceError> {
        if on.shares || state.seen != self.written {
            on.after_own()?;
            state.seen = self.written;
        }
        Ok(())
    }

    /// Has a queue go on after all runs on other streams than itself and the own one, which may read what comes now to
    /// be written; runs that follow come after what is written by the own stream, or by one that it waits for.
    pub(crate) fn before_writing(&mut self, queue: &dyn Queue) -> Result<(), DeviceError> {
        self.written += 1;
        let elsewhere = self.elsewhere.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut others = elsewhere.iter().filter(|other| other.queue.key() != queue.key());
        others.try_for_each(|other| queue.wait_for(other.queue.fence()))
    }

    /// Queues what writes the plan's arrays on a stream, with these kernels: after all runs that may read them, and
    /// before all that follow. On a stream that is captured it is the launches' to be so ordered.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what a graph cannot hold; those of the device.
    pub(crate) fn write(
        &mut self,
        on: &On<'_>,
        entries: impl IntoIterator<Item = &'static Entry>,
        queue: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if on.is_captured()? {
            on.check_graph()?;
            on.check_loaded(entries)?;
            if !self.has_seen_all(on.queue.key()) && !on.own_is_idle()? {
                return Err(DeviceError::Captured { what: WRITTEN_OUTSIDE, remedy: PREPARE });
            }
            return queue();
        }
        // Whatever the operands are, the own stream may read the arrays before and after.
        let on = On { shares: true, ..*on };
        on.after_own()?;
        self.before_writing(on.queue)?;
        on.leave(queue())?;
        // It comes after what it has written itself, and after all that the own stream was asked for before that.
        let written = self.written;
        if let Some(state) = self.of_stream(on.queue.key()) {
            locked(&state).seen = written;
        }
        Ok(())
    }

    /// The state of another stream than the own one, if it has one.
    fn of_stream(&mut self, key: u64) -> Option<Arc<Mutex<OfStream<S>>>> {
        let elsewhere = self.elsewhere.get_mut().unwrap_or_else(PoisonError::into_inner);
        elsewhere.iter().find(|other| other.queue.key() == key).map(|other| Arc::clone(&other.state))
    }

    /// Whether another stream than the own one has a state, and comes after all that was written.
    fn has_seen_all(&mut self, key: u64) -> bool {
        let written = self.written;
        self.of_stream(key).is_some_and(|state| locked(&state).seen == written)
    }
}

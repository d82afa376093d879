//! Where the time of an epoch goes.

use windrow::{Event, Stream};

use super::Result;

/// A kind of sparse work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Spmm,
    Sddmm,
    Softmax,
    /// New values for plans.
    Values,
    /// Attention in one pass, and its gradients.
    Attention,
}

impl Work {
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Spmm, "spmm"),
        (Self::Sddmm, "sddmm"),
        (Self::Softmax, "softmax"),
        (Self::Values, "values"),
        (Self::Attention, "attention"),
    ];
}

/// Marks around the sparse work of an epoch, if it is asked for: marks take time themselves.
#[derive(Debug)]
pub(crate) struct Clock {
    stream: Stream,
    on: bool,
    marks: Vec<(Work, Event, Event)>,
}

impl Clock {
    pub(crate) fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), on: false, marks: Vec::new() }
    }

    pub(crate) fn turn_on(&mut self) {
        self.on = true;
    }

    /// Does some work, between two marks.
    ///
    /// # Errors
    /// Those of the work, and of the device.
    pub(crate) fn time<E>(
        &mut self,
        kind: Work,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> Result<()>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let begin = if self.on { Some(self.stream.record()?) } else { None };
        work()?;
        if let Some(begin) = begin {
            self.marks.push((kind, begin, self.stream.record()?));
        }
        Ok(())
    }

    /// Microseconds of each kind since the last call.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn take(&mut self) -> Result<[f64; Work::ALL.len()]> {
        let mut us = [0.0; Work::ALL.len()];
        for (kind, begin, end) in self.marks.drain(..) {
            us[kind as usize] += begin.elapsed_us(&end)?;
        }
        Ok(us)
    }
}

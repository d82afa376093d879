//! What a plan may make for its runs, beside what was made with it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::checks::check_memory;
use super::report::ArraySize;
use crate::error::PlanError;

/// What to do about a workspace that there is no room for.
pub(crate) const WORKSPACE_REMEDY: &str = "raise the limit, or run the plan on fewer streams";

/// What a plan may make for its runs.
#[derive(Clone, Copy)]
pub(crate) struct Budget<'a> {
    /// What was made with it.
    pub(crate) arrays: &'a [ArraySize],
    /// Bytes of all together.
    pub(crate) limit: Option<u64>,
}

impl Budget<'_> {
    pub(crate) const UNLIMITED: Self = Self { arrays: &[], limit: None };

    /// Whether there is room for more, beside `extra` bytes that were made for runs so far.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`].
    pub(crate) fn check(
        self,
        extra: &AtomicU64,
        more: &[ArraySize],
        remedy: &'static str,
    ) -> Result<(), PlanError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let extra = ArraySize { name: "workspaces", bytes: extra.load(Ordering::Relaxed) };
        check_memory(&[self.arrays, &[extra], more].concat(), Some(limit), remedy).map(|_| ())
    }
}

/// Where a plan's report says what there is, for arrays that are made later and stay.
pub(crate) struct Account<'a> {
    pub(crate) arrays: &'a mut Vec<ArraySize>,
    pub(crate) device_bytes: &'a mut u64,
    /// Bytes of all together.
    pub(crate) limit: Option<u64>,
    /// What to do about too little room.
    pub(crate) remedy: &'static str,
}

impl Account<'_> {
    /// Has an array made, if there is room for it, and notes it.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`]; those of `make`.
    pub(crate) fn add(
        self,
        array: ArraySize,
        make: impl FnOnce() -> Result<(), PlanError>,
    ) -> Result<(), PlanError> {
        let arrays = [&self.arrays[..], &[array]].concat();
        let bytes = check_memory(&arrays, self.limit, self.remedy)?;
        make()?;
        (*self.arrays, *self.device_bytes) = (arrays, bytes);
        Ok(())
    }
}

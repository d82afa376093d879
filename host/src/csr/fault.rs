//! What is wrong with a matrix, told on the host: kernels only count that something is.

use windrow_formats::memory::{try_collect, try_filled};
use windrow_formats::{Csr, FormatError, Pattern, Value};

use super::DeviceCsr;
use crate::device::Stream;
use crate::error::PlanError;
use crate::plan::On;

impl<V: Value> DeviceCsr<'_, V> {
    /// The first thing that is wrong with the matrix, if anything is.
    pub(super) fn fault(&self, on: &Stream) -> Result<Option<PlanError>, PlanError> {
        match self.pattern_on_host(on) {
            Ok(_) => Ok(None),
            Err(PlanError::Format(error)) if !matches!(error, FormatError::OutOfMemory { .. }) => {
                Ok(Some(error.into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps what [`to_host`](Self::to_host) promises.
    pub(super) fn download(&self, on: &Stream) -> Result<Csr<V>, PlanError> {
        let pattern = self.pattern_on_host(on)?;
        let values = match self.arrays().values {
            Some(values) => values.to_host()?,
            None => try_filled(self.nnz, V::ONE, "values")?,
        };
        Ok(Csr::from_pattern(pattern, values)?)
    }

    /// Offsets and columns, if they are canonical.
    fn pattern_on_host(&self, on: &Stream) -> Result<Pattern, PlanError> {
        if self.device.machine().is_some() {
            On::of(on, &self.device, false)?.before_own()?;
        }
        let arrays = self.arrays();
        let (offsets, columns) = (arrays.offsets.to_host()?, arrays.columns.to_host()?);
        // Columns beyond 32 bits are beyond all matrices; the error has them as they are.
        let narrowed = columns.iter().map(|&column| u32::try_from(column).unwrap_or(u32::MAX));
        let narrowed = try_collect(narrowed, "columns")?;
        Ok(Pattern::try_new(self.rows, self.cols, offsets, narrowed).map_err(|error| match error {
            FormatError::ColumnOutOfRange { row, entry, cols, .. } => {
                FormatError::ColumnOutOfRange { row, entry, column: columns[entry], cols }
            }
            other => other,
        })?)
    }
}

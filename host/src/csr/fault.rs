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
        Ok(Csr::from_pattern(pattern, self.values_on_host()?)?)
    }

    /// The values, one for each entry.
    pub(crate) fn values_on_host(&self) -> Result<Vec<V>, PlanError> {
        Ok(match self.arrays().values {
            Some(values) => values.to_host()?,
            None => try_filled(self.nnz, V::ONE, "values")?,
        })
    }

    /// A copy in canonical form, whatever form the matrix is of.
    pub(super) fn canonical_on_host(&self, on: &Stream) -> Result<Csr<V>, PlanError> {
        let (rows, cols) = (self.rows, self.cols);
        self.made_on_host(on, |offsets, columns| {
            Ok(Csr::try_from_parts(rows, cols, offsets, columns, self.values_on_host()?)?)
        })
    }

    /// Offsets and columns, if they are canonical.
    fn pattern_on_host(&self, on: &Stream) -> Result<Pattern, PlanError> {
        let (rows, cols) = (self.rows, self.cols);
        self.made_on_host(on, |offsets, columns| Ok(Pattern::try_new(rows, cols, offsets, columns)?))
    }

    /// What is made of offsets and columns, after the work that the stream was asked for before.
    pub(crate) fn made_on_host<T>(
        &self,
        on: &Stream,
        make: impl FnOnce(Vec<u64>, Vec<u32>) -> Result<T, PlanError>,
    ) -> Result<T, PlanError> {
        if self.device.machine().is_some() {
            On::of(on, &self.device, false)?.before_own()?;
        }
        let arrays = self.arrays();
        let (offsets, columns) = (arrays.offsets.to_host()?, arrays.columns.to_host()?);
        // Columns beyond 32 bits are beyond all matrices; the error has them as they are.
        let narrowed = columns.iter().map(|&column| u32::try_from(column).unwrap_or(u32::MAX));
        let narrowed = try_collect(narrowed, "columns")?;
        make(offsets, narrowed).map_err(|error| match error {
            PlanError::Format(FormatError::ColumnOutOfRange { row, entry, cols, .. }) => {
                FormatError::ColumnOutOfRange { row, entry, column: columns[entry], cols }.into()
            }
            other => other,
        })
    }
}

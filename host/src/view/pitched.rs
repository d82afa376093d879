//! Which bytes operands have in common.

use super::Shape;
use crate::error::PlanError;
use crate::num::wide;

/// Bytes that an operand takes: rows of `width` bytes, `pitch` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pitched {
    pub(super) first: u64,
    /// To the end of the last row.
    pub(super) bytes: u64,
    pub(super) width: u64,
    pub(super) pitch: u64,
}

impl Pitched {
    pub(super) fn of<T>(address: u64, shape: Shape) -> Self {
        let size = wide(size_of::<T>());
        Self {
            first: address,
            bytes: size * wide(shape.span()),
            width: size * wide(shape.cols),
            pitch: size * wide(shape.ld),
        }
    }

    /// One row of so many elements.
    pub(crate) fn row<T>(address: u64, len: usize) -> Self {
        let bytes = wide(size_of::<T>()) * wide(len);
        Self { first: address, bytes, width: bytes, pitch: bytes }
    }

    fn end(self) -> u64 {
        self.first.saturating_add(self.bytes)
    }

    /// Whether a byte is in both. Columns of one matrix beside each other are not.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let apart =
            self.bytes == 0 || other.bytes == 0 || self.end() <= other.first || other.end() <= self.first;
        if apart || self.pitch != other.pitch {
            return !apart;
        }
        // Where rows of one begin within the rows of the other.
        let (low, high) = if self.first <= other.first { (self, other) } else { (other, self) };
        let shift = (high.first - low.first) % low.pitch;
        !(low.width <= shift && shift + high.width <= low.pitch)
    }

    /// Whether an output has no byte with an operand in common.
    ///
    /// # Errors
    /// [`PlanError::Overlap`].
    pub(crate) fn check_apart(
        self,
        output: &'static str,
        operand: &'static str,
        of_operand: Self,
    ) -> Result<(), PlanError> {
        if !self.overlaps(of_operand) {
            return Ok(());
        }
        Err(PlanError::Overlap {
            output,
            output_range: (self.first, self.end()),
            operand,
            operand_range: (of_operand.first, of_operand.end()),
        })
    }
}

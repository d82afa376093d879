//! Activations as kernels read them, aligned and k-major or row-major, by a pass of their own where the caller's are
//! not.

use windrow_kernels::nm::{NmStageParams, STAGE_TILE};
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::operands::Operands;
use super::options::ActivationLayout;
use super::parts::launch;
use crate::device::Queue;
use crate::error::DeviceError;
use crate::options::Precision;

/// Bytes that kernels bring at once.
const VECTOR_BYTES: u64 = 16;

/// How kernels read activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadAs {
    /// k-major, of the plan's precision.
    KMajor,
    /// k-major f32, which the others are widened or rounded to.
    KMajorF32,
    /// Row-major, of the plan's precision. Nothing behind a row's last element is read.
    RowMajor,
}

impl ReadAs {
    const fn layout(self) -> ActivationLayout {
        match self {
            Self::KMajor | Self::KMajorF32 => ActivationLayout::KMajor,
            Self::RowMajor => ActivationLayout::RowMajor,
        }
    }
}

/// What activations are and what becomes of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bringing {
    pub(super) precision: Precision,
    pub(super) layout: ActivationLayout,
    pub(super) read_as: ReadAs,
    /// Columns of the activations.
    pub(super) inner: u32,
}

impl Bringing {
    /// Leading dimension of `m` rows of activations, as callers may be expected to have it, and the number of rows as
    /// they lie.
    pub(super) fn shape(self, m: u32) -> (u32, u32) {
        match self.layout {
            ActivationLayout::RowMajor => (self.inner, m),
            ActivationLayout::KMajor => (m.next_multiple_of(STAGE_TILE), self.inner),
        }
    }

    /// Whether they are others when they are brought, widened or rounded to tf32: then they always are.
    fn changes(self) -> bool {
        let widened = self.read_as == ReadAs::KMajorF32 && self.precision != Precision::F32;
        self.precision == Precision::Tf32 || widened
    }

    /// Bytes of an element that is brought.
    fn element_bytes(self) -> u32 {
        match self.read_as {
            ReadAs::KMajor | ReadAs::RowMajor => self.precision.bytes(),
            ReadAs::KMajorF32 => 4,
        }
    }

    /// Rows, as they lie in memory, of `m` rows of activations that are brought, and their leading dimension.
    fn brought(self, m: u32) -> (u32, u64) {
        match self.read_as.layout() {
            ActivationLayout::KMajor => (self.inner, padded(m)),
            ActivationLayout::RowMajor => (m, padded(self.inner)),
        }
    }

    /// Bytes of `m` rows of activations that are brought.
    fn brought_bytes(self, m: u32) -> u64 {
        let (rows, ld) = self.brought(m);
        u64::from(rows).saturating_mul(ld).saturating_mul(u64::from(self.element_bytes()))
    }

    /// Bytes of the activations of `m` rows, if they are expected to be brought: k-major ones are taken to be aligned,
    /// row-major ones to have no gaps.
    pub(super) fn bytes(self, m: u32) -> u64 {
        let suits = self.layout == self.read_as.layout()
            && (self.layout == ActivationLayout::KMajor || self.is_aligned(0, self.inner));
        if suits && !self.changes() { 0 } else { self.brought_bytes(m) }
    }

    /// Whether activations with this leading dimension and the first element here begin at multiples of 16 bytes, row
    /// for row.
    fn is_aligned(self, address: u64, lda: u32) -> bool {
        let row_bytes = u64::from(lda) * u64::from(self.precision.bytes());
        address.is_multiple_of(VECTOR_BYTES) && row_bytes.is_multiple_of(VECTOR_BYTES)
    }

    /// Whether activations are read 16 bytes at a time.
    fn reads_vectors(self, operands: &Operands) -> bool {
        operands.reads_vectors && self.is_aligned(operands.a, operands.lda)
    }

    fn entry(self, vectors: bool) -> Result<&'static Entry, DeviceError> {
        let stays = self.read_as != ReadAs::KMajorF32 && self.precision.bytes() == 2;
        let widened = (!stays).then(|| self.precision.dtype());
        let found = windrow_kernels::entry(Variant::NmStage { widened, vectors });
        found.ok_or(DeviceError::MissingEntry { name: "nm_stage" })
    }
}

/// How activations are brought, and the kernels that do it.
pub(super) struct Staging {
    bringing: Bringing,
    vectors: &'static Entry,
    elements: &'static Entry,
}

/// Activations as kernels read them, `k × m` or `m × k`, 16-byte aligned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought {
    pub(super) a: GlobalPtr<u32>,
    /// Leading dimension in elements: a multiple of those in 16 bytes.
    pub(super) ld: u32,
}

/// Leading dimension of what is brought, for rows of so many elements.
const fn padded(elements: u32) -> u64 {
    (elements as u64).next_multiple_of(STAGE_TILE as u64)
}

impl Staging {
    /// The kernels for activations that become this.
    ///
    /// # Errors
    /// [`DeviceError::MissingEntry`].
    pub(super) fn new(bringing: Bringing) -> Result<Self, DeviceError> {
        Ok(Self { bringing, vectors: bringing.entry(true)?, elements: bringing.entry(false)? })
    }

    /// Bytes of an element as kernels read it.
    pub(super) fn element_bytes(&self) -> u64 {
        u64::from(self.bringing.element_bytes())
    }

    /// Rows of the activations, as they lie in memory when kernels read them.
    pub(super) fn rows(&self, operands: &Operands) -> u32 {
        self.bringing.brought(operands.m).0
    }

    /// Whether kernels read the activations row-major.
    pub(super) fn reads_rows(&self) -> bool {
        self.bringing.read_as == ReadAs::RowMajor
    }

    /// The entry point that brings packed activations of `m` rows, if they are expected to be brought.
    pub(super) fn expected_entry(&self, m: u32) -> Option<&'static Entry> {
        let aligned = self.bringing.is_aligned(0, self.bringing.inner);
        let entry = if aligned { self.vectors } else { self.elements };
        (self.bringing.bytes(m) > 0).then_some(entry)
    }

    /// Whether kernels can read the activations as they are.
    pub(super) fn suit(&self, operands: &Operands) -> bool {
        let is_readable = match self.bringing.read_as {
            ReadAs::KMajor | ReadAs::KMajorF32 => self.bringing.reads_vectors(operands),
            ReadAs::RowMajor => self.bringing.is_aligned(operands.a, operands.lda),
        };
        is_readable && operands.layout == self.bringing.read_as.layout() && !self.bringing.changes()
    }

    /// Words that the activations take when they are brought; none if kernels can read them as they are.
    pub(super) fn words(&self, operands: &Operands) -> u64 {
        if self.suit(operands) { 0 } else { self.bringing.brought_bytes(operands.m).div_ceil(4) }
    }

    /// The kernel that brings the activations, if they are brought.
    pub(super) fn entry(&self, operands: &Operands) -> Option<&'static Entry> {
        let entry = if self.bringing.reads_vectors(operands) { self.vectors } else { self.elements };
        (!self.suit(operands)).then_some(entry)
    }

    /// Leading dimension, in elements, of the activations as kernels read them.
    pub(super) fn leading_dimension(&self, operands: &Operands) -> u64 {
        if self.suit(operands) { u64::from(operands.lda) } else { self.bringing.brought(operands.m).1 }
    }

    /// The activations as they are if kernels can read them; else queues the pass that brings them to `out`.
    ///
    /// # Errors
    /// [`DeviceError::Grid`], [`DeviceError::Driver`].
    ///
    /// # Safety
    /// The activations are as `GpuNm::run` demands; `out` has as many [words](Self::words), which nothing else uses
    /// until all work of this run is queued.
    pub(super) unsafe fn bring(
        &self,
        queue: &dyn Queue,
        operands: &Operands,
        out: GlobalPtr<u32>,
    ) -> Result<Brought, DeviceError> {
        let a = GlobalPtr::from_address(operands.a);
        let Some(entry) = self.entry(operands) else { return Ok(Brought { a, ld: operands.lda }) };
        let (rows, ld_wide) = self.bringing.brought(operands.m);
        let Ok(ld) = u32::try_from(ld_wide) else {
            return Err(DeviceError::Grid { kernel: self.vectors.name, x: ld_wide, y: 1 });
        };
        // The kernel makes `k × m` of either layout: `m × k` with the two exchanged, and the layouts with them.
        let is_row_major = operands.layout == ActivationLayout::RowMajor;
        let (m, row_major) = match self.bringing.read_as.layout() {
            ActivationLayout::KMajor => (operands.m, is_row_major),
            ActivationLayout::RowMajor => (self.bringing.inner, !is_row_major),
        };
        let params = NmStageParams {
            a,
            out,
            m,
            k: rows,
            lda: operands.lda,
            ld_out: ld,
            row_major: u32::from(row_major),
            padding: 0,
        };
        let tile = u64::from(STAGE_TILE);
        let grid = [ld_wide / tile, u64::from(rows).div_ceil(tile)];
        // SAFETY: the activations are the caller's promise, and their alignment was looked at; the result has room for
        // all rows, and is the plan's, which frees it after the machine's work.
        unsafe { launch(queue, entry, grid, &params)? };
        Ok(Brought { a: out, ld })
    }
}

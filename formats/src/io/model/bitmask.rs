//! Weights in the 2:4 layout of compressed-tensors, `sparse-24-bitmask`.
//!
//! What is known of it, from the public sources of compressed-tensors 0.9 to 0.11: a dense tensor `BASE.weight`, rows ×
//! columns, becomes three, `BASE.compressed` (rows × columns / 2, in the tensor's type: what is kept, row by row),
//! `BASE.bitmask` (U8, rows × ⌈columns / 8⌉: bit `c mod 8` of byte `⌊c / 8⌋`, the lowest first, says whether column `c`
//! is kept) and `BASE.shape` (I64, two numbers). Of every four consecutive columns exactly two are kept.

use super::super::line::name_of;
use super::super::{DenseTensor, ReadError, ReadOptions};
use super::Model;
use crate::Value;
use crate::memory::try_zeroed;

const COMPRESSED: &str = ".compressed";
const BITMASK: &str = ".bitmask";
const SHAPE: &str = ".shape";
const WEIGHT: &str = ".weight";

/// Columns of which two are kept.
const GROUP: usize = 4;

/// Weights of a [`Model`] that are three tensors in compressed-tensors' layout `sparse-24-bitmask`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmaskWeights {
    /// What the names of the three begin with.
    base: String,
}

impl BitmaskWeights {
    /// The name of the dense tensor: that of the three without their ends, with `.weight`.
    pub fn name(&self) -> String {
        if self.base.ends_with(WEIGHT) { self.base.clone() } else { format!("{}{WEIGHT}", self.base) }
    }

    /// The tensors that it is made of: values, bits, extents.
    pub fn tensors(&self) -> [String; 3] {
        [COMPRESSED, BITMASK, SHAPE].map(|end| format!("{}{end}", self.base))
    }
}

impl Model {
    /// The weights that are in compressed-tensors' 2:4 layout: three tensors `BASE.compressed`, `BASE.bitmask` and
    /// `BASE.shape`, and no `BASE.row_offsets`, which its layout without a pattern has.
    pub fn bitmask_weights(&self) -> Vec<BitmaskWeights> {
        let bases = self.tensors().filter_map(|tensor| tensor.name().strip_suffix(COMPRESSED));
        let has = |base: &str, end: &str| self.tensor(&format!("{base}{end}")).is_some();
        let whole = |base: &&str| has(base, BITMASK) && has(base, SHAPE) && !has(base, ".row_offsets");
        bases.filter(whole).map(|base| BitmaskWeights { base: base.to_owned() }).collect()
    }

    /// Reads weights in compressed-tensors' 2:4 layout as the dense tensor with its zeros, rows × columns.
    ///
    /// # Errors
    /// [`ReadError::InFile`] around those of [`read`](Self::read), and [`ReadError::Archive`] if one of the tensors has
    /// not the shape or type of the layout, or the bits keep more or fewer than two of four columns.
    pub fn read_bitmask<V: Value>(
        &self,
        weights: &BitmaskWeights,
        options: &ReadOptions<'_>,
    ) -> Result<DenseTensor<V>, ReadError> {
        let [compressed, bitmask, shape] = weights.tensors();
        let [rows, cols] = self.with_tensor(&shape, options, |tensor| {
            tensor
                .extents()
                .ok_or_else(|| tensor.error("two numbers of type I64, rows and columns", "others"))
        })?;
        let place = format!("tensor {}", name_of(&compressed));
        options.limits.check_shape(&place, rows as u64, cols as u64)?;
        options.limits.check_nnz(&place, (rows as u64).saturating_mul(cols as u64))?;
        if !cols.is_multiple_of(GROUP) {
            return Err(ReadError::archive(place, "columns that are a multiple of 4", format!("{cols}")));
        }
        let bits = self.with_tensor(&bitmask, options, |tensor| {
            tensor.check_shape(&[rows, cols.div_ceil(8)], "a bit for each row and column")?;
            tensor.bytes()
        })?;
        let kept = self.with_tensor(&compressed, options, |tensor| {
            tensor.check_shape(&[rows, cols / 2], "half of the columns")?;
            tensor.values::<V>()
        })?;
        let mut dense = try_zeroed::<V>(rows * cols, "the dense tensor")?;
        let mut kept = kept.into_iter();
        for (row, elements) in dense.chunks_exact_mut(cols.max(1)).enumerate() {
            let bits = &bits[row * cols.div_ceil(8)..][..cols.div_ceil(8)];
            if !cols.is_multiple_of(8) && bits.last().is_some_and(|last| last >> 4 != 0) {
                let found = format!("bits beyond column {cols} in row {row}");
                return Err(ReadError::archive(format!("tensor {}", name_of(&bitmask)), "none", found));
            }
            for (group, elements) in elements.chunks_exact_mut(GROUP).enumerate() {
                let mask = bits[group / 2] >> (GROUP * (group % 2)) & 0xF;
                if mask.count_ones() != 2 {
                    let found = format!("{} in row {row}, columns from {}", mask.count_ones(), group * GROUP);
                    let place = format!("tensor {}", name_of(&bitmask));
                    return Err(ReadError::archive(place, "two of four bits set", found));
                }
                let chosen = elements.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
                // Half of the columns of each row were there.
                chosen.zip(&mut kept).for_each(|((_, element), value)| *element = value);
            }
        }
        Ok(DenseTensor::new(weights.name(), rows, cols, dense)?)
    }
}

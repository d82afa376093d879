//! Checks a product against a reference of twice f64's precision, element by element, where the product is.

use std::ops::Range;

use windrow_formats::memory::try_collect;
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::Variant;
use windrow_kernels::check::CheckParams;
use windrow_simt::GlobalPtr;

use super::fit::narrow_width;
use super::plan::{Body, SpmmPlan};
use crate::dense::DenseRef;
use crate::device::{Device, DeviceBuffer};
use crate::element::{Element, output_type};
use crate::error::{PlanError, SpmmError};
use crate::matrix::DeviceMatrix;
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::plan::{
    Bits, Double, MAX_BLOCK_COLUMNS, SUMMED_AT_ONCE, UNIT_MMA, Verification, all_parts, check_device,
    column_blocks, error_ratio, queue_of, start, unit_of,
};
use crate::tf32;

/// The check kernel names an element in 32 bits.
const MAX_POSITIONS: usize = u32::MAX as usize;

impl SpmmPlan {
    /// Compares `c` with `A·B`, summed with twice f64's precision (α = 1, β = 0), every element, on the device where it
    /// is.
    ///
    /// `a` is the matrix that the plan was built from, with its current values: on a GPU it is uploaded for the
    /// check and freed after it (12 bytes an entry at most). An element passes if
    ///
    /// ```text
    /// |C − want| ≤ γ(len + 2)·Σ|a·b| + u_out·|want| + tiny,   γ(t) = t·u / (1 − t·u)
    /// ```
    ///
    /// with values and `B` as the plan rounds them, `len` the entries of its row, `u = 2⁻²⁴` (`2⁻²³` where tiles take
    /// part, `2⁻⁵³` in f64), and `u_out`, `tiny` for a `C` of 16 bits (Higham 2002, section 3.1). One thread an element
    /// and no blocking: it takes as long as some hundred products.
    ///
    /// # Errors
    /// - [`PlanError::OtherMatrix`] if `a` has not the plan's sizes;
    /// - those of [`run_into`](Self::run_into).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// let plan = Spmm::builder(&a).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0], 3, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 3, 1)?;
    /// assert!(!plan.verify(&a, &b, &c)?.passed()); // not computed yet
    /// plan.run_into(1.0, &b, 0.0, &mut c)?;
    /// assert!(plan.verify(&a, &b, &c)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, B: Element, C: Element>(
        &self,
        a: &Csr<V>,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
    ) -> Result<Verification, SpmmError> {
        self.check_matrix(a)?;
        self.check_operand("B", b)?;
        check_device("C", c.device(), &self.device)?;
        self.check_product(b, c)?;
        self.compare(&Reference::new(a, self.precision, &self.device)?, b, c)
    }

    /// Does what [`internal::verify_with`](crate::internal::verify_with) promises.
    pub(crate) fn verify_with<V: Value, B: Element, C: Element>(
        &self,
        reference: &Reference<'_, V>,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
    ) -> Result<Verification, SpmmError> {
        check_device("A", &reference.device, &self.device)?;
        debug_assert_eq!(reference.precision, self.precision, "values as the plan rounds them");
        self.check_matrix(reference.a)?;
        self.check_operand("B", b)?;
        check_device("C", c.device(), &self.device)?;
        self.check_product(b, c)?;
        self.compare(reference, b, c)
    }

    fn check_matrix<V: Value>(&self, a: &Csr<V>) -> Result<(), SpmmError> {
        if (a.rows(), a.cols(), a.nnz()) == (self.rows, self.cols, self.nnz) {
            return Ok(());
        }
        let (rows, cols, nnz) = (a.rows(), a.cols(), a.nnz());
        let (plan_rows, plan_cols, plan_nnz) = (self.rows, self.cols, self.nnz);
        Err(PlanError::OtherMatrix { rows, cols, nnz, plan_rows, plan_cols, plan_nnz }.into())
    }

    /// Compares operands that were checked.
    fn compare<V: Value, B: Element, C: Element>(
        &self,
        reference: &Reference<'_, V>,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
    ) -> Result<Verification, SpmmError> {
        if c.rows() == 0 || c.cols() == 0 {
            return Ok(Verification::NOTHING);
        }
        match (&self.body, &reference.values) {
            (Body::Gpu(plan), ReferenceValues::Device(a)) => {
                let unit = if plan.uses_tensor_cores() { UNIT_MMA } else { unit_of(self.precision) };
                let columns = index(u64::from(MAX_BLOCK_COLUMNS));
                self.verify_on_device(a, b, c, Check { unit, columns })
            }
            (_, ReferenceValues::Host(values)) => match (b.host(), c.host()) {
                (Some(b), Some(c)) => Ok(verify_on_host(reference.a, values, b, c, self.precision)?),
                _ => Ok(Verification::NOTHING), // not reached: both are on the CPU, as was checked
            },
            // Not reached: the reference is on the plan's device.
            (Body::Cpu(_), ReferenceValues::Device(_)) => Ok(Verification::NOTHING),
        }
    }

    fn verify_on_device<B: Element, C: Element>(
        &self,
        a: &Uploaded,
        b: &DeviceMatrix<B>,
        c: &DeviceMatrix<C>,
        Check { unit, columns }: Check,
    ) -> Result<Verification, SpmmError> {
        let queue = queue_of(&self.device)?;
        let entry = windrow_kernels::entry(Variant::Check { dtype: self.precision.dtype() })
            .ok_or(crate::DeviceError::MissingEntry { name: "spmm_check" })?;
        let (ldb, ldc) = (narrow_width(b.ld())?, narrow_width(c.ld())?);
        let mut total = Verification::NOTHING;
        for (rows, cols) in blocks(self.rows, c.cols(), columns) {
            let outcome = DeviceBuffer::<u64>::zeroed(&self.device, 2, "outcome")?;
            let of_b = wide(cols.start) * wide(size_of::<B>());
            let of_c = (wide(rows.start) * wide(c.ld()) + wide(cols.start)) * wide(size_of::<C>());
            let params = CheckParams {
                row_offsets: a.row_offsets.pointer().at_wide(wide(rows.start)),
                col_indices: a.col_indices.pointer(),
                values: a.values.pointer().cast(),
                b: GlobalPtr::from_address(b.buffer().address() + of_b),
                c: GlobalPtr::from_address(c.buffer().address() + of_c),
                outcome: outcome.pointer(),
                m: narrow(rows.len()),
                n: narrow(cols.len()),
                ldb,
                ldc,
                c_type: output_type::<C>().code(),
                unit,
            };
            // SAFETY: the CSR arrays are those of a valid matrix with fewer than 2³² entries, or the plan would
            // not exist; `b` and `c` are matrices of the checked shapes and types on this device, of which the
            // block is part; `outcome` is fresh. All are alive until the outcome is read, which waits for the
            // kernel.
            unsafe { start(queue, entry, u64::from(params.m), params.n, &params)? };
            total = total.and(read_outcome(&outcome, rows, cols)?);
        }
        Ok(total)
    }
}

/// How a kernel checks.
#[derive(Debug, Clone, Copy)]
struct Check {
    /// Unit roundoff of the sums.
    unit: f32,
    /// Columns of a launch, at most.
    columns: usize,
}

/// The blocks of rows and columns in which a `C` that has elements is checked: of at most `columns` columns, since a
/// grid has its limits, and of as many elements as the kernel can name.
fn blocks(rows: usize, cols: usize, columns: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let columns = columns.min(cols);
    let rows_at_once = MAX_POSITIONS / columns;
    let cut = |len: usize, most: usize| (0..len).step_by(most).map(move |at| at..len.min(at + most));
    cut(cols, columns).flat_map(move |cols| cut(rows, rows_at_once).map(move |rows| (rows, cols.clone())))
}

/// A matrix with its values as plans of a precision round them, on a device, for
/// [`internal::verify_with`](crate::internal::verify_with).
pub struct Reference<'a, V> {
    a: &'a Csr<V>,
    precision: Precision,
    device: Device,
    values: ReferenceValues,
}

enum ReferenceValues {
    Host(Vec<f64>),
    Device(Uploaded),
}

impl<'a, V: Value> Reference<'a, V> {
    /// Uploads `a`, if the device is a GPU: 12 bytes an entry at most.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    pub fn new(a: &'a Csr<V>, precision: Precision, device: &Device) -> Result<Self, SpmmError> {
        let bits = Bits::of(precision, a.values())?;
        let values = match device.machine() {
            None => ReferenceValues::Host(bits.numbers()?),
            Some(_) => ReferenceValues::Device(Uploaded::new(device, a, &bits)?),
        };
        Ok(Self { a, precision, device: device.clone(), values })
    }
}

/// A CSR in device memory, for the time of a check.
struct Uploaded {
    row_offsets: DeviceBuffer<u32>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
}

impl Uploaded {
    fn new<V: Value>(device: &Device, a: &Csr<V>, bits: &Bits) -> Result<Self, SpmmError> {
        let offsets = a.row_offsets().iter().map(|&offset| narrow(index(offset)));
        let offsets = try_collect(offsets, "row_offsets")?;
        Ok(Self {
            row_offsets: DeviceBuffer::named(device, &offsets, "row_offsets")?,
            col_indices: DeviceBuffer::named(device, a.col_indices(), "col_indices")?,
            values: DeviceBuffer::named(device, bits.bytes(), "values")?,
        })
    }
}

/// The kernel's two words for a block of `C`: the worst ratio's f32 bits over its position, and the count.
fn read_outcome(
    outcome: &DeviceBuffer<u64>,
    rows: Range<usize>,
    cols: Range<usize>,
) -> Result<Verification, SpmmError> {
    let words = outcome.to_vec()?;
    let (worst, failures) = (words[0], words[1] & 0xffff_ffff);
    let position = index(worst & 0xffff_ffff);
    Ok(Verification {
        worst_ratio: f64::from(f32::from_bits(u32::try_from(worst >> 32).unwrap_or(u32::MAX))),
        worst_row: rows.start + position / cols.len(),
        worst_col: cols.start + position % cols.len(),
        failures,
        checked: wide(rows.len()) * wide(cols.len()),
    })
}

/// The same on the CPU, rows in parallel. Also the reference that the kernel is tested against.
fn verify_on_host<V: Value, B: Element, C: Element>(
    a: &Csr<V>,
    values: &[f64],
    b: DenseRef<'_, B>,
    c: DenseRef<'_, C>,
    precision: Precision,
) -> Result<Verification, OutOfMemory> {
    let unit = unit_of(precision);
    let as_multiplied = |b: B| tf32::as_multiplied(precision, b.to_f64());
    let row = |r: usize| {
        let range = a.row_range(r);
        let (cols, values) = (&a.col_indices()[range.clone()], &values[range]);
        let mut row = Verification { worst_row: r, checked: wide(c.cols()), ..Verification::NOTHING };
        for columns in column_blocks(c.cols()) {
            let mut want = [Double::default(); SUMMED_AT_ONCE];
            let mut scale = [0.0f64; SUMMED_AT_ONCE];
            for (&col, &value) in cols.iter().zip(values) {
                let b = &b.row(col as usize)[columns.clone()];
                for ((want, scale), &b) in want.iter_mut().zip(&mut scale).zip(b) {
                    *scale += want.add_product(value, as_multiplied(b)).abs();
                }
            }
            let got = &c.row(r)[columns.clone()];
            for (j, ((&want, scale), got)) in columns.zip(want.iter().zip(scale).zip(got)) {
                let ratio = error_ratio::<C>(got.to_f64(), want, scale, cols.len(), unit);
                if ratio > 1.0 {
                    row.failures += 1;
                }
                if ratio > row.worst_ratio {
                    (row.worst_ratio, row.worst_col) = (ratio, j);
                }
            }
        }
        Ok(row)
    };
    all_parts(a.rows(), &row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_element_once() {
        for (rows, cols, columns) in [(1, 1, 1), (5, 7, 3), (5, 6, 3), (2, 7, 100), (5000, 1 << 21, 1 << 20)]
        {
            let blocks: Vec<_> = blocks(rows, cols, columns).collect();
            let sizes = blocks.iter().map(|(rows, cols)| (rows.len(), cols.len()));
            assert!(sizes.clone().all(|(m, n)| n <= columns && m * n <= MAX_POSITIONS && m * n > 0));
            assert_eq!(sizes.map(|(m, n)| m * n).sum::<usize>(), rows * cols);
            let starts: std::collections::BTreeSet<_> =
                blocks.iter().map(|(rows, cols)| (rows.start, cols.start)).collect();
            assert_eq!(starts.len(), blocks.len());
        }
    }

    #[cfg(feature = "emulator")]
    #[test]
    fn what_is_wrong_is_found_in_any_block_of_columns() {
        let device = Device::emulator(crate::EmulatorSchedule::InOrder);
        let a = Csr::<f32>::identity(3).unwrap();
        let ones = [1.0f32; 3 * 7];
        let upload = |x: &[f32]| DeviceMatrix::upload(&device, DenseRef::packed(x, 3, 7).unwrap()).unwrap();
        let plan = crate::Spmm::builder(&a).width(7).build(&device).unwrap();
        let uploaded = Uploaded::new(&device, &a, &Bits::of(Precision::F32, a.values()).unwrap()).unwrap();
        let (b, right) = (upload(&ones), upload(&ones));
        let check = |c: &DeviceMatrix<f32>| {
            plan.verify_on_device(&uploaded, &b, c, Check { unit: unit_of(Precision::F32), columns: 3 })
                .unwrap()
        };
        assert!(check(&right).passed());
        for (row, column) in [(0, 0), (1, 2), (2, 3), (0, 6)] {
            let mut wrong = ones;
            wrong[row * 7 + column] = 2.0;
            let found = check(&upload(&wrong));
            let place = (found.worst_row, found.worst_col, found.failures, found.checked);
            assert_eq!(place, (row, column, 1, 21));
        }
    }
}

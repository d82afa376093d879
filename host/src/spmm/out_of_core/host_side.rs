//! The dense operands of a product in host memory, as pieces of them go to a device and come back.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::{Multiplied, each_chunk, expect};
use crate::dense::{DenseMut, MatRef};
use crate::device::{HostAddress, Machine};
use crate::element::{Element, Real};
use crate::error::DeviceError;
use crate::plan::is_same;

/// Bytes that a task copies at a time.
const TASK_BYTES: usize = 256 << 10;
/// Rows by which the processor is told of the next one. Pieces of rows lie apart, and it does not foresee where one
/// begins: told of it, products from ordinary memory took 0.69 and 0.83 of the time where rows have 1024 bytes, of
/// which 256 are copied, and as long as before where they have 512. Four and sixteen rows serve about as well.
const AHEAD: usize = 8;

/// Rows that a device copies from and to where they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct InPlace {
    pub(super) address: HostAddress,
    /// Bytes from row to row.
    pub(super) pitch: usize,
}

/// The operand `B` of a product.
pub(super) trait Source {
    /// Writes some rows of some columns, in the element type of the plan, each row with zeros up to its share of `to`.
    fn pack(&self, rows: Range<usize>, cols: Range<usize>, to: &mut [u8]);

    /// Where it is, if it is page-locked and nothing needs converting.
    fn in_place(&self) -> Option<InPlace>;
}

/// The result `C` of a product.
pub(super) trait Sink {
    /// Writes what some rows of some columns are now as a device takes them, each row with its share of `to`.
    fn load(&self, rows: Range<usize>, cols: Range<usize>, to: &mut [u8]);

    /// Takes new values of some rows of some columns from a device, each row from its share of `from`.
    fn store(&mut self, rows: Range<usize>, cols: Range<usize>, from: &[u8]);

    /// As [`Source::in_place`]. While copies use it, nothing else of the trait is called.
    fn in_place(&mut self) -> Option<InPlace>;
}

/// Copies elements that follow each other on both sides.
fn copy_all<T: Element>(from: &[T], to: &mut [T]) {
    let together = TASK_BYTES / size_of::<T>();
    each_chunk(to, together, &|at, to| to.copy_from_slice(&from[at * together..][..to.len()]));
}

/// Whether `elements` are page-locked.
pub(super) fn are_pinned<T>(machine: &dyn Machine, elements: &[T]) -> Result<bool, DeviceError> {
    let Some(last) = elements.last() else { return Ok(false) };
    Ok(machine.is_pinned(elements.as_ptr().cast())? && machine.is_pinned(std::ptr::from_ref(last).cast())?)
}

/// Rows of so many elements that a task takes.
fn rows_together<T>(row_len: usize) -> usize {
    (TASK_BYTES / (row_len * size_of::<T>()).max(1)).max(1)
}

/// Works on rows of `row_len` elements, as many to a task as are worth one; tells the work which row is [`AHEAD`], if
/// it is the same task's.
fn each_row<T: Send>(
    elements: &mut [T],
    row_len: usize,
    work: impl Fn(usize, &mut [T], Option<&[T]>) + Sync,
) {
    if row_len == 0 {
        return;
    }
    let together = rows_together::<T>(row_len);
    each_chunk(elements, together * row_len, &|at, rows| {
        let (mut row, mut rest) = (at * together, rows);
        while !rest.is_empty() {
            let (own, behind) = rest.split_at_mut(row_len.min(rest.len()));
            let ahead = behind.get((AHEAD - 1) * row_len..).and_then(|rows| rows.get(..row_len));
            work(row, own, ahead);
            (row, rest) = (row + 1, behind);
        }
    });
}

/// A `B` of elements `B` for a plan of element type `E`.
pub(super) struct DenseSource<'a, B, E> {
    b: MatRef<'a, B>,
    is_pinned: bool,
    element: PhantomData<E>,
}

impl<'a, B: Element, E: Element> DenseSource<'a, B, E> {
    pub(super) fn new(machine: &dyn Machine, b: MatRef<'a, B>) -> Result<Self, DeviceError> {
        let is_pinned = match b.as_rows().filter(|_| is_same::<B, E>()) {
            Some(rows) => are_pinned(machine, rows.data())?,
            None => false,
        };
        Ok(Self { b, is_pinned, element: PhantomData })
    }
}

impl<B: Element, E: Element> Source for DenseSource<'_, B, E> {
    fn pack(&self, rows: Range<usize>, cols: Range<usize>, to: &mut [u8]) {
        let to: &mut [E] = bytemuck::cast_slice_mut(to);
        let ld = to.len() / rows.len().max(1);
        let Some(b) = self.b.as_rows() else {
            let (b, together) = (self.b.columns(cols), rows_together::<E>(ld));
            return each_chunk(to, together * ld, &|at, to| {
                to.fill(E::ZERO);
                b.copy_rows(rows.start + at * together, ld, to, |x| E::from_f64(x.to_f64()));
            });
        };
        if is_same::<B, E>() && (b.ld(), ld) == (cols.len(), cols.len()) {
            return copy_all(bytemuck::cast_slice(&b.data()[rows.start * ld..rows.end * ld]), to);
        }
        each_row(to, ld, |at, row, ahead| {
            let (row, rest) = row.split_at_mut(cols.len());
            if ahead.is_some() {
                expect(&b.row(rows.start + at + AHEAD)[cols.clone()]);
            }
            copy_or_round::<B, E>(&b.row(rows.start + at)[cols.clone()], row);
            rest.fill(E::ZERO);
        });
    }

    fn in_place(&self) -> Option<InPlace> {
        let rows = self.b.as_rows().filter(|_| self.is_pinned)?;
        let address = HostAddress(rows.data().as_ptr().cast_mut().cast());
        Some(InPlace { address, pitch: rows.ld() * size_of::<B>() })
    }
}

/// The elements in another type, or as they are.
fn copy_or_round<T: Element, U: Element>(from: &[T], to: &mut [U]) {
    match is_same::<T, U>() {
        true => to.copy_from_slice(bytemuck::cast_slice(from)),
        false => <U as Multiplied>::round_row(from, to),
    }
}

/// A `C` of elements `C`, of which a device has either those, or sums `S`.
pub(super) struct DenseSink<'a, C, S> {
    c: DenseMut<'a, C>,
    /// Whether the device has elements of `C`.
    as_it_is: bool,
    is_pinned: bool,
    sum: PhantomData<S>,
}

impl<'a, C: Element, S: Real> DenseSink<'a, C, S> {
    pub(super) fn new(
        machine: &dyn Machine,
        c: DenseMut<'a, C>,
        as_it_is: bool,
    ) -> Result<Self, DeviceError> {
        let is_pinned = as_it_is && are_pinned(machine, c.as_ref().data())?;
        Ok(Self { c, as_it_is, is_pinned, sum: PhantomData })
    }

    fn load_as<D: Element>(&self, rows: Range<usize>, cols: Range<usize>, to: &mut [u8]) {
        let to: &mut [D] = bytemuck::cast_slice_mut(to);
        let (ld, c) = (to.len() / rows.len().max(1), self.c.as_ref());
        each_row(to, ld, |at, row, ahead| {
            let (row, rest) = row.split_at_mut(cols.len());
            if ahead.is_some() {
                expect(&c.row(rows.start + at + AHEAD)[cols.clone()]);
            }
            copy_or_round::<C, D>(&c.row(rows.start + at)[cols.clone()], row);
            rest.fill(D::ZERO);
        });
    }

    fn store_as<D: Element>(&mut self, rows: Range<usize>, cols: Range<usize>, from: &[u8]) {
        let from: &[D] = bytemuck::cast_slice(from);
        let from_ld = from.len() / rows.len().max(1);
        let (ld, all) = (self.c.ld(), self.c.rows());
        let data = self.c.data_mut();
        if is_same::<C, D>() && (ld, from_ld) == (cols.len(), cols.len()) {
            return copy_all(bytemuck::cast_slice(from), &mut data[rows.start * ld..rows.end * ld]);
        }
        let end = if rows.end == all { data.len() } else { rows.end * ld };
        each_row(&mut data[rows.start * ld..end], ld, |at, row, ahead| {
            ahead.iter().for_each(|ahead| expect(&ahead[cols.clone()]));
            // Behind the last row there may be elements that are nobody's.
            if let Some(from) = from.get(at * from_ld..).filter(|_| at < rows.len()) {
                copy_or_round::<D, C>(&from[..cols.len()], &mut row[cols.clone()]);
            }
        });
    }
}

impl<C: Element, S: Real> Sink for DenseSink<'_, C, S> {
    fn load(&self, rows: Range<usize>, cols: Range<usize>, to: &mut [u8]) {
        match self.as_it_is {
            true => self.load_as::<C>(rows, cols, to),
            false => self.load_as::<S>(rows, cols, to),
        }
    }

    fn store(&mut self, rows: Range<usize>, cols: Range<usize>, from: &[u8]) {
        match self.as_it_is {
            true => self.store_as::<C>(rows, cols, from),
            false => self.store_as::<S>(rows, cols, from),
        }
    }

    fn in_place(&mut self) -> Option<InPlace> {
        let pitch = self.c.ld() * size_of::<C>();
        let address = HostAddress(self.c.data_mut().as_mut_ptr().cast());
        self.is_pinned.then_some(InPlace { address, pitch })
    }
}

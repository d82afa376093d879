//! Reductions on the CPU.

use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::aggregate::NO_WINNER;

use super::options::{AggregateOptions, Message, Reduce};
use crate::dense::{DenseMut, DenseRef};
use crate::element::Element;
use crate::num::{narrow, real, wide};
use crate::row_lists::Transposed;

/// A matrix and what is made of its entries.
pub(super) struct HostAggregate<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) options: &'a AggregateOptions,
    /// Of the entries; none if they do not matter.
    pub(super) values: Option<&'a [f32]>,
}

impl HostAggregate<'_> {
    fn value(&self, entry: usize) -> f64 {
        self.values.map_or(1.0, |values| f64::from(values[entry]))
    }

    fn message(&self, entry: usize, x: f64) -> f64 {
        match self.options.message {
            Message::Copy => x,
            Message::Mul => self.value(entry) * x,
            Message::Add => self.value(entry) + x,
        }
    }

    /// What a sum over a row is multiplied by.
    fn mean(&self, row: usize) -> f64 {
        match (self.options.reduce, self.pattern.row_range(row).len()) {
            (Reduce::Mean, len) if len > 0 => 1.0 / real(wide(len)),
            _ => 1.0,
        }
    }

    /// The result in f64, each element rounded once, and the winners; the same bits whatever the number of threads.
    pub(super) fn run<T: Element, O: Element>(
        &self,
        x: DenseRef<'_, T>,
        result: &mut DenseMut<'_, O>,
        winners: Option<&mut [u32]>,
    ) -> Result<(), OutOfMemory> {
        let columns = self.options.columns;
        let one = |row: usize, to: &mut [O], mut winners: Option<&mut [u32]>| {
            for (column, to) in to.iter_mut().take(columns).enumerate() {
                let mut found = Found { number: 0.0, winner: NO_WINNER };
                for entry in self.pattern.row_range(row) {
                    let of = x.row(self.pattern.col_indices()[entry] as usize)[column].to_f64();
                    self.take(&mut found, entry, self.message(entry, of));
                }
                *to = O::from_f64(found.number * self.mean(row));
                if let Some(winners) = &mut winners {
                    winners[column] = found.winner;
                }
            }
        };
        let ld = result.ld().max(1);
        let rows = result.data_mut().par_chunks_mut(ld).enumerate();
        match winners {
            Some(winners) if columns > 0 => rows
                .zip(winners.par_chunks_mut(columns))
                .for_each(|((row, to), winners)| one(row, to, Some(winners))),
            _ => rows.for_each(|(row, to)| one(row, to, None)),
        }
        Ok(())
    }

    fn take(&self, found: &mut Found, entry: usize, message: f64) {
        let is_first = found.winner == NO_WINNER;
        let wins = match self.options.reduce {
            Reduce::Sum | Reduce::Mean => {
                found.number += message;
                return;
            }
            // The first of what is no number, or of equals, stays.
            _ if is_first => true,
            _ if found.number.is_nan() => false,
            Reduce::Max => message.is_nan() || message > found.number,
            Reduce::Min => message.is_nan() || message < found.number,
        };
        if wins {
            *found = Found { number: message, winner: narrow(entry) };
        }
    }

    /// The gradient of `X` in f64, each element rounded once.
    pub(super) fn gradient_of_x<T: Element, R: Element>(
        &self,
        transposed: &Transposed,
        (gradient, winners): (DenseRef<'_, T>, Option<&[u32]>),
        to: &mut DenseMut<'_, R>,
    ) -> Result<(), OutOfMemory> {
        let columns = self.options.columns;
        let ld = to.ld().max(1);
        to.data_mut().par_chunks_mut(ld).enumerate().try_for_each(|(row_of_x, to)| {
            let mut sums = try_zeroed::<f64>(columns, "the sums of a row")?;
            for at in transposed.range(row_of_x) {
                let (row, entry) = (transposed.rows[at] as usize, transposed.positions[at] as usize);
                let factor = match self.options.message {
                    Message::Mul => self.value(entry),
                    Message::Copy | Message::Add => 1.0,
                } * self.mean(row);
                for (column, (sum, element)) in sums.iter_mut().zip(gradient.row(row)).enumerate() {
                    if has_won(winners, row * columns + column, entry) {
                        *sum += factor * element.to_f64();
                    }
                }
            }
            to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = R::from_f64(sum));
            Ok(())
        })
    }

    /// The gradient of the values in f64, each rounded once.
    pub(super) fn gradient_of_values<T: Element>(
        &self,
        x: DenseRef<'_, T>,
        (gradient, winners): (DenseRef<'_, T>, Option<&[u32]>),
        to: &mut [f32],
    ) {
        let columns = self.options.columns;
        to.par_iter_mut().enumerate().for_each(|(entry, to)| {
            // The last row that begins at the entry or before it.
            let row = self.pattern.row_offsets().partition_point(|&begin| begin <= wide(entry)) - 1;
            let of_x = x.row(self.pattern.col_indices()[entry] as usize);
            let mut sum = 0.0;
            for (column, (element, x)) in gradient.row(row).iter().zip(of_x).enumerate() {
                if has_won(winners, row * columns + column, entry) {
                    let factor = if self.options.message == Message::Mul { x.to_f64() } else { 1.0 };
                    sum += element.to_f64() * factor;
                }
            }
            #[expect(clippy::cast_possible_truncation, reason = "rounded as documented")]
            let rounded = (sum * self.mean(row)) as f32;
            *to = rounded;
        });
    }
}

/// A number of a row, and which entry it came from.
#[derive(Clone, Copy)]
struct Found {
    number: f64,
    winner: u32,
}

fn has_won(winners: Option<&[u32]>, at: usize, entry: usize) -> bool {
    winners.is_none_or(|winners| winners[at] == narrow(entry))
}

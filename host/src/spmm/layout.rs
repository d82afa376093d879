//! What every layout looks at: the matrix, what is asked for, and the device.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{Csr, OutOfMemory, Pattern, Permutation, Value};
use windrow_simt::GlobalPtr;

use super::options::SpmmOptions;
use super::preprocess::Scratch;
use super::select::Demand;
use crate::device::{Device, Machine};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::{MAX_INDEX, middle, rows_at_once};
use crate::profile::Profile;

/// Of the L2 cache, what a slice of `B` may occupy at least, in quarters: for tiles.
pub(super) const LEAST_QUARTERS: u64 = 2;

/// What choices look at of a matrix, and where kernels find it, be it on the host or on the device.
pub(super) trait Matrix {
    fn rows(&self) -> usize;
    fn cols(&self) -> usize;
    fn nnz(&self) -> usize;

    /// Distinct columns of so many successive rows in the middle of the order.
    fn columns_in_use(&self, order: Option<&Permutation>, rows: usize) -> Result<usize, DeviceError>;

    /// Offsets and columns in device memory, for as long as the scratch memory and the matrix live.
    fn arrays(&self, scratch: &Scratch) -> Result<CsrArrays, DeviceError>;
}

/// A matrix in device memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsrArrays {
    pub(super) row_offsets: GlobalPtr<u32>,
    pub(super) col_indices: GlobalPtr<u32>,
}

impl<V: Value> Matrix for Csr<V> {
    fn rows(&self) -> usize {
        self.rows()
    }

    fn cols(&self) -> usize {
        self.cols()
    }

    fn nnz(&self) -> usize {
        self.nnz()
    }

    fn columns_in_use(&self, order: Option<&Permutation>, rows: usize) -> Result<usize, DeviceError> {
        Ok(columns_in_use(self.pattern(), order, rows)?)
    }

    fn arrays(&self, scratch: &Scratch) -> Result<CsrArrays, DeviceError> {
        let row_offsets = self.row_offsets().par_iter().map(|&offset| narrow(index(offset)));
        let row_offsets = try_par_collect(row_offsets, "row_offsets")?;
        Ok(CsrArrays {
            row_offsets: scratch.array_from(&row_offsets, "row_offsets")?,
            col_indices: scratch.array_from(self.col_indices(), "col_indices")?,
        })
    }
}

/// What a layout is made for.
pub(super) struct Context<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: &'a SpmmOptions,
    pub(super) device: &'a Device,
    pub(super) machine: &'a dyn Machine,
    /// The order in which rows are worked on, if it is not the matrix's own.
    pub(super) order: Option<&'a Permutation>,
    pub(super) empty_rows: u64,
    /// What was measured on the device.
    pub(super) profile: &'a Profile,
    /// Columns of the rows that are worked on at the same time, once they are counted.
    pub(super) columns_in_use: OnceCell<u64>,
}

/// How the width is divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slicing {
    /// Widest slice, in columns.
    pub(super) widest: u32,
    /// Whether all slices are worked on at the same time.
    pub(super) together: bool,
}

impl Slicing {
    const ALL: Self = Self { widest: u32::MAX, together: true };
}

impl<A: Matrix> Context<'_, A> {
    /// What an aligned product of the plan's width asks of an entry.
    pub(super) fn demand(&self) -> Demand {
        demand(self.options)
    }

    /// How the width is divided so that the rows of `B` in use stay in so many quarters of the L2 cache.
    ///
    /// What is in use are the columns of the rows that are worked on at the same time. If their whole rows of `B`
    /// fit, all slices of the width are worked on together; otherwise one after the other; and if not even a wide
    /// slice of them fits, narrow ones are taken.
    pub(super) fn slicing(&self, cache_quarters: u64) -> Result<Slicing, DeviceError> {
        let Some(l2) = self.device.l2_bytes() else { return Ok(Slicing::ALL) };
        let bytes = u64::from(self.options.precision.bytes());
        let room = l2 / 4 * cache_quarters;
        let fits =
            |columns: u64| columns.saturating_mul(wide(self.options.width)).saturating_mul(bytes) <= room;
        if fits(wide(self.a.cols())) {
            return Ok(Slicing::ALL); // however many of them are in use
        }
        let rows_at_once = rows_at_once(self.device);
        let columns = match self.columns_in_use.get() {
            Some(&columns) => columns,
            None => {
                let columns = wide(self.a.columns_in_use(self.order, rows_at_once)?);
                *self.columns_in_use.get_or_init(|| columns)
            }
        };
        if fits(columns) {
            return Ok(Slicing::ALL);
        }
        let fitting = room / (columns * bytes).max(1);
        Ok(Slicing { widest: narrow(index(fitting.clamp(1, u64::from(u32::MAX)))), together: false })
    }
}

/// What an aligned product of a plan's width asks of an entry.
pub(super) fn demand(options: &SpmmOptions) -> Demand {
    Demand::aligned(options.precision.dtype(), narrow(options.width.min(index(MAX_INDEX))))
}

/// Whether the columns in use decide how the width is sliced: not where all of `B` is small enough for any slicing, or
/// nobody knows the cache.
pub(super) fn columns_decide(device: &Device, options: &SpmmOptions, cols: usize) -> bool {
    let Some(l2) = device.l2_bytes() else { return false };
    let b_bytes =
        wide(cols).saturating_mul(wide(options.width)).saturating_mul(u64::from(options.precision.bytes()));
    b_bytes > l2 / 4 * LEAST_QUARTERS
}

/// Distinct columns of `rows` successive rows in the middle of the order.
fn columns_in_use(a: &Pattern, order: Option<&Permutation>, rows: usize) -> Result<usize, OutOfMemory> {
    let unseen = (0..a.cols()).into_par_iter().map(|_| AtomicBool::new(false));
    let seen = try_par_collect(unseen, "columns in use")?;
    middle(a.rows(), rows).into_par_iter().with_min_len(256).for_each(|position| {
        let row = order.map_or(position, |order| order.to_old(position));
        for &col in a.row(row) {
            seen[col as usize].store(true, Ordering::Relaxed);
        }
    });
    Ok(seen.into_par_iter().filter(|seen| seen.load(Ordering::Relaxed)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_in_use_are_those_of_the_middle_rows() {
        let a =
            Csr::try_from_parts(4, 9, vec![0, 2, 3, 5, 6], vec![0, 1, 4, 4, 5, 8], vec![1.0f32; 6]).unwrap();
        assert_eq!(columns_in_use(a.pattern(), None, 2), Ok(2), "rows 1 and 2: columns 4 and 5");
        assert_eq!(columns_in_use(a.pattern(), None, 100), Ok(5));
        let order = Permutation::try_from_new_to_old(vec![1, 0, 3, 2]).unwrap();
        assert_eq!(columns_in_use(a.pattern(), Some(&order), 2), Ok(3), "rows 0 and 3");
        assert_eq!(columns_in_use(Csr::<f32>::zeros(0, 3).unwrap().pattern(), None, 5), Ok(0));
    }

    /// Kernels count the columns of a matrix on the device in any order, as the host does.
    #[cfg(feature = "emulator")]
    #[test]
    fn columns_in_use_on_the_device_are_those_of_the_order() {
        use crate::csr::Wanted;
        use crate::plan::On;
        use crate::{DeviceCsr, EmulatorSchedule, Precision, Stream};

        let lengths = (0..400_u64).map(|row| if row == 77 { 90 } else { row * row % 5 });
        let (mut offsets, mut columns) = (vec![0], Vec::new());
        for (row, length) in lengths.enumerate() {
            columns.extend((0..length).map(|i| u32::try_from((row as u64 * 31 % 1000) + 2 * i).unwrap()));
            offsets.push(wide(columns.len()));
        }
        let values = vec![1.0f32; columns.len()];
        let a = Csr::try_from_parts(400, 1200, offsets, columns, values).unwrap();
        let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
        devices.extend(Device::cuda(0));
        for device in devices {
            let matrix = DeviceCsr::from_host(&device, &a).unwrap();
            let stream = Stream::new(&device).unwrap();
            let wanted = Wanted {
                precision: Precision::F32,
                pattern: false,
                unpadded: false,
                columns: true,
                exceptions: false,
            };
            let received = matrix.receive(&On::of(&stream, &device, false).unwrap(), wanted).unwrap();
            for step in [1, 7, 399] {
                let order = (0..400).map(|i| i * step % 400).collect();
                let order = Permutation::try_from_new_to_old(order).unwrap();
                for rows in [0, 1, 30, 400, 5000] {
                    let want = columns_in_use(a.pattern(), Some(&order), rows).unwrap();
                    let got = received.columns_in_use(Some(&order), rows).unwrap();
                    assert_eq!(got, want, "{rows} rows, every {step} on {device}");
                }
            }
        }
    }
}

//! The gather roofline: how fast a device copies, how fast it gathers rows of a table, and what that means for a
//! product.
//!
//! A product cannot be done in less than
//!
//! ```text
//! max( (bytes(A) + bytes(B) + bytes(C)) / copy rate,  gathered bytes / gather rate )
//! ```
//!
//! where the gather rate depends on the table that rows are gathered from (`B`, k rows) and on the bytes of a row.
//! [`DeviceRates::probe`] measures both on the device at hand.

mod probe;
mod table;

pub(crate) use probe::{GatherProbe, measure_copy};
pub use table::GatherRates;

use windrow::{Device, Rates, SddmmReport, SpmmReport};

use crate::measure::error::BenchError;
use crate::measure::timing::Sampling;

/// What memory of a device can do: the two rates of the roofline.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeviceRates {
    /// Bytes per second of a large copy on the device, bytes read and bytes written together.
    pub copy: f64,
    /// Bytes per second of gathers.
    pub gather: GatherRates,
}

impl DeviceRates {
    /// Measures `device`: a copy of the probe's largest table, and gathers of every size of the probe. Every result
    /// is compared with the host's.
    ///
    /// # Cost
    /// Some seconds; twice the largest table in device memory, once on the host.
    ///
    /// # Errors
    /// - [`BenchError::Device`] on the CPU, which runs no kernels, and if the device fails;
    /// - [`BenchError::Checksum`], [`BenchError::Copy`] if a result is wrong.
    pub(crate) fn probe(device: &Device, probe: &GatherProbe) -> Result<Self, BenchError> {
        let copy = measure_copy(device, probe.largest_bytes(), Sampling::default())?;
        Ok(Self { copy, gather: probe.run(device)? })
    }

    /// The rates for a product whose `B` has `k` rows of `row_bytes` bytes.
    ///
    /// A kernel may pass over the width in slices, each of which gathers shorter rows from a smaller table; the rate
    /// is that of the best slicing, with slices of a power of two of bytes that the table covers, or none.
    ///
    /// # Examples
    /// ```
    /// use windrow_bench::measure::{DeviceRates, GatherRates};
    ///
    /// // Rows of 64 and 512 bytes from 1 MB and from 100 MB.
    /// let gather = GatherRates::try_new(vec![1e6, 1e8], vec![64.0, 512.0], vec![4e12, 9e12, 1e12, 3e12])?;
    /// let rates = DeviceRates { copy: 4e12, gather };
    /// // 200 000 rows of 512 bytes are 102 MB. Slices of 64 bytes, from 12.8 MB, are slower than 3 TB/s.
    /// assert_eq!(rates.for_product(200_000, 512.0).gather, 3e12);
    /// # Ok::<(), windrow_bench::measure::BenchError>(())
    /// ```
    #[must_use]
    pub fn for_product(&self, k: usize, row_bytes: f64) -> Rates {
        let of_slice = |bytes: f64| self.gather.rate(k as f64 * bytes, bytes);
        let slices = self.gather.row_bytes().iter().copied().filter(|&bytes| bytes < row_bytes);
        let gather = slices.map(of_slice).fold(of_slice(row_bytes), f64::max);
        Rates { copy: self.copy, gather }
    }

    /// Lower bound for the time of a product of width `n` by the plan of `report`, in microseconds; `None` if there
    /// is nothing to do.
    #[must_use]
    pub(crate) fn roofline_us(&self, report: &SpmmReport, n: usize) -> Option<f64> {
        let row_bytes = n as f64 * f64::from(report.precision.bytes());
        let us = report.roofline_us(n, self.for_product(report.cols, row_bytes));
        (us.is_finite() && us > 0.0).then_some(us)
    }

    /// Lower bound for the time of a sampled product of inner dimension `inner`, in microseconds; see
    /// [`SddmmReport::roofline_us`].
    #[must_use]
    pub(crate) fn sampled_roofline_us(&self, report: &SddmmReport, inner: usize) -> f64 {
        let row_bytes = inner as f64 * f64::from(report.precision.bytes());
        report.roofline_us(inner, self.for_product(report.cols, row_bytes))
    }

    /// Time of moving every byte once at the rate of a copy, in microseconds: the plan's arrays, `B` and `C`.
    #[must_use]
    pub(crate) fn once_us(&self, report: &SpmmReport, n: usize) -> f64 {
        report.roofline_us(n, Rates { copy: self.copy, gather: f64::INFINITY })
    }
}

#[cfg(test)]
mod tests {
    use windrow::{Csr, Precision, Spmm};

    use super::*;

    fn rates() -> DeviceRates {
        // In a cache of some megabytes gathers are quick, beyond it slow; rows under 128 bytes lose half of that.
        let gather = GatherRates::try_new(
            vec![1e6, 16e6],
            vec![64.0, 128.0, 256.0],
            vec![8e12, 9e12, 9e12, 1e12, 2e12, 2e12],
        );
        DeviceRates { copy: 4e12, gather: gather.unwrap() }
    }

    #[test]
    fn slices_that_fit_the_cache_raise_the_bound() {
        let rates = rates();
        // 62 500 rows of 256 bytes: 16 MB at 2 TB/s; in halves of 8 MB between 9 and 2; in quarters of 4 MB
        // between 8 and 1, in the middle of the logarithms: 4.5.
        let (whole, half, quarter) = (2e12, 9e12 - 7e12 * 3.0 / 4.0, 4.5e12);
        assert!(quarter > half && half > whole);
        let gather = rates.for_product(62_500, 256.0).gather;
        assert!((gather / quarter - 1.0).abs() < 1e-9, "{gather:e}");
        // Rows of 64 bytes cannot be sliced.
        let narrow = rates.for_product(62_500, 64.0).gather;
        assert!((narrow / quarter - 1.0).abs() < 1e-9, "{narrow:e}");
    }

    #[test]
    fn the_larger_of_copy_and_gather_bounds_a_product() {
        // 64 entries a row, so gathers dominate; then an empty matrix, where only C is written.
        let dense = Csr::from_dense(64, 64, &[1.0f32; 64 * 64]).unwrap();
        let plan = Spmm::builder(&dense).width(16).precision(Precision::F32).build(&Device::cpu()).unwrap();
        let us = rates().roofline_us(plan.report(), 16).unwrap();
        let gathered = 64.0 * 64.0 * 64.0 / 8e12 * 1e6;
        assert!((us / gathered - 1.0).abs() < 1e-9, "{us} for {gathered}");
        let empty = Spmm::builder(&Csr::<f32>::zeros(1000, 0).unwrap()).build(&Device::cpu()).unwrap();
        let us = rates().roofline_us(empty.report(), 16).unwrap();
        let copied = (empty.report().device_bytes as f64 + 1000.0 * 16.0 * 4.0) / 4e12 * 1e6;
        assert!((us / copied - 1.0).abs() < 1e-9, "{us} for {copied}");
        assert!((rates().once_us(empty.report(), 16) / copied - 1.0).abs() < 1e-9);
        assert!(rates().once_us(plan.report(), 16) < gathered);
    }
}

//! Gather rates over the size of the table and the bytes of a row, with interpolation.

use std::fmt;

use crate::measure::error::BenchError;

/// Rates in bytes per second at which rows are gathered, over the bytes of the table and the bytes of a row.
///
/// Invariants: both axes ascend strictly and are positive, and there is one positive, finite rate for each pair, the
/// rates of a table size side by side.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct GatherRates {
    working_set_bytes: Vec<f64>,
    row_bytes: Vec<f64>,
    rates: Vec<f64>,
}

/// As it comes from a file.
#[derive(serde::Deserialize)]
struct Unchecked {
    working_set_bytes: Vec<f64>,
    row_bytes: Vec<f64>,
    rates: Vec<f64>,
}

impl TryFrom<Unchecked> for GatherRates {
    type Error = BenchError;

    fn try_from(parts: Unchecked) -> Result<Self, BenchError> {
        Self::try_new(parts.working_set_bytes, parts.row_bytes, parts.rates)
    }
}

impl GatherRates {
    /// The table with `rates[w·|row_bytes| + r]` for a working set of `working_set_bytes[w]` and rows of
    /// `row_bytes[r]`.
    ///
    /// # Errors
    /// [`BenchError::Rates`] if an invariant is broken.
    pub fn try_new(
        working_set_bytes: Vec<f64>,
        row_bytes: Vec<f64>,
        rates: Vec<f64>,
    ) -> Result<Self, BenchError> {
        let broken = |what, problem| Err(BenchError::Rates { what, problem });
        for (what, axis) in [("working_set_bytes", &working_set_bytes), ("row_bytes", &row_bytes)] {
            let positive = axis.first().is_some_and(|&first| first > 0.0);
            if !positive || axis.iter().any(|bytes| !bytes.is_finite()) {
                return broken(what, "must have positive, finite sizes".to_owned());
            }
            if let Some(i) = axis.windows(2).position(|pair| pair[0] >= pair[1]) {
                return broken(what, format!("must ascend, but after {} comes {}", axis[i], axis[i + 1]));
            }
        }
        let expected = working_set_bytes.len() * row_bytes.len();
        if rates.len() != expected {
            return broken("rates", format!("must have {expected} numbers, has {}", rates.len()));
        }
        if let Some(rate) = rates.iter().find(|rate| !(rate.is_finite() && **rate > 0.0)) {
            return broken("rates", format!("must be positive and finite, not {rate}"));
        }
        Ok(Self { working_set_bytes, row_bytes, rates })
    }

    /// Bytes of the tables that were measured, ascending.
    #[must_use]
    pub fn working_set_bytes(&self) -> &[f64] {
        &self.working_set_bytes
    }

    /// Bytes of the rows that were measured, ascending.
    #[must_use]
    pub fn row_bytes(&self) -> &[f64] {
        &self.row_bytes
    }

    /// The rate for rows of `row_bytes` bytes from a table of `working_set_bytes`, in bytes per second: linear between
    /// the measured ones in the logarithm of both sizes, and beyond the ends of an axis that of its end.
    ///
    /// # Examples
    /// ```
    /// use windrow_bench::measure::GatherRates;
    ///
    /// let rates = GatherRates::try_new(vec![1e6, 1e8], vec![64.0, 256.0], vec![8.0, 9.0, 2.0, 5.0])?;
    /// assert_eq!(rates.rate(1e6, 64.0), 8.0);
    /// assert_eq!(rates.rate(1e7, 64.0), 5.0); // half way from 8 to 2
    /// assert_eq!(rates.rate(1e9, 4096.0), 5.0); // beyond both ends
    /// # Ok::<(), windrow_bench::measure::BenchError>(())
    /// ```
    #[must_use]
    pub fn rate(&self, working_set_bytes: f64, row_bytes: f64) -> f64 {
        let (w, along) = place(&self.working_set_bytes, working_set_bytes);
        let (r, across) = place(&self.row_bytes, row_bytes);
        let next = |i: usize, axis: &[f64]| (i + 1).min(axis.len() - 1);
        let at = |w: usize, r: usize| self.rates[w * self.row_bytes.len() + r];
        let (w1, r1) = (next(w, &self.working_set_bytes), next(r, &self.row_bytes));
        let in_row = |w| at(w, r) + (at(w, r1) - at(w, r)) * across;
        in_row(w) + (in_row(w1) - in_row(w)) * along
    }
}

/// The interval of `axis` that `bytes` lies in, and how far along it, in the logarithm, from 0 to 1.
fn place(axis: &[f64], bytes: f64) -> (usize, f64) {
    let after = axis.partition_point(|&size| size <= bytes);
    if after == 0 {
        return (0, 0.0);
    }
    if after == axis.len() {
        return (after - 1, 0.0);
    }
    let (low, high) = (axis[after - 1], axis[after]);
    (after - 1, (bytes / low).ln() / (high / low).ln())
}

/// In TB/s, a line for each table size.
impl fmt::Display for GatherRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12}", "working set")?;
        for bytes in &self.row_bytes {
            write!(f, "{:>10}", format!("{bytes} B"))?;
        }
        for (bytes, rates) in self.working_set_bytes.iter().zip(self.rates.chunks_exact(self.row_bytes.len()))
        {
            write!(f, "\n{:>12}", format!("{:.1} MiB", bytes / f64::from(1 << 20)))?;
            for rate in rates {
                write!(f, "{:>10.2}", rate / 1e12)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> GatherRates {
        GatherRates::try_new(vec![1e6, 1e7, 1e9], vec![64.0, 256.0], vec![8.0, 10.0, 6.0, 9.0, 2.0, 4.0])
            .unwrap()
    }

    #[test]
    fn measured_points_come_back() {
        let table = table();
        for (w, working_set) in [1e6, 1e7, 1e9].into_iter().enumerate() {
            for (r, row) in [64.0, 256.0].into_iter().enumerate() {
                assert_eq!(table.rate(working_set, row), table.rates[2 * w + r]);
            }
        }
    }

    #[test]
    fn between_points_the_logarithm_counts() {
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} for {want}");
        near(table().rate(1e8, 64.0), 4.0);
        near(table().rate(1e6, 128.0), 9.0);
        near(table().rate(1e8, 128.0), f64::midpoint(4.0, 6.5));
        near(table().rate(10f64.powf(6.25), 64.0), 7.5);
    }

    #[test]
    fn beyond_the_ends_the_end_counts() {
        assert_eq!(table().rate(0.0, 64.0), 8.0);
        assert_eq!(table().rate(1e6, 4.0), 8.0);
        assert_eq!(table().rate(1e12, 1e6), 4.0);
        assert_eq!(table().rate(1e12, 64.0), 2.0);
    }

    #[test]
    fn a_broken_table_is_refused() {
        let new = GatherRates::try_new;
        let message = |result: Result<GatherRates, BenchError>| result.unwrap_err().to_string();
        assert!(message(new(vec![], vec![64.0], vec![])).contains("working_set_bytes"));
        assert!(message(new(vec![2.0, 1.0], vec![64.0], vec![1.0; 2])).contains("after 2 comes 1"));
        assert!(message(new(vec![1.0], vec![64.0, 64.0], vec![1.0; 2])).contains("row_bytes"));
        assert!(message(new(vec![0.0], vec![64.0], vec![1.0])).contains("positive"));
        assert!(message(new(vec![1.0], vec![64.0], vec![])).contains("1 numbers, has 0"));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(message(new(vec![1.0], vec![64.0], vec![rate])).contains("rates"), "{rate}");
        }
    }

    #[test]
    fn json_round_trips_and_is_checked() {
        let text = serde_json::to_string(&table()).unwrap();
        assert_eq!(serde_json::from_str::<GatherRates>(&text).unwrap(), table());
        let error = serde_json::from_str::<GatherRates>(&text.replace("8.0,", "")).unwrap_err();
        assert!(error.to_string().contains("must have 6 numbers, has 5"), "{error}");
    }

    #[test]
    fn it_prints_a_line_for_each_size() {
        let text = table().to_string();
        assert_eq!(text.lines().count(), 4);
        assert!(text.starts_with(" working set      64 B     256 B\n     1.0 MiB"), "{text}");
    }
}

//! What series of numbers say: medians, noise, geometric means.

/// Scales a median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// What a series of samples says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// The least of the samples, in their unit.
    pub min: f64,
    /// The greatest of the samples, in their unit.
    pub max: f64,
    /// Relative spread: 1.4826 times the median distance from the median, divided by the median. For normal
    /// samples that is their relative standard deviation; a few outliers do not move it.
    pub noise: f64,
}

impl Statistics {
    /// The statistics of `samples`; `None` if there are none.
    ///
    /// # Examples
    /// ```
    /// let statistics = windrow_bench::measure::Statistics::of(&[3.0, 1.0, 2.0, 100.0, 2.0]).unwrap();
    /// assert_eq!((statistics.median, statistics.min, statistics.max), (2.0, 1.0, 100.0));
    /// assert_eq!(statistics.noise, 1.4826 * 1.0 / 2.0); // distances 1, 1, 0, 98, 0
    /// ```
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let ordered = sorted(samples.to_vec());
        let (&min, &max) = (ordered.first()?, ordered.last()?);
        let median = middle(&ordered);
        let distances = ordered.iter().map(|sample| (sample - median).abs()).collect();
        let spread = MAD_TO_SIGMA * middle(&sorted(distances));
        let noise = if median > 0.0 { spread / median } else { 0.0 };
        Some(Self { median, min, max, noise })
    }
}

fn sorted(mut samples: Vec<f64>) -> Vec<f64> {
    samples.sort_by(f64::total_cmp);
    samples
}

/// The median of sorted samples, of which there is one at least.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

/// `exp(mean(ln x))`; `None` without numbers.
pub(crate) fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    let sum: f64 = numbers.iter().map(|x| x.ln()).sum();
    (!numbers.is_empty()).then(|| (sum / numbers.len() as f64).exp())
}

/// A number with so many decimals, or a dash.
pub(crate) fn number(x: Option<f64>, decimals: usize) -> String {
    x.map_or_else(|| "–".to_owned(), |x| format!("{x:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_samples() {
        let median = |samples: &[f64]| Statistics::of(samples).map(|statistics| statistics.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
    }

    #[test]
    fn noise_is_relative_and_ignores_an_outlier() {
        let quiet = Statistics::of(&[10.0; 9]).unwrap();
        assert_eq!(quiet.noise, 0.0);
        let samples = [9.0, 10.0, 11.0, 10.0, 9.0, 11.0, 10.0, 10.0, 500.0];
        let spiked = Statistics::of(&samples).unwrap();
        assert_eq!((spiked.median, spiked.max), (10.0, 500.0));
        assert!((spiked.noise - 0.148_26).abs() < 1e-12, "{}", spiked.noise);
        let scaled = Statistics::of(&samples.map(|x| 1000.0 * x)).unwrap();
        assert!((scaled.noise - spiked.noise).abs() < 1e-12);
        assert_eq!(Statistics::of(&[0.0, 0.0]).unwrap().noise, 0.0);
    }

    #[test]
    fn means_are_geometric() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[1.0, 4.0, 2.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(number(Some(1.256), 2), "1.26");
    }
}

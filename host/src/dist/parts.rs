//! What a product of several ranks takes, and its parts by themselves.

use std::time::Instant;

use windrow_formats::Value;

use super::communicator::Communicator;
use super::spmm::{Body, DistSpmmPlan};
use crate::element::Element;
use crate::error::DistError;
use crate::matrix::DeviceMatrix;

/// Products that are timed together.
const IN_A_ROW: u32 = 20;

/// What a rank's part of a product takes, in ms: medians of products one after another, between which nobody waits.
/// Made by [`DistSpmmPlan::time_parts`].
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct PartTimes {
    /// The product, as [`run_into`](DistSpmmPlan::run_into) makes it.
    pub whole_ms: f64,
    /// Multiplying by the rows of `B` that the rank owns; by columns all of the product.
    pub inner_ms: f64,
    /// Exchanging rows: packing, sending, receiving.
    pub exchange_ms: f64,
    /// Multiplying by the rows of others.
    pub outer_ms: f64,
}

impl PartTimes {
    /// Of each part what it takes the rank that takes longest: what a product of all ranks takes.
    #[must_use]
    pub fn slowest(ranks: &[Self]) -> Self {
        let most = |of: fn(&Self) -> f64| ranks.iter().map(of).fold(0.0, f64::max);
        Self {
            whole_ms: most(|rank| rank.whole_ms),
            inner_ms: most(|rank| rank.inner_ms),
            exchange_ms: most(|rank| rank.exchange_ms),
            outer_ms: most(|rank| rank.outer_ms),
        }
    }

    /// The share of the exchange that takes no time of its own, because rows are multiplied meanwhile: 0 to 1. Of one
    /// rank it counts waiting for slower ones, too; [`slowest`](Self::slowest) does not.
    #[must_use]
    pub fn hidden(&self) -> f64 {
        let seen = self.whole_ms - self.inner_ms - self.outer_ms;
        if self.exchange_ms > 0.0 { (1.0 - seen / self.exchange_ms).clamp(0.0, 1.0) } else { 1.0 }
    }
}

impl DistSpmmPlan<'_> {
    /// Times `C ← A·B` and its parts, each so many times over, in which all ranks take part. `C` is overwritten.
    ///
    /// # Errors
    /// As for [`run_into`](Self::run_into); [`DistError::Disagreement`] if ranks give other numbers of times.
    pub fn time_parts<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        b: &DeviceMatrix<B>,
        c: &mut DeviceMatrix<C>,
        repeat: usize,
    ) -> Result<PartTimes, DistError> {
        self.communicator.told(self.timed_parts(b, c, repeat))
    }

    fn timed_parts<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        b: &DeviceMatrix<B>,
        c: &mut DeviceMatrix<C>,
        repeat: usize,
    ) -> Result<PartTimes, DistError> {
        self.communicator.agree("how often products are timed", &repeat)?;
        let [zero, one] = [0.0, 1.0].map(B::Sum::from_f32);
        let time = |work: &mut dyn FnMut() -> Result<(), DistError>| {
            median_ms(self.communicator, repeat, || {
                (0..IN_A_ROW).try_for_each(|_| work())?;
                Ok(self.device.synchronize()?)
            })
        };
        let whole_ms = time(&mut || self.run_into(one, b, zero, c))?;
        let rows = match &self.body {
            Body::Columns(_) => {
                return Ok(PartTimes { whole_ms, inner_ms: whole_ms, exchange_ms: 0.0, outer_ms: 0.0 });
            }
            Body::Rows(rows) => rows,
        };
        let inner_ms = time(&mut || Ok(rows.inner.run_into(one, b, zero, c)?))?;
        let exchange_ms = time(&mut || {
            let mut room = rows.exchange.room::<B>(b.cols())?;
            rows.exchange.run(self.communicator, b, &mut room, || Ok(()))?;
            rows.exchange.finish(self.communicator, room)
        })?;
        let room = rows.exchange.room::<B>(b.cols())?;
        let outer_ms = match &rows.outer {
            Some(outer) => time(&mut || Ok(outer.run_into(one, room.rows(), one, c)?))?,
            None => time(&mut || Ok(()))?, // with the others, who may have one
        };
        rows.exchange.finish(self.communicator, room)?; // its memory is for the next run
        Ok(PartTimes { whole_ms, inner_ms, exchange_ms, outer_ms })
    }
}

/// Median time of one of the things that `work` does so many of, in ms; all ranks begin together.
fn median_ms(
    communicator: &Communicator,
    repeat: usize,
    mut work: impl FnMut() -> Result<(), DistError>,
) -> Result<f64, DistError> {
    work()?; // the first makes what others need
    let mut times = Vec::new();
    for _ in 0..repeat.max(1) {
        communicator.barrier()?;
        let begun = Instant::now();
        work()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3 / f64::from(IN_A_ROW));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_what_the_whole_does_not_take() {
        let times = |whole_ms, inner_ms| PartTimes { whole_ms, inner_ms, exchange_ms: 4.0, outer_ms: 1.0 };
        for (whole, hidden) in [(10.0, 1.0), (12.0, 0.5), (14.0, 0.0), (15.0, 0.0), (9.0, 1.0)] {
            assert!((times(whole, 9.0).hidden() - hidden).abs() < 1e-12, "{whole}");
        }
        // The second waits for the first.
        let slowest = PartTimes::slowest(&[times(11.0, 9.0), times(11.5, 5.0)]);
        assert_eq!(slowest, times(11.5, 9.0));
        assert!((slowest.hidden() - 0.625).abs() < 1e-12);
        assert_eq!(PartTimes { exchange_ms: 0.0, ..slowest }.hidden(), 1.0);
    }
}

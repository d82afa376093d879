//! One product: planned, run on shared operands, timed, verified.

use windrow::partition::PartitionRule;
use windrow::{
    Csr, DenseRef, Device, DeviceMatrix, Element, Permutation, SpmmReport, Value, Verification, bf16, f16,
    with_element,
};

use crate::measure::error::BenchError;
use crate::measure::operands::{Filling, case_seed, fill, poisoned_matrix, random_matrix};
use crate::measure::path::SweepPath;
use crate::measure::timing::{Sampling, Timing, measure};

/// `B` in each type and `C` in each type of sums, made when they are first asked for: shared by all products of one
/// matrix and width. Making and copying them takes longer than the products.
pub(crate) struct Operands {
    device: Device,
    /// Rows of `B` and of `C`.
    rows: [usize; 2],
    width: usize,
    seed: u64,
    bs: ByType,
    cs: ByType,
}

/// A matrix for each type of elements.
#[derive(Default)]
pub(crate) struct ByType {
    double: Option<DeviceMatrix<f64>>,
    single: Option<DeviceMatrix<f32>>,
    half: Option<DeviceMatrix<f16>>,
    brain: Option<DeviceMatrix<bf16>>,
}

/// A type of elements that has a place among matrices of each type.
pub(crate) trait Placed: Element {
    fn place(of: &mut ByType) -> &mut Option<DeviceMatrix<Self>>;
}

/// A type that `B` is kept in, and the type of its sums that `C` is.
pub(crate) trait Stored: Placed + Element<Sum: Placed> {}
impl<T: Placed + Element<Sum: Placed>> Stored for T {}

impl Placed for f64 {
    fn place(of: &mut ByType) -> &mut Option<DeviceMatrix<Self>> {
        &mut of.double
    }
}

impl Placed for f32 {
    fn place(of: &mut ByType) -> &mut Option<DeviceMatrix<Self>> {
        &mut of.single
    }
}

impl Placed for f16 {
    fn place(of: &mut ByType) -> &mut Option<DeviceMatrix<Self>> {
        &mut of.half
    }
}

impl Placed for bf16 {
    fn place(of: &mut ByType) -> &mut Option<DeviceMatrix<Self>> {
        &mut of.brain
    }
}

impl Operands {
    /// For products of width `width` with `csr`; `B` has numbers that no other matrix, width or type has.
    pub(crate) fn new<V>(device: &Device, csr: &Csr<V>, width: usize, seeds: (u64, u64)) -> Self {
        let (seed, checksum) = seeds;
        let seed = case_seed(seed, checksum, width, "B");
        let (rows, bs, cs) = ([csr.cols(), csr.rows()], ByType::default(), ByType::default());
        Self { device: device.clone(), rows, width, seed, bs, cs }
    }

    /// `B`, and a `C` that is full of `unwritten`.
    pub(crate) fn get<T: Stored>(
        &mut self,
        unwritten: Filling,
    ) -> Result<(&DeviceMatrix<T>, &mut DeviceMatrix<T::Sum>), BenchError> {
        let (b, c) = self.pair::<T>()?;
        fill(c, unwritten)?;
        Ok((b, c))
    }

    /// `B`, and `C` as it is; at first full of NaN.
    pub(crate) fn pair<T: Stored>(
        &mut self,
    ) -> Result<(&DeviceMatrix<T>, &mut DeviceMatrix<T::Sum>), BenchError> {
        let [rows_of_b, rows_of_c] = self.rows;
        let b = match T::place(&mut self.bs) {
            Some(b) => b,
            none => {
                let seed = case_seed(self.seed, 0, 0, &T::PRECISION.to_string());
                none.insert(random_matrix(&self.device, rows_of_b, self.width, seed)?)
            }
        };
        let c = match <T::Sum as Placed>::place(&mut self.cs) {
            Some(c) => c,
            none => none.insert(poisoned_matrix(&self.device, rows_of_c, self.width)?),
        };
        Ok((b, c))
    }
}

/// A product to measure.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) device: &'a Device,
    pub(crate) csr: &'a Csr<f32>,
    pub(crate) width: usize,
    pub(crate) path: SweepPath,
    pub(crate) order: Option<&'a Permutation>,
    pub(crate) partition: Option<PartitionRule>,
}

impl Product<'_> {
    /// The plan of the product.
    pub(crate) fn plan(&self) -> Result<windrow::SpmmPlan, BenchError> {
        let builder = self.path.builder(self.csr, self.width, self.order);
        let builder = match self.partition {
            Some(rule) => builder.partition(rule),
            None => builder,
        };
        Ok(builder.build(self.device)?)
    }

    /// Plans, times, and compares what the last call left in `C`, which was full of NaN. The plan's report is told
    /// whatever comes of it.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] of a result that is not within its bound.
    pub(crate) fn measure(
        &self,
        operands: &mut Operands,
        sampling: Sampling,
        report: &mut Option<SpmmReport>,
    ) -> Result<(Verification, Timing), BenchError> {
        with_element!(self.path.options.precision, T => self.measure_as::<T>(operands, sampling, report))
    }

    fn measure_as<T: Stored>(
        &self,
        operands: &mut Operands,
        sampling: Sampling,
        report: &mut Option<SpmmReport>,
    ) -> Result<(Verification, Timing), BenchError> {
        let plan = self.plan()?;
        *report = Some(plan.report().clone());
        let (b, c) = operands.get::<T>(Filling::Nan)?;
        let (alpha, beta) = (T::Sum::ONE, T::Sum::ZERO);
        let timing = if self.path.column_major {
            let columns = transposed(b)?;
            measure(self.device, sampling, || {
                plan.run_column_major_into(alpha, &columns, beta, c).map_err(BenchError::from)
            })?
        } else {
            measure(self.device, sampling, || plan.run_into(alpha, b, beta, c).map_err(BenchError::from))?
        };
        let verification = plan.verify(self.csr, b, c)?;
        match verification.passed() {
            true => Ok((verification, timing)),
            false => Err(BenchError::Wrong(verification)),
        }
    }
}

/// The same elements, column after column.
fn transposed<T: Stored>(b: &DeviceMatrix<T>) -> Result<DeviceMatrix<T>, BenchError> {
    let (rows, cols, elements) = (b.rows(), b.cols(), b.download()?);
    let columns: Vec<T> = (0..cols).flat_map(|j| elements[j..].iter().step_by(cols).copied()).collect();
    Ok(DeviceMatrix::upload(b.device(), DenseRef::packed(&columns, cols, rows)?)?)
}

#[cfg(test)]
mod tests {
    use windrow::Precision;

    use super::*;

    #[test]
    fn operands_are_made_once_and_c_is_overwritten() {
        let (device, csr) = (Device::cpu(), Csr::<f32>::identity(6).unwrap());
        let mut operands = Operands::new(&device, &csr, 3, (1, 2));
        let (b, c) = operands.get::<f16>(Filling::Huge).unwrap();
        let first = (b.buffer().address(), b.download().unwrap());
        assert_eq!(c.download().unwrap(), [1e30; 18]);
        let (b, c) = operands.get::<f16>(Filling::Nan).unwrap();
        assert_eq!((b.buffer().address(), b.download().unwrap()), first);
        assert!(c.download().unwrap().iter().all(|x| x.is_nan()));
        let (single, _) = operands.get::<f32>(Filling::Zero).unwrap();
        let single = single.download().unwrap();
        assert!(single.iter().zip(&first.1).all(|(a, b)| *a != b.to_f32()), "each type has its own numbers");
    }

    #[test]
    fn a_product_that_cannot_be_planned_has_no_time() {
        let (device, csr) = (Device::cpu(), Csr::<f32>::identity(6).unwrap());
        let mut operands = Operands::new(&device, &csr, 3, (1, 2));
        let path = SweepPath::new(windrow::Algorithm::TileStream, Precision::F32);
        let product = Product { device: &device, csr: &csr, width: 3, path, order: None, partition: None };
        let mut report = None;
        assert!(product.measure(&mut operands, Sampling::SMOKE, &mut report).is_err() && report.is_none());
        let product = Product { path: SweepPath::DEFAULT[0], ..product };
        let (found, timing) = product.measure(&mut operands, Sampling::SMOKE, &mut report).unwrap();
        assert!(found.passed() && found.checked == 18 && timing.calls > 0 && report.is_some());
    }
}

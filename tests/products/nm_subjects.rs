//! Plans of products with N:M weights, and of their gradients, for what is promised of all plans.

use half::f16;
use windrow::{
    DenseRef, Device, DeviceMatrix, DeviceVectorNm, NmGradientPlan, NmGradients, NmPattern, NmSpmm,
    NmSpmmPlan, Precision, Stream, prune_magnitude,
};

use crate::nm_case::runs_on;
use crate::subjects::{Outcome, Subject, bits, reals, upload};

pub(crate) struct NmSubject {
    device: Device,
    plan: NmSpmmPlan,
}

impl NmSubject {
    pub(crate) fn make(
        device: &Device,
        precision: Precision,
        kernel: Option<&'static str>,
    ) -> Outcome<Box<dyn Subject>> {
        let pattern = NmPattern::new(2, 4, 32)?;
        let weights = prune_magnitude(&reals(64 * 64, 11), 64, 64, pattern)?;
        let builder = NmSpmm::builder(&weights).rows(20).precision(precision);
        let plan = match kernel.filter(|kernel| runs_on(device, kernel)) {
            Some(kernel) => builder.kernel(kernel).build(device)?,
            None => builder.build(device)?,
        };
        Ok(Box::new(Self { device: device.clone(), plan }))
    }
}

impl Subject for NmSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        self.device.synchronize()?;
        Ok(bits(&self.plan.run(&reals(20 * 64, 12))?))
    }
}

/// Both gradients of a product, and new values.
pub(crate) struct NmGradientSubject {
    plan: NmGradientPlan,
    stream: Stream,
    values: Vec<f32>,
}

impl NmGradientSubject {
    pub(crate) fn make(device: &Device, stream: Stream) -> Outcome<Box<dyn Subject>> {
        let weights = prune_magnitude(&reals(64 * 40, 13), 64, 40, NmPattern::new(2, 4, 1)?)?;
        let on_device = DeviceVectorNm::from_host(device, &weights)?;
        let builder = NmGradients::builder(&on_device).rows(20).precision(Precision::F16);
        let plan = builder.build_on(&stream)?;
        Ok(Box::new(Self { plan, stream, values: weights.values().to_vec() }))
    }
}

impl Subject for NmGradientSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let (device, stream) = (self.stream.device(), &self.stream);
        let of = |seed, cols| -> Outcome<DeviceMatrix<f16>> {
            let elements: Vec<f16> = reals(20 * cols, seed).into_iter().map(f16::from_f32).collect();
            Ok(DeviceMatrix::upload(device, DenseRef::packed(&elements, 20, cols)?)?)
        };
        let (a, of_c) = (of(14, 64)?, of(15, 40)?);
        let values = upload::<f32>(device, &self.values, 32, 40)?;
        let mut of_a = DeviceMatrix::<f32>::zeros(device, 20, 64)?;
        let mut of_values = DeviceMatrix::<f32>::zeros(device, 32, 40)?;
        self.plan.replace_rows_on(stream, &values)?;
        self.plan.of_activations_on(stream, &of_c, &mut of_a)?;
        self.plan.of_values_on(stream, &a, &of_c, &mut of_values)?;
        Ok(bits(&[of_a.download()?, of_values.download()?].concat()))
    }
}

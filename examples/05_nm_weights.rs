//! A linear layer with 2:8 weights: pruned, multiplied with bias and activation, and checked.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example 05_nm_weights
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::synthetic::seeded_values;
use windrow::{Activation, DenseRef, Device, DeviceBuffer, DeviceMatrix, Epilogue};
use windrow::{NmPattern, NmSpmm, prune_magnitude};

const BATCH: usize = 16;
const INPUT: usize = 256;
const OUTPUT: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    // Of every 8 rows of the weights 2 are kept, chosen anew for every 32 columns.
    let dense = seeded_values::<f32>(INPUT * OUTPUT, 1)?;
    let weights = prune_magnitude(&dense, INPUT, OUTPUT, NmPattern::new(2, 8, 32)?)?;
    println!("kept {} of {} weights", weights.values().len(), dense.len());

    let plan = NmSpmm::builder(&weights).rows(BATCH).build(&device)?;
    let a = seeded_values::<f32>(BATCH * INPUT, 2)?;
    let a = DeviceMatrix::upload(&device, DenseRef::packed(&a, BATCH, INPUT)?)?;
    let bias = DeviceBuffer::from_slice(&device, &vec![0.5f32; OUTPUT])?;
    let mut c = DeviceMatrix::<f32>::zeros(&device, BATCH, OUTPUT)?;
    let layer = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
    plan.run_into(&layer, &a, &mut c)?; // max(A·W + bias, 0)
    println!("the first outputs are {:.3?}", &c.download()?[..4]);

    let found = plan.verify(&weights, &layer, &a, &c)?;
    println!("{} elements checked, the worst has {:.3} of its error bound", found.checked, found.worst_ratio);
    assert!(found.passed());
    Ok(())
}

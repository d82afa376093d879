//! Attention over a graph: scores where there are edges, weights of them, and the sum that they weigh.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 04_sddmm_softmax
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, RowSoftmax, Sddmm, Spmm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    // Node 0 sees 0 and 1, node 1 sees 1 and 2, node 2 sees 0.
    let graph = Csr::from_dense(3, 3, &[1.0f32, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])?;
    let features = [1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0]; // 3 × 2
    let features = DeviceMatrix::upload(&device, DenseRef::packed(&features, 3, 2)?)?;

    let mut weights = DeviceBuffer::<f32>::alloc_zeroed(&device, graph.nnz())?;
    let scores = Sddmm::builder(&graph).inner(2).build(&device)?;
    scores.run_into(1.0, &features, &features, &mut weights)?; // xᵢ·xⱼ for each edge
    println!("scores:  {:?}", weights.to_vec()?);
    let scale = 1.0 / 2.0f32.sqrt();
    RowSoftmax::new(&graph, &device)?.forward_in_place(scale, &mut weights)?;
    println!("weights: {:.3?}", weights.to_vec()?);

    let mut sum = Spmm::builder(&graph).width(2).values_from_device().build(&device)?;
    sum.replace_values_from(&weights)?; // without a way through the host
    let mut out = DeviceMatrix::<f32>::zeros(&device, 3, 2)?;
    sum.run_into(1.0, &features, 0.0, &mut out)?;
    println!("output:  {:.3?}", out.download()?);
    assert_eq!(out.download()?[4..], [1.0, 0.0], "node 2 sees node 0 alone");
    Ok(())
}

//! Softmax over rows, and the dense operations of training.

use windrow::synthetic::seeded_values;
use windrow::training::{Adam, ColumnSums, CrossEntropy, Moments};
use windrow::{
    Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, EmulatorSchedule, PlanError, RowSoftmax, TrainingError,
};

use super::{alone, each_refusal};

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn softmax_over_rows() {
    let _alone = alone();
    // As many rows of 600 entries, for a block each, as of one.
    const ROWS: u64 = 2_100;
    let offsets = (0..=ROWS).map(|row| 600 * row).chain((1..=ROWS).map(|row| 600 * ROWS + row)).collect();
    let columns = (0..ROWS).flat_map(|_| 0..600).chain((0..ROWS).map(|_| 7)).collect();
    let rows = usize::try_from(ROWS).unwrap();
    let entries = 601 * rows;
    let pattern = Csr::try_from_parts(2 * rows, 600, offsets, columns, vec![1.0f32; entries]).unwrap();
    let device = Device::cpu();
    let scores = seeded_values::<f32>(entries, 1).unwrap();
    each_refusal("softmax on the CPU", 5, || {
        let softmax = RowSoftmax::new(&pattern, &device)?;
        let scores = DeviceBuffer::from_slice(&device, &scores)?;
        let mut out = DeviceBuffer::alloc_zeroed(&device, entries)?;
        softmax.forward(0.5, &scores, &mut out)?;
        let mut gradient = DeviceBuffer::alloc_zeroed(&device, entries)?;
        softmax.backward(0.5, &out, &scores, &mut gradient)?;
        softmax.forward_in_place(0.5, &mut out)?;
        Ok::<_, PlanError>(gradient.to_vec()?)
    });
    each_refusal("softmax, uploaded", 2, || {
        RowSoftmax::new(&pattern, &Device::emulator(EmulatorSchedule::InOrder))
    });
}

/// Promise, memory: what memory runs out for ends in an error that says so, or in a result without it, and never in the
/// end of the process.
#[test]
fn operations_of_training() {
    let _alone = alone();
    let (device, rows, cols) = (Device::cpu(), 300, 5_000);
    let values = seeded_values::<f32>(rows * cols, 1).unwrap();
    let upload = |rows| DeviceMatrix::upload(&device, DenseRef::packed(&values[..rows * cols], rows, cols)?);
    let (x, empty) = (upload(rows).unwrap(), upload(0).unwrap());
    each_refusal("sums of columns", 3, || {
        let mut sums = ColumnSums::new(&device, cols)?;
        let mut out = DeviceMatrix::zeros(&device, 1, cols)?;
        sums.sum(&x, &mut out)?;
        Ok::<_, TrainingError>(out.download()?)
    });
    each_refusal("sums of no rows", 3, || {
        let mut out = DeviceMatrix::zeros(&device, 1, cols)?;
        ColumnSums::new(&device, cols)?.sum(&empty, &mut out)
    });
    each_refusal("sums of products", 3, || {
        let mut out = DeviceMatrix::zeros(&device, 1, cols)?;
        ColumnSums::new(&device, cols)?.dot(&x, &x, (&mut out, 7))
    });
    let labels: Vec<u32> = (0..u32::try_from(cols).unwrap()).cycle().take(rows).collect();
    let many: Vec<u32> = (0..2).cycle().take(rows * cols).collect();
    for (labels, classes) in [(&labels, cols), (&many, 2)] {
        let weights = vec![1.0f32; labels.len()];
        let logits = seeded_values::<f32>(labels.len() * classes, 2).unwrap();
        let logits = DenseRef::packed(&logits, labels.len(), classes).unwrap();
        let logits = DeviceMatrix::upload(&device, logits).unwrap();
        each_refusal("cross-entropy", 1, || {
            let mut loss = CrossEntropy::new(&device, classes, labels, &weights)?;
            let mut gradient = DeviceMatrix::zeros(&device, labels.len(), classes)?;
            loss.run(&logits, &mut gradient)?;
            loss.outcome()
        });
    }
    each_refusal("a step of Adam", 3, || {
        let mut parameter = DeviceMatrix::zeros(&device, rows, cols)?;
        let mut moments = Moments::of(&parameter)?;
        Adam::default().step(&mut parameter, &x, &mut moments)
    });
}

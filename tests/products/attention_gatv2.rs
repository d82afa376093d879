//! Attention by scores of `GATv2` and its gradients, on every device, against f64 models.

use windrow::{
    AttentionBackward, AttentionError, AttentionGradients, AttentionOperands, DeviceBuffer, GraphAttention,
    PlanError,
};

use crate::attention_case::{
    Case, Scores, check_all, lengths, long_rows, no_entries, no_rows, on_device, shared,
};
use crate::attention_gradient;
use crate::common::{devices, report_missing_gpu};

/// With heads and columns in all widths, aligned and not, and rows that are cut.
fn cases() -> Vec<Case> {
    let reals = Scores::Reals;
    let of = |name: &str, a, shape, scores| Case::new(name, a, shape, scores);
    vec![
        of("no rows", &no_rows(), [2, 8, 8], reals).gatv2(0.2),
        of("no entries", &no_entries(), [2, 16, 8], reals).gatv2(0.2),
        of("lengths", &lengths(), [1, 32, 32], reals).gatv2(0.2),
        of("lengths", &lengths(), [3, 64, 16], Scores::Large).gatv2(0.2),
        of("lengths", &lengths(), [1, 16, 128], Scores::Negative).gatv2(0.01),
        of("lengths", &lengths(), [2, 256, 136], reals).gatv2(0.0),
        of("lengths", &lengths(), [2, 24, 24], reals).biased(2).gatv2(0.2),
        of("lengths", &lengths(), [2, 7, 5], Scores::Zero).gatv2(0.5),
        of("lengths", &lengths(), [2, 33, 33], reals).gatv2(-1.5),
        of("long rows", &long_rows(), [2, 16, 24], reals).biased(1).gatv2(0.2),
        of("long rows", &long_rows(), [1, 48, 8], Scores::Large).gatv2(0.2),
        of("long rows", &long_rows(), [2, 9, 3], reals).biased(2).gatv2(0.2),
        of("heads together", &lengths(), [8, 8, 8], reals).biased(8).gatv2(0.2),
        of("heads together", &long_rows(), [4, 16, 16], reals).gatv2(0.2),
        of("heads together", &long_rows(), [6, 8, 8], reals).biased(1).gatv2(0.2),
        of("shared columns", &shared(), [3, 8, 16], reals).gatv2(0.2).stacked(),
        of("shared columns", &shared(), [2, 15, 255], reals).gatv2(0.2).stacked(),
    ]
}

#[test]
fn every_width_and_alignment() {
    check_all("attention of GATv2", &cases());
}

#[test]
fn gradients_of_every_width_and_alignment() {
    attention_gradient::check_all("gradients of attention of GATv2", &cases());
}

#[test]
fn vectors_are_for_scores_that_need_them() {
    let a = shared();
    for device in devices() {
        let (m, n) = (19, 43);
        let zeros = |rows| on_device::<f32>(&device, &vec![0.0; rows * 16], (rows, 16));
        let (q, k, v, gradient) = (zeros(m), zeros(n), zeros(n), zeros(m));
        let (mut out, mut of_q, mut of_k, mut of_v) = (zeros(m), zeros(m), zeros(n), zeros(n));
        let states = DeviceBuffer::<f32>::alloc_zeroed(&device, 4 * m).unwrap();
        let vector = DeviceBuffer::<f32>::alloc_zeroed(&device, 16).unwrap();
        let short = DeviceBuffer::<f32>::alloc_zeroed(&device, 15).unwrap();
        let builder = GraphAttention::builder(&a).heads(2).columns(8).gradients(true);
        let (with, without) =
            (builder.clone().gatv2(0.2).build(&device).unwrap(), builder.build(&device).unwrap());
        let stream = device.stream();
        let operands = || AttentionOperands::new(&q, &k, &v);
        let error = with.forward_on(&stream, 1.0, operands(), &mut out).unwrap_err();
        assert_eq!(error, AttentionError::NoVector);
        assert_eq!(
            error.to_string(),
            "scores of GATv2 have a vector for each head; give the operands theirs"
        );
        let error = with.forward_on(&stream, 1.0, operands().vector(&short), &mut out).unwrap_err();
        assert!(matches!(error, AttentionError::Plan(PlanError::ValueCount { .. })), "{error}");
        let error = without.forward_on(&stream, 1.0, operands().vector(&vector), &mut out).unwrap_err();
        assert_eq!(error, AttentionError::NeedlessVector);
        let mut of_vector = DeviceBuffer::<f32>::alloc_zeroed(&device, 16).unwrap();
        let given = AttentionBackward::new(operands(), &states, &out, &gradient);
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v).vector(&mut of_vector);
        let error = without.backward_on(&stream, 1.0, given, found).unwrap_err();
        assert_eq!(error, AttentionError::NeedlessVector);
        // The gradient of the vector may be left out.
        with.forward_on(&stream, 1.0, operands().vector(&vector), &mut out).unwrap();
        let given = AttentionBackward::new(operands().vector(&vector), &states, &out, &gradient);
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
        with.backward_on(&stream, 1.0, given, found).unwrap();
        device.synchronize().unwrap();
    }
    report_missing_gpu("vectors of attention", 1);
}

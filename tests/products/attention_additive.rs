//! Attention by additive scores and its gradients, on every device, against f64 models.

use windrow::{
    AttentionAlgorithm, AttentionError, AttentionOperands, AttentionOptions, AttentionScores, Device,
    DeviceMatrix, GraphAttention, PlanError, Precision,
};

use crate::attention_case::{
    Case, Scores, check_all, lengths, long_rows, no_entries, no_rows, on_device, shared,
};
use crate::attention_gradient;
use crate::common::{devices, report_missing_gpu};

/// With heads and columns of `V` in all widths, aligned and not, and rows that are cut.
fn cases() -> Vec<Case> {
    let reals = Scores::Reals;
    let of = |name: &str, a, heads, columns, scores| Case::new(name, a, [heads, 1, columns], scores);
    vec![
        of("no rows", &no_rows(), 1, 8, reals).additive(0.2),
        of("no entries", &no_entries(), 2, 16, reals).additive(0.2),
        of("lengths", &lengths(), 1, 32, reals).additive(0.2),
        of("lengths", &lengths(), 3, 64, Scores::Large).additive(0.2),
        of("lengths", &lengths(), 1, 128, Scores::Negative).additive(0.01),
        of("lengths", &lengths(), 2, 256, reals).additive(0.0),
        of("lengths", &lengths(), 2, 24, reals).biased(2).additive(0.2),
        of("lengths", &lengths(), 2, 7, Scores::Zero).additive(0.5),
        of("lengths", &lengths(), 2, 33, reals).additive(-0.5),
        of("long rows", &long_rows(), 2, 16, reals).biased(1).additive(0.2),
        of("long rows", &long_rows(), 1, 48, Scores::Large).additive(0.2),
        of("long rows", &long_rows(), 2, 9, reals).biased(2).additive(0.2),
        of("heads together", &lengths(), 8, 8, reals).biased(8).additive(0.2),
        of("heads together", &long_rows(), 8, 8, reals).biased(1).additive(0.2),
        of("heads together", &long_rows(), 6, 16, reals).additive(0.2),
        of("shared columns", &shared(), 3, 8, reals).additive(0.2).stacked(),
        of("shared columns", &shared(), 2, 255, reals).additive(0.2).stacked(),
    ]
}

#[test]
fn every_width_and_alignment() {
    check_all("additive attention", &cases());
}

#[test]
fn gradients_of_every_width_and_alignment() {
    attention_gradient::check_all("gradients of additive attention", &cases());
}

#[test]
fn what_additive_scores_refuse() {
    let a = shared();
    let build = |algorithm, negative_slope| {
        let options = AttentionOptions {
            algorithm,
            scores: AttentionScores::Additive { negative_slope },
            precision: Precision::F16,
            ..AttentionOptions::default()
        };
        GraphAttention::builder(&a).options(options).build(&Device::cpu()).unwrap_err().to_string()
    };
    let expected = "attention by columns multiplies Q and K; with other scores use algorithm auto or rows";
    assert_eq!(build(AttentionAlgorithm::Columns, 0.2), expected);
    let expected = "a negative slope of inf is not finite; graph attention networks have 0.2";
    assert_eq!(build(AttentionAlgorithm::Auto, f32::INFINITY), expected);

    for device in devices() {
        let builder = GraphAttention::builder(&a).additive(0.2).columns(8).precision(Precision::F16);
        let plan = builder.build(&device).unwrap();
        let zeros = |rows, columns| on_device::<f32>(&device, &vec![0.0; rows * columns], (rows, columns));
        let v = DeviceMatrix::<windrow::f16>::zeros(&device, 43, 8).unwrap();
        let mut out = zeros(19, 8);
        let mut run = |operands| plan.forward_on(&device.stream(), 1.0, operands, &mut out);
        let (q, k, wide) = (zeros(19, 1), zeros(43, 1), zeros(43, 8));
        let error = run(AttentionOperands::new(&q, &wide, &v)).unwrap_err();
        let expected = PlanError::OperandShape { operand: "K", found: (43, 8), expected: (43, 1) };
        assert_eq!(error, expected.into());
        run(AttentionOperands::new(&q, &k, &v)).unwrap();
        // Numbers of 16 bits are not what scores are made of.
        let narrow = DeviceMatrix::<windrow::f16>::zeros(&device, 19, 1).unwrap();
        let keys = DeviceMatrix::<windrow::f16>::zeros(&device, 43, 1).unwrap();
        let operands = AttentionOperands::new(&narrow, &keys, &v);
        let error = plan.forward_on(&device.stream(), 1.0, operands, &mut out).unwrap_err();
        let is_type = |error: &AttentionError| {
            matches!(error, AttentionError::Plan(PlanError::ElementType { operand: "Q", .. }))
        };
        assert!(is_type(&error), "{error}");
    }
    report_missing_gpu("refusals of additive attention", 1);
}

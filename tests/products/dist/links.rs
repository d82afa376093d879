//! Rows that go from device to device: NCCL between GPUs, what stands for it between emulators.

use half::f16;
use windrow::dist::{DistCsr, DistSddmm, DistSpmm, Scheme, Transport};
use windrow::{
    Csr, Device, DeviceBuffer, DeviceKind, DeviceMatrix, DistError, EmulatorSchedule, Precision, SddmmForm,
};

use super::{Case, block, cases, ranks, run};
use windrow_testkit::{Pattern, SplitMix64};

use crate::common::{devices, gpu, report_missing_gpu};

/// A device of its own for each of so many ranks: emulators under one schedule, and GPUs if there are as many.
fn own_devices(size: usize, turn: usize) -> Vec<Vec<Device>> {
    let schedule = EmulatorSchedule::STANDARD[turn % EmulatorSchedule::STANDARD.len()];
    let is_emulated = devices().iter().any(|device| device.kind() == DeviceKind::Emulator);
    let emulators = is_emulated.then(|| (0..size).map(|_| Device::emulator(schedule)).collect());
    emulators.into_iter().chain(gpus(size)).collect()
}

/// A GPU for each of so many ranks, if there are as many.
fn gpus(size: usize) -> Option<Vec<Device>> {
    gpu()?;
    (0..u32::try_from(size).unwrap()).map(|index| Device::cuda(index).ok()).collect()
}

/// Says how many cases did not run for want of two GPUs.
fn report_missing_gpus(what: &str, cases: usize) {
    report_missing_gpu(what, cases);
    if gpu().is_some() && gpus(2).is_none() {
        windrow_testkit::announce_skip(what, cases, "no second GPU");
    }
}

/// The sums of one device, to the bit; and those of another product with the same plan, whose `B` is laid out otherwise
/// or wider.
#[test]
fn products_by_links_are_those_of_one_device() {
    let mut turn = 0;
    for case in cases() {
        for size in [2, 3] {
            for scheme in [Scheme::Halo, Scheme::AllGather] {
                turn += 1;
                for devices in own_devices(size, turn) {
                    let found = ranks(size, |rank| {
                        let device = &devices[rank.rank()];
                        let part = DistCsr::of(&rank, &case.a)?;
                        let builder = DistSpmm::builder(&rank, &part).scheme(scheme).width(case.n);
                        let plan = builder.precision(Precision::F16).build(device)?;
                        let first = run::<f16>(&plan, &part, &case)?;
                        assert_eq!(run::<f16>(&plan, &part, &case)?, first);
                        // Rows that begin elsewhere, and only then those of another width.
                        let (rows, n) = plan.result_shape();
                        let own = part.columns().range(rank.rank());
                        let b = block::<f16>(device, &case.b, n, (own, 0..n));
                        let mut c = DeviceMatrix::<f32>::zeros(device, rows, n)?;
                        plan.run_into(1.0, &b, 0.0, &mut c)?;
                        let mut apart = DeviceMatrix::<f16>::with_ld(device, b.rows(), n, n + 3)?;
                        apart.copy_from(windrow::DenseRef::packed(&b.download()?, b.rows(), n)?)?;
                        let mut again = DeviceMatrix::<f32>::zeros(device, rows, n)?;
                        plan.run_into(1.0, &apart, 0.0, &mut again)?;
                        assert_eq!(again.download()?, c.download()?);
                        // And other rows that lie as usual again.
                        let zero = DeviceMatrix::<f16>::zeros(device, b.rows(), n)?;
                        plan.run_into(1.0, &zero, 0.0, &mut again)?;
                        assert!(again.download()?.iter().all(|&x| x == 0.0), "rows of the run before");
                        let wide = DeviceMatrix::<f16>::zeros(device, b.rows(), n + 9)?;
                        let mut zeros = DeviceMatrix::<f32>::zeros(device, rows, n + 9)?;
                        plan.run_into(1.0, &wide, 0.0, &mut zeros)?;
                        assert!(zeros.download()?.iter().all(|&x| x == 0.0));
                        Ok::<_, DistError>((first, plan.report().clone()))
                    });
                    for found in found {
                        let ([got, want], report) = found
                            .unwrap_or_else(|error| panic!("{}, {scheme} of {size}: {error}", case.name));
                        assert_eq!(got, want, "{}, {report} on {}", case.name, devices[0]);
                        assert!(report.transport.starts_with("by "), "{report}");
                    }
                }
            }
        }
    }
    report_missing_gpus("products by NCCL", turn);
}

/// More than a megabyte for each rank, which goes before the product with its own rows is queued.
#[test]
fn large_exchanges_are_right() {
    let (rows, n) = (4200_u32, 256);
    // A row names the one half of all rows further, the next one's own.
    let pattern = Pattern {
        cols: rows as usize,
        rows: (0..rows)
            .map(|row| if row % 2 == 0 { vec![(row + rows / 2) % rows] } else { vec![row] })
            .collect(),
    };
    let case = Case::new("half of all rows further", &pattern, n, &mut SplitMix64::new(6));
    for devices in own_devices(2, 2) {
        for scheme in [Scheme::Halo, Scheme::AllGather] {
            let found = ranks(2, |rank| {
                let part = DistCsr::of(&rank, &case.a)?;
                let builder = DistSpmm::builder(&rank, &part).scheme(scheme).width(n);
                let plan = builder.precision(Precision::F32).build(&devices[rank.rank()])?;
                let first = run::<f32>(&plan, &part, &case)?;
                assert_eq!(run::<f32>(&plan, &part, &case)?, first);
                Ok::<_, DistError>((first, plan.report().received_rows))
            });
            for found in found {
                let ([got, want], received) = found.unwrap_or_else(|error| panic!("{scheme}: {error}"));
                assert!(received * n * size_of::<f32>() > 1 << 20, "{received} rows");
                assert!(got == want, "{scheme} on {}", devices[0]);
            }
        }
    }
    report_missing_gpus("large exchanges by NCCL", 2);
}

/// Each rank's own rows of `Y` lie among those of others.
#[test]
fn sampled_products_by_links_are_those_through_host_memory() {
    let mut turn = 0;
    for case in cases() {
        let (a, d) = (&case.a, case.n);
        let x: Vec<f32> = (0..a.rows() * d).map(|i| (i % 7) as f32 - 3.0).collect();
        for scheme in [Scheme::Halo, Scheme::AllGather] {
            turn += 1;
            for devices in own_devices(3, turn) {
                let by = |transport: Transport| {
                    let found = ranks(3, |rank| {
                        let (device, rank) = (&devices[rank.rank()], rank.transport(transport));
                        let part = DistCsr::of(&rank, a)?;
                        let builder = DistSddmm::builder(&rank, &part).scheme(scheme).inner(d);
                        let plan = builder.precision(Precision::F16).form(SddmmForm::Scale).build(device)?;
                        let of_x = block::<f16>(device, &x, d, (part.rows().range(rank.rank()), 0..d));
                        let of_y =
                            block::<f16>(device, &case.b, d, (part.columns().range(rank.rank()), 0..d));
                        let mut out = DeviceBuffer::<f32>::alloc_zeroed(device, part.local().nnz())?;
                        plan.run_into(1.0, &of_x, &of_y, &mut out)?;
                        plan.run_into(1.0, &of_x, &of_y, &mut out)?;
                        let linked = plan.report().transport.starts_with("by ");
                        assert_eq!(linked, transport == Transport::Auto, "{}", plan.report());
                        Ok::<_, DistError>(out.to_vec()?)
                    });
                    let told = format!("{}, {scheme}: {found:?}", case.name);
                    found.into_iter().collect::<Result<Vec<_>, _>>().expect(&told).concat()
                };
                assert_eq!(by(Transport::Auto), by(Transport::HostMemory), "{}, {scheme}", case.name);
            }
        }
    }
    report_missing_gpus("sampled products by NCCL", turn);
}

/// Types are compared before rows go, and what one rank lacks every other is told.
#[test]
fn what_does_not_fit_is_told_before_rows_go() {
    let a = Csr::from_dense(4, 4, &[1.0f32; 16]).unwrap();
    for devices in own_devices(2, 1) {
        let found = ranks(2, |rank| {
            let device = &devices[rank.rank()];
            let part = DistCsr::of(&rank, &a).unwrap();
            let plan = DistSpmm::builder(&rank, &part).width(4).build(device).unwrap();
            let width = 4 + rank.rank();
            let b = DeviceMatrix::<f32>::zeros(device, 2, width).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(device, 2, width).unwrap();
            plan.run_into(1.0, &b, 0.0, &mut c)
        });
        let told = |outcome: &Result<(), DistError>| outcome.as_ref().unwrap_err().to_string();
        let [zero, one] = [told(&found[0]), told(&found[1])];
        // Whoever compares first tells the other, or both do.
        let disagree = "ranks disagree on columns of B";
        assert!(zero.contains(disagree) || one.contains(disagree), "{zero}; {one}");
        let is_told = |text: &&String| text.contains(disagree) || text.contains("failed");
        assert!([&zero, &one].iter().all(is_told), "{zero}; {one}");
        // An operand of another type than the plan's.
        let found = ranks(2, |rank| {
            let device = &devices[rank.rank()];
            let part = DistCsr::of(&rank, &a).unwrap();
            let plan = DistSpmm::builder(&rank, &part).width(4).build(device).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(device, 2, 4).unwrap();
            match rank.rank() {
                0 => plan.run_into(1.0, &DeviceMatrix::<f32>::zeros(device, 2, 4).unwrap(), 0.0, &mut c),
                _ => plan.run_into(1.0, &DeviceMatrix::<f16>::zeros(device, 2, 4).unwrap(), 0.0, &mut c),
            }
        });
        let [zero, one] = [told(&found[0]), told(&found[1])];
        assert!([&zero, &one].iter().all(|text| text.contains("B holds f16")), "{zero}; {one}");
        assert!(zero.contains("rank 1 failed"), "{zero}");
        // An operand with too few rows.
        let found = ranks(2, |rank| {
            let device = &devices[rank.rank()];
            let part = DistCsr::of(&rank, &a).unwrap();
            let plan = DistSpmm::builder(&rank, &part).width(4).build(device).unwrap();
            let b = DeviceMatrix::<f32>::zeros(device, 2 - rank.rank(), 4).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(device, 2, 4).unwrap();
            plan.run_into(1.0, &b, 0.0, &mut c).unwrap_err()
        });
        assert!(matches!(found[0], DistError::RankFailed { rank: 1, waiting: 0, .. }), "{found:?}");
    }
}

#[test]
fn a_transport_that_cannot_be_is_an_error_or_a_reason() {
    let a = Csr::<f32>::identity(6).unwrap();
    let build = |transports: [Transport; 2]| {
        ranks(2, |rank| {
            let at = rank.rank();
            let rank = rank.transport(transports[at]);
            let part = DistCsr::of(&rank, &a)?;
            let plan = DistSpmm::builder(&rank, &part).width(4).build(&Device::cpu())?;
            Ok::<_, DistError>(plan.report().transport.clone())
        })
    };
    for found in build([Transport::Nccl; 2]) {
        let error = found.unwrap_err().to_string();
        assert!(error.contains("NCCL: rank 0 is on cpu: NCCL is for CUDA devices"), "{error}");
    }
    for found in build([Transport::HostMemory; 2]) {
        assert_eq!(found.unwrap(), "through host memory: rank 0 is on cpu: host memory was asked for");
    }
    let found = build([Transport::Auto, Transport::HostMemory]);
    assert!(
        matches!(&found[0], Err(DistError::Disagreement { what: "the transport", rank: 1, .. })),
        "{found:?}"
    );
    for transport in Transport::ALL {
        assert_eq!(transport.to_string().parse::<Transport>().unwrap(), transport);
    }
}

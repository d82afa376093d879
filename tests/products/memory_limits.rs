//! Limits of a plan's memory: what every option needs is counted before it is allocated, and refused with the numbers.

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::synthetic::{seeded_tensor, seeded_weights};
use windrow::{
    Algorithm, ArraySize, Csr, Device, DeviceBuffer, DeviceKind, DeviceMatrix, EmulatorSchedule, Error,
    Mttkrp, NmPacking, NmPattern, NmSpmm, Precision, Preprocessing, RowDivision, Sddmm, SddmmAlgorithm,
    SddmmForm, Spmm, Stream, TileValues, Ttm, f16,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, report_missing_gpu};

/// Arrays of a plan, bytes of all, and the bytes that the device has less while the plan is there.
type Built = (Vec<ArraySize>, u64, u64);

/// A plan that is made without a limit, with one that it just fits, and with one that a byte is missing of.
#[track_caller]
fn limited(what: &str, remedy: &str, device: &Device, build: &dyn Fn(Option<u64>) -> Result<Built, Error>) {
    let before = device.memory_free().unwrap();
    let (arrays, needed, taken) = build(None).unwrap();
    assert_eq!(arrays.iter().map(|array| array.bytes).sum::<u64>(), needed, "{what}");
    assert_eq!(taken, needed, "{what}: what the device hands out");
    assert_eq!(build(Some(needed)).unwrap(), (arrays.clone(), needed, taken), "{what}");
    let error = build(Some(needed - 1)).unwrap_err();
    assert_eq!(error.to_string(), refusal(&arrays, needed - 1, remedy), "{what}");
    assert_eq!(device.memory_free().unwrap(), before, "{what}: a refused plan leaves nothing behind");
}

fn refusal(arrays: &[ArraySize], limit: u64, remedy: &str) -> String {
    let needed: u64 = arrays.iter().map(|array| array.bytes).sum();
    let ArraySize { name, bytes, .. } = arrays.iter().max_by_key(|array| array.bytes).unwrap();
    format!(
        "the plan needs {needed} bytes on the device, the limit is {limit}; the largest array is {name} with {bytes} \
         bytes; {remedy}"
    )
}

fn free(device: &Device) -> u64 {
    device.memory_free().unwrap().unwrap()
}

/// Rows of few entries and of many, most columns of a window in several of its rows.
fn matrix() -> Csr<f32> {
    let mut rng = SplitMix64::new(0x11e);
    let lengths = [90, 2, 0, 30, 1, 1, 8, 70, 3, 12, 0, 5].repeat(8);
    Pattern::from_lengths(90, lengths, &mut rng).with_values(Values::Reals, &mut rng)
}

/// Promise, memory: a plan allocates what its report says, to the byte, and one that would pass a limit is refused
/// before.
#[test]
fn options_of_products() {
    let a = matrix();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let base = Spmm::builder(&a).width(40).workers(8).preprocessing(Preprocessing::Cpu);
    let tiles = base.clone().algorithm(Algorithm::TileStream).precision(Precision::F16);
    let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
    let vectors = PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA };
    let hybrid = base.clone().algorithm(Algorithm::Hybrid).precision(Precision::F16);
    for (what, builder) in [
        ("column vectors", hybrid.clone().partition(vectors)),
        ("packed tiles", tiles.clone().tile_values(TileValues::Packed)),
        ("tiles with bitmaps", tiles.clone().tile_values(TileValues::Bitmap)),
        ("dense tiles", tiles.clone().tile_values(TileValues::Dense)),
        ("a window each", tiles.clone().window_each()),
        ("values from the device", base.clone().algorithm(Algorithm::RowSplit).values_from_device()),
        ("rows that are cut", base.clone().algorithm(Algorithm::RowSplit).row_division(cut)),
        ("values of tiles from the device", tiles.clone().values_from_device()),
        ("values of column vectors from the device", hybrid.partition(vectors).values_from_device()),
    ] {
        limited(what, "raise the limit, lower the width, or choose algorithm row-split", &device, &|limit| {
            let builder = builder.clone();
            let builder = limit.map_or(builder.clone(), |limit| builder.memory_limit(limit));
            let before = free(&device);
            let mut plan = builder.build(&device)?;
            let taken = before - free(&device);
            let report = plan.report().clone();
            // Values from the host take the places of the old.
            plan.replace_values(a.values())?;
            assert_eq!(before - free(&device), taken, "{what}: new values");
            Ok((report.arrays, report.device_bytes, taken))
        });
    }
}

/// Promise, memory: a plan allocates what its report says, to the byte, and one that would pass a limit is refused
/// before.
#[test]
fn options_of_sampled_products() {
    let a = matrix();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    for (algorithm, precision, form) in [
        (SddmmAlgorithm::Entries, Precision::F32, SddmmForm::Mask),
        (SddmmAlgorithm::Groups, Precision::F64, SddmmForm::Scale),
        (SddmmAlgorithm::RowPanels, Precision::F32, SddmmForm::Scale),
        (SddmmAlgorithm::Tiles, Precision::F16, SddmmForm::Scale),
        (SddmmAlgorithm::Hybrid, Precision::Bf16, SddmmForm::Scale),
    ] {
        limited(&format!("{algorithm}"), "raise the limit, or choose algorithm entries", &device, &|limit| {
            let builder = Sddmm::builder(&a).inner(8).algorithm(algorithm).precision(precision).form(form);
            let builder = builder.tile_threshold(20).scan_masks();
            let builder = limit.map_or(builder.clone(), |limit| builder.memory_limit(limit));
            let before = free(&device);
            let mut plan = builder.build(&device)?;
            let taken = before - free(&device);
            plan.replace_values(a.values())?;
            assert_eq!(before - free(&device), taken, "{algorithm}: new values");
            Ok((plan.report().arrays.clone(), plan.report().device_bytes, taken))
        });
    }
}

/// Promise, memory: a plan allocates what its report says, to the byte, and one that would pass a limit is refused
/// before.
#[test]
fn products_of_tensors_and_with_pruned_weights() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let tensor = seeded_tensor::<f32>([30, 20, 50], 900, 1).unwrap().to_csf([0, 1, 2]).unwrap();
    for precision in [Precision::F32, Precision::F16, Precision::F64] {
        limited(
            "MTTKRP",
            "raise the limit, lower the width, or let a thread have more nonzeros",
            &device,
            &|limit| {
                let builder = Mttkrp::builder(&tensor).width(8).precision(precision);
                let builder = limit.map_or(builder.clone(), |limit| builder.memory_limit(limit));
                let before = free(&device);
                let mut plan = builder.build(&device)?;
                let taken = before - free(&device);
                plan.replace_values(tensor.values())?;
                assert_eq!(before - free(&device), taken, "new values");
                Ok((plan.report().arrays.clone(), plan.report().device_bytes, taken))
            },
        );
        limited(
            "TTM",
            "raise the limit, lower the width, or choose algorithm row-split",
            &device,
            &|limit| {
                let builder = Ttm::builder(&tensor).width(8).precision(precision);
                let builder = limit.map_or(builder.clone(), |limit| builder.memory_limit(limit));
                let before = free(&device);
                let plan = builder.build(&device)?;
                let taken = before - free(&device);
                Ok((plan.report().arrays.clone(), plan.report().device_bytes, taken))
            },
        );
    }
    let weights = seeded_weights::<f32>((64, 96), NmPattern::new(2, 8, 8).unwrap(), 1).unwrap();
    for (precision, packing) in [
        (Precision::F32, NmPacking::Packed),
        (Precision::F32, NmPacking::Plain),
        (Precision::F16, NmPacking::Auto),
        (Precision::Tf32, NmPacking::Auto),
    ] {
        let remedy = "raise the limit, plan for fewer rows, or give k-major activations";
        limited("N:M", remedy, &device, &|limit| {
            let builder = NmSpmm::builder(&weights).rows(24).precision(precision).packing(packing);
            let builder = limit.map_or(builder.clone(), |limit| builder.memory_limit(limit));
            let before = free(&device);
            let plan = builder.build(&device)?;
            let taken = before - free(&device);
            Ok((plan.report().arrays.clone(), plan.report().device_bytes, taken))
        });
    }
}

/// A result of 16 bits waits in f32 to be rounded: memory that the plan did not have before.
#[test]
fn stages_of_sampled_products() {
    let a = matrix();
    let bytes = 4 * a.nnz() as u64;
    let remedy = "raise the limit, have the result in f32, or run the plan on fewer streams";
    for device in devices().into_iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        let build = |extra: u64| {
            let builder = Sddmm::builder(&a).inner(8);
            let arrays = builder.clone().build(&device).unwrap().report().clone();
            let limit = arrays.device_bytes + extra;
            (builder.memory_limit(limit).build(&device).unwrap(), arrays.arrays, limit)
        };
        let x = DeviceMatrix::<f32>::zeros(&device, a.rows(), 8).unwrap();
        let y = DeviceMatrix::<f32>::zeros(&device, a.cols(), 8).unwrap();
        let mut wide = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
        let mut narrow = DeviceBuffer::<f16>::alloc_zeroed(&device, a.nnz()).unwrap();
        let needed = |arrays: &[ArraySize], limit: u64, others: u64| {
            let sizes = [("workspaces", others), ("sampled_sums", bytes)];
            let more = sizes.map(|(name, bytes)| ArraySize { name, bytes });
            refusal(&[arrays, &more].concat(), limit, remedy)
        };
        let emulated = device.kind() == DeviceKind::Emulator;

        // A byte is missing.
        let (plan, arrays, limit) = build(bytes - 1);
        plan.run_into(1.0, &x, &y, &mut wide).unwrap();
        let before = emulated.then(|| free(&device));
        let error = plan.run_into(1.0, &x, &y, &mut narrow).unwrap_err();
        assert_eq!(error.to_string(), needed(&arrays, limit, 0));
        assert_eq!(emulated.then(|| free(&device)), before, "nothing was made");
        plan.run_into(1.0, &x, &y, &mut wide).unwrap();

        // Just enough for one stage, which stays.
        let (plan, arrays, limit) = build(bytes);
        plan.run_into(1.0, &x, &y, &mut narrow).unwrap();
        plan.run_into(1.0, &x, &y, &mut narrow).unwrap();
        let stream = Stream::new(&device).unwrap();
        let error = plan.run_into_on(&stream, 1.0, [x.view(), y.view()], &mut narrow).unwrap_err();
        assert_eq!(error.to_string(), needed(&arrays, limit, bytes));

        // That of a stream that is gone is there for another.
        let (plan, arrays, limit) = build(2 * bytes);
        plan.run_into(1.0, &x, &y, &mut narrow).unwrap();
        plan.run_into_on(&stream, 1.0, [x.view(), y.view()], &mut narrow).unwrap();
        let other = Stream::new(&device).unwrap();
        let error = plan.run_into_on(&other, 1.0, [x.view(), y.view()], &mut narrow).unwrap_err();
        assert_eq!(error.to_string(), needed(&arrays, limit, 2 * bytes));
        drop((stream, other));
        let other = Stream::new(&device).unwrap();
        plan.run_into_on(&other, 1.0, [x.view(), y.view()], &mut narrow).unwrap();
        device.synchronize().unwrap();
    }
    report_missing_gpu("stages of sampled products", 1);
}

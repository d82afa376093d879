//! New values from the device against those from the host, array by array.

use windrow_formats::synthetic::seeded_values;
use windrow_formats::{Csr, Permutation};

use super::*;
use crate::partition::{PartitionRule, VectorThreshold};
use crate::spmm::plan::{Body, SpmmPlan};
use crate::{Algorithm, Determinism, EmulatorSchedule, Preprocessing, Spmm, SpmmBuilder, TileValues};

/// Rows of many lengths, some empty, one cut by every algorithm.
fn pattern() -> Csr<f32> {
    let lengths = [0u64, 3, 1, 900, 0, 17, 64, 2, 2, 2, 40, 5, 1, 0, 8, 130, 7, 33, 0, 1];
    let mut offsets = vec![0u64];
    let mut columns = Vec::new();
    for (row, &len) in (0..).zip(&lengths) {
        let step = 900 / len.max(1);
        columns.extend((0..len).map(|i| u32::try_from(i * step + row % step.max(1)).unwrap()));
        offsets.push(columns.len() as u64);
    }
    let values = vec![1.0; columns.len()];
    Csr::try_from_parts(lengths.len(), 920, offsets, columns, values).unwrap()
}

/// Values of every kind that rounds in a way of its own, at the places of the first entries.
fn values(nnz: usize, seed: u64) -> Vec<f32> {
    let mut values = seeded_values::<f32>(nnz, seed).unwrap();
    let bits = [
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffc1_2345,
        0x7fff_ffff,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x0000_0001,
        0x8000_0000,
        0x0080_0000,
        0x3f80_1000,
        0x3f80_3000,
        0x3f80_8000,
        0x3f81_8000,
        0x477f_e000,
        0x477f_f000,
        0x3380_0000,
        0x3300_0000,
        0x3300_0001,
        0x7f7f_8000,
    ];
    for (value, bits) in values.iter_mut().zip(bits) {
        *value = f32::from_bits(bits);
    }
    values
}

fn kinds(builder: SpmmBuilder<'_, Csr<f32>>) -> Vec<SpmmBuilder<'_, Csr<f32>>> {
    let vectors = PartitionRule::ColumnVectors { threshold: VectorThreshold::ALL[1] };
    let short = PartitionRule::ShortRows { max_entries: 3 };
    let mut kinds =
        vec![builder.clone().algorithm(Algorithm::RowSplit), builder.clone().algorithm(Algorithm::ShortRows)];
    for form in [TileValues::Dense, TileValues::Packed, TileValues::Bitmap] {
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
            let builder = builder.clone().precision(precision).tile_values(form).workers(9);
            kinds.push(builder.clone().algorithm(Algorithm::Hybrid).partition(short));
            for place in [Preprocessing::Cpu, Preprocessing::Gpu] {
                let builder = builder.clone().preprocessing(place);
                kinds.push(builder.clone().algorithm(Algorithm::TileStream));
                kinds.push(builder.algorithm(Algorithm::Hybrid).partition(vectors));
            }
        }
    }
    for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
        kinds.push(builder.clone().precision(precision).algorithm(Algorithm::RowSplit));
        kinds.push(builder.clone().precision(precision).algorithm(Algorithm::ShortRows));
    }
    kinds.push(builder.algorithm(Algorithm::RowSplit).determinism(Determinism::Fast));
    kinds
}

/// Every array of the plan that depends on values, by the part that has it.
fn arrays(plan: &SpmmPlan) -> [Vec<u8>; 3] {
    let all = plan.device_arrays().unwrap();
    ["values", "short_row_values", "records"].map(|name| {
        all.iter().find(|(found, _)| *found == name).map_or(vec![], |(_, content)| content.clone())
    })
}

fn machines() -> Vec<Device> {
    let mut machines: Vec<Device> = EmulatorSchedule::STANDARD.map(Device::emulator).into();
    machines.extend(Device::cuda(0));
    machines
}

fn check(device: &Device, a: &Csr<f32>, order: Option<&Permutation>) {
    let builder = Spmm::builder(a).width(3);
    let builder = match order {
        Some(order) => builder.value_order(order),
        None => builder,
    };
    let (mut parts, mut laid_out_on_device) = ([0; 3], 0);
    for builder in kinds(builder) {
        let mut plan = builder.build(device).unwrap();
        for seed in 0..2 {
            let values = values(a.nnz(), seed);
            plan.replace_values(&values).unwrap();
            let (expected, overflowed) = (arrays(&plan), plan.report().overflowed_values);
            plan.replace_values(&vec![7.0f32; a.nnz()]).unwrap();
            assert_ne!(arrays(&plan), expected, "{plan:?}");
            plan.replace_values_from(&DeviceBuffer::from_slice(device, &values).unwrap()).unwrap();
            assert_eq!(arrays(&plan), expected, "{plan:?}, order given: {}", order.is_some());
            assert_eq!(plan.overflowed_values().unwrap(), overflowed, "{plan:?}");
            assert_eq!(plan.report().overflowed_values, 0, "that of the values from the host");
        }
        for (part, array) in parts.iter_mut().zip(arrays(&plan)) {
            *part += usize::from(!array.is_empty());
        }
        // The same memory whether it was asked for with the plan or is made at the first replacement.
        let early = builder.values_from_device().build(device).unwrap();
        let placed =
            |plan: &SpmmPlan| plan.report().arrays.iter().find(|array| array.name == PLACES).copied();
        assert_eq!(
            (placed(&early), early.report().device_bytes),
            (placed(&plan), plan.report().device_bytes)
        );
        let Body::Gpu(gpu) = &early.body else { panic!("a machine runs kernels") };
        let places = gpu.places.as_ref().expect("made with the plan");
        let bytes = |index: &Index| match index {
            Index::Gather(index) | Index::Scatter(index) => index.bytes(),
            Index::InOrder => 0,
        };
        let rounded = |(index, values): &(Index, DeviceBuffer<u8>)| values.bytes() + bytes(index);
        let all: u64 = places.parts.iter().flatten().map(bytes).sum();
        let all = all + places.rounded.as_ref().map_or(0, rounded);
        laid_out_on_device += usize::from(places.rounded.is_some());
        assert_eq!(placed(&early).map(|array| array.bytes), Some(all + places.overflowed.bytes()));
    }
    assert!(parts.iter().all(|&plans| plans > 1), "{parts:?} plans have each part");
    assert_eq!(laid_out_on_device, 12);
}

#[test]
fn values_from_the_device_are_placed_as_those_from_the_host() {
    let a = pattern();
    for device in machines() {
        check(&device, &a, None);
    }
}

#[test]
fn values_of_a_matrix_reach_the_plan_of_its_transpose() {
    let a = pattern();
    let (transposed, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
    for device in machines() {
        check(&device, &transposed, Some(&order));
    }
}

//! What training needs of ranks: sums of what each knows a part of, and a network that learns as on one device.

use windrow::dist::Communicator;
use windrow::{DenseRef, Device, DeviceMatrix, DistError, EmulatorSchedule, Precision};

use super::ranks;
use crate::common::{devices, report_missing_gpu, takes_turn};
use crate::example::data::{Task, TaskOptions};
use crate::example::gcn::Gcn;
use crate::example::lane::Lane;
use crate::example::model::{Model, Shape};
use crate::example::ranks as example;
use crate::example::train::Training;
use crate::gnn::{communities, tools};

/// The sum of all is rounded once, and is the same everywhere.
#[test]
fn sums_over_ranks_are_the_same_on_each() {
    for device in devices().iter().filter(|device| takes_turn(device, 0)) {
        for (size, large) in [(1, 16_777_216.0), (2, 16_777_216.0), (5, 16_777_218.0)] {
            let found = ranks(size, |rank| {
                // In f32 the small ones would be lost, one after the other.
                let own = [if rank.rank() == 0 { 16_777_216.0f32 } else { 0.5 }, rank.rank() as f32, -1.0];
                let mut x = DeviceMatrix::upload(device, DenseRef::packed(&own, 1, 3).unwrap()).unwrap();
                rank.all_reduce(&mut x).unwrap();
                x.download().unwrap()
            });
            let of = size as f32;
            for found in found {
                assert_eq!(found, [large, of * (of - 1.0) / 2.0, -of], "{size} ranks on {device}");
            }
        }
    }
    let found = ranks(2, |rank| {
        let mut x = DeviceMatrix::<f32>::zeros(&Device::cpu(), 2, 3 + rank.rank()).unwrap();
        rank.all_reduce(&mut x).unwrap_err()
    });
    assert!(matches!(found[0], DistError::Disagreement { rank: 1, own_rank: 0, .. }), "{found:?}");
    report_missing_gpu("sums over ranks", 3);
}

fn losses<M: Model>(mut training: Training<M>) -> Vec<f32> {
    let mut losses = Vec::new();
    let told = |_, training: &Training<M>| {
        losses.push(training.outcome()?.loss);
        Ok(())
    };
    training.run(6, told).unwrap();
    losses
}

/// The losses of ranks add up to those of one device, epoch after epoch.
#[test]
fn a_network_learns_on_ranks_as_on_one_device() {
    let graph = communities(60, 10, 3);
    let options = TaskOptions { width: 6, classes: 3, noise: 1.0, seed: 5 };
    let task = Task::new(&graph, options).unwrap();
    let shape = |precision| Shape { widths: vec![6, 8, 3], precision, heads: 1, seed: 9 };
    let mut cases = 0;
    for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::F16, 2e-3)] {
        cases += 1;
        for device in devices().iter().filter(|device| takes_turn(device, cases)) {
            let Some(alone) = tools(Lane::own(device)) else { continue };
            let model = Gcn::new(&graph, &task, &shape(precision), alone).unwrap();
            let want = losses(Training::new(model, &task, device, 0.05).unwrap());
            assert!(want[5] < want[0], "{want:?}");
            let found = ranks(3, |rank: Communicator| {
                // Emulated GPUs of one's own, between which rows go without the host.
                let device = match device.kind() {
                    windrow::DeviceKind::Emulator => Device::emulator(EmulatorSchedule::InOrder),
                    _ => device.clone(),
                };
                let part = example::part(&rank, &graph).unwrap();
                let own = task.of_nodes(example::nodes(&part));
                let tools = tools(Lane::own(&device)).unwrap();
                let model = example::gcn(&rank, &part, (&own, &shape(precision)), tools).unwrap();
                losses(Training::new(model, &own, &device, 0.05).unwrap())
            });
            for (epoch, want) in want.iter().enumerate() {
                let sum: f32 = found.iter().map(|losses| losses[epoch]).sum();
                assert!(
                    (sum - want).abs() <= tolerance,
                    "epoch {epoch} in {precision} on {device}: {sum}, {want}"
                );
            }
        }
    }
    report_missing_gpu("training on ranks", cases);
}

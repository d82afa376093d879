//! Whether every part of a plan has kernels, and what becomes of one that has none.

use windrow_formats::Csr;

use super::super::operands::{Finish, Operands};
use super::super::part::{DenseOperands, Placement, ValueSlots};
use super::super::plan::Body;
use super::*;
use crate::activation::Epilogue;
use crate::device::DeviceBuffer;
use crate::plan::Budget;
use crate::plan::Launcher;
use crate::{Algorithm, EmulatorSchedule, Spmm};

/// A part that no kernel was written for.
struct Kernelless;

impl Part for Kernelless {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn entry(&self, _: Operation) -> Option<&'static Entry> {
        None
    }

    unsafe fn launch(
        &self,
        _: Launcher<'_>,
        entry: &'static Entry,
        _: &DenseOperands,
    ) -> Result<(), DeviceError> {
        panic!("{} was launched for a part without kernels", entry.name)
    }

    fn replace_values(&mut self, _: &Bits) -> Result<(), DeviceError> {
        Ok(())
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::OnDevice
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(Vec::new())
    }
}

impl Layout for Kernelless {
    fn arrays(&self, _: &mut Vec<ArraySize>) {}

    fn placement(&self) -> Placement {
        Placement::OnDevice
    }

    fn upload(
        self: Box<Self>,
        _: ArrayMemory<'_>,
        _: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        Ok(self)
    }
}

#[test]
fn a_part_without_a_kernel_is_an_error_when_a_plan_is_made_and_when_it_runs() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let (precision, determinism) = (Precision::F32, Determinism::RunToRun);
    let shape = PlanShape { precision, determinism, rows: 4, capacity: 8 };
    let laid = LaidOut::one(Kernelless, Default::default(), LayoutFacts::default());
    let values = crate::plan::Values::new(precision, &[1.0f32]);
    let (plan, _) = GpuPlan::upload(ArrayMemory::Own(&device), &values, laid, shape).unwrap();
    let (machine, operation) =
        (device.machine().unwrap(), Operation { n: 3, vectors: false, column_major: false });
    let expected = DeviceError::NoKernel {
        part: "nothing",
        precision: "f32".to_owned(),
        columns: 3,
        vectors: false,
        column_major: false,
    };
    assert_eq!(plan.load(machine, operation), Err(expected.clone()));
    let message = expected.to_string();
    assert!(message.starts_with("no kernel of nothing in f32 takes 3 columns of a B of any"), "{message}");

    let dense = DeviceBuffer::<f32>::alloc_zeroed(&device, 12).unwrap();
    let operands = Operands {
        b: dense.address(),
        ldb: 3,
        column_major: false,
        second: None,
        reads_vectors: true,
        c: dense.address(),
        ldc: 3,
        n: 3,
        finish: Finish::of::<f32>(&Epilogue::default()),
    };
    let stream = device.stream();
    let on = On::of(&stream, &device, true).unwrap();
    for _ in 0..2 {
        // SAFETY: nothing is launched; the matrices are live and large enough if it were.
        let found = unsafe { plan.run(&on, operands, Budget::UNLIMITED) };
        assert_eq!(found, Err(expected.clone().into()));
    }
}

#[test]
fn every_plan_has_kernels_for_every_operation() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let columns: Vec<u32> = (0..24).flat_map(|row| (0..32).filter(move |c| c % (row % 7 + 1) == 0)).collect();
    let mut offsets = vec![0];
    for row in 0..24u64 {
        offsets.push(offsets[offsets.len() - 1] + 32u64.div_ceil(row % 7 + 1));
    }
    let ones = vec![1.0f32; columns.len()];
    let a = Csr::try_from_parts(24, 32, offsets, columns, ones).unwrap();
    let mut plans = 0;
    for algorithm in Algorithm::ALL {
        for precision in Precision::ALL.into_iter().filter(|&precision| algorithm.supports(precision)) {
            for width in [1, 4, 33, 128] {
                let builder = Spmm::builder(&a).algorithm(algorithm).precision(precision).width(width);
                let plan = builder.build(&device).unwrap();
                let Body::Gpu(gpu) = &plan.body else { panic!("the emulator runs kernels") };
                for n in [1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 65, 128, 129, 1000] {
                    for (vectors, column_major) in
                        [(true, false), (false, false), (true, true), (false, true)]
                    {
                        if column_major && !gpu.takes_column_major() {
                            continue;
                        }
                        let chosen = gpu.choose(Operation { n, vectors, column_major });
                        let of = chosen.map(|chosen| chosen.parts.len());
                        assert_eq!(of, Ok(gpu.parts.len()), "{algorithm} in {precision}, {n} columns");
                    }
                }
                plans += 1;
            }
        }
    }
    assert!(plans > 80, "{plans} plans");
}

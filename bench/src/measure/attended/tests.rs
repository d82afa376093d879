//! Runs on the emulator are right, and what was not run is not taken for right.

use windrow::{Csr, Device, EmulatorSchedule};

use super::*;

#[test]
fn what_was_run_is_right_and_gradients_that_were_not_are_told() {
    let (rows, cols) = (9, 7);
    let dense: Vec<f32> = (0..rows * cols).map(|i| f32::from(u8::from(i % 3 == 0))).collect();
    let csr = Csr::from_dense(rows, cols, &dense).unwrap();
    for device in [Device::cpu(), Device::emulator(EmulatorSchedule::InOrder)] {
        for path in AttendedPath::standard() {
            let mut attended = path.prepare(&csr, 8, &device, 5).unwrap();
            if path.gradients && device.kind() != DeviceKind::Cpu {
                let error = attended.verify(&csr).unwrap_err();
                assert!(matches!(error, BenchError::Gradient { of: "Q", row: 0, col: 0, .. }), "{error}");
            }
            attended.run().unwrap();
            let found = attended.verify(&csr).unwrap();
            assert!(found.passed() && found.checked == (rows * path.heads * 8) as u64, "{path}: {found}");
        }
    }
}

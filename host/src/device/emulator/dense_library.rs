//! What stands for a library for dense products in tests: as naive as can be.

use half::{bf16, f16};
use windrow_kernels::output::OutputType;
use windrow_simt::GlobalPtr;
use windrow_simt::emulator::{Memory, MemoryError};

use crate::device::dense_library::{DenseLibrary, DenseProduct};
use crate::device::queue::Queue;
use crate::error::DeviceError;
use crate::num::index;
use crate::options::Precision;

/// A library that multiplies when its turn comes.
pub(super) struct NaiveLibrary;

impl DenseLibrary for NaiveLibrary {
    fn name(&self) -> &str {
        "a library of the emulator's"
    }

    unsafe fn multiply(&self, queue: &dyn Queue, product: &DenseProduct) -> Result<(), DeviceError> {
        queue.multiply_densely(product)
    }
}

/// A row of numbers that are stored in some type.
fn read(memory: &Memory, address: u64, len: u32, kind: OutputType) -> Result<Vec<f32>, MemoryError> {
    let mut bytes = vec![0; index(u64::from(len) * u64::from(kind.bytes(4)))];
    memory.read_to(GlobalPtr::from_address(address), &mut bytes)?;
    Ok(match kind {
        OutputType::Sums => bytemuck::pod_collect_to_vec(&bytes),
        OutputType::F16 => bytes.chunks(2).map(|two| f16::from_ne_bytes([two[0], two[1]]).to_f32()).collect(),
        OutputType::Bf16 => {
            bytes.chunks(2).map(|two| bf16::from_ne_bytes([two[0], two[1]]).to_f32()).collect()
        }
    })
}

/// `C ← α·A·B + β·C`, as the memory of the emulator has it: what was never written must not be read.
pub(super) fn multiply(memory: &Memory, product: &DenseProduct) -> Result<(), MemoryError> {
    let DenseProduct { m, n, k, precision, a, lda, b, ldb, c, ldc, output, alpha, beta, .. } = *product;
    let kind = match precision {
        Precision::F16 => OutputType::F16,
        Precision::Bf16 => OutputType::Bf16,
        Precision::F32 | Precision::Tf32 | Precision::F64 => OutputType::Sums,
    };
    let (address, scratch_bytes) = product.scratch;
    assert!(address.is_multiple_of(256) && scratch_bytes > 0, "memory for the library");
    let row = |address: u64, row: u32, ld: u32, kind: OutputType| {
        address + u64::from(row) * u64::from(ld) * u64::from(kind.bytes(4))
    };
    let (a_rows, a_cols) = if product.a_transposed { (k, m) } else { (m, k) };
    let rows_of = |address, rows: u32, cols, ld| {
        (0..rows).map(|i| read(memory, row(address, i, ld, kind), cols, kind)).collect::<Result<Vec<_>, _>>()
    };
    let (of_a, of_b) = (rows_of(a, a_rows, a_cols, lda)?, rows_of(b, k, n, ldb)?);
    let at = |x: u32| index(u64::from(x));
    for i in 0..m {
        let to = row(c, i, ldc, output);
        let old = if beta == 0.0 { vec![0.0; at(n)] } else { read(memory, to, n, output)? };
        let mut bytes = Vec::new();
        for j in 0..n {
            let of_a = |l: u32| if product.a_transposed { of_a[at(l)][at(i)] } else { of_a[at(i)][at(l)] };
            let sum = (0..k).fold(0.0f32, |sum, l| of_a(l).mul_add(of_b[at(l)][at(j)], sum));
            let x = if beta == 0.0 { alpha * sum } else { beta.mul_add(old[at(j)], alpha * sum) };
            match output {
                OutputType::Sums => bytes.extend(x.to_ne_bytes()),
                OutputType::F16 => bytes.extend(f16::from_f32(x).to_ne_bytes()),
                OutputType::Bf16 => bytes.extend(bf16::from_f32(x).to_ne_bytes()),
            }
        }
        memory.write(GlobalPtr::from_address(to), &bytes)?;
    }
    Ok(())
}

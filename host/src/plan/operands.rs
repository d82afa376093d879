//! Operands in host memory on their way to a plan: rounded to its element type, and uploaded.

use half::slice::HalfFloatSliceExt;
use windrow_formats::Value;

use crate::cpu;
use crate::dense::DenseRef;
use crate::device::Device;
use crate::error::PlanError;
use crate::matrix::DeviceMatrix;

/// A dense matrix rounded to a 16-bit type.
pub(crate) struct Rounded<T> {
    data: Vec<T>,
    rows: usize,
    cols: usize,
}

impl<T: Value> Rounded<T>
where
    [T]: HalfFloatSliceExt,
{
    pub(crate) fn new(matrix: DenseRef<'_, f32>) -> Self {
        Self { data: cpu::to_half(matrix), rows: matrix.rows(), cols: matrix.cols() }
    }

    pub(crate) fn view(&self) -> Result<DenseRef<'_, T>, PlanError> {
        DenseRef::packed(&self.data, self.rows, self.cols)
    }
}

/// `$run`, in which the operands, f32 matrices, are matrices of the element type of a precision.
macro_rules! with_rounded {
    ($precision:expr, [$($operand:ident),+], $run:expr) => {
        match $precision {
            $crate::options::Precision::F32 | $crate::options::Precision::Tf32 => $run,
            $crate::options::Precision::F16 => with_rounded!(half::f16, [$($operand),+] => $run),
            $crate::options::Precision::Bf16 => with_rounded!(half::bf16, [$($operand),+] => $run),
        }
    };
    ($element:ty, [$($operand:ident),+] => $run:expr) => {{
        $(
            let rounded = $crate::plan::Rounded::<$element>::new($operand);
            let $operand = rounded.view()?;
        )+
        $run
    }};
}
pub(crate) use with_rounded;

/// `C` on the device, as a product finds it: zeros if nothing of what it held is kept.
pub(crate) fn output_on(
    device: &Device,
    c: DenseRef<'_, f32>,
    beta: f32,
) -> Result<DeviceMatrix<f32>, PlanError> {
    match beta == 0.0 {
        true => DeviceMatrix::zeros(device, c.rows(), c.cols()),
        false => DeviceMatrix::upload(device, c),
    }
}

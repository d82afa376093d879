//! What the driver tells the copy engine of a matrix.

use std::ffi::c_void;

use cudarc::driver::sys;
use windrow_simt::{BoxedMatrix, TensorMap};

use super::probe::Called;
use crate::error::DeviceError;

/// A map of a matrix of 16-bit elements, whose boxes arrive in the order that warpgroups read.
///
/// # Errors
/// [`DeviceError::Driver`].
pub(super) fn encode(matrix: &BoxedMatrix) -> Result<TensorMap, DeviceError> {
    let BoxedMatrix { address, columns, rows, row_bytes, box_rows } = *matrix;
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let sizes = [u64::from(columns), u64::from(rows)];
    let (strides, box_sizes, steps) = ([row_bytes], [BoxedMatrix::BOX_COLUMNS, box_rows], [1, 1]);
    // SAFETY: of two dimensions the driver reads two sizes, steps and sizes of a box, and one stride; it writes the
    // map, which is aligned as its type is. The address is only written down.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            2,
            address as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            box_sizes.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code.result().called("cuTensorMapEncodeTiled")?;
    Ok(TensorMap(map.opaque))
}

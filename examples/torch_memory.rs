//! Products of matrices that are in PyTorch's memory, in the order of PyTorch's stream: a library for `ctypes`.
//!
//! `torch_memory.py` beside this file loads it, and proves that nothing is copied and that nothing waits.
//!
//! ```console
//! $ cargo build --release -p windrow-examples --example torch_memory
//! $ python examples/torch_memory.py target/release/examples/libtorch_memory.so
//! ```
//!
//! Functions return null or -1 where something is wrong, and [`torch_memory_error`] says what.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use windrow::{
    CsrAddresses, Device, DeviceCsr, DeviceView, DeviceViewMut, Element, Precision, Spmm, SpmmPlan, Stream,
    f16,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A `torch.sparse_csr` tensor on a GPU: sizes, and the `data_ptr()` of its parts.
#[repr(C)]
pub struct TorchCsr {
    rows: i64,
    cols: i64,
    nnz: i64,
    crow_indices: u64,
    col_indices: u64,
    values: u64,
    /// 32 or 64, of both arrays of indices.
    index_bits: i32,
    /// 16 for half, 32 for float.
    value_bits: i32,
}

/// A packed row-major tensor of two dimensions, of the matrix's type.
#[repr(C)]
pub struct TorchDense {
    rows: i64,
    cols: i64,
    data: u64,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// What the call returned, or `otherwise` after noting why; a panic ends here, too.
fn noted<T>(otherwise: T, call: impl FnOnce() -> Outcome<T>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(told(&*panic).into()));
    outcome.unwrap_or_else(|error| {
        let text = CString::new(error.to_string().replace('\0', "")).unwrap_or_default();
        LAST_ERROR.set(text);
        otherwise
    })
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

/// Why this thread's last call that failed did so. Valid until its next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn torch_memory_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// A plan for a matrix on GPU number `gpu`, for products with `width` columns, made in the order of `stream`, a
/// `torch.cuda.Stream.cuda_stream`: by kernels that read the tensor's own arrays. These may change when the work of the
/// stream is done.
///
/// # Safety
/// `matrix` points to sizes and addresses of a live tensor; the stream is one of PyTorch's, which live on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_memory_plan(
    gpu: c_int,
    stream: *mut c_void,
    matrix: *const TorchCsr,
    width: i64,
) -> *mut SpmmPlan {
    noted(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let matrix = unsafe { matrix.as_ref() }.ok_or("the matrix is null")?;
        let device = Device::cuda(u32::try_from(gpu)?)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { Stream::from_raw(&device, stream)? };
        let width = usize::try_from(width)?;
        // SAFETY: the caller's promise, and the bits say which types there are.
        let plan = unsafe {
            match (matrix.index_bits, matrix.value_bits) {
                (32, 16) => plan_of::<i32, f16>(&device, &stream, matrix, width),
                (64, 16) => plan_of::<i64, f16>(&device, &stream, matrix, width),
                (32, 32) => plan_of::<i32, f32>(&device, &stream, matrix, width),
                (64, 32) => plan_of::<i64, f32>(&device, &stream, matrix, width),
                (index, value) => Err(format!("indices of {index} and values of {value} bits").into()),
            }?
        };
        Ok(Box::into_raw(Box::new(plan)))
    })
}

/// # Safety
/// The arrays are of these types and as long as the matrix says, and live until the work of the stream is done.
unsafe fn plan_of<I: windrow::Index, T: Element>(
    device: &Device,
    stream: &Stream,
    matrix: &TorchCsr,
    width: usize,
) -> Outcome<SpmmPlan> {
    let shape = (usize::try_from(matrix.rows)?, usize::try_from(matrix.cols)?);
    let TorchCsr { crow_indices: offsets, col_indices: columns, values, .. } = *matrix;
    let addresses = CsrAddresses { offsets, columns, values };
    // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
    let a =
        unsafe { DeviceCsr::<T>::from_raw::<I, I>(device, shape, usize::try_from(matrix.nnz)?, addresses)? };
    let precision = if size_of::<T>() == 2 { Precision::F16 } else { Precision::F32 };
    Ok(Spmm::builder(&a).precision(precision).width(width).build_on(stream)?)
}

/// `C ← alpha·A·B + beta·C`, queued in `stream`; 0, or -1 if it was not.
///
/// # Safety
/// `plan` is one of [`torch_memory_plan`]'s that was not freed; `b` and `c` point to sizes and addresses of tensors of
/// its type that live until the work of the stream is done; the stream is one of PyTorch's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_memory_run(
    plan: *const SpmmPlan,
    stream: *mut c_void,
    alpha: f32,
    b: *const TorchDense,
    beta: f32,
    c: *const TorchDense,
) -> c_int {
    noted(-1, || {
        // SAFETY: the caller's promise.
        let (plan, b, c) = unsafe { (plan.as_ref(), b.as_ref(), c.as_ref()) };
        let (Some(plan), Some(b), Some(c)) = (plan, b, c) else { return Err("null".into()) };
        // SAFETY: the caller's promise.
        unsafe {
            let stream = Stream::from_raw(plan.device(), stream)?;
            match plan.precision() {
                Precision::F16 => run_as::<f16>(plan, &stream, (alpha, b), (beta, c)),
                _ => run_as::<f32>(plan, &stream, (alpha, b), (beta, c)),
            }?;
        }
        Ok(0)
    })
}

/// # Safety
/// As for [`torch_memory_run`].
unsafe fn run_as<T: Element<Sum = f32>>(
    plan: &SpmmPlan,
    stream: &Stream,
    (alpha, b): (f32, &TorchDense),
    (beta, c): (f32, &TorchDense),
) -> Outcome<()> {
    let sizes =
        |of: &TorchDense| Ok::<_, Box<dyn Error>>((usize::try_from(of.rows)?, usize::try_from(of.cols)?));
    let ((b_rows, b_cols), (c_rows, c_cols)) = (sizes(b)?, sizes(c)?);
    // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
    let (b, c) = unsafe {
        (
            DeviceView::<T>::from_raw(plan.device(), b.data, b_rows, b_cols, b_cols)?,
            DeviceViewMut::<T>::from_raw(plan.device(), c.data, c_rows, c_cols, c_cols)?,
        )
    };
    Ok(plan.run_into_on(stream, alpha, b, beta, c)?)
}

/// Frees a plan, after the work that was queued with it.
///
/// # Safety
/// `plan` is null, or one of [`torch_memory_plan`]'s that was not freed, and no graph with it is launched any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_memory_free(plan: *mut SpmmPlan) {
    noted((), || {
        if !plan.is_null() {
            // SAFETY: made by `Box::into_raw`, and freed only here.
            drop(unsafe { Box::from_raw(plan) });
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use windrow::DeviceBuffer;

    use super::*;

    fn error() -> String {
        // SAFETY: the text lives until the next call of this thread that fails.
        unsafe { CStr::from_ptr(torch_memory_error()) }.to_string_lossy().into_owned()
    }

    fn matrix(index_bits: i32) -> TorchCsr {
        let (rows, cols, nnz) = (2, 2, 2);
        let [crow_indices, col_indices, values] = [0; 3];
        TorchCsr { rows, cols, nnz, crow_indices, col_indices, values, index_bits, value_bits: 32 }
    }

    #[test]
    fn what_is_wrong_is_told_and_a_panic_ends_here() {
        // SAFETY: null is refused before anything is read.
        unsafe {
            assert!(torch_memory_plan(0, ptr::null_mut(), ptr::null(), 1).is_null());
            assert_eq!(error(), "the matrix is null");
            assert!(torch_memory_plan(-1, ptr::null_mut(), &matrix(32), 1).is_null());
            assert!(error().contains("out of range"), "{}", error());
            assert_eq!(
                torch_memory_run(ptr::null(), ptr::null_mut(), 1.0, ptr::null(), 0.0, ptr::null()),
                -1
            );
            assert_eq!(error(), "null");
            torch_memory_free(ptr::null_mut());
        }
        assert_eq!(noted(7, || panic!("of {} things", 3)), 7);
        assert_eq!(error(), "panic: of 3 things");
        assert_eq!(noted(7, || Ok(8)), 8);
    }

    #[test]
    fn a_product_by_addresses() {
        let device = match Device::cuda(0) {
            Ok(device) => device,
            Err(error) => return windrow_testkit::announce_skip("torch_memory", 1, &error.to_string()),
        };
        let offsets = DeviceBuffer::from_slice(&device, &[0i64, 1, 2]).expect("memory");
        let columns = DeviceBuffer::from_slice(&device, &[1i64, 0]).expect("memory");
        let values = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0]).expect("memory");
        let b = DeviceBuffer::from_slice(&device, &[1.0f32, 10.0]).expect("memory");
        let c = DeviceBuffer::from_slice(&device, &[f32::NAN; 2]).expect("memory");
        device.synchronize().expect("uploads"); // the legacy stream knows nothing of them
        let dense = |of: &DeviceBuffer<f32>| TorchDense { rows: 2, cols: 1, data: of.address() };
        let a = TorchCsr {
            crow_indices: offsets.address(),
            col_indices: columns.address(),
            values: values.address(),
            ..matrix(64)
        };
        // SAFETY: sizes and addresses of live arrays; null is the legacy default stream.
        unsafe {
            let plan = torch_memory_plan(0, ptr::null_mut(), &raw const a, 1);
            assert!(!plan.is_null(), "{}", error());
            let (b, of_c) = (dense(&b), dense(&c));
            let run = torch_memory_run(plan, ptr::null_mut(), 1.0, &raw const b, 0.0, &raw const of_c);
            assert_eq!(run, 0, "{}", error());
            Stream::from_raw(&device, ptr::null_mut())
                .and_then(|stream| stream.synchronize())
                .expect("the work");
            torch_memory_free(plan);
        }
        assert_eq!(c.to_vec().expect("C"), [20.0, 3.0]);
    }
}

//! Libraries to compare with: cuSPARSE and cuBLAS, loaded at run time where they are, and on the CPU the crate `sprs`
//! (feature `sprs`).
//!
//! Nothing here is needed to build or to run windrow. A library that is missing, or lacks a function, is an error
//! value that says so ([`BenchError::Absent`]), found out before anything of it is called.

mod algorithm;
mod cublas;
mod cusparse;
mod cusparse_sddmm;
mod cusparse_spmv;
mod operands;
#[cfg(feature = "sprs")]
mod sprs;

pub use algorithm::CsrAlgorithm;
pub use cublas::CuBlas;
pub(crate) use cublas::DenseMath;
pub use cusparse::{CuSparse, CuSparseSpmm};
pub(crate) use cusparse_spmv::VectorAlgorithm;
pub use operands::DeviceCsr;
#[cfg(feature = "sprs")]
pub use sprs::SprsSpmm;

use crate::measure::error::BenchError;

/// Checks that a library can be loaded and has the functions that will be called: the bindings panic otherwise.
fn require(
    library: &'static str,
    present: bool,
    has_function: impl Fn(&str) -> bool,
    functions: &[&str],
) -> Result<(), BenchError> {
    let absent = |reason| Err(BenchError::Absent { library, reason });
    if !present {
        let file = library.to_ascii_lowercase();
        return absent(format!(
            "no lib{file}.so, nor one with a version of CUDA 12 behind the name, could be loaded; install it, or \
             name its folder in LD_LIBRARY_PATH (/usr/local/cuda/lib64 where the toolkit is)"
        ));
    }
    match functions.iter().find(|function| !has_function(function)) {
        Some(function) => absent(format!("it has no function {function}; install that of CUDA 12 or 13")),
        None => Ok(()),
    }
}

/// A call's status as an error.
fn called<S: PartialEq + std::fmt::Debug>(
    call: &'static str,
    status: S,
    success: &S,
) -> Result<(), BenchError> {
    if status == *success { Ok(()) } else { Err(BenchError::Library { call, status: format!("{status:?}") }) }
}

/// A number as an interface with signed 32-bit sizes takes it.
fn signed(library: &'static str, what: &'static str, found: usize) -> Result<i32, BenchError> {
    let limit = u64::from(i32::MAX.unsigned_abs());
    i32::try_from(found).map_err(|_| BenchError::TooLarge { what, found: found as u64, limit, library })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let message = |present, known: &'static str| {
            let functions = ["cusparseCreate", "cusparseSpMM"];
            require("cuSPARSE", present, |function| known.contains(function), &functions)
                .map_err(|e| e.to_string())
        };
        assert_eq!(message(true, "cusparseCreate cusparseSpMM"), Ok(()));
        let no_library = message(false, "").unwrap_err();
        assert!(no_library.starts_with("cuSPARSE is not available: no libcusparse.so"), "{no_library}");
        let no_function = message(true, "cusparseCreate").unwrap_err();
        assert!(no_function.contains("no function cusparseSpMM;"), "{no_function}");
    }

    #[test]
    fn statuses_become_errors() {
        assert!(called("f", 0, &0).is_ok());
        assert_eq!(called("f", Some(3), &None).unwrap_err().to_string(), "f failed: Some(3)");
        assert_eq!(signed("cuBLAS", "rows", 7).unwrap(), 7);
        let error = signed("cuBLAS", "rows", 1 << 31).unwrap_err().to_string();
        assert!(error.starts_with("2147483648 rows are more than the 2147483647 that cuBLAS"), "{error}");
    }
}

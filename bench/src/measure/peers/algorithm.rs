//! cuSPARSE's algorithms, by name.

use std::fmt;

use cudarc::cusparse::sys as cs;

/// cuSPARSE's algorithms for CSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsrAlgorithm {
    /// `CUSPARSE_SPMM_CSR_ALG1`, made for column-major operands.
    Alg1,
    /// `CUSPARSE_SPMM_CSR_ALG2`, made for row-major operands.
    Alg2,
    /// `CUSPARSE_SPMM_CSR_ALG3`, which balances by entries and lives on its preprocessing.
    Alg3,
}

impl CsrAlgorithm {
    /// The three algorithms of cuSPARSE for CSR.
    pub const ALL: [Self; 3] = [Self::Alg1, Self::Alg2, Self::Alg3];

    /// Those for row-major operands: `CSR_ALG1` takes up to ten times as long on them and was never the quickest.
    pub(crate) const ROW_MAJOR: [Self; 2] = [Self::Alg2, Self::Alg3];

    pub(super) fn raw(self) -> cs::cusparseSpMMAlg_t {
        match self {
            Self::Alg1 => cs::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG1,
            Self::Alg2 => cs::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2,
            Self::Alg3 => cs::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG3,
        }
    }
}

impl fmt::Display for CsrAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alg1 => "CSR_ALG1",
            Self::Alg2 => "CSR_ALG2",
            Self::Alg3 => "CSR_ALG3",
        })
    }
}

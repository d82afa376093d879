//! windrow's measuring harness: [`measure`], a library of verified timings, and the suites of the program
//! `windrow-bench`.
//!
//! ```console
//! $ windrow-bench spmm ct2010.mtx.gz --synthetic rmat17 --widths 32,128 --out spmm.jsonl
//! $ windrow-bench spmm --summarise spmm.jsonl
//! $ windrow-bench --help
//! ```
//!
//! | suite | measures |
//! | --- | --- |
//! | `spmm` | sparse-dense products: matrices × widths × paths, beside cuSPARSE and cuBLAS, or `sprs` on the CPU |
//! | `sddmm` | sampled products: patterns × inner dimensions × paths, beside cuSPARSE |
//! | `nm` | products with N:M weights, beside cuBLAS's dense ones |
//! | `tensor` | MTTKRP and TTM of sparse tensors, beside atomic additions |
//! | `ablation` | what each component of a hybrid is worth |
//! | `preprocess` | plans made on the CPU and on the GPU |
//! | `plans` | plans of matrices that are on the device, in products, and first products beside cuSPARSE |
//! | `tuned` | the quickest way to each product; `--tree` and `--fit` for the default's decision tree |
//!
//! Every case is one line of JSON, written when it is measured; a case that fails has its error in its line and ends
//! nothing. `--resume` goes on where a file of lines ends; `compare`, `csv`, `plot` and `report` read the lines of any
//! suite. No time is reported for a result that is not within its error bound.
//!
//! The same families have criterion suites, with plots in `target/criterion/report/index.html`, on any device:
//!
//! ```console
//! $ cargo bench -p windrow-bench                                  # the first GPU, or the CPU
//! $ WINDROW_DEVICE=cuda:1 cargo bench -p windrow-bench -- sddmm   # cases whose names hold "sddmm", on the second GPU
//! ```

mod compare;
pub mod measure;
#[cfg(feature = "pictures")]
mod page;
#[cfg(feature = "pictures")]
mod plot;
mod program;
mod reading;
mod suites;

#[cfg(test)]
mod gpu_tests;

pub use program::main;

//! Formats, and their readers and writers: a file a subject.

mod common;
mod csf3;
mod csr;
mod fuzz;
mod io_bad_input;
mod io_matrix_market;
mod io_npz;
mod io_other_text;
mod io_permutation;
mod io_round_trip;
mod io_support;
mod io_tns;
mod io_vector_nm;
mod models;
mod permutation;
mod real_matrices;
mod rs_tile;
mod vector_nm;

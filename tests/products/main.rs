//! Products, plans and models on every device: the CPU, the emulator under its schedules, a GPU if there is one.
//!
//! A file a subject: `cargo test --test products sddmm::`.

mod beyond_u32;
mod common;
mod determinism;
mod device_csr;
mod device_faults;
mod device_groups;
mod device_hybrids;
mod device_lost;
mod device_paths;
mod device_sddmm;
mod device_softmax;
mod device_transpose;
mod double_precision;
#[path = "../../host/examples/common/mod.rs"]
mod example;
mod files;
mod fuzz;
mod gnn;
mod matricized_rows;
mod memory_limits;
mod merge_path;
mod nm_instances;
mod nm_on_device;
mod nm_spmm;
mod numbered_examples;
mod precisions;
mod predicted;
mod preprocessing;
mod promises;
mod pruned_mlp;
mod refused_csr;
mod reorder_on_device;
mod row_softmax;
mod sddmm;
mod segment_groups;
mod spmm_kernels;
mod spmm_plan;
mod spmm_values;
mod spmm_variants;
mod spmm_vectors;
mod stream_subjects;
mod streams;
mod streams_families;
mod streams_gpu;
mod streams_stress;
mod streams_training;
mod subjects;
mod tensor_products;
mod training;
mod verify;
mod workspaces;

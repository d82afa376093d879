//! The built command, run on files: what it prints, and with which code it ends.

mod attention;
mod convert;
mod dense;
mod doctor;
mod doubles;
mod files;
mod generate;
mod info;
#[cfg(unix)]
mod interrupt;
mod memory;
mod nm;
mod output;
mod outputs;
mod prune;
mod reorder;
mod run;
mod sddmm;
mod spmm;
mod spy;
mod tensor;
mod trust;
mod tune;
mod usage;
mod verify;
#[cfg(unix)]
mod whole;

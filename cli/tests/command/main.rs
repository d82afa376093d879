//! The built command, run on files: what it prints, and with which code it ends.

mod convert;
mod doctor;
mod files;
mod generate;
mod info;
mod output;
mod run;
mod spmm;
mod usage;
mod verify;

//! The emulator: what it reports, and what its matrix operations compute.
#![cfg(feature = "emulator")]

mod litmus;
mod matrix;
mod warpgroup;

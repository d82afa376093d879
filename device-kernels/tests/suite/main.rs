//! The kernels' building blocks, and kernels at the ends of their ranges, on the emulator.

mod elements;
mod extremes;

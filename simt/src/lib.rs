//! What one GPU thread may do, as a trait.
//!
//! A kernel is an ordinary Rust function, generic over [`Simt`]. It never names an instruction, an
//! intrinsic or an address space by hand; it calls the trait. Two machines implement it:
//!
//! - `ptx` (only when compiling for `nvptx64-nvidia-cuda`): every method is one or a few PTX
//!   instructions, inlined; the only place in windrow with `asm!` and GPU intrinsics;
//! - `emulator` (feature `emulator`): runs whole grids on the CPU, thread by thread, and reports
//!   what a GPU would silently get wrong: accesses out of bounds or misaligned, reads of shared
//!   memory that nobody wrote, races inside a barrier phase, collectives that not all lanes reach,
//!   and `cp.async` data used before its wait.
//!
//! Vocabulary: a *thread* has a *lane* in its *warp* of 32 and belongs to a *block*; blocks form the
//! *grid*. Shared memory is addressed by byte offsets (`u32`) into the block's dynamic allocation;
//! global memory by typed [`GlobalPtr`]s. Which matrix element sits in which lane's register is
//! written down once, in [`fragment`].
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics, abi_unadjusted),
    expect(internal_features, reason = "LLVM's convergent intrinsics have no stable spelling")
)]

pub mod fragment;
mod machine;
mod pointer;
mod warpgroup;

#[cfg(all(feature = "emulator", not(target_arch = "nvptx64")))]
pub mod emulator;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;

pub use machine::{Simt, WARP};
pub use pointer::{GlobalPtr, Word};
pub use warpgroup::{
    BoxedMatrix, HalfElement, OperandLayout, SharedOperand, Swizzle, TensorMap, WARPGROUP, WarpgroupSums,
};

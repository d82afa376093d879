//! What the crate that defines entry points writes in them, and what every module of PTX must have.

use core::arch::nvptx;

/// Declares the block's dynamic shared memory, to which [`Simt`](crate::Simt)'s byte offsets refer; its size is
/// the launch's. The crate that defines the entry points writes it once: a declaration in assembly
/// belongs to the module that is compiled, so it cannot live in this crate.
#[macro_export]
macro_rules! declare_shared_memory {
    () => {
        // Patterns of mixed pieces begin at multiples of 1024 bytes.
        #[cfg(target_feature = "sm_90a")]
        core::arch::global_asm!(".extern .shared .align 1024 .b8 windrow_shared[];");
        #[cfg(not(target_feature = "sm_90a"))]
        core::arch::global_asm!(".extern .shared .align 128 .b8 windrow_shared[];");
    };
}

/// The address of the params of the entry point with this name, in which it stands: of where the launch has put them,
/// since the copy engine reads tensor maps there and in no copy.
#[macro_export]
macro_rules! address_of_params {
    ($entry:ident) => {{
        let address: u64;
        // SAFETY: takes an address; no memory, no other lane. Params are named so in PTX.
        unsafe {
            core::arch::asm!(
                concat!("cvta.param.u64 {0}, ", stringify!($entry), "_param_0;"),
                out(reg64) address, options(pure, nomem, nostack)
            );
        }
        address
    }};
}

/// Programmatic dependent launch, from `sm_90` on: waits until the launch before has completed and its writes are
/// visible. An entry that touches no memory before this lets the host allow a launch to begin as soon as the blocks
/// of the one before have exited. For older architectures, and without the host's leave, it does nothing.
///
/// A macro, because only the crate that defines the entry points is compiled for its module's architecture.
#[macro_export]
macro_rules! await_launch_before {
    () => {
        #[cfg(target_feature = "sm_90")]
        // SAFETY: only waits. Not marked `nomem`: no access moves before it.
        unsafe {
            core::arch::asm!("griddepcontrol.wait;", options(nostack));
        }
    };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the kernel; no kernel reaches it, and the build refuses PTX that could.
    unsafe { nvptx::trap() }
}

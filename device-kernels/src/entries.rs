//! Entry points: what becomes of the [`table`], which the device build, the host and the tests read.

use windrow_simt::Simt;

use crate::kernel::{Entry, Kernel};
use crate::variant::Variant;

#[cfg(target_arch = "nvptx64")]
macro_rules! entry_point {
    // A condition of the compiler cannot depend on `Kernel::ARCH`, which says the same.
    (Sm80, $name:ident, $kernel:ty) => {
        #[cfg(not(target_feature = "sm_90a"))]
        entry_point!($name, $kernel);
    };
    (Sm90, $name:ident, $kernel:ty) => {
        #[cfg(all(target_feature = "sm_90", not(target_feature = "sm_90a")))]
        entry_point!($name, $kernel);
    };
    (Sm90a, $name:ident, $kernel:ty) => {
        #[cfg(target_feature = "sm_90a")]
        entry_point!($name, $kernel, windrow_simt::address_of_params!($name));
    };
    ($name:ident, $kernel:ty) => {
        entry_point!($name, $kernel, 0);
    };
    ($name:ident, $kernel:ty, $params_at:expr) => {
        /// Entry point of the PTX; see the kernel's own documentation.
        ///
        /// # Safety
        /// Started by a launch that keeps the obligations of the params.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "ptx-kernel" fn $name(params: <$kernel as Kernel>::Params) {
            // Blocks do not let the next launch in before they exit (`griddepcontrol.launch_dependents`): its
            // blocks then take places as these come free, and gather up to 15 % slower (rmat17), 1 to 6 %
            // faster only where memory is the limit (roads, batches of small graphs).
            windrow_simt::await_launch_before!();
            // SAFETY: the launch's promise.
            unsafe { <$kernel>::run(&Ptx::new($params_at), &params) }
        }
    };
}

// By the architecture that entries are compiled from, their family and their module: the file of PTX that holds them.
// What a driver is to compile together lies in one module: entries of one type that one plan may use. Where they
// take it longest, every entry has a module of its own.
macro_rules! entries {
    ($(@from $arch:ident: $($family:ident { $($module:ident { $($name:ident => $kernel:ty,)+ })+ })*)+) => {
        /// Every entry point of the PTX.
        pub const ENTRIES: &[Entry] = &[
            $($($($(
                Entry::of::<$kernel>(stringify!($name), Family::$family, stringify!($module)),
            )+)+)*)+
        ];
        const _: () = {
            $($($($(
                assert!(
                    matches!(<$kernel>::ARCH, Arch::$arch),
                    concat!(stringify!($name), " is not in the section of its architecture")
                );
            )+)+)*)+
        };

        /// The body of an entry for machine `S`, which takes the bytes of its params: how the
        /// emulator runs an entry that it knows by name only. `None` for an unknown name.
        ///
        /// # Safety of the function returned
        /// The bytes are the entry's params, `params_bytes` of them, and keep its obligations.
        #[must_use]
        pub fn body<S: Simt>(name: &str) -> Option<unsafe fn(&S, &[u8])> {
            match name {
                $($($($(stringify!($name) => Some(run_bytes::<S, $kernel>),)+)+)*)+
                _ => None,
            }
        }

        #[cfg(target_arch = "nvptx64")]
        mod device {
            use super::*;
            use windrow_simt::ptx::Ptx;

            windrow_simt::declare_shared_memory!();

            $($($($(entry_point!($arch, $name, $kernel);)+)+)*)+
        }
    };
}

mod table;

pub use table::{ENTRIES, body};

/// # Safety
/// See [`body`].
unsafe fn run_bytes<S: Simt, K: Kernel>(s: &S, params: &[u8]) {
    let params = bytemuck::pod_read_unaligned::<K::Params>(params);
    // SAFETY: the caller of [`body`] promises the obligations of these params.
    unsafe { K::run(s, &params) }
}

/// The entry with this key, if there is one.
#[must_use]
pub fn entry(variant: Variant) -> Option<&'static Entry> {
    ENTRIES.iter().find(|e| e.variant == variant)
}

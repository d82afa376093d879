//! Entry points: what becomes of the tables, one a family, which the device build, the host and the tests read.

use windrow_simt::Simt;

use crate::arch::Arch;
use crate::kernel::{Entry, Kernel};
use crate::variant::Variant;

/// How machine `S` runs an entry, given the bytes of its params.
type Body<S> = unsafe fn(&S, &[u8]);

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
        pub(super) unsafe extern "ptx-kernel" fn $name(params: <$kernel as $crate::Kernel>::Params) {
            // Blocks do not let the next launch in before they exit (`griddepcontrol.launch_dependents`): its
            // blocks then take places as these come free, and gather up to 15 % slower (rmat17), 1 to 6 %
            // faster only where memory is the limit (roads, batches of small graphs).
            windrow_simt::await_launch_before!();
            // SAFETY: the launch's promise.
            unsafe { <$kernel as $crate::Kernel>::run(&windrow_simt::ptx::Ptx::new($params_at), &params) }
        }
    };
}

// The table of a family: by the architecture that entries are compiled from, and their module, the file of PTX that
// holds them. What a driver is to compile together lies in one module: entries of one type that one plan may use. Where
// they take it longest, every entry has a module of its own.
macro_rules! entries {
    ($family:ident: $(@from $arch:ident: $($module:ident { $($name:ident => $kernel:ty,)+ })+)+) => {
        /// The entry points of the family.
        pub(super) const ENTRIES: &[$crate::Entry] = &[
            $($($(
                $crate::Entry::of::<$kernel>(
                    stringify!($name),
                    $crate::Family::$family,
                    stringify!($module),
                ),
            )+)+)+
        ];
        const _: () = {
            $($($(
                assert!(
                    matches!(<$kernel as $crate::Kernel>::ARCH, $crate::Arch::$arch),
                    concat!(stringify!($name), " is not in the section of its architecture")
                );
            )+)+)+
        };

        /// What [`body`](super::body) returns for an entry of the family.
        pub(super) fn body<S: windrow_simt::Simt>(name: &str) -> Option<super::Body<S>> {
            match name {
                $($($(stringify!($name) => Some(super::run_bytes::<S, $kernel>),)+)+)+
                _ => None,
            }
        }

        #[cfg(target_arch = "nvptx64")]
        mod device {
            #[allow(unused_imports, reason = "a family may have no entries of an architecture")]
            use super::*;

            $($($(entry_point!($arch, $name, $kernel);)+)+)+
        }
    };
}

// The tables, in the order of their entries.
macro_rules! tables {
    ($($table:ident),+) => {
        $(mod $table;)+

        const TABLES: &[&[Entry]] = &[$($table::ENTRIES),+];

        /// The body of an entry for machine `S`, which takes the bytes of its params: how the
        /// emulator runs an entry that it knows by name only. `None` for an unknown name.
        ///
        /// # Safety of the function returned
        /// The bytes are the entry's params, `params_bytes` of them, and keep its obligations.
        #[must_use]
        pub fn body<S: Simt>(name: &str) -> Option<Body<S>> {
            [$($table::body::<S>),+].into_iter().find_map(|body| body(name))
        }
    };
}

tables!(spmm, tensor, sddmm, softmax, attention, aggregate, nm, training, preprocess, check, probe);

/// [`body`] for the emulator. All kernels are compiled here, once, and not again in each crate that runs them there.
///
/// # Safety of the function returned
/// That of what [`body`] returns.
#[cfg(all(feature = "emulator", not(target_arch = "nvptx64")))]
#[must_use]
pub fn emulated<'t>(name: &str) -> Option<Body<windrow_simt::emulator::Thread<'t>>> {
    body(name)
}

#[cfg(target_arch = "nvptx64")]
windrow_simt::declare_shared_memory!();

/// Every entry point of the PTX: those of the first architecture family by family, then those of the next.
pub const ENTRIES: &[Entry] = &all();

const COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < TABLES.len() {
        count += TABLES[table].len();
        table += 1;
    }
    count
};

const fn all() -> [Entry; COUNT] {
    let mut all = [TABLES[0][0]; COUNT];
    let (mut count, mut arch) = (0, 0);
    while arch < Arch::ALL.len() {
        let mut table = 0;
        while table < TABLES.len() {
            let mut at = 0;
            while at < TABLES[table].len() {
                let entry = TABLES[table][at];
                if entry.arch as u8 == Arch::ALL[arch] as u8 {
                    all[count] = entry;
                    count += 1;
                }
                at += 1;
            }
            table += 1;
        }
        arch += 1;
    }
    assert!(count == COUNT, "an entry of an architecture that is not in Arch::ALL");
    all
}

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

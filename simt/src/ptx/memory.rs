//! Loads and stores, one instruction per word size.
//!
//! A [`Word`] has 2, 4, 8 or 16 bytes; the size is a constant of the instance, so of each `match`
//! below one arm remains. Rust sees addresses as integers and LLVM cannot tell their space, so the
//! space is spelled in the instruction; a plain dereference would become a slower generic access.

use core::arch::asm;
use core::mem::transmute_copy;

use crate::pointer::Word;

/// Shared-window address of byte `offset` of the block's dynamic shared memory.
#[inline(always)]
pub(super) fn shared(offset: u32) -> u32 {
    let base: u32;
    // SAFETY: takes the address of the symbol that `declare_shared_memory!` defines.
    unsafe {
        asm!("mov.u32 {0}, windrow_shared;", out(reg32) base, options(pure, nomem, nostack));
    }
    base + offset
}

/// Defines a load: `asm` text around the width, for each word size.
macro_rules! loader {
    ($(#[$doc:meta])* $name:ident, $address:ty, $class:ident, $instruction:literal, [$($option:ident),*]) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) unsafe fn $name<T: Word>(address: $address) -> T {
            // SAFETY: the caller has the address in bounds and aligned for `T`; each arm reads `size_of::<T>()` bytes
            // and reinterprets as many, which any bits are valid for, since `T` is a `Word`.
            unsafe {
                match size_of::<T>() {
                    2 => {
                        let word: u16;
                        asm!(concat!($instruction, ".b16 {0}, [{1}];"), out(reg16) word, in($class) address, options($($option),*));
                        transmute_copy(&word)
                    }
                    4 => {
                        let word: u32;
                        asm!(concat!($instruction, ".b32 {0}, [{1}];"), out(reg32) word, in($class) address, options($($option),*));
                        transmute_copy(&word)
                    }
                    8 => {
                        let (a, b): (u32, u32);
                        asm!(concat!($instruction, ".v2.b32 {{{0}, {1}}}, [{2}];"), out(reg32) a, out(reg32) b, in($class) address, options($($option),*));
                        transmute_copy(&[a, b])
                    }
                    _ => {
                        let (a, b, c, d): (u32, u32, u32, u32);
                        asm!(concat!($instruction, ".v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];"), out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in($class) address, options($($option),*));
                        transmute_copy(&[a, b, c, d])
                    }
                }
            }
        }
    };
}

/// Defines a load of four matrices of 8 × 8 elements of 16 bits, of whose rows each lane has one address.
macro_rules! matrix_loader {
    ($name:ident, $instruction:literal) => {
        /// # Safety
        /// The address is as [`Simt::load_matrix_x4`](crate::Simt::load_matrix_x4) asks, and all lanes are here.
        #[inline(always)]
        pub(super) unsafe fn $name(row_address: u32) -> [u32; 4] {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    concat!($instruction, " {{{0}, {1}, {2}, {3}}}, [{4}];"),
                    out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row_address,
                    options(nostack)
                );
            }
            [a, b, c, d]
        }
    };
}

/// Defines a store: `asm` text around the width, for each word size.
macro_rules! storer {
    ($(#[$doc:meta])* $name:ident, $address:ty, $class:ident, $instruction:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) unsafe fn $name<T: Word>(address: $address, value: T) {
            // SAFETY: the caller has the address in bounds and aligned for `T`; each arm stores `size_of::<T>()` bytes.
            unsafe {
                match size_of::<T>() {
                    2 => {
                        let word: u16 = transmute_copy(&value);
                        asm!(concat!($instruction, ".b16 [{0}], {1};"), in($class) address, in(reg16) word, options(nostack));
                    }
                    4 => {
                        let word: u32 = transmute_copy(&value);
                        asm!(concat!($instruction, ".b32 [{0}], {1};"), in($class) address, in(reg32) word, options(nostack));
                    }
                    8 => {
                        let [a, b]: [u32; 2] = transmute_copy(&value);
                        asm!(concat!($instruction, ".v2.b32 [{0}], {{{1}, {2}}};"), in($class) address, in(reg32) a, in(reg32) b, options(nostack));
                    }
                    _ => {
                        let [a, b, c, d]: [u32; 4] = transmute_copy(&value);
                        asm!(concat!($instruction, ".v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};"), in($class) address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack));
                    }
                }
            }
        }
    };
}

loader!(
    /// # Safety
    /// The address is as [`Simt::load`](crate::Simt::load) asks.
    load, u64, reg64, "ld.global", [readonly, nostack]
);
loader!(
    /// # Safety
    /// The address is as [`Simt::load_readonly`](crate::Simt::load_readonly) asks.
    load_readonly, u64, reg64, "ld.global.nc", [pure, readonly, nostack]
);
loader!(
    /// # Safety
    /// The address is as [`Simt::load_readonly_once`](crate::Simt::load_readonly_once) asks.
    load_readonly_once, u64, reg64, "ld.global.nc.L1::no_allocate", [pure, readonly, nostack]
);
loader!(
    /// # Safety
    /// The address is as [`Simt::load_shared`](crate::Simt::load_shared) asks.
    load_shared, u32, reg32, "ld.shared", [readonly, nostack]
);
storer!(
    /// # Safety
    /// The address is as [`Simt::store`](crate::Simt::store) asks.
    store, u64, reg64, "st.global"
);
storer!(
    /// # Safety
    /// The address is as [`Simt::store_streaming`](crate::Simt::store_streaming) asks.
    store_streaming, u64, reg64, "st.global.cs"
);
storer!(
    /// # Safety
    /// The address is as [`Simt::store_shared`](crate::Simt::store_shared) asks.
    store_shared, u32, reg32, "st.shared"
);

matrix_loader!(load_matrix_x4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16");
matrix_loader!(load_matrix_x4_trans, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");

/// # Safety
/// The address is as [`Simt::store_matrix_x4_trans`](crate::Simt::store_matrix_x4_trans) asks, and all lanes are here.
#[inline(always)]
pub(super) unsafe fn store_matrix_x4_trans(row_address: u32, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [{0}], {{{1}, {2}, {3}, {4}}};",
            in(reg32) row_address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack)
        );
    }
}

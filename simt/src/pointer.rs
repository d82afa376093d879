//! Typed addresses of global memory, and the words that one access may move.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

/// An address in global memory, of elements of type `T`.
///
/// It is a plain number (`%rd` in PTX, an address of the emulator's arena on the CPU), so that one
/// argument struct serves the host, the device and the emulator. Arithmetic never checks; accesses
/// go through [`Simt`](crate::Simt), where the emulator checks every one of them.
#[repr(transparent)]
pub struct GlobalPtr<T> {
    address: u64,
    element: PhantomData<T>,
}

// Hand-written, because a derive would ask the same of `T`.
impl<T> Clone for GlobalPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for GlobalPtr<T> {}
impl<T> PartialEq for GlobalPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<T> Eq for GlobalPtr<T> {}
impl<T> core::fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

// SAFETY: `repr(transparent)` over a `u64`; `PhantomData` has no bytes. All zeros is the null pointer.
unsafe impl<T> Zeroable for GlobalPtr<T> {}
// SAFETY: `repr(transparent)` over a `u64`: no padding, every bit pattern is an address, no interior mutability.
unsafe impl<T: 'static> Pod for GlobalPtr<T> {}

impl<T> GlobalPtr<T> {
    /// The null pointer: what an argument that a kernel does not use is set to.
    pub const NULL: Self = Self::from_address(0);

    /// A pointer to `address`, in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn from_address(address: u64) -> Self {
        Self { address, element: PhantomData }
    }

    /// The address in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// The element `index` places on. One widening multiply-add on the GPU.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, index: u32) -> Self {
        self.at_wide(index as u64)
    }

    /// The element `index` places on, for an index that may pass 2³².
    #[inline(always)]
    #[must_use]
    pub const fn at_wide(self, index: u64) -> Self {
        Self::from_address(self.address.wrapping_add(index.wrapping_mul(size_of::<T>() as u64)))
    }

    /// The same address, seen as elements of another type.
    #[inline(always)]
    #[must_use]
    pub const fn cast<U>(self) -> GlobalPtr<U> {
        GlobalPtr::from_address(self.address)
    }

    /// The address `bytes` further on, for offsets that are not whole elements.
    #[inline(always)]
    #[must_use]
    pub const fn byte_add(self, bytes: u64) -> Self {
        Self::from_address(self.address.wrapping_add(bytes))
    }
}

/// A value that one load or store moves: 2, 4, 8 or 16 bytes, aligned to its size in memory.
///
/// # Safety
/// `size_of::<Self>()` must be 2, 4, 8 or 16: `ptx` selects the instruction by it.
pub unsafe trait Word: Pod + core::fmt::Debug {
    /// Size and required alignment in bytes.
    const BYTES: u32 = bytes_of_type::<Self>();
}

const fn bytes_of_type<T>() -> u32 {
    let bytes = size_of::<T>();
    assert!(bytes <= 16, "a word has at most 16 bytes");
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    {
        bytes as u32
    }
}

macro_rules! words {
    ($($word:ty),+ $(,)?) => {$(
        // SAFETY: the assertion below is evaluated at compile time.
        unsafe impl Word for $word {}
        const _: () = assert!(matches!(size_of::<$word>(), 2 | 4 | 8 | 16));
    )+};
}
words!(u16, u32, u64, f32, f64, [u32; 2], [u32; 4], [u64; 2], [f32; 2], [f32; 4], [f64; 2]);

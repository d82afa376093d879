//! Hints to the processor of memory that is read or written next.

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Has elements come that are read or written soon; nothing where the processor takes no hints.
pub(crate) fn expect<T>(elements: &[T]) {
    let first: *const u8 = elements.as_ptr().cast();
    for byte in (0..size_of_val(elements)).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        super::x86::prefetch(first.wrapping_add(byte));
        #[cfg(not(target_arch = "x86_64"))]
        let _ = first.wrapping_add(byte);
    }
}

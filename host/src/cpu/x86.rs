//! The vector units of `x86_64`: AVX2 with FMA and F16C, and AVX-512.

use core::arch::x86_64::{
    __m128i, __m256, __m256i, __m512, __mmask16, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _mm_loadu_si128, _mm_prefetch, _mm_set_pd, _mm_sfence, _mm_storeu_si128, _mm_stream_pd, _mm_stream_ps,
    _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castps256_ps128,
    _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mask_storeu_epi16,
    _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_maskz_loadu_epi16, _mm256_mul_ps, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_and_si512, _mm512_castps_si512, _mm512_castps512_ps128, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_extractf32x4_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_mask_mov_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_storeu_ps,
};

use half::{bf16, f16};

use super::vector::{Halves, Vector};
use crate::tf32;

/// Brings the line of `at` nearer, which need not be valid.
#[inline(always)]
pub(super) fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch faults nowhere, and every machine of the target has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Writes eight f64 past the caches; others see them after [`finish_streams`].
///
/// # Safety
/// `to` is valid for eight elements, and a multiple of 16 bytes.
#[inline(always)]
pub(super) unsafe fn stream_doubles(lanes: [f64; 8], to: *mut f64) {
    for i in [0, 2, 4, 6] {
        // SAFETY: the caller's promise; every machine of the target has the instruction.
        unsafe { _mm_stream_pd(to.add(i), _mm_set_pd(lanes[i + 1], lanes[i])) };
    }
}

/// Makes what this thread has streamed visible to those that it synchronises with.
#[inline(always)]
pub(super) fn finish_streams() {
    // SAFETY: every machine of the target has it.
    unsafe { _mm_sfence() }
}

/// Eight lanes of f32 in a register of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

/// The first lanes of eight: all bits set in each for the f32 instructions, and how many for the copies
/// that stand in for f16 ones.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Mask {
    lanes: __m256i,
    count: usize,
}

impl Vector for Avx2 {
    type Scalar = f32;
    const LANES: usize = 8;
    type Mask = Avx2Mask;

    #[inline(always)]
    unsafe fn mask(count: usize) -> Avx2Mask {
        // Eight words from here on begin with `count` of −1.
        const WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        let from = &WINDOW[8 - count.min(8)..][..8];
        // SAFETY: eight words, of a machine with the unit.
        Avx2Mask { lanes: unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }, count }
    }
    #[inline(always)]
    fn count(mask: Avx2Mask) -> usize {
        mask.count
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm256_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }
    #[inline(always)]
    unsafe fn multiply(self, factor: Self) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm256_mul_ps(self.0, factor.0) })
    }
    #[inline(always)]
    unsafe fn prefetch<T>(at: *const T) {
        // SAFETY: a prefetch faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: valid for eight elements, as the caller promises.
        Self(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, mask: Avx2Mask) -> Self {
        // SAFETY: lanes outside of the mask are not accessed.
        Self(unsafe { _mm256_maskload_ps(from, mask.lanes) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: valid for eight elements, as the caller promises.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, mask: Avx2Mask) {
        // SAFETY: lanes outside of the mask are not accessed.
        unsafe { _mm256_maskstore_ps(to, mask.lanes, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: valid for eight elements and aligned to four, as the caller promises.
        unsafe {
            _mm_stream_ps(to, _mm256_castps256_ps128(self.0));
            _mm_stream_ps(to.add(4), _mm256_extractf128_ps::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn finish_streams() {
        // SAFETY: the machine has the unit.
        unsafe { _mm_sfence() }
    }
}

impl Halves for Avx2 {
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: valid for eight elements of two bytes, as the caller promises.
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) })
    }
    #[inline(always)]
    unsafe fn load_part_f16(from: *const f16, mask: Avx2Mask) -> Self {
        let mut lanes = [f16::ZERO; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe {
            lanes.as_mut_ptr().copy_from_nonoverlapping(from, mask.count);
            Self::load_f16(lanes.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: valid for eight elements of two bytes, as the caller promises.
        unsafe {
            let halves: __m128i = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm_storeu_si128(to.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn store_part_f16(self, to: *mut f16, mask: Avx2Mask) {
        let mut lanes = [f16::ZERO; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe {
            self.store_f16(lanes.as_mut_ptr());
            to.copy_from_nonoverlapping(lanes.as_ptr(), mask.count);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: valid for eight elements of two bytes, as the caller promises.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn load_part_bf16(from: *const bf16, mask: Avx2Mask) -> Self {
        let mut lanes = [bf16::ZERO; 8];
        // SAFETY: valid for `count ≤ 8` elements, as the caller promises.
        unsafe {
            lanes.as_mut_ptr().copy_from_nonoverlapping(from, mask.count);
            Self::load_bf16(lanes.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn round_tf32(self) -> Self {
        // SAFETY: the machine has the unit.
        unsafe {
            let half = _mm256_set1_epi32(tf32::HALF.cast_signed());
            let kept = _mm256_set1_epi32(tf32::KEPT.cast_signed());
            let rounded = _mm256_and_si256(_mm256_add_epi32(_mm256_castps_si256(self.0), half), kept);
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0);
            Self(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), self.0, nan))
        }
    }
}

/// Sixteen lanes of f32 in a register of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

impl Vector for Avx512 {
    type Scalar = f32;
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn mask(count: usize) -> __mmask16 {
        if count >= 16 { u16::MAX } else { (1 << count) - 1 }
    }
    #[inline(always)]
    fn count(mask: __mmask16) -> usize {
        mask.count_ones() as usize
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }
    #[inline(always)]
    unsafe fn multiply(self, factor: Self) -> Self {
        // SAFETY: the machine has the unit.
        Self(unsafe { _mm512_mul_ps(self.0, factor.0) })
    }
    #[inline(always)]
    unsafe fn prefetch<T>(at: *const T) {
        // SAFETY: a prefetch faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: valid for sixteen elements, as the caller promises.
        Self(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, mask: __mmask16) -> Self {
        // SAFETY: lanes outside of the mask are not accessed.
        Self(unsafe { _mm512_maskz_loadu_ps(mask, from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: valid for sixteen elements, as the caller promises.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, mask: __mmask16) {
        // SAFETY: lanes outside of the mask are not accessed.
        unsafe { _mm512_mask_storeu_ps(to, mask, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: valid for sixteen elements and aligned to four, as the caller promises.
        unsafe {
            _mm_stream_ps(to, _mm512_castps512_ps128(self.0));
            _mm_stream_ps(to.add(4), _mm512_extractf32x4_ps::<1>(self.0));
            _mm_stream_ps(to.add(8), _mm512_extractf32x4_ps::<2>(self.0));
            _mm_stream_ps(to.add(12), _mm512_extractf32x4_ps::<3>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn finish_streams() {
        // SAFETY: the machine has the unit.
        unsafe { _mm_sfence() }
    }
}

impl Halves for Avx512 {
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: valid for sixteen elements of two bytes, as the caller promises.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) })
    }
    #[inline(always)]
    unsafe fn load_part_f16(from: *const f16, mask: __mmask16) -> Self {
        // SAFETY: lanes outside of the mask are not accessed.
        Self(unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())) })
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: valid for sixteen elements of two bytes, as the caller promises.
        unsafe {
            let halves: __m256i = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm256_storeu_si256(to.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn store_part_f16(self, to: *mut f16, mask: __mmask16) {
        // SAFETY: lanes outside of the mask are not accessed.
        unsafe {
            let halves: __m256i = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm256_mask_storeu_epi16(to.cast(), mask, halves);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: valid for sixteen elements of two bytes, as the caller promises.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn load_part_bf16(from: *const bf16, mask: __mmask16) -> Self {
        // SAFETY: lanes outside of the mask are not accessed.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn round_tf32(self) -> Self {
        // SAFETY: the machine has the unit.
        unsafe {
            let half = _mm512_set1_epi32(tf32::HALF.cast_signed());
            let kept = _mm512_set1_epi32(tf32::KEPT.cast_signed());
            let rounded = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(self.0), half), kept);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            Self(_mm512_mask_mov_ps(_mm512_castsi512_ps(rounded), nan, self.0))
        }
    }
}

//! Activations of any layout, brought to the one that products read: k-major, aligned, padded with zeros.
//!
//! ```text
//! A, m × k row-major or k × m    global --rows of 64, as they lie-->  shared (64 k, 64 m), an element a word
//! out, k × ld                    shared --16 bytes a lane-->          global, columns m..ld zero
//! ```
//!
//! On their way to shared memory, elements of 16 bits may be widened to f32, exactly, and f32 rounded to tf32.
//!
//! A block takes 64 rows of `k` and 64 columns of `m`. Rows of the tile in shared memory are 65 words apart: lanes that
//! read along `k` and lanes that write along `m` both find 32 different banks.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP, Word};

use crate::element::{Dtype, Element};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Rows and columns of a block's tile; the leading dimension of the result is a multiple of it.
pub const STAGE_TILE: u32 = 64;
/// Words from one row of the tile to the next.
const PITCH: u32 = STAGE_TILE + 1;

/// Arguments of [`NmStage`]: `out[r, c] ← A[c, r]` for `r < k`, `c < m`, and 0 for `m ≤ c < ld_out`.
///
/// # Obligations
/// - `a`: if `row_major` is not 0 `m × k` with `lda ≥ k`, else `k × m` with `lda ≥ m`; aligned to an element, for the
///   instance with vectors to 16 bytes, and `lda` a multiple of the elements in them.
/// - `out`: `k × ld_out`, 16-byte aligned, `ld_out ≥ m` a multiple of [`STAGE_TILE`]; it does not overlap `a`.
/// - the grid is (`ld_out / STAGE_TILE`, `⌈k / STAGE_TILE⌉`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmStageParams {
    /// The activations, cast to words.
    pub a: GlobalPtr<u32>,
    /// The result, cast to words.
    pub out: GlobalPtr<u32>,
    /// Rows of the activations.
    pub m: u32,
    /// Columns of the activations.
    pub k: u32,
    /// Leading dimension of `a`, in elements.
    pub lda: u32,
    /// Leading dimension of `out`, in elements.
    pub ld_out: u32,
    /// Whether `a` is row-major; else k-major.
    pub row_major: u32,
    /// Zero: `Pod` allows no padding.
    pub padding: u32,
}

/// The elements that are moved, and what they become.
pub trait Moved: 'static {
    /// One element of the source.
    type Bits: Word;
    /// One element of the result.
    type Out: Word;
    /// Elements of the source in 16 bytes.
    const CHUNK: u32;
    /// Elements of the result in 16 bytes.
    const OUT_CHUNK: u32;
    /// The type that becomes f32; none for elements of 16 bits that stay as they are, whatever they mean.
    const WIDENED: Option<Dtype>;
    /// One element as a word of the tile.
    fn widen<S: Simt>(s: &S, bits: Self::Bits) -> u32;
    /// The elements in 16 bytes of the source, a word each; the rest is zero.
    fn split<S: Simt>(s: &S, chunk: [u32; 4]) -> [u32; 8];
    /// 16 bytes of the result, of the first `OUT_CHUNK` words.
    fn join(words: [u32; 8]) -> [u32; 4];
}

/// Elements of 16 bits, as they are.
pub struct Bits16;
/// Elements that become f32, as products take them: of 16 bits widened, those for tf32 rounded.
pub struct Widened<E>(PhantomData<E>);

impl Moved for Bits16 {
    type Bits = u16;
    type Out = u16;
    const CHUNK: u32 = 8;
    const OUT_CHUNK: u32 = 8;
    const WIDENED: Option<Dtype> = None;

    #[inline(always)]
    fn widen<S: Simt>(_: &S, bits: u16) -> u32 {
        u32::from(bits)
    }
    #[inline(always)]
    fn split<S: Simt>(_: &S, [a, b, c, d]: [u32; 4]) -> [u32; 8] {
        [a & 0xffff, a >> 16, b & 0xffff, b >> 16, c & 0xffff, c >> 16, d & 0xffff, d >> 16]
    }
    #[inline(always)]
    fn join(w: [u32; 8]) -> [u32; 4] {
        [w[0] | w[1] << 16, w[2] | w[3] << 16, w[4] | w[5] << 16, w[6] | w[7] << 16]
    }
}

impl<E: Element<Sum = f32>> Moved for Widened<E> {
    type Bits = E::Bits;
    type Out = u32;
    const CHUNK: u32 = E::PER_VECTOR as u32;
    const OUT_CHUNK: u32 = 4;
    const WIDENED: Option<Dtype> = Some(E::DTYPE);

    #[inline(always)]
    fn widen<S: Simt>(s: &S, bits: E::Bits) -> u32 {
        E::widen(s, bits).to_bits()
    }
    #[inline(always)]
    fn split<S: Simt>(s: &S, chunk: [u32; 4]) -> [u32; 8] {
        E::widen_vector(s, chunk).map(f32::to_bits)
    }
    #[inline(always)]
    fn join(w: [u32; 8]) -> [u32; 4] {
        [w[0], w[1], w[2], w[3]]
    }
}

/// One instance: what becomes of elements, and whether `a` is read in 16-byte vectors.
pub struct NmStage<E, const VECTORS: bool>(PhantomData<E>);

impl<E: Moved, const VECTORS: bool> Kernel for NmStage<E, VECTORS> {
    type Params = NmStageParams;
    const FILE: &'static str = "nm";
    const VARIANT: Variant = Variant::NmStage { widened: E::WIDENED, vectors: VECTORS };
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = STAGE_TILE * PITCH * 4;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmStageParams) {
        // 1. Locate. A row of the source is `outer`, what follows itself in memory `inner`.
        let (m0, k0) = (s.block_idx() * STAGE_TILE, s.block_idx_y() * STAGE_TILE);
        let row_major = p.row_major != 0;
        let source = match row_major {
            true => Source { outer0: m0, outer_end: p.m, inner0: k0, inner_end: p.k, pitch: (4, 4 * PITCH) },
            false => Source { outer0: k0, outer_end: p.k, inner0: m0, inner_end: p.m, pitch: (4 * PITCH, 4) },
        };
        // SAFETY: the tile is in shared memory, every word of it is written before the barrier; the source is read
        // inside of its extents; the result's rows below k have `ld_out` columns, which the grid's tiles cover.
        unsafe {
            // 2. Global -> shared: (64 k, 64 m).
            if VECTORS {
                Self::bring_chunks(s, p, &source);
            } else {
                Self::bring_elements(s, p, &source);
            }
            s.sync_block(); // RAW: tile written -> read
            // 5. Shared -> global. A warp writes `OUT_CHUNK` rows of 32 columns at a time.
            let lanes = WARP / E::OUT_CHUNK;
            let (inner, outer) = (s.lane() % lanes, s.lane() / lanes);
            let mut piece = s.warp();
            while piece < STAGE_TILE / E::OUT_CHUNK * 2 {
                let row = piece / 2 * E::OUT_CHUNK + outer;
                let column = piece % 2 * WARP + inner * E::OUT_CHUNK;
                let mut words = [0; 8];
                let mut i = 0;
                while i < E::OUT_CHUNK {
                    words[i as usize] = s.load_shared(4 * (row * PITCH + column + i));
                    i += 1;
                }
                if k0 + row < p.k {
                    let at = u64::from(k0 + row) * u64::from(p.ld_out) + u64::from(m0 + column);
                    s.store(p.out.cast::<E::Out>().at_wide(at).cast(), E::join(words));
                }
                piece += Self::WARPS;
            }
        }
    }
}

/// The tile in the source: rows `outer0..`, of which there are `outer_end`, and likewise elements of a row.
struct Source {
    outer0: u32,
    outer_end: u32,
    inner0: u32,
    inner_end: u32,
    /// Bytes of shared memory from one row of the source to the next, and from one element to the next.
    pitch: (u32, u32),
}

impl<E: Moved, const VECTORS: bool> NmStage<E, VECTORS> {
    const WARPS: u32 = 8;

    /// Sixteen bytes a lane, `CHUNK` rows of 32 elements a warp.
    #[inline(always)]
    unsafe fn bring_chunks<S: Simt>(s: &S, p: &NmStageParams, source: &Source) {
        let lanes = WARP / E::CHUNK;
        let (lane_inner, lane_outer) = (s.lane() % lanes, s.lane() / lanes);
        let mut piece = s.warp();
        while piece < STAGE_TILE / E::CHUNK * 2 {
            let outer = piece / 2 * E::CHUNK + lane_outer;
            let inner = piece % 2 * WARP + lane_inner * E::CHUNK;
            let (row, element) = (source.outer0 + outer, source.inner0 + inner);
            let present = match row < source.outer_end {
                true => source.inner_end.saturating_sub(element),
                false => 0,
            };
            let from = u64::from(row) * u64::from(p.lda) + u64::from(element);
            let from = p.a.cast::<E::Bits>().at_wide(from);
            let mut words = [0; 8];
            // SAFETY: `present` elements of the row are there; a whole chunk is aligned.
            unsafe {
                if present >= E::CHUNK {
                    words = E::split(s, s.load_readonly_once(from.cast::<[u32; 4]>()));
                } else if present > 0 {
                    let mut i = 0;
                    while i < E::CHUNK {
                        if i < present {
                            words[i as usize] = E::widen(s, s.load_readonly(from.at(i)));
                        }
                        i += 1;
                    }
                }
                let to = outer * source.pitch.0 + inner * source.pitch.1;
                let mut i = 0;
                while i < E::CHUNK {
                    s.store_shared(to + i * source.pitch.1, words[i as usize]);
                    i += 1;
                }
            }
            piece += Self::WARPS;
        }
    }

    /// An element a lane, half a row a warp.
    #[inline(always)]
    unsafe fn bring_elements<S: Simt>(s: &S, p: &NmStageParams, source: &Source) {
        let inner = s.warp() % 2 * WARP + s.lane();
        let mut outer = s.warp() / 2;
        while outer < STAGE_TILE {
            let (row, element) = (source.outer0 + outer, source.inner0 + inner);
            let from = u64::from(row) * u64::from(p.lda) + u64::from(element);
            // SAFETY: inside the source; the word is in the tile.
            unsafe {
                let mut word = 0;
                if row < source.outer_end && element < source.inner_end {
                    word = E::widen(s, s.load_readonly(p.a.cast::<E::Bits>().at_wide(from)));
                }
                let to = outer * source.pitch.0 + inner * source.pitch.1;
                s.store_shared(to, word);
            }
            outer += Self::WARPS / 2;
        }
    }
}

#[cfg(test)]
mod tests;

//! Every layout, size and alignment.

use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;
use crate::element::{Bf16, F16, F32, Tf32};

/// Activations `m × k`, an element a number of its own; NaN between rows, which must not be seen.
struct Case {
    m: u32,
    k: u32,
    lda: u32,
    row_major: bool,
}

const GAP: u16 = 0xffff;

fn number(row: u32, column: u32) -> u16 {
    u16::try_from((row * 131 + column) % 65_000 + 1).unwrap()
}

/// The result, for elements made of 16-bit numbers by `element`.
fn run<E: Moved, const VECTORS: bool>(case: &Case, element: impl Fn(u16) -> E::Bits) -> Vec<E::Out>
where
    E::Out: PartialEq,
{
    let (outer, inner) = if case.row_major { (case.m, case.k) } else { (case.k, case.m) };
    assert!(case.lda >= inner);
    let mut held = Vec::new();
    for row in 0..outer {
        held.extend((0..case.lda).map(|at| {
            let (m, k) = if case.row_major { (row, at) } else { (at, row) };
            element(if at < inner { number(m, k) } else { GAP })
        }));
    }
    held.truncate((outer.saturating_sub(1) * case.lda + inner) as usize);
    let ld_out = case.m.next_multiple_of(STAGE_TILE);
    let mut first: Option<Vec<E::Out>> = None;
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let out = memory.alloc_uninit::<E::Out>((case.k * ld_out) as usize);
        let params = NmStageParams {
            a: memory.alloc_from(&held).cast(),
            out: out.cast(),
            m: case.m,
            k: case.k,
            lda: case.lda,
            ld_out,
            row_major: u32::from(case.row_major),
            padding: 0,
        };
        let launch = Launch {
            grid: [ld_out / STAGE_TILE, case.k.div_ceil(STAGE_TILE)],
            block_threads: NmStage::<E, VECTORS>::BLOCK_THREADS,
            shared_bytes: NmStage::<E, VECTORS>::SHARED_BYTES,
            schedule,
        };
        // SAFETY: the parameters keep their obligations.
        let outcome = memory.launch(&launch, |s| unsafe { NmStage::<E, VECTORS>::run(s, &params) });
        outcome.unwrap_or_else(|violation| panic!("{schedule:?}: {violation}"));
        let got = memory.read(out, (case.k * ld_out) as usize).unwrap();
        assert!(first.as_ref().is_none_or(|first| *first == got), "{schedule:?}");
        first = Some(got);
    }
    first.unwrap()
}

#[track_caller]
fn check<E, const VECTORS: bool>(case: &Case, element: impl Fn(u16) -> <E as Moved>::Bits + Copy)
where
    E: Moved<Out = <E as Moved>::Bits>,
    E::Bits: PartialEq,
{
    let ld_out = case.m.next_multiple_of(STAGE_TILE);
    for (at, got) in (0u32..).zip(run::<E, VECTORS>(case, element)) {
        let (k, m) = (at / ld_out, at % ld_out);
        let want = element(if m < case.m { number(m, k) } else { 0 });
        assert!(got == want, "({m}, {k}) of {}x{}: {got:?} instead of {want:?}", case.m, case.k);
    }
}

#[test]
fn every_layout_and_size() {
    for (m, k) in [(1, 1), (64, 64), (65, 63), (130, 20), (7, 200), (100, 129)] {
        for row_major in [true, false] {
            let inner = if row_major { k } else { m };
            for lda in [inner, inner + 3] {
                check::<Bits16, false>(&Case { m, k, lda, row_major }, |x| x);
                check::<Widened<F32>, false>(&Case { m, k, lda, row_major }, u32::from);
            }
            for lda in [inner.next_multiple_of(8), inner.next_multiple_of(8) + 16] {
                check::<Bits16, true>(&Case { m, k, lda, row_major }, |x| x);
                check::<Widened<F32>, true>(&Case { m, k, lda, row_major }, u32::from);
            }
        }
    }
}

#[test]
fn rounding_to_tf32() {
    let case = Case { m: 3, k: 5, lda: 8, row_major: true };
    // The 13 low bits go; the highest of them decides.
    let element = |x: u16| 0x3f80_0000 + u32::from(x);
    for (at, got) in (0u32..).zip(run::<Widened<Tf32>, true>(&case, element)) {
        let (k, m) = (at / STAGE_TILE, at % STAGE_TILE);
        let want = if m < 3 { (element(number(m, k)) + 0x1000) & !0x1fff } else { 0 };
        assert_eq!(got, want, "({m}, {k})");
    }
}

/// Halves widened to f32: what `widened` says of their bits.
#[track_caller]
fn check_widened<E: Element<Bits = u16, Sum = f32>>(widened: impl Fn(u16) -> f32) {
    for (m, k) in [(1, 1), (65, 63), (7, 200)] {
        for row_major in [true, false] {
            let inner = if row_major { k } else { m };
            let unaligned = Case { m, k, lda: inner + 3, row_major };
            let aligned = Case { m, k, lda: inner.next_multiple_of(8) + 8, row_major };
            let ld_out = m.next_multiple_of(STAGE_TILE);
            // Infinities and what is subnormal are among the numbers; what is none stays none.
            let element = |x: u16| x.wrapping_mul(257);
            let got =
                [run::<Widened<E>, false>(&unaligned, element), run::<Widened<E>, true>(&aligned, element)];
            for (at, got) in got.iter().flat_map(|got| (0u32..).zip(got)) {
                let (row, column) = (at / ld_out, at % ld_out);
                let want = if column < m { widened(element(number(column, row))) } else { 0.0 };
                let got = f32::from_bits(*got);
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(same, "({column}, {row}) of {m}x{k}: {got} instead of {want}");
            }
        }
    }
}

#[test]
fn widening_to_f32() {
    check_widened::<F16>(|bits| {
        // The exponent 5 bits, the fraction 10.
        let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, f32::from(bits & 1023));
        let magnitude = match exponent {
            0 => fraction * 2f32.powi(-24),
            31 if fraction == 0.0 => f32::INFINITY,
            31 => f32::NAN,
            _ => (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
        };
        if sign == 1 { -magnitude } else { magnitude }
    });
    check_widened::<Bf16>(|bits| f32::from_bits(u32::from(bits) << 16));
}

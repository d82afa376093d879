//! Tensor Core products and the number formats around them.
//!
//! Products of two 16-bit or tf32 numbers are exact in f64; they and the accumulator are added in f64
//! and rounded to f32 once. Hardware aligns the addends to the largest and truncates, with a width
//! that differs between generations, so the last bits differ from a GPU's.

use half::{bf16, f16};

use crate::emulator::collectives::{OPERANDS, Request};
use crate::emulator::violation::{Checked, Violation};
use crate::fragment;

/// What the A and B operands hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    Bf16,
    Tf32,
}

/// Operands 0 to 3 are A's registers, 4 and 5 B's, 6 to 9 the accumulator's; the result replaces 0 to 3.
pub(super) fn multiply<const K: usize>(requests: &mut [Request], element: Element) {
    let mut a = [[0.0; K]; 16]; // (16, K)
    let mut b = [[0.0; 8]; K]; // (K, 8)
    for (lane, Request { operands, .. }) in (0..).zip(requests.iter()) {
        let (a_registers, b_registers) = (&operands[..4], &operands[4..6]);
        if element == Element::Tf32 {
            let value = |bits: u32| f64::from(f32::from_bits(bits & TF32_BITS));
            for (r, &bits) in (0..).zip(a_registers) {
                *at(&mut a, fragment::a_tf32(lane, r)) = value(bits);
            }
            for (r, &bits) in (0..).zip(b_registers) {
                *at(&mut b, fragment::b_tf32(lane, r)) = value(bits);
            }
            continue;
        }
        let values = |bits| halves(bits).map(|half| element.value(half));
        for (r, &bits) in (0..).zip(&a_registers[..K / 4]) {
            for (half, value) in (0..).zip(values(bits)) {
                *at(&mut a, fragment::a_16bit(lane, r, half)) = value;
            }
        }
        for (r, &bits) in (0..).zip(&b_registers[..K / 8]) {
            for (half, value) in (0..).zip(values(bits)) {
                *at(&mut b, fragment::b_16bit(lane, r, half)) = value;
            }
        }
    }
    let mut c = [[0.0; 8]; 16]; // (16, 8)
    let accumulators =
        |operands: &[u32; OPERANDS]| [6, 7, 8, 9].map(|i| f64::from(f32::from_bits(operands[i])));
    for (lane, request) in (0..).zip(requests.iter()) {
        for (r, value) in (0..).zip(accumulators(&request.operands)) {
            *at(&mut c, fragment::c_f32(lane, r)) = value;
        }
    }
    for (c, a) in c.iter_mut().zip(&a) {
        for (a, b) in a.iter().zip(&b) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += a * b;
            }
        }
    }
    for (lane, request) in (0..).zip(requests.iter_mut()) {
        for (r, result) in (0..).zip(&mut request.operands[..4]) {
            *result = round(*at(&mut c, fragment::c_f32(lane, r))).to_bits();
        }
    }
}

/// The two places of four that a nibble of metadata names; what it says if they are none, or not in order.
pub(super) fn places(metadata: u32, nibble: u32) -> Result<[u32; 2], String> {
    let bits = metadata >> (4 * nibble);
    let (one, other) = (bits & 3, bits >> 2 & 3);
    match one < other {
        true => Ok([one, other]),
        false => Err(format!("nibble {nibble} of metadata names places {one} and {other}")),
    }
}

/// Operands 0 to 3 are A's registers, 4 to 7 B's, 8 to 11 the accumulator's, then the metadata and the selector; the
/// result replaces 0 to 3.
pub(super) fn multiply_sparse(
    requests: &mut [Request],
    element: Element,
    refuse: impl Fn(u16, String) -> Box<Violation>,
) -> Checked<()> {
    let mut a = [[0.0; 16]; 16]; // (16, 16), of which two are of each four columns
    let mut kept = [[0; 16]; 16]; // which column each is
    let mut b = [[0.0; 8]; 32]; // (32, 8)
    let mut c = [[0.0; 8]; 16]; // (16, 8)
    let selector = requests[0].operands[13];
    for (lane, Request { operands, .. }) in (0..).zip(requests.iter()) {
        let thread = u16::try_from(lane).unwrap_or(u16::MAX);
        if selector > 1 || operands[13] != selector {
            return Err(refuse(thread, format!("selector {} of lane {lane}", operands[13])));
        }
        for register in 0..4 {
            for (half, bits) in (0..).zip(halves(operands[register as usize])) {
                *at(&mut a, fragment::a_16bit(lane, register, half)) = element.value(bits);
            }
            for (half, bits) in (0..).zip(halves(operands[register as usize + 4])) {
                *at(&mut b, fragment::b_16bit(lane, register, half)) = element.value(bits);
            }
            let accumulator = f32::from_bits(operands[register as usize + 8]);
            *at(&mut c, fragment::c_f32(lane, register)) = f64::from(accumulator);
        }
        for nibble in 0..8 {
            if let Some((row, group)) = fragment::sparse_metadata(lane, selector, nibble) {
                let [one, other] = places(operands[12], nibble)
                    .map_err(|told| refuse(thread, format!("{told} of row {row}, group {group}")))?;
                for (place, i) in [one, other].into_iter().zip(0..) {
                    kept[row as usize][(group * 2 + i) as usize] = (group * 4 + place) as usize;
                }
            }
        }
    }
    for ((c, a), kept) in c.iter_mut().zip(&a).zip(&kept) {
        for (a, &inner) in a.iter().zip(kept) {
            for (c, b) in c.iter_mut().zip(&b[inner]) {
                *c += a * b;
            }
        }
    }
    for (lane, request) in (0..).zip(requests.iter_mut()) {
        for (r, result) in (0..).zip(&mut request.operands[..4]) {
            *result = round(*at(&mut c, fragment::c_f32(lane, r))).to_bits();
        }
    }
    Ok(())
}

fn at<const ROWS: usize, const COLUMNS: usize>(
    matrix: &mut [[f64; COLUMNS]; ROWS],
    (row, column): fragment::Position,
) -> &mut f64 {
    &mut matrix[row as usize][column as usize]
}

impl Element {
    /// The value of a 16-bit element.
    fn value(self, bits: u16) -> f64 {
        f64::from(match self {
            Self::Bf16 => bf16::from_bits(bits).to_f32(),
            Self::F16 | Self::Tf32 => f16::from_bits(bits).to_f32(),
        })
    }
}

/// The nearest f32, ties to even.
#[expect(clippy::cast_possible_truncation, reason = "rounding is the point")]
pub(super) fn round(value: f64) -> f32 {
    value as f32
}

/// The low and the high 16 bits.
pub(super) const fn halves(bits: u32) -> [u16; 2] {
    let [a, b, c, d] = bits.to_le_bytes();
    [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])]
}

/// The bits of an f32 that tf32 has.
const TF32_BITS: u32 = !0x1fff;
/// The NaN that `cvt` to a 16-bit format gives.
const NAN_16: u16 = 0x7fff;
/// The NaN that `cvt` to tf32 gives.
const NAN_32: u32 = 0x7fff_ffff;

/// As `cvt.rn.f16.f32`: to nearest, ties to even; every NaN becomes [`NAN_16`].
pub(super) fn f32_to_f16(value: f32) -> u16 {
    if value.is_nan() { NAN_16 } else { f16::from_f32(value).to_bits() }
}

/// As `cvt.rn.bf16.f32`: to nearest, ties to even; every NaN becomes [`NAN_16`].
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    if value.is_nan() { NAN_16 } else { bf16::from_f32(value).to_bits() }
}

/// `cvt.rna.tf32.f32`: half of the last kept place is added to the magnitude, whose carry may run
/// into the exponent, and the rest is cut.
pub(super) fn f32_to_tf32(value: f32) -> u32 {
    if value.is_nan() { NAN_32 } else { (value.to_bits() + 0x1000) & TF32_BITS }
}

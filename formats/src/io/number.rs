//! Decimal numbers in text, eight digits at a time.
//!
//! Numbers are read in place: a scanner gets a position in a text and returns the value and the position
//! behind it. A scanner may decline (`None`) whatever is rare (the end of the text is near, very long
//! numbers, `nan`); [`parse_f64`] then decides, so that every result is that of `str::parse::<f64>`.

/// Bytes that a scanner looks at together.
const WORD: usize = 8;
/// `b'0'` in every byte.
const ZEROS: u64 = u64::from_ne_bytes([b'0'; WORD]);
/// What lifts a byte of 10 or more to 128 or more, in every byte.
const ABOVE_NINE: u64 = u64::from_ne_bytes([128 - 10; WORD]);
/// The top bit of every byte.
const TOP_BITS: u64 = u64::from_ne_bytes([128; WORD]);

/// `10^i`, exact in `u64`.
const TEN: [u64; 20] = powers(10);
/// `5^i`, exact in `u64`.
const FIVE: [u64; 28] = powers(5);
/// `10^i`, exact in `f64`.
const TEN_F64: [f64; 23] = {
    let mut powers = [1.0; 23];
    let mut i = 1;
    while i < 23 {
        powers[i] = powers[i - 1] * 10.0;
        i += 1;
    }
    powers
};

const fn powers<const N: usize>(base: u64) -> [u64; N] {
    let mut powers = [1; N];
    let mut i = 1;
    while i < N {
        powers[i] = powers[i - 1] * base;
        i += 1;
    }
    powers
}

/// The eight bytes at `at`, the first one in the lowest place.
#[inline]
fn word_at(text: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(text.get(at..at + WORD)?.try_into().ok()?))
}

/// How many of the bytes, from the first on, are digits; and the bytes less `b'0'`.
#[inline]
fn leading_digits(word: u64) -> (u32, u64) {
    let digits = word ^ ZEROS;
    // A byte of 10 or more gets its top bit, by the sum or because it has it. A carry out of such a byte
    // only reaches bytes behind the first one that is no digit.
    let others = (digits.wrapping_add(ABOVE_NINE) | digits) & TOP_BITS;
    (others.trailing_zeros() / 8, digits)
}

/// The number whose digits are the eight bytes, the first byte the most significant.
#[inline]
fn eight_digits(digits: u64) -> u64 {
    // Neighbours are joined to pairs, pairs to fours, fours to the whole: each step weighs the earlier,
    // lower one of two lanes and adds the later one.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

/// The number that the first `count <= 8` digits spell; bytes behind them do not matter.
#[inline]
fn few_digits(count: u32, digits: u64) -> u64 {
    // Zeros move in front of the digits. In two steps, since a shift by 64 is not allowed.
    let half = 4 * (8 - count);
    eight_digits(digits << half << half)
}

/// The unsigned integer of at most 15 digits at `at`.
#[inline(always)]
pub(super) fn scan_index(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let (count, digits) = leading_digits(word_at(text, at)?);
    if count == 0 {
        return None;
    }
    if count < 8 {
        return Some((few_digits(count, digits), at + count as usize));
    }
    let high = eight_digits(digits);
    let (count, digits) = leading_digits(word_at(text, at + WORD)?);
    if count == 8 {
        return None;
    }
    Some((high * TEN[count as usize] + few_digits(count, digits), at + WORD + count as usize))
}

/// Appends the digits at `at` to `number`, modulo 2^64; returns the result and the position behind them.
#[inline(always)]
fn scan_digits(text: &[u8], mut at: usize, mut number: u64) -> Option<(u64, usize)> {
    loop {
        let (count, digits) = leading_digits(word_at(text, at)?);
        if count < 8 {
            let number = number.wrapping_mul(TEN[count as usize]).wrapping_add(few_digits(count, digits));
            return Some((number, at + count as usize));
        }
        number = number.wrapping_mul(TEN[8]).wrapping_add(eight_digits(digits));
        at += WORD;
        // The second word is taken the same way whether it is full or not: most numbers of a file differ by
        // a digit, and a branch between 15 and 16 digits would be predicted badly.
        let (count, digits) = leading_digits(word_at(text, at)?);
        number = number.wrapping_mul(TEN[count as usize]).wrapping_add(few_digits(count, digits));
        at += count as usize;
        if !text.get(at)?.is_ascii_digit() {
            return Some((number, at));
        }
    }
}

/// The same one digit at a time, for places where there are few.
#[inline]
fn scan_few_digits(text: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    loop {
        let digit = text.get(at)?.wrapping_sub(b'0');
        if digit > 9 {
            return Some((number, at));
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
}

/// 1 for a sign, 0 for anything else. Signs follow no pattern that a branch could be predicted by, so that all
/// about them is done without.
#[inline]
fn is_sign(byte: u8) -> usize {
    usize::from((byte == b'-') | (byte == b'+'))
}

/// The decimal number at `at`, rounded to nearest, ties to even, as `str::parse` does.
///
/// Declines more than 19 digits, exponents that [`compose`] declines and words like `inf`.
#[inline(always)]
pub(super) fn scan_f64(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let sign = *text.get(at)?;
    let start = at + is_sign(sign);
    let (mut mantissa, mut at) = scan_few_digits(text, start)?;
    let (mut digits, mut exponent) = (at - start, 0i64);
    if text.get(at) == Some(&b'.') {
        let point = at + 1;
        (mantissa, at) = scan_digits(text, point, mantissa)?;
        digits += at - point;
        exponent = -i64::try_from(at - point).ok()?;
    }
    if digits == 0 || digits > 19 {
        return None;
    }
    if text.get(at)? | 0x20 == b'e' {
        let sign = *text.get(at + 1)?;
        let start = at + 1 + is_sign(sign);
        let (written, end) = scan_few_digits(text, start)?;
        if end == start || end - start > 4 {
            return None;
        }
        let written = i64::try_from(written).ok()?;
        // 0 or -1: x ^ 0 - 0 is x, x ^ -1 - (-1) is -x.
        let minus = -i64::from(sign == b'-');
        exponent += (written ^ minus) - minus;
        at = end;
    }
    let magnitude = compose(mantissa, digits, exponent)?;
    let negative = u64::from(sign == b'-') << 63;
    Some((f64::from_bits(magnitude.to_bits() | negative), at))
}

/// `mantissa · 10^exponent`, rounded to nearest, ties to even, for exponents in `-27..=27`; `digits` is how
/// many digits `mantissa` has at most.
#[inline(always)]
fn compose(mantissa: u64, digits: usize, exponent: i64) -> Option<f64> {
    let power = usize::try_from(exponent.unsigned_abs()).ok()?;
    // Where both factors are exact in f64, one multiplication or division rounds once (Clinger, "How to
    // read floating point numbers accurately", PLDI 1990, section 3).
    if digits <= 15 && power < TEN_F64.len() {
        // From i64, which processors convert at once.
        let (number, power) = (i64::try_from(mantissa).ok()? as f64, TEN_F64[power]);
        return Some(if exponent < 0 { number / power } else { number * power });
    }
    if mantissa == 0 {
        return Some(0.0);
    }
    // 10^e = 5^e · 2^e, and the power of two only moves the exponent. The product or quotient with 5^e is
    // made in integers: `top · 2^scale` is the magnitude, cut to 64 bits if it has more.
    let (top, cut, scale) = if exponent < 0 { divide(mantissa, power)? } else { multiply(mantissa, power)? };
    // With the lowest bit set where something was cut off, the conversion to f64 rounds as the whole would:
    // the half-way points between two f64 have at most 54 bits.
    let two = f64::from_bits(u64::try_from(scale + exponent + 1023).ok()? << 52);
    Some((top | u64::from(cut)) as f64 * two)
}

/// `mantissa · 5^power` as `(top, cut, scale)`: `top · 2^scale`, and whether something was cut off.
fn multiply(mantissa: u64, power: usize) -> Option<(u64, bool, i64)> {
    let product = u128::from(mantissa) * u128::from(*FIVE.get(power)?);
    let down = 64u32.saturating_sub(product.leading_zeros());
    let cut = product & ((1 << down) - 1) != 0;
    Some((u64::try_from(product >> down).ok()?, cut, i64::from(down)))
}

/// `mantissa / 5^power`, like [`multiply`]. Bits of `top` that no rounding depends on may be wrong.
#[inline(always)]
fn divide(mantissa: u64, power: usize) -> Option<(u64, bool, i64)> {
    let &Reciprocal { five, five_up, inverse } = RECIPROCALS.get(power)?;
    // With both shifted so that their top bit is set, the quotient · 2^63 has 63 or 64 bits.
    let up = mantissa.leading_zeros();
    let mantissa = u128::from(mantissa << up);
    let scale = i64::from(five_up) - i64::from(up) - 63;
    // `inverse` is less than 2^127 / five by less than 1, so the product with it is less than the quotient by
    // less than 1, and cutting it takes away less than 1 more: quotient - 2 < top <= quotient.
    let top = u64::try_from((mantissa * u128::from(inverse)) >> 64).ok()?;
    // An f64 keeps 53 of the bits. Unless the 10 or 11 below them are just half of a unit or one less, it
    // does not matter by how much `top` is too small.
    let below = 11 - top.leading_zeros();
    let half = 1u64 << (below - 1);
    if (top & (2 * half - 1)).wrapping_sub(half - 1) > 1 {
        return Some((top, true, scale));
    }
    let (dividend, five) = (mantissa << 63, u128::from(five));
    Some((u64::try_from(dividend / five).ok()?, dividend % five != 0, scale))
}

/// What it takes to divide by `5^power` without a division.
struct Reciprocal {
    /// `5^power · 2^five_up`, at least 2^63.
    five: u64,
    five_up: u32,
    /// `2^127 / five`, cut to an integer.
    inverse: u64,
}

/// [`Reciprocal`]s of `5^i`; that of `5^0`, which is not used, is as near as 64 bits can be.
static RECIPROCALS: [Reciprocal; FIVE.len()] = {
    let mut reciprocals =
        [const { Reciprocal { five: 1 << 63, five_up: 63, inverse: u64::MAX } }; FIVE.len()];
    let mut i = 1;
    while i < FIVE.len() {
        let five_up = FIVE[i].leading_zeros();
        let five = FIVE[i] << five_up;
        // Less than 2^64, since five is more than 2^63: the low half is all of it.
        let inverse = (1u128 << 127) / five as u128;
        assert!(inverse >> 64 == 0, "the inverse fits 64 bits");
        let bytes = inverse.to_le_bytes();
        let mut low = 0;
        let mut byte = 8;
        while byte > 0 {
            byte -= 1;
            low = low << 8 | bytes[byte] as u64;
        }
        reciprocals[i] = Reciprocal { five, five_up, inverse: low };
        i += 1;
    }
    reciprocals
};

/// The number that the whole of `token` spells; exactly what `str::parse::<f64>` says.
pub(super) fn parse_f64(token: &[u8]) -> Option<f64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// The unsigned integer that the whole of `token` spells, digits only; saturates at `u64::MAX`.
pub(super) fn parse_unsigned(token: &[u8]) -> Option<u64> {
    if token.is_empty() {
        return None;
    }
    token.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Whether `token` is an integer: an optional sign, then digits.
pub(super) fn is_integer(token: &[u8]) -> bool {
    let digits = token.strip_prefix(b"-").or(token.strip_prefix(b"+")).unwrap_or(token);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
